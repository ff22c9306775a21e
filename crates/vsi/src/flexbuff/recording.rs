//! `record`, `status?`, `evlbi` and `tstat`.

use fullbore_time::Tai;

use super::scans::Chosen;
use super::{FlexBuff, Session};
use crate::label;
use crate::line::Statement;
use crate::reply::{Code, Reply};
use crate::station::{Activity, Ended, Phase, Plan, Running, Station, Traffic};
use crate::vex_time;

/// A store with a smaller share of its space free is full, as `status?` tells it.
const FULL_BELOW: f64 = 0.005;

/// Block memory in use from which a recording is said not to keep up.
const CANNOT_KEEP_UP: f64 = 0.9;

/// Bits of `status?`.
mod bit {
    pub(super) const READY: u32 = 1;
    pub(super) const ERROR: u32 = 1 << 1;
    pub(super) const TRANSFER: u32 = (1 << 3) | (1 << 4);
    pub(super) const RECORD: u32 = 1 << 6;
    pub(super) const FULL: u32 = 1 << 7;
    pub(super) const CANNOT_KEEP_UP: u32 = 1 << 10;
    pub(super) const DISK_TO_FILE: u32 = 1 << 12;
}

/// What `tstat?` compares with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    at: Tai,
    bytes: u64,
    number: u64,
}

/// The form of `evlbi?`, as `evlbi=` sets it.
#[derive(Clone, Debug, Default)]
pub(super) struct LossFormat(Option<Vec<String>>);

/// True if the recording of a runtime runs.
pub(super) fn is_running(station: &dyn Station, runtime: &str) -> bool {
    matches!(station.activity(runtime), Activity::Running(_))
}

impl FlexBuff {
    pub(super) fn about_recording(
        &mut self,
        session: &mut Session,
        station: &mut dyn Station,
        statement: &Statement,
    ) -> Reply {
        let what = statement.field(0).to_ascii_lowercase();
        match (statement.keyword.as_str(), statement.is_command()) {
            ("record", true) => match what.as_str() {
                "on" => self.record_on(session, station, statement),
                "off" => self.record_off(session, station),
                "nthread" => self.own(session).setup.set_threads(statement),
                "mk6" => match statement.field(1) {
                    "0" => Reply::done(),
                    _ => Reply::because(
                        Code::NotImplemented,
                        "scans are stored as FlexBuff does, not as Mark6 does",
                    ),
                },
                "check_unique_recording_names" => {
                    self.own(session).checks_names =
                        Some(statement.field(1).chars().take(16).collect());
                    Reply::done()
                }
                _ => Reply::because(Code::Parameter, "on, off, nthread or mk6"),
            },
            ("record", false) => match what.as_str() {
                "nthread" => self.own(session).setup.tell_threads(),
                "mk6" => Reply::done().with("0"),
                "check_unique_recording_names" => {
                    let told = self.own(session).checks_names.clone();
                    Reply::done().with(told.unwrap_or_else(|| "1".to_owned()))
                }
                _ => tell_recording(&station.activity(&session.runtime)),
            },
            ("evlbi", true) => self.own(session).loss_format.set(statement),
            ("evlbi", false) => {
                let told = self.own(session).loss_format.clone();
                told.tell(&traffic(station, &session.runtime), station.now())
            }
            ("tstat", true) => tell_state(station, session, self.own(session).setup.reader()),
            _ => {
                let reader = self.own(session).setup.reader();
                tell_rate(station, session, reader)
            }
        }
    }

