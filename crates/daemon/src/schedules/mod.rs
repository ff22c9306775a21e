//! Schedules: each is recorded by one recorder process, which is started again if it dies while scans lie ahead.
//!
//! ```text
//! PUT /schedules/NAME, station file ──► schedules/NAME/{options.json, scans} ──► fullbore record --schedule …/scans
//!                                            │ once a second: duty                     ▲ SIGHUP: the scans were replaced
//!                                            └──────────── start, forget ──────────────┘ SIGINT: cancelled
//! ```
//!
//! The recorder has the schedule, and needs no daemon to record it. The directory says what is wanted. So a daemon that
//! is killed loses no scan, and one that starts after a power cut begins the rest.

pub mod duty;
mod folder;
pub mod outlook;
pub mod timeline;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fullbore_core::hint::{Hint, with_causes};
use fullbore_core::name::Name;
use fullbore_core::schedule::{self, Planned, Schedule};
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use self::duty::{Duty, Recorder, Starts};
use self::folder::Folder;
use crate::recorder::life::Phase;
use crate::recorder::request::{RequestError, StartRequest};
use crate::recorder::{self, Recorders, Recording};
use crate::settings::{Current, InputError};
use crate::station_file::FileSchedule;

/// Schedules at once.
pub const MOST_SCHEDULES: usize = 64;

/// Scans ahead that are shown of a schedule.
const SHOWN: usize = 20;

/// Scans ahead that the state of the station shows, of all schedules.
const SHOWN_OF_ALL: usize = 10;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// How a schedule is recorded. Values are texts in the notation of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schema(rename_all = "kebab-case")]
pub struct Options {
    /// The inputs (`input:NAME`) or endpoints.
    pub source: Vec<String>,
    /// The session. Without it: that of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// For VEX: the station whose scans are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub station: Option<String>,
    /// The time before its start at which a scan is armed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<String>,
    /// Block memory of all sources together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<String>,
    /// The size of chunk files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<String>,
    /// `mirror`, or `parity:K+M`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<String>,
}

impl Options {
    /// Checks the values, as far as the daemon knows them. The recorder checks the rest.
    pub fn check(&self) -> Result<(), RequestError> {
        self.request("schedule", self.session.as_deref().unwrap_or("session")).check()
    }

    /// The request of its recorder.
    fn request(&self, name: &str, session: &str) -> StartRequest {
        StartRequest {
            source: self.source.clone(),
            session: session.to_owned(),
            schedule: Some(name.to_owned()),
            station: self.station.clone(),
            lead: self.lead.clone(),
            buffer: self.buffer.clone(),
            chunk: self.chunk.clone(),
            redundancy: self.redundancy.clone(),
            ..StartRequest::default()
        }
    }
}

/// The state of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its recorder is going to be started, also again.
    Starting,
    /// Its recorder runs.
    Running,
    /// It was cancelled, or its recorder was stopped, and no recorder runs. It is forgotten when its last scan is past.
    Cancelled,
}

/// A schedule, with what is known of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Scheduled {
    /// Its name.
    pub name: String,
    /// The session of its scans.
    pub session: String,
    /// How it is recorded.
    pub options: Options,
    /// True if it is in the file of the station.
    pub of_file: bool,
    /// Its state.
    pub state: State,
    /// Its newest recording.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub recording: Option<Uuid>,
    /// The number of its scans.
    pub scans: usize,
    /// The number of those that are not over.
    pub ahead: usize,
    /// The first of those that are not over.
    pub next: Vec<NextScan>,
    /// Why its recorder does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A scan that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NextScan {
    /// The schedule.
    pub schedule: String,
    /// The session.
    pub session: String,
    /// The scan.
    pub scan: String,
    /// Its start.
    #[schema(value_type = String)]
    pub start: Tai,
    /// Its end.
    #[schema(value_type = String)]
    pub end: Tai,
    /// What is observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// All scans of a schedule.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// The name of the schedule.
    pub name: String,
    /// The session.
    pub session: String,
    /// The scans.
    pub scans: Schedule,
    /// The endpoints that are recorded; none if an input is gone.
    pub endpoints: Vec<String>,
    /// The time before its start at which a scan is armed.
    pub lead: Duration,
    /// True if it was cancelled.
    pub cancelled: bool,
}

