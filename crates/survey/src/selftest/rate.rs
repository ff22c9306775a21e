//! Test 08: rates of writing and reading sessions of 1 to 32768 chunks.

use std::time::Duration;

use super::run::{CHUNK, Failure, Run};
use super::summary::{Peak, Spread};

/// Writes and reads sessions of increasing length, each after the last, and checks all of them.
pub fn of_sessions(run: &mut Run) -> Result<(), Failure> {
    let (longest, runs) = run.sweep;
    let lengths: Vec<u64> = std::iter::successors(Some(1), |chunks| Some(2 * chunks))
        .take_while(|&it| it <= longest)
        .collect();
    let mut rates = vec![(Vec::new(), Vec::new()); lengths.len()];
    for number in 1..=runs {
        if runs > 1 {
            run.info(format!("run {number} of {runs}"));
        }
        let mut seeds = Vec::new();
        for (&chunks, (written, _)) in lengths.iter().zip(&mut rates) {
            let seed = run.seed();
            let took = run.write(chunks * CHUNK, chunks, seed)?;
            written.push(told(run, "writing", chunks, took));
            seeds.push(seed);
        }
        // Reads measure the medium only after the written data has left the cache.
        run.rig.sync()?;
        run.rig.forget()?;
        for ((&chunks, (_, read)), seed) in lengths.iter().zip(&mut rates).zip(seeds) {
            let took = run.verify(chunks * CHUNK, chunks, seed)?;
            read.push(told(run, "reading", chunks, took));
        }
    }
    run.peaks = lengths
        .iter()
        .zip(&rates)
        .map(|(&chunks, (write, read))| Peak {
            chunks,
            bytes: chunks * CHUNK,
            write: Spread::of(write),
            read: Spread::of(read),
        })
        .collect();
    Ok(())
}

fn told(run: &mut Run, way: &str, chunks: u64, took: Duration) -> f64 {
    let bytes = chunks * CHUNK;
    let rate = bytes as f64 / took.as_secs_f64().max(1e-9);
    run.info(format!(
        "{way} {chunks} chunks @ {:#x}: {bytes} bytes took {} ns => {:.0} MiB/s",
        chunks * CHUNK,
        took.as_nanos(),
        rate / f64::from(1 << 20)
    ));
    rate
}
