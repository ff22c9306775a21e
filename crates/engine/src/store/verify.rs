//! Everything that is stored of a scan, held against everything else that is.
//!
//! ```text
//! blocks    ── checksum ──────────► index         what was written is what lies there
//! frames    ── own time, marks ───► places, gaps  a frame is where it belongs, and only fill is fill
//! sequences ── no hole, no twin ──► gaps          what no block holds is told of
//! index     ── summed up anew ────► account       the books are those of the data
//! account   ── in short ──────────► manifest      and every copy says the same
//! files     ── names, sizes ──────► index         nothing too few, nothing too many
//! ```
//!
//! Reading and checking overlap: a few threads per device each read a block and check it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use fullbore_core::account::{Account, CountedBy, Terms, Verdict};
use fullbore_core::format::vdif::{self, Header};
use fullbore_core::gap::Cause;
use fullbore_core::index::Block;
use fullbore_core::manifest::{ACCOUNT_FILE, Fill, Format, MANIFEST_FILE, State, Summary};
use serde::Serialize;
use uuid::Uuid;

use super::finding::{Finding, What};
use super::gaps::Gaps;
use super::inventory::{Holding, chunks_by_number};
use super::read::{ExtentReader, Fault, Settings, StartError, pool};
use super::reader::{Frame, Placed, Presence, Scan, Stream};

/// What verifying a scan found.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    /// Its name.
    pub scan: String,
    /// Its identity.
    pub uuid: Uuid,
    /// How far it had come.
    pub state: State,
    /// Whether nothing was found.
    pub good: bool,
    /// Blocks read.
    pub blocks: u64,
    /// Bytes read.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Each stream.
    pub streams: Vec<StreamResult>,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
}

/// A stream, counted anew.
#[derive(Clone, Debug, Serialize)]
pub struct StreamResult {
    /// Its name.
    pub name: String,
    /// Blocks whose checksum is right.
    pub good_blocks: u64,
    /// Blocks that the index knows.
    pub blocks: u64,
    /// Received frames in the recording, by the index.
    pub written: u64,
    /// Frames that are not in it, by the gaps of the index; nothing where frames lie as they came.
    pub absent: Option<u64>,
    /// The terms as stored.
    pub stored: Option<Terms>,
    /// The verdict as stored.
    pub verdict: Option<Verdict>,
}

