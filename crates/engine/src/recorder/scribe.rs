//! Who keeps the books on a member: makes the directories of scans, writes their manifests and accounts,
//! and holds their locks.
//!
//! ```text
//! supervisor ──┬── Claim, Write, Release … ──┬──► scribe of member 0 ──┐
//! a sealing  ──┘                             └──► scribe of member 1 ──┴──► Answers
//! ```
//!
//! Each member has a thread for it, since a member that stands still must hold up neither whoever decides
//! nor the other members. What is asked of one is done in the order it was asked; a lock is held on every
//! member, so that whoever finds only one of them sees that somebody records.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use fullbore_core::manifest::{MANIFEST_FILE, SIDE_DIRECTORY};
use fullbore_core::marker::MARKERS_FILE;
use fullbore_core::name::ScanName;
use uuid::Uuid;

use super::error::RecordError;
use crate::store::inventory::{Copy, read_manifest, side_file};
use crate::store::lock::{ScanLock, put_file};
use crate::store::{Member, MemberError, hanging, make_side};

/// How long a member may take over what all are asked, once another has done it.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at the free space.
const LOOK: Duration = Duration::from_millis(250);

/// The longest time between two looks at a member that failed: each tries to write there.
const LONGEST_BETWEEN_TRIALS: Duration = Duration::from_secs(10);

/// A file beside the chunks of a stream.
#[derive(Clone, Debug)]
pub struct SideFile {
    /// The stream's directory.
    pub directory: String,
    /// The file's name.
    pub name: &'static str,
    /// All of it.
    pub json: Arc<[u8]>,
}

/// What is asked of every scribe of a scan.
#[derive(Clone, Debug)]
pub enum Task {
    /// Make these directories, which must be new, and then write the files.
    Claim {
        /// The scan, of which nothing may be there.
        name: ScanName,
        /// Directories of its streams.
        directories: Vec<String>,
        /// Manifests.
        files: Vec<SideFile>,
        /// Whether the scan has begun on other members: its writer makes directories too.
        begun: Arc<AtomicBool>,
    },
    /// Write these files in the place of those that are there.
    Write(Vec<SideFile>),
    /// Let the lock go.
    Release,
    /// Remove what was made of a scan that does not begin after all.
    Discard,
}

impl Task {
    fn places(&self) -> usize {
        match self {
            Task::Claim { files, .. } | Task::Write(files) => files.len(),
            Task::Release | Task::Discard => 0,
        }
    }
}

struct Errand {
    scan: Uuid,
    task: Task,
    answer: Sender<Answer>,
}

/// What a scribe could not do.
type Failed = Vec<(PathBuf, RecordError)>;

struct Answer {
    member: usize,
    places: usize,
    failed: Failed,
}

/// The scribes of all members.
#[derive(Clone)]
pub struct Scribes {
    all: Arc<[Scribe]>,
}

struct Scribe {
    errands: Sender<Errand>,
    seen: Arc<Seen>,
}

/// What a scribe sees of its member between errands.
#[derive(Default)]
struct Seen {
    free_bytes: AtomicU64,
    /// Room that a member which failed must have to be used again; 0 while it is used.
    watched: AtomicU64,
    /// Whether it has been found to be as it was.
    back: AtomicBool,
}

impl Scribes {
    /// Starts one for each member. They end when nobody can ask them any more.
    pub fn start(members: &[Member]) -> io::Result<Self> {
        let start = |(number, member): (usize, &Member)| -> io::Result<Scribe> {
            let (errands, receiver) = mpsc::channel();
            let seen = Arc::new(Seen::default());
            seen.free_bytes.store(member.free_bytes().unwrap_or(0), Ordering::Relaxed);
            let (member, books) = (member.clone(), BTreeMap::new());
            let trials = Trials { next: Instant::now(), wait: LOOK };
            let desk = Desk { number, member, books, seen: seen.clone(), trials };
            Builder::new().name(format!("scribe{number}")).spawn(move || desk.serve(&receiver))?;
            Ok(Scribe { errands, seen })
        };
        let all: io::Result<Vec<Scribe>> = members.iter().enumerate().map(start).collect();
        Ok(Self { all: all?.into() })
    }

