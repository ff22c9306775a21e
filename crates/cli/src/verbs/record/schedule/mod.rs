//! `fullbore record --schedule FILE`: records the scans of a session unattended, each at its time.

mod account;
mod events;
mod preflight;
mod recorded_before;
mod retry;
mod scan;
mod schedule_file;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context;
use fullbore_core::completeness::{self, Completeness};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::schedule::agenda::{Agenda, Step};
use fullbore_core::schedule::{Planned, Schedule};
use fullbore_core::time::Tai;
use fullbore_engine::clock::Clock;
use fullbore_engine::recorder::{Limit, RecordingConfig, StopHandle};
use fullbore_engine::sink::SinkConfig;
use fullbore_engine::store::resume::TakenNames;
use fullbore_recording::RetentionThread;
use uuid::Uuid;

use self::account::{Outcome, ScanOutcome, Session, SessionWriter, table};
use self::events::{EventJson, SessionEvent};
use self::preflight::Preflight;
use self::schedule_file::{doubts, read, session_of};
use self::watch::{HostClock, Watch};
use super::{Args, finish, judge, resolve, tell_of};
use crate::output::{self, Output, count};
use crate::screen::Screen;
use crate::signals;

/// Time between two checks of the clock while waiting for a scan.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two messages about the scan that is waited for.
const REMIND: Duration = Duration::from_secs(60);

/// Runs a schedule.
pub fn run(args: &Args, file: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let schedule = read(file, args.station.as_deref())?;
    let session = session_of(args, &schedule)?;
    // Errors of the remaining arguments are reported now, and not at the first scan.
    let first = schedule.scans.first().expect("a schedule has a scan");
    let members = plan(args, &session, first, None, &BTreeMap::new())?.members().to_vec();
    let retention = args.keep.map(|keep| RetentionThread::start(members.clone(), keep)).transpose();
    let retention = retention.context("starting the retention thread")?;
    let control = Arc::new(StopHandle::default());
    let again = Arc::new(AtomicBool::new(false));
    signals::follow_schedule(&control, &again)?;
    let mut runner = Runner {
        args,
        output,
        retention,
        books: SessionWriter::new(members.clone()),
        members,
        earlier: None,
        outlook: Preflight::default(),
        code: output::GOOD,
        known: BTreeMap::new(),
        watch: Watch {
            args,
            file,
            session: session.clone(),
            agenda: Agenda::new(schedule.clone(), args.lead()),
            control,
            again,
            clock: HostClock::new(),
        },
        done: Session::new(session, Clock::new().now()),
    };
    runner.introduce(&schedule);
    runner.look_ahead(schedule.scans.last().expect("a schedule has a scan"))?;
    runner.carry_out()?;
    runner.conclude()
}

fn plan(
    args: &Args,
    session: &Name,
    scan: &Planned,
    pause: Option<Duration>,
    known: &BTreeMap<PathBuf, Uuid>,
) -> anyhow::Result<RecordingConfig> {
    let mut words = args.clone();
    words.session = session.to_string();
    words.scan = scan.name.to_string();
    let plan = resolve(words)?;
    anyhow::ensure!(
        !plan.has_acquisitions(),
        "a PandA's acquisitions begin when it is armed, and not by a schedule"
    );
    let limit = Limit { until: Some(scan.end), ..Limit::default() };
    let scans = vec![ScanName { session: session.clone(), scan: scan.name.clone() }];
    let planned = completeness::Planned { begin: Some(scan.start), end: Some(scan.end) };
    let start = Some(scan.start);
    let mut plan = RecordingConfig { scans, start, limit, planned, pause, ..plan };
    if let SinkConfig::Store(store) = &mut plan.sinks[0] {
        store.degraded_start = Some(known.clone());
    }
    Ok(plan)
}

struct Runner<'a> {
    args: &'a Args,
    output: Output,
    retention: Option<RetentionThread>,
    watch: Watch<'a>,
    /// Directories of the disk set.
    members: Vec<PathBuf>,
    /// The names in the store at the last check.
    earlier: Option<TakenNames>,
    outlook: Preflight,
    books: SessionWriter,
    code: u8,
    /// The members in earlier scans.
    known: BTreeMap<PathBuf, Uuid>,
    done: Session,
}

