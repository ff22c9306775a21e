//! Several PandAs recorded into HDF5 files side by side, in step, and a file that shows them all.
//!
//! ```text
//! panda1 ── capture thread, file thread ──► all_panda1.h5 ─┐
//! panda2 ── capture thread, file thread ──► all_panda2.h5 ─┴─► all.h5, once each has ended
//! ```
//!
//! Each is recorded as one alone is, with an account and a file of its own. They share two things: a stop, and the
//! [`Series`] that keeps them in step. No PandA is armed again before the others have ended the same acquisition, and
//! when one fails the others end what they have begun and are armed no more.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use fullbore_core::account::{CountedBy, Presence, Verdict};
use fullbore_core::completeness::{self, Completeness};
use fullbore_core::format::panda::PandaSource;
use fullbore_core::manifest::State;
use fullbore_core::name::Name;
use serde::Serialize;

use super::capture::{Panda, reach};
use super::live::Files;
use super::record::{
    Event, Outcome, Plan, Prepared, RecordError, Recorded, check, check_names, warning_of_place,
};
use crate::recorder::Control;
use crate::sink::hdf5::{self, Existing, beside, is_there};

/// Keeps several PandAs in step.
#[derive(Debug)]
pub struct Series {
    /// How many take part.
    pandas: usize,
    /// Of each, how many acquisitions are in its file.
    settled: Mutex<Vec<Arc<AtomicU64>>>,
    /// One has failed: no further acquisition is wanted of the others.
    over: AtomicBool,
}

impl Series {
    fn of(pandas: usize) -> Self {
        Series { pandas, settled: Mutex::default(), over: AtomicBool::new(false) }
    }

    /// One more PandA takes part, and counts here the acquisitions that it has ended.
    pub(super) fn join(&self, settled: Arc<AtomicU64>) {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).push(settled);
    }

    /// Whether every PandA takes part by now, and has ended so many acquisitions.
    pub(super) fn has_ended(&self, acquisitions: u64) -> bool {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.len() == self.pandas
            && settled.iter().all(|settled| settled.load(Acquire) >= acquisitions)
    }

    /// Whether no further acquisition is wanted.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    fn end(&self) {
        self.over.store(true, Release);
    }
}

/// What happens while several PandAs are recorded.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Happened {
    /// To one of them.
    One {
        /// Its name.
        panda: Name,
        /// What.
        #[serde(flatten)]
        event: Event,
    },
    /// Something that should be known before it begins.
    Warning {
        /// Always `warning`.
        event: &'static str,
        /// What.
        text: String,
    },
    /// An acquisition of each has ended.
    Scan(Box<Scan>),
}

/// An acquisition of every PandA, as one.
#[derive(Clone, Debug, Serialize)]
pub struct Scan {
    /// Always `scan`.
    pub event: &'static str,
    /// Counted from 1.
    pub number: u64,
    /// The file that shows all of them, if it could be made, or once it is made after the last acquisition.
    pub file: PathBuf,
    /// Whether it is complete: of how many samples that the PandAs took how many are in the files.
    #[serde(flatten)]
    pub completeness: Completeness,
    /// The verdict on the least sure of them; no better than `unproven` where a PandA has no acquisition.
    pub verdict: Verdict,
    /// The parts, by PandA.
    pub parts: Vec<Part>,
    /// PandAs of which nothing came.
    pub absent: Vec<Name>,
}

/// What one PandA has of a scan.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Its name.
    pub panda: Name,
    /// Its file.
    pub file: PathBuf,
    /// Samples in it.
    pub samples: u64,
    /// How sure its account is.
    pub verdict: Verdict,
}

/// How it ended for each, and whether the file that shows all could be made.
#[derive(Debug)]
pub struct Outcomes {
    /// Of each PandA.
    pub pandas: Vec<(Name, Outcome)>,
    /// Scans of which a PandA has nothing.
    pub partial: u64,
    /// Why the file that shows all of them was not made.
    pub error: Option<RecordError>,
}

