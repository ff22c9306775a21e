//! One scan of the session: armed, with retries, recorded, and added to the account.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fullbore_core::account::Terms;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::schedule::Planned;
use fullbore_engine::recorder::{Event, Recorder, RecordingConfig, Sealed};
use fullbore_linux::clock::Clock;
use fullbore_store::resume::{TakenNames, is_sealed};
use fullbore_time::Tai;

use super::account::{Outcome, SHORT_NS, ScanOutcome};
use super::retry::Retry;
use super::{LOOK, Runner, judge, plan, tell_of};
use crate::hint::explained;
use crate::output;
use crate::screen::Screen;

/// The state of a scan while it is recorded.
struct Recording {
    scan: Planned,
    /// The name it was given, if its own was taken.
    recorded_as: Option<Name>,
    sealed: Option<Sealed>,
}

/// The result of an attempt to record a scan.
enum Tried {
    /// The scan was armed, and has ended.
    Ended { failure: Option<String> },
    /// The scan could not be armed.
    NotArmed { why: String },
}

impl Runner<'_> {
    /// Records one scan. Errors are reported, and do not end the session.
    pub(super) fn record(&mut self, scan: Planned, late: Duration) -> anyhow::Result<()> {
        if late.as_nanos() > SHORT_NS as u128 {
            self.code = output::FOUND;
            let late = late.as_secs_f64();
            self.say(&format!(
                "warning: scan {} is late: {late:.1} s of it have passed",
                scan.name
            ));
        }
        let mut screen = Screen::new(self.output, self.args.quiet)?;
        let mut recording = Recording { scan, recorded_as: None, sealed: None };
        let ended = self.try_until_over(&mut recording, &mut screen);
        // A step of the clock that was not reported yet may have ended it.
        self.watch.look().iter().for_each(|news| news.during(self.output, &mut screen));
        screen.end();
        self.watch.over();
        let Recording { scan, recorded_as, sealed } = recording;
        let failure = match ended {
            Tried::Ended { failure: None } if sealed.is_none() => {
                self.not_begun(scan);
                return Ok(());
            }
            Tried::Ended { failure } => failure,
            Tried::NotArmed { why } => Some(why),
        };
        if let Some(why) = &failure {
            self.say(&format!("warning: scan {}: {why}", scan.name));
        }
        let came = self.enter(sealed, failure, &scan);
        self.note(Outcome { scan: scan.name, start: scan.start, recorded_as, came });
        Ok(())
    }

    /// Handles a scan that was stopped before it began, or that the clock skipped while it was armed.
    fn not_begun(&mut self, scan: Planned) {
        match self.control().stop_requests() {
            0 => self.missed(scan),
            _ => self.done.left.push(scan.name),
        }
    }

    /// Tries to arm a scan until that succeeds, the scan is over, or a stop is requested.
    fn try_until_over(&mut self, recording: &mut Recording, screen: &mut Screen) -> Tried {
        let mut trials = Retry::default();
        let end = recording.scan.end;
        loop {
            let tried = self.try_once(recording, screen);
            let Tried::NotArmed { why } = &tried else { return tried };
            let over =
                |this: &Self| Clock::new().now() >= end || this.control().stop_requests() > 0;
            if !over(self) {
                if let Some(text) = trials.say(&recording.scan, why) {
                    screen.event(&Event::Warning { text });
                }
                self.pause(trials.wait(), end, screen);
            }
            if over(self) {
                return tried;
            }
        }
    }

    /// Arms a scan and records it, if possible.
    fn try_once(&mut self, recording: &mut Recording, screen: &mut Screen) -> Tried {
        let (output, control) = (self.output, self.control().clone());
        let scan = &recording.scan;
        let pause = self.watch.agenda.pause_after(scan);
        let planned = plan(self.args, &self.done.session, scan, pause, &self.known);
        let plan = match planned {
            Ok(plan) => self.named(plan, recording, screen),
            Err(error) => return Tried::NotArmed { why: format!("{error:#}") },
        };
        let given = plan.members().to_vec();
        let sealed = &mut recording.sealed;
        let mut tell = |event: &Event| {
            if let Event::Sealed(books) | Event::Unsealed { books, .. } = event {
                *sealed = Some((**books).clone());
            }
            // The session itself reports each missed scan.
            if !matches!(event, Event::Missed { .. }) {
                screen.event(event);
            }
            tell_of(self.retention.as_ref(), event, screen);
            self.watch.look().iter().for_each(|news| news.during(output, screen));
        };
        let begun = Clock::new().now();
        let recorder = match Recorder::arm(plan, &mut tell) {
            Ok(recorder) => recorder,
            Err(error) => return Tried::NotArmed { why: explained(error).to_string() },
        };
        if let Some(text) = armed_late(&recording.scan, begun, Clock::new().now()) {
            tell(&Event::Warning { text });
        }
        let ended = recorder.run(&control, &mut tell);
        self.get_to_know(&given, sealed.as_ref());
        Tried::Ended { failure: ended.err().map(|error| explained(error).to_string()) }
    }

    /// Gives the scan a free name: its own, unless the store has a scan of that name.
    fn named(
        &self,
        mut plan: RecordingConfig,
        recording: &mut Recording,
        screen: &mut Screen,
    ) -> RecordingConfig {
        let scan = &recording.scan;
        let own = plan.scans[0].clone();
        let earlier = TakenNames::look(plan.members());
        let kept = |name: &Name| self.watch.agenda.knows(name);
        let free = earlier.free_name(&own, kept).filter(|free| *free != own);
        let Some(free) = free else {
            recording.recorded_as = None;
            return plan;
        };
        if recording.recorded_as.as_ref() != Some(&free.scan) {
            let text = taken(&earlier, &own, scan, &free.scan);
            screen.event(&Event::Warning { text });
        }
        if !earlier.parts(&own, scan.start, scan.end).is_empty() {
            // Parts recorded before do not count as missing here: the session reports the late start.
            plan.planned.begin = None;
        }
        recording.recorded_as = Some(free.scan.clone());
        plan.scans = vec![free];
        plan
    }

    /// Waits before another attempt, unless the scan is over by then or a stop is requested.
    fn pause(&mut self, wait: Duration, end: Tai, screen: &mut Screen) {
        let until = Instant::now() + wait;
        while Instant::now() < until
            && Clock::new().now() < end
            && self.control().stop_requests() == 0
        {
            self.watch.look().iter().for_each(|news| news.during(self.output, screen));
            std::thread::sleep(LOOK.min(wait));
        }
    }

    /// Remembers the identities of the members. The next scan accepts no others in their places.
    fn get_to_know(&mut self, given: &[PathBuf], sealed: Option<&Sealed>) {
        let members = sealed.map_or(&[][..], |sealed| &sealed.manifest.members);
        for path in given {
            let root = path.canonicalize().unwrap_or_else(|_| path.clone());
            if let Some(member) = members.iter().find(|member| member.path == root) {
                self.known.insert(path.clone(), member.uuid);
            }
        }
    }

    /// Adds a finished scan to the session's account.
    fn enter(
        &mut self,
        sealed: Option<Sealed>,
        failure: Option<String>,
        scan: &Planned,
    ) -> ScanOutcome {
        let mut terms = Terms::default();
        let mut bytes = 0;
        if let Some(sealed) = &sealed {
            self.code = self.code.max(judge(sealed));
            sealed.accounts.iter().for_each(|account| terms.add(&account.terms));
            bytes = sealed.manifest.bytes();
            self.done.add(bytes, &terms);
            self.outlook.learn(sealed);
            self.judge_room();
        }
        if let Some(why) = failure {
            self.code = output::FOUND;
            return ScanOutcome::Failed { why, bytes, terms };
        }
        let manifest = sealed.as_ref().map(|sealed| &sealed.manifest);
        let lacks = manifest.and_then(|it| it.stopped).map(|stopped| scan.end.since(stopped));
        let lacks = lacks.filter(|&ns| ns > SHORT_NS);
        let late_ns = manifest.map_or(0, |it| it.armed.since(scan.start).max(0));
        if lacks.is_some() || late_ns > SHORT_NS {
            self.code = output::FOUND;
        }
        ScanOutcome::Recorded {
            bytes,
            terms,
            verdict: sealed.as_ref().and_then(|sealed| sealed.manifest.verdict()),
            completeness: sealed.map(|sealed| sealed.completeness),
            late_seconds: late_ns as f64 / 1e9,
            cut_short_seconds: lacks.map(|ns| ns as f64 / 1e9),
        }
    }
}

