//! Diagnoses wrong bytes: another position of the pattern, or an earlier write.
//!
//! Wrong bytes of a block are examined by sectors, because disks fail by sectors. The sectors from the first wrong byte
//! to the last are compared with zeros, with the pattern under older seeds, and with the pattern at other positions. A
//! diagnosis must fit all of them.

use std::fmt;

use serde::Serialize;

use super::{Checker, PAGE, Pattern, Prbs, STEP, STEP_INVERSE, unmixed};

/// The diagnosis of wrong bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Diagnosis {
    /// Single bits or bytes changed; the rest is correct.
    Damage,
    /// Bytes that do not belong to the pattern.
    Foreign,
    /// Zeros: never written, or lost and read as empty.
    Zeros,
    /// The pattern, shifted by a distance that is not a multiple of blocks.
    Shift {
        /// The distance in bytes to the right position; negative: before this one.
        by: i64,
    },
    /// An earlier block is repeated here.
    Repeated {
        /// The distance in bytes to its right position, before this one.
        back: u64,
    },
    /// Blocks are missing, so later blocks are here.
    Missing {
        /// The distance in bytes to the right position, after this one.
        bytes: u64,
    },
    /// Data of an earlier run at the same position.
    Stale {
        /// The seed of that run; `None` if it is neither known nor small.
        seed: Option<u64>,
    },
    /// The write ended before the end of the block.
    Torn {
        /// Bytes of the block that are correct.
        good_bytes: u64,
        /// The data after them.
        older: Older,
    },
}

/// The data after the end of an incomplete write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Older {
    /// Zeros: no earlier data.
    Zeros,
    /// Data of an earlier run, with its seed if known.
    Seed(Option<u64>),
    /// Other data.
    Foreign,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Diagnosis::Damage => f.write_str("damage: single bits or bytes were changed"),
            Diagnosis::Foreign => f.write_str("nothing that belongs to the pattern"),
            Diagnosis::Zeros => f.write_str("zeros: never written, or lost"),
            Diagnosis::Shift { by } => {
                let way = if by < 0 { "back" } else { "on" };
                write!(f, "shifted: this is the data of {} bytes further {way}", by.unsigned_abs())
            }
            Diagnosis::Repeated { back } => {
                write!(f, "a repeated block: this is the data of {back} bytes further back")
            }
            Diagnosis::Missing { bytes } => {
                write!(f, "missing: this is the data of {bytes} bytes further on")
            }
            Diagnosis::Stale { seed: Some(seed) } => {
                write!(f, "stale: this was written here with seed {seed}")
            }
            Diagnosis::Stale { seed: None } => {
                f.write_str("stale: this is the pattern with another seed")
            }
            Diagnosis::Torn { good_bytes, older } => {
                write!(f, "a torn write: good for {good_bytes} bytes, then ")?;
                match older {
                    Older::Zeros => f.write_str("zeros"),
                    Older::Seed(Some(seed)) => write!(f, "what seed {seed} left there"),
                    Older::Seed(None) => f.write_str("what another seed left there"),
                    Older::Foreign => f.write_str("something else"),
                }
            }
        }
    }
}

/// The origin of bytes.
enum Origin {
    Nowhere,
    /// This position, but with another seed.
    Here(Older),
    /// Another position at this distance, with the right seed.
    Away(i64),
}

/// A block with wrong bytes.
pub(super) struct Wrong<'a> {
    /// All of its bytes.
    pub(super) bytes: &'a [u8],
    /// Its offset.
    pub(super) offset: u64,
    /// Its first and last wrong byte.
    pub(super) ends: (usize, usize),
    /// The number of wrong bytes.
    pub(super) count: u64,
}