    /// Asks these members to do the same for a scan.
    pub fn ask(&self, members: &[usize], scan: Uuid, task: &Task) -> Answers {
        let (answer, receiver) = mpsc::channel();
        for &member in members {
            let errand = Errand { scan, task: task.clone(), answer: answer.clone() };
            // A scribe that failed gives no answer, which is found out where answers are awaited.
            let _ = self.all[member].errands.send(errand);
        }
        let awaited = members.iter().copied().collect();
        Answers { receiver, awaited, good: 0, failed: Vec::new() }
    }

    /// Bytes free on a member when it was last seen.
    pub fn free_bytes(&self, member: usize) -> u64 {
        self.all[member].seen.free_bytes.load(Ordering::Relaxed)
    }

    /// Has a member that failed looked at from time to time, until it is as it was and has this much room.
    pub fn watch(&self, member: usize, room: u64) {
        let seen = &self.all[member].seen;
        seen.back.store(false, Ordering::SeqCst);
        seen.watched.store(room.max(1), Ordering::SeqCst);
    }

    /// Whether a member that failed can be used again. It is not watched any more then.
    pub fn takes_back(&self, member: usize) -> bool {
        self.all[member].seen.back.swap(false, Ordering::SeqCst)
    }
}

/// What the members answer to something that all were asked.
pub struct Answers {
    receiver: Receiver<Answer>,
    awaited: BTreeSet<usize>,
    good: usize,
    failed: Vec<(usize, PathBuf, RecordError)>,
}

impl Answers {
    /// Takes the answers that have come.
    pub fn poll(&mut self) {
        while !self.awaited.is_empty() {
            match self.receiver.try_recv() {
                Ok(answer) => self.take(answer),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.nobody_left(),
            }
        }
    }

    /// Whether every member has answered.
    pub fn are_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Whether a member has done it, at least a part of it.
    pub fn any_good(&self) -> bool {
        self.good > 0
    }

    /// Of directories that were claimed: an error if there is any member on which they could not be made.
    pub fn all_made(mut self) -> Result<Self, RecordError> {
        let not_made = |error: &RecordError| {
            matches!(error, RecordError::ScanExists { .. } | RecordError::Member(_))
        };
        match self.failed.iter().position(|(_, _, error)| not_made(error)) {
            Some(at) => Err(self.failed.swap_remove(at).2),
            None => Ok(self),
        }
    }

    /// Whether a directory that was to be new is there already.
    pub fn any_taken(&self) -> bool {
        let is_taken = |error: &RecordError| matches!(error, RecordError::ScanExists { .. });
        self.failed.iter().any(|(_, _, error)| is_taken(error))
    }

    /// Of directories that were claimed: an error if their name is taken on any member, or none has made them.
    pub fn enough_made(mut self) -> Result<(), RecordError> {
        let is_taken = |error: &RecordError| matches!(error, RecordError::ScanExists { .. });
        match self.failed.iter().position(|(_, _, error)| is_taken(error)) {
            Some(at) => Err(self.failed.swap_remove(at).2),
            None => self.one_is_enough(),
        }
    }

    /// Members that have not answered.
    pub fn awaited(&self) -> &BTreeSet<usize> {
        &self.awaited
    }

    /// What could not be done: on which member, to which file, and why.
    pub fn failed(&self) -> &[(usize, PathBuf, RecordError)] {
        &self.failed
    }

    /// Waits until all members have answered, however long that takes.
    pub fn wait_for_all(&mut self) {
        while !self.awaited.is_empty() {
            self.wait(PATIENCE);
        }
    }

