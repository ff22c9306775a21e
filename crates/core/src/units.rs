//! Sizes and rates in their usual notation: `4MiB`, `20GB`, `2Gbit/s`, `3.1GiB/s`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes. Parses `4096`, `4MiB`, `20 GB`, `1.5TB`; decimal and binary prefixes differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

/// Bytes per second. Parses `2Gbit/s`, `250MB/s`, `3.1GiB/s`; a bare number is bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteRate(pub u64);

/// A rate from user input. It is displayed in the unit of the input: bits or bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedRate {
    /// The rate.
    pub rate: ByteRate,
    /// True if it was given in bits.
    pub in_bits: bool,
}

impl FromStr for RequestedRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unit = text.trim().to_ascii_lowercase();
        Ok(Self { rate: text.parse()?, in_bits: unit.ends_with("bit/s") || unit.ends_with("bps") })
    }
}

/// The reason why a size or rate is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a number, or one below zero or beyond 2^63.
    #[error("`{text}` does not begin with a number that fits")]
    Number {
        /// The given text.
        text: String,
    },
    /// The unit is unknown.
    #[error("`{unit}` is not a unit of {what}; write for example {example}")]
    Unit {
        /// The given unit.
        unit: String,
        /// `size` or `rate`.
        what: &'static str,
        /// A valid text as an example.
        example: &'static str,
    },
}

/// Splits `1.5 GiB` into 1.5 and `GiB`.
fn number_and_unit(text: &str) -> Result<(f64, &str), Error> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let number = trimmed[..end].parse::<f64>().ok().filter(|n| n.is_finite());
    let number = number.ok_or_else(|| Error::Number { text: text.to_owned() })?;
    Ok((number, trimmed[end..].trim()))
}

/// Returns the factor of a prefix: `G` is 10⁹ and `Gi` 2³⁰.
fn prefix(text: &str) -> Option<f64> {
    let power = |base: f64, letter: char| {
        "kmgtp".find(letter.to_ascii_lowercase()).map(|n| base.powi(n as i32 + 1))
    };
    let mut letters = text.chars();
    match (letters.next(), letters.next(), letters.next()) {
        (None, ..) => Some(1.0),
        (Some(letter), None, _) => power(1000.0, letter),
        (Some(letter), Some('i'), None) => power(1024.0, letter),
        _ => None,
    }
}

fn whole(number: f64, text: &str) -> Result<u64, Error> {
    let rounded = number.round();
    if (0.0..9.2e18).contains(&rounded) {
        Ok(rounded as u64)
    } else {
        Err(Error::Number { text: text.to_owned() })
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (number, unit) = number_and_unit(text)?;
        let name = unit.strip_suffix(['B', 'b']).unwrap_or(unit);
        let factor = prefix(name).ok_or_else(|| Error::Unit {
            unit: unit.to_owned(),
            what: "size",
            example: "4MiB or 20GB",
        })?;
        whole(number * factor, text).map(ByteSize)
    }
}

impl FromStr for ByteRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (number, unit) = number_and_unit(text)?;
        let bad =
            || Error::Unit { unit: unit.to_owned(), what: "rate", example: "2Gbit/s or 250MB/s" };
        let per_second = unit.strip_suffix("/s").unwrap_or(unit);
        let (name, bits) = if let Some(name) = per_second.strip_suffix("bps") {
            (name, true)
        } else if let Some(name) = per_second.strip_suffix("bit") {
            (name, true)
        } else {
            (per_second.strip_suffix('B').unwrap_or(per_second), false)
        };
        let factor = prefix(name).ok_or_else(bad)?;
        whole(number * factor / if bits { 8.0 } else { 1.0 }, text).map(ByteRate)
    }
}

/// Writes three significant digits with a decimal prefix.
fn scaled(value: f64, unit: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (factor, prefix) =
        steps.into_iter().find(|(factor, _)| value >= *factor).unwrap_or((1.0, ""));
    let scaled = value / factor;
    let digits = if prefix.is_empty() || scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    f.pad(&format!("{scaled:.digits$} {prefix}{unit}"))
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(self.0 as f64, "B", f)
    }
}

impl fmt::Display for ByteRate {
    /// Writes bits, as in networking: `2.06 Gbit/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(self.0 as f64 * 8.0, "bit/s", f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_read_as_people_write_them() {
        let size = |text: &str| text.parse::<ByteSize>().unwrap().0;
        assert_eq!(size("4096"), 4096);
        assert_eq!(size("4MiB"), 4 << 20);
        assert_eq!(size("20 GB"), 20_000_000_000);
        assert_eq!(size("1.5k"), 1500);
        let rate = |text: &str| text.parse::<ByteRate>().unwrap().0;
        assert_eq!(rate("2Gbit/s"), 250_000_000);
        assert_eq!(rate("250MB/s"), 250_000_000);
        assert_eq!(rate("3.1GiB/s"), 3_328_599_654);
        assert_eq!(rate("16Gbps"), 2_000_000_000);
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        assert!("four".parse::<ByteSize>().is_err());
        assert!("-1GB".parse::<ByteSize>().is_err());
        assert!("1e400GB".parse::<ByteSize>().is_err());
        let error = "3 furlongs".parse::<ByteRate>().unwrap_err().to_string();
        assert!(error.contains("2Gbit/s"), "{error}");
    }

    #[test]
    fn they_print_with_three_digits() {
        assert_eq!(ByteSize(4_112_384).to_string(), "4.11 MB");
        assert_eq!(ByteRate(257_024_000).to_string(), "2.06 Gbit/s");
        assert_eq!(ByteSize(12).to_string(), "12 B");
    }
}