impl Checker {
    /// Diagnoses the wrong bytes of a block.
    pub(super) fn diagnose(&self, wrong: &Wrong<'_>) -> Diagnosis {
        let (from, to) = self.wrong_sectors(wrong);
        let (part, at) = (&wrong.bytes[from..to], wrong.offset.wrapping_add(from as u64));
        // Even a shifted counter differs in one byte of eight.
        if wrong.count * 16 < part.len() as u64 {
            return Diagnosis::Damage;
        }
        let torn = from > 0 && to == wrong.bytes.len();
        let foreign = wrong.count * 2 > part.len() as u64;
        match self.origin(part, at) {
            Origin::Here(older) if torn => Diagnosis::Torn { good_bytes: from as u64, older },
            Origin::Nowhere if foreign && torn => {
                Diagnosis::Torn { good_bytes: from as u64, older: Older::Foreign }
            }
            Origin::Here(Older::Zeros) => Diagnosis::Zeros,
            Origin::Here(Older::Seed(seed)) => Diagnosis::Stale { seed },
            Origin::Here(Older::Foreign) => Diagnosis::Foreign,
            Origin::Away(by) if by.unsigned_abs() % self.block_bytes != 0 => {
                Diagnosis::Shift { by }
            }
            Origin::Away(by) if by < 0 => Diagnosis::Repeated { back: by.unsigned_abs() },
            Origin::Away(by) => Diagnosis::Missing { bytes: by.unsigned_abs() },
            Origin::Nowhere if foreign => Diagnosis::Foreign,
            Origin::Nowhere => Diagnosis::Damage,
        }
    }

    /// Returns the range from the start of the first wrong sector to the end of the last.
    fn wrong_sectors(&self, wrong: &Wrong<'_>) -> (usize, usize) {
        let (first, last) = wrong.ends;
        let into = |at: usize| wrong.offset.wrapping_add(at as u64) % self.sector_bytes;
        let from = (first as u64).saturating_sub(into(first)) as usize;
        let to = last as u64 + self.sector_bytes - into(last);
        (from, to.min(wrong.bytes.len() as u64) as usize)
    }

    fn origin(&self, part: &[u8], at: u64) -> Origin {
        if part.iter().all(|&byte| byte == 0) {
            return Origin::Here(Older::Zeros);
        }
        let own = self.pattern.seed();
        let wrote = |&&seed: &&u64| holds(self.pattern.with_seed(seed), part, at);
        if own.is_some()
            && let Some(&seed) = self.older.iter().filter(|&&seed| own != Some(seed)).find(wrote)
        {
            return Origin::Here(Older::Seed(Some(seed)));
        }
        let found = match self.pattern {
            Pattern::Prbs(prbs) => self.in_sequence(prbs, part, at),
            Pattern::Counter => {
                counted(part).map(|from| Origin::Away(from.wrapping_sub(at) as i64))
            }
            Pattern::Random { seed } => self.in_pages(seed, part, at),
            Pattern::Noise { .. } | Pattern::Constant(_) => None,
        };
        match found.or_else(|| self.nearby(part, at).map(Origin::Away)) {
            Some(Origin::Away(by)) if !self.holds_away(part, at, by) => Origin::Nowhere,
            found => found.unwrap_or(Origin::Nowhere),
        }
    }

    /// True if the bytes are those of another position. In a periodic sequence, positions are periodic too.
    fn holds_away(&self, part: &[u8], at: u64, by: i64) -> bool {
        let Some(place) = at.checked_add_signed(by) else {
            return matches!(self.pattern, Pattern::Prbs(_));
        };
        by != 0 && holds(self.pattern, part, place)
    }

    /// Returns the position of the bytes in a pseudo-random sequence, and its interpretation.
    fn in_sequence(&self, prbs: Prbs, part: &[u8], at: u64) -> Option<Origin> {
        let place = prbs.place_of(part)?;
        if prbs.first_difference_at(place, part).is_some() {
            return None;
        }
        let bytes = prbs.bytes_between(prbs.place(at), place);
        // The distance can be expressed in any unit; the unit with the smallest number is the most probable.
        let units = [1, self.sector_bytes, self.block_bytes];
        let counts = units.map(|unit| (prbs.in_units(bytes, unit), unit));
        // With sectors as unit, any position of the sequence would be within a large disk, so distant ones are
        // rejected.
        let likely = |&(count, unit): &(i64, u64)| {
            let far = count.unsigned_abs().saturating_mul(unit) > self.span;
            !far && (unit == self.block_bytes || count.unsigned_abs() <= LONGEST_SLIP)
        };
        let likeliest = counts.into_iter().filter(likely).min_by_key(|(count, _)| count.abs());
        // In short sequences a seed cannot be distinguished from a shift, and a short distance is the better
        // explanation in any.
        let short = likeliest
            .is_some_and(|(count, unit)| unit != self.sector_bytes && count.unsigned_abs() <= NEAR);
        if prbs.order() == 31 && !short {
            let mut small = (0..=LARGEST_GUESS).filter(|&guess| guess != prbs.seed());
            if let Some(seed) = small.find(|&guess| prbs.with_seed(guess).place(at) == place) {
                return Some(Origin::Here(Older::Seed(Some(seed))));
            }
        }
        match likeliest {
            Some((0, _)) => None,
            Some((count, unit)) => Some(Origin::Away(count * unit.cast_signed())),
            None => Some(Origin::Here(Older::Seed(None))),
        }
    }

