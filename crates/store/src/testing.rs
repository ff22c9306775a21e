//! Makes scans without a recorder, for tests: known to the byte, and easy to damage.
//!
//! The layout follows the store's reference page, not the writer's code, so that reader and writer are each checked
//! against the same page.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fullbore_core::account::{Account, CountedBy, Edge, Flow, Host, Terms};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::index::{Block, Codec, Entry, LENGTHS};
use fullbore_core::layout::{Geometry, chunk_file};
use fullbore_core::manifest::{
    ACCOUNT_FILE, Fill, Format, INDEX_FILE, MANIFEST_FILE, Manifest, Member, SIDE_DIRECTORY, State,
    Stream, Summary, VERSION,
};
use fullbore_core::name::{Name, ScanName};
use fullbore_formats::FILL;
use fullbore_formats::framed::FrameKind;
use fullbore_formats::vdif::{Header, Second};
use fullbore_time::Tai;
use tempfile::TempDir;
use uuid::Uuid;

use super::gaps::Gaps;
use super::inventory::{MEMBER_FILE, PART_SUFFIX, side_file};

/// Bytes of a frame in made-up streams: 8 of them are 4096 bytes.
pub const FRAME_BYTES: u32 = 512;

/// Frames of a block in made-up streams.
pub const BLOCK_FRAMES: u64 = 32;

/// Blocks of a chunk in made-up streams.
pub const CHUNK_BLOCKS: u32 = 3;

/// The station of all frames.
const STATION: u16 = 0x777A;

/// Frames per second of each thread.
pub const RATE: u64 = 100;

/// A disk set in temporary directories.
#[derive(Debug)]
pub struct Store {
    members: Vec<(TempDir, Uuid)>,
}

/// The plan of a stream.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    name: String,
    vdif: bool,
    threads: Vec<u16>,
    frames: u64,
    gaps: Vec<Gap>,
    /// Frames without a block, from a block's start on; they are also in `gaps`.
    skipped: Option<Range<i64>>,
    invalid: Vec<i64>,
    /// True if frames arrived at their own times, and not all at once.
    timely: bool,
    fill: Fill,
    varying: bool,
    sealed: bool,
    /// The number of each chunk, if it differs from its position.
    numbers: Vec<u32>,
    /// Blocks at the end of each member's part whose records were never written.
    unrecorded: usize,
    /// Blocks at the end of each member's part that were written after the last mark.
    unmarked: usize,
}

impl StreamPlan {
    /// Returns a plan for a thousand VDIF frames of one thread; nothing missing.
    pub fn vdif(name: &str) -> Self {
        Self {
            name: name.into(),
            vdif: true,
            threads: vec![0],
            frames: 1000,
            gaps: Vec::new(),
            skipped: None,
            invalid: Vec::new(),
            timely: false,
            fill: Fill::Invalid,
            varying: false,
            sealed: true,
            numbers: Vec::new(),
            unrecorded: 0,
            unmarked: 0,
        }
    }

    /// Returns a plan for a thousand datagrams without a packet number.
    pub fn raw(name: &str) -> Self {
        Self { vdif: false, threads: Vec::new(), fill: Fill::Omit, ..Self::vdif(name) }
    }

    /// Returns a plan for datagrams of varying length.
    pub fn varying(name: &str) -> Self {
        Self { varying: true, ..Self::raw(name) }
    }

    /// Sets the name.
    pub fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the number of frames.
    pub fn frames(self, frames: u64) -> Self {
        Self { frames, ..self }
    }

    /// Sets the threads, which alternate frame by frame.
    pub fn threads(self, threads: &[u16]) -> Self {
        Self { threads: threads.to_vec(), ..self }
    }

    /// Removes these frames.
    pub fn gap(mut self, first: i64, count: u64, cause: Cause) -> Self {
        self.gaps.push(Gap { first, count, cause });
        self
    }

    /// Removes the blocks in `blocks`, counted in blocks: overrun.
    pub fn skip_blocks(mut self, blocks: Range<i64>) -> Self {
        let (start, end) = (blocks.start * BLOCK_FRAMES as i64, blocks.end * BLOCK_FRAMES as i64);
        self.skipped = Some(start..end);
        self.gap(start, (end - start) as u64, Cause::Overrun)
    }

