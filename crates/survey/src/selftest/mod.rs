//! `selftest`: twelve tests of a target as a recorder of chunks, modelled on those of hardware NVMe recorders.
//!
//! ```text
//! 00 11   properties: link, size, errors                  07 09   nothing outside the addresses
//! 01 04   sources with more or less than requested       08      sessions of 1 to 32768 chunks
//! 02      the checker itself                              10      the whole target
//! 03      flush, and sync                                 05 06   abort and stop
//! ```
//!
//! All data written is a pattern in which each byte depends on its address and on a seed that is unique to the session.
//! Misplaced, missing or outdated data is therefore detected and diagnosed ([`fullbore_core::pattern::Diagnosis`]). A
//! `Ledger` records the expected content; most tests end by comparing all surrounding data with it.
//!
//! The tests use a target through [`Medium`]. [`Local`] is a real one; unit tests show that each test fails on a
//! simulated one with a fault.

mod bounds;
mod checking;
mod ending;
#[cfg(test)]
mod faulty;
mod ledger;
mod leftover;
mod link;
mod local;
mod medium;
mod rate;
mod rig;
mod run;
mod summary;
mod whole;

use std::borrow::Cow;
use std::cell::RefCell;
use std::time::Instant;

use fullbore_core::hint::Hint;
use fullbore_core::pattern::Pattern;
use fullbore_core::units::ByteSize;
use fullbore_linux::stop_handle::StopHandle;

pub use link::{ExpectedLink, NoLink};
pub use local::{Local, OpenError, Wanted};
pub use medium::{Link, Look, Medium, Moved, Transfer};
pub use rig::Trouble;
pub use summary::{Continuous, FullPass, Line, Outcome, Peak, Spread, Summary, TestResult};

use rig::Rig;
use run::{CHUNK, ChunkRange, Failure, LEAST_CHUNKS, Run};

/// Version of the [`Summary`].
pub const VERSION: u32 = 1;

/// Chunks of the longest sessions, as in the hardware: 4 GiB.
const LONG_CHUNKS: u64 = 32_768;

/// Chunks of the longest sessions in the quick form: 32 MiB.
const QUICK_CHUNKS: u64 = 256;

/// Bytes that the quick form writes in test 10.
const QUICK_WHOLE: u64 = 256 << 20;

/// The largest block.
const BLOCK_BYTES: u64 = 1 << 20;

/// The number of concurrent blocks.
const DEPTH: usize = 8;

/// The settings of a self test.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most bytes of the target to use.
    pub limit: Option<u64>,
    /// True for short sessions on the beginning of the target only: a quick check.
    pub quick: bool,
    /// The number of runs of each session of test 08; `None`: three, or one if quick.
    pub runs: Option<usize>,
    /// The number of passes of test 10; 0 counts as one.
    pub passes: usize,
    /// The expected link of the target.
    pub link: Option<ExpectedLink>,
    /// The pattern; the first seed used is the one after its seed.
    pub pattern: Pattern,
    /// The numbers of the tests; empty for all.
    pub only: Vec<u8>,
}

/// A target that cannot be tested.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Too little space.
    #[error(
        "{} of the target can be used, and the tests need at least {}",
        ByteSize(*usable), ByteSize(LEAST_CHUNKS * CHUNK)
    )]
    Small {
        /// The usable bytes.
        usable: u64,
    },
    /// A pattern without seeds.
    #[error("{pattern} has no seed, so old data could not be distinguished from new")]
    NoSeed {
        /// The pattern.
        pattern: Pattern,
    },
    /// An unknown test.
    #[error("there is no test {number}; tests are 0 to 11")]
    NoTest {
        /// The number.
        number: u8,
    },
    /// A failure of resources that all tests need.
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Small { .. } => "free some space, lower --reserve, or raise --size",
            Self::NoSeed { .. } => "take prbs31 or random",
            Self::NoTest { .. } => return None,
            Self::Trouble(_) => "free some memory",
        }))
    }
}