    /// Returns the origin of random bytes: the first words of a page determine both seed and position.
    fn in_pages(&self, seed: u64, part: &[u8], at: u64) -> Option<Origin> {
        let (&[first, second], _) = part.as_chunks::<8>().0.split_first_chunk::<2>()?;
        let (first, second) =
            (unmixed(u64::from_le_bytes(first)), unmixed(u64::from_le_bytes(second)));
        if !at.is_multiple_of(PAGE as u64) || second != first.wrapping_add(STEP) {
            return None;
        }
        let unit = first.wrapping_sub(seed).wrapping_mul(STEP_INVERSE).wrapping_sub(1);
        let by = unit.wrapping_mul(8).wrapping_sub(at).cast_signed();
        if by.unsigned_abs() <= self.span {
            return Some(Origin::Away(by));
        }
        let seed = first.wrapping_sub((at / 8).wrapping_add(1).wrapping_mul(STEP));
        let same = holds(self.pattern.with_seed(seed), part, at);
        same.then_some(Origin::Here(Older::Seed(Some(seed))))
    }

    /// Searches for the bytes near their position, and some blocks away.
    fn nearby(&self, part: &[u8], at: u64) -> Option<i64> {
        let needle = part.first_chunk::<NEEDLE>()?;
        let mut here = vec![0; 2 * AROUND + NEEDLE];
        let begin = at.saturating_sub(AROUND as u64);
        self.pattern.fill(&mut here, begin);
        let distance = |found: usize| (begin + found as u64).wrapping_sub(at).cast_signed();
        let close = here.windows(NEEDLE).enumerate().filter(|(_, bytes)| bytes == needle);
        let close = close.map(|(found, _)| distance(found)).find(|&by| by != 0);
        let block = self.block_bytes.cast_signed();
        let mut away = (1..=BLOCKS_AROUND).flat_map(|n| [n * block, -n * block]);
        close.or_else(|| {
            away.find(|&by| {
                let mut there = [0; NEEDLE];
                at.checked_add_signed(by).is_some_and(|place| {
                    self.pattern.fill(&mut there, place);
                    there == *needle
                })
            })
        })
    }
}

/// The largest seed that is tried: people choose small ones.
const LARGEST_GUESS: u64 = 65_535;

/// The longest shift that is not a multiple of blocks, in bytes or in sectors.
const LONGEST_SLIP: u64 = 1 << 20;

/// The number of bytes or blocks that are missing or repeated more probably than that an earlier run had such a seed.
const NEAR: u64 = 4096;

/// The size of the search key, the distance to either side, and the number of blocks.
const NEEDLE: usize = 32;
const AROUND: usize = 64 << 10;
const BLOCKS_AROUND: i64 = 64;

fn holds(pattern: Pattern, bytes: &[u8], offset: u64) -> bool {
    pattern.first_difference(bytes, offset).is_none()
}

/// Returns the offset at which a counter has these bytes: two consecutive numbers at one of eight alignments.
fn counted(bytes: &[u8]) -> Option<u64> {
    let number = |at: usize| bytes.get(at..)?.first_chunk::<8>().map(|it| u64::from_le_bytes(*it));
    (0..8).find_map(|skip| {
        let (first, second) = (number(skip)?, number(skip + 8)?);
        let follows = first.checked_add(1) == Some(second);
        follows.then(|| first.checked_mul(8)?.checked_sub(skip as u64)).flatten()
    })
}
