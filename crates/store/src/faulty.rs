//! A simulated disk in memory that fails by a seed, and tests of the writer's guarantees on it.
//!
//! The disk gives only the guarantees of a file system: operations complete in any order; a sync makes durable what had
//! completed when it was submitted; a name is durable once a directory it concerns is synced. The state after a power
//! cut is known at every moment and is compared with every report.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fullbore_core::gap::{Cause, Gap};
use fullbore_core::index::{Codec, Entry};
use fullbore_core::layout::{Geometry, chunk_file};
use fullbore_linux::ring::{
    FullBlock, Pool, StreamRef, WriterCommand, WriterEvent, WriterMetrics, WriterReply, reply_queue,
};
use fullbore_linux::sys::memory::Region;
use fullbore_time::Tai;
use uuid::Uuid;

use super::disk::{Completion, Disk, Operation};
use super::inventory::PART_SUFFIX;
use super::reservation::SpaceRequest;
use super::writer::{CaptureQueue, Engine, Settings};

/// A reproducible random number generator (splitmix64).
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    /// Returns true with probability 1 in `times`; never for 0.
    fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.roll(times) == 0
    }
}

/// Fault rates: each fault occurs once in this many times, or never (0).
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    short_write: u64,
    write_error: u64,
    sync_error: u64,
    chore_error: u64,
    /// Bytes on the disk; 0 = unlimited.
    capacity: u64,
}

impl Faults {
    fn any(&self) -> bool {
        self.write_error + self.sync_error + self.chore_error + self.capacity > 0
    }
}

/// An open file or directory.
#[derive(Clone, Debug)]
enum Handle {
    File(usize),
    Directory(String),
}

#[derive(Default, Clone)]
struct Content {
    bytes: Vec<u8>,
    safe: Vec<u8>,
    space: u64,
}

/// A change of names, and the directories of which any makes the change durable when synced.
#[derive(Clone)]
struct Naming {
    remove: Option<String>,
    add: Option<(String, usize)>,
    directories: Vec<String>,
    safe: bool,
}

#[derive(Default)]
struct World {
    contents: Vec<Content>,
    names: BTreeMap<String, usize>,
    namings: Vec<Naming>,
}

fn parent(path: &str) -> String {
    path.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned())
}

impl World {
    fn rename(&mut self, remove: Option<String>, add: Option<(String, usize)>) {
        let paths = remove.iter().chain(add.as_ref().map(|(path, _)| path));
        let directories = paths.map(|path| parent(path)).collect();
        if let Some(path) = &remove {
            self.names.remove(path);
        }
        if let Some((path, file)) = &add {
            self.names.insert(path.clone(), *file);
        }
        self.namings.push(Naming { remove, add, directories, safe: false });
    }

    /// Returns the names that remain after a power cut.
    fn safe_names(&self) -> BTreeMap<String, usize> {
        let mut names = BTreeMap::new();
        for naming in self.namings.iter().filter(|naming| naming.safe) {
            if let Some(path) = &naming.remove {
                names.remove(path);
            }
            if let Some((path, file)) = &naming.add {
                names.insert(path.clone(), *file);
            }
        }
        names
    }

    fn used(&self) -> u64 {
        self.names.values().map(|&file| self.contents[file].space).sum()
    }
}

/// The changes that a sync makes durable when it succeeds.
enum Snapshot {
    None,
    Content(Vec<u8>),
    Names(usize),
}

struct FaultyDisk {
    dice: Dice,
    faults: Faults,
    world: Rc<RefCell<World>>,
    under_way: Vec<(u64, Operation<Handle>, Snapshot)>,
    now: Duration,
}

impl Disk for FaultyDisk {
    type File = Handle;

    fn submit(&mut self, token: u64, operation: Operation<Handle>) {
        let world = self.world.borrow();
        let snapshot = match &operation {
            Operation::Sync { file: Handle::File(file), .. } => {
                Snapshot::Content(world.contents[*file].bytes.clone())
            }
            Operation::Sync { .. } => Snapshot::Names(world.namings.len()),
            _ => Snapshot::None,
        };
        self.under_way.push((token, operation, snapshot));
    }

