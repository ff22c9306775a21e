//! What every test stands on: sessions by address, and the ledger of what they wrote.

use std::ops::Range;
use std::time::{Duration, Instant};

use fullbore_core::device::{AddressError, CHUNK_BYTES, Direction, Session, Span, Status, Word};
use fullbore_core::pattern::{Checker, Pattern, Report};

use super::ledger::{Content, Ledger};
use super::link::ExpectedLink;
use super::rig::{Rig, Source, Trouble};
use super::summary::{Continuous, Line, Peak};

/// Bytes of a chunk, the unit of all addresses.
pub const CHUNK: u64 = CHUNK_BYTES as u64;

/// The smallest part of a target that the tests have room in.
pub const LEAST_CHUNKS: u64 = 64;

/// Why a test is not passed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something is not as it should be.
    #[error("{0}")]
    Found(String),
    /// The target did not do what was asked.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// What the test is about cannot be seen; all else is as it should be.
    #[error("{0}")]
    Unknown(String),
    /// A session that should have been taken was refused.
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// Says that something is not as it should be, unless it is.
pub fn demand(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Found(otherwise())) }
}

/// A test, from inside.
pub struct Run<'a> {
    /// Moves the blocks.
    pub rig: Rig<'a>,
    /// Bytes that may be used, from the beginning: whole chunks.
    pub usable: u64,
    /// Bytes of the target, to its very end.
    pub media: u64,
    /// Chunks of the long sessions of tests 05 and 06.
    pub long_chunks: u64,
    /// The longest session of test 08, and how often each is run.
    pub sweep: (u64, usize),
    /// How much of the target test 10 writes.
    pub whole: u64,
    /// How often it does.
    pub passes: usize,
    /// The link that tests 00 and 11 expect.
    pub link: Option<ExpectedLink>,
    /// Peak rates found.
    pub peaks: Vec<Peak>,
    /// Continuous rates found.
    pub continuous: Option<Continuous>,
    pattern: Pattern,
    /// Every seed that was used, the last one last.
    seeds: Vec<u64>,
    ledger: Ledger,
    say: &'a mut dyn FnMut(Line),
    told: Vec<String>,
}

/// What of a target is used, and how.
pub struct Extent {
    /// Bytes that may be used.
    pub usable: u64,
    /// Bytes of the target.
    pub media: u64,
    /// The rest as in [`Run`].
    pub long_chunks: u64,
    /// As in [`Run`].
    pub sweep: (u64, usize),
    /// As in [`Run`].
    pub whole: u64,
    /// As in [`Run`].
    pub passes: usize,
    /// As in [`Run`].
    pub link: Option<ExpectedLink>,
}

impl<'a> Run<'a> {
    /// Everything is still to be written; seeds count up from that of the pattern.
    pub fn new(
        rig: Rig<'a>,
        extent: &Extent,
        pattern: Pattern,
        say: &'a mut dyn FnMut(Line),
    ) -> Self {
        let &Extent { usable, media, long_chunks, sweep, whole, passes, link } = extent;
        Self {
            rig,
            usable,
            media,
            long_chunks,
            sweep,
            whole,
            passes,
            link,
            peaks: vec![],
            continuous: None,
            pattern,
            seeds: vec![],
            ledger: Ledger::default(),
            say,
            told: vec![],
        }
    }

    /// Tells something worth knowing.
    pub fn info(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.told.push(text.clone());
        (self.say)(Line::Info(text));
    }

    /// What was told since this was last asked.
    pub fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    /// Tells where the tests are.
    pub fn say(&mut self, line: Line) {
        (self.say)(line);
    }

    /// A seed that was not used before.
    pub fn seed(&mut self) -> u64 {
        let before = self.seeds.last().copied().or(self.pattern.seed()).unwrap_or(0);
        let seed = before.wrapping_add(1);
        self.seeds.push(seed);
        seed
    }

    /// The pattern with a seed.
    pub fn pattern(&self, seed: u64) -> Pattern {
        self.pattern.with_seed(seed)
    }

    /// Chunks from the one at `first` on.
    pub fn span(&self, first: u64, chunks: u64) -> Result<Span, AddressError> {
        let last = first + (chunks.max(1) - 1) * CHUNK;
        Span::new(Some(first), Some(last), CHUNK_BYTES, self.usable)
    }

