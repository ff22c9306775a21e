//! The clock of the host: whether the kernel calls it synchronised (adjtimex), and what chrony says of it.

use std::process::Command;
use std::time::Duration;

use fullbore_linux::sys::clock;
use fullbore_planning::doctor::health::output_within;
use serde::Serialize;
use utoipa::ToSchema;

/// How long chrony may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The state of the clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClockState {
    /// Whether the kernel calls it synchronised. Null if it does not say.
    pub synchronised: Option<bool>,
    /// The leap-second table in use.
    pub leap_seconds: String,
    /// What chrony says. Null if it does not run here.
    pub chrony: Option<Tracking>,
}

/// The clock as chrony tracks it (`chronyc tracking`).
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Tracking {
    /// The server or the reference clock.
    pub reference: String,
    /// Its stratum.
    pub stratum: u32,
    /// Seconds by which the clock is ahead of true time; negative: behind.
    pub offset_s: f64,
    /// The root mean square of the offsets, in seconds.
    pub rms_offset_s: f64,
    /// The most by which the clock can be wrong, in seconds: half the root delay, and the root dispersion.
    pub largest_error_s: f64,
    /// `Normal`, `Insert second`, `Delete second`, `Not synchronised`.
    pub leap: String,
}

pub(super) fn state() -> ClockState {
    let mut command = Command::new("chronyc");
    // Without addresses that would have to be looked up.
    let told = output_within(command.args(["-n", "-c", "tracking"]), PATIENCE).ok().flatten();
    ClockState {
        synchronised: clock::is_synchronised(),
        leap_seconds: fullbore_time::leap::in_force().to_string(),
        chrony: told.and_then(|text| tracking(&String::from_utf8_lossy(&text))),
    }
}

/// Reads the line of `chronyc -c tracking`, whose fields are those of `chronyc tracking` in their order. The offset there
/// is positive if the clock is slow of true time.
fn tracking(text: &str) -> Option<Tracking> {
    let fields: Vec<&str> = text.lines().next()?.split(',').collect();
    let number = |place: usize| fields.get(place)?.parse::<f64>().ok().filter(|it| it.is_finite());
    Some(Tracking {
        reference: (*fields.get(1)?).chars().take(100).collect(),
        stratum: fields.get(2)?.parse().ok()?,
        offset_s: 0.0 - number(4)?,
        rms_offset_s: number(6)?,
        largest_error_s: number(10)? / 2.0 + number(11)?,
        leap: (*fields.get(13)?).chars().take(100).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_chrony_is_read() {
        let line = "C0A80101,192.168.1.1,2,1764273600.123456789,-0.000012000,0.000010000,0.000025000,-8.513,\
                    -0.001,0.046,0.000400000,0.000100000,64.2,Normal\n";
        let told = tracking(line).unwrap();
        assert_eq!(
            (told.reference.as_str(), told.stratum, told.leap.as_str()),
            ("192.168.1.1", 2, "Normal")
        );
        assert_eq!((told.offset_s, told.rms_offset_s), (0.000012, 0.000025));
        assert!((told.largest_error_s - 0.0003).abs() < 1e-12);
        for wrong in ["", "506 Cannot talk to daemon", "a,b,c,d,e,f,g,h,i,j,k,l,m,n", &line[..60]] {
            assert_eq!(tracking(wrong), None, "{wrong}");
        }
    }
}
