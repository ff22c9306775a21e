//! A session: the scans of a schedule, recorded unattended, each at its time.
//!
//! ```text
//! Session::open ── schedule, options, disks
//!      │ run (on the caller's thread)              SessionHandle: stop, abort, reload (any thread)
//!      ▼
//! for each scan:  wait ─► arm, again and again until it is over ─► record ─► its entry in the account
//!                    └──────────── SessionEvent ────────────► the program shows it
//! ```
//!
//! An error of one scan does not end the session. A session that is restarted finds the scans that were recorded
//! before, and records the rest of a scan that was interrupted under another name.

mod account;
mod error;
mod events;
mod preflight;
mod recorded_before;
mod retry;
mod scan;
mod schedule_file;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::completeness::{self, Completeness};
use fullbore_core::manifest::HostFinding;
use fullbore_core::memory_budget::MeasuredDisks;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::schedule::agenda::{Agenda, Step};
use fullbore_core::schedule::{Planned, Schedule};
use fullbore_engine::forward::Forwarder;
use fullbore_engine::recorder::{Limit, RecordError, RecordingConfig};
use fullbore_engine::sink::SinkConfig;
use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::resume::TakenNames;
use fullbore_time::Tai;
use uuid::Uuid;

pub use self::account::{SHORT_NS, ScanEntry, ScanOutcome, SessionAccount};
pub use self::error::SessionError;
pub use self::events::{SessionEvent, SessionEventHandler};

use self::account::SessionWriter;
use self::events::count;
use self::preflight::Preflight;
use self::schedule_file::{doubts, read, session_of};
use self::watch::{HostClock, Watch};
use crate::forwarding::Finishing;
use crate::options::{OptionError, RecordingOptions};
use crate::outcome::Outcome;
use crate::retention::RetentionThread;

/// Time between two checks of the clock, which may be set, and of the schedule while waiting for a scan.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two messages about the scan that is waited for.
const REMIND: Duration = Duration::from_secs(60);

/// A session that is going to be recorded.
pub struct Session {
    config: SessionConfig,
    schedule: Schedule,
    retention: Option<RetentionThread>,
    /// What earlier scans still send on.
    finishing: Finishing,
    watch: Watch,
    /// Directories of the disk set.
    members: Vec<PathBuf>,
    /// The names in the store at the last check.
    earlier: Option<TakenNames>,
    outlook: Preflight,
    session: SessionWriter,
    outcome: Outcome,
    /// The members in earlier scans.
    known: BTreeMap<PathBuf, Uuid>,
    done: SessionAccount,
}

/// What all scans of a session have in common.
struct SessionConfig {
    options: RecordingOptions,
    session: Name,
    disks: MeasuredDisks,
    findings: Vec<HostFinding>,
}

/// Controls a session from any thread.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    control: Arc<StopHandle>,
    again: Arc<AtomicBool>,
}

impl SessionHandle {
    /// Stops the running scan, which is sealed, and the session. A second stop aborts the scan.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Aborts the running scan, and stops the session.
    pub fn abort(&self) {
        self.control.abort();
    }

    /// Reads the schedule again, and replaces the scans that lie ahead.
    pub fn reload(&self) {
        self.again.store(true, Ordering::SeqCst);
    }
}

/// The end of a session.
#[derive(Clone, Debug)]
pub struct SessionOutcome {
    /// The outcome of all scans.
    pub outcome: Outcome,
    /// The account of the session, as it is in the store.
    pub account: SessionAccount,
}

