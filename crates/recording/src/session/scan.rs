//! One scan of the session: armed, with retries, recorded, and added to the account.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fullbore_core::account::Terms;
use fullbore_core::hint::explained;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::schedule::Planned;
use fullbore_engine::recorder::{Event, Recorder, RecordingConfig, Sealed};
use fullbore_linux::clock::Clock;
use fullbore_store::resume::{TakenNames, is_sealed};
use fullbore_time::Tai;

use super::account::{SHORT_NS, ScanEntry, ScanOutcome};
use super::events::{SessionEvent, SessionEventHandler};
use super::retry::Retry;
use super::{LOOK, Session};
use crate::forwarding::Forwarding;
use crate::outcome::Outcome;
use crate::run::{self, tell_of};

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

impl Session {
    /// Records one scan. Errors are reported, and do not end the session.
    pub(super) fn record(
        &mut self,
        scan: Planned,
        late: Duration,
        tell: &mut SessionEventHandler<'_>,
    ) {
        if late.as_nanos() > SHORT_NS as u128 {
            self.outcome = Outcome::Problem;
            let late = late.as_secs_f64();
            tell(&SessionEvent::warning(format!(
                "scan {} is late: {late:.1} s of it have passed",
                scan.name
            )));
        }
        tell(&SessionEvent::Arming { scan: scan.name.clone() });
        let mut recording = Recording { scan, recorded_as: None, sealed: None };
        let ended = self.try_until_over(&mut recording, tell);
        // A step of the clock that was not reported yet may have ended it.
        self.look().iter().for_each(&mut *tell);
        let Recording { scan, recorded_as, sealed } = recording;
        tell(&SessionEvent::Over { scan: scan.name.clone() });
        self.watch.over();
        let failure = match ended {
            Tried::Ended { failure: None } if sealed.is_none() => {
                return self.not_begun(scan, tell);
            }
            Tried::Ended { failure } => failure,
            Tried::NotArmed { why } => Some(why),
        };
        if let Some(why) = &failure {
            tell(&SessionEvent::warning(format!("scan {}: {why}", scan.name)));
        }
        let came = self.enter(sealed, failure, &scan, tell);
        self.note(ScanEntry { scan: scan.name, start: scan.start, recorded_as, came });
    }

    /// Handles a scan that was stopped before it began, or that the clock skipped while it was armed.
    fn not_begun(&mut self, scan: Planned, tell: &mut SessionEventHandler<'_>) {
        match self.control().stop_requests() {
            0 => self.missed(scan, tell),
            _ => self.done.left.push(scan.name),
        }
    }

    /// Tries to arm a scan until that succeeds, the scan is over, or a stop is requested.
    fn try_until_over(
        &mut self,
        recording: &mut Recording,
        tell: &mut SessionEventHandler<'_>,
    ) -> Tried {
        let mut trials = Retry::default();
        let end = recording.scan.end;
        loop {
            let tried = self.try_once(recording, tell);
            let Tried::NotArmed { why } = &tried else { return tried };
            let over =
                |this: &Self| Clock::new().now() >= end || this.control().stop_requests() > 0;
            if !over(self) {
                if let Some(text) = trials.say(&recording.scan, why) {
                    tell(&SessionEvent::warning(text));
                }
                self.pause(trials.wait(), end, tell);
            }
            if over(self) {
                return tried;
            }
        }
    }

