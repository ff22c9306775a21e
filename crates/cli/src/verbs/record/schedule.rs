//! `fullbore record --schedule FILE`: the scans of a session, each at its time, with nobody watching.
//!
//! Every scan is a recording of its own, armed ahead of its start and sealed before the next is armed, so
//! one that fails takes no other with it. SIGHUP reads the file again: what lies ahead is replaced.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fullbore_core::account::{Terms, Verdict};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::schedule::agenda::{Agenda, Changes, Step};
use fullbore_core::schedule::{LARGEST, Planned, Schedule};
use fullbore_core::time::Tai;
use fullbore_core::units::ByteSize;
use fullbore_engine::clock::Clock;
use fullbore_engine::recorder::{Control, Event, Limit, Plan, Recorder, Sealed};
use serde::Serialize;
use uuid::Uuid;

use super::keeper::Keeper;
use super::{Args, finish, judge, resolve, tell_of};
use crate::hint::explained;
use crate::output::{self, Output, count};
use crate::screen::Screen;
use crate::signals;

/// Time between two looks at the clock while a scan is awaited.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two lines that say what is awaited.
const REMIND: Duration = Duration::from_secs(60);

/// A step of the host's clock that is told of.
const JUMP_NS: i64 = 500_000_000;

/// What became of one scan of the session.
#[derive(Debug, Serialize)]
struct Outcome {
    scan: Name,
    start: Tai,
    #[serde(flatten)]
    came: Came,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
enum Came {
    /// It was recorded, with these totals over its streams.
    Recorded { bytes: u64, terms: Terms, verdict: Option<Verdict>, late_seconds: f64 },
    /// It could not be recorded, or not be sealed.
    Failed { why: String },
    /// It was over before it could be armed.
    Missed,
}

/// The account of a whole session.
#[derive(Debug, Serialize)]
struct Session {
    event: &'static str,
    session: Name,
    scans: Vec<Outcome>,
    /// Scans that were still ahead when it was stopped.
    left: Vec<Name>,
    bytes: u64,
    terms: Terms,
}

/// A line of JSON while a scan is awaited, or the schedule changes.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Told<'a> {
    Waiting { scan: &'a Name, start: Tai, seconds: f64 },
    Missed { scan: &'a Name, start: Tai },
    Schedule { scans: usize, added: &'a [Name], removed: &'a [Name], too_late: &'a [Name] },
}

/// Carries out a schedule.
pub fn run(args: &Args, file: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let schedule = read(file, args.station.as_deref())?;
    let session = session_of(args, &schedule)?;
    // What is wrong with the rest of the command is told now, and not at three in the morning.
    let first = schedule.scans.first().expect("a schedule has a scan");
    let members = plan(args, &session, first, &BTreeMap::new())?.members;
    let keeper = args.keep.map(|keep| Keeper::start(members, keep)).transpose()?;
    let control = Arc::new(Control::default());
    let again = Arc::new(AtomicBool::new(false));
    signals::follow_schedule(&control, &again)?;
    let mut runner = Runner {
        args,
        file,
        output,
        control,
        again,
        keeper,
        clock: HostClock::new(),
        code: output::GOOD,
        known: BTreeMap::new(),
        done: Session {
            event: "session",
            session,
            scans: Vec::new(),
            left: Vec::new(),
            bytes: 0,
            terms: Terms::default(),
        },
    };
    runner.introduce(&schedule);
    runner.carry_out(Agenda::new(schedule, args.lead))?;
    runner.conclude()
}

fn read(file: &Path, station: Option<&str>) -> anyhow::Result<Schedule> {
    let shown = file.display();
    let bytes = std::fs::metadata(file).with_context(|| format!("{shown}"))?.len();
    if bytes > LARGEST as u64 {
        bail!("{shown} has {bytes} bytes; a schedule has {LARGEST} at most");
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("{shown}"))?;
    Schedule::read(&text, station).map_err(explained).with_context(|| format!("{shown}"))
}

/// The session that was typed, or that the schedule names.
fn session_of(args: &Args, schedule: &Schedule) -> anyhow::Result<Name> {
    if !args.session.is_empty() {
        return Name::session(&args.session).context("--session");
    }
    let named = schedule.session.clone();
    named.context("the schedule names no session\n  give one with --session")
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
    Ok(Plan { scans, start: Some(scan.start), limit, goes_on_without, ..plan })
}

struct Runner<'a> {
    args: &'a Args,
    file: &'a Path,
    output: Output,
    control: Arc<Control>,
    again: Arc<AtomicBool>,
    keeper: Option<Keeper>,
    clock: HostClock,
    code: u8,
    /// What members were in the scans before.
    known: BTreeMap<PathBuf, Uuid>,
    done: Session,
}

impl Runner<'_> {
    fn introduce(&self, schedule: &Schedule) {
        schedule.notes.iter().for_each(|note| self.say(&format!("warning: {note}")));
        let (first, last) = (&schedule.scans[0], &schedule.scans[schedule.scans.len() - 1]);
        self.say(&format!(
            "{} of session {}, from {:.1} to {:.1}",
            count(schedule.scans.len(), "scan"),
            self.done.session,
            first.start,
            last.end
        ));
    }

    fn carry_out(&mut self, mut agenda: Agenda) -> anyhow::Result<()> {
        let mut reminded: Option<(Name, Instant)> = None;
        while self.control.asked() == 0 {
            if self.again.swap(false, Ordering::SeqCst) {
                self.read_again(&mut agenda);
                reminded = None;
            }
            if let Some(seconds) = self.clock.jumped() {
                self.say(&format!("warning: the host's clock jumped by {seconds:+.1} s"));
                reminded = None;
            }
            let now = Clock::new().now();
            match agenda.step(now) {
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
        self.done.left.extend(agenda.ahead().map(|scan| scan.name.clone()));
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

    fn missed(&mut self, scan: Planned) {
        self.code = output::FOUND;
        self.tell(&Told::Missed { scan: &scan.name, start: scan.start }, || {
            format!("warning: scan {} is missed: it was over at {:.1}", scan.name, scan.end)
        });
        self.done.scans.push(Outcome { scan: scan.name, start: scan.start, came: Came::Missed });
    }

    /// Records one scan. What goes wrong with it is told, and is no reason to end the session.
    fn record(&mut self, scan: Planned, late: Duration) -> anyhow::Result<()> {
        if !late.is_zero() {
            self.code = output::FOUND;
            self.say(&format!(
                "warning: scan {} is late: {:.1} s of it have passed",
                scan.name,
                late.as_secs_f64()
            ));
        }
        let plan = plan(self.args, &self.done.session, &scan, &self.known)?;
        let given = plan.members.clone();
        let mut screen = Screen::new(self.output, self.args.quiet)?;
        let mut sealed: Option<Sealed> = None;
        let mut begun = scan.start;
        let mut tell = |event: &Event| {
            match event {
                Event::Armed(armed) => begun = begun.max(armed.at),
                Event::Sealed(books) | Event::Unsealed { books, .. } => {
                    sealed = Some((**books).clone());
                }
                _ => {}
            }
            screen.event(event);
            tell_of(self.keeper.as_ref(), event, &mut screen);
        };
        let ended = Recorder::arm(plan, &mut tell)
            .and_then(|recorder| recorder.run(&self.control, &mut tell));
        screen.end();
        self.get_to_know(&given, sealed.as_ref());
        if ended.is_ok() && sealed.is_none() {
            // It was stopped before it began.
            self.done.left.push(scan.name);
            return Ok(());
        }
        let failure = ended.err().map(|error| explained(error).to_string());
        if let Some(why) = &failure {
            self.say(&format!("warning: scan {}: {why}", scan.name));
        }
        let came = self.enter(sealed, failure, begun.since(scan.start));
        self.done.scans.push(Outcome { scan: scan.name, start: scan.start, came });
        Ok(())
    }

    /// Remembers which members these are. The next scan takes no others in their places.
    fn get_to_know(&mut self, given: &[PathBuf], sealed: Option<&Sealed>) {
        let members = sealed.map_or(&[][..], |sealed| &sealed.manifest.members);
        for path in given {
            let root = path.canonicalize().unwrap_or_else(|_| path.clone());
            if let Some(member) = members.iter().find(|member| member.path == root) {
                self.known.insert(path.clone(), member.uuid);
            }
        }
    }

    /// Enters a scan that is over into the books of the session.
    fn enter(&mut self, sealed: Option<Sealed>, failure: Option<String>, late_ns: i64) -> Came {
        let mut terms = Terms::default();
        let mut bytes = 0;
        if let Some(sealed) = &sealed {
            self.code = self.code.max(judge(sealed));
            sealed.accounts.iter().for_each(|account| terms.add(&account.terms));
            bytes = sealed.manifest.bytes();
            self.done.terms.add(&terms);
            self.done.bytes += bytes;
        }
        if let Some(why) = failure {
            self.code = output::FOUND;
            return Came::Failed { why };
        }
        let verdict = sealed.and_then(|sealed| sealed.manifest.verdict());
        Came::Recorded { bytes, terms, verdict, late_seconds: late_ns as f64 / 1e9 }
    }

    fn read_again(&mut self, agenda: &mut Agenda) {
        let schedule = match read(self.file, self.args.station.as_deref()) {
            Ok(schedule) => schedule,
            Err(error) => {
                self.say(&format!("warning: the schedule stays as it was: {error:#}"));
                return;
            }
        };
        schedule.notes.iter().for_each(|note| self.say(&format!("warning: {note}")));
        let Changes { added, removed, too_late } = agenda.replace(schedule);
        let scans = agenda.ahead().len();
        let told = Told::Schedule { scans, added: &added, removed: &removed, too_late: &too_late };
        self.tell(&told, || {
            let mut text = format!("{} lie ahead", count(scans, "scan"));
            let kinds = [
                ("new or moved", &added),
                ("removed", &removed),
                ("over or begun, so left as they were", &too_late),
            ];
            for (what, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
                let names: Vec<&str> = names.iter().map(Name::as_str).collect();
                text += &format!("; {what}: {}", names.join(", "));
            }
            text
        });
    }

    /// The account of the session.
    fn conclude(mut self) -> anyhow::Result<ExitCode> {
        finish(self.keeper.take(), &mut Screen::new(self.output, true)?);
        if !self.done.left.is_empty() {
            self.code = self.code.max(output::FOUND);
        }
        // Nobody may be there to read it any more: every scan has its own account.
        let _ = self.output.tell(&self.done, || table(&self.done));
        Ok(ExitCode::from(self.code))
    }

    fn say(&self, text: &str) {
        if !self.output.json {
            line_to_stderr(text);
            return;
        }
        let event = match text.strip_prefix("warning: ") {
            Some(text) => Event::Warning { text: text.to_owned() },
            None => Event::Note { text: text.to_owned() },
        };
        // A reader who has gone does not end a session.
        let _ = self.output.tell(&event, String::new);
    }

    fn tell(&self, told: &Told<'_>, text: impl FnOnce() -> String) {
        match self.output.json {
            true => drop(self.output.tell(told, String::new)),
            false => line_to_stderr(&text()),
        }
    }
}

/// A line for people. A terminal that has gone away does not end a session.
fn line_to_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The host's clock beside one that no step moves.
struct HostClock(Clock);

impl HostClock {
    fn new() -> Self {
        Self(Clock::new())
    }

    /// Seconds that the host's clock has stepped since it was asked last, if any.
    fn jumped(&mut self) -> Option<f64> {
        let now = Clock::new();
        let step = now.now().since(self.0.now());
        (step.abs() >= JUMP_NS).then(|| {
            self.0 = now;
            step as f64 / 1e9
        })
    }
}

/// The session's scans, a line each, and their sum.
fn table(session: &Session) -> String {
    let width =
        session.scans.iter().map(|outcome| outcome.scan.as_str().len()).max().unwrap_or(4).max(5);
    let mut text = format!(
        "\n{:width$}  {:>10}  {:>12}  {:>9}  {:>9}  verdict\n",
        "scan", "bytes", "expected", "missing", "overrun"
    );
    for outcome in &session.scans {
        let row = match &outcome.came {
            Came::Recorded { bytes, terms, verdict, late_seconds } => {
                let verdict =
                    verdict.map_or("nothing came".to_owned(), |verdict| verdict.to_string());
                let late = match *late_seconds > 0.05 {
                    true => format!(", {late_seconds:.1} s late"),
                    false => String::new(),
                };
                line(*bytes, terms) + &format!("  {verdict}{late}")
            }
            Came::Failed { why } => format!("failed: {}", why.lines().next().unwrap_or("")),
            Came::Missed => "missed: it was over before it could be armed".to_owned(),
        };
        text += &format!("{:width$}  {row}\n", outcome.scan);
    }
    text += &format!("{:width$}  {}\n", "all", line(session.bytes, &session.terms));
    if !session.left.is_empty() {
        text +=
            &format!("{} still lay ahead when it was stopped\n", count(session.left.len(), "scan"));
    }
    text
}

fn line(bytes: u64, terms: &Terms) -> String {
    format!(
        "{:>10}  {:>12}  {:>9}  {:>9}",
        ByteSize(bytes).to_string(),
        terms.expected,
        terms.missing,
        terms.overrun
    )
}