/// Verifies a scan. `progress` is called with the bytes read so far and those to be read in all,
/// from several threads.
pub fn verify(
    scan: &Scan,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Verification, StartError> {
    let started = Instant::now();
    let mut findings = scan.findings.clone();
    if scan.manifest.state == State::Recording {
        findings.push(Finding {
            stream: None,
            member: None,
            file: Some(scan.inventory.manifest_path.clone()),
            frames: None,
            what: What::Unsealed,
        });
    }
    let read = read_all(scan, settings, progress)?;
    let bytes = read.iter().flat_map(|results| results.values()).map(BlockResult::bytes).sum();
    let mut streams = Vec::new();
    for (stream, results) in scan.streams.iter().zip(&read) {
        findings.extend(files(scan, stream));
        findings.extend(continuity(stream));
        findings.extend(blocks(scan, stream, results));
        findings.extend(frames(scan, stream, results));
        let (result, books) = account(scan, stream, results);
        findings.extend(books);
        streams.push(result);
    }
    Ok(Verification {
        scan: scan.manifest.scan.to_string(),
        uuid: scan.manifest.uuid,
        state: scan.manifest.state,
        good: findings.is_empty(),
        blocks: read.iter().map(|it| it.len() as u64).sum(),
        bytes,
        seconds: started.elapsed().as_secs_f64(),
        streams,
        findings,
    })
}

/// What reading one block showed.
#[derive(Debug)]
struct BlockResult {
    fault: Option<Fault>,
    length: u32,
    walk: Walk,
}

impl BlockResult {
    fn bytes(&self) -> u64 {
        match self.fault {
            None | Some(Fault::Checksum { .. }) => self.length.into(),
            Some(Fault::Short { got }) => got.into(),
            Some(Fault::System(_)) => 0,
        }
    }
}

/// The blocks of a stream that were read, by position.
type Results = BTreeMap<usize, BlockResult>;

/// Reads every block that is there, those of each device in the order they lie.
fn read_all(
    scan: &Scan,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Results>, StartError> {
    let lanes = lanes(scan);
    let total = lanes.iter().flatten().map(|(_, _, placed)| u64::from(placed.block.bytes)).sum();
    let done = AtomicU64::new(0);
    let reads = settings.reads_per_device.max(1);
    let block_bytes = scan.streams.iter().map(Stream::block_bytes).max().unwrap_or(4096);
    let mut memory = pool(reads * lanes.len().max(1), block_bytes)?;
    let mut results: Vec<Results> = scan.streams.iter().map(|_| Results::new()).collect();
    progress(0, total);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for lane in &lanes {
            let next = std::sync::Arc::new(AtomicUsize::new(0));
            for _ in 0..reads {
                let mut block = memory.take().expect("the pool has a block for every thread");
                let (next, done) = (next.clone(), &done);
                running.push(scope.spawn(move || {
                    let mut reader = ExtentReader::default();
                    let mut found = Vec::new();
                    while let Some((number, position, placed)) =
                        lane.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let stream = &scan.streams[*number];
                        let result = check(&mut reader, stream, placed, &mut block);
                        found.push((*number, *position, result));
                        let bytes = u64::from(placed.block.bytes);
                        progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
                    }
                    found
                }));
            }
        }
        for thread in running {
            match thread.join() {
                Ok(found) => {
                    for (number, position, result) in found {
                        results[number].insert(position, result);
                    }
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    Ok(results)
}

/// What is to be read from each device, by file and offset: stream, position, place.
fn lanes(scan: &Scan) -> Vec<Vec<(usize, usize, &Placed)>> {
    let mut lanes: BTreeMap<u64, Vec<(usize, usize, &Placed)>> = BTreeMap::new();
    for stream in &scan.streams {
        for (position, placed) in stream.blocks.iter().enumerate() {
            if placed.presence == Presence::Whole {
                lanes.entry(placed.device).or_default().push((stream.number, position, placed));
            }
        }
    }
    for lane in lanes.values_mut() {
        lane.sort_by_key(|(stream, _, it)| (it.holding, *stream, it.block.chunk, it.block.offset));
    }
    lanes.into_values().collect()
}

fn check(
    reader: &mut ExtentReader,
    stream: &Stream,
    placed: &Placed,
    block: &mut [u8],
) -> BlockResult {
    let fault = reader.read(&placed.extent(), block).err();
    let walk = match (&fault, &stream.format) {
        (None, Format::Vdif { .. }) => {
            walk_vdif(stream, &placed.block, &block[..placed.block.bytes as usize])
        }
        _ => Walk::default(),
    };
    BlockResult { fault, length: placed.block.bytes, walk }
}

/// What the frames of a block say of themselves.
#[derive(Debug, Default, PartialEq)]
struct Walk {
    walked: bool,
    present: u64,
    fill: u64,
    invalid: u64,
    bad: Odd,
    unmarked: u64,
    misplaced: Odd,
    threads: Vec<ThreadSpan>,
}

/// Frames that are not as they should be: how many, and why the first is not.
#[derive(Debug, Default, PartialEq)]
struct Odd {
    count: u64,
    why: Option<String>,
}

impl Odd {
    fn add(&mut self, why: impl FnOnce() -> String) {
        self.count += 1;
        self.why.get_or_insert_with(why);
    }
}

/// The frames of one thread in a block, by their own time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ThreadSpan {
    station: u16,
    thread: u16,
    /// All of them.
    frames: u64,
    /// Those that are valid: only their time is to be believed.
    timed: Option<Timed>,
}

/// Frames by their time: frames since 1970 where frames per second are certain.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Timed {
    /// Time minus the place in the stream, which is one number for the whole scan.
    offset: i64,
    /// The second of `offset`, where frames per second are not certain.
    second: i64,
    first: i64,
    last: i64,
    frames: u64,
}

impl ThreadSpan {
    fn add(&mut self, more: &ThreadSpan) {
        self.frames += more.frames;
        match (&mut self.timed, more.timed) {
            (Some(timed), Some(more)) => {
                timed.frames += more.frames;
                timed.first = timed.first.min(more.first);
                timed.last = timed.last.max(more.last);
            }
            (timed @ None, more) => *timed = more,
            (Some(_), None) => {}
        }
    }

    /// Times between the first and the last that no frame has.
    fn holes(&self) -> u64 {
        self.timed.map_or(0, |timed| {
            let span = timed.last.abs_diff(timed.first).saturating_add(1);
            span.saturating_sub(timed.frames)
        })
    }
}

/// By what the place of a frame follows from its time.
#[derive(Clone, Copy)]
struct Clock {
    /// Frames per second of each thread, if that number is certain.
    rate: Option<i64>,
    /// How many threads lie frame by frame.
    threads: i64,
    /// Whether places follow from time at all.
    places: bool,
}

impl Clock {
    fn of(stream: &Stream) -> Self {
        let account = stream.account.as_ref();
        let by_time = account.is_none_or(|it| it.counted_by == CountedBy::FrameTime);
        let restarts = account.map_or(0, |account| account.restarts);
        match &stream.format {
            Format::Vdif { frames_per_second, derived, threads } => Self {
                rate: frames_per_second.filter(|_| !derived).and_then(|it| it.try_into().ok()),
                threads: threads.len().max(1) as i64,
                places: by_time && restarts == 0 && stream.is_filled() && !threads.is_empty(),
            },
            Format::Raw => Self { rate: None, threads: 1, places: false },
        }
    }
}

fn walk_vdif(stream: &Stream, block: &Block, bytes: &[u8]) -> Walk {
    let clock = Clock::of(stream);
    let mut walk = Walk { walked: true, ..Walk::default() };
    for frame in stream.frames(block, bytes) {
        if frame.fill {
            walk.fill += 1;
            walk.unmarked += u64::from(!is_fill(stream.fill, frame.bytes));
            continue;
        }
        walk.present += 1;
        match vdif::check(frame.bytes, frame.bytes.len()) {
            Ok(header) => {
                walk.invalid += u64::from(header.invalid());
                walk.place(stream, clock, &frame, &header);
            }
            Err(damage) => walk.bad.add(|| format!("frame {}: {damage}", frame.index)),
        }
    }
    walk
}

fn is_fill(fill: Fill, frame: &[u8]) -> bool {
    match fill {
        Fill::Invalid => Header::read(frame).is_ok_and(|header| header.invalid()),
        Fill::Pattern(word) => frame.chunks_exact(4).take(16).all(|it| it == word.to_le_bytes()),
        Fill::Omit => false,
    }
}

impl Walk {
    fn place(&mut self, stream: &Stream, clock: Clock, frame: &Frame<'_>, header: &Header) {
        let (station, thread) = (header.station(), header.thread());
        let known = self.threads.iter().position(|it| (it.station, it.thread) == (station, thread));
        let at = known.unwrap_or_else(|| {
            self.threads.push(ThreadSpan { station, thread, frames: 0, timed: None });
            self.threads.len() - 1
        });
        let span = &mut self.threads[at];
        span.frames += 1;
        // The time of an invalid frame may be wrong.
        if header.invalid() {
            return;
        }
        if clock.places
            && let Format::Vdif { threads, .. } = &stream.format
        {
            let meant = threads[frame.index.rem_euclid(clock.threads) as usize];
            if thread != meant {
                self.misplaced.add(|| format!("thread {thread} in the place of thread {meant}"));
                return;
            }
        }
        let second = header.second().0;
        let number = i64::from(header.frame_number());
        let time = second.saturating_mul(clock.rate.unwrap_or(0)).saturating_add(number);
        let offset = time.saturating_sub(frame.index.div_euclid(clock.threads));
        let Some(timed) = &mut span.timed else {
            span.timed = Some(Timed { offset, second, first: time, last: time, frames: 1 });
            return;
        };
        timed.frames += 1;
        (timed.first, timed.last) = (timed.first.min(time), timed.last.max(time));
        if clock.rate.is_none() && timed.second != second {
            // Without a certain rate two seconds cannot be compared.
            (timed.second, timed.offset) = (second, offset);
        } else if clock.places && timed.offset != offset {
            let off = offset.saturating_sub(timed.offset);
            self.misplaced.add(|| format!("frame {} is {off:+} frames off", frame.index));
        }
    }
}

/// Chunk files too many, too long, twice, or unfinished.
fn files(scan: &Scan, stream: &Stream) -> Vec<Finding> {
    // Where the blocks of each chunk begin and end.
    let mut known: HashMap<(usize, u32), (u64, u64)> = HashMap::new();
    for placed in &stream.blocks {
        let begin = placed.block.offset;
        let end = begin + u64::from(placed.block.bytes);
        let extent = known.entry((placed.holding, placed.block.chunk)).or_insert((begin, end));
        *extent = (begin.min(extent.0), end.max(extent.1));
    }
    let mut findings = Vec::new();
    let unsealed = scan.manifest.state == State::Recording;
    let all = scan.inventory.holdings.iter().enumerate();
    for (at, holding) in all.filter(|(_, it)| it.name == directory(scan, stream)) {
        let mut tell = |path: &std::path::Path, what| {
            findings.push(finding(scan, stream, holding, path, what));
        };
        for stranger in &holding.strangers {
            tell(stranger, What::Stranger);
        }
        for (number, file) in &holding.chunks {
            let is = file.bytes;
            match known.get(&(at, *number)) {
                // The rest of a chunk that another member began stays there.
                Some(&(begin, _)) if file.unfinished && begin > 0 => {}
                _ if file.unfinished && !unsealed => {
                    tell(&file.path, What::ChunkUnfinished { bytes: is });
                }
                None if !unsealed => tell(&file.path, What::ChunkUnknown { bytes: is }),
                Some(&(_, should)) if is > should && !unsealed => {
                    tell(&file.path, What::ChunkTooLong { is, should });
                }
                _ => {}
            }
        }
    }
    for files in chunks_by_number(scan.inventory.of_stream(stream.number)).into_values() {
        for ((_, first), (holding, twin)) in files.iter().zip(files.iter().skip(1)) {
            let what = What::ChunkTwice { other: first.path.clone() };
            findings.push(finding(scan, stream, holding, &twin.path, what));
        }
    }
    findings
}

fn directory<'a>(scan: &'a Scan, stream: &Stream) -> &'a str {
    &scan.manifest.streams[stream.number].directory
}

