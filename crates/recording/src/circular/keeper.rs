//! Keeps what triggers name of a circular recording, and removes its oldest pieces.
//!
//! One process at a time does so for a recording: it holds the lock `triggers/<recording>.lock` on the first member. While
//! a recorder runs, that is its retention thread. Without one, [`settle`] completes the triggers that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use fullbore_care::{join, remove, retention};
use fullbore_core::hint::with_causes;
use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::ScanName;
use fullbore_core::retention::Retention;
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::{Event, free_bytes};
use fullbore_linux::clock::Clock;
use fullbore_store::catalogue::{self, ScanState};
use fullbore_store::inventory::Inventory;
use fullbore_store::markers::{self, Moment};
use fullbore_time::Tai;
use uuid::Uuid;

use super::copier::{Copied, Copier};
use super::fit::{Room, lacks};
use super::lookout::{Condition, Found};
use super::plan::{Piece, Window, chains, excess, overfull};
use super::source::{Listeners, SourceError, TriggerSource};
use super::trigger::{Trigger, directory_of, list};
use super::{RingName, memory};

/// The keeper of one circular recording.
#[derive(Debug)]
pub struct Keeper {
    /// The members of the store: triggers and what they keep.
    roots: Vec<PathBuf>,
    ring: RingName,
    limit: Option<Retention>,
    /// Where pieces are, if that is not the store.
    memory: Option<Memory>,
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
    /// Pieces that were sealed by this recorder.
    sealed: u64,
}

/// Pieces in memory.
#[derive(Debug)]
struct Memory {
    /// The members in memory.
    roots: Vec<PathBuf>,
    /// The most bytes of pieces and of kept scans. None without a recorder.
    most: Option<u64>,
    /// Kept scans that are not in the store yet.
    waiting: BTreeMap<ScanName, Held>,
    copier: Option<Copier>,
    /// True if a kept scan could not be copied.
    failed: bool,
}

/// What a kept scan holds in memory.
#[derive(Debug)]
enum Held {
    /// The chunks of these pieces, which it shares with them.
    Pieces(Vec<Piece>),
    /// So many bytes: it was kept by a recorder before.
    Bytes(u64),
}

/// The result of [`settle`].
#[derive(Debug)]
pub enum Settled {
    /// A recorder keeps the recording, and completes its triggers.
    Recorder,
    /// The triggers that could be completed are; these are the messages.
    Here(Vec<Event>),
    /// A piece is not sealed, because its recorder died.
    Unsealed {
        /// The piece.
        piece: String,
        /// Its members, if it is in memory.
        memory: Option<Vec<PathBuf>>,
    },
}

