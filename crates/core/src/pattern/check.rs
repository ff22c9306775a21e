//! Compares blocks with a pattern: the first wrong byte, the number of wrong bytes, and a diagnosis.

use std::ops::Range;

use serde::Serialize;

use super::diagnosis::{Diagnosis, Wrong};
use super::{PIECE, Pattern};

/// A checker with the facts that it needs for a diagnosis.
///
/// Only the pattern decides which bytes are right; block size, sector size and older seeds serve the diagnosis. The
/// sequences shorter than PRBS-31 are ambiguous: a block of another seed may be diagnosed as a shift.
#[derive(Clone, Debug)]
pub struct Checker {
    pub(super) pattern: Pattern,
    pub(super) block_bytes: u64,
    pub(super) sector_bytes: u64,
    pub(super) older: Vec<u64>,
    pub(super) span: u64,
}

/// Bytes that differ from the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{wrong_bytes} bytes ({wrong_bits} bits) wrong from {first:#x} to {last:#x}: {diagnosis}")]
pub struct Mismatch {
    /// Offset of the first wrong byte in the pattern.
    pub first: u64,
    /// Offset of the last wrong byte.
    pub last: u64,
    /// Number of wrong bytes.
    pub wrong_bytes: u64,
    /// Number of wrong bits.
    pub wrong_bits: u64,
    /// The diagnosis of the first wrong block.
    pub diagnosis: Diagnosis,
}

impl Checker {
    /// Returns a checker with blocks of 128 KiB, sectors of 512 bytes, no older seeds, and blocks from up to 1 TiB
    /// away.
    pub fn new(pattern: Pattern) -> Self {
        let (block_bytes, sector_bytes) = (128 << 10, 512);
        Self { pattern, block_bytes, sector_bytes, older: Vec::new(), span: 1 << 40 }
    }

    /// Sets the size of blocks, which start at its multiples: blocks are lost, repeated or stale as a unit.
    pub fn blocks(self, bytes: u64) -> Self {
        Self { block_bytes: bytes.max(1), ..self }
    }

    /// Sets the size of sectors, which start at its multiples: an incomplete write ends at a sector.
    pub fn sectors(self, bytes: u64) -> Self {
        Self { sector_bytes: bytes.max(1), ..self }
    }

    /// Sets the seeds that were written to the same places before.
    pub fn after(self, seeds: &[u64]) -> Self {
        Self { older: seeds.to_vec(), ..self }
    }

    /// Returns the expected pattern.
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// Compares bytes with the pattern from `offset` on. The counts are of all bytes, the diagnosis is that of the
    /// first wrong block.
    pub fn check(&self, bytes: &[u8], offset: u64) -> Result<(), Mismatch> {
        let Some(block) = self.next_wrong(bytes, offset, 0) else { return Ok(()) };
        let mut mismatch = self.mismatch(bytes, offset, block.clone());
        let behind = offset.wrapping_add(block.end as u64);
        let rest = tally(&self.pattern, &bytes[block.end..], behind);
        if let Some((_, last)) = rest.ends {
            mismatch.last = behind.wrapping_add(last as u64);
            mismatch.wrong_bytes += rest.bytes;
            mismatch.wrong_bits += rest.bits;
        }
        Err(mismatch)
    }

    /// Returns the first block with a wrong byte at or after `from`, cut to the given bytes.
    fn next_wrong(&self, bytes: &[u8], offset: u64, from: usize) -> Option<Range<usize>> {
        let rest = &bytes[from..];
        let at = from + self.pattern.first_difference(rest, offset.wrapping_add(from as u64))?;
        let into = offset.wrapping_add(at as u64) % self.block_bytes;
        let begin = (at as u64).saturating_sub(into).max(from as u64) as usize;
        let end = (at as u64 + (self.block_bytes - into)).min(bytes.len() as u64) as usize;
        Some(begin..end)
    }

    fn mismatch(&self, bytes: &[u8], offset: u64, block: Range<usize>) -> Mismatch {
        let offset = offset.wrapping_add(block.start as u64);
        let bytes = &bytes[block];
        let tally = tally(&self.pattern, bytes, offset);
        let ends = tally.ends.expect("it has a wrong byte");
        let diagnosis = self.diagnose(&Wrong { bytes, offset, ends, count: tally.bytes });
        Mismatch {
            first: offset.wrapping_add(ends.0 as u64),
            last: offset.wrapping_add(ends.1 as u64),
            wrong_bytes: tally.bytes,
            wrong_bits: tally.bits,
            diagnosis,
        }
    }
}

