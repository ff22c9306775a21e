//! The host of the station as a recorder sees it: its settings, its cards, its clock, and whether it sustains what is
//! recorded.
//!
//! ```text
//! doctor (settings) ──┐
//! disks (health) ─────┼─► Machine ──► /api/v1/machine, /metrics
//! plan (rates) ───────┤
//! cards, clock ───────┘
//! ```

mod cards;
mod clock;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::hint::explained;
use fullbore_linux::clock::Clock;
use fullbore_planning::doctor::{self, Host, Report};
use fullbore_planning::plan::{self, Answer, Plan, answer};
use fullbore_survey::bench::environment::Roots;
use fullbore_survey::bench::result::Environment;
use fullbore_time::Tai;
use serde::Serialize;
use utoipa::ToSchema;

pub use self::cards::Card;
pub use self::clock::ClockState;
use crate::disks::Disks;
use crate::kept::Kept;
use crate::recorder::{Recorders, Recording};
use crate::settings::Current;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(20);

/// How long the first look at the disks is waited for.
const FIRST_LOOK: Duration = Duration::from_secs(3);

/// A recording shorter than this, in seconds, tells no rate.
const LONG_ENOUGH: f64 = 1.0;

/// The host.
#[derive(Debug, Serialize, ToSchema)]
pub struct Machine {
    /// The time of the look.
    #[schema(value_type = String)]
    pub time: Tai,
    /// Program, host, kernel, processors and memory, as in the result of a benchmark.
    #[schema(value_type = Object)]
    pub environment: Environment,
    /// The network interfaces, without the loopback.
    pub cards: Vec<Card>,
    /// The clock.
    pub clock: ClockState,
    /// The settings, as `fullbore doctor --json` prints them.
    #[schema(value_type = Object)]
    pub doctor: Report,
    /// Whether the host sustains what is recorded now, else the inputs, as `fullbore plan --json` prints it.
    #[schema(value_type = Option<Object>)]
    pub plan: Option<Answer>,
    /// The streams that the plan is for, in the notation of `fullbore plan`.
    pub planned: Vec<String>,
    /// Why there is no plan.
    pub no_plan: Option<String>,
}

/// Looks at the host again and again.
pub fn keep(
    members: &[PathBuf],
    disks: Kept<Disks>,
    recorders: Recorders,
    settings: Current,
) -> io::Result<Kept<Machine>> {
    let members = members.to_vec();
    Kept::start("machine", LOOK, move || {
        let roots = Roots::default();
        let planned = match of_recordings(&recorders.all()) {
            streams if streams.is_empty() => of_inputs(&settings),
            streams => streams,
        };
        let (plan, no_plan) = match plan_of(&members, &planned) {
            Ok(answer) => (Some(answer), None),
            Err(why) => (None, Some(why)),
        };
        Machine {
            time: Clock::new().now(),
            environment: roots.environment(),
            cards: cards::of(&roots),
            clock: clock::state(),
            doctor: examined(&members, &disks),
            plan,
            planned,
            no_plan,
        }
    })
}

/// The settings of the host. Drives are asked for their health elsewhere, and less often.
fn examined(members: &[PathBuf], disks: &Kept<Disks>) -> Report {
    let host = Host {
        roots: Roots::default(),
        is_this: true,
        quick: true,
        interfaces: Vec::new(),
        store: members.to_vec(),
    };
    let mut report = doctor::examine(&host);
    if let Some(disks) = disks.first(FIRST_LOOK) {
        report.add(disks.drives.iter().map(|it| it.health.clone()));
    }
    report
}

/// The streams that are recorded now, with their mean rates.
fn of_recordings(recordings: &[Recording]) -> Vec<String> {
    let active = recordings.iter().filter(|it| it.life.is_active());
    let progress = active.filter_map(|it| it.life.progress.as_ref());
    let long = progress.filter(|it| it.seconds >= LONG_ENOUGH);
    long.flat_map(|it| it.streams.iter().map(|stream| (stream.bytes as f64 / it.seconds) as u64))
        .filter(|rate| *rate > 0)
        .map(|rate| format!("{rate}B/s"))
        .collect()
}

/// The inputs of the station, which state their rates or not.
fn of_inputs(settings: &Current) -> Vec<String> {
    settings.get().inputs.values().flatten().cloned().collect()
}

fn plan_of(members: &[PathBuf], streams: &[String]) -> Result<Answer, String> {
    if streams.is_empty() {
        return Err("nothing is recorded, and the station has no inputs".to_owned());
    }
    let (streams, store) = (streams.to_vec(), members.to_vec());
    let request = plan::Request { streams, store, ..plan::Request::default() };
    Plan::read(&request).map(|plan| answer(&plan)).map_err(|error| explained(&error))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::recorder::life::{Input, Life};
    use crate::recorder::report::Report as Line;
    use crate::recorder::report::tests::PROGRESS;
    use crate::recorder::request::StartRequest;

    #[test]
    fn the_streams_of_a_plan_have_the_rates_of_the_recording() {
        let mut life = Life::default();
        life.step(Input::Said(Line::of_line(PROGRESS.as_bytes()).unwrap()));
        let request = StartRequest::default();
        let id = Uuid::now_v7();
        let mut recording = Recording { id, request, found: false, pid: None, life, ended: None };
        assert_eq!(of_recordings(&[recording.clone()]), ["53B/s"]);
        recording.life.step(Input::Gone { code: Some(0), complaint: None });
        assert!(of_recordings(&[recording]).is_empty());
        assert!(plan_of(&[], &[]).unwrap_err().contains("nothing is recorded"));
        let without = plan_of(&[], &["udp://127.0.0.1:1?format=vdif".to_owned()]);
        assert!(without.is_err(), "it states no rate");
    }
}
