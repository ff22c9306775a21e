//! Reads back the written data with the code of `verify`, and compares it with the pattern.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_core::units::ByteSize;
use fullbore_store::read::{Ahead, BlockExtent, Fault, Settings};

use super::{ContinuousRequest, Done, Laid, Written};
use crate::bench::disk::error::Error;
use crate::bench::disk::{Watcher, cpu_seconds};
use crate::bench::result::Verification;

/// Time between two progress reports.
const TELLING: Duration = Duration::from_millis(200);

/// The result of reading back.
pub struct ReadBack {
    /// The time at which each block was read and compared.
    pub trace: Vec<Done>,
    /// The result of the comparison.
    pub verification: Verification,
    /// The total duration.
    pub elapsed: Duration,
    /// CPU time of the process.
    pub cpu_seconds: f64,
}

/// The least number of blocks requested at once when the target is read repeatedly.
const ROUND_BLOCKS: usize = 8192;

/// Reads all blocks in the order of the stream. If writing wrapped around, reads repeatedly for as long as writing
/// took.
pub fn read(
    written: &Written,
    request: &ContinuousRequest,
    watcher: &mut Watcher,
) -> Result<ReadBack, Error> {
    let again = request.wrap.and(request.time).filter(|_| !written.laid.is_empty());
    let laps = again.map_or(1, |_| ROUND_BLOCKS.div_ceil(written.laid.len()));
    let extents = extents(written)?;
    let settings = Settings { allow_damaged: true, ..Settings::default() };
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let start = || {
        let extents = std::iter::repeat_n(extents.clone(), laps).flatten().collect();
        Ahead::start(extents, request.block_bytes as usize, settings)
            .map_err(|source| Error::Read { source })
    };
    let mut ahead = start()?;
    let mut found = Verification::default();
    let mut trace = Vec::with_capacity(written.laid.len());
    let (mut moved, mut last, mut told) = (0, begun, begun);
    let round = written.laid.iter().cycle();
    let blocks = if again.is_some() { usize::MAX } else { written.laid.len() };
    for laid in round.take(blocks) {
        if watcher.stop.is_requested() || again.is_some_and(|time| begun.elapsed() >= time) {
            break;
        }
        let next = match ahead.next() {
            None if again.is_some() => {
                ahead = start()?;
                ahead.next()
            }
            next => next,
        };
        let Some((loan, fault)) = next else { break };
        let bytes = loan.as_ref().map(|loan| loan.bytes());
        if let Some(wrong) = difference(bytes, fault.as_ref(), request, laid.position) {
            found.wrong_blocks += 1;
            found.first.get_or_insert(wrong);
        }
        drop(loan);
        let now = Instant::now();
        trace.push(done(laid, now - begun, now - last));
        (moved, last) = (moved + u64::from(laid.bytes), now);
        found.compared_bytes = moved;
        if told.elapsed() >= TELLING {
            told = now;
            let rate = moved as f64 / begun.elapsed().as_secs_f64() / 1e6;
            let text = format!("reading back: {}, {rate:.0} MB/s", ByteSize(moved));
            let share = match again {
                Some(time) => begun.elapsed().as_secs_f64() / time.as_secs_f64(),
                None => moved as f64 / written.bytes.max(1) as f64,
            };
            (watcher.tell)(&text, share.min(1.0));
        }
    }
    let elapsed = begun.elapsed();
    Ok(ReadBack { trace, verification: found, elapsed, cpu_seconds: cpu_seconds() - cpu })
}

fn done(laid: &Laid, at: Duration, took: Duration) -> Done {
    Done {
        member: laid.member,
        chunk: laid.chunk,
        offset: laid.offset,
        bytes: laid.bytes,
        at_ns: at.as_nanos() as u64,
        took_ns: took.as_nanos() as u64,
    }
}

/// The places of all blocks. Each file is looked up once.
fn extents(written: &Written) -> Result<Vec<BlockExtent>, Error> {
    let mut paths: BTreeMap<(usize, u32), Arc<PathBuf>> = BTreeMap::new();
    let mut extents = Vec::with_capacity(written.laid.len());
    for laid in &written.laid {
        let key = (laid.member, laid.chunk);
        let path = match paths.get(&key) {
            Some(path) => path.clone(),
            None => {
                let gone = || Error::Failed { why: format!("chunk {} is not there", laid.chunk) };
                let path = written.path(laid).ok_or_else(gone)?;
                paths.insert(key, path.clone());
                path
            }
        };
        let device = laid.member as u64;
        extents.push(BlockExtent {
            path,
            device,
            offset: laid.offset,
            bytes: laid.bytes,
            crc: laid.crc,
            stripe: None,
        });
    }
    Ok(extents)
}

/// The difference between a block and the written data, if any.
fn difference(
    bytes: Option<&[u8]>,
    fault: Option<&Fault>,
    request: &ContinuousRequest,
    position: u64,
) -> Option<String> {
    let Some(bytes) = bytes else {
        return Some(match fault {
            Some(Fault::Short { got }) => {
                format!("the block at byte {position} ends after {got} bytes")
            }
            Some(Fault::System(error)) => {
                format!("the block at byte {position} cannot be read: {error}")
            }
            Some(Fault::Checksum { .. }) | None => format!("nothing came at byte {position}"),
        });
    };
    let at = request.pattern.first_difference(bytes, request.base.wrapping_add(position))?;
    Some(format!("other bytes than were written, first at byte {}", position + at as u64))
}
