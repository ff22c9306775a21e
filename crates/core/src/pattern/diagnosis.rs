//! What wrong bytes are: from where else in the pattern, or by whom written before.
//!
//! What is wrong in a block is looked at by sectors, since that is how disks err. The sectors from the
//! first wrong byte to the last are compared with zeros, with the pattern under older seeds, and with
//! the pattern elsewhere; only what fits all of them is believed.

use std::fmt;

use serde::Serialize;

use super::{Checker, PAGE, Pattern, Prbs, STEP, STEP_INVERSE, unmixed};

/// What bytes are that should be others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Diagnosis {
    /// Single bits or bytes were changed; the rest is as it should be.
    Damage,
    /// Nothing that belongs to the pattern.
    Foreign,
    /// Zeros: never written, or lost and read as empty.
    Zeros,
    /// The pattern, but from elsewhere, and not by whole blocks.
    Shift {
        /// How many bytes further on it belongs; further back, if negative.
        by: i64,
    },
    /// A block that was here before is here again.
    Repeated {
        /// How many bytes further back it belongs.
        back: u64,
    },
    /// Blocks have been left out, so that later ones are here.
    Missing {
        /// How many bytes further on the data belongs.
        bytes: u64,
    },
    /// What an earlier run wrote in this very place.
    Stale {
        /// With which seed; `None`, if it is none that is known or small.
        seed: Option<u64>,
    },
    /// The write ended before the end of the block.
    Torn {
        /// Bytes of the block that are as they should be.
        good_bytes: u64,
        /// What follows them.
        older: Older,
    },
}

/// What lies behind the end of a write that was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Older {
    /// Nothing was ever written there.
    Zeros,
    /// What an earlier run wrote there, with its seed if that is known.
    Seed(Option<u64>),
    /// Something else.
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

/// Where bytes are from.
enum Origin {
    Nowhere,
    /// From here, but with another seed.
    Here(Older),
    /// From so many bytes further on, with the right seed.
    Away(i64),
}

/// A block with wrong bytes in it.
pub(super) struct Wrong<'a> {
    /// All of its bytes.
    pub(super) bytes: &'a [u8],
    /// Where it lies.
    pub(super) offset: u64,
    /// Its first and last wrong byte.
    pub(super) ends: (usize, usize),
    /// How many are wrong.
    pub(super) count: u64,
}

impl Checker {
    /// Says what the wrong bytes of a block are.
    pub(super) fn diagnose(&self, wrong: &Wrong<'_>) -> Diagnosis {
        let (from, to) = self.wrong_sectors(wrong);
        let (part, at) = (&wrong.bytes[from..to], wrong.offset.wrapping_add(from as u64));
        // Even a counter that is shifted differs in a byte of eight.
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

    /// From the beginning of the first wrong sector to the end of the last.
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

    /// Whether the bytes are those of another place. In a sequence that repeats, so does the place.
    fn holds_away(&self, part: &[u8], at: u64, by: i64) -> bool {
        let Some(place) = at.checked_add_signed(by) else {
            return matches!(self.pattern, Pattern::Prbs(_));
        };
        by != 0 && holds(self.pattern, part, place)
    }

    /// Where in a pseudo-random sequence the bytes are, and what that means.
    fn in_sequence(&self, prbs: Prbs, part: &[u8], at: u64) -> Option<Origin> {
        let place = prbs.place_of(part)?;
        if prbs.first_difference_at(place, part).is_some() {
            return None;
        }
        // Among short sequences a seed cannot be told from a shift.
        if prbs.order() == 31 {
            let mut small = (0..=LARGEST_GUESS).filter(|&guess| guess != prbs.seed());
            if let Some(seed) = small.find(|&guess| prbs.with_seed(guess).place(at) == place) {
                return Some(Origin::Here(Older::Seed(Some(seed))));
            }
        }
        let bytes = prbs.bytes_between(prbs.place(at), place);
        // The way round can be told in any unit; the one that needs the fewest is the likeliest.
        let units = [1, self.sector_bytes, self.block_bytes];
        let counts = units.map(|unit| (prbs.in_units(bytes, unit), unit));
        // By sectors any place of the sequence would lie within a large disk, so far ones are not believed.
        let likely = |&(count, unit): &(i64, u64)| {
            let far = count.unsigned_abs().saturating_mul(unit) > self.span;
            !far && (unit == self.block_bytes || count.unsigned_abs() <= LONGEST_SLIP)
        };
        let likeliest = counts.into_iter().filter(likely).min_by_key(|(count, _)| count.abs());
        match likeliest {
            Some((0, _)) => None,
            Some((count, unit)) => Some(Origin::Away(count * unit.cast_signed())),
            None => Some(Origin::Here(Older::Seed(None))),
        }
    }

    /// Where random bytes are from: a page begins with words from which both seed and place can be had.
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

    /// Looks for the bytes around the place where they were found, and some blocks away.
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

/// Seeds that people choose are no larger.
const LARGEST_GUESS: u64 = 65_535;

/// A shift that is not by blocks is no longer, in bytes or in sectors.
const LONGEST_SLIP: u64 = 1 << 20;

/// What is looked for, how far to either side, and how many blocks away.
const NEEDLE: usize = 32;
const AROUND: usize = 64 << 10;
const BLOCKS_AROUND: i64 = 64;

fn holds(pattern: Pattern, bytes: &[u8], offset: u64) -> bool {
    pattern.first_difference(bytes, offset).is_none()
}

/// The offset at which a counter has these bytes: two numbers follow one another at one of eight places.
fn counted(bytes: &[u8]) -> Option<u64> {
    let number = |at: usize| bytes.get(at..)?.first_chunk::<8>().map(|it| u64::from_le_bytes(*it));
    (0..8).find_map(|skip| {
        let (first, second) = (number(skip)?, number(skip + 8)?);
        let follows = first.checked_add(1) == Some(second);
        follows.then(|| first.checked_mul(8)?.checked_sub(skip as u64)).flatten()
    })
}