/// The message about a scan that begins late because arming took too long.
fn armed_late(scan: &Planned, begun: Tai, armed: Tai) -> Option<String> {
    let (late, took) = (armed.since(scan.start), armed.since(begun));
    (begun < scan.start && late > SHORT_NS).then(|| {
        let (late, took) = (late as f64 / 1e9, took as f64 / 1e9);
        let lead = (1.5 * took).ceil();
        format!(
            "scan {} begins {late:.1} s late: arming it took {took:.1} s (most of that is block memory). \
             `--lead {lead}s` arms scans earlier, and a smaller --buffer is had sooner",
            scan.name
        )
    })
}

/// The message about a scan that gets another name, with the contents under its own.
fn taken(earlier: &TakenNames, own: &ScanName, scan: &Planned, free: &Name) -> String {
    let parts = earlier.parts(own, scan.start, scan.end);
    match parts.last() {
        Some(part) if is_sealed(part) => {
            format!(
                "scan {} was begun before, as {}: its rest is recorded as {free}",
                scan.name, part.scan
            )
        }
        Some(part) => format!(
            "scan {1} was begun before, as {0}, which is not sealed: its rest is recorded as {free}; \
             `fullbore recover {0}` seals what was recorded",
            part.scan, scan.name
        ),
        None => format!("{own} exists already: scan {} is recorded as {free}", scan.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_that_took_too_long_to_arm_says_which_lead_would_do() {
        let at = |seconds: i64| Tai::of_half_year(50).plus_ns(seconds * 1_000_000_000);
        let name = "no0001".parse().unwrap();
        let scan = Planned { name, start: at(5), end: at(45), target: None };
        assert_eq!(armed_late(&scan, at(0), at(5)), None);
        // It was late before it was armed, which has its own message.
        assert_eq!(armed_late(&scan, at(6), at(8)), None);
        let text = armed_late(&scan, at(1), at(7)).unwrap();
        assert!(
            text.contains("2.0 s late")
                && text.contains("took 6.0 s")
                && text.contains("--lead 9s"),
            "{text}"
        );
    }
}