    /// Waits for every member but those that are `silent`, for [`PATIENCE`] once one of them has done it. Who has
    /// not answered by then is silent too.
    pub fn wait_for_enough(&mut self, silent: &mut BTreeSet<usize>) {
        self.awaited.retain(|member| !silent.contains(member));
        let since = Instant::now();
        while !self.awaited.is_empty() {
            let left = PATIENCE.saturating_sub(since.elapsed());
            // With no copy at all there is nothing to go on with.
            if left.is_zero() && self.good > 0 {
                break;
            }
            self.wait(left.max(LOOK));
        }
        silent.extend(&self.awaited);
    }

    /// A member that fails now has been named, or will be by its writer; one copy is enough to read.
    pub fn one_is_enough(mut self) -> Result<(), RecordError> {
        match self.failed.pop() {
            Some((_, _, error)) if self.good == 0 => Err(error),
            _ => Ok(()),
        }
    }

    fn wait(&mut self, patience: Duration) {
        match self.receiver.recv_timeout(patience) {
            Ok(answer) => self.take(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.nobody_left(),
        }
    }

    fn take(&mut self, Answer { member, places, failed }: Answer) {
        // One that was not waited for any more is welcome all the same.
        self.awaited.remove(&member);
        self.good += usize::from(failed.is_empty() || failed.len() < places);
        self.failed.extend(failed.into_iter().map(|(path, error)| (member, path, error)));
    }

    /// Those that have not answered by now failed themselves.
    fn nobody_left(&mut self) {
        for member in std::mem::take(&mut self.awaited) {
            let error = io::Error::other("the thread that writes there has failed");
            self.failed.push((member, PathBuf::new(), RecordError::Thread(error)));
        }
    }
}

/// A scribe's own side: its member, and what it holds of each scan there.
struct Desk {
    number: usize,
    member: Member,
    books: BTreeMap<Uuid, Book>,
    seen: Arc<Seen>,
    trials: Trials,
}

/// When a member that failed is tried again: soon at first, and ever more rarely.
struct Trials {
    next: Instant,
    wait: Duration,
}

/// What a scribe holds of a scan.
#[derive(Default)]
struct Book {
    /// A lock on the first manifest.
    lock: Option<ScanLock>,
    /// Directories that were made for it.
    claimed: Vec<PathBuf>,
    /// A directory of another scan of this name.
    taken: Option<PathBuf>,
}

impl Desk {
    fn serve(mut self, errands: &Receiver<Errand>) {
        let mut looked = Instant::now();
        loop {
            match errands.recv_timeout(LOOK) {
                Ok(errand) => self.perform(errand),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look();
            }
        }
    }

    fn look(&mut self) {
        hanging::at(self.member.root());
        let free = self.member.is_there().ok().and_then(|()| self.member.free_bytes().ok());
        self.seen.free_bytes.store(free.unwrap_or(0), Ordering::Relaxed);
        let room = self.seen.watched.load(Ordering::SeqCst);
        match room {
            0 => self.trials = Trials { next: Instant::now(), wait: LOOK },
            room if Instant::now() >= self.trials.next => self.try_again(room),
            _ => {}
        }
    }

    fn try_again(&mut self, room: u64) {
        if self.member.look_again(room).is_ok() {
            self.seen.watched.store(0, Ordering::SeqCst);
            self.seen.back.store(true, Ordering::SeqCst);
        }
        let wait = (self.trials.wait * 2).min(LONGEST_BETWEEN_TRIALS);
        self.trials = Trials { next: Instant::now() + wait, wait };
    }

    fn perform(&mut self, Errand { scan, task, answer }: Errand) {
        hanging::at(self.member.root());
        let places = task.places();
        let failed = match task {
            Task::Claim { name, directories, files, begun } => {
                match self.claim(scan, &name, &directories, &begun) {
                    Ok(()) => self.write(scan, &files),
                    Err(error) => {
                        let path = self.member.root().to_owned();
                        // Nothing of it is done, however many files there are.
                        let _ = answer.send(Answer {
                            member: self.number,
                            places: 0,
                            failed: vec![(path, error)],
                        });
                        return;
                    }
                }
            }
            Task::Write(files) => self.write(scan, &files),
            Task::Release => {
                self.books.remove(&scan);
                Vec::new()
            }
            Task::Discard => {
                self.discard(scan);
                Vec::new()
            }
        };
        // Who asked may have gone on without an answer.
        let _ = answer.send(Answer { member: self.number, places, failed });
    }