fn finding(
    scan: &Scan,
    stream: &Stream,
    holding: &Holding,
    path: &std::path::Path,
    what: What,
) -> Finding {
    Finding {
        stream: Some(stream.name.clone()),
        member: Some(scan.inventory.roots[holding.root].path.clone()),
        file: Some(path.to_owned()),
        frames: None,
        what,
    }
}

/// Frames between neighbouring blocks that are in none, or in two.
fn continuity(stream: &Stream) -> Vec<Finding> {
    let mut findings = Vec::new();
    let begin = |placed: &&Placed| placed.block.frames > 0;
    let blocks: Vec<&Placed> = stream.blocks.iter().filter(begin).collect();
    for (placed, next) in blocks.iter().zip(blocks.iter().skip(1)) {
        if next.block.sequence != placed.block.sequence + 1 {
            // What lies between is absent, or explained by a gap, and told of already.
            continue;
        }
        let (end, first) = (stream.end_of(&placed.block), next.block.first);
        let mut tell = |frames: std::ops::Range<i64>, what| {
            let finding = next.finding(stream, None, what);
            findings.push(Finding { frames: Some(frames.into()), ..finding });
        };
        if first < end {
            tell(first..end, What::FramesTwice);
        } else {
            for frames in stream.gaps.uncovered(end..first) {
                tell(frames, What::FramesUnaccounted);
            }
        }
    }
    findings
}

