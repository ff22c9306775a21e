//! The metadata thread of a member: creates scan directories, writes manifests and accounts,
//! and holds locks.
//!
//! ```text
//! supervisor ──┬── Claim, Write, Release … ──┬──► metadata writer of member 0 ──┐
//! seal task  ──┘                             └──► metadata writer of member 1 ──┴──► PendingReplies
//! ```
//!
//! Each member has a thread of its own, because a stalled member must delay neither the supervisor nor the other
//! members. A thread does its tasks in order. A scan is locked on every member, so that a program which sees only one
//! of them detects the recording.

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
use fullbore_store::inventory::{Copy, read_manifest, side_file};
use fullbore_store::lock::{ScanLock, is_held, lock_path, put_file};
use fullbore_store::{Member, MemberError, make_side, stall_hooks};
use uuid::Uuid;

use crate::error::RecordError;

/// The longest time for a task on a member after another member has done it.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two checks of the free space.
const LOOK: Duration = Duration::from_millis(250);

/// The longest time between two checks of a failed member. Each check tries to write there.
const LONGEST_BETWEEN_TRIALS: Duration = Duration::from_secs(10);

/// A file beside the chunks of a stream.
#[derive(Clone, Debug)]
pub struct MetadataFile {
    /// The stream's directory.
    pub directory: String,
    /// The file's name.
    pub name: &'static str,
    /// The complete content.
    pub json: Arc<[u8]>,
}

/// A task for the metadata writers of a scan.
#[derive(Clone, Debug)]
pub enum MetadataTask {
    /// Create these directories, which must be new, and then write the files.
    Claim {
        /// The scan; nothing of it may exist.
        name: ScanName,
        /// Directories of its streams.
        directories: Vec<String>,
        /// Manifests.
        files: Vec<MetadataFile>,
        /// True if the scan has begun on other members, so that its writer creates directories too.
        begun: Arc<AtomicBool>,
    },
    /// Write these files, replacing existing ones.
    Write(Vec<MetadataFile>),
    /// Release the lock.
    Release,
    /// Remove everything created for a scan that does not begin.
    Discard,
}

impl MetadataTask {
    fn places(&self) -> usize {
        match self {
            MetadataTask::Claim { files, .. } | MetadataTask::Write(files) => files.len(),
            MetadataTask::Release | MetadataTask::Discard => 0,
        }
    }
}

struct Request {
    scan: Uuid,
    task: MetadataTask,
    reply: Sender<Reply>,
}

/// The files that a metadata writer could not write.
type Failures = Vec<(PathBuf, RecordError)>;

struct Reply {
    member: usize,
    places: usize,
    failed: Failures,
}

/// The metadata writers of all members.
#[derive(Clone)]
pub struct MetadataWriters {
    all: Arc<[MetadataWriter]>,
}

struct MetadataWriter {
    requests: Sender<Request>,
    seen: Arc<MemberStatus>,
}

/// The state of a member at the last check of its metadata writer.
#[derive(Default)]
struct MemberStatus {
    free_bytes: AtomicU64,
    /// The free space that a failed member needs to be used again; 0 while it is in use.
    watched: AtomicU64,
    /// True if it was found unchanged.
    back: AtomicBool,
}

impl MetadataWriters {
    /// Starts a thread for each member. The threads end when all senders of tasks are dropped.
    pub fn start(members: &[Member]) -> io::Result<Self> {
        let start = |(number, member): (usize, &Member)| -> io::Result<MetadataWriter> {
            let (requests, receiver) = mpsc::channel();
            let seen = Arc::new(MemberStatus::default());
            seen.free_bytes.store(member.free_bytes().unwrap_or(0), Ordering::Relaxed);
            let (member, streams) = (member.clone(), BTreeMap::new());
            let trials = RetryBackoff { next: Instant::now(), wait: LOOK };
            let desk = WriterThread {
                number,
                member,
                scans: streams,
                seen: seen.clone(),
                backoff: trials,
            };
            Builder::new().name(format!("scribe{number}")).spawn(move || desk.serve(&receiver))?;
            Ok(MetadataWriter { requests, seen })
        };
        let all: io::Result<Vec<MetadataWriter>> = members.iter().enumerate().map(start).collect();
        Ok(Self { all: all?.into() })
    }

