//! Keeps what triggers name of a circular recording, and removes its oldest pieces.
//!
//! One process at a time does so for a recording: it holds the lock `triggers/<recording>.lock` on the first member. While
//! a recorder runs, that is its retention thread. Without one, [`settle`] completes the triggers that wait.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use fullbore_care::{join, remove, retention};
use fullbore_core::hint::with_causes;
use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::ScanName;
use fullbore_core::retention::Retention;
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::Event;
use fullbore_linux::clock::Clock;
use fullbore_store::catalogue::{self, ScanState};
use fullbore_store::inventory::Inventory;
use fullbore_store::markers::{self, Moment};
use fullbore_time::Tai;
use uuid::Uuid;

use super::RingName;
use super::lookout::{Condition, Found};
use super::plan::{Piece, Window, chains, excess};
use super::source::{Listeners, SourceError, TriggerSource};
use super::trigger::{Trigger, directory_of, list};

/// The keeper of one circular recording.
#[derive(Debug)]
pub struct Keeper {
    roots: Vec<PathBuf>,
    ring: RingName,
    limit: Option<Retention>,
    listeners: Listeners,
    /// Held while this process is the one that changes the pieces.
    lock: Option<File>,
    /// Sealed pieces, in the order of time.
    pieces: Vec<Piece>,
    /// Markers that have triggered.
    markers: BTreeSet<Uuid>,
    /// Pieces whose markers were read when they were sealed, and may have got one since.
    fresh: Vec<ScanName>,
    said: BTreeSet<String>,
}

/// The result of [`settle`].
#[derive(Debug)]
pub enum Settled {
    /// A recorder keeps the recording, and completes its triggers.
    Recorder,
    /// The triggers that could be completed are; these are the messages.
    Here(Vec<Event>),
    /// A piece is not sealed, because its recorder died.
    Unsealed(String),
}

/// The circular recordings of a store, by their pieces.
///
/// # Errors
///
/// The store cannot be listed.
pub fn rings(roots: &[PathBuf]) -> Result<BTreeSet<RingName>, catalogue::Error> {
    let entries = catalogue::list(roots)?.entries;
    let names = entries.iter().filter_map(|it| it.name.parse().ok());
    Ok(names.filter_map(|it| RingName::of_piece(&it)).collect())
}

/// Completes the triggers of a recording that has no recorder, with the pieces that are there.
///
/// # Errors
///
/// The store cannot be listed.
pub fn settle(roots: &[PathBuf], ring: &RingName) -> Result<Settled, catalogue::Error> {
    let listeners = Listeners::open(&[]).expect("there is nothing to open");
    let mut keeper = Keeper::with(roots.to_vec(), ring.clone(), None, listeners);
    if !keeper.take_lock() {
        return Ok(Settled::Recorder);
    }
    match keeper.load()? {
        Some((ScanState::Recording, _)) => Ok(Settled::Recorder),
        Some((_, name)) => Ok(Settled::Unsealed(name)),
        None => Ok(Settled::Here(keeper.complete(true))),
    }
}

impl Keeper {
    /// The keeper of a recording whose newest data stays within `limit`, with these sources of triggers.
    ///
    /// # Errors
    ///
    /// A source cannot be opened.
    pub fn new(
        roots: Vec<PathBuf>,
        ring: RingName,
        limit: Retention,
        sources: &[TriggerSource],
    ) -> Result<Self, SourceError> {
        Ok(Self::with(roots, ring, Some(limit), Listeners::open(sources)?))
    }

    fn with(
        roots: Vec<PathBuf>,
        ring: RingName,
        limit: Option<Retention>,
        listeners: Listeners,
    ) -> Self {
        let (pieces, fresh) = (Vec::new(), Vec::new());
        let (markers, said) = (BTreeSet::new(), BTreeSet::new());
        Self { roots, ring, limit, listeners, lock: None, pieces, markers, fresh, said }
    }

    /// The conditions on samples that trigger, and where to put what fulfils them.
    pub(crate) fn conditions(&mut self) -> Option<(Vec<Condition>, SyncSender<Found>)> {
        self.listeners.conditions()
    }

    /// Takes a piece that the recorder has sealed.
    pub fn sealed(&mut self, manifest: &Manifest) {
        if RingName::of_piece(&manifest.scan).as_ref() == Some(&self.ring) {
            self.add(manifest);
            self.fresh.push(manifest.scan.clone());
        }
    }