    fn claim(
        &mut self,
        scan: Uuid,
        name: &ScanName,
        directories: &[String],
        begun: &AtomicBool,
    ) -> Result<(), RecordError> {
        let exists =
            |path: &Path| RecordError::ScanExists { scan: name.clone(), path: path.to_owned() };
        let book = self.books.entry(scan).or_default();
        if let Some(path) = existing(self.member.root(), name)
            && !begun.load(Ordering::SeqCst)
        {
            book.taken = Some(path.clone());
            return Err(exists(&path));
        }
        let root = self.member.root();
        let gone = |source| MemberError::Open { path: root.to_owned(), source };
        self.member.is_there().map_err(gone)?;
        for directory in directories {
            match self.member.claim(directory) {
                Ok(path) => book.claimed.push(path),
                // A scan that began without this member has a writer that made the directory.
                Err(MemberError::ScanExists { path })
                    if begun.load(Ordering::SeqCst) && may_be_of(&path, scan) => {}
                Err(MemberError::ScanExists { path }) => {
                    book.taken = Some(path.clone());
                    return Err(exists(&path));
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }

    fn write(&mut self, scan: Uuid, files: &[SideFile]) -> Failed {
        let root = self.member.root();
        let there = self.member.is_there();
        let book = self.books.entry(scan).or_default();
        let mut failed = Vec::new();
        for file in files {
            let path = side_file(&root.join(&file.directory), file.name);
            let put = match &there {
                Ok(()) => book.put(&path, &file.json, file.name == MANIFEST_FILE),
                Err(why) => {
                    let source = io::Error::new(why.kind(), why.to_string());
                    Err(RecordError::File { path: path.clone(), source })
                }
            };
            failed.extend(put.err().map(|error| (path, error)));
        }
        failed
    }

    fn discard(&mut self, scan: Uuid) {
        let Some(Book { lock, claimed, .. }) = self.books.remove(&scan) else { return };
        drop(lock);
        for directory in claimed {
            // What cannot be removed is left: the error that brought us here is the one to be told.
            let side = directory.join(SIDE_DIRECTORY);
            let _ = std::fs::remove_file(side.join(MARKERS_FILE));
            let _ = std::fs::remove_file(side.join(MANIFEST_FILE));
            let _ = std::fs::remove_dir(side);
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl Book {
    fn put(&mut self, path: &Path, json: &[u8], is_manifest: bool) -> Result<(), RecordError> {
        let failed = |source| RecordError::File { path: path.to_owned(), source };
        if self.taken.is_some() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        make_side(path.parent().expect("a file beside chunks lies in a directory"))
            .map_err(failed)?;
        match &mut self.lock {
            None if is_manifest => self.lock = Some(ScanLock::create(path, json)?),
            Some(lock) if lock.path() == path => lock.replace(json)?,
            _ => put_file(path, json).map_err(failed)?,
        }
        Ok(())
    }
}

/// A directory of a scan of this name.
fn existing(root: &Path, name: &ScanName) -> Option<PathBuf> {
    let entries = std::fs::read_dir(root).ok()?;
    let is_of_it = |entry: &std::fs::DirEntry| {
        let directory = entry.file_name();
        let of = directory.to_str().and_then(ScanName::of_directory);
        of.is_some_and(|(scan, _)| scan == *name)
    };
    entries.flatten().find(is_of_it).map(|entry| entry.path())
}

/// Whether no manifest says that the directory is of another scan.
fn may_be_of(directory: &Path, scan: Uuid) -> bool {
    match read_manifest(&side_file(directory, MANIFEST_FILE)) {
        Copy::Read(manifest) => manifest.uuid == scan,
        Copy::Missing | Copy::Unreadable(_) => true,
    }
}
