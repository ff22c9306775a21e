//! What lies on the members, read: every block against its checksum, every frame against its place.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fullbore_core::manifest::Format;

use super::walk::{Clock, OfSecond, Walk, walk_vdif};
use super::{BlockResult, Results};
use crate::store::finding::{Finding, What};
use crate::store::read::{ExtentReader, Fault, Settings, StartError, pool};
use crate::store::reader::{Placed, Presence, Scan, Stream};

/// Reads every block that is there and not known yet, those of each device in the order they lie.
pub(super) fn read_all(
    scan: &Scan,
    known: Vec<Results>,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Results>, StartError> {
    let lanes = lanes(scan, &known);
    let total = lanes.iter().flatten().map(|(_, _, placed)| u64::from(placed.block.bytes)).sum();
    let done = AtomicU64::new(0);
    let reads = settings.reads_per_device.max(1);
    let block_bytes = scan.streams.iter().map(Stream::block_bytes).max().unwrap_or(4096);
    let mut memory = pool(reads * lanes.len().max(1), block_bytes)?;
    let mut results = known;
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
fn lanes<'a>(scan: &'a Scan, known: &[Results]) -> Vec<Vec<(usize, usize, &'a Placed)>> {
    let mut lanes: BTreeMap<u64, Vec<(usize, usize, &Placed)>> = BTreeMap::new();
    for (stream, known) in scan.streams.iter().zip(known) {
        for (position, placed) in stream.blocks.iter().enumerate() {
            if placed.presence == Presence::Whole && !known.contains_key(&position) {
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

/// Blocks that do not have their checksum, joined where they follow one another in a file.
pub(super) fn blocks(scan: &Scan, stream: &Stream, results: &Results) -> Vec<Finding> {
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
pub(super) fn frames(scan: &Scan, stream: &Stream, results: &Results) -> Vec<Finding> {
    let clock = Clock::of(stream);
    let mut findings = Vec::new();
    let mut offsets: HashMap<u16, i64> = HashMap::new();
    let mut seconds = Seconds::new();
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
        } else if clock.places {
            for span in &walk.threads {
                let known = seconds.entry(span.thread).or_default();
                if !span.seconds.iter().all(|second| fits(known, second)) {
                    let (thread, count) = (span.thread, span.frames);
                    let why = format!("thread {thread} is not where its second is");
                    tell(What::FramesMisplaced { count, why });
                }
            }
        }
    }
    findings
}

/// Where the seconds of each thread begin, and behind which place the last of their frames lies.
type Seconds = HashMap<u16, BTreeMap<i64, (i64, i64)>>;

/// Whether a second begins where the other blocks have it, and overlaps no other. The number of places between two of
/// them is not known where the rate was learnt from the frames.
fn fits(known: &mut BTreeMap<i64, (i64, i64)>, more: &OfSecond) -> bool {
    let &mut (start, ref mut end) = known.entry(more.second).or_insert((more.start, more.end));
    *end = more.end.max(*end);
    let end = *end;
    let before = known.range(..more.second).next_back();
    let after = known.range(more.second + 1..).next();
    start == more.start
        && before.is_none_or(|(_, earlier)| earlier.1 <= start)
        && after.is_none_or(|(_, later)| end <= later.0)
}
