//! `--clock-offset`, `--clock-drift`: limits for warnings about the clock of a stream.

use std::str::FromStr;
use std::time::Duration;

use clap::Args as ClapArgs;
use fullbore_core::clock_check::ClockLimits;

/// The limits, as they are typed.
#[derive(ClapArgs, Clone, Debug)]
pub struct ClockArgs {
    /// Warn if the time stamps of a stream differ from the host's clock by more than this on arrival; `off`: never. The
    /// account always has the difference.
    #[arg(long, value_name = "TIME|off", default_value = "100ms")]
    clock_offset: Offset,
    /// Warn if the rate of a stream differs from the nominal rate by more than this many parts per million of the host's
    /// clock; `off`: never.
    #[arg(long, value_name = "PPM|off", default_value = "100")]
    clock_drift: Drift,
}

impl ClockArgs {
    /// The limits from the arguments.
    pub fn limits(&self) -> ClockLimits {
        ClockLimits { offset: self.clock_offset.0, drift_ppm: self.clock_drift.0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Offset(Option<Duration>);

impl FromStr for Offset {
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

#[derive(Clone, Copy, Debug)]
struct Drift(Option<u32>);

impl FromStr for Drift {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_figures_or_off() {
        assert_eq!("1s".parse::<Offset>().unwrap().0, Some(Duration::from_secs(1)));
        assert_eq!("off".parse::<Offset>().unwrap().0, None);
        assert_eq!("50".parse::<Drift>().unwrap().0, Some(50));
        assert_eq!("off".parse::<Drift>().unwrap().0, None);
        assert!("0s".parse::<Offset>().is_err() && "soon".parse::<Offset>().is_err());
        assert!("0".parse::<Drift>().is_err() && "-3".parse::<Drift>().is_err());
    }
}