/// A test.
pub struct Test {
    /// 0 to 11.
    pub number: u8,
    /// Its name.
    pub title: &'static str,
    /// Its description, and the condition for passing.
    pub about: &'static str,
    run: fn(&mut Run, &Look) -> Result<(), Failure>,
}

/// All tests.
pub static TESTS: [Test; 12] = [
    Test {
        number: 0,
        title: "target and link",
        about: "Looks at the target and its link, and writes and reads its first and last chunk.\n\
                It is passed when the link is as fast as expected, or as both ends can, and both chunks are\n\
                right. Where no link is told it is unknown, and failed if one is expected.",
        run: |run, _| link::at_first(run),
    },
    Test {
        number: 1,
        title: "flush of what is left over",
        about: "The session takes one chunk, and the source has two: the other one has to be flushed.\n\
                It is passed when the source is done after the flush, and the chunk was written nowhere.",
        run: |run, _| leftover::is_flushed(run),
    },
    Test {
        number: 2,
        title: "pattern checker",
        about: "What was written is read and held against a wrong length, a wrong seed, and one bit changed\n\
                in memory. It is passed when each is found where it is, and nothing when nothing is wrong.",
        run: |run, _| checking::finds_what_is_wrong(run),
    },
    Test {
        number: 3,
        title: "flush after write, and sync",
        about: "A session is to flush by itself after its last chunk; then what was written is made safe.\n\
                It is passed when the flush begins and ends, the device is told to empty its cache, and all\n\
                is read back from the medium.",
        run: |run, _| leftover::is_flushed_after_a_write(run),
    },
    Test {
        number: 4,
        title: "early end of data",
        about: "The source ends within a chunk, and within a sector. It is passed when the status says both\n\
                `finished` and `early-end`, and nothing was touched beyond that sector.",
        run: |run, _| leftover::ends_early(run),
    },
    Test {
        number: 5,
        title: "abort",
        about: "A range is written twice, with two seeds, and the second time it is aborted on the way.\n\
                It is passed when the flush runs by itself, and the first old data is found exactly behind\n\
                the address that was captured.",
        run: |run, _| ending::by_abort(run),
    },
    Test {
        number: 6,
        title: "stop",
        about: "A range is written twice, with two seeds, and the second time it is stopped on the way.\n\
                It is passed when all that was held is written, the flush runs by command, and the first old\n\
                data is found exactly behind the address that was captured.",
        run: |run, _| ending::by_stop(run),
    },
    Test {
        number: 7,
        title: "no write outside the addresses",
        about: "Sessions are written at neighbouring addresses, out of order, and read in another order.\n\
                It is passed when none of them has touched what belongs to the others.",
        run: |run, _| bounds::are_kept(run),
    },
    Test {
        number: 8,
        title: "rates of short and long sessions",
        about: "Sessions of more and more chunks are written and read, and the time is taken.\n\
                It is passed when all that was read is right.",
        run: |run, _| rate::of_sessions(run),
    },
    Test {
        number: 9,
        title: "wrong addresses",
        about: "Sessions are asked for with addresses that are too large, reversed or unaligned.\n\
                It is passed when each is refused by its name, nothing was touched, and the target has nothing\n\
                behind its end.",
        run: |run, _| bounds::are_refused(run),
    },
    Test {
        number: 10,
        title: "the whole target",
        about: "Writes as many chunks as there are, and reads them back.\n\
                It is passed when all of them are right, each time.",
        run: |run, _| whole::is_written_and_read(run),
    },
    Test {
        number: 11,
        title: "target and link, once more",
        about: "Looks at the target and its link again. It is passed when the link is as fast as expected,\n\
                nothing has changed since the first test, and the kernel has counted no errors.",
        run: link::at_last,
    },
];

/// Bytes of a target that a run with these settings uses, if it has as many.
pub fn needed(settings: &Settings) -> u64 {
    let most = if settings.quick { QUICK_WHOLE } else { u64::MAX };
    settings.limit.unwrap_or(most).min(most)
}

