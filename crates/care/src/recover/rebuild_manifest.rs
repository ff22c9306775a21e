//! Rebuilds the manifest of a scan if no copy can be read.
//!
//! ```text
//! names of directories ► the scan, its streams
//! index records        ► the number of each stream, its geometry, times and totals; of the scan's
//!                        identity 32 bits
//! accounts             ► the basis of counting frames, and their rate
//! frames               ► VDIF or not, which threads, whether each has its place, the fill of absent
//!                        frames
//! ```
//!
//! If the accounts exist and everything agrees with them, the scan is sealed again; if not, it counts as unsealed.
//! Facts that cannot be found are reported: the sources of the streams, and the names of absent members.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fullbore_core::account::{Account, CountedBy};
use fullbore_core::chunk_map::{ChunkMap, RenumberStage, Renumbering};
use fullbore_core::gap::Gap;
use fullbore_core::index::{Block, Codec, RECORD_BYTES};
use fullbore_core::layout::{Geometry, LARGEST_BLOCK_BYTES};
use fullbore_core::manifest::{
    Fill, Format, INDEX_FILE, MANIFEST_FILE, Manifest, Member, SIDE_DIRECTORY, State, Stream,
    Summary, Times, VERSION,
};
use fullbore_core::name::{Name, ScanName};
use fullbore_formats::FILL;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::vdif::Header;
use fullbore_linux::clock::Clock;
use fullbore_linux::regular_file;
use fullbore_store::gaps::Gaps;
use fullbore_store::inventory::{BlockRecord, FoundScan, Index, MemberFiles, is_of_later_version};
use fullbore_store::lock::{put_file, sync_directory};
use fullbore_store::{markers, redundancy};
use fullbore_time::{Tai, frame_ns};
use uuid::Uuid;

use super::times::{self, Span};
use super::{Error, apply};

/// The text for unknown values.
const NOT_KNOWN: &str = "not known";

/// The name of a scan's only stream: its directory name does not contain the name of the stream.
const ONLY: &str = "stream";

/// Bytes of a stream that are read to find its format.
const LOOK_BYTES: u64 = 4 << 20;

/// Makes a manifest and writes it beside every stream. Returns texts that describe its origin and the unknown facts.
pub fn remake(roots: &[PathBuf], scan: &ScanName) -> Result<Vec<String>, Error> {
    let found = FoundScan::look(roots, scan)?;
    refuse(&found, scan)?;
    let directories = directories(&found);
    let named = |holding: &&MemberFiles| directories.contains(holding.name.as_str());
    let labels: Vec<IndexLabel> =
        found.holdings.iter().filter(named).filter_map(IndexLabel::of).collect();
    let codec = most_frequent(labels.iter().map(|label| label.codec));
    let uuid = codec.map_or_else(Uuid::now_v7, |codec| codec.scan_like(Uuid::now_v7()));
    let numbers = numbers(&directories, &labels);
    for label in &labels {
        label.become_of(uuid, numbers[label.holding.name.as_str()])?;
    }
    let mut remnants = Vec::new();
    for (number, directory) in by_number(&numbers) {
        remnants.push(Remnant::of(&found, directory, number, uuid)?);
    }
    let manifest = manifest(&found, scan, uuid, &remnants);
    let json = manifest.to_json();
    for holding in found.holdings.iter().filter(|it| numbers.contains_key(it.name.as_str())) {
        apply::step()?;
        let path = holding.side(MANIFEST_FILE);
        let put = || -> io::Result<()> {
            std::fs::create_dir_all(holding.path.join(SIDE_DIRECTORY))?;
            put_file(&path, &json)
        };
        put().map_err(|source| write_error(&path, "writing the manifest", source))?;
    }
    Ok(told(&manifest, &remnants))
}

/// Refuses a manifest of a later version, and a scan of which only a directory name is left.
fn refuse(found: &FoundScan, scan: &ScanName) -> Result<(), Error> {
    let mut unreadable = found.holdings.iter().map(|holding| holding.side(MANIFEST_FILE));
    if let Some(path) = unreadable.find(|path| is_of_later_version(path)) {
        return Err(Error::LaterVersion { path });
    }
    let holds = |holding: &MemberFiles| {
        holding.chunks.iter().any(|(_, file)| file.bytes > 0)
            || holding.side(INDEX_FILE).metadata().is_ok_and(|it| it.len() > 0)
            || holding.account().get().is_some()
    };
    match found.holdings.iter().any(holds) {
        true => Ok(()),
        false => Err(Error::NothingLeft { scan: scan.to_string() }),
    }
}