#[derive(Default)]
struct Tally {
    /// The first and last wrong byte.
    ends: Option<(usize, usize)>,
    bytes: u64,
    bits: u64,
}

/// Counts the wrong bytes and bits.
fn tally(pattern: &Pattern, bytes: &[u8], offset: u64) -> Tally {
    let mut tally = Tally::default();
    let mut expected = [0; PIECE];
    for (n, piece) in bytes.chunks(PIECE).enumerate() {
        let start = n * PIECE;
        let expected = &mut expected[..piece.len()];
        pattern.fill(expected, offset.wrapping_add(start as u64));
        if piece == expected {
            continue;
        }
        for (at, (is, should)) in piece.iter().zip(&*expected).enumerate() {
            if is != should {
                let at = start + at;
                tally.ends = Some((tally.ends.map_or(at, |(first, _)| first), at));
                tally.bytes += 1;
                tally.bits += u64::from((is ^ should).count_ones());
            }
        }
    }
    tally
}

/// The findings of any number of checks. Its size is bounded for any number of errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Checked bytes.
    pub checked_bytes: u64,
    /// Wrong bytes.
    pub wrong_bytes: u64,
    /// Wrong bits.
    pub wrong_bits: u64,
    /// Blocks with a wrong byte.
    pub wrong_blocks: u64,
    /// The findings, in the order of the checks; consecutive blocks with the same error are one finding.
    pub findings: Vec<MismatchRun>,
    /// Wrong blocks that are counted above, and in no finding.
    pub not_told: u64,
}

/// Consecutive blocks with the same error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MismatchRun {
    /// The number of blocks.
    pub blocks: u64,
    /// The error: the counts are those of all of them.
    #[serde(flatten)]
    pub mismatch: Mismatch,
}

impl Report {
    /// The largest number of findings that are kept.
    pub const MOST_FINDINGS: usize = 64;

    /// The largest number of blocks that are diagnosed; a block of another seed takes some milliseconds.
    pub const MOST_DIAGNOSES: u64 = 1024;

    /// Checks further bytes.
    pub fn take(&mut self, checker: &Checker, bytes: &[u8], offset: u64) {
        self.checked_bytes += bytes.len() as u64;
        let mut from = 0;
        while let Some(block) = checker.next_wrong(bytes, offset, from) {
            from = block.end;
            self.wrong_blocks += 1;
            self.look_into(checker, bytes, offset, block);
        }
    }

    /// True if no byte was wrong so far.
    pub fn good(&self) -> bool {
        self.wrong_blocks == 0
    }

    /// Returns the first error.
    pub fn first(&self) -> Option<&Mismatch> {
        self.findings.first().map(|finding| &finding.mismatch)
    }

