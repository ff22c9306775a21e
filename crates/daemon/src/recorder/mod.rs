//! Recordings: processes of their own, which the daemon starts, follows and ends.
//!
//! ```text
//! POST /recordings ──► fullbore record … (its own session) ──► named pipe ──► a thread ──► Life
//!                              ▲                                                            │
//!                              └── SIGUSR1; SIGINT and SIGTERM ◄── stop; abort     state, events, metrics
//! ```
//!
//! The daemon may die at any time: the recorder goes on, and the next daemon of the store finds its
//! [directory](folder::Folder) (`docs/decisions/0036-recorders-are-processes.md`).

pub mod folder;
pub mod life;
pub mod lines;
pub mod process;
pub mod report;
pub mod request;
mod told;
mod unsealed;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use self::folder::Folder;
use self::life::{Complaint, Ended, Input, Life, Phase};
use self::lines::Lines;
use self::process::Identity;
use self::report::Report;
use self::request::{RequestError, StartRequest};
use crate::output_log::{Follower, OutputLog};

/// Recordings that may run at once.
pub const MOST_ACTIVE: usize = 16;

/// Ended recordings that are remembered.
pub const MOST_ENDED: usize = 100;

/// Ended recordings whose output is kept.
const MOST_OUTPUTS: usize = 8;

/// How long a recorder that closed its output may take to leave the list of processes.
const UNTIL_GONE: Duration = Duration::from_secs(5);

/// The recordings of a store. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Recorders(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: PathBuf,
    /// The members, as `--store` takes them.
    store: String,
    folder: PathBuf,
    known: Mutex<BTreeMap<Uuid, Known>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Known {
    request: StartRequest,
    found: bool,
    process: Option<Identity>,
    /// The signals that this daemon has sent, a bit each. A recorder that one of them ended was not killed by others.
    sent: u64,
    life: Life,
    /// When this daemon learnt that it had ended.
    ended: Option<Instant>,
    log: OutputLog,
}

/// A recording, with what is known of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Recording {
    /// Its identity for this daemon.
    #[schema(value_type = String, format = "uuid")]
    pub id: Uuid,
    /// What was asked for.
    pub request: StartRequest,
    /// True if an earlier daemon started it, and this one found it.
    pub found: bool,
    /// The number of its process.
    pub pid: Option<i32>,
    /// What happened so far.
    #[serde(flatten)]
    pub life: Life,
    /// When this daemon learnt that it had ended.
    #[serde(skip)]
    pub ended: Option<Instant>,
}

