//! Tests 05 and 06: a session that is aborted, and one that is stopped.
//!
//! A range is written with one seed, then again with another, and the second write is ended early. Up to the captured
//! address the data must be new, and from the next chunk on old:
//!
//! ```text
//! first write   │ old │ old │ old │ old │ old │ old │
//! second write  │ new │ new │ new │ end
//! read          │ new │ new │ new │ old │ old │ old │
//!                        captured ▲     ▲ first error, and nowhere else
//! ```

use fullbore_core::device::{Action, Direction, Event, Session, Word};
use fullbore_core::pattern::Diagnosis;

use super::rig::{Ending, Source};
use super::run::{CHUNK, Failure, Run, ensure, words};

/// Test 05.
pub fn by_abort(run: &mut Run) -> Result<(), Failure> {
    ended(run, Event::Abort, Word::Aborted)
}

/// Test 06.
pub fn by_stop(run: &mut Run) -> Result<(), Failure> {
    ended(run, Event::Stop, Word::Stopped)
}

fn ended(run: &mut Run, event: Event, word: Word) -> Result<(), Failure> {
    let chunks = run.long_chunks;
    let (old, new) = (run.seed(), run.seed());
    run.info(format!("writing {chunks} chunks"));
    run.write(0, chunks, old)?;
    run.info(format!("captured last address: {:#x}", (chunks - 1) * CHUNK));
    run.info(format!("reading {chunks} chunks"));
    run.verify(0, chunks, old)?;

    run.info(format!("writing {chunks} chunks"));
    let span = run.span(0, chunks)?;
    let mut session = Session::new(Direction::Write, span, None, false);
    let mut source = Source::new(run.pattern(new), 0, span.bytes());
    let ending = Ending { event, after_bytes: span.bytes() / 5 };
    run.rig.write(&mut session, &mut source, Some(ending))?;
    run.wrote(&session, new);
    run.info(format!("set {}", if event == Event::Abort { "abort" } else { "stop" }));
    ensure(session.status().has(word), || format!("it ended as {}", words(&session.status())))?;
    flushed(run, &mut session, &mut source, event)?;

    let status = session.status();
    let all = status.bytes + status.dropped_bytes + status.flushed_bytes;
    ensure(all == span.bytes(), || format!("of {} bytes {all} are accounted for", span.bytes()))?;
    if event == Event::Stop {
        ensure(status.dropped_bytes == 0, || "a stop finishes what is held".into())?;
    }
    let captured = status.captured_last.unwrap_or(0);
    ensure(captured < span.last(), || "it came to its end before it could be ended".into())?;
    run.info(format!("captured last address: {captured:#x}"));
    boundary(run, chunks, (old, new), span.first() + status.bytes)
}

/// An abort flushes by itself; a stop flushes on request.
fn flushed(
    run: &mut Run,
    session: &mut Session,
    source: &mut Source,
    event: Event,
) -> Result<(), Failure> {
    let flushing = session.status().has(Word::FlushInProgress);
    if event == Event::Abort {
        ensure(flushing, || "an abort flushes by itself, and this did not".into())?;
        run.info("aborted: the flush runs by itself");
    } else {
        ensure(!flushing, || "a stop waits to be told to flush, and this did not".into())?;
        run.info("stopped: the flush is run by command");
        ensure(session.step(Event::Flush) == Some(Action::Flush), || "it does not flush".into())?;
    }
    run.rig.flush(session, source);
    ensure(source.is_done(), || "the source is not done".into())?;
    ensure(session.status().has(Word::FlushFinished), || "the flush does not finish".into())?;
    run.info("source done, flush finished");
    Ok(())
}

/// Checks that the new data ends, and the old continues, at the address in the status.
fn boundary(
    run: &mut Run,
    chunks: u64,
    (old, new): (u64, u64),
    expected: u64,
) -> Result<(), Failure> {
    run.info(format!("reading {chunks} chunks"));
    let (report, _) = run.read(0, chunks, new)?;
    let Some(first) = report.first() else {
        return Err(Failure::Found("the data behind the captured address was overwritten".into()));
    };
    // Rounded to a beat of 16 bytes: a byte is equal for two seeds once in 256 times.
    let beat = first.first / 16 * 16;
    ensure(beat == expected, || {
        format!("the first error is at {beat:#x}, and {expected:#x} is right: {first}")
    })?;
    ensure(first.diagnosis == Diagnosis::Stale { seed: Some(old) }, || {
        format!("behind the captured address lies what was never there: {first}")
    })?;
    run.info(format!("first old data at {beat:#x}, matches expected {expected:#x}"));
    run.audit(0..chunks * CHUNK)
}