    fn wait(
        &mut self,
        timeout: Duration,
        idle: &mut dyn FnMut() -> bool,
        into: &mut Vec<Completion<Handle>>,
    ) -> io::Result<()> {
        let completing = self.dice.roll(4).min(self.under_way.len() as u64);
        for _ in 0..completing {
            let which = self.dice.roll(self.under_way.len() as u64) as usize;
            let (token, operation, snapshot) = self.under_way.swap_remove(which);
            into.push(self.perform(token, operation, snapshot));
        }
        let step = Duration::from_micros(self.dice.roll(40_000));
        self.now += if completing == 0 && idle() { step.min(timeout) } else { step / 100 };
        Ok(())
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn clock(&self) -> Tai {
        Tai(self.now.as_nanos() as i64)
    }
}

impl FaultyDisk {
    fn perform(
        &mut self,
        token: u64,
        operation: Operation<Handle>,
        snapshot: Snapshot,
    ) -> Completion<Handle> {
        let mut completion =
            Completion { token, result: Ok(0), reserved: 0, file: None, block: None };
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        match operation {
            Operation::Write { file, offset, block, part: (from, bytes) } => {
                completion.result =
                    self.write(&mut world, &file, offset, &block[from as usize..], bytes);
                completion.block = Some(block);
            }
            Operation::Sync { file, .. } if self.dice.once_in(self.faults.sync_error) => {
                assert!(matches!(file, Handle::File(_) | Handle::Directory(_)));
                completion.result = Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Operation::Sync { file, .. } => make_safe(&mut world, &file, snapshot),
            chore => match self.chore(&mut world, chore) {
                Ok((file, reserved)) => (completion.file, completion.reserved) = (file, reserved),
                Err(error) => completion.result = Err(error),
            },
        }
        completion
    }

    fn write(
        &mut self,
        world: &mut World,
        file: &Handle,
        offset: u64,
        memory: &[u8],
        bytes: u32,
    ) -> io::Result<u32> {
        assert!(offset.is_multiple_of(4096) && bytes.is_multiple_of(4096), "{offset} {bytes}");
        let Handle::File(file) = file else { panic!("a directory is written to") };
        if self.dice.once_in(self.faults.write_error) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let short = bytes > 4096 && self.dice.once_in(self.faults.short_write);
        let bytes = if short { bytes / 4096 / 2 * 4096 + 512 } else { bytes };
        let content = &mut world.contents[*file].bytes;
        let end = offset as usize + bytes as usize;
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].copy_from_slice(&memory[..bytes as usize]);
        Ok(bytes)
    }