    /// Sends a task of a scan to these members.
    pub fn ask(&self, members: &[usize], scan: Uuid, task: &MetadataTask) -> PendingReplies {
        let (answer, receiver) = mpsc::channel();
        for &member in members {
            let request = Request { scan, task: task.clone(), reply: answer.clone() };
            // A failed metadata writer gives no reply, which the receiver of replies detects.
            let _ = self.all[member].requests.send(request);
        }
        let awaited = members.iter().copied().collect();
        PendingReplies { receiver, awaited, good: 0, failed: Vec::new() }
    }

    /// Bytes free on a member at the last check.
    pub fn free_bytes(&self, member: usize) -> u64 {
        self.all[member].seen.free_bytes.load(Ordering::Relaxed)
    }

    /// Starts regular checks of a failed member, until it is unchanged and has this much free space.
    pub fn watch(&self, member: usize, room: u64) {
        let seen = &self.all[member].seen;
        seen.back.store(false, Ordering::SeqCst);
        seen.watched.store(room.max(1), Ordering::SeqCst);
    }

    /// True if a failed member can be used again. The checks end then.
    pub fn takes_back(&self, member: usize) -> bool {
        self.all[member].seen.back.swap(false, Ordering::SeqCst)
    }

    /// Marks a member as usable again, as if its metadata writer had checked it.
    #[cfg(test)]
    pub fn find_again(&self, member: usize) {
        self.all[member].seen.back.store(true, Ordering::SeqCst);
    }
}

/// The replies of the members to a task, as they arrive.
pub struct PendingReplies {
    receiver: Receiver<Reply>,
    awaited: BTreeSet<usize>,
    good: usize,
    failed: Vec<(usize, PathBuf, RecordError)>,
}

impl PendingReplies {
    /// An empty set of replies that needs no wait.
    pub fn none() -> Self {
        let (_, receiver) = mpsc::channel();
        Self { receiver, awaited: BTreeSet::new(), good: 0, failed: Vec::new() }
    }

    /// Takes the replies that have arrived.
    pub fn poll(&mut self) {
        while !self.awaited.is_empty() {
            match self.receiver.try_recv() {
                Ok(answer) => self.take(answer),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.nobody_left(),
            }
        }
    }

    /// True if every member has replied.
    pub fn are_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// True if at least one member has done at least a part of the task.
    pub fn any_good(&self) -> bool {
        self.good > 0
    }

    /// For claims: returns an error if the directories could not be created on some member.
    pub fn all_made(mut self) -> Result<Self, RecordError> {
        let not_made = |error: &RecordError| {
            matches!(error, RecordError::ScanExists { .. } | RecordError::Member(_))
        };
        match self.failed.iter().position(|(_, _, error)| not_made(error)) {
            Some(at) => Err(self.failed.swap_remove(at).2),
            None => Ok(self),
        }
    }

    /// True if a directory that was to be new exists already.
    pub fn any_taken(&self) -> bool {
        let is_taken = |error: &RecordError| matches!(error, RecordError::ScanExists { .. });
        self.failed.iter().any(|(_, _, error)| is_taken(error))
    }

    /// For claims: returns an error if the name exists on a member, or if no member has created the directories.
    pub fn enough_made(mut self) -> Result<(), RecordError> {
        let is_taken = |error: &RecordError| matches!(error, RecordError::ScanExists { .. });
        match self.failed.iter().position(|(_, _, error)| is_taken(error)) {
            Some(at) => Err(self.failed.swap_remove(at).2),
            None => self.one_is_enough(),
        }
    }

    /// Members that have not replied.
    pub fn awaited(&self) -> &BTreeSet<usize> {
        &self.awaited
    }

    /// Failures: the member, the file, and the error.
    pub fn failed(&self) -> &[(usize, PathBuf, RecordError)] {
        &self.failed
    }

    /// Waits until all members have replied, without a limit.
    pub fn wait_for_all(&mut self) {
        while !self.awaited.is_empty() {
            self.wait(PATIENCE);
        }
    }

