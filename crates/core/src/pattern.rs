//! Payloads whose every byte is known beforehand: for tests, benches and generated streams.
//!
//! A [`Pattern`] is a stream of bytes without end, and [`Pattern::fill`] writes any piece of it: what
//! is at an offset depends on the offset alone, so a block is checked without those before it.
//!
//! The pseudo-random binary sequences are those of ITU-T O.150, begun with all ones, the first bit in
//! the lowest bit of byte 0. A jump to an offset is a power of *x* modulo the sequence's polynomial,
//! and from there on whole words follow from earlier ones (`v[i] = v[i−31] ^ v[i−28]` for PRBS-31:
//! squaring over GF(2) keeps the lags, so they hold for words as they do for bits).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A stream of known bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pattern {
    /// A pseudo-random binary sequence.
    Prbs(Prbs),
    /// 64-bit little-endian numbers, each one more than the last; the first is 0.
    Counter,
    /// Bytes without any order, chosen by a seed.
    Random {
        /// Another seed gives other bytes.
        seed: u64,
    },
    /// Samples of Gaussian noise of two bits each, as VDIF codes them (offset binary, the earliest in
    /// the lowest bits), with thresholds at the best place: 16.4, 33.6, 33.6 and 16.4 %.
    Noise {
        /// Another seed gives other noise.
        seed: u64,
    },
    /// One 32-bit little-endian word, repeated.
    Constant(u32),
}

/// A pseudo-random binary sequence: `b[n] = b[n − long] ^ b[n − short]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prbs {
    long: u32,
    short: u32,
}

impl Prbs {
    /// Repeats after 127 bits.
    pub const PRBS7: Prbs = Prbs { long: 7, short: 6 };
    /// Repeats after 32 767 bits.
    pub const PRBS15: Prbs = Prbs { long: 15, short: 14 };
    /// Repeats after 8 388 607 bits.
    pub const PRBS23: Prbs = Prbs { long: 23, short: 18 };
    /// Repeats after 2 147 483 647 bits.
    pub const PRBS31: Prbs = Prbs { long: 31, short: 28 };
    const ALL: [Prbs; 4] = [Self::PRBS7, Self::PRBS15, Self::PRBS23, Self::PRBS31];
}

/// A text that names no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a pattern; they are prbs7, prbs15, prbs23, prbs31, counter, random, noise \
     (with a seed: noise:7) and words such as 0x11223344"
)]
pub struct Error {
    /// What was given.
    pub text: String,
}

impl Pattern {
    /// Writes the bytes from `offset` on into all of `out`.
    pub fn fill(&self, out: &mut [u8], offset: u64) {
        match *self {
            Pattern::Prbs(prbs) => prbs.fill(out, offset),
            Pattern::Counter => fill_units(out, offset, |unit| unit.to_le_bytes()),
            Pattern::Random { seed } => {
                fill_units(out, offset, |unit| mixed(seed, unit).to_le_bytes());
            }
            Pattern::Noise { seed } => fill_units(out, offset, |unit| noise(seed, unit)),
            Pattern::Constant(word) => fill_units(out, offset, |_| word.to_le_bytes()),
        }
    }

