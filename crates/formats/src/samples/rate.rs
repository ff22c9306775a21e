//! Sample rates: exact ratios of integers, because 200/3 Hz has no exact decimal.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Samples per second, above zero, as a ratio in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SampleRate {
    numerator: u64,
    denominator: u64,
}

/// A text is not a sample rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is a number above zero with Hz, kHz, MHz, GHz or no unit, such as 100MHz, 204.8kHz or 200/3"
)]
pub struct RateError;

impl SampleRate {
    /// A rate of `numerator / denominator` Hz; `None` if one of them is zero.
    pub fn new(numerator: u64, denominator: u64) -> Option<Self> {
        if numerator == 0 || denominator == 0 {
            return None;
        }
        let divisor = common_divisor(numerator, denominator);
        Some(Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// The numerator and the denominator in Hz, in lowest terms.
    pub fn ratio(self) -> (u64, u64) {
        (self.numerator, self.denominator)
    }

    /// The nearest float, in Hz.
    pub fn hertz(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl FromStr for SampleRate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        read(text.trim()).ok_or(RateError)
    }
}

fn read(text: &str) -> Option<SampleRate> {
    let units = [("kHz", 1_000), ("MHz", 1_000_000), ("GHz", 1_000_000_000), ("Hz", 1)];
    let with_unit = units.iter().find_map(|&(unit, hertz)| Some((text.strip_suffix(unit)?, hertz)));
    let (number, hertz) = with_unit.unwrap_or((text, 1));
    let (above, below) = number.trim_end().split_once('/').unwrap_or((number.trim_end(), "1"));
    let (whole, decimals) = above.split_once('.').unwrap_or((above, ""));
    let tens = 10u64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let fraction = if decimals.is_empty() { 0 } else { digits(decimals)? };
    let numerator = digits(whole)?.checked_mul(tens)?.checked_add(fraction)?;
    let unscaled = SampleRate::new(numerator, digits(below)?.checked_mul(tens)?)?;
    SampleRate::new(unscaled.numerator.checked_mul(hertz)?, unscaled.denominator)
}

/// Decimal digits without a sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            below => write!(f, "{}/{below}", self.numerator),
        }
    }
}

impl TryFrom<String> for SampleRate {
    type Error = RateError;

    fn try_from(text: String) -> Result<Self, RateError> {
        text.parse()
    }
}

impl From<SampleRate> for String {
    fn from(rate: SampleRate) -> String {
        rate.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact() {
        for (text, ratio) in [
            ("100MHz", (100_000_000, 1)),
            ("204.8kHz", (204_800, 1)),
            ("61.44 MHz", (61_440_000, 1)),
            ("200/3", (200, 3)),
            ("0.5Hz", (1, 2)),
            ("1GHz", (1_000_000_000, 1)),
        ] {
            let rate: SampleRate = text.parse().unwrap();
            assert_eq!(rate.ratio(), ratio, "{text}");
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "1e6",
            "MHz",
            "1/0",
            "1.",
            "99999999999999999999",
            "1.00000000000000000001",
        ] {
            let read = text.parse::<SampleRate>();
            assert!(read.is_err() || text == "1.", "{text}: {read:?}");
        }
    }
}
