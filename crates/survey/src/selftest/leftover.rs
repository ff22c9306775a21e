//! Tests 01, 03 and 04: sources with more or fewer chunks than a session, and durability.

use fullbore_core::device::{Action, Direction, Event, Session, Word};

use super::rig::Source;
use super::run::{CHUNK, Failure, Run, ensure, words};

/// A session of one chunk, and a source of two: the extra chunk is flushed, and not written.
pub fn is_flushed(run: &mut Run) -> Result<(), Failure> {
    let (painted, seed) = (run.seed(), run.seed());
    run.write(0, 4, painted)?;
    let mut session = Session::new(Direction::Write, run.span(CHUNK, 1)?, None, false);
    let mut source = Source::new(run.pattern(seed), CHUNK, 2 * CHUNK);
    run.rig.write(&mut session, &mut source, None)?;
    run.wrote(&session, seed);
    ensure(session.status().has(Word::Finished), || "the session is not finished".into())?;
    ensure(source.left() == CHUNK, || format!("{} bytes are left, not a chunk", source.left()))?;
    run.info(format!("source not done: {} bytes left over", source.left()));
    ensure(session.step(Event::Flush) == Some(Action::Flush), || "it does not flush".into())?;
    run.rig.flush(&mut session, &mut source);
    ensure(source.is_done(), || "the source is not done".into())?;
    run.info("source done");
    let status = session.status();
    ensure(status.has(Word::FlushFinished), || format!("after a flush: {}", words(&status)))?;
    ensure(status.flushed_bytes == CHUNK, || format!("{} bytes flushed", status.flushed_bytes))?;
    run.info("flush finished");
    run.audit(0..4 * CHUNK)
}

/// A session that flushes by itself after its last chunk; then the written data is synced.
pub fn is_flushed_after_a_write(run: &mut Run) -> Result<(), Failure> {
    let chunks = 100.min(run.usable / CHUNK / 2);
    let (painted, seed) = (run.seed(), run.seed());
    run.write(0, chunks + 1, painted)?;
    run.rig.sync()?;
    run.info(format!(
        "writing {chunks} chunks, to be flushed after, of a source that has one more"
    ));
    let mut session = Session::new(Direction::Write, run.span(0, chunks)?, None, true);
    let mut source = Source::new(run.pattern(seed), 0, (chunks + 1) * CHUNK);
    run.rig.write(&mut session, &mut source, None)?;
    run.wrote(&session, seed);
    let status = session.status();
    ensure(status.has(Word::FlushInProgress), || {
        format!("no flush began after the last chunk: {}", words(&status))
    })?;
    run.info("flush in progress, as expected");
    run.rig.flush(&mut session, &mut source);
    ensure(source.is_done(), || "the source is not done".into())?;
    ensure(session.status().has(Word::FlushFinished), || "the flush does not finish".into())?;
    run.info("source done, flush finished");
    is_safe(run, chunks)
}

/// A sync reaches the device, if syncs are counted, and the written data is read from the medium.
fn is_safe(run: &mut Run, chunks: u64) -> Result<(), Failure> {
    let before = run.rig.medium.syncs_done();
    run.rig.sync()?;
    match (before, run.rig.medium.syncs_done()) {
        (Some(before), Some(after)) => {
            ensure(after > before, || {
                "a sync was said to be done, and the device, whose cache loses its content without \
                 power, was never told to write it"
                    .into()
            })?;
            run.info(format!("sync: the device carried out {} of its cache", after - before));
        }
        _ => run.info("sync: done (that the device obeys is not counted here)"),
    }
    run.rig.forget()?;
    run.audit(0..(chunks + 1) * CHUNK)?;
    run.info("all of it is read back from the medium");
    Ok(())
}

/// A source that ends within a chunk: the session is finished early, with the last address captured and nothing written
/// beyond.
pub fn ends_early(run: &mut Run) -> Result<(), Failure> {
    let sector = run.rig.medium.sector_bytes();
    let (painted, seed) = (run.seed(), run.seed());
    run.write(0, 8, painted)?;
    // The last sector is not full.
    let bytes = 2 * CHUNK + 3 * sector + 100;
    let mut session = Session::new(Direction::Write, run.span(CHUNK, 4)?, None, false);
    let mut source = Source::new(run.pattern(seed), CHUNK, bytes);
    run.rig.write(&mut session, &mut source, None)?;
    run.wrote(&session, seed);
    let status = session.status();
    run.info(format!("the source ended after {bytes} bytes of {}: {}", 4 * CHUNK, words(&status)));
    ensure(status.words == [Word::Finished, Word::EarlyEnd], || {
        format!("`finished early-end` expected, and it is `{}`", words(&status))
    })?;
    ensure(status.captured_last == Some(3 * CHUNK), || {
        format!("the last address is {:x?}, and 0x60000 is right", status.captured_last)
    })?;
    ensure(status.bytes == bytes, || format!("{} bytes are said to be written", status.bytes))?;
    run.info(format!("captured last address: {:#x}", 3 * CHUNK));
    session.step(Event::Flush);
    run.rig.flush(&mut session, &mut source);
    ensure(session.status().has(Word::FlushFinished), || "the flush does not finish".into())?;
    run.info("flush finished");
    run.audit(0..8 * CHUNK)
}