    /// Makes frames arrive at their own times.
    pub fn timely(self) -> Self {
        Self { timely: true, ..self }
    }

    /// Makes the sender mark these frames invalid.
    pub fn invalid(self, invalid: &[i64]) -> Self {
        Self { invalid: invalid.to_vec(), ..self }
    }

    /// Sets the fill.
    pub fn fill(self, fill: Fill) -> Self {
        Self { fill, ..self }
    }

    /// Sets the chunk numbers, in the order of the stream.
    pub fn numbered(self, numbers: &[u32]) -> Self {
        Self { numbers: numbers.to_vec(), ..self }
    }

    /// Makes the stream look left by a recorder that died.
    pub fn unsealed(self) -> Self {
        Self { sealed: false, ..self }
    }

    /// The same, with this many blocks of each member written without records.
    pub fn unrecorded(self, unrecorded: usize) -> Self {
        Self { unrecorded, ..self.unsealed() }
    }

    /// The same, with this many recorded blocks of each member not yet durable.
    pub fn unmarked(self, unmarked: usize) -> Self {
        Self { unmarked, ..self.unsealed() }
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            frame_bytes: if self.varying { 0 } else { FRAME_BYTES },
            block_bytes: FRAME_BYTES * BLOCK_FRAMES as u32,
            chunk_blocks: CHUNK_BLOCKS,
        }
    }
}

/// A scan made for a test.
#[derive(Debug)]
pub struct Laid {
    /// The name.
    pub name: ScanName,
    /// The manifest, as sealed.
    pub manifest: Manifest,
    /// The account of each stream, as sealed.
    pub accounts: Vec<Account>,
    /// All bytes of each stream, in order.
    pub bytes: Vec<Vec<u8>>,
    /// Blocks of each stream, with the member of each.
    pub blocks: Vec<Vec<(usize, Block)>>,
    roots: Vec<PathBuf>,
}

impl Laid {
    /// A stream's directory on a member.
    pub fn directory(&self, stream: usize, member: usize) -> PathBuf {
        self.roots[member].join(&self.manifest.streams[stream].directory)
    }

    /// A stream's manifest on a member.
    pub fn manifest_path(&self, stream: usize, member: usize) -> PathBuf {
        side_file(&self.directory(stream, member), MANIFEST_FILE)
    }

    /// A stream's account on a member.
    pub fn account_path(&self, stream: usize, member: usize) -> PathBuf {
        side_file(&self.directory(stream, member), ACCOUNT_FILE)
    }

    /// A stream's index on a member.
    pub fn index_path(&self, stream: usize, member: usize) -> PathBuf {
        side_file(&self.directory(stream, member), INDEX_FILE)
    }

    /// Returns the final path of a chunk.
    pub fn chunk_path(&self, stream: usize, chunk: u32) -> PathBuf {
        let (member, _) = self.blocks[stream]
            .iter()
            .find(|(_, block)| block.chunk == chunk)
            .unwrap_or_else(|| panic!("no chunk {chunk}"));
        let directory = &self.manifest.streams[stream].directory;
        self.directory(stream, *member).join(chunk_file(directory, chunk))
    }

    /// The chunk numbers of a stream.
    pub fn chunks(&self, stream: usize) -> Vec<u32> {
        let mut chunks: Vec<u32> = self.blocks[stream].iter().map(|(_, b)| b.chunk).collect();
        chunks.dedup();
        chunks
    }
}

impl Store {
    /// Makes a disk set of this many members.
    pub fn new(members: usize) -> Self {
        Self::under(&std::env::temp_dir(), members)
    }