    /// `record=on:<scan>[:<experiment>[:<station>]]`.
    fn record_on(
        &mut self,
        session: &Session,
        station: &mut dyn Station,
        statement: &Statement,
    ) -> Reply {
        let fields = (statement.field(1), statement.field(2), statement.field(3));
        let asked = match label::of_fields(fields.0, fields.1, fields.2) {
            Ok(asked) => asked,
            Err(error @ label::LabelError::Empty) => {
                return Reply::because(Code::Conflict, &error.to_string());
            }
            Err(error) => return Reply::because(Code::Parameter, &error.to_string()),
        };
        match station.activity(&session.runtime) {
            Activity::Running(running)
                if running.asked == asked && running.phase != Phase::Stopping =>
            {
                return used(&asked, &running.scan);
            }
            // The next scan begins when what the last one holds is written.
            Activity::Running(Running { phase: Phase::Stopping, .. }) => {}
            Activity::Running(_) => {
                return Reply::because(Code::Conflict, "Already doing vbsrecord");
            }
            Activity::Idle { last: Some(last) } if last.has_failed_now(&asked, station.now()) => {
                // The first command began it, and it has failed. A repetition does not begin it again.
                return Reply::because(Code::Failed, &last.problem.unwrap_or_default());
            }
            Activity::Idle { .. } => {}
        }
        let setup = &self.own(session).setup;
        let (sources, chunk_bytes) = match setup.sources() {
            Ok(sources) => (sources, setup.chunk_bytes()),
            Err(reply) => return reply,
        };
        let elsewhere = self.running_scans(station);
        let is_taken = |name: &str| {
            elsewhere.iter().any(|it| it == name)
                || station.scans().iter().any(|it| it.name == name)
        };
        let Some(scan) = label::free(&asked, is_taken) else {
            return Reply::because(Code::Failed, "the name and all its variants are taken");
        };
        let plan = Plan {
            asked: asked.clone(),
            scan: scan.clone(),
            sources,
            chunk_bytes,
            starts: None,
            seconds: None,
        };
        match station.start(&session.runtime, plan) {
            Ok(()) => used(&asked, &scan),
            Err(why) => Reply::because(Code::Failed, &why),
        }
    }

    /// The scans that runtimes record, or have just recorded and that may not be listed yet.
    fn running_scans(&self, station: &dyn Station) -> Vec<String> {
        let scan = |runtime: &String| match station.activity(runtime) {
            Activity::Running(running) => Some(running.scan),
            Activity::Idle { last } => last.filter(|it| it.problem.is_none()).map(|it| it.scan),
        };
        self.runtimes.keys().filter_map(scan).collect()
    }

    fn record_off(&mut self, session: &Session, station: &mut dyn Station) -> Reply {
        match station.activity(&session.runtime) {
            Activity::Running(Running { phase, scan, .. }) => {
                if phase != Phase::Stopping {
                    station.stop(&session.runtime);
                    self.own(session).chosen = Some(Chosen::whole(scan));
                }
                Reply::new(Code::Started)
            }
            Activity::Idle { last: Some(last) } if last.was_stopped_now(station.now()) => {
                Reply::done()
            }
            Activity::Idle { last: Some(Ended { problem: Some(why), was_stopped: false, .. }) } => {
                Reply::because(Code::Failed, &why)
            }
            Activity::Idle { .. } => Reply::because(Code::Conflict, "Not doing record"),
        }
    }

    /// `status?`.
    pub(super) fn status(&self, runtime: &str, station: &dyn Station) -> Reply {
        let mut bits = bit::READY;
        if let Activity::Running(Running { traffic, .. }) = station.activity(runtime) {
            bits |= bit::TRANSFER | bit::RECORD;
            if traffic.overrun > 0 || traffic.fill >= CANNOT_KEEP_UP {
                bits |= bit::CANNOT_KEEP_UP;
            }
        }
        if station.copying(runtime).is_some_and(|it| it.is_active) {
            bits |= bit::TRANSFER | bit::DISK_TO_FILE;
        }
        let space = station.space();
        if space.total_bytes > 0
            && (space.free_bytes as f64) < space.total_bytes as f64 * FULL_BELOW
        {
            bits |= bit::FULL;
        }
        match self.errors.oldest() {
            None => Reply::done().with(format!("{bits:#010x}")),
            Some((text, at)) => {
                let bits = format!("{:#010x}", bits | bit::ERROR);
                Reply::done().with(bits).with("-1").with(text).with(vex_time::to_text(at))
            }
        }
    }
}

