//! The pseudo-random binary sequences of ITU-T O.150: any piece of them, and the position of a given piece.
//!
//! Bit *n* of a sequence that begins with all ones is the parity of *x*ⁿ modulo the sequence's polynomial. So a jump to
//! any position is a power. The inverse (the position of given bits) is a discrete logarithm, which is cheap in these
//! small fields: [`Prbs::place_of`].

use std::sync::OnceLock;

use super::lags::Lags;
use super::mixed;

/// A pseudo-random binary sequence, `b[n] = b[n − long] ^ b[n − short]`, not inverted; and its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prbs {
    long: u32,
    short: u32,
    seed: u64,
}

/// Bytes at the start of a piece that are made bit by bit; the rest follows from them.
const HEAD: usize = 32;

impl Prbs {
    /// Repeats after 127 bits.
    pub const PRBS7: Prbs = Prbs { long: 7, short: 6, seed: 0 };
    /// Repeats after 32 767 bits.
    pub const PRBS15: Prbs = Prbs { long: 15, short: 14, seed: 0 };
    /// Repeats after 8 388 607 bits.
    pub const PRBS23: Prbs = Prbs { long: 23, short: 18, seed: 0 };
    /// Repeats after 2 147 483 647 bits.
    pub const PRBS31: Prbs = Prbs { long: 31, short: 28, seed: 0 };
    /// All of them, begun with all ones, as published.
    pub const ALL: [Prbs; 4] = [Self::PRBS7, Self::PRBS15, Self::PRBS23, Self::PRBS31];

    /// Returns the period in bits. It is the same in bytes, because it is odd.
    pub fn period(self) -> u64 {
        (1 << self.long) - 1
    }

    /// Length of the register: 7, 15, 23 or 31.
    pub fn order(self) -> u32 {
        self.long
    }

    /// Returns the same sequence with another start; 0 begins with all ones, as published.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Returns the seed, which determines the start.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// Returns the first bit as a position in the sequence. Starts of different seeds are far apart.
    fn beginning(self) -> u64 {
        if self.seed == 0 { 0 } else { mixed(self.seed, 0) % self.period() }
    }

    /// Returns the position in the sequence of the first bit at an offset.
    pub(super) fn place(self, offset: u64) -> u64 {
        (self.beginning() + 8 * (offset % self.period())) % self.period()
    }

    /// Writes the bytes from `offset` on into all of `out`.
    pub(super) fn fill(self, out: &mut [u8], offset: u64) {
        let head = self.head(self.place(offset));
        let given = self.lags().long.min(out.len());
        out[..given].copy_from_slice(&head[..given]);
        self.lags().extend(out);
    }

    /// Returns the first difference from the bytes at `offset`. Only a few bytes are compared with generated ones. The
    /// others must follow from the bytes before them, so the first that does not is the first wrong one.
    pub(super) fn first_difference(self, bytes: &[u8], offset: u64) -> Option<usize> {
        self.first_difference_at(self.place(offset), bytes)
    }

    /// Returns the same, from a position in the sequence on.
    pub(super) fn first_difference_at(self, place: u64, bytes: &[u8]) -> Option<usize> {
        let head = self.head(place);
        let given = self.lags().long.min(bytes.len());
        let wrong = bytes[..given].iter().zip(&head).position(|(is, should)| is != should);
        wrong.or_else(|| self.lags().first_break(bytes))
    }

    /// Returns the recurrence for bytes: that for bits with its lags doubled three times.
    fn lags(self) -> Lags {
        Lags { long: self.long as usize, short: self.short as usize }
    }

    /// Returns the bytes at a position in the sequence, the first bit in the lowest bit of byte 0.
    fn head(self, place: u64) -> [u8; HEAD] {
        let mut window = self.window(place);
        let mut head = [0; HEAD];
        for word in head.as_chunks_mut::<8>().0 {
            *word = self.word(&mut window).to_le_bytes();
        }
        head
    }

    /// Returns as many bits as the register has, from a position in the sequence on, the first one lowest.
    fn window(self, place: u64) -> u64 {
        let mut power = self.power(place);
        (0..self.long).fold(0, |window, bit| {
            let parity = u64::from(power.count_ones() & 1);
            power = self.times_x(power);
            window | parity << bit
        })
    }

    /// Returns the window advanced by up to as many bits as the shorter lag.
    fn advanced(self, window: u64, bits: u32) -> u64 {
        let new = (window ^ (window >> (self.long - self.short))) & ((1 << bits) - 1);
        (window >> bits) | new << (self.long - bits)
    }

