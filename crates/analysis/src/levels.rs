//! Levels of short codes, and the fractions that a Gaussian signal has at them.
//!
//! A sampler of 2 bits loses least of a Gaussian signal if its threshold is 0.9816 standard deviations: 16.3 % of the
//! samples are then at each outer level, and 33.7 % at each inner one (Cooper 1970, the levels of most VLBI samplers).
//! Codes of 4 and 8 bits have no single right setting, so the expectation has the measured mean and deviation.

use fullbore_formats::samples::decode::Decoder;
use fullbore_formats::samples::{Code, Encoding};

/// The best threshold of two-bit samplers, in standard deviations.
pub const THRESHOLD: f64 = 0.9816;

/// The value of each code of an encoding of at most 8 bits, from code 0 on; empty of longer codes.
pub fn of_codes(encoding: Encoding) -> Vec<f64> {
    let bits = encoding.code.bits();
    if bits > 8 {
        return Vec::new();
    }
    let decoder: Decoder<f32> = Decoder::new(encoding).expect("floats hold every encoding");
    let mut values = vec![0.0; 8 / bits as usize];
    let value = |code: u16| {
        decoder.decode(&[code as u8], &mut values);
        f64::from(values[0])
    };
    (0..1u16 << bits).map(value).collect()
}

/// The codes of an encoding of at most 8 bits, in the order of their values.
pub fn order(encoding: Encoding) -> Vec<usize> {
    let values = of_codes(encoding);
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    order
}

/// The values of the levels in ascending order.
pub fn values(encoding: Encoding) -> Vec<f64> {
    let values = of_codes(encoding);
    order(encoding).into_iter().map(|code| values[code]).collect()
}

/// The fraction of a Gaussian signal at each level in ascending order. Signals of one and two bits have no mean and the
/// best deviation; others this mean and this deviation.
pub fn expected(encoding: Encoding, mean: f64, deviation: f64) -> Vec<f64> {
    match encoding.code {
        Code::Offset { bits: 1 } => vec![0.5, 0.5],
        Code::Offset { bits: 2 } | Code::SignMagnitude => {
            let outer = above(THRESHOLD);
            vec![outer, 0.5 - outer, 0.5 - outer, outer]
        }
        _ => {
            let values = values(encoding);
            let last = values.len().saturating_sub(1);
            let deviation = deviation.max(f64::MIN_POSITIVE);
            let fraction = |(place, value): (usize, &f64)| {
                let low = if place == 0 { 1.0 } else { above((value - 0.5 - mean) / deviation) };
                let high =
                    if place == last { 0.0 } else { above((value + 0.5 - mean) / deviation) };
                low - high
            };
            values.iter().enumerate().map(fraction).collect()
        }
    }
}

/// The fraction of a normal distribution above this many standard deviations.
fn above(deviations: f64) -> f64 {
    libm::erfc(deviations / std::f64::consts::SQRT_2) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_bit_samples_have_the_known_fractions() {
        let expected = expected("ro2".parse().unwrap(), 0.0, 1.0);
        let known = [0.163, 0.337, 0.337, 0.163];
        assert!(expected.iter().zip(known).all(|(it, known)| (it - known).abs() < 5e-4));
    }

    #[test]
    fn fractions_are_all_of_the_signal() {
        for name in ["ro1", "ro2", "rm2", "ro4", "ro8", "ri8", "ru8"] {
            let encoding: Encoding = name.parse().unwrap();
            for deviation in [0.0, 0.3, 2.0, 500.0] {
                let expected = expected(encoding, 0.7, deviation);
                assert_eq!(expected.len(), values(encoding).len(), "{name}");
                assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{name} {deviation}");
            }
        }
    }

    #[test]
    fn levels_ascend_whatever_their_codes_are() {
        for name in ["ro1", "ro2", "rm2", "ro4", "ro8", "ri8", "ru8"] {
            assert!(values(name.parse().unwrap()).is_sorted(), "{name}");
        }
        assert_eq!(order("rm2".parse().unwrap()), [0, 2, 1, 3]);
        assert_eq!(values("ri8".parse().unwrap())[0], -128.0);
        assert!(values("ri16_le".parse().unwrap()).is_empty());
    }
}
