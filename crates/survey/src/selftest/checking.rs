//! Test 02: the checker finds errors, and only errors.

use fullbore_core::pattern::Diagnosis;

use super::run::{CHUNK, Failure, Run, ensure, good};

const CHUNKS: u64 = 10;

/// Reads the written data and compares it with the wrong length, the wrong seed, a changed bit, and itself.
pub fn finds_what_is_wrong(run: &mut Run) -> Result<(), Failure> {
    let (seed, other) = (run.seed(), run.seed());
    run.info(format!("writing {CHUNKS} chunks"));
    run.write(0, CHUNKS, seed)?;

    run.info(format!("reading {CHUNKS} chunks with a length error expected"));
    let mut got = 0;
    run.rig.read(0..CHUNKS * CHUNK, &mut |bytes, _| got += bytes.len() as u64)?;
    let wanted = (CHUNKS + 1) * CHUNK;
    ensure(got < wanted, || format!("{got} bytes came, and {wanted} of them are too many"))?;
    ensure(got == CHUNKS * CHUNK, || {
        format!("short read: {got} bytes came, and {} were asked for", CHUNKS * CHUNK)
    })?;
    run.info(format!("length error, as expected: {} bytes less than {wanted}", wanted - got));

    run.info(format!("reading {CHUNKS} chunks with a seed error expected"));
    let (report, _) = run.read(0, CHUNKS, other)?;
    let Some(first) = report.first() else {
        return Err(Failure::Found("the data was taken for that of another seed".into()));
    };
    ensure(first.diagnosis == Diagnosis::Stale { seed: Some(seed) }, || {
        format!("the data of seed {seed} was taken for something else: {first}")
    })?;
    ensure(first.first / 16 == 0 && report.wrong_blocks == CHUNKS, || {
        format!("the first wrong byte is {:#x}, and 0x0 is right", first.first)
    })?;
    run.info(format!("seed error at {:#x}, as expected: {}", first.first, first.diagnosis));

    run.info(format!("reading {CHUNKS} chunks with one bit changed in memory"));
    a_bit_is_found(run, seed)?;

    run.info(format!("reading {CHUNKS} chunks with no errors expected"));
    let (report, _) = run.read(0, CHUNKS, seed)?;
    good(&report)
}

fn a_bit_is_found(run: &mut Run, seed: u64) -> Result<(), Failure> {
    let place = 3 * CHUNK + 12_345;
    let checker = run.checker(seed);
    let mut found = None;
    run.rig.read(0..CHUNKS * CHUNK, &mut |bytes, offset| {
        let mut copy = bytes.to_vec();
        if let Some(byte) = place.checked_sub(offset).and_then(|at| copy.get_mut(at as usize)) {
            *byte ^= 0x10;
        }
        if let Err(mismatch) = checker.check(&copy, offset) {
            found.get_or_insert(mismatch);
        }
    })?;
    let right = found.is_some_and(|it| (it.first, it.wrong_bits) == (place, 1));
    ensure(right, || match found {
        None => "the changed bit was not found".into(),
        Some(mismatch) => format!("one bit was changed at {place:#x}, and found: {mismatch}"),
    })?;
    run.info(format!("one wrong bit at {place:#x}, as expected"));
    Ok(())
}
