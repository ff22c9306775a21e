//! `--clock-offset`, `--clock-drift`: beyond what the time in a stream's frames is warned about.

use std::str::FromStr;
use std::time::Duration;

use clap::Args as ClapArgs;
use fullbore_core::wall::Limits;

/// The limits, as they are typed.
#[derive(ClapArgs, Clone, Debug)]
pub struct ClockLimits {
    /// Warn of streams whose time stamps lie further than this from the host's clock when they are there; `off`: of
    /// none. The figure is in the account, whatever it is.
    #[arg(long, value_name = "TIME|off", default_value = "100ms")]
    clock_offset: Offset,
    /// Warn of streams whose rate differs by more parts in a million than this from the nominal one, by the host's
    /// clock; `off`: of none.
    #[arg(long, value_name = "PPM|off", default_value = "100")]
    clock_drift: Drift,
}

impl ClockLimits {
    /// What was meant.
    pub fn limits(&self) -> Limits {
        Limits { offset: self.clock_offset.0, drift_ppm: self.clock_drift.0 }
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
