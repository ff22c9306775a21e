//! Checks that trigger times increase, as those of valid samples do.
//!
//! `PCAP.TS_TRIG` counts ticks since the acquisition was enabled. It is the only column that shows by itself that
//! samples are in order and undamaged, so it is checked if it is captured.

use super::header::{Header, Kind};

/// The column with the trigger time of a sample.
const COLUMN: &str = "PCAP.TS_TRIG";

/// Follows the times of triggers through an acquisition.
#[derive(Clone, Debug)]
pub struct Triggers {
    /// Offset of the time in a sample.
    at: usize,
    sample_bytes: usize,
    latest: i64,
    falls: Falls,
}

/// Trigger times that are before the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Falls {
    /// The number of them.
    pub count: u64,
    /// Index of the first sample with such a time.
    pub first: u64,
}

impl Triggers {
    /// Returns a checker if the acquisition captures the times.
    pub fn of(header: &Header) -> Option<Self> {
        let field = header.fields.iter().find(|field| field.name == COLUMN)?;
        let (at, sample_bytes) = (field.offset_bytes as usize, header.sample_bytes as usize);
        let is_time = matches!(field.kind, Kind::Int64 | Kind::Double) && at + 8 <= sample_bytes;
        let falls = Falls::default();
        is_time.then_some(Triggers { at, sample_bytes, latest: i64::MIN, falls })
    }

    /// Checks samples, the first of which has this index.
    pub fn look(&mut self, samples: &[u8], index: u64) {
        // Non-negative doubles have the same order as their bits, so both kinds compare in the same way.
        let times = samples.chunks_exact(self.sample_bytes).filter_map(|sample| {
            sample[self.at..].first_chunk().map(|bytes| i64::from_le_bytes(*bytes))
        });
        let mut latest = self.latest;
        for (time, index) in times.zip(index..) {
            if time < latest {
                let first = if self.falls.count == 0 { index } else { self.falls.first };
                self.falls = Falls { count: self.falls.count + 1, first };
            }
            latest = time;
        }
        self.latest = latest;
    }

    /// Returns the findings.
    pub fn falls(&self) -> Falls {
        self.falls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panda::{Field, Process};

    fn header(kind: Kind, offset_bytes: u32) -> Header {
        let field = |name: &str, kind, offset_bytes| Field {
            name: name.to_owned(),
            capture: "Value".to_owned(),
            kind,
            offset_bytes,
            scaling: None,
        };
        Header {
            arm_time: None,
            start_time: None,
            hw_time_offset_ns: None,
            missed: 0,
            process: Process::Raw,
            sample_bytes: 12,
            fields: vec![
                field("PCAP.BITS0", Kind::Uint32, 0),
                field("PCAP.TS_TRIG", kind, offset_bytes),
            ],
        }
    }

    fn samples(times: &[i64]) -> Vec<u8> {
        times.iter().flat_map(|time| [&[0; 4][..], &time.to_le_bytes()].concat()).collect()
    }

    #[test]
    fn times_that_fall_are_counted_over_blocks_and_the_first_is_named() {
        let mut triggers = Triggers::of(&header(Kind::Int64, 4)).unwrap();
        triggers.look(&samples(&[0, 5, 5, 9]), 100);
        assert_eq!(triggers.falls(), Falls::default());
        triggers.look(&samples(&[8, 10]), 104);
        triggers.look(&samples(&[11, 3]), 106);
        assert_eq!(triggers.falls(), Falls { count: 2, first: 104 });
    }

    #[test]
    fn scaled_times_are_followed_too() {
        let bits = |times: &[f64]| -> Vec<i64> {
            times.iter().map(|time| time.to_bits().cast_signed()).collect()
        };
        let mut triggers = Triggers::of(&header(Kind::Double, 4)).unwrap();
        triggers.look(&samples(&bits(&[0.0, 8e-9, 0.5, 2.0, 1e9])), 0);
        assert_eq!(triggers.falls().count, 0);
        triggers.look(&samples(&bits(&[0.25])), 5);
        assert_eq!(triggers.falls(), Falls { count: 1, first: 5 });
    }

    #[test]
    fn what_is_no_time_is_not_followed() {
        assert!(Triggers::of(&header(Kind::Int32, 4)).is_none());
        assert!(Triggers::of(&header(Kind::Int64, 8)).is_none(), "beyond the sample");
    }
}