/// Returns the directories with names of streams.
fn directories(found: &FoundScan) -> BTreeSet<&str> {
    let names = found.holdings.iter().map(|holding| holding.name.as_str());
    names.filter(|name| ScanName::of_directory(name).is_some()).collect()
}

fn write_error(path: &Path, doing: &'static str, source: io::Error) -> Error {
    Error::Write { path: path.to_owned(), doing, source }
}

fn most_frequent<T: Clone + PartialEq>(all: impl Iterator<Item = T> + Clone) -> Option<T> {
    all.clone().max_by_key(|one| all.clone().filter(|other| other == one).count())
}

/// An index with the content of its own header.
struct IndexLabel<'a> {
    holding: &'a MemberFiles,
    codec: Codec,
    number: u16,
}

impl<'a> IndexLabel<'a> {
    fn of(holding: &'a MemberFiles) -> Option<Self> {
        let (codec, number) = Index::label(&holding.side(INDEX_FILE))?;
        Some(Self { holding, codec, number })
    }

    /// Rewrites its records for this scan and stream number, if they differ.
    fn become_of(&self, uuid: Uuid, number: u16) -> Result<(), Error> {
        let to = Codec::of_scan(uuid);
        if (to, number) == (self.codec, self.number) {
            return Ok(());
        }
        apply::step()?;
        let path = self.holding.side(INDEX_FILE);
        let aside = path.with_extension("new");
        let rewrite = || -> io::Result<()> {
            let mut from = BufReader::with_capacity(1 << 20, regular_file::open(&path)?);
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o644);
            let file = regular_file::open_with(&options, &aside)?;
            let mut into = BufWriter::with_capacity(1 << 20, file);
            let mut record = [0; RECORD_BYTES];
            while from.read_exact(&mut record).is_ok() {
                match self.codec.decode(&record) {
                    Ok((of, entry)) if of == self.number => {
                        into.write_all(&to.encode(number, &entry))?;
                    }
                    _ => break,
                }
            }
            into.into_inner()?.sync_all()?;
            std::fs::rename(&aside, &path)?;
            sync_directory(&self.holding.path.join(SIDE_DIRECTORY))
        };
        rewrite().map_err(|source| write_error(&path, "writing the index", source))
    }
}

/// Returns the number of each directory's stream in the manifest: the one in its indexes, if it is possible and unique.
fn numbers<'a>(
    directories: &BTreeSet<&'a str>,
    labels: &[IndexLabel<'_>],
) -> BTreeMap<&'a str, u16> {
    let mut free: BTreeSet<u16> = (0..directories.len() as u16).collect();
    let mut numbers = BTreeMap::new();
    for &directory in directories {
        let own = labels.iter().filter(|label| label.holding.name == directory);
        let number = most_frequent(own.map(|label| label.number));
        if let Some(number) = number.filter(|number| free.remove(number)) {
            numbers.insert(directory, number);
        }
    }
    for &directory in directories {
        if !numbers.contains_key(directory)
            && let Some(number) = free.pop_first()
        {
            numbers.insert(directory, number);
        }
    }
    numbers
}

fn by_number<'a>(numbers: &BTreeMap<&'a str, u16>) -> BTreeMap<u16, &'a str> {
    numbers.iter().map(|(directory, number)| (*number, *directory)).collect()
}

/// The remains of a stream.
struct Remnant {
    stream: Stream,
    account: Option<Account>,
    /// True if index and account exist, and everything agrees with them.
    whole: bool,
    /// The sources of its recording times.
    span: Span,
}