impl Runner<'_> {
    fn introduce(&self, schedule: &Schedule) {
        let doubts = doubts(schedule, self.args, &self.done.session);
        doubts.iter().for_each(|doubt| self.say(&format!("warning: {doubt}")));
        let (first, last) = (&schedule.scans[0], &schedule.scans[schedule.scans.len() - 1]);
        self.say(&format!(
            "{} of session {}, from {:.1} to {:.1}",
            count(schedule.scans.len(), "scan"),
            self.done.session,
            first.start,
            last.end
        ));
    }

    fn carry_out(&mut self) -> anyhow::Result<()> {
        let mut reminded: Option<(Name, Instant)> = None;
        while self.control().stop_requests() == 0 {
            for news in self.watch.look() {
                news.show(self.output);
                if matches!(news, SessionEvent::Schedule { .. }) {
                    self.judge_room();
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
                        self.remind(&scan, now);
                        reminded = Some((scan.name, Instant::now()));
                    }
                    std::thread::sleep(LOOK);
                }
                Step::Missed { scan } => self.missed(scan),
                Step::Arm { scan, late } => self.record(scan, late)?,
            }
        }
        self.done.left.extend(self.watch.agenda.ahead().map(|scan| scan.name.clone()));
        Ok(())
    }

    fn remind(&self, scan: &Planned, now: Tai) {
        let seconds = scan.start.since(now) as f64 / 1e9;
        let told = EventJson::Waiting { scan: &scan.name, start: scan.start, seconds };
        self.tell(&told, || {
            format!(
                "waiting for scan {}, which starts at {:.1}, in {seconds:.0} s",
                scan.name, scan.start
            )
        });
    }

    /// Handles a scan that is over before it could be armed, unless it was recorded before a restart of the session.
    fn missed(&mut self, scan: Planned) {
        let earlier = self.earlier.get_or_insert_with(|| TakenNames::look(&self.members));
        let came = recorded_before::recorded(earlier, &self.done.session, &scan);
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
                let told = EventJson::RecordedBefore {
                    scan: &scan.name,
                    start: scan.start,
                    parts,
                    unsealed,
                };
                self.tell(&told, || recorded_before::in_words(&scan, &self.done.session, unsealed));
                let good = completeness.as_ref().is_none_or(Completeness::is_good);
                if !unsealed.is_empty() || !good {
                    self.code = output::FOUND;
                }
            }
            _ => {
                self.code = output::FOUND;
                self.tell(&EventJson::Missed { scan: &scan.name, start: scan.start }, || {
                    format!("warning: scan {} is missed: it was over at {:.1}", scan.name, scan.end)
                });
            }
        }
        let came = came.unwrap_or(ScanOutcome::Missed);
        let (scan, start) = (scan.name, scan.start);
        self.done.scans.push(Outcome { scan, start, recorded_as: None, came });
    }

    /// Completes the account of the session.
    fn conclude(mut self) -> anyhow::Result<ExitCode> {
        finish(self.retention.take(), &mut Screen::new(self.output, true)?);
        if !self.done.left.is_empty() {
            self.code = self.code.max(output::FOUND);
        }
        let text = match self.books.close(self.done.clone()) {
            Ok(path) => format!("the account of the session is in {}", path.display()),
            Err(why) => format!("warning: the account of the session is not in the store: {why}"),
        };
        events::say(self.output, &text);
        // The output may be closed: every scan has its own account.
        let _ = self.output.tell(&self.done, || table(&self.done));
        Ok(ExitCode::from(self.code))
    }

    /// Adds the outcome of a scan to the account, and writes the account to the store.
    fn note(&mut self, outcome: Outcome) {
        self.done.scans.push(outcome);
        self.earlier = None;
        let ahead = self.watch.agenda.ahead().map(|scan| scan.name.clone());
        let mut account = self.done.clone();
        account.left = ahead.collect();
        self.books.write(account);
    }

    fn control(&self) -> &Arc<StopHandle> {
        &self.watch.control
    }

    fn say(&self, text: &str) {
        events::say(self.output, text);
    }

    fn tell(&self, told: &EventJson<'_>, text: impl FnOnce() -> String) {
        events::tell(self.output, told, text);
    }
}