/// A schedule is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is none.
    #[error("the name of a schedule: {0}")]
    Name(#[from] fullbore_core::name::Error),
    /// There are too many.
    #[error("there are {MOST_SCHEDULES} schedules already, which is the most")]
    Many,
    /// No such schedule.
    #[error("there is no schedule {name}")]
    Unknown {
        /// Its name.
        name: String,
    },
    /// The text is no schedule.
    #[error("the text is no schedule")]
    Scans(#[from] schedule::Error),
    /// Neither the text nor the options name a session.
    #[error("the schedule names no session")]
    NoSession,
    /// All of it is past.
    #[error("all scans of the schedule are past: the last one ended at {end:.0}")]
    Past {
        /// The end.
        end: Tai,
    },
    /// An option is wrong.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A source is no input.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It runs with other options.
    #[error(
        "schedule {name} runs with other options, and only its scans can be replaced meanwhile"
    )]
    Differs {
        /// Its name.
        name: String,
    },
    /// It was cancelled, and its recorder still runs.
    #[error("the recorder of schedule {name} is ending, because it was cancelled")]
    Ends {
        /// Its name.
        name: String,
    },
    /// Its directory.
    #[error("the directory of the schedule: {what}")]
    Folder {
        /// What was done.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// Its recorder.
    #[error(transparent)]
    Recorder(#[from] recorder::Error),
}

impl Hint for Error {
    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        match self {
            Self::Scans(error) => error.hint(),
            Self::NoSession => Some("add `session` to the request".into()),
            Self::Differs { .. } => Some("cancel it first; its running scan is sealed then".into()),
            Self::Ends { .. } => Some("try again when its scan is sealed".into()),
            _ => None,
        }
    }
}

/// The schedules. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Schedules(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    recorders: Recorders,
    settings: Current,
    known: Mutex<BTreeMap<String, Known>>,
}

/// A schedule that is wanted.
#[derive(Debug)]
struct Known {
    wanted: folder::Wanted,
    session: String,
    scans: Schedule,
    starts: Starts,
    problem: Option<String>,
    /// Its recordings come after this one. Earlier ones are those of a schedule of the same name.
    since: Uuid,
}

impl Known {
    fn end(&self) -> Tai {
        let last = self.scans.scans.iter().map(|scan| scan.end).max();
        last.unwrap_or(Tai::from_unix_ns(0))
    }
}

fn at(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Folder { what, source }
}