/// Records until each PandA has ended, with `files` for names of what shows all of them. The files of each are put beside
/// that: `all_panda1.h5` for `all.h5`.
pub fn record(
    mut plans: Vec<Plan>,
    files: &Files,
    control: &Arc<Control>,
    tell: &mut dyn FnMut(&Happened),
) -> Result<Outcomes, RecordError> {
    for plan in &mut plans {
        plan.files.template = beside(&files.template, plan.source.name.as_str());
    }
    check_all(&plans, files)?;
    let warning = warning_of_place(files);
    let pandas: Vec<(PandaSource, bool)> =
        plans.iter().map(|plan| (plan.source.clone(), plan.arm)).collect();
    let series = Arc::new(Series::of(plans.len()));
    let mut prepared = Vec::new();
    for (device, plan) in reach(&pandas)?.into_iter().zip(plans) {
        prepared.push(Prepared::new(device, plan, Some(series.clone()))?);
    }
    let names: Vec<Name> = pandas.into_iter().map(|(source, _)| source.name).collect();
    if let Some(text) = warning {
        tell(&Happened::Warning { event: "warning", text });
    }
    let (say, told) = mpsc::channel();
    let mut threads = Vec::new();
    for (place, prepared) in prepared.into_iter().enumerate() {
        match start(place, prepared, control, &series, say.clone()) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                // Those that are under way are ended before it is told.
                control.stop();
                let _ = say.send((place, Word::Done(Box::new(Outcome::failed(error)))));
            }
        }
    }
    drop(say);
    let mut watch = Watch::new(&names, files);
    for (place, word) in told {
        watch.hear(place, word, tell);
    }
    for thread in threads {
        // What a thread could not say is told as its failure.
        let _ = thread.join();
    }
    Ok(watch.end())
}

/// Refuses at once what would be refused later.
fn check_all(plans: &[Plan], files: &Files) -> Result<(), RecordError> {
    for (at, plan) in plans.iter().enumerate() {
        let name = &plan.source.name;
        if plans[..at].iter().any(|other| other.source.name == *name) {
            return Err(RecordError::SameName { name: name.clone() });
        }
        check(plan)?;
    }
    let acquisitions = plans.first().and_then(|plan| plan.acquisitions);
    match files.options.existing {
        Existing::Refuse | Existing::Overwrite => check_names(files, acquisitions),
        Existing::Append => {
            let of_file = |error| RecordError::File { error: Arc::new(error) };
            hdf5::check_place(&files.path(1)).map_err(of_file)?;
            let check = |path: &PathBuf| hdf5::check_master(path).map(drop);
            files.taken(acquisitions).iter().try_for_each(check).map_err(of_file)
        }
    }
}

/// What the thread of a PandA has to say.
enum Word {
    Event(Box<Event>),
    Done(Box<Outcome>),
}

/// Records one PandA on a thread of its own.
fn start(
    place: usize,
    prepared: Prepared<Panda>,
    control: &Arc<Control>,
    series: &Arc<Series>,
    say: Sender<(usize, Word)>,
) -> Result<JoinHandle<()>, RecordError> {
    let (control, series) = (control.clone(), series.clone());
    let work = move || {
        let mut tell = |event: &Event| {
            // Whoever listens is there until this thread has gone.
            let _ = say.send((place, Word::Event(Box::new(event.clone()))));
        };
        let outcome = prepared.run(&control, &mut tell).unwrap_or_else(Outcome::failed);
        if outcome.error.is_some() {
            series.end();
        }
        let _ = say.send((place, Word::Done(Box::new(outcome))));
    };
    Builder::new().name(format!("watch{place}")).spawn(work).map_err(RecordError::Thread)
}

/// Listens to all threads, and shows a scan once all of it is there.
struct Watch<'a> {
    names: &'a [Name],
    files: &'a Files,
    recorded: Vec<Vec<Recorded>>,
    outcomes: Vec<Option<Outcome>>,
    /// Scans that were told.
    scans: u64,
    partial: u64,
    error: Option<RecordError>,
}

impl<'a> Watch<'a> {
    fn new(names: &'a [Name], files: &'a Files) -> Self {
        Watch {
            names,
            files,
            recorded: names.iter().map(|_| Vec::new()).collect(),
            outcomes: names.iter().map(|_| None).collect(),
            scans: 0,
            partial: 0,
            error: None,
        }
    }

