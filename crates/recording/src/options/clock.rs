//! Limits for warnings about the clock of a stream.

use std::str::FromStr;
use std::time::Duration;

use fullbore_core::clock_check::ClockLimits;

use super::RecordingOptions;

/// The offset of time stamps beyond which there is a warning. `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset(pub Option<Duration>);

/// The drift beyond which there is a warning, in parts per million. `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDrift(pub Option<u32>);

impl FromStr for ClockOffset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
        match time.is_zero() {
            true => {
                Err("no two clocks agree to the nanosecond: give a time such as 100ms, or off"
                    .into())
            }
            false => Ok(Self(Some(time))),
        }
    }
}

impl FromStr for ClockDrift {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            text => match text.parse() {
                Ok(ppm) if ppm > 0 => Ok(Self(Some(ppm))),
                _ => Err("give whole parts in a million such as 100, or off".into()),
            },
        }
    }
}

impl RecordingOptions {
    /// The limits for warnings.
    pub(super) fn clock_limits(&self) -> ClockLimits {
        let ClockLimits { offset, drift_ppm } = ClockLimits::default();
        ClockLimits {
            offset: self.clock_offset.map_or(offset, |given| given.0),
            drift_ppm: self.clock_drift.map_or(drift_ppm, |given| given.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_figures_or_off() {
        assert_eq!("1s".parse::<ClockOffset>().unwrap().0, Some(Duration::from_secs(1)));
        assert_eq!("off".parse::<ClockOffset>().unwrap().0, None);
        assert_eq!("50".parse::<ClockDrift>().unwrap().0, Some(50));
        assert_eq!("off".parse::<ClockDrift>().unwrap().0, None);
        assert!("0s".parse::<ClockOffset>().is_err() && "soon".parse::<ClockOffset>().is_err());
        assert!("0".parse::<ClockDrift>().is_err() && "-3".parse::<ClockDrift>().is_err());
    }

    #[test]
    fn limits_that_are_not_given_are_those_of_the_command_line() {
        let limits = RecordingOptions::default().clock_limits();
        assert_eq!(limits.offset, Some(Duration::from_millis(100)));
        assert_eq!(limits.drift_ppm, Some(100));
    }
}
