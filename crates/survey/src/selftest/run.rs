//! The base of every test: sessions by address, and the ledger of their writes.

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

/// The smallest part of a target on which the tests can run.
pub const LEAST_CHUNKS: u64 = 64;

/// The reason why a test is not passed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A check failed.
    #[error("{0}")]
    Found(String),
    /// An operation on the target failed.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// The subject of the test cannot be observed; all other checks passed.
    #[error("{0}")]
    Unknown(String),
    /// A valid session was refused.
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// Returns a failure unless the condition holds.
pub fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Found(otherwise())) }
}

/// The state of a running test.
pub struct Run<'a> {
    /// The rig that moves the blocks.
    pub rig: Rig<'a>,
    /// Usable bytes from the beginning: whole chunks.
    pub usable: u64,
    /// All bytes of the target.
    pub media: u64,
    /// Chunks of the long sessions of tests 05 and 06.
    pub long_chunks: u64,
    /// Chunks of the longest session of test 08, and the number of runs.
    pub sweep: (u64, usize),
    /// Bytes that test 10 writes.
    pub whole: u64,
    /// The number of its passes.
    pub passes: usize,
    /// The link that tests 00 and 11 expect.
    pub link: Option<ExpectedLink>,
    /// Peak rates measured.
    pub peaks: Vec<Peak>,
    /// Continuous rates measured.
    pub continuous: Option<Continuous>,
    pattern: Pattern,
    /// All seeds used, the latest last.
    seeds: Vec<u64>,
    ledger: Ledger,
    say: &'a mut dyn FnMut(Line),
    told: Vec<String>,
}

/// The used part of a target, and the sizes of the tests.
pub struct ChunkRange {
    /// Usable bytes.
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
    /// Starts with an empty ledger; seeds count up from that of the pattern.
    pub fn new(
        rig: Rig<'a>,
        extent: &ChunkRange,
        pattern: Pattern,
        say: &'a mut dyn FnMut(Line),
    ) -> Self {
        let &ChunkRange { usable, media, long_chunks, sweep, whole, passes, link } = extent;
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

    /// Reports information.
    pub fn info(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.told.push(text.clone());
        (self.say)(Line::Info(text));
    }

    /// The information reported since the last call.
    pub fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    /// Reports progress.
    pub fn say(&mut self, line: Line) {
        (self.say)(line);
    }

    /// A new seed.
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

    /// The span of chunks from the one at `first` on.
    pub fn span(&self, first: u64, chunks: u64) -> Result<Span, AddressError> {
        let last = first + (chunks.max(1) - 1) * CHUNK;
        Span::new(Some(first), Some(last), CHUNK_BYTES, self.usable)
    }

    /// Writes chunks with a seed completely, and returns the duration.
    pub fn write(&mut self, first: u64, chunks: u64, seed: u64) -> Result<Duration, Failure> {
        let span = self.span(first, chunks)?;
        let mut session = Session::new(Direction::Write, span, None, false);
        let mut source = Source::new(self.pattern(seed), first, span.bytes());
        let begun = Instant::now();
        self.rig.write(&mut session, &mut source, None)?;
        let took = begun.elapsed();
        let status = session.status();
        self.wrote(&session, seed);
        ensure(status.words == [Word::Finished] && status.bytes == span.bytes(), || {
            format!("writing {chunks} chunks ended as {}", words(&status))
        })?;
        Ok(took)
    }

    /// Records a session's writes, including the rest of its last sector.
    pub fn wrote(&mut self, session: &Session, seed: u64) {
        let (first, bytes) = (session.span().first(), session.written());
        let sector = self.rig.medium.sector_bytes();
        self.ledger.write(first..first + bytes, Content::Seed(seed));
        let end = first + bytes.next_multiple_of(sector);
        self.ledger.write(first + bytes..end, Content::Zeros);
    }

    /// Reads chunks and compares them with the pattern of a seed. Data of earlier tests is recognised by its seed.
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
        ensure(got == span.bytes(), || short(first, got, span.bytes()))?;
        Ok((report, took))
    }

    /// Reads chunks that must have the pattern of a seed; returns the duration.
    pub fn verify(&mut self, first: u64, chunks: u64, seed: u64) -> Result<Duration, Failure> {
        let (report, took) = self.read(first, chunks, seed)?;
        good(&report)?;
        Ok(took)
    }

    /// Reads a range and compares it with the ledger.
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
        ensure(got == range.end - range.start, || {
            short(range.start, got, range.end - range.start)
        })?;
        good(&report)
    }

    /// A checker for the pattern with a seed, which recognises all other seeds of this run.
    pub fn checker(&self, seed: u64) -> Checker {
        let older: Vec<u64> = self.seeds.iter().copied().filter(|&it| it != seed).collect();
        self.checker_of(self.pattern(seed), &older)
    }

    fn checker_of(&self, pattern: Pattern, older: &[u64]) -> Checker {
        Checker::new(pattern).blocks(CHUNK).sectors(self.rig.medium.sector_bytes()).after(older)
    }
}

/// Fails with the first finding of a report.
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