/// Blocks that do not have their checksum, joined where they follow one another in a file.
fn blocks(scan: &Scan, stream: &Stream, results: &Results) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut by_checksum = None;
    for (position, result) in results {
        let Some(fault) = &result.fault else { continue };
        let placed = &stream.blocks[*position];
        let what = match fault {
            Fault::Checksum { found } => {
                let index = by_checksum.get_or_insert_with(|| index_of_checksums(stream));
                match index.get(&(*found, placed.block.bytes)) {
                    Some(&holds) => {
                        What::BlocksSwapped { first: placed.block.sequence, count: 1, holds }
                    }
                    None => placed.fault(fault),
                }
            }
            Fault::Short { .. } | Fault::System(_) => placed.fault(fault),
        };
        let root = &scan.inventory.roots[scan.inventory.holdings[placed.holding].root];
        let next = placed.finding(stream, Some(&root.path), what);
        if !findings.last_mut().is_some_and(|last| join(last, &next)) {
            findings.push(next);
        }
    }
    findings
}

/// Which block has which checksum and length.
fn index_of_checksums(stream: &Stream) -> HashMap<(u32, u32), u64> {
    let blocks = stream.blocks.iter().map(|placed| &placed.block);
    blocks.map(|block| ((block.crc, block.bytes), block.sequence)).collect()
}

/// Makes two findings about neighbouring blocks of one file one.
fn join(last: &mut Finding, next: &Finding) -> bool {
    if last.file != next.file {
        return false;
    }
    let joined = match (&mut last.what, &next.what) {
        (What::BlocksDamaged { first, count, .. }, What::BlocksDamaged { first: sequence, .. })
            if *first + *count == *sequence =>
        {
            count
        }
        (
            What::BlocksUnreadable { first, count, why, .. },
            What::BlocksUnreadable { first: sequence, why: other, .. },
        ) if *first + *count == *sequence && why == other => count,
        (
            What::BlocksSwapped { first, count, holds },
            What::BlocksSwapped { first: sequence, holds: other, .. },
        ) if *first + *count == *sequence && *holds + *count == *other => count,
        _ => return false,
    };
    *joined += 1;
    if let (Some(frames), Some(more)) = (&mut last.frames, &next.frames) {
        frames.end = more.end;
    }
    true
}

/// Frames that do not look like what they should be.
fn frames(scan: &Scan, stream: &Stream, results: &Results) -> Vec<Finding> {
    let clock = Clock::of(stream);
    let mut findings = Vec::new();
    let mut offsets: HashMap<u16, i64> = HashMap::new();
    for (position, BlockResult { walk, .. }) in results {
        let placed = &stream.blocks[*position];
        let root = &scan.inventory.roots[scan.inventory.holdings[placed.holding].root];
        let mut tell = |what| findings.push(placed.finding(stream, Some(&root.path), what));
        if let Some(why) = walk.bad.why.clone() {
            tell(What::FramesDamaged { count: walk.bad.count, why });
        }
        if walk.unmarked > 0 {
            tell(What::FillUnmarked { count: walk.unmarked });
        }
        if let Some(why) = walk.misplaced.why.clone() {
            tell(What::FramesMisplaced { count: walk.misplaced.count, why });
        } else if clock.places && clock.rate.is_some() {
            for span in &walk.threads {
                let Some(timed) = span.timed else { continue };
                let known = *offsets.entry(span.thread).or_insert(timed.offset);
                if known != timed.offset {
                    let off = timed.offset.saturating_sub(known);
                    let why = format!("thread {} is {off:+} frames off", span.thread);
                    tell(What::FramesMisplaced { count: timed.frames, why });
                }
            }
        }
    }
    findings
}

/// The account as index and data have it, and where the stored one differs.
fn account(scan: &Scan, stream: &Stream, results: &Results) -> (StreamResult, Vec<Finding>) {
    let counted = Counted::of(stream);
    let good_blocks = results.values().filter(|it| it.fault.is_none()).count() as u64;
    let stored = stream.account.as_ref();
    let result = StreamResult {
        name: stream.name.clone(),
        good_blocks,
        blocks: stream.blocks.len() as u64,
        written: counted.written,
        absent: counted.absent,
        stored: stored.map(|account| account.terms),
        verdict: stored.map(|account| account.verdict),
    };
    let mut books = Books::new(scan, stream);
    if scan.manifest.state != State::Recording {
        match stored {
            Some(stored) => books.check(stored, &counted, results),
            None => books.no_account(),
        }
    }
    (result, books.findings)
}

