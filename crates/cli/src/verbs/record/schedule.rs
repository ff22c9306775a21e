//! `fullbore record --schedule FILE`: the scans of a session, each at its time, with nobody watching.
//!
//! Every scan is a recording of its own, armed ahead of its start and sealed before the next is armed, so
//! one that fails takes no other with it. One that cannot be armed is tried again until it is over. SIGHUP reads the
//! file again, also while a scan is recorded: what lies ahead is replaced.

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
use fullbore_engine::recorder::{Control, Event, Limit, Plan, RecordError, Recorder, Sealed};
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

/// The first time between two trials to arm a scan: what stood in the way may be gone at once …
const FIRST_TRIAL: Duration = Duration::from_millis(250);

/// … and the longest: so much of a scan is lost at most once it is gone.
const LONGEST_TRIAL: Duration = Duration::from_secs(5);

/// A scan that begins so long after its time is late, and one that ends so long before it was cut short.
const SHORT_NS: i64 = 250_000_000;

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
    Recorded {
        bytes: u64,
        terms: Terms,
        verdict: Option<Verdict>,
        late_seconds: f64,
        /// Before its end it was stopped, and lacks so much.
        #[serde(skip_serializing_if = "Option::is_none")]
        cut_short_seconds: Option<f64>,
    },
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
                read_again(self.args, self.file, &mut agenda).iter().for_each(|it| self.show(it));
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
                Step::Arm { scan, late } => self.record(scan, late, &mut agenda)?,
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
    fn record(&mut self, scan: Planned, late: Duration, agenda: &mut Agenda) -> anyhow::Result<()> {
        if !late.is_zero() {
            self.code = output::FOUND;
            self.say(&format!(
                "warning: scan {} is late: {:.1} s of it have passed",
                scan.name,
                late.as_secs_f64()
            ));
        }
        let mut screen = Screen::new(self.output, self.args.quiet)?;
        let (mut sealed, mut begun) = (None, scan.start);
        let mut trials = Trials::default();
        let ended = loop {
            let tried = self.try_once(&scan, agenda, &mut screen, &mut sealed, &mut begun);
            let Tried::NotArmed { why, passing } = tried else { break tried };
            let over = |this: &Self| Clock::new().now() >= scan.end || this.control.asked() > 0;
            if passing && !over(self) {
                if let Some(text) = trials.say(&scan, &why) {
                    screen.event(&Event::Warning { text });
                }
                self.pause(trials.wait(), scan.end, agenda, &mut screen);
            }
            if !passing || over(self) {
                break Tried::NotArmed { why, passing };
            }
        };
        screen.end();
        if matches!(ended, Tried::Ended { failure: None }) && sealed.is_none() {
            // It was stopped before it began.
            self.done.left.push(scan.name);
            return Ok(());
        }
        let failure = match ended {
            Tried::Ended { failure } => failure,
            Tried::NotArmed { why, .. } => Some(why),
        };
        if let Some(why) = &failure {
            self.say(&format!("warning: scan {}: {why}", scan.name));
        }
        let came = self.enter(sealed, failure, &scan, begun);
        self.done.scans.push(Outcome { scan: scan.name, start: scan.start, came });
        Ok(())
    }

    /// Arms a scan and records it, if that is possible now.
    fn try_once(
        &mut self,
        scan: &Planned,
        agenda: &mut Agenda,
        screen: &mut Screen,
        sealed: &mut Option<Sealed>,
        begun: &mut Tai,
    ) -> Tried {
        let (args, file, output) = (self.args, self.file, self.output);
        let plan = match plan(args, &self.done.session, scan, &self.known) {
            Ok(plan) => plan,
            Err(error) => return Tried::NotArmed { why: format!("{error:#}"), passing: true },
        };
        let given = plan.members.clone();
        let mut tell = |event: &Event| {
            match event {
                Event::Armed(armed) => *begun = (*begun).max(armed.at),
                Event::Sealed(books) | Event::Unsealed { books, .. } => {
                    *sealed = Some((**books).clone());
                }
                _ => {}
            }
            screen.event(event);
            tell_of(self.keeper.as_ref(), event, screen);
            if self.again.swap(false, Ordering::SeqCst) {
                let news = read_again(args, file, agenda);
                news.iter().for_each(|news| news.during(output, screen));
            }
        };
        let recorder = match Recorder::arm(plan, &mut tell) {
            Ok(recorder) => recorder,
            Err(error) => {
                let passing = !matches!(error, RecordError::ScanExists { .. });
                return Tried::NotArmed { why: explained(error).to_string(), passing };
            }
        };
        let ended = recorder.run(&self.control, &mut tell);
        self.get_to_know(&given, sealed.as_ref());
        Tried::Ended { failure: ended.err().map(|error| explained(error).to_string()) }
    }

    /// Waits before a scan is tried again, unless it is over by then or an end is asked for.
    fn pause(&self, wait: Duration, end: Tai, agenda: &mut Agenda, screen: &mut Screen) {
        let until = Instant::now() + wait;
        while Instant::now() < until && Clock::new().now() < end && self.control.asked() == 0 {
            if self.again.swap(false, Ordering::SeqCst) {
                let news = read_again(self.args, self.file, agenda);
                news.iter().for_each(|news| news.during(self.output, screen));
            }
            std::thread::sleep(LOOK.min(wait));
        }
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
    fn enter(
        &mut self,
        sealed: Option<Sealed>,
        failure: Option<String>,
        scan: &Planned,
        begun: Tai,
    ) -> Came {
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
        let lacks = sealed.as_ref().and_then(|sealed| sealed.manifest.stopped);
        let lacks = lacks.map(|stopped| scan.end.since(stopped)).filter(|&ns| ns > SHORT_NS);
        let late_ns = begun.since(scan.start);
        if lacks.is_some() || late_ns > SHORT_NS {
            self.code = output::FOUND;
        }
        Came::Recorded {
            bytes,
            terms,
            verdict: sealed.and_then(|sealed| sealed.manifest.verdict()),
            late_seconds: late_ns as f64 / 1e9,
            cut_short_seconds: lacks.map(|ns| ns as f64 / 1e9),
        }
    }

    /// Shows news while no scan is recorded.
    fn show(&self, news: &News) {
        match news {
            News::Warning(text) => self.say(&format!("warning: {text}")),
            News::Schedule { scans, changes } => {
                self.tell(&told(*scans, changes), || in_words(*scans, changes));
            }
        }
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

/// What came of a trial to record a scan.
enum Tried {
    /// It was armed, and is over.
    Ended { failure: Option<String> },
    /// It could not be armed; whether that may pass.
    NotArmed { why: String, passing: bool },
}

/// Trials to arm a scan: soon at first, and ever more rarely.
#[derive(Default)]
struct Trials {
    wait: Option<Duration>,
    said: Option<String>,
}

impl Trials {
    /// How long to wait before the next.
    fn wait(&mut self) -> Duration {
        let wait = self.wait.map_or(FIRST_TRIAL, |wait| (wait * 2).min(LONGEST_TRIAL));
        self.wait = Some(wait);
        wait
    }

    /// What is to be said of one that failed, unless that is known already.
    fn say(&mut self, scan: &Planned, why: &str) -> Option<String> {
        if self.said.as_deref() == Some(why) {
            return None;
        }
        self.said = Some(why.to_owned());
        Some(format!(
            "scan {} cannot be armed now, and is tried again until it is over at {:.1}: {why}",
            scan.name, scan.end
        ))
    }
}

/// What reading the schedule again has shown.
enum News {
    Warning(String),
    Schedule { scans: usize, changes: Changes },
}

impl News {
    /// Shows it while a scan is recorded.
    fn during(&self, output: Output, screen: &mut Screen) {
        match self {
            News::Warning(text) => screen.event(&Event::Warning { text: text.clone() }),
            // A reader who has gone does not end a session.
            News::Schedule { scans, changes } if output.json => {
                drop(output.tell(&told(*scans, changes), String::new));
            }
            News::Schedule { scans, changes } => {
                screen.event(&Event::Note { text: in_words(*scans, changes) });
            }
        }
    }
}

/// Reads the schedule again, and replaces what lies ahead.
fn read_again(args: &Args, file: &Path, agenda: &mut Agenda) -> Vec<News> {
    let schedule = match read(file, args.station.as_deref()) {
        Ok(schedule) => schedule,
        Err(error) => {
            return vec![News::Warning(format!("the schedule stays as it was: {error:#}"))];
        }
    };
    let mut news: Vec<News> = schedule.notes.iter().cloned().map(News::Warning).collect();
    let changes = agenda.replace(schedule);
    news.push(News::Schedule { scans: agenda.ahead().len(), changes });
    news
}

fn told(scans: usize, changes: &Changes) -> Told<'_> {
    let Changes { added, removed, too_late } = changes;
    Told::Schedule { scans, added, removed, too_late }
}

fn in_words(scans: usize, changes: &Changes) -> String {
    let Changes { added, removed, too_late } = changes;
    let mut text = format!("the schedule was read again: {} lie ahead", count(scans, "scan"));
    let kinds = [
        ("new or moved", added),
        ("removed", removed),
        ("over or begun, so left as they were", too_late),
    ];
    for (what, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        text += &format!("; {what}: {}", names.join(", "));
    }
    text
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
            Came::Recorded { bytes, terms, verdict, late_seconds, cut_short_seconds } => {
                let verdict =
                    verdict.map_or("nothing came".to_owned(), |verdict| verdict.to_string());
                let late = match *late_seconds > 0.05 {
                    true => format!(", {late_seconds:.1} s late"),
                    false => String::new(),
                };
                let short = cut_short_seconds
                    .map_or(String::new(), |lacks| format!(", CUT SHORT by {lacks:.1} s"));
                line(*bytes, terms) + &format!("  {verdict}{late}{short}")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn planned() -> Planned {
        Planned {
            name: "no1".parse().unwrap(),
            start: Tai(0),
            end: Tai(40_000_000_000),
            target: None,
        }
    }

    #[test]
    fn a_scan_that_was_cut_short_is_told_as_such_in_the_table() {
        let came = |cut_short_seconds| Came::Recorded {
            bytes: 1_000_000,
            terms: Terms { expected: 10, written: 10, ..Terms::default() },
            verdict: Some(Verdict::Proven),
            late_seconds: 0.0,
            cut_short_seconds,
        };
        let outcome =
            |name: &str, came| Outcome { scan: name.parse().unwrap(), start: Tai(0), came };
        let session = Session {
            event: "session",
            session: Name::session("day").unwrap(),
            scans: vec![outcome("no1", came(None)), outcome("no2", came(Some(12.34)))],
            left: Vec::new(),
            bytes: 0,
            terms: Terms::default(),
        };
        let table = table(&session);
        let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(row("no2").ends_with("proven, CUT SHORT by 12.3 s"), "{table}");
        assert!(row("no1").ends_with("proven"), "{table}");
        let json = serde_json::to_value(&session).unwrap();
        assert_eq!(json["scans"][1]["cut_short_seconds"], 12.34);
        assert!(json["scans"][0].get("cut_short_seconds").is_none());
    }

    #[test]
    fn trials_come_soon_at_first_and_say_what_is_new() {
        let mut trials = Trials::default();
        let waits: Vec<Duration> = (0..8).map(|_| trials.wait()).collect();
        assert_eq!((waits[0], waits[7]), (FIRST_TRIAL, LONGEST_TRIAL));
        assert!(waits.is_sorted());
        assert!(trials.say(&planned(), "in use").unwrap().contains("no1 cannot be armed now"));
        assert_eq!(trials.say(&planned(), "in use"), None);
        assert!(trials.say(&planned(), "no memory").is_some());
    }
}
