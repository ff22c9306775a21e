//! Reads the data on the members: checks every block against its checksum, and every frame against its place.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::diagnostics::{Diagnostic, DiagnosticKind};
use fullbore_store::read::{ExtentReader, Fault, Settings, StartError, pool};
use fullbore_store::reader::{BlockLocation, Presence, Scan, StoredStream};

use super::packets;
use super::walk::{Clock, OfSecond, Walk, walk_frames};
use super::{BlockResult, Results};

/// Reads every existing block that is not known yet, unless it is stopped; those of each device in the order on the disk.
pub(super) fn read_all(
    scan: &Scan,
    known: Vec<Results>,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &StopHandle,
) -> Result<Vec<Results>, StartError> {
    let lanes = lanes(scan, &known);
    let total =
        lanes.iter().flatten().map(|(_, _, location)| u64::from(location.block.bytes)).sum();
    let done = AtomicU64::new(0);
    let reads = settings.reads_per_device.max(1);
    let block_bytes = scan.streams.iter().map(StoredStream::block_bytes).max().unwrap_or(4096);
    let mut memory = pool(reads * lanes.len().max(1), block_bytes)?;
    let carries: Vec<Vec<u32>> =
        scan.streams.iter().map(|stream| packets::carries(scan, stream)).collect();
    let mut results = known;
    progress(0, total);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for lane in &lanes {
            let next = std::sync::Arc::new(AtomicUsize::new(0));
            for _ in 0..reads {
                let mut block = memory.take().expect("the pool has a block for every thread");
                let (next, done, carries) = (next.clone(), &done, &carries);
                running.push(scope.spawn(move || {
                    let mut reader = ExtentReader::default();
                    let mut found = Vec::new();
                    while !stop.is_requested()
                        && let Some((number, position, location)) =
                            lane.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let stream = &scan.streams[*number];
                        let mut result = check(&mut reader, stream, location, &mut block);
                        if let Some(carry) = carries[*number].get(*position)
                            && result.fault.is_none()
                            && let Ok(lengths) = scan.lengths(location)
                        {
                            let (of, account) = (&location.block, stream.account.as_ref());
                            let bytes = &block[..of.bytes as usize];
                            result.walk = packets::check(of, *carry, &lengths, account, bytes);
                        }
                        found.push((*number, *position, result));
                        let bytes = u64::from(location.block.bytes);
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

/// Returns the blocks to read from each device, by file and offset: stream, position, location.
fn lanes<'a>(scan: &'a Scan, known: &[Results]) -> Vec<Vec<(usize, usize, &'a BlockLocation)>> {
    let mut lanes: BTreeMap<u64, Vec<(usize, usize, &BlockLocation)>> = BTreeMap::new();
    for (stream, known) in scan.streams.iter().zip(known) {
        for (position, location) in stream.blocks.iter().enumerate() {
            if location.presence == Presence::Whole && !known.contains_key(&position) {
                lanes.entry(location.device).or_default().push((stream.number, position, location));
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
    stream: &StoredStream,
    location: &BlockLocation,
    block: &mut [u8],
) -> BlockResult {
    let fault = reader.read(&location.extent(), block).err();
    let walk = match &fault {
        None => walk_frames(stream, &location.block, &block[..location.block.bytes as usize]),
        Some(_) => Walk::default(),
    };
    BlockResult { fault, length: location.block.bytes, walk }
}

/// Returns the blocks that do not match their checksum, merged if they are adjacent in a file.
pub(super) fn blocks(scan: &Scan, stream: &StoredStream, results: &Results) -> Vec<Diagnostic> {
    let mut findings: Vec<Diagnostic> = Vec::new();
    let mut by_checksum = None;
    for (position, result) in results {
        let Some(fault) = &result.fault else { continue };
        let location = &stream.blocks[*position];
        let what = match fault {
            Fault::Checksum { found } => {
                let index = by_checksum.get_or_insert_with(|| index_of_checksums(stream));
                match index.get(&(*found, location.block.bytes)) {
                    Some(&holds) => DiagnosticKind::BlocksSwapped {
                        first: location.block.sequence,
                        count: 1,
                        holds,
                    },
                    None => location.fault(fault),
                }
            }
            Fault::Short { .. } | Fault::System(_) => location.fault(fault),
        };
        let root = &scan.inventory.roots[scan.inventory.holdings[location.holding].root];
        let next = location.finding(stream, Some(&root.path), what);
        if !findings.last_mut().is_some_and(|last| join(last, &next)) {
            findings.push(next);
        }
    }
    findings
}

/// Maps checksum and length to the block.
fn index_of_checksums(stream: &StoredStream) -> HashMap<(u32, u32), u64> {
    let blocks = stream.blocks.iter().map(|location| &location.block);
    blocks.map(|block| ((block.crc, block.bytes), block.sequence)).collect()
}

/// Merges two diagnostics about adjacent blocks of one file.
fn join(last: &mut Diagnostic, next: &Diagnostic) -> bool {
    if last.file != next.file {
        return false;
    }
    let joined = match (&mut last.what, &next.what) {
        (
            DiagnosticKind::BlocksDamaged { first, count, .. },
            DiagnosticKind::BlocksDamaged { first: sequence, .. },
        ) if *first + *count == *sequence => count,
        (
            DiagnosticKind::BlocksUnreadable { first, count, why, .. },
            DiagnosticKind::BlocksUnreadable { first: sequence, why: other, .. },
        ) if *first + *count == *sequence && why == other => count,
        (
            DiagnosticKind::BlocksSwapped { first, count, holds },
            DiagnosticKind::BlocksSwapped { first: sequence, holds: other, .. },
        ) if *first + *count == *sequence && *holds + *count == *other => count,
        _ => return false,
    };
    *joined += 1;
    if let (Some(frames), Some(more)) = (&mut last.frames, &next.frames) {
        frames.end = more.end;
    }
    true
}

/// Returns the frames that do not look as they should.
pub(super) fn frames(scan: &Scan, stream: &StoredStream, results: &Results) -> Vec<Diagnostic> {
    let clock = Clock::of(stream);
    let mut findings = Vec::new();
    let mut offsets: HashMap<u16, i64> = HashMap::new();
    let mut seconds = Seconds::new();
    for (position, BlockResult { walk, .. }) in results {
        let location = &stream.blocks[*position];
        let root = &scan.inventory.roots[scan.inventory.holdings[location.holding].root];
        let mut tell = |what| findings.push(location.finding(stream, Some(&root.path), what));
        if let Some(why) = walk.bad.why.clone() {
            tell(DiagnosticKind::FramesDamaged { count: walk.bad.count, why });
        }
        if walk.unmarked > 0 {
            tell(DiagnosticKind::FillUnmarked { count: walk.unmarked });
        }
        if let Some(why) = walk.misplaced.why.clone() {
            tell(DiagnosticKind::FramesMisplaced { count: walk.misplaced.count, why });
        } else if clock.places && clock.rate.is_some() {
            for span in &walk.threads {
                let Some(timed) = span.timed else { continue };
                let known = *offsets.entry(span.thread).or_insert(timed.offset);
                if known != timed.offset {
                    let off = timed.offset.saturating_sub(known);
                    let why = format!("thread {} is {off:+} frames off", span.thread);
                    tell(DiagnosticKind::FramesMisplaced { count: timed.frames, why });
                }
            }
        } else if clock.places {
            for span in &walk.threads {
                let known = seconds.entry(span.thread).or_default();
                if !span.seconds.iter().all(|second| fits(known, second)) {
                    let (thread, count) = (span.thread, span.frames);
                    let why = format!("thread {thread} is not at the place of its second");
                    tell(DiagnosticKind::FramesMisplaced { count, why });
                }
            }
        }
    }
    findings
}

/// The start place of each second of each thread, and the place behind its last frame.
type Seconds = HashMap<u16, BTreeMap<i64, (i64, i64)>>;

/// Returns true if a second begins at the same place as in the other blocks, and overlaps no other. The number of
/// places between two seconds is not known if the rate was learnt from the frames.
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