    /// Waits for all members except those in `silent`, at most for five seconds after the first success. Members that
    /// have not replied by then are added to `silent`.
    pub fn wait_for_enough(&mut self, silent: &mut BTreeSet<usize>) {
        self.awaited.retain(|member| !silent.contains(member));
        let since = Instant::now();
        while !self.awaited.is_empty() {
            let left = PATIENCE.saturating_sub(since.elapsed());
            // Without a single copy the wait continues.
            if left.is_zero() && self.good > 0 {
                break;
            }
            self.wait(left.max(LOOK));
        }
        silent.extend(&self.awaited);
    }

    /// A member that fails now is reported here or by its writer. One copy is enough to read.
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

    fn take(&mut self, Reply { member, places, failed }: Reply) {
        // A late reply counts too.
        self.awaited.remove(&member);
        self.good += usize::from(failed.is_empty() || failed.len() < places);
        self.failed.extend(failed.into_iter().map(|(path, error)| (member, path, error)));
    }

    /// Marks members without a reply as failed.
    fn nobody_left(&mut self) {
        for member in std::mem::take(&mut self.awaited) {
            let error = io::Error::other("the thread that writes there has failed");
            self.failed.push((member, PathBuf::new(), RecordError::Thread(error)));
        }
    }
}

/// The state of the thread: its member, and its files of each scan there.
struct WriterThread {
    number: usize,
    member: Member,
    scans: BTreeMap<Uuid, ScanFiles>,
    seen: Arc<MemberStatus>,
    backoff: RetryBackoff,
}

/// The retry backoff of a failed member: short at first, then longer and longer.
struct RetryBackoff {
    next: Instant,
    wait: Duration,
}

/// The lock and the paths that a metadata writer holds of a scan.
#[derive(Default)]
struct ScanFiles {
    /// A lock on the first manifest.
    lock: Option<ScanLock>,
    /// Directories that were made for it.
    claimed: Vec<PathBuf>,
    /// A directory of another scan with this name.
    taken: Option<PathBuf>,
}