impl Remnant {
    fn of(found: &FoundScan, directory: &str, number: u16, uuid: Uuid) -> Result<Self, Error> {
        let holdings: Vec<&MemberFiles> =
            found.holdings.iter().filter(|it| it.name == directory).collect();
        let mut parts = Vec::new();
        for &holding in &holdings {
            let path = holding.side(INDEX_FILE);
            match Index::read(&path, uuid, number) {
                Ok(index) => parts.push(MemberIndex { holding, index }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    parts.push(MemberIndex { holding, index: Index::default() });
                }
                Err(source) => return Err(Error::Read { path, source }),
            }
        }
        let account = holdings.iter().find_map(|it| it.account().get().cloned());
        let geometry = parts.iter().find_map(|part| part.index.geometry);
        let frames = Frames::look(&parts, geometry);
        let mut blocks: Vec<&Block> =
            parts.iter().flat_map(|part| &part.index.blocks).map(|it| &it.block).collect();
        blocks.sort_unstable_by_key(|block| block.sequence);
        blocks.dedup_by_key(|block| block.sequence);
        let name = ScanName::of_directory(directory).and_then(|(_, name)| name);
        let (format, fill) = kind(&parts, frames.as_ref(), account.as_ref(), &blocks);
        let written: u64 = blocks.iter().map(|block| u64::from(block.present)).sum();
        let whole = |account: &Account| {
            account.terms.balance()
                && account.terms.written == written
                && parts.iter().all(MemberIndex::is_whole)
        };
        let whole = account.as_ref().is_some_and(whole);
        let packet_number =
            account.as_ref().is_some_and(|it| it.counted_by == CountedBy::PacketNumber);
        let stream = Stream {
            name: name.unwrap_or_else(only),
            directory: directory.to_owned(),
            source: NOT_KNOWN.into(),
            format,
            stripped_bytes: if packet_number { 8 } else { 0 },
            samples: None,
            geometry,
            fill,
            blocks: blocks.len() as u64,
            bytes: blocks.iter().map(|block| u64::from(block.bytes)).sum(),
            account: account.as_ref().map(Summary::from),
            context: None,
            renamed: renamed(&parts),
        };
        let span = span(&parts, account.as_ref());
        Ok(Self { stream, account, whole, span })
    }
}

/// Returns the times of the first and the last frame by the account, and by the index.
fn span(parts: &[MemberIndex<'_>], account: Option<&Account>) -> Span {
    let edges = account.and_then(|account| account.first.zip(account.last));
    let own = edges.filter(|_| account.is_some_and(|account| account.unverified == 0));
    let indexes = || parts.iter().map(|part| &part.index);
    let blocks =
        || indexes().flat_map(|index| index.blocks.iter().map(move |it| (index, it.block)));
    let seen = || blocks().filter(|(index, it)| !index.was_found(it)).map(|(_, it)| it.seen);
    let timed = || blocks().filter_map(|(_, block)| block.time);
    Span {
        received: own
            .map(|(first, last)| (first.seen, last.seen))
            .or_else(|| seen().min().zip(seen().max())),
        frames: edges
            .and_then(|(first, last)| first.time.zip(last.time))
            .or_else(|| timed().min().zip(timed().max())),
    }
}

fn only() -> Name {
    ONLY.parse().expect("a name by its own rules")
}

/// The index of a stream on one member.
struct MemberIndex<'a> {
    holding: &'a MemberFiles,
    index: Index,
}

impl MemberIndex<'_> {
    /// Returns true if its index covers all chunks, and no chunk is unfinished.
    fn is_whole(&self) -> bool {
        let told: BTreeSet<u32> = self.index.blocks.iter().map(|it| it.block.chunk).collect();
        let chunks = &self.holding.chunks;
        !self.index.torn
            && chunks.len() == told.len()
            && chunks.iter().all(|(_, file)| !file.unfinished)
    }
}

