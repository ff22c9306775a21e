//! Payloads with known bytes: for tests, benchmarks and generated streams.
//!
//! A [`Pattern`] is an endless stream of bytes, and [`Pattern::fill`] writes any piece of it. The bytes at an offset
//! depend on the offset alone, so a block is checked without the blocks before it.
//!
//! The pseudo-random binary sequences ([`Prbs`]) are those of ITU-T O.150. They begin with all ones; the first bit is
//! the lowest bit of byte 0. These sequences, the counter and random bytes are made and checked about as fast as one
//! core copies memory (`make bench-pattern` measures it).
//!
//! [`Checker`] diagnoses wrong bytes: a bit, a block of an earlier recording, one from another position, an incomplete
//! write. [`Report`] collects the results of any number of blocks.

mod check;
mod diagnosis;
mod lags;
mod prbs;
mod source;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use check::{Checker, Mismatch, MismatchRun, Report};
pub use diagnosis::{Diagnosis, Older};
pub use prbs::Prbs;
pub use source::PatternSource;

use lags::Lags;

/// A stream of known bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pattern {
    /// A pseudo-random binary sequence.
    Prbs(Prbs),
    /// 64-bit little-endian numbers in steps of one; the first is 0.
    Counter,
    /// Random bytes, chosen by a seed.
    Random {
        /// The seed; each gives other bytes.
        seed: u64,
    },
    /// Samples of Gaussian noise of two bits each, in VDIF's coding (offset binary, the earliest in the lowest bits),
    /// with optimal thresholds: 16.4, 33.6, 33.6 and 16.4 %.
    Noise {
        /// The seed; each gives other noise.
        seed: u64,
    },
    /// One 32-bit little-endian word, repeated.
    Constant(u32),
}

/// The error for a text that is not the name of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a pattern; they are prbs7, prbs15, prbs23, prbs31, random, noise (these with \
     or without a seed: prbs31:7), counter, and words such as 0x11223344"
)]
pub struct Error {
    /// The given text.
    pub text: String,
}

impl Pattern {
    /// Writes the bytes from `offset` on into all of `out`.
    pub fn fill(&self, out: &mut [u8], offset: u64) {
        match *self {
            Pattern::Prbs(prbs) => prbs.fill(out, offset),
            Pattern::Counter => fill_units(out, offset, |unit| unit.to_le_bytes()),
            Pattern::Random { seed } => fill_random(seed, out, offset),
            Pattern::Noise { seed } => fill_units(out, offset, |unit| noise(seed, unit)),
            Pattern::Constant(word) => fill_units(out, offset, |_| word.to_le_bytes()),
        }
    }

    /// Returns its seed, if this kind has one.
    pub fn seed(&self) -> Option<u64> {
        match *self {
            Pattern::Prbs(prbs) => Some(prbs.seed()),
            Pattern::Random { seed } | Pattern::Noise { seed } => Some(seed),
            Pattern::Counter | Pattern::Constant(_) => None,
        }
    }

    /// Returns the same kind of pattern with another seed; itself, if its kind has none.
    pub fn with_seed(self, seed: u64) -> Pattern {
        match self {
            Pattern::Prbs(prbs) => Pattern::Prbs(prbs.with_seed(seed)),
            Pattern::Random { .. } => Pattern::Random { seed },
            Pattern::Noise { .. } => Pattern::Noise { seed },
            Pattern::Counter | Pattern::Constant(_) => self,
        }
    }

    /// Returns the first difference between `bytes` and the pattern at `offset`, counted from their start.
    pub fn first_difference(&self, bytes: &[u8], offset: u64) -> Option<usize> {
        if let Pattern::Prbs(prbs) = self {
            return prbs.first_difference(bytes, offset);
        }
        let mut expected = [0; PIECE];
        for (n, piece) in bytes.chunks(expected.len()).enumerate() {
            let start = n * expected.len();
            let expected = &mut expected[..piece.len()];
            self.fill(expected, offset.wrapping_add(start as u64));
            if expected != piece {
                return piece.iter().zip(expected).position(|(a, b)| a != b).map(|at| start + at);
            }
        }
        None
    }
}

/// Bytes that are made at once for a comparison: they stay in the first-level cache.
const PIECE: usize = 16 << 10;

/// The page size of random bytes; each page can be made independently.
const PAGE: usize = 4096;