impl WriterThread {
    fn serve(mut self, requests: &Receiver<Request>) {
        let mut looked = Instant::now();
        loop {
            match requests.recv_timeout(LOOK) {
                Ok(request) => self.perform(request),
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
        stall_hooks::at(self.member.root());
        let free = self.member.is_there().ok().and_then(|()| self.member.free_bytes().ok());
        self.seen.free_bytes.store(free.unwrap_or(0), Ordering::Relaxed);
        let room = self.seen.watched.load(Ordering::SeqCst);
        match room {
            0 => self.backoff = RetryBackoff { next: Instant::now(), wait: LOOK },
            room if Instant::now() >= self.backoff.next => self.try_again(room),
            _ => {}
        }
    }

    fn try_again(&mut self, room: u64) {
        if self.member.look_again(room).is_ok() {
            self.seen.watched.store(0, Ordering::SeqCst);
            self.seen.back.store(true, Ordering::SeqCst);
        }
        let wait = (self.backoff.wait * 2).min(LONGEST_BETWEEN_TRIALS);
        self.backoff = RetryBackoff { next: Instant::now() + wait, wait };
    }

    fn perform(&mut self, Request { scan, task, reply: answer }: Request) {
        stall_hooks::at(self.member.root());
        let places = task.places();
        let failed = match task {
            MetadataTask::Claim { name, directories, files, begun } => {
                match self.claim(scan, &name, &directories, &begun) {
                    Ok(()) => self.write(scan, &files),
                    Err(error) => {
                        let path = self.member.root().to_owned();
                        // None of the task is done, whatever the number of files.
                        let _ = answer.send(Reply {
                            member: self.number,
                            places: 0,
                            failed: vec![(path, error)],
                        });
                        return;
                    }
                }
            }
            MetadataTask::Write(files) => self.write(scan, &files),
            MetadataTask::Release => {
                self.scans.remove(&scan);
                Vec::new()
            }
            MetadataTask::Discard => {
                self.discard(scan);
                Vec::new()
            }
        };
        // The receiver may have continued without the reply.
        let _ = answer.send(Reply { member: self.number, places, failed });
    }

    fn claim(
        &mut self,
        scan: Uuid,
        name: &ScanName,
        directories: &[String],
        begun: &AtomicBool,
    ) -> Result<(), RecordError> {
        let root = self.member.root().to_owned();
        let exists = |path: &Path| RecordError::ScanExists {
            scan: name.clone(),
            path: path.to_owned(),
            recording: is_being_recorded(&root, path),
        };
        let book = self.scans.entry(scan).or_default();
        if let Some(path) = existing(self.member.root(), name)
            && !begun.load(Ordering::SeqCst)
        {
            book.taken = Some(path.clone());
            return Err(exists(&path));
        }
        let root = self.member.root();
        let gone = |source| MemberError::Gone { path: root.to_owned(), source };
        self.member.is_there().map_err(gone)?;
        for directory in directories {
            match self.member.claim(directory) {
                Ok(path) => book.claimed.push(path),
                // If the scan began without this member, the writer has created the directory.
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

    fn write(&mut self, scan: Uuid, files: &[MetadataFile]) -> Failures {
        let root = self.member.root();
        let there = self.member.is_there();
        let book = self.scans.entry(scan).or_default();
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
        let Some(ScanFiles { lock, claimed, .. }) = self.scans.remove(&scan) else { return };
        drop(lock);
        for directory in claimed {
            // A directory that cannot be removed stays. The caller reports the first error.
            let side = directory.join(SIDE_DIRECTORY);
            let _ = std::fs::remove_file(side.join(MARKERS_FILE));
            let _ = std::fs::remove_file(side.join(MANIFEST_FILE));
            let _ = std::fs::remove_dir(side);
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl ScanFiles {
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

/// Returns a directory of a scan with this name.
fn existing(root: &Path, name: &ScanName) -> Option<PathBuf> {
    let entries = std::fs::read_dir(root).ok()?;
    let is_of_it = |entry: &std::fs::DirEntry| {
        let directory = entry.file_name();
        let of = directory.to_str().and_then(ScanName::of_directory);
        of.is_some_and(|(scan, _)| scan == *name)
    };
    entries.flatten().find(is_of_it).map(|entry| entry.path())
}

/// True if a running recorder holds the lock of the scan that this directory belongs to.
fn is_being_recorded(root: &Path, directory: &Path) -> bool {
    let own = side_file(directory, MANIFEST_FILE);
    let lock = match read_manifest(&own) {
        Copy::Read(manifest) => lock_path(root, &manifest).unwrap_or(own),
        Copy::Missing | Copy::Unreadable(_) => own,
    };
    is_held(&lock)
}

/// True if no manifest shows that the directory belongs to another scan.
fn may_be_of(directory: &Path, scan: Uuid) -> bool {
    match read_manifest(&side_file(directory, MANIFEST_FILE)) {
        Copy::Read(manifest) => manifest.uuid == scan,
        Copy::Missing | Copy::Unreadable(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::hint::Hint;

    use super::*;

    #[test]
    fn a_member_that_is_pulled_before_the_scan_begins_is_to_be_mounted_again() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("member");
        std::fs::create_dir(&root).unwrap();
        let member = Member::open(&root).unwrap();
        let writers = MetadataWriters::start(&[member]).unwrap();
        // As a mount point without its disk.
        std::fs::rename(&root, place.path().join("aside")).unwrap();
        std::fs::create_dir(&root).unwrap();
        let name: ScanName = "s_a".parse().unwrap();
        let directories = vec!["s_a_1".to_owned()];
        let task =
            MetadataTask::Claim { name, directories, files: Vec::new(), begun: Arc::default() };
        let mut claimed = writers.ask(&[0], Uuid::now_v7(), &task);
        claimed.wait_for_all();
        let Err(error) = claimed.all_made() else { panic!("nothing is made there") };
        assert!(error.to_string().contains("not mounted there any more"), "{error}");
        assert!(error.hint().unwrap().starts_with("mount its disk again"), "{error}");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    }
}