    /// Makes a disk set in memory if the system has such a place: for many small files.
    pub fn in_memory(members: usize) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::under(memory, members) } else { Self::new(members) }
    }

    fn under(place: &Path, members: usize) -> Self {
        let member = |number: usize| {
            let root = tempfile::tempdir_in(place).expect("a temporary directory");
            let uuid = Uuid::from_u128(0xD15C_0000 + number as u128);
            let side = root.path().join(SIDE_DIRECTORY);
            std::fs::create_dir(&side).expect("a directory in our own one");
            put(&side.join(MEMBER_FILE), format!("{{\"uuid\":\"{uuid}\"}}\n").as_bytes());
            (root, uuid)
        };
        Self { members: (0..members).map(member).collect() }
    }

    /// The roots of the members.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.members.iter().map(|(root, _)| root.path().to_owned()).collect()
    }

    /// Removes the members from this one on, with their files, and returns them.
    pub fn split_off(&mut self, first: usize) -> Self {
        Self { members: self.members.split_off(first) }
    }

    /// Makes a scan of these streams.
    pub fn lay_down(&self, name: &str, plans: &[StreamPlan]) -> Laid {
        let name: ScanName = name.parse().expect("a scan's name");
        let made: Vec<Made> = plans.iter().map(|plan| make(plan, self.members.len())).collect();
        let manifest = self.manifest(&name, plans, &made);
        let mut written = manifest.clone();
        if !plans.iter().all(|plan| plan.sealed) {
            unseal(&mut written);
        }
        for (number, (plan, made)) in plans.iter().zip(&made).enumerate() {
            for member in 0..self.members.len() {
                self.write_part(&manifest, &written, number, plan, made, member);
            }
        }
        Laid {
            name,
            manifest,
            accounts: made.iter().map(|made| made.account.clone()).collect(),
            bytes: made.iter().map(|made| made.bytes.clone()).collect(),
            blocks: made
                .into_iter()
                .map(|made| made.blocks.into_iter().map(|it| (it.member, it.block)).collect())
                .collect(),
            roots: self.roots(),
        }
    }

    /// Makes a scan of one captured stream: with these blocks, in order, on the first member, and with gaps recorded
    /// behind the last of them. The manifest's counts are adjusted.
    pub fn lay_captured(
        &self,
        name: &ScanName,
        mut stream: Stream,
        account: &Account,
        mut blocks: Vec<MadeBlock>,
        gaps: &[Gap],
    ) {
        let geometry = stream.geometry.expect("a stream that was captured is cut");
        let mut end = (0, 0);
        for (place, made) in blocks.iter_mut().enumerate() {
            let chunk = place as u32 / geometry.chunk_blocks;
            let offset = if chunk == end.0 { end.1 } else { 0 };
            made.put_at(chunk, offset);
            end = (chunk, offset + made.bytes.len() as u64);
        }
        stream.directory = name.directory(None);
        (stream.blocks, stream.bytes) =
            (blocks.len() as u64, blocks.iter().map(|made| made.bytes.len() as u64).sum());
        stream.account = Some(Summary::from(account));
        let mut manifest = self.manifest(name, &[], &[]);
        manifest.streams.push(stream);
        let path = self.members[0].0.path().join(name.to_string());
        std::fs::create_dir_all(path.join(SIDE_DIRECTORY)).expect("a directory in our own one");
        put(&side_file(&path, MANIFEST_FILE), &manifest.to_json());
        put(&side_file(&path, ACCOUNT_FILE), &account.to_json());
        let own: Vec<&MadeBlock> = blocks.iter().collect();
        for (chunk, bytes) in chunks_of(&own) {
            put(&path.join(chunk_file(&name.to_string(), chunk)), &bytes);
        }
        let mut entries = vec![self.header(geometry, 0)];
        entries.extend(blocks.iter().flat_map(MadeBlock::entries));
        entries.extend(gaps.iter().copied().map(Entry::Gap));
        let codec = Codec::of_scan(manifest.uuid);
        let index: Vec<u8> = entries.iter().flat_map(|entry| codec.encode(0, entry)).collect();
        put(&side_file(&path, INDEX_FILE), &index);
    }

    /// Makes this many sealed scans without data, from `r1_n00000` on.
    pub fn lay_down_many(&self, scans: usize) {
        let plans = [StreamPlan::vdif("46220").frames(64)];
        let made = [make(&plans[0], self.members.len())];
        for number in 0..scans {
            let name: ScanName = format!("r1_n{number:05}").parse().expect("a scan's name");
            let manifest = self.manifest(&name, &plans, &made).to_json();
            for (root, _) in &self.members {
                let side = root.path().join(name.to_string()).join(SIDE_DIRECTORY);
                std::fs::create_dir_all(&side).expect("a directory in our own one");
                put(&side.join(MANIFEST_FILE), &manifest);
            }
        }
    }

    fn manifest(&self, name: &ScanName, plans: &[StreamPlan], made: &[Made]) -> Manifest {
        let alone = plans.len() == 1;
        let stream = |plan: &StreamPlan, made: &Made| {
            let name_of_stream: Name = plan.name.parse().expect("a stream's name");
            Stream {
                directory: name.directory((!alone).then_some(&name_of_stream)),
                name: name_of_stream,
                source: "udp://0.0.0.0:46220".into(),
                format: match plan.vdif {
                    true => Format::Frames {
                        kind: FrameKind::Vdif,
                        frames_per_second: Some(RATE),
                        derived: false,
                        threads: plan.threads.clone(),
                    },
                    false => Format::Raw,
                },
                stripped_bytes: 0,
                samples: None,
                geometry: Some(plan.geometry()),
                fill: plan.fill,
                blocks: made.blocks.len() as u64,
                bytes: made.bytes.len() as u64,
                account: Some(Summary::from(&made.account)),
                context: None,
                renamed: None,
            }
        };
        Manifest {
            version: VERSION,
            uuid: Uuid::new_v5_of(&name.to_string()),
            scan: name.clone(),
            state: State::Sealed,
            software: "fullbore test".into(),
            host: "here".into(),
            planned: None,
            armed: start(),
            stopped: Some(start().plus_ns(10_000_000_000)),
            times: None,
            host_setup: None,
            redundancy: None,
            members: self
                .members
                .iter()
                .map(|(root, uuid)| Member {
                    uuid: *uuid,
                    path: root.path().to_owned(),
                    failure: None,
                    buffered: false,
                })
                .collect(),
            away: Vec::new(),
            streams: plans.iter().zip(made).map(|(plan, made)| stream(plan, made)).collect(),
            markers: Vec::new(),
            forwarded: Vec::new(),
            copied: None,
        }
    }

    fn write_part(
        &self,
        sealed: &Manifest,
        manifest: &Manifest,
        number: usize,
        plan: &StreamPlan,
        made: &Made,
        member: usize,
    ) {
        let directory = &manifest.streams[number].directory;
        let path = self.members[member].0.path().join(directory);
        std::fs::create_dir_all(path.join(SIDE_DIRECTORY)).expect("a directory in our own one");
        put(&side_file(&path, MANIFEST_FILE), &manifest.to_json());
        if plan.sealed {
            put(&side_file(&path, ACCOUNT_FILE), &made.account.to_json());
        }
        let own: Vec<&MadeBlock> = made.blocks.iter().filter(|it| it.member == member).collect();
        write_chunks(&path, directory, plan, &own);
        let codec = Codec::of_scan(sealed.uuid);
        let mut index = self.records(codec, number as u16, plan, &own, member);
        if !plan.sealed {
            index.resize(index.len().next_multiple_of(4096) + 8192, 0);
        }
        put(&side_file(&path, INDEX_FILE), &index);
    }

    fn records(
        &self,
        codec: Codec,
        number: u16,
        plan: &StreamPlan,
        own: &[&MadeBlock],
        member: usize,
    ) -> Vec<u8> {
        let mut entries = vec![self.header(plan.geometry(), member)];
        let recorded = own.len() - plan.unrecorded.min(own.len());
        let durable = own.len() - (plan.unrecorded + plan.unmarked).min(own.len());
        let mark = |blocks: usize| Entry::Mark { blocks: blocks as u64, at: start() };
        for (at, made) in own.iter().take(recorded).enumerate() {
            entries.extend(made.entries());
            if at + 1 == durable && durable > 0 {
                entries.push(mark(durable));
            }
        }
        entries.iter().flat_map(|entry| codec.encode(number, entry)).collect()
    }

    fn header(&self, geometry: Geometry, member: usize) -> Entry {
        let Geometry { frame_bytes, block_bytes, chunk_blocks } = geometry;
        let member = self.members[member].1;
        Entry::Header { member, frame_bytes, block_bytes, chunk_blocks }
    }
}