/// What the index says of a stream.
struct Counted {
    written: u64,
    filled: u64,
    invalid: u64,
    /// Gaps between the first and the last frame of the account, where indices are places.
    gaps: Gaps,
    absent: Option<u64>,
}

impl Counted {
    fn of(stream: &Stream) -> Self {
        let sum = |of: fn(&Block) -> u32| {
            stream.blocks.iter().map(|it| u64::from(of(&it.block))).sum::<u64>()
        };
        // A first block may begin, and a last one end, with places that belong to no scan.
        let gaps = match stream.placed_edges() {
            Some((first, last)) => stream.gaps.clipped(first..last.saturating_add(1)),
            None => stream.gaps.clone(),
        };
        Self {
            written: sum(|block| block.present),
            filled: sum(|block| block.frames - block.present),
            invalid: sum(|block| block.invalid),
            absent: stream.is_filled().then(|| gaps.frames()),
            gaps,
        }
    }
}

struct Books<'a> {
    scan: &'a Scan,
    stream: &'a Stream,
    findings: Vec<Finding>,
}

impl<'a> Books<'a> {
    fn new(scan: &'a Scan, stream: &'a Stream) -> Self {
        Self { scan, stream, findings: Vec::new() }
    }

    fn tell(&mut self, file: &str, what: What) {
        let holding = self.scan.inventory.of_stream(self.stream.number).next();
        self.findings.push(Finding {
            stream: Some(self.stream.name.clone()),
            member: None,
            file: holding.map(|holding| holding.side(file)),
            frames: None,
            what,
        });
    }

    /// Only a stream of which nothing ever lay on any member needs none.
    fn no_account(&mut self) {
        if self.scan.inventory.of_stream(self.stream.number).next().is_none() {
            let told = &self.scan.manifest.streams[self.stream.number];
            if told.blocks > 0 {
                self.tell(ACCOUNT_FILE, What::AccountMissing);
            }
        }
    }

    fn check(&mut self, stored: &Account, counted: &Counted, results: &Results) {
        if !stored.terms.balance() {
            let (expected, sum) = (stored.terms.expected, stored.terms.sum());
            self.tell(ACCOUNT_FILE, What::AccountUnbalanced { expected, sum });
        }
        self.compare("verdict", stored.verdict, stored.verdict.max(stored.judge()));
        self.check_manifest(stored);
        // With a part of the index away every sum differs, and the reason has been told.
        if self.stream.complete && self.stream.absent.is_empty() {
            self.check_terms(stored, counted);
            self.check_data(stored, results);
        }
    }

    fn check_terms(&mut self, stored: &Account, counted: &Counted) {
        let terms = &stored.terms;
        self.compare("written", terms.written, counted.written);
        self.compare("filled", stored.filled, counted.filled);
        self.compare("invalid", stored.invalid, counted.invalid);
        let frame_bytes = self.stream.geometry.map_or(0, |it| u64::from(it.frame_bytes));
        if frame_bytes > 0 {
            self.compare("bytes", stored.bytes, counted.written * frame_bytes);
        } else if counted.filled == 0 {
            self.compare("bytes", stored.bytes, self.stream.bytes());
        }
        // Of a stream without a block there is no index: its account alone says what was not written.
        let indexed = !self.stream.blocks.is_empty();
        if let Some(absent) = counted.absent.filter(|_| indexed) {
            self.check_gaps(stored, counted, absent);
        }
    }

    /// Index and account may name different causes for one frame, as it became late what was missing
    /// first; which frames are not there they must agree on.
    fn check_gaps(&mut self, stored: &Account, counted: &Counted, absent: u64) {
        let terms = &stored.terms;
        // Where the rate was derived, frames may be missing that have no index: no gap tells of them.
        let beyond = match self.is_derived() {
            true => terms.expected.saturating_sub(counted.written + absent).min(terms.missing),
            false => 0,
        };
        self.compare("expected", terms.expected, counted.written + absent + beyond);
        let listed = Gaps::paint(stored.gaps.iter().copied());
        if stored.gaps_unlisted > 0 || listed.frames() != absent {
            return;
        }
        if listed.without_causes() != counted.gaps.without_causes() {
            self.compare("gaps", describe(&listed), describe(&counted.gaps));
        }
        self.compare("missing", terms.missing, listed.total(Cause::Missing) + beyond);
        self.compare("overrun", terms.overrun, listed.total(Cause::Overrun));
        self.compare("damaged", terms.damaged, listed.total(Cause::Damaged));
        self.compare("late", terms.late, listed.total(Cause::Late));
    }