    /// Takes triggers, completes those whose last piece is sealed, and removes the oldest pieces. With `ended`, no piece
    /// follows. Returns messages.
    pub fn step(&mut self, ended: bool) -> Vec<Event> {
        let now = Clock::new().now();
        let mut told = Vec::new();
        if self.lock.is_none() {
            if !self.take_lock() {
                return self.warn(format!("{}: another recorder keeps it", self.ring));
            }
            // A store without scans cannot be listed yet.
            let _ = self.load();
        }
        let (roots, ring) = (&self.roots, &self.ring);
        let waits = |trigger: &Trigger| list(roots, ring).iter().any(|it| it.uuid == trigger.uuid);
        let mut new = self.listeners.read(ring, now, &waits);
        new.extend(self.of_markers());
        for trigger in new {
            if let Err(error) = trigger.put(&self.roots) {
                told.extend(self.warn(format!("{}: {}", self.ring, with_causes(&error))));
            }
        }
        told.extend(self.complete(ended));
        told.extend(self.remove_oldest(now));
        told
    }

    /// Takes the lock. False if another process has it, or there is no member yet.
    fn take_lock(&mut self) -> bool {
        let Some(directory) = self.roots.iter().find_map(|root| directory_of(root).ok()) else {
            return false;
        };
        let path = directory.join(format!("{}.lock", self.ring));
        let options = OpenOptions::new().create(true).truncate(false).write(true).clone();
        let Ok(file) = options.open(path) else { return false };
        match file.try_lock() {
            Ok(()) => {
                self.lock = Some(file);
                true
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
        }
    }

    /// Finds the sealed pieces of earlier recorders. Returns the state and the name of a piece that is not sealed.
    fn load(&mut self) -> Result<Option<(ScanState, String)>, catalogue::Error> {
        let mut open = None;
        for entry in catalogue::list(&self.roots)?.entries {
            let Ok(name) = entry.name.parse::<ScanName>() else { continue };
            if RingName::of_piece(&name).as_ref() != Some(&self.ring) || entry.protected {
                continue;
            }
            if matches!(entry.state, ScanState::Recording | ScanState::Unsealed) {
                open = Some((entry.state, entry.name));
                continue;
            }
            let Ok(inventory) = Inventory::take(&self.roots, &name) else { continue };
            match inventory.manifest.state {
                State::Sealed => self.markers.extend(inventory.markers.iter().map(|it| it.uuid)),
                // Its recorder died before it could see the markers.
                State::Aborted | State::Recovered | State::Recording => self.fresh.push(name),
            }
            self.add(&inventory.manifest);
        }
        Ok(open)
    }

    fn add(&mut self, manifest: &Manifest) {
        let name = manifest.scan.clone();
        if self.pieces.iter().any(|piece| piece.name == name) {
            return;
        }
        let armed = manifest.armed;
        let stopped = manifest.stopped.unwrap_or(armed).max(armed);
        let bytes = manifest.streams.iter().map(|stream| stream.bytes).sum();
        let place = self.pieces.partition_point(|piece| piece.armed <= armed);
        self.pieces.insert(place, Piece { name, armed, stopped, bytes });
    }

    /// Triggers of markers that are new on the pieces sealed last.
    fn of_markers(&mut self) -> Vec<Trigger> {
        let fresh = std::mem::take(&mut self.fresh);
        if !self.listeners.listen_to_markers() {
            return Vec::new();
        }
        let inventories = fresh.iter().filter_map(|it| Inventory::take(&self.roots, it).ok());
        let found: Vec<_> = inventories.flat_map(|it| it.markers).collect();
        let new = found.iter().filter(|it| self.markers.insert(it.uuid));
        new.filter_map(|marker| self.listeners.of_marker(&self.ring, marker)).collect()
    }

    /// Completes the triggers whose pieces are all sealed.
    fn complete(&mut self, ended: bool) -> Vec<Event> {
        let mut told = Vec::new();
        for trigger in list(&self.roots, &self.ring) {
            let Some(range) = trigger.window().pieces(&self.pieces, ended) else { continue };
            told.extend(self.keep(&trigger, range));
            trigger.remove(&self.roots);
        }
        told
    }

    /// Makes the scan of a trigger: one of each chain of pieces.
    fn keep(&mut self, trigger: &Trigger, range: std::ops::Range<usize>) -> Vec<Event> {
        let pieces = self.pieces[range].to_vec();
        if pieces.is_empty() {
            let text = format!("{}: nothing of its time is recorded", trigger.keep_as);
            return vec![Event::Warning { text }];
        }
        let mut told = Vec::new();
        for (number, chain) in chains(&pieces).into_iter().enumerate() {
            let uuid = Uuid::from_u128(trigger.uuid.as_u128() ^ number as u128);
            let name = numbered(&trigger.keep_as, number);
            let names: Vec<ScanName> = chain.iter().map(|piece| piece.name.clone()).collect();
            told.extend(match self.join(&names, &name, uuid) {
                Ok(manifest) => vec![self.kept(trigger, &manifest, chain)],
                Err(error) => self.protect(&name, &names, &error),
            });
        }
        told
    }

    /// Joins pieces. If another scan has taken the name, the identity is added to it.
    fn join(
        &self,
        names: &[ScanName],
        name: &ScanName,
        uuid: Uuid,
    ) -> Result<Manifest, join::Error> {
        match join::join(&self.roots, names, name, uuid) {
            Err(join::Error::Taken { .. }) => {
                let text = format!("{}-{}", name.scan, &uuid.simple().to_string()[24..]);
                let scan = text.parse().unwrap_or_else(|_| name.scan.clone());
                let other = ScanName { session: name.session.clone(), scan };
                join::join(&self.roots, names, &other, uuid)
            }
            joined => joined,
        }
    }

    fn kept(&mut self, trigger: &Trigger, manifest: &Manifest, chain: &[Piece]) -> Event {
        let scan = &manifest.scan;
        let (from, to) = (chain[0].armed, chain[chain.len() - 1].stopped);
        let bytes = ByteSize(manifest.streams.iter().map(|it| it.bytes).sum());
        let mut text = format!("{scan}: kept {from:.1} to {to:.1}, {bytes}");
        let lacks = from.since(trigger.from) as f64 / 1e9;
        if lacks > 1.0 {
            text +=
                &format!("; the first {lacks:.1} s of the trigger are not recorded, or removed");
        }
        if (from..=to).contains(&trigger.at) {
            let (moment, note) = (Moment::Time(trigger.at), trigger.text.clone());
            // The scan is whole without its marker.
            let _ = markers::set(&self.roots, scan, moment, note);
        }
        Event::Note { text }
    }

    /// Protects the pieces of a trigger that cannot be joined, so that they stay as scans of their own.
    fn protect(&mut self, name: &ScanName, names: &[ScanName], error: &join::Error) -> Vec<Event> {
        self.pieces.retain(|piece| !names.contains(&piece.name));
        let failed = names.iter().filter_map(|piece| {
            let error = retention::protect(&self.roots, piece, true).err()?;
            Some(Event::Warning { text: format!("{piece} is not protected: {error}") })
        });
        let listed = names.iter().map(ScanName::to_string).collect::<Vec<_>>().join(", ");
        let why = with_causes(error);
        let text = format!("{name} cannot be made: {why}; protected instead: {listed}");
        [Event::Warning { text }].into_iter().chain(failed).collect()
    }

    /// Removes the pieces that are behind the limit.
    fn remove_oldest(&mut self, now: Tai) -> Vec<Event> {
        let Some(limit) = self.limit else { return Vec::new() };
        let waiting = list(&self.roots, &self.ring);
        let windows: Vec<Window> = waiting.iter().map(Trigger::window).collect();
        let go = excess(&self.pieces, limit, &windows, now);
        let names: Vec<ScanName> = go.iter().map(|&it| self.pieces[it].name.clone()).collect();
        let mut told = Vec::new();
        for name in names {
            match remove::remove(&self.roots, &name) {
                Ok(_) | Err(remove::Error::Protected { .. }) => {
                    self.pieces.retain(|piece| piece.name != name);
                }
                Err(error) => {
                    let text = format!("{name} is not removed: {}", with_causes(&error));
                    told.extend(self.warn(text));
                }
            }
        }
        told
    }

    /// A warning, once.
    fn warn(&mut self, text: String) -> Vec<Event> {
        match self.said.insert(text.clone()) {
            true => vec![Event::Warning { text }],
            false => Vec::new(),
        }
    }
}

/// The name of the scan of a chain: with a number, if it is not the first one.
fn numbered(name: &ScanName, number: usize) -> ScanName {
    let text = format!("{}-{}", name.scan, number + 1);
    let scan = match number {
        0 => name.scan.clone(),
        _ => text.parse().unwrap_or_else(|_| name.scan.clone()),
    };
    ScanName { session: name.session.clone(), scan }
}
