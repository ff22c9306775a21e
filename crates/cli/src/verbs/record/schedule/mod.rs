//! `fullbore record --schedule FILE`: the scans of a session, each at its time, with nobody watching.
//!
//! Every scan is a recording of its own, armed ahead of its start and sealed before the next is armed, so
//! one that fails takes no other with it. One that cannot be armed is tried again until it is over. SIGHUP reads the
//! file again, also while a scan is recorded: what lies ahead is replaced.

mod account;
mod before;
mod news;
mod outlook;
mod reading;
mod scan;
mod trials;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fullbore_core::completeness::{self, Completeness};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::schedule::agenda::{Agenda, Step};
use fullbore_core::schedule::{Planned, Schedule};
use fullbore_core::time::Tai;
use fullbore_engine::clock::Clock;
use fullbore_engine::recorder::{Control, Limit, Plan};
use fullbore_engine::store::earlier::Earlier;
use uuid::Uuid;

use self::account::{Books, Came, Outcome, Session, table};
use self::news::{News, Told};
use self::outlook::Outlook;
use self::reading::{doubts, read, session_of};
use self::watch::{HostClock, Watch};
use super::keeper::Keeper;
use super::{Args, finish, judge, resolve, tell_of};
use crate::output::{self, Output, count};
use crate::screen::Screen;
use crate::signals;

/// Time between two looks at the clock while a scan is awaited.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two lines that say what is awaited.
const REMIND: Duration = Duration::from_secs(60);

/// Carries out a schedule.
pub fn run(args: &Args, file: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let schedule = read(file, args.station.as_deref())?;
    let session = session_of(args, &schedule)?;
    // What is wrong with the rest of the command is told now, and not at three in the morning.
    let first = schedule.scans.first().expect("a schedule has a scan");
    let members = plan(args, &session, first, &BTreeMap::new())?.members;
    let keeper = args.keep.map(|keep| Keeper::start(members.clone(), keep)).transpose()?;
    let control = Arc::new(Control::default());
    let again = Arc::new(AtomicBool::new(false));
    signals::follow_schedule(&control, &again)?;
    let mut runner = Runner {
        args,
        output,
        keeper,
        books: Books::new(members.clone()),
        members,
        earlier: None,
        outlook: Outlook::default(),
        code: output::GOOD,
        known: BTreeMap::new(),
        watch: Watch {
            args,
            file,
            session: session.clone(),
            agenda: Agenda::new(schedule.clone(), args.lead),
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
    known: &BTreeMap<PathBuf, Uuid>,
) -> anyhow::Result<Plan> {
    let mut words = args.clone();
    words.session = session.to_string();
    words.scan = scan.name.to_string();
    let plan = resolve(words)?;
    anyhow::ensure!(
        plan.pandas.is_empty(),
        "a PandA's acquisitions begin when it is armed, and not by a schedule"
    );
    let limit = Limit { until: Some(scan.end), ..Limit::default() };
    let goes_on_without = Some(known.clone());
    let scans = vec![ScanName { session: session.clone(), scan: scan.name.clone() }];
    let planned = completeness::Planned { begin: Some(scan.start), end: Some(scan.end) };
    Ok(Plan { scans, start: Some(scan.start), limit, planned, goes_on_without, ..plan })
}

struct Runner<'a> {
    args: &'a Args,
    output: Output,
    keeper: Option<Keeper>,
    watch: Watch<'a>,
    /// Directories of the disk set.
    members: Vec<PathBuf>,
    /// What the store had when it was looked at last.
    earlier: Option<Earlier>,
    outlook: Outlook,
    books: Books,
    code: u8,
    /// What members were in the scans before.
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
        while self.control().asked() == 0 {
            for news in self.watch.look() {
                news.show(self.output);
                if matches!(news, News::Schedule { .. }) {
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
        let told = Told::Waiting { scan: &scan.name, start: scan.start, seconds };
        self.tell(&told, || {
            format!(
                "waiting for scan {}, which starts at {:.1}, in {seconds:.0} s",
                scan.name, scan.start
            )
        });
    }

    /// A scan that is over before it could be armed, unless it was recorded by then: before a session was begun again.
    fn missed(&mut self, scan: Planned) {
        let earlier = self.earlier.get_or_insert_with(|| Earlier::look(&self.members));
        let came = before::recorded(earlier, &self.done.session, &scan);
        match &came {
            Some(Came::RecordedBefore { bytes, terms, parts, unsealed, completeness, .. }) => {
                self.done.add(*bytes, terms);
                let told =
                    Told::RecordedBefore { scan: &scan.name, start: scan.start, parts, unsealed };
                self.tell(&told, || before::in_words(&scan, &self.done.session, unsealed));
                let good = completeness.as_ref().is_none_or(Completeness::is_good);
                if !unsealed.is_empty() || !good {
                    self.code = output::FOUND;
                }
            }
            _ => {
                self.code = output::FOUND;
                self.tell(&Told::Missed { scan: &scan.name, start: scan.start }, || {
                    format!("warning: scan {} is missed: it was over at {:.1}", scan.name, scan.end)
                });
            }
        }
        let came = came.unwrap_or(Came::Missed);
        let (scan, start) = (scan.name, scan.start);
        self.done.scans.push(Outcome { scan, start, recorded_as: None, came });
    }

    /// The account of the session.
    fn conclude(mut self) -> anyhow::Result<ExitCode> {
        finish(self.keeper.take(), &mut Screen::new(self.output, true)?);
        if !self.done.left.is_empty() {
            self.code = self.code.max(output::FOUND);
        }
        let text = match self.books.close(self.done.clone()) {
            Ok(path) => format!("the account of the session is in {}", path.display()),
            Err(why) => format!("warning: the account of the session is not in the store: {why}"),
        };
        news::say(self.output, &text);
        // Nobody may be there to read it any more: every scan has its own account.
        let _ = self.output.tell(&self.done, || table(&self.done));
        Ok(ExitCode::from(self.code))
    }

    /// Enters what became of a scan that was to be recorded. The account in the store knows it from then on.
    fn note(&mut self, outcome: Outcome) {
        self.done.scans.push(outcome);
        self.earlier = None;
        let ahead = self.watch.agenda.ahead().map(|scan| scan.name.clone());
        let mut account = self.done.clone();
        account.left = ahead.collect();
        self.books.write(account);
    }

    fn control(&self) -> &Arc<Control> {
        &self.watch.control
    }

    fn say(&self, text: &str) {
        news::say(self.output, text);
    }

    fn tell(&self, told: &Told<'_>, text: impl FnOnce() -> String) {
        news::tell(self.output, told, text);
    }
}