    /// What the frames themselves say, where they say anything and all could be read.
    fn check_data(&mut self, stored: &Account, results: &Results) {
        let walks = || results.values().map(|it| &it.walk);
        let all_read = results.len() == self.stream.blocks.len();
        if !all_read || !walks().all(|walk| walk.walked) {
            return;
        }
        let sum = |of: fn(&Walk) -> u64| walks().map(of).sum::<u64>();
        self.compare("written (by the frames)", stored.terms.written, sum(|it| it.present));
        self.compare("filled (by the frames)", stored.filled, sum(|it| it.fill));
        if sum(|it| it.bad.count) == 0 {
            self.compare("invalid (by the frames)", stored.invalid, sum(|it| it.invalid));
        }
        let clock = Clock::of(self.stream);
        let threads = threads(walks());
        if clock.rate.is_some() && stored.restarts == 0 {
            let told = stored.terms.expected.saturating_sub(stored.terms.written);
            let holes: u64 = threads.values().map(ThreadSpan::holes).sum();
            // The time of an invalid frame is not looked at, so its place counts as a hole.
            if holes > told.saturating_add(stored.invalid) {
                self.compare("absent (by the time in the frames)", told, holes);
            }
        }
        for flow in &stored.flows {
            let frames = threads.get(&(flow.station, flow.thread)).map_or(0, |it| it.frames);
            self.compare("written (of a thread, by the frames)", flow.terms.written, frames);
        }
    }

    fn check_manifest(&mut self, stored: &Account) {
        let told = &self.scan.manifest.streams[self.stream.number];
        let summary = Some(Summary::from(stored));
        if told.account != summary {
            let text = |it: &Option<Summary>| {
                it.as_ref().map_or("nothing".into(), |it| format!("{} {:?}", it.verdict, it.terms))
            };
            let (stored, counted) = (text(&told.account), text(&summary));
            self.tell(MANIFEST_FILE, What::ManifestTerm { term: "account", stored, counted });
        }
        if self.stream.complete && self.stream.absent.is_empty() {
            let counts = [
                ("blocks", told.blocks, self.stream.blocks.len() as u64),
                ("bytes", told.bytes, self.stream.bytes()),
            ];
            for (term, stored, counted) in counts {
                if stored != counted {
                    let (stored, counted) = (stored.to_string(), counted.to_string());
                    self.tell(MANIFEST_FILE, What::ManifestTerm { term, stored, counted });
                }
            }
        }
    }

    fn compare<T: PartialEq + ToString>(&mut self, term: &'static str, stored: T, counted: T) {
        if stored != counted {
            let (stored, counted) = (stored.to_string(), counted.to_string());
            self.tell(ACCOUNT_FILE, What::AccountTerm { term, stored, counted });
        }
    }

    fn is_derived(&self) -> bool {
        matches!(self.stream.format, Format::Vdif { derived: true, .. })
    }
}

fn describe(gaps: &Gaps) -> String {
    let frames: u64 = gaps.iter().map(|gap| gap.count).sum();
    let first = gaps.iter().next().map(|gap| format!(" from frame {} on", gap.first));
    format!("{} of {frames} frames{}", gaps.len(), first.unwrap_or_default())
}