impl Session {
    /// Reads the schedule in the options, and checks all options. Nothing is created yet.
    pub fn open(options: RecordingOptions, disks: MeasuredDisks) -> Result<Self, SessionError> {
        options.check()?;
        let file = options.schedule.clone().ok_or(SessionError::NoSchedule)?;
        let schedule = read(&file, options.station.as_deref())?;
        let session = session_of(&options, &schedule)?;
        let config =
            SessionConfig { options, session: session.clone(), disks, findings: Vec::new() };
        // Errors of the options are reported now, and not at the first scan.
        let first = schedule.scans.first().expect("a schedule has a scan");
        let of_first = config.of_scan(first, None, &BTreeMap::new())?;
        Forwarder::check(&of_first.forward).map_err(RecordError::Forward)?;
        let members = of_first.members().to_vec();
        let agenda = Agenda::new(schedule.clone(), config.options.lead());
        let watch = Watch {
            file,
            agenda,
            control: Arc::default(),
            again: Arc::default(),
            clock: HostClock::new(),
        };
        Ok(Self {
            config,
            schedule,
            retention: None,
            finishing: Finishing::default(),
            watch,
            session: SessionWriter::new(members.clone()),
            members,
            earlier: None,
            outlook: Preflight::default(),
            outcome: Outcome::Good,
            known: BTreeMap::new(),
            done: SessionAccount::new(session, Clock::new().now()),
        })
    }

    /// Adds what was found on the host to the manifests of all scans.
    pub fn with_findings(mut self, findings: Vec<HostFinding>) -> Self {
        self.config.findings = findings;
        self
    }

    /// Returns the recording of the first scan.
    pub fn first_recording(&self) -> Result<RecordingConfig, SessionError> {
        let first = self.schedule.scans.first().expect("a schedule has a scan");
        Ok(self.config.of_scan(first, None, &BTreeMap::new())?)
    }

    /// Returns a handle that controls the session.
    pub fn handle(&self) -> SessionHandle {
        SessionHandle { control: self.watch.control.clone(), again: self.watch.again.clone() }
    }

    /// Records all scans on this thread, until the last one is over, or the session is stopped.
    pub fn run(
        mut self,
        tell: &mut SessionEventHandler<'_>,
    ) -> Result<SessionOutcome, SessionError> {
        let (members, keep) = (self.members.clone(), self.config.options.keep);
        let retention = keep.map(|keep| RetentionThread::start(members, keep)).transpose();
        self.retention = retention.map_err(SessionError::Retention)?;
        self.introduce(tell);
        self.look_ahead(tell)?;
        self.carry_out(tell);
        Ok(self.conclude(tell))
    }

    fn introduce(&self, tell: &mut SessionEventHandler<'_>) {
        let doubts = doubts(&self.schedule, &self.config.options, &self.done.session);
        doubts.into_iter().for_each(|doubt| tell(&SessionEvent::warning(doubt)));
        let scans = &self.schedule.scans;
        let (first, last) = (&scans[0], &scans[scans.len() - 1]);
        tell(&SessionEvent::note(format!(
            "{} of session {}, from {:.1} to {:.1}",
            count(scans.len()),
            self.done.session,
            first.start,
            last.end
        )));
    }

    fn carry_out(&mut self, tell: &mut SessionEventHandler<'_>) {
        let mut reminded: Option<(Name, Instant)> = None;
        while !self.control().is_requested() {
            for news in self.look() {
                tell(&news);
                if matches!(news, SessionEvent::Schedule { .. }) {
                    self.judge_room(tell);
                }
                reminded = None;
            }
            let now = Clock::new().now();
            match self.watch.agenda.step(now) {
                Step::Finished => break,
                Step::Wait { scan, .. } => {
                    let due =
                        |(name, at): &(Name, Instant)| *name != scan.name || at.elapsed() >= REMIND;
                    if reminded.as_ref().is_none_or(due) {
                        tell(&waiting(&scan, now));
                        reminded = Some((scan.name, Instant::now()));
                    }
                    self.control().wait(LOOK);
                }
                Step::Missed { scan } => self.missed(scan, tell),
                Step::Arm { scan, late } => self.record(scan, late, tell),
            }
        }
        self.done.left.extend(self.watch.agenda.ahead().map(|scan| scan.name.clone()));
    }

    /// The events of the watch, and of forwarders that have finished, since the last call.
    fn look(&mut self) -> Vec<SessionEvent> {
        let mut news = self.watch.look(&self.config.options, &self.config.session);
        news.extend(self.finishing.reports().into_iter().map(SessionEvent::Recording));
        news
    }

