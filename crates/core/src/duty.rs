//! The duty cycle of a session: scans of one length with pauses between them, as `40s/20s`.
//!
//! ```text
//! rate ▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔        ▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔
//!      scan, 40 s        pause  scan             pause     the ring drains in the pause
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::units::ByteRate;

const NS_PER_S: u128 = 1_000_000_000;

/// The longest scan and the longest pause.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// A scan and the pause that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duty {
    record_ns: u64,
    pause_ns: u64,
}

/// A text that is no duty cycle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text} is not a duty cycle: write the length of a scan and of the pause behind it, up to 7 days each, \
     for example 40s/20s"
)]
pub struct NoDuty {
    text: String,
}

impl Duty {
    /// Returns a cycle of scans of this length, each followed by this pause; no scan is shorter than a microsecond.
    pub fn new(record: Duration, pause: Duration) -> Option<Self> {
        let fits = record >= Duration::from_micros(1) && record <= LONGEST && pause <= LONGEST;
        let ns = |time: Duration| time.as_nanos() as u64;
        fits.then(|| Self { record_ns: ns(record), pause_ns: ns(pause) })
    }

    /// Returns the length of a scan.
    pub fn record(&self) -> Duration {
        Duration::from_nanos(self.record_ns)
    }

    /// Returns the length of a pause.
    pub fn pause(&self) -> Duration {
        Duration::from_nanos(self.pause_ns)
    }

    /// Returns the length of a scan and its pause.
    pub fn cycle(&self) -> Duration {
        Duration::from_nanos(self.cycle_ns())
    }

    /// Returns the length of the cycle in nanoseconds.
    pub fn cycle_ns(&self) -> u64 {
        self.record_ns + self.pause_ns
    }

    /// Returns the number of whole cycles, each a scan and its pause, in a time from the start of the first scan on.
    pub fn whole_cycles(&self, time: Duration) -> u64 {
        let cycles = time.as_nanos() / u128::from(self.cycle_ns());
        u64::try_from(cycles).unwrap_or(u64::MAX)
    }

    /// Returns the fraction of the time in which data arrive.
    pub fn share(&self) -> f64 {
        self.record_ns as f64 / self.cycle_ns() as f64
    }

    /// True if data arrive at this time after the start of the first scan.
    pub fn is_recording(&self, at_ns: u64) -> bool {
        at_ns % self.cycle_ns() < self.record_ns
    }

    /// Returns the total recording time up to a time after the start of the first scan.
    pub fn recorded_ns(&self, at_ns: u64) -> u64 {
        let cycle_ns = self.cycle_ns();
        at_ns / cycle_ns * self.record_ns + (at_ns % cycle_ns).min(self.record_ns)
    }

    /// Returns the bytes that wait for the disk at the end of a scan, if data arrive at `rate` and the disk writes at
    /// `disk` without a stall.
    pub fn backlog(&self, rate: ByteRate, disk: ByteRate) -> u64 {
        let waiting = u128::from(rate.0.saturating_sub(disk.0)) * u128::from(self.record_ns);
        u64::try_from(waiting.div_ceil(NS_PER_S)).unwrap_or(u64::MAX)
    }

    /// True if the disk writes the backlog of a scan in the pause behind it.
    pub fn drains(&self, rate: ByteRate, disk: ByteRate) -> bool {
        let came = u128::from(rate.0) * u128::from(self.record_ns);
        came <= u128::from(disk.0) * u128::from(self.cycle_ns())
    }

    /// Returns the first time at which the total recording time reaches this value.
    pub fn time_of_ns(&self, recorded_ns: u64) -> u64 {
        let (whole, rest) = (recorded_ns / self.record_ns, recorded_ns % self.record_ns);
        match rest {
            0 => (whole * self.cycle_ns()).saturating_sub(self.pause_ns),
            rest => whole * self.cycle_ns() + rest,
        }
    }
}

impl FromStr for Duty {
    type Err = NoDuty;

    fn from_str(text: &str) -> Result<Self, NoDuty> {
        let wrong = || NoDuty { text: text.to_owned() };
        let (record, pause) = text.split_once('/').ok_or_else(wrong)?;
        let length = |text: &str| match text.trim().parse::<u32>() {
            Ok(seconds) => Some(Duration::from_secs(seconds.into())),
            Err(_) => humantime::parse_duration(text.trim()).ok(),
        };
        let (record, pause) = (length(record), length(pause));
        record.zip(pause).and_then(|(record, pause)| Self::new(record, pause)).ok_or_else(wrong)
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ns: u64| ns as f64 / 1e9;
        write!(f, "{} s / {} s", seconds(self.record_ns), seconds(self.pause_ns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duty_cycle_is_a_scan_and_a_pause() {
        let duty: Duty = "40s/20s".parse().unwrap();
        assert_eq!((duty.record().as_secs(), duty.pause().as_secs()), (40, 20));
        assert_eq!(duty.to_string(), "40 s / 20 s");
        assert_eq!("40/20".parse(), Ok(duty));
        assert_eq!("1500ms/0s".parse::<Duty>().unwrap().to_string(), "1.5 s / 0 s");
        for text in ["", "40s", "0s/20s", "40s/x", "40s/20s/1s", "1y/1s"] {
            assert!(text.parse::<Duty>().is_err(), "{text}");
        }
    }

    #[test]
    fn cycle_is_whole_when_its_pause_is_over() {
        let duty: Duty = "40s/20s".parse().unwrap();
        let cycles = |seconds: f64| duty.whole_cycles(Duration::from_secs_f64(seconds));
        assert_eq!([0.0, 39.0, 40.0, 59.999].map(cycles), [0; 4]);
        assert_eq!([60.0, 119.0, 120.0, 180.0].map(cycles), [1, 1, 2, 3]);
    }

    proptest! {
        #[test]
        fn data_come_only_in_scans(record in 1_000u64..1 << 40, pause in 0u64..1 << 40, at in 0u64..1 << 45) {
            let duty = Duty { record_ns: record, pause_ns: pause };
            let came = duty.recorded_ns(at);
            prop_assert!(came <= at);
            prop_assert_eq!(duty.recorded_ns(at + 1) - came, u64::from(duty.is_recording(at)));
            let first = duty.time_of_ns(came);
            prop_assert!(first <= at && duty.recorded_ns(first) == came);
        }

        #[test]
        fn without_a_pause_data_come_always(record in 1_000u64..1 << 40, at in 0u64..1 << 45) {
            let duty = Duty { record_ns: record, pause_ns: 0 };
            prop_assert_eq!((duty.recorded_ns(at), duty.time_of_ns(at)), (at, at));
        }
    }
}
