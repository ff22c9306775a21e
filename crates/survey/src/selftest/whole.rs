//! Test 10: writes and reads back the whole target.

use std::time::Instant;

use super::run::{CHUNK, Failure, Run};
use super::summary::{Continuous, FullPass};

/// Writes all chunks, then reads and checks them, for the requested number of passes.
pub fn is_written_and_read(run: &mut Run) -> Result<(), Failure> {
    let chunks = run.whole / CHUNK;
    let bytes = chunks * CHUNK;
    let last = bytes - CHUNK;
    let all = run.whole >= run.media / CHUNK * CHUNK;
    run.info(match all {
        true => format!("writing all {chunks} chunks"),
        false => format!("writing the first {chunks} chunks, {bytes} of {} bytes", run.media),
    });
    let mut passes = Vec::new();
    for number in 1..=run.passes {
        if run.passes > 1 {
            run.info(format!("pass {number} of {}", run.passes));
        }
        passes.push(pass(run, chunks)?);
        // A later pass that fails does not remove the results of earlier ones.
        run.continuous = Some(Continuous::of(bytes, &passes));
    }
    run.info(format!("captured last address, written: {last:#x}"));
    run.info(format!("captured last address, read: {last:#x}"));
    Ok(())
}

/// One pass: writes everything and syncs, then reads it without the host's caches and checks it.
fn pass(run: &mut Run, chunks: u64) -> Result<FullPass, Failure> {
    let (bytes, seed) = (chunks * CHUNK, run.seed());
    let begun = Instant::now();
    run.write(0, chunks, seed)?;
    run.rig.sync()?;
    let write_seconds = begun.elapsed().as_secs_f64();
    told(run, "writing", bytes, write_seconds);
    run.rig.forget()?;
    run.info(format!("reading {chunks} chunks @ 0x0"));
    let read_seconds = run.verify(0, chunks, seed)?.as_secs_f64();
    told(run, "reading", bytes, read_seconds);
    Ok(FullPass { write_seconds, read_seconds })
}

fn told(run: &mut Run, way: &str, bytes: u64, seconds: f64) {
    let rate = bytes as f64 / seconds.max(1e-9) / f64::from(1 << 20);
    run.info(format!("{way} {bytes} bytes took {:.0} ms => {rate:.0} MiB/s", seconds * 1000.0));
}