impl Schedules {
    /// Reads those that earlier daemons took. One that cannot be read is reported in the log, and stays.
    pub fn open(folder: PathBuf, recorders: Recorders, settings: Current) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let mut known = BTreeMap::new();
        for (name, folder) in Folder::all(&folder)? {
            match folder
                .read()
                .map_err(at("reading it"))
                .and_then(|(wanted, text)| taken(wanted, &text))
            {
                Ok(one) => drop(known.insert(name, one)),
                Err(error) => {
                    tracing::error!(schedule = name, error = %with_causes(&error), "a schedule is not recorded");
                }
            }
        }
        let known = Mutex::new(known);
        Ok(Self(Arc::new(Inner { folder, recorders, settings, known })))
    }

    /// Looks after the recorders, on a thread, as long as the process runs.
    pub fn keep(&self) -> io::Result<()> {
        let schedules = self.clone();
        let keep = move || loop {
            schedules.look(Clock::new().now());
            thread::sleep(LOOK);
        };
        thread::Builder::new().name("schedules".into()).spawn(keep).map(drop)
    }

    /// Takes a schedule, or other scans of one that is there. Returns true if it is new.
    pub fn put(
        &self,
        name: &str,
        options: Options,
        text: &str,
        of_file: bool,
    ) -> Result<bool, Error> {
        let name = name.parse::<Name>()?.to_string();
        let fresh = self.checked(options, text, of_file)?;
        let mut known = self.lock();
        let running = self.0.recorders.of_schedule(&name).filter(|it| it.life.is_active());
        let before = known.get(&name);
        if running.is_some() && before.is_some_and(|before| before.wanted.cancelled) {
            return Err(Error::Ends { name });
        }
        if before.is_none() && known.len() >= MOST_SCHEDULES {
            return Err(Error::Many);
        }
        let is_other = before.is_none_or(|before| {
            before.wanted.options != fresh.wanted.options || before.session != fresh.session
        });
        if is_other && running.is_some() {
            return Err(Error::Differs { name });
        }
        let is_new = before.is_none();
        let folder = Folder::of(&self.0.folder, &name);
        folder.write(&fresh.wanted, text.as_bytes()).map_err(at("writing it"))?;
        let since = known.get(&name).filter(|_| running.is_some()).map(|before| before.since);
        let since = since.unwrap_or_else(Uuid::now_v7);
        known.insert(name, Known { since, ..fresh });
        if let Some(recording) = running
            && let Err(error) = self.0.recorders.signal(recording.id, Signal::HUP)
        {
            // It has ended just now, and the next one reads the new scans.
            tracing::info!(%error, "the recorder does not read the schedule again");
        }
        Ok(is_new)
    }

    /// Checks a schedule as [`Self::put`] does, and keeps nothing.
    pub fn check(&self, name: &str, options: Options, text: &str) -> Result<Agenda, Error> {
        let name = name.parse::<Name>()?.to_string();
        let fresh = self.checked(options, text, false)?;
        Ok(self.agenda(&name, &fresh))
    }

    fn checked(&self, options: Options, text: &str, of_file: bool) -> Result<Known, Error> {
        options.check()?;
        let request = StartRequest { source: options.source.clone(), ..StartRequest::default() };
        self.0.settings.get().endpoints(&request)?;
        let wanted = folder::Wanted { options, of_file, cancelled: false };
        let fresh = taken(wanted, text.as_bytes())?;
        match fresh.end() {
            end if end <= Clock::new().now() => Err(Error::Past { end }),
            _ => Ok(fresh),
        }
    }

    /// All scans of all schedules.
    pub fn agendas(&self) -> Vec<Agenda> {
        self.lock().iter().map(|(name, one)| self.agenda(name, one)).collect()
    }

    fn agenda(&self, name: &str, one: &Known) -> Agenda {
        let options = &one.wanted.options;
        let request = StartRequest { source: options.source.clone(), ..StartRequest::default() };
        Agenda {
            name: name.to_owned(),
            session: one.session.clone(),
            scans: one.scans.clone(),
            endpoints: self.0.settings.get().endpoints(&request).unwrap_or_default(),
            lead: outlook::lead_of(options.lead.as_deref()),
            cancelled: one.wanted.cancelled,
        }
    }

    /// Cancels a schedule: its running scan is sealed, and those ahead are not recorded.
    pub fn cancel(&self, name: &str) -> Result<Scheduled, Error> {
        let mut known = self.lock();
        let one = known.get_mut(name).ok_or_else(|| Error::Unknown { name: name.to_owned() })?;
        one.wanted.cancelled = true;
        let folder = Folder::of(&self.0.folder, name);
        folder.note(&one.wanted).map_err(at("writing it"))?;
        if let Some(recording) = self.newest(name, one).filter(|it| it.life.is_active()) {
            match self.0.recorders.ask(recording.id, false) {
                // It has ended just now.
                Ok(_) | Err(recorder::Error::Ended { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        drop(known);
        self.get(name)
    }

    /// Makes the schedules of the station's file those that are wanted. Returns what could not be done.
    pub fn take_over(&self, listed: &[FileSchedule]) -> Vec<String> {
        let mut problems = Vec::new();
        for FileSchedule { name, file, options } in listed {
            let text = match read_bounded(file, schedule::LARGEST as u64) {
                Ok(text) => text,
                Err(error) => {
                    problems.push(format!("schedule {name}: {}: {error}", file.display()));
                    continue;
                }
            };
            // A schedule that was cancelled stays so until its file changes.
            let same = Folder::of(&self.0.folder, name).read().is_ok_and(|(wanted, before)| {
                before == text && wanted.options == *options && wanted.of_file
            });
            if same && self.lock().contains_key(name) {
                continue;
            }
            let text = String::from_utf8_lossy(&text);
            match self.put(name, options.clone(), &text, true) {
                Ok(_) => {}
                Err(Error::Past { .. }) => tracing::info!(schedule = name, "all scans are past"),
                Err(error) => problems.push(format!("schedule {name}: {}", with_causes(&error))),
            }
        }
        let gone: Vec<String> = self
            .lock()
            .iter()
            .filter(|(name, it)| {
                it.wanted.of_file
                    && !it.wanted.cancelled
                    && !listed.iter().any(|one| one.name == **name)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Err(error) = self.cancel(&name) {
                problems.push(format!("schedule {name}: {}", with_causes(&error)));
            }
        }
        problems
    }

    /// One schedule.
    pub fn get(&self, name: &str) -> Result<Scheduled, Error> {
        let now = Clock::new().now();
        let known = self.lock();
        let one = known.get(name).ok_or_else(|| Error::Unknown { name: name.to_owned() })?;
        Ok(self.shown(name, one, now))
    }

    /// All schedules, by name.
    pub fn all(&self) -> Vec<Scheduled> {
        let now = Clock::new().now();
        self.lock().iter().map(|(name, one)| self.shown(name, one, now)).collect()
    }

    /// The next scans of all schedules that are not cancelled.
    pub fn next(&self) -> Vec<NextScan> {
        let now = Clock::new().now();
        let known = self.lock();
        let wanted = known.iter().filter(|(_, one)| !one.wanted.cancelled);
        let mut next: Vec<NextScan> =
            wanted.flat_map(|(name, one)| ahead(name, one, now).take(SHOWN_OF_ALL)).collect();
        next.sort_by_key(|scan| scan.start);
        next.truncate(SHOWN_OF_ALL);
        next
    }

    fn shown(&self, name: &str, one: &Known, now: Tai) -> Scheduled {
        let newest = self.newest(name, one);
        let runs = newest.as_ref().is_some_and(|it| it.life.is_active());
        let state = match (runs, one.wanted.cancelled) {
            (true, _) => State::Running,
            (false, true) => State::Cancelled,
            (false, false) => State::Starting,
        };
        let died =
            newest.as_ref().and_then(|it| it.life.complaint.as_ref()).map(|it| it.error.clone());
        let problem = one.problem.clone().or(died).filter(|_| state == State::Starting);
        Scheduled {
            name: name.to_owned(),
            session: one.session.clone(),
            options: one.wanted.options.clone(),
            of_file: one.wanted.of_file,
            state,
            recording: newest.map(|it| it.id),
            scans: one.scans.scans.len(),
            ahead: ahead(name, one, now).count(),
            next: ahead(name, one, now).take(SHOWN).collect(),
            problem,
        }
    }

    /// Does what is due.
    fn look(&self, now: Tai) {
        let mut known = self.lock();
        let mut done = Vec::new();
        for (name, one) in known.iter_mut() {
            let newest = self.newest(name, one);
            self.end_if_cancelled(name, one, newest.as_ref());
            let recorder = match &newest {
                None => Recorder::None,
                Some(it) if it.life.is_active() => Recorder::Runs,
                Some(it) if it.life.is_session_over() => Recorder::Finished,
                Some(_) => Recorder::Died,
            };
            match one.starts.duty(now, one.end(), one.wanted.cancelled, recorder) {
                Duty::Nothing => {}
                Duty::Start => {
                    one.starts.started(now);
                    one.problem = self.start(name, one).err().map(|error| with_causes(&error));
                    if let Some(problem) = &one.problem {
                        tracing::error!(schedule = name, problem, "a schedule is not recorded");
                    }
                }
                Duty::Cancel => {
                    one.wanted.cancelled = true;
                    if let Err(error) = Folder::of(&self.0.folder, name).note(&one.wanted) {
                        tracing::warn!(schedule = name, %error, "its end is not noted");
                    }
                }
                Duty::Forget => done.push(name.clone()),
            }
        }
        for name in done {
            if let Err(error) = Folder::of(&self.0.folder, &name).remove() {
                tracing::warn!(schedule = name, %error, "the directory of a finished schedule stays");
            }
            known.remove(&name);
        }
    }

    /// Ends the recorder of a cancelled schedule, whose daemon may have died before it asked.
    fn end_if_cancelled(&self, name: &str, one: &Known, newest: Option<&Recording>) {
        let is_asked = |it: &&Recording| it.life.phase >= Phase::Stopping;
        let Some(recording) = newest.filter(|it| one.wanted.cancelled && !is_asked(it)) else {
            return;
        };
        if let Err(error) = self.0.recorders.ask(recording.id, false) {
            tracing::warn!(schedule = name, %error, "the recorder of a cancelled schedule runs");
        }
    }

    fn start(&self, name: &str, one: &Known) -> Result<(), Error> {
        let request = one.wanted.options.request(name, &one.session);
        let endpoints = self.0.settings.get().endpoints(&request)?;
        let file = Folder::of(&self.0.folder, name).scans();
        // It is not waited for: other schedules are due as well.
        self.0.recorders.start_with(request, &endpoints, Some(&file), Duration::ZERO)?;
        Ok(())
    }

    /// The newest recording of a schedule; one that runs before others.
    fn newest(&self, name: &str, one: &Known) -> Option<Recording> {
        let newest = self.0.recorders.of_schedule(name);
        newest.filter(|it| it.life.is_active() || it.id > one.since)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn taken(wanted: folder::Wanted, text: &[u8]) -> Result<Known, Error> {
    let scans = Schedule::read_bytes(text, wanted.options.station.as_deref())?;
    let session = match &wanted.options.session {
        Some(session) => Name::session(session)?,
        None => scans.session_name()?.ok_or(Error::NoSession)?,
    };
    let (session, since) = (session.to_string(), Uuid::nil());
    Ok(Known { wanted, session, scans, starts: Starts::default(), problem: None, since })
}

/// The scans that are not over.
fn ahead<'a>(name: &'a str, one: &'a Known, now: Tai) -> impl Iterator<Item = NextScan> + 'a {
    let scans = one.scans.scans.iter().filter(move |scan| scan.end > now);
    scans.map(move |Planned { name: scan, start, end, target }| NextScan {
        schedule: name.to_owned(),
        session: one.session.clone(),
        scan: scan.to_string(),
        start: *start,
        end: *end,
        target: target.clone(),
    })
}

/// Reads a file of at most so many bytes.
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {most} bytes"),
        )),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests;