    /// Returns the next 64 bits, and advances the window past them.
    fn word(self, window: &mut u64) -> u64 {
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
}

/// Polynomials over GF(2) modulo that of the sequence, x^long + x^(long − short) + 1; bit i is the
/// coefficient of xⁱ.
impl Prbs {
    fn power(self, exponent: u64) -> u64 {
        (0..u64::BITS - exponent.leading_zeros()).rev().fold(1, |power, bit| {
            let square = self.times(power, power);
            if exponent >> bit & 1 == 1 { self.times_x(square) } else { square }
        })
    }

    fn times_x(self, a: u64) -> u64 {
        self.reduced(a << 1)
    }

    fn times(self, a: u64, b: u64) -> u64 {
        let term = |bit: u32| (a << bit) & (b >> bit & 1).wrapping_neg();
        self.reduced((0..self.long).fold(0, |sum, bit| sum ^ term(bit)))
    }

    /// Reduces the bits above the register's length: x^long = x^(long − short) + 1.
    fn reduced(self, mut a: u64) -> u64 {
        loop {
            let above = a >> self.long;
            if above == 0 {
                return a;
            }
            a = (a & ((1 << self.long) - 1)) ^ above ^ (above << (self.long - self.short));
        }
    }
}

/// The search for bits in the sequence.
impl Prbs {
    /// Returns the position of these bytes in the sequence; `None` for zeros, which do not occur in it, and for too few
    /// bytes.
    pub(super) fn place_of(self, bytes: &[u8]) -> Option<u64> {
        let first = bytes.first_chunk::<4>()?;
        let mut window = u64::from(u32::from_le_bytes(*first)) & ((1 << self.long) - 1);
        if window == 0 {
            return None;
        }
        // The sequence has landmarks at regular distances: walk to the next.
        let landmarks = self.landmarks();
        for walked in 0..=self.stride() {
            if let Ok(at) = landmarks.binary_search_by_key(&window, |&(window, _)| window.into()) {
                let place = u64::from(landmarks[at].1) * self.stride();
                return Some((place + self.period() - walked) % self.period());
            }
            window = self.advanced(window, 1);
        }
        None
    }

    fn stride(self) -> u64 {
        self.period().isqrt() + 1
    }

    /// Returns the windows at each stride, and their numbers, sorted by window: 46 341 at the most.
    fn landmarks(self) -> &'static [(u32, u32)] {
        static KNOWN: [OnceLock<Vec<(u32, u32)>>; 4] = [const { OnceLock::new() }; 4];
        let which =
            Self::ALL.iter().position(|prbs| prbs.long == self.long).expect("there are no others");
        KNOWN[which].get_or_init(|| {
            let of = |n| (self.window(n * self.stride() % self.period()) as u32, n as u32);
            let mut landmarks: Vec<_> = (0..=self.stride()).map(of).collect();
            landmarks.sort_unstable();
            landmarks
        })
    }

    /// Returns the number of bytes from `from` to `to` in the sequence, by the shorter direction.
    pub(super) fn bytes_between(self, from: u64, to: u64) -> i64 {
        let period = self.period();
        let bits = (to + period - from) % period;
        // Eight is 2³, and 2^long is 1 here.
        self.signed(self.modular(bits, 1 << (self.long - 3)))
    }

    /// Returns the number of smallest magnitude that, times `unit`, equals `bytes` modulo the period.
    pub(super) fn in_units(self, bytes: i64, unit: u64) -> i64 {
        let period = self.period();
        let inverse = inverse(unit % period, period).unwrap_or(0);
        self.signed(self.modular(bytes.rem_euclid(period as i64).unsigned_abs(), inverse))
    }

    fn modular(self, a: u64, b: u64) -> u64 {
        (u128::from(a) * u128::from(b) % u128::from(self.period())) as u64
    }

    fn signed(self, a: u64) -> i64 {
        let (a, period) = (a.cast_signed(), self.period().cast_signed());
        if a > period / 2 { a - period } else { a }
    }
}

