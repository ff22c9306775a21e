//! Published rates of instruments, with their direction. A description can override and add to them.
//!
//! The raw rate is sample rate × channels × bytes per sample. Some modules stream less than that, so a plan takes the
//! smaller of the two. The rates are those of *Architecting High-Speed Data Streaming Systems* (National Instruments,
//! 2009).

use serde::{Deserialize, Serialize};

/// The direction of samples, seen from the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the instrument: a recording.
    #[default]
    In,
    /// To the instrument: a replay.
    Out,
}

/// An instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Instrument {
    /// Its name.
    pub name: String,
    /// Its direction in this use.
    pub direction: Direction,
    /// Sample rate × channels × bytes, in bytes per second.
    pub raw: f64,
    /// The rate that it can stream, in bytes per second, if that is stated.
    pub limit: Option<f64>,
    /// The sum behind the raw rate.
    pub sum: String,
}

/// Name, direction, raw rate and stated limit in MB/s, and the sum.
const TABLE: &[(&str, Direction, f64, f64, &str)] = &[
    ("PXIe-5122", Direction::In, 400.0, 400.0, "100 MS/s × 2 channels × 2 bytes"),
    ("PXIe-5622", Direction::In, 300.0, 300.0, "150 MS/s × 2 bytes"),
    ("PXIe-5663", Direction::In, 250.0, 250.0, "62.5 MS/s × 4 bytes"),
    ("PXIe-5673", Direction::Out, 500.0, 500.0, "125 MS/s × 4 bytes"),
    ("PXIe-5442", Direction::Out, 200.0, 200.0, "100 MS/s × 2 bytes"),
    ("PXIe-5450", Direction::Out, 1600.0, 600.0, "400 MS/s × 2 channels × 2 bytes"),
    ("PXIe-5450/1", Direction::Out, 800.0, 360.0, "400 MS/s × 2 bytes, one channel"),
    ("PXIe-6545", Direction::In, 800.0, 660.0, "200 MS/s × 4 bytes"),
    ("PXIe-6544", Direction::In, 400.0, 660.0, "100 MS/s × 4 bytes"),
    ("PXIe-8234", Direction::In, 250.0, 250.0, "2 ports of gigabit Ethernet"),
];

/// The instruments of the table.
pub fn table() -> Vec<Instrument> {
    let row = |(name, direction, raw, limit, sum): &(&str, Direction, f64, f64, &str)| Instrument {
        name: (*name).to_owned(),
        direction: *direction,
        raw: raw * 1e6,
        limit: Some(limit * 1e6),
        sum: (*sum).to_owned(),
    };
    TABLE.iter().map(row).collect()
}

impl Instrument {
    /// The smaller of both rates, and which one it is.
    pub fn rate(&self) -> (f64, String) {
        match self.limit.filter(|limit| *limit < self.raw) {
            Some(limit) => (
                limit,
                format!("{}: its streaming limit, below its raw rate ({})", self.name, self.sum),
            ),
            None => (self.raw, format!("{}: {}", self.name, self.sum)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_raw_rate_and_streaming_limit_counts() {
        let of = |name: &str| table().into_iter().find(|it| it.name == name).unwrap().rate();
        assert_eq!(of("PXIe-5122").0, 400e6);
        let (rate, why) = of("PXIe-5450");
        assert_eq!(rate, 600e6);
        assert!(why.contains("streaming limit"), "{why}");
        assert_eq!(of("PXIe-6544").0, 400e6, "the raw rate is below the limit");
    }
}