    /// Arms a scan and records it, if possible.
    fn try_once(&mut self, recording: &mut Recording, tell: &mut SessionEventHandler<'_>) -> Tried {
        let control = self.control().clone();
        let scan = recording.scan.clone();
        let pause = self.watch.agenda.pause_after(&scan);
        let config = match self.config.of_scan(&scan, pause, &self.known) {
            Ok(config) => self.named(config, recording, tell),
            Err(error) => return Tried::NotArmed { why: error.to_string() },
        };
        let given = config.members().to_vec();
        let mut forwarding = match Forwarding::start(&config) {
            Ok(forwarding) => forwarding,
            Err(error) => return Tried::NotArmed { why: explained(&error) },
        };
        let of_spectra = &mut |event: &Event| tell(&SessionEvent::Recording(event.clone()));
        let _spectra = run::serve_spectra(&config, of_spectra);
        let begun = Clock::new().now();
        let mut see = |event: &Event| {
            self.see(event, recording, tell);
            forwarding.after(event, &mut |event| tell(&SessionEvent::Recording(event.clone())));
        };
        let ended = match Recorder::arm(config, &mut see) {
            Ok(recorder) => {
                if let Some(text) = armed_late(&scan, begun, Clock::new().now()) {
                    see(&Event::Warning { text });
                }
                recorder.run(&control, &mut see)
            }
            Err(error) => {
                self.finishing.add(forwarding);
                return Tried::NotArmed { why: explained(&error) };
            }
        };
        self.finishing.add(forwarding);
        self.get_to_know(&given, recording.sealed.as_ref());
        Tried::Ended { failure: ended.err().map(|error| explained(&error)) }
    }

    /// Passes an event of the recorder on, and looks for other news meanwhile.
    fn see(
        &mut self,
        event: &Event,
        recording: &mut Recording,
        tell: &mut SessionEventHandler<'_>,
    ) {
        if let Event::Sealed(sealed) | Event::Unsealed { sealed, .. } = event {
            recording.sealed = Some((**sealed).clone());
        }
        let mut pass = |event: &Event| tell(&SessionEvent::Recording(event.clone()));
        // The session itself reports each missed scan.
        if !matches!(event, Event::Missed { .. }) {
            pass(event);
        }
        tell_of(self.retention.as_ref(), event, &mut pass);
        self.look().iter().for_each(tell);
    }

    /// Gives the scan a free name: its own, unless the store has a scan of that name.
    fn named(
        &self,
        mut config: RecordingConfig,
        recording: &mut Recording,
        tell: &mut SessionEventHandler<'_>,
    ) -> RecordingConfig {
        let scan = &recording.scan;
        let own = config.scans[0].clone();
        let earlier = TakenNames::look(config.members());
        let kept = |name: &Name| self.watch.agenda.knows(name);
        let free = earlier.free_name(&own, kept).filter(|free| *free != own);
        let Some(free) = free else {
            recording.recorded_as = None;
            return config;
        };
        if recording.recorded_as.as_ref() != Some(&free.scan) {
            tell(&SessionEvent::warning(taken(&earlier, &own, scan, &free.scan)));
        }
        if !earlier.parts(&own, scan.start, scan.end).is_empty() {
            // Parts recorded before do not count as missing here: the session reports the late start.
            config.planned.begin = None;
        }
        recording.recorded_as = Some(free.scan.clone());
        config.scans = vec![free];
        config
    }

    /// Waits before another attempt, unless the scan is over by then or a stop is requested.
    fn pause(&mut self, wait: Duration, end: Tai, tell: &mut SessionEventHandler<'_>) {
        let until = Instant::now() + wait;
        while Instant::now() < until && Clock::new().now() < end {
            self.look().iter().for_each(&mut *tell);
            if self.control().wait(LOOK.min(wait)) {
                return;
            }
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
        tell: &mut SessionEventHandler<'_>,
    ) -> ScanOutcome {
        let mut terms = Terms::default();
        let mut bytes = 0;
        if let Some(sealed) = &sealed {
            self.outcome = self.outcome.max(Outcome::of_scan(sealed));
            sealed.accounts.iter().for_each(|account| terms.add(&account.terms));
            bytes = sealed.manifest.bytes();
            self.done.add(bytes, &terms);
            self.outlook.learn(sealed);
            self.judge_room(tell);
        }
        if let Some(why) = failure {
            self.outcome = Outcome::Problem;
            return ScanOutcome::Failed { why, bytes, terms };
        }
        let manifest = sealed.as_ref().map(|sealed| &sealed.manifest);
        let lacks = manifest.and_then(|it| it.stopped).map(|stopped| scan.end.since(stopped));
        let lacks = lacks.filter(|&ns| ns > SHORT_NS);
        let late_ns = manifest.map_or(0, |it| it.armed.since(scan.start).max(0));
        if lacks.is_some() || late_ns > SHORT_NS {
            self.outcome = Outcome::Problem;
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