/// The circular recordings of a store, by their pieces.
///
/// # Errors
///
/// The store cannot be listed.
pub fn rings(roots: &[PathBuf]) -> Result<BTreeSet<RingName>, catalogue::Error> {
    let entries = catalogue::list(roots)?.entries;
    let names = entries.iter().filter_map(|it| it.name.parse().ok());
    let on_disks = names.filter_map(|it| RingName::of_piece(&it));
    Ok(on_disks.chain(memory::rings(roots)).collect())
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
    if let Some(pieces) = memory::existing(roots, ring) {
        keeper.memory = Some(Memory::new(pieces, None));
    }
    match keeper.load()? {
        Some((ScanState::Recording, _)) => Ok(Settled::Recorder),
        Some((_, piece)) => {
            let memory = keeper.memory.map(|memory| memory.roots);
            Ok(Settled::Unsealed { piece, memory })
        }
        None => {
            let mut told = keeper.complete(true);
            told.extend(keeper.copied(true));
            Ok(Settled::Here(told))
        }
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
        let (memory, lock) = (None, None);
        Self {
            roots,
            ring,
            limit,
            memory,
            listeners,
            lock,
            pieces,
            markers,
            fresh,
            said,
            sealed: 0,
        }
    }

    /// The room that the recording needs on the disks, if it is there.
    pub(crate) fn room_on_disks(&self) -> Option<Room> {
        let (roots, ring) = (self.roots.clone(), self.ring.clone());
        self.limit.filter(|_| self.memory.is_none()).map(|limit| Room { roots, ring, limit })
    }

    /// The same, with the pieces on these members in memory, which hold at most this many bytes.
    pub fn in_memory(self, roots: Vec<PathBuf>, most: u64) -> Self {
        Self { memory: Some(Memory::new(roots, Some(most))), ..self }
    }

    /// The members that the pieces are on.
    fn pieces_on(&self) -> &[PathBuf] {
        self.memory.as_ref().map_or(&self.roots, |memory| &memory.roots)
    }

    /// The conditions on samples that trigger, and where to put what fulfils them.
    pub(crate) fn conditions(&mut self) -> Option<(Vec<Condition>, SyncSender<Found>)> {
        self.listeners.conditions()
    }

    /// Takes a piece that the recorder has sealed.
    pub fn sealed(&mut self, manifest: &Manifest) {
        if RingName::of_piece(&manifest.scan).as_ref() == Some(&self.ring) {
            self.add(manifest);
            self.sealed += 1;
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
        told.extend(self.judge_rate());
        told.extend(self.make_room());
        // A recorder that could not begin leaves the triggers of the one before to `fullbore trigger`, which says what they
        // lack.
        told.extend(self.complete(ended && self.sealed > 0));
        told.extend(self.copied(ended));
        told.extend(self.remove_oldest(now));
        if ended {
            told.extend(self.free_memory());
        }
        told
    }

    /// Removes the recording from memory, unless something in it is not in the store. A recorder that has sealed nothing
    /// leaves the pieces of the one before.
    fn free_memory(&self) -> Option<Event> {
        let memory = self.memory.as_ref().filter(|memory| !memory.failed)?;
        let (place, ring) = (memory.place(), &self.ring);
        if self.sealed == 0 && !self.pieces.is_empty() {
            let text = format!("{ring}: the pieces of an earlier recorder stay in {place}");
            return Some(Event::Note { text });
        }
        let entries = catalogue::list(&memory.roots).map(|it| it.entries).unwrap_or_default();
        if let Some(open) = entries.into_iter().find(|it| it.state == ScanState::Unsealed) {
            let piece = open.name;
            let text = format!(
                "{piece} of an earlier recorder is not sealed, so the pieces stay in {place}: `fullbore recover {piece} \
                 --store {place}` seals it"
            );
            return Some(Event::Warning { text });
        }
        let error = super::memory::remove(&self.roots, &self.ring).err()?;
        let text = format!("{ring}: removing its pieces from {place}: {error}");
        Some(Event::Warning { text })
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
        for entry in catalogue::list(self.pieces_on())?.entries {
            let Ok(name) = entry.name.parse::<ScanName>() else { continue };
            if let Some(memory) = &mut self.memory
                && RingName::of_piece(&name).is_none()
            {
                // A recorder that died had kept it, and not copied yet.
                memory.waiting.insert(name, Held::Bytes(entry.bytes));
                continue;
            }
            if RingName::of_piece(&name).as_ref() != Some(&self.ring) || entry.protected {
                continue;
            }
            if matches!(entry.state, ScanState::Recording | ScanState::Unsealed) {
                open = Some((entry.state, entry.name));
                continue;
            }
            let Ok(inventory) = Inventory::take(self.pieces_on(), &name) else { continue };
            match inventory.manifest.state {
                State::Sealed => self.markers.extend(inventory.markers.iter().map(|it| it.uuid)),
                // Its recorder died before it could see the markers.
                State::Aborted | State::Recovered | State::Recording => self.fresh.push(name),
            }
            self.add(&inventory.manifest);
        }
        if let Some(memory) = &mut self.memory {
            let names: Vec<ScanName> = memory.waiting.keys().cloned().collect();
            names.into_iter().for_each(|name| memory.copy(name, &self.roots));
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
        let inventories = fresh.iter().filter_map(|it| Inventory::take(self.pieces_on(), it).ok());
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
        let roots = self.pieces_on();
        match join::join(roots, names, name, uuid) {
            Err(join::Error::Taken { .. }) => {
                let text = format!("{}-{}", name.scan, &uuid.simple().to_string()[24..]);
                let scan = text.parse().unwrap_or_else(|_| name.scan.clone());
                let other = ScanName { session: name.session.clone(), scan };
                join::join(roots, names, &other, uuid)
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
            let _ = markers::set(self.pieces_on(), scan, moment, note);
        }
        if let Some(memory) = &mut self.memory {
            memory.waiting.insert(scan.clone(), Held::Pieces(chain.to_vec()));
            memory.copy(scan.clone(), &self.roots);
            text += "; it is being written to the store";
        }
        Event::Note { text }
    }

    /// Protects the pieces of a trigger that cannot be joined, so that they stay as scans of their own.
    fn protect(&mut self, name: &ScanName, names: &[ScanName], error: &join::Error) -> Vec<Event> {
        self.pieces.retain(|piece| !names.contains(&piece.name));
        if let Some(memory) = &mut self.memory {
            memory.failed = true;
        }
        let failed = names.iter().filter_map(|piece| {
            let error = retention::protect(self.pieces_on(), piece, true).err()?;
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
        let mut go = excess(&self.pieces, limit, &windows, now);
        if let Some(room) = self.room() {
            let room = Retention::Size(ByteSize(room));
            go.extend(excess(&self.pieces, room, &windows, now));
            go.sort_unstable();
            go.dedup();
        }
        let names: Vec<ScanName> = go.iter().map(|&it| self.pieces[it].name.clone()).collect();
        let mut told = Vec::new();
        for name in names {
            match remove::remove(self.pieces_on(), &name) {
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

    /// Warns once if the disks do not hold the recording at the rate of a piece. The first piece may have begun late.
    fn judge_rate(&mut self) -> Option<Event> {
        let (Some(Retention::Age(length)), None) = (self.limit, &self.memory) else { return None };
        let piece = self.pieces.last().filter(|_| self.sealed == 2)?;
        self.sealed += 1;
        let ns = piece.stopped.since(piece.armed).max(1).unsigned_abs();
        let rate = u128::from(piece.bytes) * 1_000_000_000 / u128::from(ns);
        let pieces: u64 = self.pieces.iter().map(|piece| piece.bytes).sum();
        let room = free_bytes(&self.roots).saturating_add(pieces);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        lacks(length, rate, room).map(|text| Event::Warning { text })
    }

    /// The bytes that sealed pieces may have in memory: what kept scans, the piece that is being recorded, and the next
    /// one leave.
    fn room(&self) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        let largest = self.pieces.iter().map(|piece| piece.bytes).max().unwrap_or(0);
        let held = memory.held(&self.pieces);
        Some(memory.most?.saturating_sub(held.saturating_add(largest.saturating_mul(3))))
    }

    /// Ends the triggers early that together cover more than the memory has, so that it does not overflow.
    fn make_room(&mut self) -> Vec<Event> {
        let mut told = Vec::new();
        let mut waiting = list(&self.roots, &self.ring);
        while let Some(room) = self.room() {
            let windows: Vec<Window> = waiting.iter().map(Trigger::window).collect();
            let Some(place) = overfull(&self.pieces, &windows, room) else { break };
            let trigger = waiting.remove(place);
            let Some(range) = trigger.window().pieces(&self.pieces, true) else { continue };
            let text = format!(
                "{}: the memory is full before the end of the trigger, so it keeps only what came until now",
                trigger.keep_as
            );
            told.push(Event::Warning { text });
            told.extend(self.keep(&trigger, range));
            trigger.remove(&self.roots);
        }
        told
    }

    /// Tells which kept scans are in the store. With `wait`, all are.
    fn copied(&mut self, wait: bool) -> Vec<Event> {
        let Some(memory) = &mut self.memory else { return Vec::new() };
        let done = match memory.copier.take() {
            Some(copier) if wait => copier.finish(),
            copier => {
                memory.copier = copier;
                memory.copier.as_ref().map(Copier::done).unwrap_or_default()
            }
        };
        let places = memory.place();
        let stays = |scan: &ScanName, why: &str| Event::Warning {
            text: format!("{scan} is not written to the store: {why}; it stays in {places}"),
        };
        let mut told = Vec::new();
        for Copied { scan, copied } in done {
            memory.waiting.remove(&scan);
            told.push(match copied {
                Ok(bytes) => {
                    Event::Note { text: format!("{scan}: {} are in the store", ByteSize(bytes)) }
                }
                Err(why) => {
                    memory.failed = true;
                    stays(&scan, &why)
                }
            });
        }
        if wait {
            // The thread that copies could not be started, or failed.
            memory.failed |= !memory.waiting.is_empty();
            told.extend(memory.waiting.keys().map(|scan| stays(scan, "no thread copies it")));
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

impl Memory {
    fn new(roots: Vec<PathBuf>, most: Option<u64>) -> Self {
        Self { roots, most, waiting: BTreeMap::new(), copier: None, failed: false }
    }

    /// The members, as an option takes them.
    fn place(&self) -> String {
        let places = self.roots.iter().map(|it| it.display().to_string());
        places.collect::<Vec<_>>().join(",")
    }

    /// The bytes of kept scans, beside those that they share with these pieces.
    fn held(&self, pieces: &[Piece]) -> u64 {
        let there: BTreeSet<&ScanName> = pieces.iter().map(|piece| &piece.name).collect();
        let mut held = BTreeMap::new();
        let mut bytes = 0u64;
        for scan in self.waiting.values() {
            match scan {
                Held::Bytes(own) => bytes = bytes.saturating_add(*own),
                Held::Pieces(own) => held.extend(own.iter().map(|it| (&it.name, it.bytes))),
            }
        }
        held.retain(|name, _| !there.contains(name));
        held.into_values().fold(bytes, u64::saturating_add)
    }

    /// Lets a kept scan be copied to the store.
    fn copy(&mut self, scan: ScanName, store: &[PathBuf]) {
        if self.copier.is_none() {
            // Without the thread, it stays in memory and is found there.
            self.copier = Copier::start(self.roots.clone(), store.to_vec()).ok();
        }
        match &self.copier {
            Some(copier) => copier.add(scan),
            None => self.failed = true,
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

#[cfg(test)]
mod tests {
    use fullbore_store::testing::{Store, StreamPlan};

    use super::*;

    #[test]
    fn what_is_kept_in_memory_and_was_not_copied_stays_there_at_the_end() {
        let (store, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (roots, pieces) = (vec![store.path().to_owned()], vec![memory.path().to_owned()]);
        let ring = RingName("s_ring".parse().unwrap());
        let listeners = Listeners::open(&[]).unwrap();
        let mut keeper = Keeper::with(roots, ring, None, listeners).in_memory(pieces, 1 << 30);
        let waiting = &mut keeper.memory.as_mut().unwrap().waiting;
        waiting.insert("s_kept".parse().unwrap(), Held::Bytes(1));
        assert!(keeper.copied(false).is_empty());
        let told = keeper.copied(true);
        let Some(Event::Warning { text }) = told.first() else { panic!("{told:?}") };
        assert!(text.contains("s_kept is not written to the store"), "{text}");
        assert!(keeper.memory.unwrap().failed, "its memory is not removed");
    }

    #[test]
    fn memory_is_freed_only_if_this_recorder_has_sealed_and_nothing_is_left_to_seal() {
        let (store, laid) = (Store::new(1), Store::in_memory(1));
        let ring = RingName("s_sky".parse().unwrap());
        let whole = StreamPlan::vdif("a").frames(64);
        laid.lay_down("s_sky-20261127T090000Z", std::slice::from_ref(&whole));
        laid.lay_down("s_sky-20261127T090000Z-2", &[whole.unsealed()]);
        let made = memory::make(&store.roots(), &ring).unwrap();
        for entry in std::fs::read_dir(&laid.roots()[0]).unwrap().flatten() {
            std::fs::rename(entry.path(), made[0].join(entry.file_name())).unwrap();
        }
        let limit = Retention::Size(ByteSize(1 << 40));
        let keeper = Keeper::new(store.roots(), ring, limit, &[]).unwrap();
        let mut keeper = keeper.in_memory(made.clone(), 1 << 30);
        let mut step = |sealed| {
            keeper.sealed = sealed;
            let texts = keeper.step(true).into_iter().map(|event| match event {
                Event::Note { text } | Event::Warning { text } => text,
                other => panic!("{other:?}"),
            });
            (texts.collect::<Vec<_>>(), made[0].exists())
        };
        let (told, stays) = step(0);
        assert!(stays && told[0].contains("pieces of an earlier recorder stay"), "{told:?}");
        let (told, stays) = step(5);
        assert!(stays && told[0].contains("fullbore recover s_sky-20261127T090000Z-2"), "{told:?}");
        std::fs::remove_dir_all(made[0].join("s_sky-20261127T090000Z-2")).unwrap();
        assert_eq!(step(5), (vec![], false));
    }

    #[test]
    fn kept_scans_hold_what_no_piece_and_no_other_scan_has() {
        let piece = |number: i64| Piece {
            name: format!("s_a-20261127T090000Z-{number}").parse().unwrap(),
            armed: Tai(number),
            stopped: Tai(number + 1),
            bytes: 10,
        };
        let all: Vec<Piece> = (1..=5).map(piece).collect();
        let mut memory = Memory::new(Vec::new(), Some(100));
        let mut keep = |name: &str, held| memory.waiting.insert(name.parse().unwrap(), held);
        keep("s_one", Held::Pieces(all[..3].to_vec()));
        keep("s_two", Held::Pieces(all[2..4].to_vec()));
        assert_eq!(memory.held(&all), 0, "they are links");
        assert_eq!(memory.held(&all[3..]), 30, "the third piece counts once");
        memory.waiting.insert("s_before".parse().unwrap(), Held::Bytes(7));
        assert_eq!(memory.held(&[]), 47);
    }
}