    /// Returns the bytes of a request that the disk gives: any number from the least to the most that fits.
    fn reserve(&mut self, world: &World, space: SpaceRequest) -> io::Result<u64> {
        assert!(space.least <= space.most && space.sharing > 0, "{space:?}");
        let free = match self.faults.capacity {
            0 => u64::MAX,
            capacity => capacity.saturating_sub(world.used()),
        };
        if free < space.least {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let more = (space.most.min(free) - space.least) / 4096;
        Ok(space.least + self.dice.roll(more + 1) * 4096)
    }

    fn chore(
        &mut self,
        world: &mut World,
        chore: Operation<Handle>,
    ) -> io::Result<(Option<Handle>, u64)> {
        if self.dice.once_in(self.faults.chore_error) {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        match chore {
            Operation::MakeDirectories { directory } => {
                let side = format!("{directory}/.fullbore");
                for path in [directory, side] {
                    if !world.names.contains_key(&path) {
                        world.contents.push(Content::default());
                        let file = world.contents.len() - 1;
                        world.rename(None, Some((path, file)));
                    }
                }
            }
            Operation::Create { path, space } => {
                assert!(!world.names.contains_key(&path), "{path} exists");
                assert!(world.names.contains_key(&parent(&path)), "{path} has no directory");
                let bytes = self.reserve(world, space)?;
                let zeroes = vec![0; bytes as usize];
                world.contents.push(Content { bytes: zeroes, safe: vec![], space: bytes });
                let file = world.contents.len() - 1;
                world.rename(None, Some((path, file)));
                return Ok((Some(Handle::File(file)), bytes));
            }
            Operation::OpenDirectory { path } => return Ok((Some(Handle::Directory(path)), 0)),
            Operation::Extend { file, offset, space } => {
                let Handle::File(file) = file else { panic!("a directory grows") };
                let bytes = self.reserve(world, space)?;
                world.contents[file].space += bytes;
                world.contents[file].bytes.resize((offset + bytes) as usize, 0);
                return Ok((None, bytes));
            }
            Operation::Settle { file, bytes, rename } => {
                let Handle::File(file) = file else { panic!("a directory is trimmed") };
                if let Some(bytes) = bytes {
                    world.contents[file].bytes.truncate(bytes as usize);
                }
                if let Some((from, to)) = rename {
                    assert_eq!(world.names.get(&from), Some(&file), "{from} is another file");
                    assert!(!world.names.contains_key(&to), "{to} would be replaced");
                    world.rename(Some(from), Some((to, file)));
                }
            }
            Operation::Remove { path } => {
                assert!(world.names.contains_key(&path), "{path} is not there");
                world.rename(Some(path), None);
            }
            Operation::Write { .. } | Operation::Sync { .. } => unreachable!("no chores"),
        }
        Ok((None, 0))
    }
}

fn make_safe(world: &mut World, file: &Handle, snapshot: Snapshot) {
    match (file, snapshot) {
        (Handle::File(file), Snapshot::Content(bytes)) => world.contents[*file].safe = bytes,
        (Handle::Directory(path), Snapshot::Names(count)) => {
            for naming in world.namings.iter_mut().take(count) {
                naming.safe |= naming.directories.contains(path);
            }
        }
        _ => unreachable!("a snapshot is of what is synced"),
    }
}

/// A block that was sent.
#[derive(Clone)]
struct Sent {
    chunk: u32,
    offset: u64,
    bytes: Vec<u8>,
    fate: Option<bool>,
}

/// A capture thread and a supervisor that check every report.
struct Recording {
    seed: u64,
    faults: Faults,
    world: Rc<RefCell<World>>,
    stream_refs: Vec<Arc<StreamRef>>,
    sent: BTreeMap<(u16, u64), Sent>,
    durable: BTreeSet<(u16, u64)>,
    suspect: BTreeSet<(u16, u64)>,
    failures: usize,
    finished: BTreeSet<u16>,
    bases: BTreeMap<(u16, u32), u64>,
}

impl Recording {
    fn returned(&mut self, pool: &mut Pool, returned: WriterReply, order: &mut Vec<(u16, u64)>) {
        match returned {
            WriterReply::Written { block, .. } => {
                // The label is gone, and blocks of one queue and chunk return in order, so the content identifies the
                // block.
                let number = u16::from_le_bytes([block[0], block[1]]);
                let sequence = u64::from_le_bytes(block[2..10].try_into().unwrap());
                self.settle((number, sequence), true);
                pool.put(block);
            }
            WriterReply::Refused(filled) => {
                let key = (filled.stream_ref.number, filled.sequence);
                let sent = &self.sent[&key];
                assert_eq!(
                    &filled.block[..filled.bytes as usize],
                    &sent.bytes[..],
                    "memory changed"
                );
                assert_eq!((filled.chunk, filled.offset), (sent.chunk, sent.offset));
                self.settle(key, false);
                order.push(key);
                pool.put(filled.block);
            }
        }
    }

    fn settle(&mut self, key: (u16, u64), written: bool) {
        let fate = &mut self.sent.get_mut(&key).unwrap().fate;
        assert!(fate.replace(written).is_none(), "seed {}: {key:?} came back twice", self.seed);
    }

    fn reported(&mut self, report: WriterEvent) {
        match report {
            WriterEvent::Durable { stream_ref, sequences, bytes } => {
                let mut sum = 0;
                for sequence in sequences {
                    let key = (stream_ref.number, sequence);
                    sum += self.sent[&key].bytes.len() as u64;
                    assert!(self.durable.insert(key), "seed {}: durable twice", self.seed);
                    self.check_safe(&stream_ref, key);
                }
                assert_eq!(sum, bytes);
            }
            WriterEvent::Failed { why, suspect, .. } => {
                assert!(self.faults.any(), "seed {}: failed without a fault: {why}", self.seed);
                self.failures += 1;
                for (stream_ref, blocks) in suspect {
                    self.suspect.extend(blocks.iter().map(|it| (stream_ref.number, it.sequence)));
                }
            }
            WriterEvent::Finished { stream_ref, .. } => {
                assert!(
                    self.finished.insert(stream_ref.number),
                    "seed {}: finished twice",
                    self.seed
                );
            }
            WriterEvent::Full { .. } => {
                panic!("seed {}: a member fails when it is full", self.seed)
            }
            WriterEvent::Back { .. } => panic!("seed {}: nobody recalled it", self.seed),
            WriterEvent::Alternate { .. } => panic!("a member has no files with other names"),
            WriterEvent::Gone { .. } => {
                panic!("seed {}: the writer ended before its time", self.seed)
            }
        }
    }

    /// Checks that the index and verify would find the block after a power cut now.
    fn check_safe(&self, stream_ref: &StreamRef, key: (u16, u64)) {
        let (world, seed) = (self.world.borrow(), self.seed);
        let names = world.safe_names();
        let directory = &stream_ref.directory;
        for path in [directory.clone(), format!("{directory}/.fullbore")] {
            assert!(names.contains_key(&path), "seed {seed}: {path} is not safe");
        }
        let index = names.get(&format!("{directory}/.fullbore/index")).expect("the index is safe");
        let (entries, _) =
            Codec::of_scan(stream_ref.scan).decode_file(&world.contents[*index].safe);
        let found = entries.iter().find_map(|(_, entry)| match entry {
            Entry::Block(block) if block.sequence == key.1 => Some(*block),
            _ => None,
        });
        let block = found.unwrap_or_else(|| panic!("seed {seed}: {key:?} has no safe record"));
        let sent = &self.sent[&key];
        assert_eq!((block.chunk, block.offset), (sent.chunk, sent.offset));
        assert_eq!(block.crc, crc32c::crc32c(&sent.bytes));
        let name = chunk_file(directory, sent.chunk);
        let part = format!("{directory}/.fullbore/{name}{PART_SUFFIX}");
        let paths = [format!("{directory}/{name}"), part];
        let file = paths.iter().find_map(|path| names.get(path));
        let file = file.unwrap_or_else(|| panic!("seed {seed}: chunk of {key:?} has no safe name"));
        let (start, end) = (sent.offset as usize, sent.offset as usize + sent.bytes.len());
        assert_eq!(
            world.contents[*file].safe.get(start..end),
            Some(&sent.bytes[..]),
            "seed {seed}: {key:?} is not safe"
        );
    }

    /// Checks the end state: plain files without holes, and no unreported loss.
    fn check_end(&self) {
        let (world, seed) = (self.world.borrow(), self.seed);
        for (key, sent) in &self.sent {
            let written = sent.fate.unwrap_or_else(|| panic!("seed {seed}: {key:?} is lost"));
            let told = (self.durable.contains(key), self.suspect.contains(key));
            assert_eq!(written, told.0 != told.1, "seed {seed}: {key:?} {written} {told:?}");
            let whole = self.bases[&(key.0, sent.chunk)] == 0;
            let takes = if self.failures == 0 { written == whole } else { !written || whole };
            assert!(
                takes,
                "seed {seed}: {key:?} {written}, of a chunk from its first block on: {whole}"
            );
        }
        for stream_ref in &self.stream_refs {
            self.check_chunks(&world, stream_ref);
        }
    }

    fn check_chunks(&self, world: &World, stream_ref: &StreamRef) {
        let seed = self.seed;
        let mut chunks: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for (key, sent) in &self.sent {
            if key.0 == stream_ref.number && sent.fate == Some(true) {
                let bytes: &mut Vec<u8> = chunks.entry(sent.chunk).or_default();
                assert_eq!(bytes.len() as u64, sent.offset, "seed {seed}: a hole before {key:?}");
                bytes.extend_from_slice(&sent.bytes);
            }
        }
        let directory = &stream_ref.directory;
        let mut expected = BTreeSet::new();
        for (number, bytes) in &chunks {
            let name = chunk_file(directory, *number);
            let filling = format!("{directory}/.fullbore/{name}{PART_SUFFIX}");
            let place = format!("{directory}/{name}");
            expected.insert(place.clone());
            // If the rename failed, the chunk still has its working name.
            let mut found = world.names.get(&place);
            if self.faults.chore_error > 0 {
                found = found.or(world.names.get(&filling));
                let content = &world.contents[*found.expect("a chunk is somewhere")].bytes;
                assert!(content.starts_with(bytes), "seed {seed}: {place}");
                continue;
            }
            let file = found.unwrap_or_else(|| panic!("seed {seed}: {place} is not there"));
            assert!(world.contents[*file].bytes == *bytes, "seed {seed}: {place} is not plain");
        }
        if self.faults.chore_error == 0 {
            let prefix = format!("{directory}/");
            let left = world.names.keys().filter(|path| path.starts_with(&prefix));
            let left: BTreeSet<String> = left.cloned().collect();
            expected.insert(format!("{directory}/.fullbore"));
            expected.insert(format!("{directory}/.fullbore/index"));
            let extra: Vec<_> = left.difference(&expected).collect();
            assert!(extra.is_empty(), "seed {seed}: left behind: {extra:?}");
        }
    }
}

fn faults_of(dice: &mut Dice) -> Faults {
    let mut faults = Faults { short_write: dice.roll(3) * 4, ..Faults::default() };
    match dice.roll(6) {
        0 => faults.write_error = 1 + dice.roll(60),
        1 => faults.sync_error = 1 + dice.roll(40),
        2 => faults.chore_error = 1 + dice.roll(30),
        3 => faults.capacity = (1 << 20) + dice.roll(400_000),
        4 => {
            faults.write_error = 1 + dice.roll(80);
            faults.sync_error = 1 + dice.roll(80);
            faults.chore_error = 1 + dice.roll(80);
        }
        _ => {}
    }
    faults
}

/// Records some streams on a disk of this seed and checks every report.
fn record(seed: u64, pool: &mut Pool) {
    let mut dice = Dice(seed);
    let faults = faults_of(&mut dice);
    let world = Rc::new(RefCell::new(World::default()));
    let disk = FaultyDisk {
        dice: Dice(seed ^ 0xD15C),
        faults,
        world: world.clone(),
        under_way: vec![],
        now: Duration::ZERO,
    };
    let lanes = 1 + dice.roll(2) as usize;
    let (mut ends, mut inner) = (vec![], vec![]);
    for _ in 0..lanes {
        let (commands, receiver) = rtrb::RingBuffer::new(8);
        let (sender, returned) = reply_queue(1 + dice.roll(8) as usize);
        inner.push(CaptureQueue { commands: receiver, returned: sender });
        ends.push((commands, returned));
    }
    let (sender, reports) = mpsc::channel();
    let metrics = Arc::new(WriterMetrics::default());
    let settings = Settings {
        depth_bytes: 4096 << dice.roll(5),
        round_bytes: 4096 << dice.roll(6),
        round_interval: Duration::from_millis(1 + dice.roll(50)),
        ..Settings::of_member(3)
    };
    let member = Uuid::from_u128(9);
    let mut engine =
        Engine::new(disk, member, "/m".into(), inner, metrics.clone(), sender, settings);
    let block_bytes = 4096 * (1 + dice.roll(3)) as u32;
    let geometry = Geometry { frame_bytes: 0, block_bytes, chunk_blocks: 1 + dice.roll(5) as u32 };
    let stream_refs: Vec<Arc<StreamRef>> = (0..1 + dice.roll(3) as u16)
        .map(|number| {
            let directory = format!("s_a_ds{number}");
            Arc::new(StreamRef { scan: Uuid::from_u128(seed.into()), number, directory, geometry })
        })
        .collect();
    let mut recording = Recording {
        seed,
        faults,
        world,
        stream_refs: stream_refs.clone(),
        sent: BTreeMap::new(),
        durable: BTreeSet::new(),
        suspect: BTreeSet::new(),
        failures: 0,
        finished: BTreeSet::new(),
        bases: BTreeMap::new(),
    };

    let mut script = script(&mut dice, &stream_refs);
    let mut refused = vec![];
    for turn in 0.. {
        assert!(turn < 200_000, "seed {seed}: never ends");
        for _ in 0..dice.roll(4) {
            let Some(step) = script.last() else { break };
            let lane = usize::from(step.stream_ref.number) % lanes;
            if ends[lane].0.is_full() || pool.free() == 0 {
                break;
            }
            let step = script.pop().unwrap();
            let command = step.command(pool, &mut recording, &metrics);
            ends[lane].0.push(command).ok().unwrap();
        }
        let home = recording.sent.values().all(|sent| sent.fate.is_some());
        if script.is_empty() && home && recording.finished.len() == stream_refs.len() {
            ends.clear();
        }
        let alive = engine.turn();
        for (_, returned) in &mut ends {
            while let Ok(returned) = returned.pop() {
                recording.returned(pool, returned, &mut refused);
            }
        }
        while let Ok(report) = reports.try_recv() {
            recording.reported(report);
        }
        if !alive {
            break;
        }
    }
    assert_eq!(recording.finished.len(), stream_refs.len(), "seed {seed}");
    assert_eq!(metrics.backlog_bytes.load(Relaxed), 0, "seed {seed}");
    assert_eq!(metrics.refusing.load(Relaxed), recording.failures > 0, "seed {seed}");
    recording.check_end();
}

/// One command, built when it is sent.
struct Step {
    stream_ref: Arc<StreamRef>,
    /// Sequence, chunk, offset and bytes; `None` for the finish.
    block: Option<(u64, u32, u64, u32)>,
    gaps: u64,
    lengths: usize,
}

impl Step {
    fn command(
        self,
        pool: &mut Pool,
        recording: &mut Recording,
        metrics: &WriterMetrics,
    ) -> WriterCommand {
        let gap = |n| Gap { first: n as i64, count: 1, cause: Cause::Missing };
        let gaps = (0..self.gaps).map(gap).collect();
        let Some((sequence, chunk, offset, bytes)) = self.block else {
            return WriterCommand::Finish { stream_ref: self.stream_ref, gaps };
        };
        let mut block = pool.take().unwrap();
        block.fill(sequence as u8 ^ 0x5A);
        block[..2].copy_from_slice(&self.stream_ref.number.to_le_bytes());
        block[2..10].copy_from_slice(&sequence.to_le_bytes());
        let content = block[..bytes as usize].to_vec();
        let sent = Sent { chunk, offset, bytes: content, fate: None };
        recording.sent.insert((self.stream_ref.number, sequence), sent);
        recording.bases.entry((self.stream_ref.number, chunk)).or_insert(offset);
        metrics.backlog_bytes.fetch_add(bytes.into(), Relaxed);
        WriterCommand::Write(FullBlock {
            block,
            stream_ref: self.stream_ref,
            sequence,
            chunk,
            offset,
            bytes,
            frames: 1,
            present: 1,
            invalid: 0,
            first: sequence as i64,
            time: None,
            seen: Tai(1),
            gaps,
            lengths: vec![64; self.lengths],
            crc: None,
        })
    }
}

/// Returns the commands, last one first: some chunks of every stream, and some chunks without their first block, which
/// the writer must refuse.
fn script(dice: &mut Dice, stream_refs: &[Arc<StreamRef>]) -> Vec<Step> {
    let mut queues: Vec<Vec<Step>> = vec![];
    for stream_ref in stream_refs {
        let geometry = stream_ref.geometry;
        let (mut steps, mut sequence) = (vec![], 0);
        let chunks = dice.roll(6) as u32;
        for chunk in 0..chunks {
            let skipped = if dice.once_in(5) { dice.roll(geometry.chunk_blocks.into()) } else { 0 };
            for place in skipped..geometry.chunk_blocks.into() {
                let last = chunk + 1 == chunks && dice.once_in(4);
                let shorter = if last { dice.roll(4000) as u32 } else { 0 };
                let bytes = geometry.block_bytes - shorter;
                let block = Some((sequence, chunk, place * u64::from(geometry.block_bytes), bytes));
                let (gaps, lengths) = (dice.roll(3), dice.roll(120) as usize);
                steps.push(Step { stream_ref: stream_ref.clone(), block, gaps, lengths });
                sequence += 1;
                if last {
                    break;
                }
            }
        }
        steps.push(Step {
            stream_ref: stream_ref.clone(),
            block: None,
            gaps: dice.roll(3),
            lengths: 0,
        });
        steps.reverse();
        queues.push(steps);
    }
    let mut script = vec![];
    while queues.iter().any(|queue| !queue.is_empty()) {
        let which = dice.roll(queues.len() as u64) as usize;
        script.extend(queues[which].pop());
    }
    script.reverse();
    script
}

#[test]
fn on_any_failing_disk_nothing_is_lost_silently_and_durable_means_on_disk() {
    let mut pool = Pool::new(Arc::new(Region::new(2 << 20).unwrap()), 3 * 4096, 0);
    let seeds = match std::env::var("FULLBORE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..4000,
    };
    for seed in seeds {
        let blocks = pool.free();
        record(seed, &mut pool);
        assert_eq!(pool.free(), blocks, "seed {seed}: block memory is gone");
    }
}
