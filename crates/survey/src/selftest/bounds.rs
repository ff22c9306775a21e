//! Tests 07 and 09: data outside the addresses of a session remains unchanged, and wrong addresses are refused.

use fullbore_core::device::{CHUNK_BYTES, Direction, Session, Span, Status};

use super::rig::Source;
use super::run::{CHUNK, Failure, Run, ensure};

/// Writes sessions at adjacent addresses, out of order; reads them in another order, and then all of it.
pub fn are_kept(run: &mut Run) -> Result<(), Failure> {
    let (painted, all) = (run.seed(), run.seed());
    run.write(0, 24, painted)?;
    session(run, 0, 16, all)?;
    let took = run.verify(0, 16, all)?;
    took_reading(run, 0, 16, took);
    let places = [0x140000, 0x40000, 0xc0000];
    let mut seeds = Vec::new();
    for place in places {
        let seed = run.seed();
        session(run, place, 4, seed)?;
        seeds.push((place, seed));
    }
    for &(place, seed) in seeds.iter().rev() {
        let took = run.verify(place, 4, seed)?;
        took_reading(run, place, 4, took);
    }
    run.info("reading all 24 chunks around");
    run.audit(0..24 * CHUNK)
}

fn session(run: &mut Run, first: u64, chunks: u64, seed: u64) -> Result<(), Failure> {
    let took = run.write(first, chunks, seed)?;
    run.info(format!("writing {chunks} chunks @ {first:#x} took {} µs", took.as_micros()));
    Ok(())
}

fn took_reading(run: &mut Run, first: u64, chunks: u64, took: std::time::Duration) {
    run.info(format!("reading {chunks} chunks @ {first:#x} took {} µs", took.as_micros()));
}

/// Every kind of wrong address is refused with its reason, for writing and for reading, and the target has no data
/// after its last byte.
pub fn are_refused(run: &mut Run) -> Result<(), Failure> {
    let painted = run.seed();
    run.write(0, 8, painted)?;
    let beyond = run.usable / CHUNK * CHUNK;
    let (too_large, reversed) =
        ("address-range-greater-than-media", "address-first-greater-than-last");
    let cases = [
        ("a last address greater than that of the last chunk", 0, beyond, too_large),
        ("a first address greater than the last", 4 * CHUNK, 2 * CHUNK, reversed),
        ("an unaligned first address", 512, 4 * CHUNK, "address-unaligned"),
        ("an unaligned last address", 0, 4 * CHUNK + 512, "address-unaligned"),
    ];
    for direction in [Direction::Write, Direction::Read] {
        for (what, first, last, name) in cases {
            let way = if direction == Direction::Write { "writing" } else { "reading" };
            run.info(format!("{way} with {what}"));
            let status = attempt(run, direction, first, last)?;
            ensure(status.error == Some(name), || {
                format!("{way} with {what} is refused as {:?}, and not as {name}", status.error)
            })?;
            ensure(status.bytes == 0 && status.captured_last.is_none(), || {
                format!("{way} with {what} moved {} bytes", status.bytes)
            })?;
            run.info(format!("status: {name}, as expected"));
        }
    }
    ends_where_it_says(run)?;
    run.audit(0..8 * CHUNK)
}

/// The result of a session with these addresses; it is run if they are accepted.
fn attempt(run: &mut Run, direction: Direction, first: u64, last: u64) -> Result<Status, Failure> {
    match Span::new(Some(first), Some(last), CHUNK_BYTES, run.usable) {
        Err(error) => Ok(Status::refused(direction, &error)),
        Ok(span) => {
            let mut session = Session::new(direction, span, None, false);
            if direction == Direction::Write {
                let mut source = Source::new(run.pattern(0), span.first(), span.bytes());
                run.rig.write(&mut session, &mut source, None)?;
            }
            Ok(session.status())
        }
    }
}

fn ends_where_it_says(run: &mut Run) -> Result<(), Failure> {
    let sector = run.rig.medium.sector_bytes();
    // A direct read begins at a whole sector; the rest of the last sector has no content.
    let end = run.media.next_multiple_of(sector);
    let mut bytes = 0;
    let read = run.rig.read(end..end + CHUNK, &mut |got, _| bytes += got.len());
    let nothing = read.is_err() || bytes == 0;
    ensure(nothing, || {
        format!(
            "the target says that it ends at {:#x}, and {bytes} bytes are read behind that: its size is false, \
             or addresses wrap around",
            run.media
        )
    })?;
    run.info(format!("nothing is read behind the end, {:#x}", run.media));
    Ok(())
}