/// Runs the tests. `say` gets all events; `stop` ends the run.
pub fn run(
    medium: &mut dyn Medium,
    settings: &Settings,
    stop: &StopHandle,
    say: &mut dyn FnMut(Line),
) -> Result<Summary, Error> {
    let tests = chosen(settings)?;
    let extent = extent(medium.bytes(), settings)?;
    let block_bytes = (extent.long_chunks / 64 * CHUNK).clamp(CHUNK, BLOCK_BYTES);
    let first = medium.look();
    let say = RefCell::new(say);
    let mut moved = |bytes| (*say.borrow_mut())(Line::Moved(bytes));
    let mut tell = |line| (*say.borrow_mut())(line);
    let rig = Rig::new(medium, &mut moved, stop, block_bytes, DEPTH)?;
    let mut run = Run::new(rig, &extent, settings.pattern, &mut tell);
    let mut results = Vec::new();
    for test in &tests {
        match one(&mut run, test, &first) {
            Some(result) => results.push(result),
            None => break,
        }
    }
    let count = |outcome| results.iter().filter(|result| result.outcome == outcome).count();
    let (failed, unknown) = (count(Outcome::Fail), count(Outcome::Unknown));
    Ok(Summary {
        fullbore_selftest: VERSION,
        target: first,
        tested: ByteSize(extent.usable),
        pattern: settings.pattern,
        quick: settings.quick,
        link_expected: settings.link,
        peaks: std::mem::take(&mut run.peaks),
        continuous: run.continuous,
        failed,
        unknown,
        passed: failed == 0 && results.len() == tests.len(),
        interrupted: stop.is_requested(),
        tests: results,
    })
}

fn chosen(settings: &Settings) -> Result<Vec<&'static Test>, Error> {
    if settings.pattern.seed().is_none() {
        return Err(Error::NoSeed { pattern: settings.pattern });
    }
    let is_there = |number: &u8| usize::from(*number) < TESTS.len();
    if let Some(&number) = settings.only.iter().find(|number| !is_there(number)) {
        return Err(Error::NoTest { number });
    }
    let wanted = |test: &&Test| settings.only.is_empty() || settings.only.contains(&test.number);
    Ok(TESTS.iter().filter(wanted).collect())
}

/// The longest sessions for the available size.
fn extent(media: u64, settings: &Settings) -> Result<ChunkRange, Error> {
    let usable = media.min(settings.limit.unwrap_or(u64::MAX)) / CHUNK * CHUNK;
    let chunks = usable / CHUNK;
    if chunks < LEAST_CHUNKS {
        return Err(Error::Small { usable });
    }
    let most = if settings.quick { QUICK_CHUNKS } else { LONG_CHUNKS };
    // A session of this length is preceded by as many other chunks.
    let longest = 1 << (chunks / 2).min(most).ilog2();
    let whole = if settings.quick { usable.min(QUICK_WHOLE) } else { usable };
    let runs = settings.runs.unwrap_or(if settings.quick { 1 } else { 3 });
    let passes = settings.passes.max(1);
    Ok(ChunkRange {
        usable,
        media,
        long_chunks: chunks.min(most),
        sweep: (longest, runs),
        whole,
        passes,
        link: settings.link,
    })
}

/// Runs one test; `None` if it was interrupted.
fn one(run: &mut Run, test: &'static Test, first: &Look) -> Option<TestResult> {
    let &Test { number, title, about, .. } = test;
    run.say(Line::Begin { number, title, about });
    let begun = Instant::now();
    let (outcome, why) = match (test.run)(run, first) {
        Ok(()) => (Outcome::Pass, None),
        Err(Failure::Trouble(Trouble::Interrupted)) => return None,
        Err(Failure::Unknown(what)) => (Outcome::Unknown, Some(what)),
        Err(failure) => (Outcome::Fail, Some(failure.to_string())),
    };
    let seconds = begun.elapsed().as_secs_f64();
    let result = TestResult { number, title, outcome, why, seconds, told: run.told() };
    run.say(Line::End(result.clone()));
    Some(result)
}
