//! Watches, while waiting for or recording a scan, for requests to read the schedule again, and for steps of the host's
//! clock.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::hint::explained;
use fullbore_core::name::Name;
use fullbore_core::schedule::agenda::{Agenda, Changes, Run};
use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_time::Tai;

use super::events::SessionEvent;
use super::schedule_file::{doubts, read};
use crate::options::RecordingOptions;

/// The smallest step of the host's clock that is reported.
const JUMP_NS: i64 = 500_000_000;

/// The state of the watch.
pub struct Watch {
    /// The schedule.
    pub file: PathBuf,
    pub agenda: Agenda,
    pub control: Arc<StopHandle>,
    /// Set to read the schedule again.
    pub again: Arc<AtomicBool>,
    pub clock: HostClock,
}

impl Watch {
    /// The events since the last call.
    pub fn look(&mut self, options: &RecordingOptions, session: &Name) -> Vec<SessionEvent> {
        let mut news = Vec::new();
        if let Some(seconds) = self.clock.jumped() {
            news.push(SessionEvent::warning(after_jump(&self.agenda, seconds, Clock::new().now())));
        }
        if self.again.swap(false, Ordering::SeqCst) {
            news.extend(self.read_again(options, session));
        }
        news
    }

    /// Reads the schedule again, and replaces the remaining scans.
    fn read_again(&mut self, options: &RecordingOptions, session: &Name) -> Vec<SessionEvent> {
        let schedule = match read(&self.file, options.station.as_deref()) {
            Ok(schedule) => schedule,
            Err(error) => {
                return vec![SessionEvent::warning(format!(
                    "the schedule stays as it was: {}",
                    explained(&error)
                ))];
            }
        };
        let doubts = doubts(&schedule, options, session);
        let mut news: Vec<SessionEvent> = doubts.into_iter().map(SessionEvent::warning).collect();
        let Changes { added, removed, too_late } = self.agenda.replace(schedule);
        let scans = self.agenda.ahead().len();
        news.push(SessionEvent::Schedule { scans, added, removed, too_late });
        news.extend(self.make_room().map(SessionEvent::warning));
        news
    }

    /// Shortens the running scan if a changed one begins before its end.
    fn make_room(&self) -> Option<String> {
        let Run { scan, until, before } = self.agenda.run()?;
        let Some(next) = before else {
            self.control.end_by(None);
            return None;
        };
        let left = until.since(Clock::new().now()).max(0).unsigned_abs();
        self.control.end_by(Instant::now().checked_add(Duration::from_nanos(left)));
        Some(format!(
            "scan {}, which was to last until {:.1}, ends at {until:.1}, so that scan {} begins in time at {:.1}",
            scan.name, scan.end, next.name, next.start
        ))
    }

    /// Records that the armed scan is over.
    pub fn over(&mut self) {
        self.agenda.over();
        self.control.end_by(None);
    }
}

/// The effect of a step of the host's clock: a scan that has not begun starts by the new time, and a running one keeps
/// its duration.
fn after_jump(agenda: &Agenda, seconds: f64, now: Tai) -> String {
    let jumped = format!("the host's clock jumped by {seconds:+.1} s");
    let Some(Run { scan, .. }) = agenda.run() else { return jumped };
    let before = now.plus_ns(-((seconds * 1e9) as i64));
    if before >= scan.start {
        return format!(
            "{jumped}: scan {}, which is being recorded, keeps its planned length",
            scan.name
        );
    }
    let left = scan.start.since(now) as f64 / 1e9;
    match now {
        now if now >= scan.end => {
            format!("{jumped}: scan {}, which was armed, is over by it", scan.name)
        }
        now if now >= scan.start => {
            format!("{jumped}: scan {}, which was armed, begins now", scan.name)
        }
        _ => format!("{jumped}: scan {}, which is armed, begins in {left:.1} s", scan.name),
    }
}

/// The host's clock, compared with a monotonic one.
pub struct HostClock(Clock);

impl HostClock {
    pub fn new() -> Self {
        Self(Clock::new())
    }

    /// Seconds by which the host's clock has stepped since the last call, if any.
    fn jumped(&mut self) -> Option<f64> {
        let now = Clock::new();
        let step = now.now().since(self.0.now());
        (step.abs() >= JUMP_NS).then(|| {
            self.0 = now;
            step as f64 / 1e9
        })
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::schedule::{Planned, Schedule};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn what_a_step_of_the_clock_does_to_a_scan_that_is_armed_is_said() {
        let planned = Planned {
            name: "no1".parse().unwrap(),
            start: Tai(100 * SECOND),
            end: Tai(140 * SECOND),
            target: None,
        };
        let schedule = Schedule { scans: vec![planned], ..Schedule::default() };
        let lead = Duration::from_secs(5);
        let mut agenda = Agenda::new(schedule, lead);
        assert!(after_jump(&agenda, 30.0, Tai(0)).ends_with("jumped by +30.0 s"));
        agenda.step(Tai(96 * SECOND));
        for (seconds, now, said) in [
            (-3600.0, 96 - 3600, "armed, begins in 3604.0 s"),
            (5.0, 101, "armed, begins now"),
            (60.0, 156, "armed, is over by it"),
            (60.0, 161, "recorded, keeps its planned length"),
            (-60.0, 60, "recorded, keeps its planned length"),
        ] {
            let text = after_jump(&agenda, seconds, Tai(now * SECOND));
            assert!(text.ends_with(said), "{text}");
        }
    }
}
