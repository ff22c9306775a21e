//! A number of a plan with its unit and its origin.

use std::fmt;

use fullbore_survey::report;
use serde::Serialize;

/// Where a number comes from, the most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// `fullbore bench` measured it on this machine.
    Measured,
    /// The kernel or another program reports it.
    Read,
    /// The user gave it: an option, or the description of a machine.
    Given,
    /// It is published for this kind of device.
    Table,
    /// It is a default, and the real value may differ.
    Assumed,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Measured => "measured",
            Self::Read => "read",
            Self::Given => "given",
            Self::Table => "table",
            Self::Assumed => "assumed",
        })
    }
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Bytes per second.
    #[serde(rename = "B/s")]
    Rate,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Cores of a processor, fully used.
    #[serde(rename = "cores")]
    Cores,
    /// CPU seconds per 10⁹ bytes.
    #[serde(rename = "s/GB")]
    CpuPerGb,
    /// A number of things.
    #[serde(rename = "1")]
    Count,
}

/// A number with its unit and its origin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The number, in the unit.
    pub value: f64,
    /// The unit.
    pub unit: Unit,
    /// The kind of origin.
    pub origin: Origin,
    /// The origin in words, as `the benchmark of 2026-11-22T04:00:00Z`.
    pub source: String,
}

impl Figure {
    /// A number with its origin in words.
    pub fn new(value: f64, unit: Unit, origin: Origin, source: impl Into<String>) -> Self {
        Self { value, unit, origin, source: source.into() }
    }

    /// A rate that the user gave.
    pub fn given(value: f64, unit: Unit) -> Self {
        Self::new(value, unit, Origin::Given, "the description")
    }

    /// The same origin and unit with another value, as part of a sum.
    pub fn with(&self, value: f64) -> Self {
        Self { value, ..self.clone() }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.unit.text(self.value))
    }
}

impl Unit {
    /// A number in this unit, with three significant digits.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Rate => report::rate(value),
            Self::Bytes => report::size(value),
            Self::Seconds => report::seconds(value),
            Self::Cores => format!("{value:.2} cores"),
            Self::CpuPerGb => format!("{value:.3} s/GB"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_in_their_unit() {
        let text = |unit: Unit, value| Figure::given(value, unit).to_string();
        assert_eq!(text(Unit::Rate, 2e9), "2.00 GB/s");
        assert_eq!(text(Unit::Bytes, 1e12), "1.00 TB");
        assert_eq!(text(Unit::Seconds, 4999.0), "1 h 23 min");
        assert_eq!(text(Unit::Cores, 0.6), "0.60 cores");
    }
}