/// Returns the format of the frames, and the fill in the place of absent ones.
fn kind(
    parts: &[MemberIndex<'_>],
    frames: Option<&Frames>,
    account: Option<&Account>,
    blocks: &[&Block],
) -> (Format, Fill) {
    let filled = fill_of(parts, frames.map(|frames| frames.kind));
    let Some(frames) = frames else {
        let counted = account.is_some_and(|it| it.counted_by == CountedBy::SequenceField);
        let gaps = parts.iter().any(|part| !part.index.gaps.is_empty());
        let in_place = counted || gaps;
        return (
            Format::Raw,
            filled.unwrap_or(if in_place { Fill::Pattern(FILL) } else { Fill::Omit }),
        );
    };
    // Missing frames that were not filled have no place in the stream.
    let left_out = account.is_some_and(|it| it.filled == 0 && it.terms.missing > 0)
        || account.is_some_and(|it| !it.flows.is_empty());
    let by_place = frames.in_place && !left_out;
    let threads = if by_place { frames.threads.clone() } else { Vec::new() };
    let count = threads.len().max(1) as i64;
    let timed: Vec<(i64, Tai)> =
        blocks.iter().filter_map(|block| Some((block.first, block.time?))).collect();
    let by_blocks = || rate_of(&timed, count).filter(|_| by_place);
    let by_account = || {
        let account = account.filter(|_| by_place)?;
        let edge = |edge: fullbore_core::account::Edge| Some((edge.index, edge.time?));
        rate_of(&[edge(account.first?)?, edge(account.last?)?], count)
    };
    let told = frames.rate;
    let rate = told.or_else(by_blocks).or_else(by_account);
    let format = Format::Frames {
        kind: frames.kind,
        frames_per_second: rate,
        derived: told.is_none() && rate.is_some(),
        threads,
    };
    let fill = match (filled, frames.pattern) {
        (Some(fill), _) => fill,
        (None, Some(word)) => Fill::Pattern(word),
        (None, None) if by_place => Fill::Invalid,
        (None, None) => Fill::Omit,
    };
    (format, fill)
}

/// Returns the rate that converts the indices into their times.
pub fn rate_of(timed: &[(i64, Tai)], threads: i64) -> Option<u64> {
    let (first, last) = (timed.iter().min()?, timed.iter().max()?);
    let slots = last.0.div_euclid(threads) - first.0.div_euclid(threads);
    let ns = last.1.since(first.1);
    if slots <= 0 || ns <= 0 {
        return None;
    }
    let near = (i128::from(slots) * 1_000_000_000 + i128::from(ns / 2)) / i128::from(ns);
    let near = u64::try_from(near).ok().filter(|&near| near > 0)?;
    // Times are rounded to nanoseconds: the correct rate reproduces each of them.
    let fits = timed.iter().all(|(index, time)| {
        let slots = index.div_euclid(threads) - first.0.div_euclid(threads);
        (time.since(first.1) - frame_ns(slots.unsigned_abs(), near)).abs() <= 1
    });
    fits.then_some(near)
}

/// Returns the fill of an absent frame, if a block has one.
fn fill_of(parts: &[MemberIndex<'_>], kind: Option<FrameKind>) -> Option<Fill> {
    let codec = kind.map(FrameCodec::any_day);
    let gaps = Gaps::paint(parts.iter().flat_map(|part| part.index.gaps.iter().copied()));
    let of = |part: &MemberIndex<'_>, block: &Block| {
        let end = block.first.saturating_add(block.frames.into());
        let behind = |gap: &Gap| gap.first.saturating_add_unsigned(gap.count);
        let gap = gaps.iter().find(|gap| gap.first < end && behind(gap) > block.first)?;
        let frame_bytes = part.index.geometry?.frame_bytes;
        let place = gap.first.max(block.first).abs_diff(block.first);
        let mut frame = vec![0; frame_bytes as usize];
        let offset = block.offset.checked_add(place.checked_mul(frame_bytes.into())?)?;
        let chunk = part.holding.chunk(block.chunk)?;
        regular_file::open(&chunk.path).ok()?.read_exact_at(&mut frame, offset).ok()?;
        let keeps_header = |codec: FrameCodec| match codec.check(&frame, frame.len()) {
            Ok(header) => header.invalid() || codec.is_fill(&header, &frame),
            Err(_) => false,
        };
        match codec.is_some_and(keeps_header) {
            true => Some(Fill::Invalid),
            false => repeated(&frame).map(Fill::Pattern),
        }
    };
    let with_fill = parts.iter().flat_map(|part| {
        let blocks = part.index.blocks.iter().filter(|it| it.block.present < it.block.frames);
        blocks.map(move |it| (part, &it.block))
    });
    with_fill.take(16).find_map(|(part, block)| of(part, block))
}

/// Returns the word that these bytes repeat.
fn repeated(bytes: &[u8]) -> Option<u32> {
    let first = bytes.first_chunk::<4>()?;
    let all = bytes.chunks_exact(4).all(|chunk| chunk == first);
    all.then(|| u32::from_le_bytes(*first))
}

/// The format of a stream's first frames, if they carry their own time.
struct Frames {
    kind: FrameKind,
    threads: Vec<u16>,
    /// True if every frame so far is at the place that its time and thread give.
    in_place: bool,
    pattern: Option<u32>,
    rate: Option<u64>,
}

impl Frames {
    fn look(parts: &[MemberIndex<'_>], geometry: Option<Geometry>) -> Option<Self> {
        let chunks = parts.iter().flat_map(|part| &part.holding.chunks);
        let (_, first) = chunks.min_by_key(|(number, _)| *number)?;
        let wanted = geometry.map_or(LOOK_BYTES, |it| u64::from(it.block_bytes));
        let mut bytes = Vec::new();
        let file = regular_file::open(&first.path).ok()?;
        file.take(wanted.min(LARGEST_BLOCK_BYTES).min(LOOK_BYTES)).read_to_end(&mut bytes).ok()?;
        let told = geometry.map(|it| it.frame_bytes).filter(|&bytes| bytes > 0);
        // The first frame may be fill without a header, so every format is tried.
        FrameKind::ALL.iter().rev().find_map(|kind| {
            let codec = FrameCodec::any_day(*kind);
            let frame_bytes = match told {
                Some(told) => told,
                None => codec.frame_bytes(&codec.read(&bytes)?),
            };
            Self::of(codec, &bytes, frame_bytes as usize)
        })
    }

    fn of(codec: FrameCodec, bytes: &[u8], frame_bytes: usize) -> Option<Self> {
        let mut headers: Vec<Option<Header>> = Vec::new();
        let mut pattern = None;
        for frame in bytes.chunks_exact(frame_bytes.max(1)) {
            match (codec.check(frame, frame_bytes), repeated(frame)) {
                (Ok(header), _) => headers.push(Some(header)),
                // Behind the end of the written data.
                (Err(_), Some(0)) => break,
                (Err(_), Some(word)) => {
                    pattern = Some(word);
                    headers.push(None);
                }
                (Err(_), None) => return None,
            }
        }
        let known: Vec<&Header> = headers.iter().flatten().collect();
        let first = *known.first()?;
        let mut threads: Vec<u16> = Vec::new();
        for header in &known {
            if !threads.contains(&header.thread()) {
                threads.push(header.thread());
            }
        }
        let in_place = is_placed(&headers, &threads);
        let rate = first.frames_per_second();
        Some(Self { kind: codec.kind(), threads, in_place, pattern, rate })
    }
}

/// Returns true if threads alternate, and time advances by one frame with each round.
fn is_placed(headers: &[Option<Header>], threads: &[u16]) -> bool {
    let turns = headers.iter().enumerate().all(|(at, header)| {
        header.as_ref().is_none_or(|it| it.thread() == threads[at % threads.len()])
    });
    let mut pairs = headers.iter().zip(headers.iter().skip(1)).enumerate();
    turns
        && pairs.all(|(at, pair)| {
            let (Some(header), Some(next)) = pair else { return true };
            let seconds = next.second().0 - header.second().0;
            let frames = i64::from(next.frame_number()) - i64::from(header.frame_number());
            match (at + 1) % threads.len() {
                0 => (seconds, frames) == (0, 1) || (seconds == 1 && next.frame_number() == 0),
                _ => (seconds, frames) == (0, 0),
            }
        })
}

/// Returns the renumbering of files that were renumbered before, which only the lost manifest recorded.
fn renamed(parts: &[MemberIndex<'_>]) -> Option<Renumbering> {
    let mut firsts: BTreeMap<u32, (u64, &MemberIndex<'_>, &Block)> = BTreeMap::new();
    for part in parts {
        for BlockRecord { block, .. } in &part.index.blocks {
            let first = firsts.entry(block.chunk).or_insert((block.sequence, part, block));
            if block.sequence < first.0 {
                *first = (block.sequence, part, block);
            }
        }
    }
    let mut chunks: Vec<u32> = firsts.keys().copied().collect();
    chunks.sort_by_key(|chunk| firsts[chunk].0);
    let pairs: Vec<(u32, u32)> = chunks.into_iter().zip(firsts.keys().copied()).collect();
    let (chunk, file) = *pairs.iter().find(|(chunk, file)| chunk != file)?;
    let (_, part, block) = firsts[&chunk];
    let holds = |file: u32| -> Option<bool> {
        let path = &part.holding.chunk(file)?.path;
        let mut bytes = vec![0; usize::try_from(block.bytes).ok()?];
        if u64::from(block.bytes) > LARGEST_BLOCK_BYTES {
            return None;
        }
        regular_file::open(path).ok()?.read_exact_at(&mut bytes, block.offset).ok()?;
        Some(crc32c::crc32c(&bytes) == block.crc)
    };
    // Files that were never renamed still have the numbers of their chunks.
    if holds(chunk) == Some(true) || holds(file) != Some(true) {
        return None;
    }
    let files = ChunkMap::of_pairs(pairs);
    Some(Renumbering { round: 1, stage: RenumberStage::Done, files, before: ChunkMap::default() })
}

fn manifest(found: &FoundScan, scan: &ScanName, uuid: Uuid, remnants: &[Remnant]) -> Manifest {
    let sealed = remnants.iter().all(|remnant| remnant.whole);
    let mut streams: Vec<Stream> = remnants.iter().map(|it| it.stream.clone()).collect();
    if !sealed {
        for stream in &mut streams {
            (stream.blocks, stream.bytes, stream.account) = (0, 0, None);
        }
    }
    let mut manifest = Manifest {
        version: VERSION,
        uuid,
        scan: scan.clone(),
        state: if sealed { State::Recovered } else { State::Recording },
        software: concat!("fullbore ", env!("CARGO_PKG_VERSION"), " (recover)").to_owned(),
        host: NOT_KNOWN.into(),
        planned: None,
        armed: Clock::new().now(),
        stopped: None,
        times: Some(Times::Files),
        host_setup: None,
        redundancy: redundancy::seen_in(&found.holdings, uuid),
        members: members(found),
        away: Vec::new(),
        streams,
        markers: markers::of_holdings(&found.holdings),
        forwarded: Vec::new(),
        copied: None,
    };
    let spans: Vec<Span> = remnants.iter().map(|remnant| remnant.span).collect();
    times::tell(&mut manifest, &spans, &found.holdings);
    manifest
}

/// Returns the members that hold a part of it, as far as they have an identity.
fn members(found: &FoundScan) -> Vec<Member> {
    let holders: BTreeSet<usize> = found.holdings.iter().map(|holding| holding.root).collect();
    let roots = holders.into_iter().map(|root| &found.roots[root]);
    let member = |root: &fullbore_store::inventory::Root| {
        let path = root.path.canonicalize().unwrap_or_else(|_| root.path.clone());
        Some(Member { uuid: root.uuid?, path, failure: None, buffered: false })
    };
    roots.filter_map(member).collect()
}

fn told(manifest: &Manifest, remnants: &[Remnant]) -> Vec<String> {
    let mut told = vec![
        "no copy of its manifest could be read: it was made anew from what else is there".to_owned(),
        "where its streams came from is not known, nor which host recorded it".to_owned(),
        "whether it had members other than those given is not known: what they hold would be lost to it"
            .to_owned(),
    ];
    if manifest.state != State::Recovered {
        told.push(
            "its accounts were missing or did not agree with the data: they were made again".into(),
        );
    }
    for remnant in remnants {
        let stream = &remnant.stream;
        let mut unknown = Vec::new();
        if stream.name == only() {
            unknown.push("its name");
        }
        if matches!(stream.format, Format::Frames { frames_per_second: None, .. }) {
            unknown.push("its rate");
        }
        let counted = remnant.account.as_ref().map(|it| it.counted_by);
        if counted == Some(CountedBy::ServerCount) {
            unknown.push("the columns of its samples");
        }
        if stream.format == Format::Raw && counted.is_none() {
            unknown.push("the basis of its frame count");
        }
        if !unknown.is_empty() {
            told.push(format!("of {}, not known: {}", stream.name, unknown.join(", ")));
        }
    }
    told
}
