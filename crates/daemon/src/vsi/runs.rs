//! The recordings of VSI-S: a thread for each starts its recorder, ends it, and notes what became of it.
//!
//! `vsi.json` in the directory of the station names the recordings, those that end as well, so that the next daemon
//! answers `record?` and `record=off` for them, and ends what was asked to end. It is written before a recorder is
//! started: a recorder that is not in it yet is found by its scan.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fullbore_core::hint::with_causes;
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use fullbore_vsi::station::{Activity, Ended, Phase, Plan, Problem, Running, StoredScan, Traffic};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::scans::Index;
use crate::recorder::life::{self, Life};
use crate::recorder::request::StartRequest;
use crate::recorder::{Recorders, Recording};

/// Time between two looks at a recorder. It reports five times a second.
const LOOK: Duration = Duration::from_millis(20);

/// Recordings that may be ending at once, while a client begins others.
const MOST_ENDING: usize = 8;

/// Problems that wait for a client to take them.
const MOST_PROBLEMS: usize = 200;

/// The most bytes of `vsi.json` that are read.
const LONGEST_FILE: u64 = 1 << 20;

/// The recordings. Clones are handles of the same.
#[derive(Clone, Debug)]
pub(super) struct Runs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recorders: Recorders,
    index: Index,
    file: PathBuf,
    /// Held while the file is written, so that the newest state is written last.
    writing: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<String, Shared>,
    /// Recordings that are being stopped, while their runtime begins the next one.
    ending: Vec<Shared>,
    count: u64,
    problems: Vec<Problem>,
}

