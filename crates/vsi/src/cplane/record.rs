//! `record`.

use fullbore_time::Tai;

use super::{Cplane, RUNTIME, done, group_name, is_running, message, refused, refused_by};
use crate::label;
use crate::line::Statement;
use crate::reply::{Code, Reply};
use crate::station::{Activity, Phase, Plan, Running, Station};
use crate::vex_time;

/// The longest name of a scan, and of an experiment and a station.
const LONGEST: [usize; 3] = [32, 8, 8];

/// The longest recording in seconds.
const LONGEST_SECONDS: u64 = 86_400 * 7;

const SECOND_NS: i64 = 1_000_000_000;

impl Cplane {
    /// `record=<on|off|start>:<duration>:<GB>:<scan>:<experiment>:<station>`.
    pub(super) fn record(&mut self, station: &mut dyn Station, statement: &Statement) -> Reply {
        match statement.field(0).to_ascii_lowercase().as_str() {
            "off" => off(station),
            "on" => {
                let begins = station.now();
                self.begin(station, statement, begins, true)
            }
            _ => match vex_time::parse(statement.field(0)) {
                Some(begins) => self.begin(station, statement, begins, false),
                None => wrong("on, off, or a start such as 2026y325d19h51m48s"),
            },
        }
    }

    fn begin(
        &mut self,
        station: &mut dyn Station,
        statement: &Statement,
        begins: Tai,
        at_once: bool,
    ) -> Reply {
        let Asked { name, seconds, gigabytes } = match Asked::read(statement) {
            Ok(asked) => asked,
            Err(why) => return wrong(&why),
        };
        let ends = begins.plus_ns(seconds as i64 * SECOND_NS);
        match station.activity(RUNTIME) {
            // The answer was lost, and the command came again.
            Activity::Running(Running { asked, phase, .. })
                if asked == name
                    && phase != Phase::Stopping
                    && (at_once || self.planned.is_none_or(|planned| planned.1 == ends)) =>
            {
                return done();
            }
            Activity::Idle { last: Some(last) } if last.has_failed_now(&name, station.now()) => {
                let why = last.problem.unwrap_or_default();
                return refused(Code::Failed, message::START, &why);
            }
            Activity::Running(Running { phase: Phase::Stopping, .. }) | Activity::Idle { .. } => {}
            Activity::Running(_) => return refused_by(Code::Conflict, message::RUNS),
        }
        let left = match at_once {
            true => Some((begins, seconds)),
            false => remaining(station.now(), begins, ends),
        };
        let Some((begins, seconds)) = left else {
            return refused_by(Code::Failed, message::PAST);
        };
        if gigabytes * 1e9 > station.space().free_bytes as f64 {
            return refused_by(Code::Failed, message::SPACE);
        }
        let sources = match self.streams.sources() {
            Ok(sources) => sources,
            Err(reply) => return reply,
        };
        // One that is being written, or was just recorded, may not be listed yet.
        let newest = match station.activity(RUNTIME) {
            Activity::Running(running) => Some(running.scan),
            Activity::Idle { last } => last.map(|it| it.scan),
        };
        let is_taken = |name: &str| {
            newest.as_deref() == Some(name) || station.scans().iter().any(|it| it.name == name)
        };
        let Some(scan) = label::free(&name, is_taken) else {
            return refused_by(Code::Failed, message::TAKEN);
        };
        let starts = Some(begins).filter(|_| !at_once);
        let plan =
            Plan { asked: name, scan, sources, chunk_bytes: None, starts, seconds: Some(seconds) };
        match station.start(RUNTIME, plan) {
            Ok(()) => {
                self.planned = Some((begins, ends));
                done()
            }
            Err(why) => refused(Code::Failed, message::START, &why),
        }
    }

    /// `record?`: `<off|pending|recording|flushing> : <group> : <number> : <scan>`.
    pub(super) fn tell_recording(&self, station: &dyn Station) -> Reply {
        let group = group_name(station);
        let Activity::Running(Running { scan, number, phase, .. }) = station.activity(RUNTIME)
        else {
            let count = station.scans().len().to_string();
            let last = station.scans().last().map(|it| it.name.clone());
            return done().with("off").with(group).with(count).with(last.unwrap_or_default());
        };
        let is_pending = self.planned.is_some_and(|(begins, _)| station.now() < begins);
        let state = match phase {
            Phase::Stopping => "flushing",
            Phase::Starting => "pending",
            Phase::On if is_pending => "pending",
            Phase::On => "recording",
        };
        done().with(state).with(group).with(number.to_string()).with(scan)
    }
}

/// What a command asks for.
struct Asked {
    name: String,
    seconds: u64,
    gigabytes: f64,
}

impl Asked {
    fn read(statement: &Statement) -> Result<Self, String> {
        let seconds = statement.field(1).parse::<u64>().ok();
        let seconds = seconds.filter(|it| (1..=LONGEST_SECONDS).contains(it));
        let seconds = seconds.ok_or("the duration is a whole number of seconds, up to a week")?;
        let gigabytes = statement.field(2).parse::<f64>().ok();
        let gigabytes = gigabytes.filter(|it| it.is_finite() && *it >= 0.0);
        let gigabytes = gigabytes.ok_or("the expected size is a number of GB")?;
        let names = [3, 4, 5].map(|field| statement.field(field));
        let kinds = ["scan", "experiment", "station"];
        for ((name, most), kind) in names.iter().zip(LONGEST).zip(kinds) {
            if name.is_empty() || name.len() > most {
                return Err(format!("the {kind} has 1 to {most} characters"));
            }
        }
        let [scan, experiment, station] = names;
        let name =
            label::of_fields(scan, experiment, station).map_err(|error| error.to_string())?;
        Ok(Self { name, seconds, gigabytes })
    }
}

/// The start and the seconds that are left: all of them, or from the next whole second if the start is past. `None` if less
/// than a second is left.
fn remaining(now: Tai, begins: Tai, ends: Tai) -> Option<(Tai, u64)> {
    let begins = match begins >= now {
        true => begins,
        false => {
            let past = now.since(begins);
            begins.plus_ns((past + SECOND_NS - 1) / SECOND_NS * SECOND_NS)
        }
    };
    let seconds = u64::try_from(ends.since(begins) / SECOND_NS).ok()?;
    (seconds > 0).then_some((begins, seconds))
}

fn off(station: &mut dyn Station) -> Reply {
    match is_running(station) {
        true => {
            station.stop(RUNTIME);
            done()
        }
        false => match station.activity(RUNTIME) {
            // It has ended, and the command came again.
            Activity::Idle { last: Some(last) } if last.was_stopped_now(station.now()) => done(),
            _ => refused_by(Code::Conflict, message::IDLE),
        },
    }
}

fn wrong(why: &str) -> Reply {
    refused(Code::Parameter, message::PARAMETER, why)
}