/// The answer to `record=on`: the name is told only if it differs, because m5copy takes any field for *exists*.
fn used(asked: &str, scan: &str) -> Reply {
    match asked == scan {
        true => Reply::done(),
        false => Reply::done().with(scan),
    }
}

fn tell_recording(activity: &Activity) -> Reply {
    match activity {
        Activity::Idle { .. } => Reply::done().with("off"),
        Activity::Running(Running { scan, number, traffic, .. }) => {
            let bytes = traffic.bytes.to_string();
            Reply::done().with("on").with(number.to_string()).with(scan.clone()).with(bytes)
        }
    }
}

fn traffic(station: &dyn Station, runtime: &str) -> Traffic {
    match station.activity(runtime) {
        Activity::Running(running) => running.traffic,
        Activity::Idle { .. } => Traffic::default(),
    }
}

/// `tstat?`: the rate since the last question of this connection.
fn tell_rate(station: &dyn Station, session: &mut Session, reader: &str) -> Reply {
    let Activity::Running(Running { traffic, number, .. }) = station.activity(&session.runtime)
    else {
        session.rate = None;
        return Reply::done().with("0.0").with("no_transfer");
    };
    let now = Rate { at: station.now(), bytes: traffic.bytes, number };
    let before = session.rate.replace(now).filter(|it| it.number == number);
    let Some(before) = before else {
        return Reply::new(Code::Started).with("Retry - we're initialized now").with("vbsrecord");
    };
    let seconds = now.at.since(before.at) as f64 / 1e9;
    let megabits = match seconds > 0.0 {
        true => now.bytes.saturating_sub(before.bytes) as f64 * 8.0 / seconds / 1e6,
        false => traffic.rate as f64 * 8.0 / 1e6,
    };
    let flow =
        [format!("{seconds:.2}s"), "vbsrecord".into(), format!("{reader} {megabits:.2}Mbps")];
    Reply::done().with_all(flow).with(format!("F {:.1}%", traffic.fill * 100.0))
}

/// `tstat=`: the counters themselves.
fn tell_state(station: &dyn Station, session: &Session, reader: &str) -> Reply {
    let Activity::Running(Running { traffic, .. }) = station.activity(&session.runtime) else {
        return Reply::done().with("0.0").with("no_transfer");
    };
    let now = format!("{:.2}", station.now().unix_ns() as f64 / 1e9);
    let counters = [now, "vbsrecord".into(), reader.to_owned(), traffic.bytes.to_string()];
    Reply::done().with_all(counters).with("FIFOLength").with("0")
}

impl LossFormat {
    fn set(&mut self, statement: &Statement) -> Reply {
        let is_known = |field: &String| {
            let mut rest = field.split('%').skip(1);
            field.len() <= 40 && rest.all(|it| it.starts_with(['t', 'l', 'o', 'd', 'u']))
        };
        match statement.fields.iter().all(is_known) && statement.fields.len() <= 16 {
            true => {
                self.0 = Some(statement.fields.clone()).filter(|it| !it.is_empty());
                Reply::done()
            }
            false => Reply::because(Code::Parameter, "the letters are %t, %l, %o, %d and %u"),
        }
    }

    fn tell(&self, traffic: &Traffic, now: Tai) -> Reply {
        let total = traffic.frames + traffic.lost;
        let Some(fields) = &self.0 else {
            let share = traffic.lost as f64 * 100.0 / total.max(1) as f64;
            let loss = format!("{} ( {share:.2}%)", traffic.lost);
            // What is out of order within a window is put in place, and is known when the scan is sealed.
            let told =
                ["total", &total.to_string(), "loss", &loss, "out-of-order", "?", "extent", "?"];
            return Reply::done().with_all(told);
        };
        let now = now.unix_ns() / 1_000_000_000;
        let filled = |field: &String| {
            field
                .replace("%t", &total.to_string())
                .replace("%l", &traffic.lost.to_string())
                .replace("%o", "?")
                .replace("%d", &traffic.foreign.to_string())
                .replace("%u", &now.to_string())
        };
        Reply::done().with_all(fields.iter().map(filled))
    }
}