    /// Handles a scan that is over before it could be armed, unless it was recorded before a restart of the session.
    fn missed(&mut self, scan: Planned, tell: &mut SessionEventHandler<'_>) {
        let earlier = self.earlier.get_or_insert_with(|| TakenNames::look(&self.members));
        let came = recorded_before::recorded(earlier, &self.done.session, &scan);
        let Planned { name, start, end, .. } = scan;
        match &came {
            Some(ScanOutcome::RecordedBefore {
                bytes,
                terms,
                parts,
                unsealed,
                completeness,
                ..
            }) => {
                self.done.add(*bytes, terms);
                tell(&SessionEvent::RecordedBefore {
                    session: self.done.session.clone(),
                    scan: name.clone(),
                    start,
                    parts: parts.clone(),
                    unsealed: unsealed.clone(),
                });
                let good = completeness.as_ref().is_none_or(Completeness::is_good);
                self.outcome = self.outcome.max(Outcome::of(unsealed.is_empty() && good));
            }
            _ => {
                self.outcome = Outcome::Problem;
                tell(&SessionEvent::Missed { scan: name.clone(), start, end });
            }
        }
        let came = came.unwrap_or(ScanOutcome::Missed);
        self.done.scans.push(ScanEntry { scan: name, start, recorded_as: None, came });
    }

    /// Completes the account of the session.
    fn conclude(mut self, tell: &mut SessionEventHandler<'_>) -> SessionOutcome {
        let mut told = self.finishing.wait();
        told.extend(self.retention.take().map_or(Vec::new(), RetentionThread::finish));
        told.into_iter().for_each(|event| tell(&SessionEvent::Recording(event)));
        if !self.done.left.is_empty() {
            self.outcome = Outcome::Problem;
        }
        tell(&match self.session.close(self.done.clone()) {
            Ok(path) => {
                SessionEvent::note(format!("the account of the session is in {}", path.display()))
            }
            Err(why) => SessionEvent::warning(format!(
                "the account of the session is not in the store: {why}"
            )),
        });
        SessionOutcome { outcome: self.outcome, account: self.done }
    }

    /// Adds the outcome of a scan to the account, and writes the account to the store.
    fn note(&mut self, entry: ScanEntry) {
        self.done.scans.push(entry);
        self.earlier = None;
        let ahead = self.watch.agenda.ahead().map(|scan| scan.name.clone());
        let mut account = self.done.clone();
        account.left = ahead.collect();
        self.session.write(account);
    }

    fn control(&self) -> &Arc<StopHandle> {
        &self.watch.control
    }
}

impl SessionConfig {
    /// The configuration of one scan. `known` are the members of earlier scans.
    fn of_scan(
        &self,
        scan: &Planned,
        pause: Option<Duration>,
        known: &BTreeMap<PathBuf, Uuid>,
    ) -> Result<RecordingConfig, OptionError> {
        let options = RecordingOptions {
            schedule: None,
            station: None,
            lead: None,
            session: Some(self.session.to_string()),
            scan: Some(scan.name.to_string()),
            ..self.options.clone()
        };
        let config = options.resolve()?;
        if config.has_acquisitions() {
            return Err(OptionError::ScheduleOfPanda);
        }
        let limit = Limit { until: Some(scan.end), ..Limit::default() };
        let scans = vec![ScanName { session: self.session.clone(), scan: scan.name.clone() }];
        let planned = completeness::Planned { begin: Some(scan.start), end: Some(scan.end) };
        let start = Some(scan.start);
        let findings = self.findings.clone();
        let mut config =
            RecordingConfig { scans, start, limit, planned, pause, findings, ..config };
        for sink in &mut config.sinks {
            let SinkConfig::Store(store) = sink else { continue };
            let MeasuredDisks { stall, disk_rate } = self.disks.clone();
            (store.stall, store.disk_rate) = (stall, disk_rate);
            store.degraded_start = Some(known.clone());
        }
        Ok(config)
    }
}

fn waiting(scan: &Planned, now: Tai) -> SessionEvent {
    let seconds = scan.start.since(now) as f64 / 1e9;
    SessionEvent::Waiting { scan: scan.name.clone(), start: scan.start, seconds }
}