/// Each thread over all blocks.
fn threads<'a>(walks: impl Iterator<Item = &'a Walk>) -> HashMap<(u16, u16), ThreadSpan> {
    let mut all: HashMap<(u16, u16), ThreadSpan> = HashMap::new();
    for span in walks.flat_map(|walk| &walk.threads) {
        all.entry((span.station, span.thread)).and_modify(|it| it.add(span)).or_insert(*span);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    use fullbore_core::gap::Cause;
    use fullbore_core::index::RECORD_BYTES;

    use super::*;
    use crate::store::testing::{Laid, Store, StreamPlan};

    fn verified(store: &Store, laid: &Laid) -> Verification {
        let scan = Scan::open(&store.roots(), &laid.name).unwrap();
        verify(&scan, Settings::default(), &|_, _| {}).unwrap()
    }

    fn plans() -> Vec<StreamPlan> {
        vec![
            StreamPlan::vdif("a")
                .threads(&[1, 3])
                .gap(40, 3, Cause::Missing)
                .gap(100, 1, Cause::Damaged)
                .gap(999, 1, Cause::Late)
                .skip_blocks(10..12)
                .invalid(&[7, 500]),
            StreamPlan::vdif("b").fill(Fill::Omit).gap(31, 2, Cause::Missing).gap(
                200,
                70,
                Cause::Overrun,
            ),
            StreamPlan::raw("c").fill(Fill::Pattern(0x5555_5555)).gap(5, 9, Cause::Missing),
            StreamPlan::varying("d").frames(700),
        ]
    }

    fn what(verification: &Verification) -> Vec<String> {
        verification.findings.iter().map(|finding| finding.to_string()).collect()
    }

    /// Damages a whole scan and expects a finding that names the file and is of the kind.
    fn expect(
        damage: impl FnOnce(&Store, &Laid),
        file: impl FnOnce(&Laid) -> PathBuf,
        is: impl Fn(&What) -> bool,
    ) -> Verification {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        damage(&store, &laid);
        let verification = verified(&store, &laid);
        let file = file(&laid);
        let named = verification
            .findings
            .iter()
            .any(|finding| finding.file.as_deref() == Some(&file) && is(&finding.what));
        assert!(named, "{} is not named in {:#?}", file.display(), what(&verification));
        assert!(!verification.good);
        verification
    }

    fn flip(path: &Path, at: u64) {
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    }

    #[test]
    fn a_scan_as_it_was_written_is_good() {
        for members in [1, 3] {
            let store = Store::new(members);
            let laid = store.lay_down("r1_a", &plans());
            let verification = verified(&store, &laid);
            assert_eq!(what(&verification), Vec::<String>::new());
            assert!(verification.good);
            let bytes: usize = laid.bytes.iter().map(Vec::len).sum();
            assert_eq!(verification.bytes, bytes as u64);
            for (result, account) in verification.streams.iter().zip(&laid.accounts) {
                assert_eq!(result.written, account.terms.written);
                let absent = account.terms.expected - account.terms.written;
                assert!(result.absent.is_none_or(|it| it == absent));
            }
        }
    }

    #[test]
    fn a_flipped_byte_in_any_block_is_found_and_named() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        for stream in 0..laid.blocks.len() {
            for (_, block) in &laid.blocks[stream] {
                let path = laid.chunk_path(stream, block.chunk);
                let at = block.offset + u64::from(block.bytes) * 2 / 3;
                flip(&path, at);
                let verification = verified(&store, &laid);
                let expected =
                    What::BlocksDamaged { first: block.sequence, count: 1, offset: block.offset };
                let [finding] = verification.findings.as_slice() else {
                    panic!("block {}: {:#?}", block.sequence, what(&verification));
                };
                assert_eq!((finding.file.as_ref(), &finding.what), (Some(&path), &expected));
                flip(&path, at);
            }
        }
        assert!(verified(&store, &laid).good, "flipping back mends it");
    }

    #[test]
    fn every_truncated_chunk_is_found() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        for stream in 0..laid.blocks.len() {
            for chunk in laid.chunks(stream) {
                let path = laid.chunk_path(stream, chunk);
                let bytes = fs::read(&path).unwrap();
                fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
                let verification = verified(&store, &laid);
                let found = verification.findings.iter().any(|finding| {
                    finding.file.as_ref() == Some(&path)
                        && finding.frames.is_some()
                        && matches!(finding.what, What::ChunkTruncated { blocks: 1, .. })
                });
                assert!(found, "{:#?}", what(&verification));
                fs::write(&path, &bytes).unwrap();
            }
        }
    }

    #[test]
    fn every_deleted_chunk_is_found() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        for stream in 0..laid.blocks.len() {
            for chunk in laid.chunks(stream) {
                let path = laid.chunk_path(stream, chunk);
                let bytes = fs::read(&path).unwrap();
                fs::remove_file(&path).unwrap();
                let verification = verified(&store, &laid);
                let found = verification.findings.iter().any(|finding| {
                    finding.file.as_ref() == Some(&path)
                        && finding.frames.is_some()
                        && matches!(finding.what, What::ChunkMissing { .. })
                });
                assert!(found, "{:#?}", what(&verification));
                fs::write(&path, &bytes).unwrap();
            }
        }
    }

    #[test]
    fn swapped_chunks_are_told_from_damaged_ones() {
        let verification = expect(
            |_, laid| {
                let (a, b) = (laid.chunk_path(0, 1), laid.chunk_path(0, 2));
                let (bytes_a, bytes_b) = (fs::read(&a).unwrap(), fs::read(&b).unwrap());
                fs::write(a, bytes_b).unwrap();
                fs::write(b, bytes_a).unwrap();
            },
            |laid| laid.chunk_path(0, 1),
            |what| *what == What::BlocksSwapped { first: 3, count: 3, holds: 6 },
        );
        assert_eq!(verification.findings.len(), 2);
    }

    #[test]
    fn a_deleted_or_emptied_index_is_found() {
        for (stream, empty) in [(0, false), (1, true), (3, false)] {
            let verification = expect(
                |_, laid| {
                    fs::remove_file(laid.index_path(stream, 1)).unwrap();
                    if empty {
                        fs::write(laid.index_path(stream, 1), [0; 4096]).unwrap();
                    }
                },
                |laid| laid.index_path(stream, 1),
                |what| *what == What::IndexMissing,
            );
            let absent = |it: &Finding| matches!(it.what, What::BlocksAbsent { .. });
            assert!(verification.findings.iter().any(absent), "{:#?}", what(&verification));
        }
    }

    #[test]
    fn an_index_cut_anywhere_is_found() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        for stream in [0, 3] {
            let path = laid.index_path(stream, 0);
            let bytes = fs::read(&path).unwrap();
            for cut in (0..bytes.len()).step_by(RECORD_BYTES / 2) {
                fs::write(&path, &bytes[..cut]).unwrap();
                let verification = verified(&store, &laid);
                let only_marks_lost = cut + RECORD_BYTES == bytes.len() && stream == 0;
                assert!(!verification.good || only_marks_lost, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_flipped_byte_anywhere_in_an_index_is_found() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(200)]);
        let path = laid.index_path(0, 0);
        let bytes = fs::metadata(&path).unwrap().len();
        for at in (0..bytes).step_by(31) {
            flip(&path, at);
            let verification = verified(&store, &laid);
            let named = verification.findings.iter().any(|it| it.file.as_ref() == Some(&path));
            assert!(named, "byte {at}: {:#?}", what(&verification));
            flip(&path, at);
        }
    }

    #[test]
    fn lost_and_changed_manifests_and_accounts_are_found() {
        expect(
            |_, laid| fs::remove_file(laid.manifest_path(1, 1)).unwrap(),
            |laid| laid.manifest_path(1, 1),
            |what| *what == What::ManifestMissing,
        );
        expect(
            |_, laid| fs::write(laid.manifest_path(1, 1), b"{").unwrap(),
            |laid| laid.manifest_path(1, 1),
            |what| matches!(what, What::ManifestUnreadable { .. }),
        );
        expect(
            |_, laid| {
                let mut manifest = laid.manifest.clone();
                manifest.host = "elsewhere".into();
                fs::write(laid.manifest_path(0, 0), manifest.to_json()).unwrap();
            },
            |laid| laid.manifest_path(0, 0),
            |what| matches!(what, What::ManifestDiffers { .. }),
        );
        expect(
            |_, laid| fs::remove_file(laid.account_path(2, 0)).unwrap(),
            |laid| laid.account_path(2, 0),
            |what| *what == What::AccountMissing,
        );
        expect(
            |_, laid| {
                let mut account = laid.accounts[0].clone();
                account.terms.missing += 1;
                let json = serde_json::to_vec(&account).unwrap();
                for member in 0..2 {
                    fs::write(laid.account_path(0, member), &json).unwrap();
                }
            },
            |laid| laid.account_path(0, 0),
            |what| matches!(what, What::AccountTerm { term: "missing", .. }),
        );
    }

    #[test]
    fn a_member_that_is_gone_is_named_with_what_it_held() {
        let store = Store::new(3);
        let laid = store.lay_down("r1_a", &plans());
        let roots = &store.roots()[..2];
        let scan = Scan::open(roots, &laid.name).unwrap();
        let verification = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
        let gone = &laid.manifest.members[2];
        assert!(verification.findings.iter().any(|it| it.member.as_ref() == Some(&gone.path)
            && matches!(&it.what, What::MemberAbsent { uuid, .. } if *uuid == gone.uuid)));
        for (stream, blocks) in laid.blocks.iter().enumerate() {
            let lost = blocks.iter().filter(|(member, _)| *member == 2).count() as u64;
            let name = laid.manifest.streams[stream].name.to_string();
            let of_stream =
                verification.findings.iter().filter(|it| it.stream.as_ref() == Some(&name));
            let absent = of_stream.filter_map(|it| match it.what {
                What::BlocksAbsent { count, .. } => Some(count),
                _ => None,
            });
            assert_eq!(absent.sum::<u64>(), lost, "stream {name}");
        }
    }

    #[test]
    fn files_too_many_are_found() {
        expect(
            |_, laid| {
                let path = laid.chunk_path(0, 0);
                fs::write(path.with_extension("00000099"), b"x").unwrap();
            },
            |laid| laid.chunk_path(0, 0).with_extension("00000099"),
            |what| *what == What::ChunkUnknown { bytes: 1 },
        );
        expect(
            |_, laid| {
                let mut bytes = fs::read(laid.chunk_path(0, 1)).unwrap();
                bytes.push(0);
                fs::write(laid.chunk_path(0, 1), bytes).unwrap();
            },
            |laid| laid.chunk_path(0, 1),
            |what| matches!(what, What::ChunkTooLong { .. }),
        );
        expect(
            |_, laid| {
                let path = laid.chunk_path(0, 1);
                let twin = laid.directory(0, 0).join(path.file_name().unwrap());
                fs::copy(path, twin).unwrap();
            },
            |laid| laid.chunk_path(0, 1),
            |what| matches!(what, What::ChunkTwice { .. }),
        );
        expect(
            |_, laid| fs::write(laid.directory(1, 0).join("notes.txt"), b"x").unwrap(),
            |laid| laid.directory(1, 0).join("notes.txt"),
            |what| *what == What::Stranger,
        );
    }

    #[test]
    fn a_frame_in_the_wrong_place_is_found_though_its_checksum_is_right() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let scan = Scan::open(&store.roots(), &laid.name).unwrap();
        let stream = &scan.streams[0];
        let placed = &stream.blocks[2];
        let mut bytes = laid.bytes[0][2 * 16384..3 * 16384].to_vec();
        let (a, b) = (bytes[512..1024].to_vec(), bytes[1024..1536].to_vec());
        bytes[512..1024].copy_from_slice(&b);
        bytes[1024..1536].copy_from_slice(&a);
        let walk = walk_vdif(stream, &placed.block, &bytes);
        assert_eq!(walk.misplaced.count, 2);
        bytes[512 + 8] ^= 1;
        assert_eq!(walk_vdif(stream, &placed.block, &bytes).bad.count, 1);
    }
}