/// A page begins with random words; the rest follows by the recurrence of PRBS-31.
const RANDOM: Lags = Lags { long: 31 * 16, short: 28 * 16 };

/// Fills pages of random bytes; the first and the last may be cut.
fn fill_random(seed: u64, out: &mut [u8], offset: u64) {
    let skip = (offset % PAGE as u64) as usize;
    let (cut, rest) = out.split_at_mut(out.len().min((PAGE - skip) % PAGE));
    let first = offset - skip as u64;
    if !cut.is_empty() {
        let mut page = [0; PAGE];
        fill_page(seed, &mut page[..skip + cut.len()], first);
        cut.copy_from_slice(&page[skip..skip + cut.len()]);
    }
    let next = if skip == 0 { first } else { first.wrapping_add(PAGE as u64) };
    for (n, page) in rest.chunks_mut(PAGE).enumerate() {
        fill_page(seed, page, next.wrapping_add((n * PAGE) as u64));
    }
}

/// Fills a page, or its start.
fn fill_page(seed: u64, page: &mut [u8], offset: u64) {
    let given = RANDOM.long.min(page.len());
    fill_units(&mut page[..given], offset, |unit| mixed(seed, unit).to_le_bytes());
    RANDOM.extend(page);
}

/// Fills units of `N` bytes; the first and the last may be cut.
fn fill_units<const N: usize>(out: &mut [u8], offset: u64, unit: impl Fn(u64) -> [u8; N]) {
    let mut number = offset / N as u64;
    let skip = (offset % N as u64) as usize;
    let (head, rest) = out.split_at_mut(out.len().min((N - skip) % N));
    if !head.is_empty() {
        head.copy_from_slice(&unit(number)[skip..skip + head.len()]);
        number = number.wrapping_add(1);
    }
    let (whole, tail) = rest.as_chunks_mut::<N>();
    for place in whole {
        *place = unit(number);
        number = number.wrapping_add(1);
    }
    let length = tail.len();
    tail.copy_from_slice(&unit(number)[..length]);
}

/// Returns the `n`th number of a seed: SplitMix64, which reaches any position at once.
pub fn mixed(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(STEP));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the input that was mixed to give `z`: `seed + (n + 1) × STEP`.
fn unmixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42B2_D24D_8EC3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96DE_1B17_3F11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

/// The distance between the mixed numbers; odd, so that all 2⁶⁴ differ.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The inverse of the step.
const STEP_INVERSE: u64 = 0xF1DE_83E1_9937_733D;

/// Upper bits of the two-bit samples of a word.
const UPPER: u64 = 0xAAAA_AAAA_AAAA_AAAA;