/// A recording could not be started or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is refused.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Too many recordings run.
    #[error("{MOST_ACTIVE} recordings run already, which is the most")]
    Many,
    /// No such recording.
    #[error("there is no recording {id}")]
    Unknown {
        /// The identity.
        id: Uuid,
    },
    /// It has ended.
    #[error("recording {id} has ended")]
    Ended {
        /// The identity.
        id: Uuid,
    },
    /// The recorder refused.
    #[error("{}", .0.error)]
    Refused(Complaint),
    /// The process could not be started, or reached.
    #[error("the recorder's {what}")]
    System {
        /// What was done.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

impl Recorders {
    /// Finds the recorders that earlier daemons of this store started.
    pub fn find(program: PathBuf, store: String, folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let (known, changed) = (Mutex::default(), Condvar::new());
        let found = Self(Arc::new(Inner { program, store, folder, known, changed }));
        for (id, folder) in Folder::all(&found.0.folder)? {
            let output = match folder.open_to_read() {
                Ok(output) => output,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // The pipe was not made yet when its daemon died, so there is no recorder.
                    if let Err(error) = folder.remove() {
                        tracing::warn!(%id, %error, "the directory of no recorder stays");
                    }
                    continue;
                }
                Err(error) => {
                    // Its recorder may run, so the directory stays for the next daemon.
                    tracing::error!(%id, %error, "a recorder is not followed");
                    continue;
                }
            };
            let request = folder.request().unwrap_or_default();
            let process = folder.process();
            let mut life = Life::default();
            if folder.was_asked() {
                life.step(Input::Asked);
            }
            let (sent, ended, log) = (0, None, OutputLog::new(false));
            let known = Known { request, found: true, process, sent, life, ended, log };
            found.lock().insert(id, known);
            found.follow(id, folder, output, None);
        }
        Ok(found)
    }

    /// The program that records.
    pub fn program(&self) -> PathBuf {
        self.0.program.clone()
    }

    /// Starts a recorder for the sources of the request, and waits until it is armed, at most for this time. Returns the
    /// recording as it is then.
    pub fn start(&self, request: StartRequest, patience: Duration) -> Result<Recording, Error> {
        let endpoints = request.source.clone();
        self.start_with(request, &endpoints, None, patience)
    }

    /// The same with these endpoints in place of the sources. `schedule` is the file of its scans.
    pub fn start_with(
        &self,
        request: StartRequest,
        endpoints: &[String],
        schedule: Option<&Path>,
        patience: Duration,
    ) -> Result<Recording, Error> {
        request.check()?;
        let schedule = schedule.map(|path| path.to_string_lossy());
        let words = request.words(&self.0.store, endpoints, schedule.as_deref());
        let id = Uuid::now_v7();
        self.reserve(id, &request)?;
        if let Err(error) = self.launch(id, &request, &words) {
            self.lock().remove(&id);
            return Err(error);
        }
        let starting = |known: &mut BTreeMap<Uuid, Known>| {
            known.get(&id).is_some_and(|it| it.life.phase == Phase::Starting)
        };
        let waited = self.0.changed.wait_timeout_while(self.lock(), patience, starting);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let recording = self.get(id)?;
        match (&recording.life.phase, &recording.life.complaint) {
            (Phase::Ended, Some(complaint)) if recording.life.scan.is_none() => {
                self.lock().remove(&id);
                Err(Error::Refused(complaint.clone()))
            }
            _ => Ok(recording),
        }
    }

    /// Takes a place among the active ones.
    fn reserve(&self, id: Uuid, request: &StartRequest) -> Result<(), Error> {
        let mut known = self.lock();
        if known.values().filter(|it| it.life.is_active()).count() >= MOST_ACTIVE {
            return Err(Error::Many);
        }
        let (request, life, log) = (request.clone(), Life::default(), OutputLog::new(false));
        let (found, process, sent, ended) = (false, None, 0, None);
        known.insert(id, Known { request, found, process, sent, life, ended, log });
        Ok(())
    }

    fn launch(&self, id: Uuid, request: &StartRequest, words: &[String]) -> Result<(), Error> {
        let folder =
            Folder::make(&self.0.folder, id, request).map_err(failed("directory was not made"))?;
        let started = self.launch_in(&folder, words);
        let (child, process, output) = match started {
            Ok(started) => started,
            Err(error) => {
                // What could not be removed is found, and removed, by the next daemon.
                let _ = folder.remove();
                return Err(failed("process was not started")(error));
            }
        };
        if let Some(known) = self.lock().get_mut(&id) {
            known.process = Some(process);
        }
        self.follow(id, folder, output, Some(child));
        Ok(())
    }

    fn launch_in(&self, folder: &Folder, words: &[String]) -> io::Result<(Child, Identity, File)> {
        let output = folder.open_to_read()?;
        let mut command = Command::new(&self.0.program);
        let mut spectra = OsString::from("--spectra=");
        spectra.push(folder.spectra());
        // The words end with sources, so an option stands behind the verb.
        let (verb, options) = words.split_at(1);
        command.args(verb).arg(spectra).args(options).stdin(Stdio::null());
        command.stdout(folder.open_to_write()?).stderr(folder.errors()?);
        command.env("FULLBORE_EVENTS_WITH_TEXT", "1");
        // Only the daemon speaks to systemd.
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        let (mut child, process) = process::start(&mut command)?;
        if let Err(error) = folder.note(&process) {
            // A recorder that no later daemon could end does not stay. The first error is the one that matters.
            let _ = process.signal(Signal::INT);
            let _ = child.wait();
            return Err(error);
        }
        Ok((child, process, output))
    }

    /// Asks a recording to end: `stop` writes what is held, and can be repeated; `abort` drops it.
    pub fn ask(&self, id: Uuid, abort: bool) -> Result<Recording, Error> {
        let process = self.process(id)?;
        // A recorder that does not handle them yet is ended by them.
        self.note_sent(id, &[Signal::INT, Signal::TERM]);
        let asked = match abort {
            // The second request aborts. It is another signal, because the kernel merges those of one kind that wait
            // together.
            true => process.signal(Signal::INT).and_then(|_| process.signal(Signal::TERM)),
            false => process.stop(),
        };
        asked.map_err(failed("process takes no signal"))?;
        self.take(id, Input::Asked);
        // For the next daemon. The directory of a recorder that has ended is gone.
        match Folder::of(&self.0.folder, id).note_asked() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%id, %error, "the next daemon will not know that the recording was stopped");
            }
            _ => {}
        }
        self.get(id)
    }

    /// The socket of live spectra of a recording that runs.
    pub fn spectra(&self, id: Uuid) -> Result<PathBuf, Error> {
        match self.get(id)?.life.is_active() {
            true => Ok(Folder::of(&self.0.folder, id).spectra()),
            false => Err(Error::Ended { id }),
        }
    }

    /// Sends a signal to the process of a recording.
    pub fn signal(&self, id: Uuid, signal: Signal) -> Result<(), Error> {
        let process = self.process(id)?;
        self.note_sent(id, &[signal]);
        process.signal(signal).map(drop).map_err(failed("process takes no signal"))
    }

    fn note_sent(&self, id: Uuid, signals: &[Signal]) {
        if let Some(known) = self.lock().get_mut(&id) {
            signals.iter().for_each(|signal| known.sent |= bit(signal.as_raw()));
        }
    }

    fn process(&self, id: Uuid) -> Result<Identity, Error> {
        let mut known = self.lock();
        let known = known.get_mut(&id).ok_or(Error::Unknown { id })?;
        if !known.life.is_active() {
            return Err(Error::Ended { id });
        }
        // The daemon that started it may have died before the process had its output.
        let look = || Folder::of(&self.0.folder, id).process();
        known.process = known.process.take().or_else(look);
        known.process.clone().ok_or(Error::System {
            what: "process is not known: end it with `kill`",
            source: io::ErrorKind::NotFound.into(),
        })
    }

    /// The newest recording of a schedule: one that runs before those that have ended.
    pub fn of_schedule(&self, name: &str) -> Option<Recording> {
        let known = self.lock();
        let of = known.iter().filter(|(_, it)| it.request.schedule.as_deref() == Some(name));
        let newest = of.max_by_key(|(id, it)| (it.life.is_active(), **id));
        newest.map(|(id, it)| it.shown(*id))
    }

    /// One recording.
    pub fn get(&self, id: Uuid) -> Result<Recording, Error> {
        let known = self.lock();
        known.get(&id).map(|known| known.shown(id)).ok_or(Error::Unknown { id })
    }

    /// All recordings: the newest first.
    pub fn all(&self) -> Vec<Recording> {
        self.lock().iter().rev().map(|(id, known)| known.shown(*id)).collect()
    }

    /// Follows a recorder, on a thread, until it is gone.
    fn follow(&self, id: Uuid, folder: Folder, output: File, child: Option<Child>) {
        let recorders = self.clone();
        let name = "recorder".to_owned();
        let follow = move || {
            let read = recorders.read(id, output);
            if let Err(error) = read {
                tracing::warn!(%id, %error, "the recorder's output cannot be read");
            }
            recorders.end(id, &folder, child);
        };
        if let Err(error) = thread::Builder::new().name(name).spawn(follow) {
            tracing::error!(%id, %error, "no thread follows the recorder");
        }
    }

    fn read(&self, id: Uuid, mut output: File) -> io::Result<()> {
        // It was opened without waiting for a writer; from now on reads wait.
        let flags = fcntl_getfl(&output)?;
        fcntl_setfl(&output, flags - OFlags::NONBLOCK)?;
        let (mut lines, mut buffer) = (Lines::default(), vec![0; 64 << 10]);
        let log = self.lock().get(&id).map(|known| known.log.clone());
        loop {
            let bytes = match output.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            lines.feed(&buffer[..bytes], |line| {
                log.as_ref().inspect(|log| log.put_line(&(String::from_utf8_lossy(line) + "\n")));
                if let Some(report) = Report::of_line(line) {
                    self.take(id, Input::Said(report));
                }
            });
        }
    }

    /// Waits for the end of a recorder that closed its output, and removes its directory.
    fn end(&self, id: Uuid, folder: &Folder, child: Option<Child>) {
        let mut killed = None;
        let code = match child {
            Some(mut child) => {
                let status = child.wait().ok();
                killed = status.and_then(|status| status.signal());
                status.and_then(|status| status.code())
            }
            None => {
                let until = Instant::now() + UNTIL_GONE;
                while folder.process().is_some() && Instant::now() < until {
                    thread::sleep(Duration::from_millis(20));
                }
                None
            }
        };
        let sent = self.lock().get(&id).map_or(0, |known| known.sent);
        let by_others = killed.filter(|signal| sent & bit(*signal) == 0);
        let complaint = folder.complaint().or(by_others.map(Complaint::of_signal));
        let is_known = code.or(killed).is_some();
        let complaint = complaint.or_else(|| if is_known { None } else { self.unsealed(id) });
        if let Err(error) = folder.remove() {
            tracing::warn!(%id, %error, "the directory of an ended recorder stays");
        }
        let complained = complaint.clone();
        self.take(id, Input::Gone { code, complaint });
        self.end_output(id, code, complained.as_ref());
        self.forget();
    }

    /// What the store says of a recorder whose exit code is not known.
    fn unsealed(&self, id: Uuid) -> Option<Complaint> {
        let known = self.lock().get(&id).map(|it| (it.request.clone(), it.life.clone()));
        known.and_then(|(request, life)| unsealed::complaint(&self.0.store, &request, &life))
    }

    /// Follows what a recorder prints: its lines, and at the end [`life::Ended`].
    pub fn follow_output(&self, id: Uuid) -> Result<Follower, Error> {
        let known = self.lock();
        known.get(&id).map(|known| known.log.follow()).ok_or(Error::Unknown { id })
    }

    /// Tells followers that the recorder is gone.
    fn end_output(&self, id: Uuid, exit_code: Option<i32>, complaint: Option<&Complaint>) {
        let Some(log) = self.lock().get(&id).map(|known| known.log.clone()) else { return };
        let ended = Ended { event: "ended", exit_code, complaint };
        // Texts and numbers always become JSON.
        log.put_line(&(serde_json::to_string(&ended).unwrap_or_default() + "\n"));
        log.end();
    }

    /// Forgets those that ended first, and before that what they printed.
    fn forget(&self) {
        let mut known = self.lock();
        let ended = known.iter().filter_map(|(id, it)| Some((it.ended?, *id)));
        let mut ended: Vec<(Instant, Uuid)> = ended.collect();
        ended.sort();
        for (_, id) in ended.iter().take(ended.len().saturating_sub(MOST_ENDED)) {
            known.remove(id);
        }
        for (_, id) in ended.iter().rev().skip(MOST_OUTPUTS) {
            known.get(id).inspect(|it| it.log.keep_last());
        }
    }

    fn take(&self, id: Uuid, input: Input) {
        let said = told::of(&input);
        if let Some(known) = self.lock().get_mut(&id) {
            known.life.step(input);
            if !known.life.is_active() {
                known.ended.get_or_insert_with(Instant::now);
            }
        }
        if let Some(said) = said {
            said.log(id);
        }
        self.0.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Known>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bit of a signal.
fn bit(signal: i32) -> u64 {
    1_u64.checked_shl(signal.unsigned_abs()).unwrap_or(0)
}

impl Known {
    fn shown(&self, id: Uuid) -> Recording {
        let Self { request, found, process, life, ended, .. } = self;
        let pid = process.as_ref().map(|it| it.pid).filter(|_| life.is_active());
        let (request, life) = (request.clone(), life.clone());
        Recording { id, request, found: *found, pid, life, ended: *ended }
    }
}

#[cfg(test)]
mod tests;