/// Test scans of one name have one identity.
trait OfName {
    fn new_v5_of(name: &str) -> Uuid;
}

impl OfName for Uuid {
    fn new_v5_of(name: &str) -> Uuid {
        let crc = |seed| u128::from(crc32c::crc32c_append(seed, name.as_bytes()));
        Uuid::from_u128(crc(1) << 96 | crc(2) << 64 | crc(3) << 32 | crc(4))
    }
}

/// Returns a manifest to its state when the scan was armed.
fn unseal(manifest: &mut Manifest) {
    manifest.state = State::Recording;
    manifest.stopped = None;
    for stream in &mut manifest.streams {
        (stream.blocks, stream.bytes, stream.account) = (0, 0, None);
    }
}

fn put(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Writes chunks under their final names; the chunk in progress when the recorder died gets its working name, with
/// preallocated zeroes at its end.
fn write_chunks(path: &Path, directory: &str, plan: &StreamPlan, own: &[&MadeBlock]) {
    let chunks = chunks_of(own);
    let last = chunks.keys().last().copied();
    for (number, mut bytes) in chunks {
        let name = chunk_file(directory, number);
        if !plan.sealed && Some(number) == last {
            bytes.resize(plan.geometry().chunk_bytes() as usize, 0);
            put(&side_file(path, &format!("{name}{PART_SUFFIX}")), &bytes);
        } else {
            put(&path.join(name), &bytes);
        }
    }
}

/// Returns the content of each chunk file.
fn chunks_of(own: &[&MadeBlock]) -> BTreeMap<u32, Vec<u8>> {
    let mut chunks: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for made in own {
        chunks.entry(made.block.chunk).or_default().extend_from_slice(&made.bytes);
    }
    chunks
}

/// The start time of test scans.
pub fn start() -> Tai {
    "2026-11-21T18:00:00Z".parse().expect("a time")
}

#[derive(Debug)]
struct Made {
    blocks: Vec<MadeBlock>,
    bytes: Vec<u8>,
    account: Account,
}

/// A block with its records.
#[derive(Debug)]
pub struct MadeBlock {
    /// The index of its member.
    pub member: usize,
    /// The record, except for place, length and checksum.
    pub block: Block,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Gaps recorded with it.
    pub gaps: Vec<Gap>,
    /// Lengths of its frames, if they vary.
    pub lengths: Vec<u16>,
}

impl MadeBlock {
    fn put_at(&mut self, chunk: u32, offset: u64) {
        (self.block.chunk, self.block.offset) = (chunk, offset);
        self.block.bytes = self.bytes.len() as u32;
        self.block.crc = crc32c::crc32c(&self.bytes);
    }

    /// Returns its index entries.
    fn entries(&self) -> Vec<Entry> {
        let mut entries = vec![Entry::Block(self.block)];
        for (part, lengths) in self.lengths.chunks(LENGTHS).enumerate() {
            let first = (part * LENGTHS) as u32;
            let (sequence, lengths) = (self.block.sequence, lengths.to_vec());
            entries.push(Entry::Lengths { sequence, first, lengths });
        }
        entries.extend(self.gaps.iter().copied().map(Entry::Gap));
        entries
    }
}

fn make(plan: &StreamPlan, members: usize) -> Made {
    let blocks = if plan.varying { varying_blocks(plan) } else { fixed_blocks(plan) };
    let mut offset = 0;
    let mut made: Vec<MadeBlock> = Vec::new();
    for (sequence, mut next) in blocks.into_iter().enumerate() {
        let place = sequence as u32 / CHUNK_BLOCKS;
        if (sequence as u32).is_multiple_of(CHUNK_BLOCKS) {
            offset = 0;
        }
        let chunk = plan.numbers.get(place as usize).copied().unwrap_or(place);
        next.member = place as usize % members;
        next.block.sequence = sequence as u64;
        next.put_at(chunk, offset);
        offset += next.bytes.len() as u64;
        made.push(next);
    }
    // A gap is recorded with the first block that begins behind it, or with the last one. In a sequential stream it has
    // no place, and only the account has it.
    for gap in plan.gaps.iter().filter(|_| plan.fill != Fill::Omit) {
        let end = gap.first + gap.count as i64;
        let at = made.iter().position(|it| it.block.first >= end);
        let at = at.unwrap_or(made.len().saturating_sub(1));
        made[at].gaps.push(*gap);
    }
    let bytes = made.iter().flat_map(|it| it.bytes.clone()).collect();
    let account = account(plan, &made);
    Made { blocks: made, bytes, account }
}

fn account(plan: &StreamPlan, made: &[MadeBlock]) -> Account {
    let gaps = Gaps::paint(plan.gaps.iter().copied());
    let counted_by = if plan.vdif { CountedBy::FrameTime } else { CountedBy::Nothing };
    let mut account = Account::new(counted_by);
    let sum = |of: fn(&Block) -> u32| made.iter().map(|it| u64::from(of(&it.block))).sum::<u64>();
    account.terms = Terms {
        expected: plan.frames,
        written: sum(|block| block.present),
        missing: gaps.total(Cause::Missing),
        overrun: gaps.total(Cause::Overrun),
        damaged: gaps.total(Cause::Damaged),
        late: gaps.total(Cause::Late),
        not_transferred: 0,
    };
    assert!(account.terms.balance(), "the plan of {} does not balance", plan.name);
    account.filled = sum(|block| block.frames - block.present);
    account.invalid = sum(|block| block.invalid);
    account.bytes = match plan.varying {
        true => made.iter().map(|it| it.bytes.len() as u64).sum(),
        false => account.terms.written * u64::from(FRAME_BYTES),
    };
    let time = |index: i64| plan.vdif.then(|| time_of(plan, index));
    let edge = |index: i64| Edge { index, time: time(index), seen: seen(plan, index) };
    account.first = Some(edge(0));
    account.last = Some(edge(plan.frames as i64 - 1));
    for gap in gaps.iter() {
        account.push_gap(gap);
    }
    if plan.vdif && plan.fill == Fill::Omit && plan.threads.len() > 1 {
        account.flows = flows(plan, &gaps);
        account.gaps.clear();
        let there = gaps.uncovered(0..plan.frames as i64);
        let time = there.last().and_then(|run| time(run.end - 1));
        account.last = Some(Edge { time, ..edge(account.terms.written as i64 - 1) });
    }
    // Like every account made by a recorder, and none made by `recover`.
    account.host = Some(Host {
        pool_blocks: 64,
        high_water: 9,
        members: Vec::new(),
        high_water_history: None,
    });
    account.verdict = account.judge();
    account
}

/// Returns the balance of each thread of a sequential stream.
fn flows(plan: &StreamPlan, gaps: &Gaps) -> Vec<Flow> {
    let threads = plan.threads.len() as i64;
    let all: Vec<Gap> = gaps.iter().collect();
    let flow = |(rank, thread): (i64, u16)| {
        let own = (rank..plan.frames as i64).step_by(threads as usize);
        let cause = |index: i64| {
            all.iter().find(|gap| (gap.first..gap.first + gap.count as i64).contains(&index))
        };
        let absent = own.clone().filter_map(|index| Some((index, cause(index)?.cause)));
        let single = |(index, cause): (i64, Cause)| Gap { first: index / threads, count: 1, cause };
        let gaps = Gaps::paint(absent.map(single));
        let terms = Terms {
            expected: own.count() as u64,
            written: 0,
            missing: gaps.total(Cause::Missing),
            overrun: gaps.total(Cause::Overrun),
            damaged: gaps.total(Cause::Damaged),
            late: gaps.total(Cause::Late),
            not_transferred: 0,
        };
        let terms = Terms { written: terms.expected - terms.sum(), ..terms };
        Flow { station: STATION, thread, terms, gaps: gaps.iter().collect(), ..Flow::default() }
    };
    (0..).zip(plan.threads.iter().copied()).map(flow).collect()
}

fn slot(plan: &StreamPlan, index: i64) -> (i64, usize) {
    let threads = plan.threads.len().max(1) as i64;
    (index.div_euclid(threads), index.rem_euclid(threads) as usize)
}

fn time_of(plan: &StreamPlan, index: i64) -> Tai {
    start().plus_ns(slot(plan, index).0 * (1_000_000_000 / RATE as i64))
}

/// Returns the frame at an index, as its sender made it.
fn frame(plan: &StreamPlan, index: i64, bytes: usize) -> Vec<u8> {
    // Any payload that differs from frame to frame and is not all zero.
    let seed = crc32c::crc32c_append(index as u32, plan.name.as_bytes());
    let mut frame: Vec<u8> =
        (0..bytes as u32).map(|at| (seed.wrapping_mul(at | 1) >> 13) as u8).collect();
    if plan.vdif {
        let header = header(plan, index).with_invalid(plan.invalid.contains(&index));
        header.write(&mut frame).expect("a frame has room for its header");
    }
    frame
}

fn header(plan: &StreamPlan, index: i64) -> Header {
    let (slot, rank) = slot(plan, index);
    let rate = RATE as i64;
    let second = Second(start().0 / 1_000_000_000 + slot.div_euclid(rate));
    let mut header = Header::default()
        .with_reference_epoch(53)
        .with_frame_bytes(FRAME_BYTES)
        .with_bits_per_sample(2)
        .with_station(STATION)
        .with_thread(plan.threads[rank]);
    header.set_time(second, slot.rem_euclid(rate) as u32);
    header
}

fn fill(plan: &StreamPlan, index: i64) -> Vec<u8> {
    let word = match plan.fill {
        Fill::Pattern(word) => word,
        Fill::Invalid | Fill::Omit => FILL,
    };
    let mut frame = word.to_le_bytes().repeat(FRAME_BYTES as usize / 4);
    if plan.fill == Fill::Invalid && plan.vdif {
        let header = header(plan, index).with_invalid(true);
        header.write(&mut frame).expect("a frame has room for its header");
    }
    frame
}

/// Returns the arrival time of a frame.
fn seen(plan: &StreamPlan, index: i64) -> Tai {
    if plan.timely { time_of(plan, index) } else { start() }
}

fn empty(plan: &StreamPlan, first: i64) -> MadeBlock {
    MadeBlock {
        member: 0,
        block: Block {
            sequence: 0,
            offset: 0,
            chunk: 0,
            bytes: 0,
            crc: 0,
            frames: 0,
            present: 0,
            invalid: 0,
            first,
            time: plan.vdif.then(|| time_of(plan, first)),
            seen: seen(plan, first),
        },
        bytes: Vec::new(),
        gaps: Vec::new(),
        lengths: Vec::new(),
    }
}

fn fixed_blocks(plan: &StreamPlan) -> Vec<MadeBlock> {
    let gaps = Gaps::paint(plan.gaps.iter().copied());
    let filled = plan.fill != Fill::Omit;
    let mut blocks: Vec<MadeBlock> = Vec::new();
    let mut arrived = 0;
    for index in 0..plan.frames as i64 {
        let skipped = plan.skipped.as_ref().is_some_and(|skipped| skipped.contains(&index));
        let missing = gaps.contains(index);
        if skipped || (missing && !filled) {
            continue;
        }
        if blocks.last().is_none_or(|it| u64::from(it.block.frames) == BLOCK_FRAMES) {
            let mut next = empty(plan, index);
            // In a sequential stream, blocks count arrivals.
            next.block.first = if filled { index } else { arrived };
            blocks.push(next);
        }
        arrived += 1;
        let made = blocks.last_mut().expect("one was pushed");
        made.block.frames += 1;
        if missing {
            made.bytes.extend(fill(plan, index));
        } else {
            made.block.present += 1;
            made.block.invalid += u32::from(plan.invalid.contains(&index));
            made.bytes.extend(frame(plan, index, FRAME_BYTES as usize));
        }
    }
    blocks
}

fn varying_blocks(plan: &StreamPlan) -> Vec<MadeBlock> {
    let block_bytes = plan.geometry().block_bytes as usize;
    let mut blocks: Vec<MadeBlock> = vec![empty(plan, 0)];
    for index in 0..plan.frames as i64 {
        let bytes = frame(plan, index, 64 + (index as usize * 37) % 900);
        if blocks.last().is_none_or(|it| it.bytes.len() == block_bytes) {
            blocks.push(empty(plan, index));
        }
        let made = blocks.last_mut().expect("there is one");
        if made.block.frames == 0 {
            made.block.first = index;
        }
        made.block.frames += 1;
        made.block.present += 1;
        made.lengths.push(bytes.len() as u16);
        let here = bytes.len().min(block_bytes - made.bytes.len());
        made.bytes.extend_from_slice(&bytes[..here]);
        if here < bytes.len() {
            let mut next = empty(plan, index + 1);
            next.bytes.extend_from_slice(&bytes[here..]);
            blocks.push(next);
        }
    }
    blocks
}