/// Returns 64 samples. Each has a high magnitude with a probability of 21/64, which is 0.010101 in binary. An AND for
/// each 0 and an OR for each 1, from the last digit to the first, make 64 such bits of six random words.
fn noise(seed: u64, unit: u64) -> [u8; 16] {
    let word = |n: u64| mixed(seed, unit.wrapping_mul(7).wrapping_add(n));
    let high = (1..7).fold(0, |bits, n| if n % 2 == 1 { bits | word(n) } else { bits & word(n) });
    let signs = word(0);
    // The lowest and the highest level have equal bits, the two in the middle unequal ones.
    let samples = |signs: u64, high: u64| {
        let upper = signs & UPPER;
        upper | (!((upper >> 1) ^ high) & !UPPER)
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&samples(signs, high & !UPPER).to_le_bytes());
    bytes[8..].copy_from_slice(&samples(signs << 1, (high >> 1) & !UPPER).to_le_bytes());
    bytes
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error { text: text.chars().take(64).collect() };
        let lower = text.trim().to_ascii_lowercase();
        let (name, seed) = match lower.split_once(':') {
            Some((name, seed)) => (name, Some(seed.parse::<u64>().map_err(|_| bad())?)),
            None => (lower.as_str(), None),
        };
        let order = name.strip_prefix("prbs");
        let named = |prbs: &Prbs| order.is_some_and(|order| order == prbs.order().to_string());
        if let Some(prbs) = Prbs::ALL.into_iter().find(named) {
            return Ok(Pattern::Prbs(prbs.with_seed(seed.unwrap_or(0))));
        }
        match (name, seed) {
            ("counter", None) => Ok(Pattern::Counter),
            ("random", seed) => Ok(Pattern::Random { seed: seed.unwrap_or(0) }),
            ("noise", seed) => Ok(Pattern::Noise { seed: seed.unwrap_or(0) }),
            (word, None) => word
                .strip_prefix("0x")
                .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                .map(Pattern::Constant)
                .ok_or_else(bad),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Prbs(prbs) if prbs.seed() == 0 => write!(f, "prbs{}", prbs.order()),
            Pattern::Prbs(prbs) => write!(f, "prbs{}:{}", prbs.order(), prbs.seed()),
            Pattern::Counter => f.write_str("counter"),
            Pattern::Random { seed } => write!(f, "random:{seed}"),
            Pattern::Noise { seed } => write!(f, "noise:{seed}"),
            Pattern::Constant(word) => write!(f, "{word:#010x}"),
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn random_bytes_have_no_order_that_shows() {
        let mut bytes = vec![0u8; 1 << 20];
        Pattern::Random { seed: 4 }.fill(&mut bytes, 0);
        let mut counts = [0u32; 256];
        bytes.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        // Chi-squared of 255 degrees: 255 ± 22.6; six of these and the test would fail once in 10⁹ seeds.
        let expected = (1 << 20) as f64 / 256.0;
        let off = |&count: &u32| (f64::from(count) - expected).powi(2) / expected;
        let chi: f64 = counts.iter().map(off).sum();
        assert!((120.0..390.0).contains(&chi), "{chi}");
        let mut words: Vec<&[u8]> = bytes.chunks_exact(8).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), bytes.len() / 8, "a word comes twice");
    }

    #[test]
    fn what_was_mixed_is_found_again() {
        for (seed, n) in [(0, 0), (7, 1), (u64::MAX, 12_345), (1 << 63, u64::MAX - 1)] {
            let number = seed.wrapping_add((n + 1u64).wrapping_mul(STEP));
            assert_eq!(unmixed(mixed(seed, n)), number);
            assert_eq!(number.wrapping_sub(seed).wrapping_mul(STEP_INVERSE), n + 1);
        }
    }

    #[test]
    fn noise_has_the_levels_of_two_bits() {
        let mut bytes = vec![0u8; 1 << 18];
        Pattern::Noise { seed: 1 }.fill(&mut bytes, 0);
        let mut levels = [0u32; 4];
        for byte in &bytes {
            for sample in 0..4 {
                levels[usize::from(byte >> (2 * sample) & 3)] += 1;
            }
        }
        let share = levels.map(|count| f64::from(count) / (4 << 18) as f64);
        for (share, expected) in share.into_iter().zip([0.164, 0.336, 0.336, 0.164]) {
            assert!((share - expected).abs() < 0.003, "{share} for {expected}");
        }
    }

    #[test]
    fn patterns_read_and_print_alike() {
        for text in ["prbs7", "prbs31", "prbs23:9", "counter", "random:3", "noise:0", "0x11223344"]
        {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        for text in ["", "prbs8", "prbs31:x", "prbs031", "counter:1", "noise:x", "0x1_1", "zeros"] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }

    fn any_pattern() -> impl Strategy<Value = Pattern> {
        prop_oneof![
            (prop::sample::select(Prbs::ALL.to_vec()), any::<u64>())
                .prop_map(|(prbs, seed)| Pattern::Prbs(prbs.with_seed(seed))),
            Just(Pattern::Counter),
            any::<u64>().prop_map(|seed| Pattern::Random { seed }),
            any::<u64>().prop_map(|seed| Pattern::Noise { seed }),
            any::<u32>().prop_map(Pattern::Constant),
        ]
    }

    proptest! {
        #[test]
        fn what_is_at_an_offset_depends_on_the_offset_alone(
            pattern in any_pattern(),
            far in 0u64..u64::MAX - 20_000,
            skip in 0usize..6000,
            length in 0usize..9000,
        ) {
            let mut whole = vec![0; skip + length];
            pattern.fill(&mut whole, far);
            let mut piece = vec![0; length];
            pattern.fill(&mut piece, far + skip as u64);
            prop_assert_eq!(&piece, &whole[skip..]);
            prop_assert_eq!(pattern.first_difference(&piece, far + skip as u64), None);
            if let Some(byte) = piece.last_mut() {
                *byte ^= 1;
                prop_assert_eq!(pattern.first_difference(&piece, far + skip as u64), Some(length - 1));
            }
        }
    }
}