/// Returns the inverse of `a` modulo `modulus`, if there is one.
fn inverse(a: u64, modulus: u64) -> Option<u64> {
    let modulus = i128::from(modulus);
    let (mut old, mut rest) = (i128::from(a), modulus);
    let (mut old_factor, mut factor) = (1i128, 0i128);
    while rest != 0 {
        let times = old / rest;
        (old, rest) = (rest, old - times * rest);
        (old_factor, factor) = (factor, old_factor - times * factor);
    }
    (old == 1).then(|| old_factor.rem_euclid(modulus) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The sequence one bit at a time, from a shift register: the definition.
    fn serial(prbs: Prbs, bytes: usize) -> Vec<u8> {
        let mut bits = vec![true; prbs.long as usize];
        for n in prbs.long as usize..8 * bytes.max(4) {
            bits.push(bits[n - prbs.long as usize] ^ bits[n - prbs.short as usize]);
        }
        let byte = |bits: &[bool]| (0..8).fold(0, |byte, n| byte | u8::from(bits[n]) << n);
        bits.chunks_exact(8).map(byte).take(bytes).collect()
    }

    #[test]
    fn vectors_make_what_a_shift_register_makes() {
        for prbs in Prbs::ALL {
            let mut fast = vec![0; 300_003];
            prbs.fill(&mut fast, 0);
            assert!(fast == serial(prbs, fast.len()), "{prbs:?}");
        }
    }

    /// The published period of x⁷ + x⁶ + 1 as bytes with the first bit highest, as instruments print it.
    #[test]
    fn prbs7_is_the_published_one() {
        let published = [
            0xFE, 0x04, 0x18, 0x51, 0xE4, 0x59, 0xD4, 0xFA, 0x1C, 0x49, 0xB5, 0xBD, 0x8D, 0x2E,
            0xE6, 0x55,
        ];
        let mut bytes = [0; 16];
        Prbs::PRBS7.fill(&mut bytes, 0);
        assert_eq!(bytes.map(u8::reverse_bits), published);
    }

    /// ITU-T O.150 gives the period and the longest run of one bit value for each sequence. The recommendation counts
    /// zeros of an inverted signal; here they are ones.
    #[test]
    fn each_has_the_period_and_the_longest_run_of_the_recommendation() {
        for (prbs, order) in [(Prbs::PRBS7, 7), (Prbs::PRBS15, 15), (Prbs::PRBS23, 23)] {
            let period = prbs.period() as usize;
            assert_eq!(period, (1 << order) - 1);
            let mut bytes = vec![0; period + 8];
            prbs.fill(&mut bytes, 0);
            let bit = |n: usize| bytes[n / 8] >> (n % 8) & 1;
            // A period and a run more, starting within the first run, which is of ones.
            let (mut ones, mut longest, mut run) = (0, [0, 0], [0, 0]);
            for n in order..period + order {
                let value = usize::from(bit(n));
                ones += value;
                run = if value == 1 { [0, run[1] + 1] } else { [run[0] + 1, 0] };
                longest = [longest[0].max(run[0]), longest[1].max(run[1])];
            }
            assert_eq!(longest, [order - 1, order], "{prbs:?}");
            assert_eq!(ones, period.div_ceil(2));
            assert_eq!(bytes[period..], bytes[..8], "{prbs:?} repeats after its period");
        }
    }

    /// A jump that is too long to be walked in a test agrees with the period.
    #[test]
    fn prbs31_repeats_after_its_period() {
        let (mut far, mut near) = ([0; 5000], [0; 5000]);
        let prbs = Prbs::PRBS31.with_seed(3);
        prbs.fill(&mut far, prbs.period() * 1_000_000 + 77);
        prbs.fill(&mut near, 77);
        assert_eq!(far, near);
    }

    #[test]
    fn the_polynomials_are_primitive() {
        // x to the power of the period is 1, and to no proper divisor of it.
        for (prbs, factors) in [
            (Prbs::PRBS7, vec![127]),
            (Prbs::PRBS15, vec![7, 31, 151]),
            (Prbs::PRBS23, vec![47, 178_481]),
            (Prbs::PRBS31, vec![2_147_483_647]),
        ] {
            assert_eq!(factors.iter().product::<u64>(), prbs.period());
            assert_eq!(prbs.power(prbs.period()), 1);
            for factor in factors {
                assert_ne!(prbs.power(prbs.period() / factor), 1, "{prbs:?} / {factor}");
            }
        }
    }

    fn any_prbs() -> impl Strategy<Value = Prbs> {
        let sequence = prop::sample::select(Prbs::ALL.to_vec());
        (sequence, any::<u64>()).prop_map(|(sequence, seed)| sequence.with_seed(seed))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn bits_are_found_again(prbs in any_prbs(), place in any::<u64>()) {
            let place = place % prbs.period();
            prop_assert_eq!(prbs.place_of(&prbs.head(place)), Some(place));
        }

        #[test]
        fn a_way_round_is_the_same_in_any_unit(
            prbs in any_prbs(),
            from in 1u64 << 24..1 << 40,
            blocks in -60i64..=60,
        ) {
            let unit = 128 << 10;
            let to = from.wrapping_add_signed(blocks * unit as i64);
            let bytes = prbs.bytes_between(prbs.place(from), prbs.place(to));
            prop_assert_eq!(prbs.in_units(bytes, unit), blocks);
        }

        #[test]
        fn the_first_wrong_byte_is_found(
            prbs in any_prbs(),
            offset in any::<u64>(),
            length in 1usize..20_000,
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let mut bytes = vec![0; length];
            prbs.fill(&mut bytes, offset);
            prop_assert_eq!(prbs.first_difference(&bytes, offset), None);
            let at = at.index(length);
            bytes[at] ^= flip;
            prop_assert_eq!(prbs.first_difference(&bytes, offset), Some(at));
        }
    }
}