    /// Writes chunks with a seed, to their end, and says how long it took.
    pub fn write(&mut self, first: u64, chunks: u64, seed: u64) -> Result<Duration, Failure> {
        let span = self.span(first, chunks)?;
        let mut session = Session::new(Direction::Write, span, None, false);
        let mut source = Source::new(self.pattern(seed), first, span.bytes());
        let begun = Instant::now();
        self.rig.write(&mut session, &mut source, None)?;
        let took = begun.elapsed();
        let status = session.status();
        self.wrote(&session, seed);
        demand(status.words == [Word::Finished] && status.bytes == span.bytes(), || {
            format!("writing {chunks} chunks ended as {}", words(&status))
        })?;
        Ok(took)
    }

    /// Notes what a session has written, the rest of its last sector included.
    pub fn wrote(&mut self, session: &Session, seed: u64) {
        let (first, bytes) = (session.span().first(), session.written());
        let sector = self.rig.medium.sector_bytes();
        self.ledger.write(first..first + bytes, Content::Seed(seed));
        let end = first + bytes.next_multiple_of(sector);
        self.ledger.write(first + bytes..end, Content::Zeros);
    }

    /// Reads chunks and holds them against the pattern with a seed. What earlier tests left is known by theirs.
    pub fn read(
        &mut self,
        first: u64,
        chunks: u64,
        seed: u64,
    ) -> Result<(Report, Duration), Failure> {
        let span = self.span(first, chunks)?;
        let range = first..span.end();
        let checker = self.checker(seed);
        let mut report = Report::default();
        let begun = Instant::now();
        let mut take = |bytes: &[u8], offset: u64| report.take(&checker, bytes, offset);
        let got = self.rig.read(range, &mut take)?;
        let took = begun.elapsed();
        demand(got == span.bytes(), || short(first, got, span.bytes()))?;
        Ok((report, took))
    }

    /// Reads chunks that must hold the pattern with a seed; says how long it took.
    pub fn verify(&mut self, first: u64, chunks: u64, seed: u64) -> Result<Duration, Failure> {
        let (report, took) = self.read(first, chunks, seed)?;
        good(&report)?;
        Ok(took)
    }

    /// Reads a range and holds it against everything that was ever written to it.
    pub fn audit(&mut self, range: Range<u64>) -> Result<(), Failure> {
        let pieces = self.ledger.pieces(range.clone());
        let checkers: Vec<Checker> = pieces
            .iter()
            .map(|(_, content)| match *content {
                Content::Seed(seed) => self.checker(seed),
                Content::Zeros => self.checker_of(Pattern::Constant(0), &[]),
            })
            .collect();
        let mut report = Report::default();
        let mut take = |bytes: &[u8], offset: u64| {
            let end = offset + bytes.len() as u64;
            let first = pieces.partition_point(|(piece, _)| piece.end <= offset);
            for ((piece, _), checker) in pieces.iter().zip(&checkers).skip(first) {
                if piece.start >= end {
                    break;
                }
                let (from, to) = (piece.start.max(offset), piece.end.min(end));
                let bytes = &bytes[(from - offset) as usize..(to - offset) as usize];
                report.take(checker, bytes, from);
            }
        };
        let got = self.rig.read(range.clone(), &mut take)?;
        demand(got == range.end - range.start, || {
            short(range.start, got, range.end - range.start)
        })?;
        good(&report)
    }

    /// Knows the pattern with a seed, and those of all other seeds of this run.
    pub fn checker(&self, seed: u64) -> Checker {
        let older: Vec<u64> = self.seeds.iter().copied().filter(|&it| it != seed).collect();
        self.checker_of(self.pattern(seed), &older)
    }

    fn checker_of(&self, pattern: Pattern, older: &[u64]) -> Checker {
        Checker::new(pattern).blocks(CHUNK).sectors(self.rig.medium.sector_bytes()).after(older)
    }
}

/// Fails with the first thing that a report found.
pub fn good(report: &Report) -> Result<(), Failure> {
    let Some(first) = report.first() else { return Ok(()) };
    let more = match report.wrong_blocks {
        1 => String::new(),
        blocks => format!("; {blocks} chunks are wrong in all, {} bytes", report.wrong_bytes),
    };
    Err(Failure::Found(format!("wrong data: {first}{more}")))
}

fn short(first: u64, got: u64, wanted: u64) -> String {
    format!("short read: the data ends at {:#x}, {} bytes early", first + got, wanted - got)
}

/// The words of a status in one line.
pub fn words(status: &Status) -> String {
    let words: Vec<&str> = status.words.iter().map(|word| word.as_str()).collect();
    words.join(" ")
}