    fn look_into(&mut self, checker: &Checker, bytes: &[u8], offset: u64, block: Range<usize>) {
        let full = self.findings.len() >= Self::MOST_FINDINGS;
        if full || self.wrong_blocks > Self::MOST_DIAGNOSES {
            let offset = offset.wrapping_add(block.start as u64);
            let tally = tally(&checker.pattern, &bytes[block], offset);
            self.wrong_bytes += tally.bytes;
            self.wrong_bits += tally.bits;
            self.not_told += 1;
            return;
        }
        let mismatch = checker.mismatch(bytes, offset, block);
        self.wrong_bytes += mismatch.wrong_bytes;
        self.wrong_bits += mismatch.wrong_bits;
        let block_of = |at: u64| at / checker.block_bytes;
        match self.findings.last_mut() {
            Some(last)
                if last.mismatch.diagnosis == mismatch.diagnosis
                    && block_of(last.mismatch.last).checked_add(1)
                        == Some(block_of(mismatch.first)) =>
            {
                last.blocks += 1;
                last.mismatch.last = mismatch.last;
                last.mismatch.wrong_bytes += mismatch.wrong_bytes;
                last.mismatch.wrong_bits += mismatch.wrong_bits;
            }
            _ => self.findings.push(MismatchRun { blocks: 1, mismatch }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pattern::{Older, Prbs};

    const BLOCK: usize = 8192;
    const SECTOR: usize = 512;
    const BLOCKS: usize = 12;

    fn checker(pattern: Pattern) -> Checker {
        Checker::new(pattern).blocks(BLOCK as u64).sectors(SECTOR as u64)
    }

    fn made(pattern: Pattern, offset: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCKS * BLOCK];
        pattern.fill(&mut bytes, offset);
        bytes
    }

    /// The patterns that identify a position, each with an offset of its own.
    fn placing() -> impl Strategy<Value = Pattern> {
        let prbs31 = |seed| Pattern::Prbs(Prbs::PRBS31.with_seed(seed));
        prop_oneof![
            any::<u64>().prop_map(prbs31),
            Just(Pattern::Counter),
            any::<u64>().prop_map(|seed| Pattern::Random { seed }),
        ]
    }

    fn seeded() -> impl Strategy<Value = Pattern> {
        let any_prbs = prop::sample::select(vec![Prbs::PRBS23, Prbs::PRBS31]);
        prop_oneof![
            (any_prbs, any::<u64>()).prop_map(|(prbs, seed)| Pattern::Prbs(prbs.with_seed(seed))),
            any::<u64>().prop_map(|seed| Pattern::Random { seed }),
            any::<u64>().prop_map(|seed| Pattern::Noise { seed }),
        ]
    }

    /// Offsets of a block, far enough from 0 for earlier data.
    fn offsets() -> impl Strategy<Value = u64> {
        (100u64..1 << 24).prop_map(|n| n * BLOCK as u64)
    }

    /// Returns the result of a check, after comparing its counts with a simple count.
    fn told(checker: &Checker, bytes: &[u8], offset: u64) -> Mismatch {
        let should = made(checker.pattern, offset);
        let wrong: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != should[at]).collect();
        let mismatch = checker.check(bytes, offset).unwrap_err();
        let bits: u32 = wrong.iter().map(|&at| (bytes[at] ^ should[at]).count_ones()).sum();
        assert_eq!(mismatch.first, offset + wrong[0] as u64);
        assert_eq!(mismatch.last, offset + *wrong.last().unwrap() as u64);
        assert_eq!(mismatch.wrong_bytes, wrong.len() as u64);
        assert_eq!(mismatch.wrong_bits, u64::from(bits));
        mismatch
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_block_that_is_written_twice_is_a_repeated_one(
            pattern in placing(), offset in offsets(), block in 3..BLOCKS, back in 1usize..4,
        ) {
            let mut bytes = made(pattern, offset);
            bytes.copy_within((block - back) * BLOCK..(block - back + 1) * BLOCK, block * BLOCK);
            let back = (back * BLOCK) as u64;
            let mismatch = told(&checker(pattern), &bytes, offset);
            prop_assert_eq!(mismatch.diagnosis, Diagnosis::Repeated { back });
        }

        #[test]
        fn blocks_that_are_left_out_are_missing(
            pattern in placing(), offset in offsets(), block in 0..BLOCKS, blocks in 1usize..1000,
        ) {
            let mut bytes = made(pattern, offset);
            let (at, bytes_missing) = (block * BLOCK, (blocks * BLOCK) as u64);
            pattern.fill(&mut bytes[at..], offset + at as u64 + bytes_missing);
            let mismatch = told(&checker(pattern), &bytes, offset);
            prop_assert_eq!(mismatch.diagnosis, Diagnosis::Missing { bytes: bytes_missing });
        }

        #[test]
        fn bytes_put_in_or_left_out_are_a_shift(
            pattern in placing(), offset in offsets(), block in 0..BLOCKS,
            by in (1i64..4000).prop_flat_map(|by| prop_oneof![Just(by), Just(-by)]),
        ) {
            let mut bytes = made(pattern, offset);
            let at = block * BLOCK;
            pattern.fill(&mut bytes[at..], (offset + at as u64).wrapping_add_signed(by));
            let mismatch = told(&checker(pattern), &bytes, offset);
            prop_assert_eq!(mismatch.diagnosis, Diagnosis::Shift { by });
        }

        #[test]
        fn what_an_earlier_run_left_is_stale_with_its_seed(
            pattern in seeded(), older in any::<u64>(), offset in offsets(), block in 0..BLOCKS,
        ) {
            prop_assume!(pattern.seed() != Some(older));
            let mut bytes = made(pattern, offset);
            let at = block * BLOCK;
            pattern.with_seed(older).fill(&mut bytes[at..at + BLOCK], offset + at as u64);
            let checker = checker(pattern).after(&[1, older]);
            let mismatch = told(&checker, &bytes, offset);
            prop_assert_eq!(mismatch.diagnosis, Diagnosis::Stale { seed: Some(older) });
        }

        #[test]
        fn small_seeds_are_found_without_being_told(
            random in any::<bool>(), seeds in (0u64..1000, 1000u64..2000), offset in offsets(),
        ) {
            let (own, older) = seeds;
            let pattern = match random {
                true => Pattern::Random { seed: own },
                false => Pattern::Prbs(Prbs::PRBS31.with_seed(own)),
            };
            let bytes = made(pattern.with_seed(older), offset);
            let mismatch = told(&checker(pattern), &bytes, offset);
            prop_assert_eq!(mismatch.diagnosis, Diagnosis::Stale { seed: Some(older) });
        }

        #[test]
        fn a_write_that_was_cut_short_is_torn_where_it_was(
            pattern in seeded(), older in prop::option::of(any::<u64>()), offset in offsets(),
            block in 0..BLOCKS, good in 1..BLOCK / SECTOR,
        ) {
            prop_assume!(pattern.seed() != older);
            let mut bytes = made(pattern, offset);
            let (at, end) = (block * BLOCK + good * SECTOR, (block + 1) * BLOCK);
            match older {
                Some(seed) => pattern.with_seed(seed).fill(&mut bytes[at..end], offset + at as u64),
                None => bytes[at..end].fill(0),
            }
            let seeds: Vec<u64> = older.into_iter().collect();
            let mismatch = told(&checker(pattern).after(&seeds), &bytes, offset);
            let older = older.map_or(Older::Zeros, |seed| Older::Seed(Some(seed)));
            let good_bytes = (good * SECTOR) as u64;
            prop_assert_eq!(mismatch.diagnosis, Diagnosis::Torn { good_bytes, older });
        }

        #[test]
        fn zeros_and_flipped_bits_and_strange_bytes_are_told_apart(
            pattern in placing(), offset in offsets(), block in 0..BLOCKS, at in 0..BLOCK, bit in 0..8,
        ) {
            let clean = made(pattern, offset);
            let place = block * BLOCK..(block + 1) * BLOCK;
            let with = |change: &dyn Fn(&mut [u8])| {
                let mut bytes = clean.clone();
                change(&mut bytes[place.clone()]);
                told(&checker(pattern), &bytes, offset).diagnosis
            };
            prop_assert_eq!(with(&|block| block.fill(0)), Diagnosis::Zeros);
            prop_assert_eq!(with(&|block| block[at] ^= 1u8 << bit), Diagnosis::Damage);
            let strange = Pattern::Noise { seed: !offset };
            prop_assert_eq!(with(&|block| strange.fill(block, 0)), Diagnosis::Foreign);
        }
    }

    #[test]
    fn an_older_seed_that_nobody_knows_is_not_taken_for_a_shift() {
        let pattern = Pattern::Prbs(Prbs::PRBS31);
        let stale = |seed: &u64| {
            let bytes = made(pattern.with_seed(*seed), 0);
            let mismatch = told(&checker(pattern).blocks(128 << 10), &bytes, 0);
            mismatch.diagnosis == Diagnosis::Stale { seed: None }
        };
        // One in a hundred might pass for blocks from far away.
        assert!((1 << 40..(1 << 40) + 50).filter(stale).count() > 45);
    }

    #[test]
    fn a_report_joins_what_is_alike_and_is_bounded() {
        let pattern = Pattern::Prbs(Prbs::PRBS31.with_seed(5));
        let checker = checker(pattern).after(&[4]);
        let mut bytes = made(pattern, 0);
        pattern.with_seed(4).fill(&mut bytes[BLOCK..4 * BLOCK], BLOCK as u64);
        bytes[6 * BLOCK..7 * BLOCK].fill(0);
        let mut report = Report::default();
        report.take(&checker, &bytes, 0);
        let found: Vec<_> =
            report.findings.iter().map(|it| (it.blocks, it.mismatch.diagnosis)).collect();
        assert_eq!(found, [(3, Diagnosis::Stale { seed: Some(4) }), (1, Diagnosis::Zeros)]);
        assert_eq!((report.wrong_blocks, report.not_told), (4, 0));
        assert_eq!(report.first().unwrap().first, BLOCK as u64);

        let mut report = Report::default();
        for round in 0..200u64 {
            // Every second block, so that none are consecutive.
            report.take(&checker, &bytes[6 * BLOCK..7 * BLOCK], 2 * round * BLOCK as u64);
        }
        assert_eq!(report.findings.len(), Report::MOST_FINDINGS);
        assert_eq!(report.wrong_blocks, 200);
        assert_eq!(report.not_told, 200 - Report::MOST_FINDINGS as u64);
    }

    #[test]
    fn a_block_is_known_by_its_offset_wherever_the_bytes_begin() {
        let pattern = Pattern::Counter;
        let mut bytes = made(pattern, 1000);
        bytes[100] ^= 1;
        bytes[BLOCK] ^= 1;
        let mut report = Report::default();
        report.take(&checker(pattern), &bytes, 1000);
        // The first block ends at 8192 of the pattern, 7192 bytes into the data: the two are neighbours.
        assert_eq!(report.wrong_blocks, 2);
        assert_eq!(report.findings[0].blocks, 2);
    }
}