    fn hear(&mut self, place: usize, word: Word, tell: &mut dyn FnMut(&Happened)) {
        match word {
            Word::Event(event) => {
                let ended = match &*event {
                    Event::Ended(recorded) => Some((**recorded).clone()),
                    _ => None,
                };
                tell(&Happened::One { panda: self.names[place].clone(), event: *event });
                self.recorded[place].extend(ended);
            }
            Word::Done(outcome) => self.outcomes[place] = Some(*outcome),
        }
        while let Some(scan) = self.next_scan() {
            self.scans += 1;
            self.partial += u64::from(!scan.absent.is_empty());
            if !self.files.is_one() {
                self.show(&scan.file.clone(), self.scans as usize - 1);
            }
            tell(&Happened::Scan(Box::new(scan)));
        }
    }

    /// The next scan, once every PandA has ended its acquisition, or has no more.
    fn next_scan(&self) -> Option<Scan> {
        let at = self.scans as usize;
        let is_over =
            |place: usize| self.recorded[place].len() > at || self.outcomes[place].is_some();
        let comes = self.recorded.iter().any(|recorded| recorded.len() > at);
        if !comes || !(0..self.names.len()).all(is_over) {
            return None;
        }
        let (mut parts, mut absent, mut accounts) = (Vec::new(), Vec::new(), Vec::new());
        for (name, recorded) in self.names.iter().zip(&self.recorded) {
            let recorded = recorded.get(at);
            accounts.push(completeness::Part {
                name: name.to_string(),
                terms: recorded.map(|recorded| recorded.terms).unwrap_or_default(),
                counted_by: Some(CountedBy::ServerCount),
                verdict: recorded.map_or(Verdict::Unproven, |recorded| recorded.verdict),
                presence: recorded.map_or(vec![Presence::NeverCame], |_| Vec::new()),
                beside: completeness::Beside::default(),
            });
            let Some(recorded) = recorded else {
                absent.push(name.clone());
                continue;
            };
            parts.push(Part {
                panda: name.clone(),
                file: recorded.file.clone(),
                samples: recorded.samples,
                verdict: recorded.verdict,
            });
        }
        let verdict = accounts.iter().map(|account| account.verdict).max()?;
        Some(Scan {
            event: "scan",
            number: self.scans + 1,
            file: self.files.path(self.scans + 1),
            completeness: Completeness::judged(accounts, None, State::Sealed, &[]),
            verdict,
            parts,
            absent,
        })
    }

    /// Makes the file that shows what each PandA has of its acquisition at a place, and all that followed in one file.
    fn show(&mut self, master: &Path, at: usize) {
        let files = self.names.iter().zip(&self.recorded);
        let streams: Vec<(&str, &Path)> = files
            .filter_map(|(name, recorded)| Some((name.as_str(), recorded.get(at)?.file.as_path())))
            .filter(|(_, path)| is_there(path))
            .collect();
        let made = match self.files.options.existing {
            _ if streams.is_empty() => Ok(()),
            Existing::Refuse => hdf5::join(master, &streams),
            Existing::Append => hdf5::join_anew(master, &streams),
            Existing::Overwrite => {
                let old = is_there(master).then(|| hdf5::remove_old(master));
                old.unwrap_or(Ok(())).and_then(|()| hdf5::join(master, &streams))
            }
        };
        if let Err(error) = made {
            self.error.get_or_insert(RecordError::File { error: Arc::new(error) });
        }
    }

    fn end(mut self) -> Outcomes {
        if self.files.is_one() {
            self.show(&self.files.path(1), 0);
        }
        let died = || RecordError::Thread(std::io::Error::other("the thread of a PandA failed"));
        let outcomes = self.outcomes.into_iter();
        let outcomes = outcomes.map(|it| it.unwrap_or_else(|| Outcome::failed(died())));
        Outcomes {
            pandas: self.names.iter().cloned().zip(outcomes).collect(),
            partial: self.partial,
            error: self.error,
        }
    }
}