    /// Where `bytes` first differ from the pattern at `offset`, counted from their start.
    pub fn first_difference(&self, bytes: &[u8], offset: u64) -> Option<usize> {
        let mut expected = [0; 16 << 10];
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

/// Fills from units of `N` bytes, the first and last of which may be cut.
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

/// The `n`th number of a seed: SplitMix64, which reaches any place at once.
pub fn mixed(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Upper bits of the two-bit samples of a word.
const UPPER: u64 = 0xAAAA_AAAA_AAAA_AAAA;

/// 64 samples. Each is high in magnitude with a chance of 21/64, which is 0.010101 in binary: an AND for each
/// 0 and an OR for each 1, from the last digit to the first, make 64 such bits of six random words.
fn noise(seed: u64, unit: u64) -> [u8; 16] {
    let word = |n: u64| mixed(seed, unit.wrapping_mul(7).wrapping_add(n));
    let high = (1..7).fold(0, |bits, n| if n % 2 == 1 { bits | word(n) } else { bits & word(n) });
    let signs = word(0);
    // The lowest and highest level have equal bits, the two in the middle unequal ones.
    let samples = |signs: u64, high: u64| {
        let upper = signs & UPPER;
        upper | (!((upper >> 1) ^ high) & !UPPER)
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&samples(signs, high & !UPPER).to_le_bytes());
    bytes[8..].copy_from_slice(&samples(signs << 1, (high >> 1) & !UPPER).to_le_bytes());
    bytes
}

impl Prbs {
    /// How many bits it takes to repeat.
    pub fn period(self) -> u64 {
        (1 << self.long) - 1
    }

    fn fill(self, out: &mut [u8], offset: u64) {
        let (long, short) = (self.long as usize, self.short as usize);
        // Words before the current one, as many as the longer lag reaches back; a ring of 32.
        let mut words = [0u64; 32];
        let mut window = self.window(offset);
        let (places, tail) = out.as_chunks_mut::<8>();
        let count = places.len() + usize::from(!tail.is_empty());
        let mut next = |n: usize| {
            let word = if n < long {
                self.word_of_bits(&mut window)
            } else {
                words[(n - long) % 32] ^ words[(n - short) % 32]
            };
            words[n % 32] = word;
            word.to_le_bytes()
        };
        for (n, place) in places.iter_mut().enumerate() {
            *place = next(n);
        }
        if !tail.is_empty() {
            let length = tail.len();
            tail.copy_from_slice(&next(count - 1)[..length]);
        }
    }

    /// Bits `8 × offset …` of the sequence, as many as the longer lag, the first one lowest.
    fn window(self, offset: u64) -> u64 {
        let bits_per_byte = 3;
        let mut power = (0..64).rev().fold(1, |power, bit| {
            let square = self.times(power, power);
            if offset >> bit & 1 == 1 { self.times_x(square) } else { square }
        });
        for _ in 0..bits_per_byte {
            power = self.times(power, power);
        }
        // x^N = Σ c_i x^i, so bit N + j is Σ c_i × bit i + j; the first bits are ones, then the recurrence.
        let mut first = (1u64 << self.long) - 1;
        let step = self.long - 1;
        let mut bits = u128::from(first);
        let mut known = self.long;
        while known < 2 * self.long {
            first = self.advanced(first, 1);
            bits |= u128::from(first >> step & 1) << known;
            known += 1;
        }
        (0..self.long).fold(0, |window, j| {
            let bit = (bits >> j) as u64 & power;
            window | u64::from(bit.count_ones() & 1) << j
        })
    }

    /// The window moved on by up to as many bits as the shorter lag.
    fn advanced(self, window: u64, bits: u32) -> u64 {
        let new = (window ^ (window >> (self.long - self.short))) & ((1 << bits) - 1);
        (window >> bits) | new << (self.long - bits)
    }

    /// The next 64 bits, and the window moved on behind them.
    fn word_of_bits(self, window: &mut u64) -> u64 {
        let mut word = 0u64;
        let mut have = 0;
        while have < 64 {
            let take = self.short.min(64 - have);
            word |= (*window & ((1 << take) - 1)) << have;
            *window = self.advanced(*window, take);
            have += take;
        }
        word
    }

    /// Multiplies by x modulo the sequence's polynomial, x^long + x^(long − short) + 1.
    fn times_x(self, a: u64) -> u64 {
        let shifted = a << 1;
        if shifted >> self.long & 1 == 0 {
            shifted
        } else {
            shifted ^ (1 << self.long) ^ (1 << (self.long - self.short)) ^ 1
        }
    }

    fn times(self, a: u64, b: u64) -> u64 {
        (0..self.long)
            .rev()
            .fold(0, |product, bit| self.times_x(product) ^ if b >> bit & 1 == 1 { a } else { 0 })
    }
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
        if let Some(prbs) = Prbs::ALL.into_iter().find(|prbs| format!("prbs{}", prbs.long) == name)
        {
            return if seed.is_none() { Ok(Pattern::Prbs(prbs)) } else { Err(bad()) };
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
            Pattern::Prbs(prbs) => write!(f, "prbs{}", prbs.long),
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

    /// The sequence one bit at a time, from a shift register.
    fn serial(prbs: Prbs, bytes: usize) -> Vec<u8> {
        let mut bits = vec![true; prbs.long as usize];
        for n in prbs.long as usize..8 * bytes.max(4) {
            bits.push(bits[n - prbs.long as usize] ^ bits[n - prbs.short as usize]);
        }
        let byte = |bits: &[bool]| (0..8).fold(0, |byte, n| byte | u8::from(bits[n]) << n);
        bits.chunks_exact(8).map(byte).take(bytes).collect()
    }

    #[test]
    fn sequences_by_words_are_those_of_a_shift_register() {
        for prbs in Prbs::ALL {
            let mut words = vec![0; 100_003];
            Pattern::Prbs(prbs).fill(&mut words, 0);
            assert!(words == serial(prbs, words.len()), "{prbs:?}");
        }
    }

    #[test]
    fn sequences_repeat_after_their_period_and_not_before() {
        for prbs in [Prbs::PRBS7, Prbs::PRBS15] {
            let period = prbs.period() as usize;
            let mut bytes = vec![0; period * 2];
            Pattern::Prbs(prbs).fill(&mut bytes, 0);
            // A period is an odd number of bits, so the bytes repeat after as many bytes.
            assert_eq!(bytes[..period], bytes[period..]);
            let ones: u32 = bytes[..period].iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(ones as usize, 8 * period.div_ceil(2));
        }
        let (mut far, mut near) = ([0; 100], [0; 100]);
        let pattern = Pattern::Prbs(Prbs::PRBS31);
        pattern.fill(&mut far, u64::from(u32::MAX >> 1) * 1_000_000 + 77);
        pattern.fill(&mut near, 77);
        assert_eq!(far, near);
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
        for text in ["prbs7", "prbs31", "counter", "random:3", "noise:0", "0x11223344"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        for text in ["", "prbs8", "prbs31:1", "counter:1", "noise:x", "0x1_1", "zeros"] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }

    fn any_pattern() -> impl Strategy<Value = Pattern> {
        prop_oneof![
            prop::sample::select(Prbs::ALL.to_vec()).prop_map(Pattern::Prbs),
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
            far in 0u64..u64::MAX - 10_000,
            skip in 0usize..400,
            length in 0usize..600,
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