/// A recording, which its thread and the clients share.
type Shared = Arc<Mutex<Run>>;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    asked: String,
    scan: String,
    number: u64,
    /// Its recorder, once it is started.
    id: Option<Uuid>,
    is_stop_asked: bool,
    #[serde(skip)]
    ended: Option<(Tai, Option<String>)>,
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Noted {
    count: u64,
    runs: BTreeMap<String, Run>,
    #[serde(default)]
    ending: Vec<Run>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runs {
    /// Finds the recordings of the last daemon that still run.
    pub(super) fn open(recorders: Recorders, index: Index, file: PathBuf) -> io::Result<Self> {
        let noted = read(&file);
        let state = Mutex::new(State { count: noted.count, ..State::default() });
        let runs =
            Self(Arc::new(Inner { recorders, index, file, writing: Mutex::default(), state }));
        let named = noted.runs.into_iter().map(|(runtime, run)| (Some(runtime), run));
        for (runtime, run) in named.chain(noted.ending.into_iter().map(|run| (None, run))) {
            // A recorder that has ended is followed as well: how it ended may be a problem to tell.
            let Some(id) = runs.recorder_of(&run) else {
                if run.id.is_none() && !run.is_stop_asked {
                    runs.report(format!("{} was not begun, the daemon ended before", run.scan));
                }
                continue;
            };
            let run = Arc::new(Mutex::new(Run { id: Some(id), ..run }));
            let mut state = locked(&runs.0.state);
            match runtime {
                Some(runtime) => drop(state.runs.insert(runtime, run.clone())),
                None => state.ending.push(run.clone()),
            }
            drop(state);
            runs.spawn(move |runs| runs.follow(&run))?;
        }
        Ok(runs)
    }

    /// The recorder of a run, if it is known. The daemon that noted the run may have died before it knew which.
    fn recorder_of(&self, run: &Run) -> Option<Uuid> {
        let (session, scan) = run.scan.split_once('_')?;
        let is_meant = |it: &Recording| match run.id {
            Some(id) => it.id == id,
            None => it.request.session == session && it.request.scan == scan,
        };
        self.0.recorders.all().iter().find(|it| is_meant(it)).map(|it| it.id)
    }

    /// Begins a recording. What fails from now on is a problem of the recording.
    pub(super) fn start(&self, runtime: &str, plan: Plan) -> Result<(), String> {
        let mut state = locked(&self.0.state);
        let previous = state.runs.get(runtime).cloned();
        state.ending.retain(|it| locked(it).ended.is_none());
        if state.ending.len() >= MOST_ENDING {
            return Err(format!("{MOST_ENDING} recordings are still being ended"));
        }
        let number = state.count + 1;
        let (asked, scan, id) = (plan.asked.clone(), plan.scan.clone(), None);
        let run = Run { asked, scan, number, id, is_stop_asked: false, ended: None };
        let run = Arc::new(Mutex::new(run));
        let (work, before) = (run.clone(), previous.clone());
        // It begins with the state, so it waits until this returns.
        self.spawn(move |runs| {
            runs.note();
            match before.is_none_or(|it| until_ended(&it, &work)) {
                true => runs.record(&work, plan),
                false => runs.finish(&work, Some("it was stopped before it began".to_owned()), 0),
            }
        })
        .map_err(|error| format!("no thread, {error}"))?;
        state.count = number;
        state.runs.insert(runtime.to_owned(), run);
        state.ending.extend(previous.filter(|it| locked(it).ended.is_none()));
        Ok(())
    }

    /// Asks a recording to end.
    pub(super) fn stop(&self, runtime: &str) {
        if let Some(run) = locked(&self.0.state).runs.get(runtime) {
            locked(run).is_stop_asked = true;
        }
    }

    /// What the recording of a runtime does.
    pub(super) fn activity(&self, runtime: &str) -> Activity {
        let run = locked(&self.0.state).runs.get(runtime).cloned();
        let Some(run) = run.map(|it| locked(&it).clone()) else {
            return Activity::Idle { last: None };
        };
        let Run { asked, scan, number, id, is_stop_asked, ended } = run;
        if let Some((at, problem)) = ended {
            let was_stopped = is_stop_asked;
            return Activity::Idle { last: Some(Ended { asked, scan, at, was_stopped, problem }) };
        }
        let life = id.and_then(|id| self.0.recorders.get(id).ok()).map(|it| it.life);
        let begins = life.as_ref().and_then(|it| it.begins);
        let phase = match life.as_ref().map(|it| it.phase) {
            _ if is_stop_asked => Phase::Stopping,
            // The planned start is awaited.
            Some(life::Phase::Armed) if begins > Some(Clock::new().now()) => Phase::Starting,
            None | Some(life::Phase::Starting | life::Phase::Waiting) => Phase::Starting,
            Some(life::Phase::Armed | life::Phase::Recording) => Phase::On,
            Some(life::Phase::Stopping | life::Phase::Ended) => Phase::Stopping,
        };
        let traffic = life.as_ref().map(traffic).unwrap_or_default();
        Activity::Running(Running { asked, scan, number, phase, traffic })
    }

    /// What went wrong since the last call.
    pub(super) fn problems(&self) -> Vec<Problem> {
        std::mem::take(&mut locked(&self.0.state).problems)
    }

    /// Adds a problem.
    pub(super) fn report(&self, text: String) {
        let problems = &mut locked(&self.0.state).problems;
        if problems.len() < MOST_PROBLEMS {
            problems.push(Problem { at: Clock::new().now(), text });
        }
    }

    fn spawn(&self, work: impl FnOnce(&Self) + Send + 'static) -> io::Result<()> {
        let runs = self.clone();
        thread::Builder::new().name("vsi-recording".into()).spawn(move || work(&runs))?;
        Ok(())
    }

    /// Starts the recorder, and follows it to its end.
    fn record(&self, run: &Shared, plan: Plan) {
        let Some((session, scan)) = plan.scan.split_once('_') else { return };
        let request = StartRequest {
            source: plan.sources,
            session: session.to_owned(),
            scan: scan.to_owned(),
            chunk: plan.chunk_bytes.map(|bytes| format!("{bytes}B")),
            start: plan.starts.map(|start| start.to_string()),
            duration: plan.seconds.map(|seconds| format!("{seconds}s")),
            ..StartRequest::default()
        };
        // The next daemon finds the recorder by the name of its scan, even if this one dies before it knows more.
        self.note();
        match self.0.recorders.start(request, Duration::ZERO) {
            Ok(recording) => {
                locked(run).id = Some(recording.id);
                self.note();
                self.follow(run);
            }
            Err(error) => self.finish(run, Some(with_causes(&error)), 0),
        }
    }

    /// Follows a recorder until it is gone, and ends it when that is asked for.
    fn follow(&self, run: &Shared) {
        let Some(id) = locked(run).id else { return };
        let mut seen: Vec<String> = Vec::new();
        let (mut is_asked, mut is_noted) = (false, locked(run).is_stop_asked);
        let mut bytes = 0;
        loop {
            let Ok(recording) = self.0.recorders.get(id) else {
                return self.finish(run, Some("the recorder is not known".to_owned()), bytes);
            };
            let life = &recording.life;
            bytes = life.progress.as_ref().map_or(bytes, |it| it.bytes);
            for warning in life.warnings.iter().filter(|it| !seen.contains(it)) {
                self.report(warning.clone());
            }
            seen.clone_from(&life.warnings);
            if !life.is_active() {
                return self.conclude(run, &recording, bytes);
            }
            let is_stop_asked = locked(run).is_stop_asked;
            if is_stop_asked && !is_noted {
                is_noted = true;
                self.note();
            }
            // A recorder that is not armed yet would be killed by the signal.
            if !is_asked && is_stop_asked && life.phase >= life::Phase::Armed {
                is_asked = true;
                if let Err(error) = self.0.recorders.ask(id, false) {
                    self.report(with_causes(&error));
                }
            }
            thread::sleep(LOOK);
        }
    }

    fn conclude(&self, run: &Shared, Recording { life, .. }: &Recording, bytes: u64) {
        for finished in &life.finished {
            let scan = &finished.scan;
            if let Some(why) = &finished.unsealed {
                self.report(format!("{scan} is not sealed, {why}"));
            } else if finished.complete == Some(false) {
                self.report(format!("{scan} is not complete, {}", finished.headline));
            }
        }
        self.finish(run, failure(life), bytes);
    }

    /// Notes the end of a recording.
    fn finish(&self, run: &Shared, problem: Option<String>, bytes: u64) {
        if let Some(problem) = &problem {
            self.report(problem.clone());
        } else {
            let name = locked(run).scan.clone();
            self.0.index.add(StoredScan { name, bytes });
        }
        locked(run).ended = Some((Clock::new().now(), problem));
        self.note();
    }

    /// Writes the file.
    fn note(&self) {
        let _one = locked(&self.0.writing);
        let noted = {
            let state = locked(&self.0.state);
            let runs = state.runs.iter().map(|(name, run)| (name.clone(), locked(run).clone()));
            let runs = runs.filter(|it| it.1.ended.is_none()).collect();
            let ending = state.ending.iter().map(|run| locked(run).clone());
            let ending = ending.filter(|it| it.ended.is_none()).collect();
            Noted { count: state.count, runs, ending }
        };
        if let Err(error) = write(&self.0.file, &noted) {
            tracing::warn!(%error, path = %self.0.file.display(), "the next daemon will not know the recordings of VSI-S");
        }
    }
}

/// Waits until another recording has ended, which may still have the ports. False if this one was stopped meanwhile.
fn until_ended(other: &Shared, this: &Shared) -> bool {
    while locked(other).ended.is_none() {
        thread::sleep(LOOK);
    }
    !locked(this).is_stop_asked
}

/// Why a recorder ended without a scan, or with less than was asked of it.
fn failure(life: &Life) -> Option<String> {
    match life.exit_code {
        Some(0 | 1) => None,
        None if !life.finished.is_empty() => None,
        // The exit code of a recorder that an earlier daemon started is not known. What went wrong is.
        None if life.complaint.is_none() => None,
        _ => Some(match &life.complaint {
            Some(complaint) => match &complaint.advice {
                Some(advice) => format!("{}, {advice}", complaint.error),
                None => complaint.error.clone(),
            },
            None => "the recorder ended without a reason".to_owned(),
        }),
    }
}

fn traffic(life: &Life) -> Traffic {
    let Some(progress) = &life.progress else { return Traffic::default() };
    let sum = |of: fn(&crate::recorder::report::StreamState) -> u64| {
        progress.streams.iter().map(of).fold(0, u64::saturating_add)
    };
    let fill = |used: u64, blocks: u64| used as f64 / blocks.max(1) as f64;
    let fills = progress.streams.iter().map(|it| fill(it.used_blocks, it.high_water.1));
    Traffic {
        bytes: progress.bytes,
        rate: sum(|it| it.rate),
        frames: sum(|it| it.frames),
        lost: sum(|it| it.lost()),
        overrun: sum(|it| it.overrun),
        foreign: sum(|it| it.foreign),
        fill: fills.fold(0.0, f64::max),
    }
}

fn read(file: &Path) -> Noted {
    let mut text = Vec::new();
    let read = fs::File::open(file).and_then(|it| it.take(LONGEST_FILE).read_to_end(&mut text));
    match read {
        Ok(_) => serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %file.display(), "the recordings of VSI-S are not known");
            Noted::default()
        }),
        Err(_) => Noted::default(),
    }
}

fn write(file: &Path, noted: &Noted) -> io::Result<()> {
    let part = file.with_extension("part");
    fs::write(&part, serde_json::to_vec(noted)?)?;
    fs::rename(&part, file)
}
