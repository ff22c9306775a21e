//! Journals partly filled blocks of slow streams to a file per member, once a second.
//!
//! ```text
//! capture thread ──Snapshot──► journal thread of a member ──► .fullbore/tail.<sequence>   appended, synced
//! sealing ─────────Forget────►                            ──► removed
//! ```
//!
//! Each member has a journal thread, apart from its writer and its metadata writer, so a slow sync delays neither
//! blocks nor manifests.
//! A journal file starts under a temporary name and gets its final name with its first snapshot, so that a complete
//! file always exists. The file before it stays until the next one, because its blocks may not be durable yet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, remove_file, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_core::partial_block::{
    BEGUN_SUFFIX, Codec, Entry, belongs_to_partial_block, is_partial_block_file, partial_block_file,
};
use fullbore_linux::regular_file;
use fullbore_linux::ring::{CopyState, PartialBlockUpdate};
use uuid::Uuid;

use super::lock::sync_directory;
use super::{Member, stall_hooks};

/// The partial-block journal: a thread per member.
#[derive(Clone)]
pub struct PartialBlockJournal {
    all: Arc<[Sender<JournalRequest>]>,
    /// The pairs of scan and member that have a journal file.
    held: Arc<Mutex<BTreeSet<(Uuid, usize)>>>,
}

enum JournalRequest {
    Keep(PartialBlockUpdate),
    Forget(Uuid, Sender<()>),
}

impl PartialBlockJournal {
    /// Starts a thread for each member. The threads end when the last handle is dropped.
    pub fn start(members: &[Member]) -> io::Result<Self> {
        let start = |(number, member): (usize, &Member)| -> io::Result<Sender<JournalRequest>> {
            let (errands, receiver) = mpsc::channel();
            let (member, files, buffer) = (member.clone(), BTreeMap::new(), Vec::new());
            let thread = JournalThread { member, files, buffer };
            Builder::new().name(format!("tail{number}")).spawn(move || thread.serve(&receiver))?;
            Ok(errands)
        };
        let all: io::Result<Vec<_>> = members.iter().enumerate().map(start).collect();
        Ok(Self { all: all?.into(), held: Arc::default() })
    }

    /// Sends the new bytes of a stream to a member's journal thread; the copy status shows when they are stored. Never
    /// blocks: returns `false` if the thread's queue is full.
    pub fn keep(&self, member: usize, snapshot: PartialBlockUpdate) -> bool {
        if snapshot.fresh {
            let Ok(mut held) = self.held.try_lock() else { return false };
            held.insert((snapshot.stream_ref.scan, member));
        }
        let copy_status = snapshot.copy_status.clone();
        copy_status.put(CopyState::Busy);
        if self.all[member].send(JournalRequest::Keep(snapshot)).is_err() {
            copy_status.put(CopyState::Failed);
        }
        true
    }

    /// Removes the partial-block files of a scan whose blocks are all durable. Waits at most for `patience`, and
    /// returns the members that have not finished by then; they finish later if they can.
    pub fn forget(&self, scan: Uuid, patience: Duration) -> Vec<usize> {
        let mut holders = Vec::new();
        self.held.lock().unwrap_or_else(PoisonError::into_inner).retain(|&(of, member)| {
            if of == scan {
                holders.push(member);
            }
            of != scan
        });
        let end = Instant::now() + patience;
        let requested = holders.into_iter().map(|member| {
            let (done, answer) = mpsc::channel();
            // A journal thread that failed gives no answer.
            let _ = self.all[member].send(JournalRequest::Forget(scan, done));
            (member, answer)
        });
        let requested: Vec<(usize, Receiver<()>)> = requested.collect();
        let silent = |(_, answer): &(usize, Receiver<()>)| {
            answer.recv_timeout(end.saturating_duration_since(Instant::now())).is_err()
        };
        requested.into_iter().filter(silent).map(|(member, _)| member).collect()
    }
}

/// The state of a journal thread: its member, and the file of each stream there.
struct JournalThread {
    member: Member,
    files: BTreeMap<(Uuid, u16), JournalFile>,
    buffer: Vec<u8>,
}

/// The journal file of a stream.
struct JournalFile {
    file: File,
    path: PathBuf,
    /// True if it has its final name.
    named: bool,
    /// The file before it, whose blocks may not be durable yet.
    before: Option<PathBuf>,
}

impl JournalThread {
    fn serve(mut self, errands: &Receiver<JournalRequest>) {
        while let Ok(errand) = errands.recv() {
            stall_hooks::at(self.member.root());
            match errand {
                JournalRequest::Keep(snapshot) => {
                    let kept = self.keep(&snapshot);
                    if kept.is_err() {
                        self.give_up(&snapshot);
                    }
                    let state = if kept.is_ok() { CopyState::Idle } else { CopyState::Failed };
                    snapshot.copy_status.put(state);
                }
                JournalRequest::Forget(scan, done) => {
                    self.forget(scan);
                    // The caller may have timed out.
                    let _ = done.send(());
                }
            }
        }
    }

    fn keep(&mut self, snapshot: &PartialBlockUpdate) -> io::Result<()> {
        let key = (snapshot.stream_ref.scan, snapshot.stream_ref.number);
        if snapshot.fresh {
            self.begin(snapshot)?;
        }
        let Some(kept) = self.files.get_mut(&key) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the tail was given up"));
        };
        let codec = Codec::of_stream(key.0, key.1);
        self.buffer.clear();
        for patch in &snapshot.patches {
            let (first, offset, bytes) = (patch.first, patch.offset, patch.bytes.as_slice());
            codec.encode(&Entry::Bytes { first, offset, bytes }, &mut self.buffer);
        }
        if let Some(snapshot) = &snapshot.snapshot {
            codec.encode(&Entry::Snapshot(snapshot.clone()), &mut self.buffer);
        }
        kept.file.write_all(&self.buffer)?;
        if snapshot.snapshot.is_some() {
            kept.file.sync_data()?;
            kept.give_name()?;
        }
        Ok(())
    }

    fn begin(&mut self, snapshot: &PartialBlockUpdate) -> io::Result<()> {
        // A member that is gone must not come back as a directory on the disk below.
        self.member.is_there()?;
        let stream_ref = &snapshot.stream_ref;
        let side = self.member.root().join(&stream_ref.directory).join(SIDE_DIRECTORY);
        super::make_side(&side)?;
        let path = side.join(partial_block_file(snapshot.sequence));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o644);
        let file = regular_file::open_with(&options, &begun(&path))?;
        let old = self.files.remove(&(stream_ref.scan, stream_ref.number));
        let before = old.and_then(|old| old.make_room_for(&path));
        let kept = JournalFile { file, path, named: false, before };
        self.files.insert((stream_ref.scan, stream_ref.number), kept);
        Ok(())
    }

    /// Abandons a file that can no longer be written: recovery can only use the part that was complete before.
    fn give_up(&mut self, snapshot: &PartialBlockUpdate) {
        let key = (snapshot.stream_ref.scan, snapshot.stream_ref.number);
        if let Some(kept) = self.files.get(&key) {
            remove_quietly(&begun(&kept.path));
        }
    }

    fn forget(&mut self, scan: Uuid) {
        self.files.retain(|&(of, _), kept| {
            if of == scan {
                kept.remove();
            }
            of != scan
        });
    }
}

impl JournalFile {
    /// Renames the file to its final name, once it is complete.
    fn give_name(&mut self) -> io::Result<()> {
        if !self.named {
            rename(begun(&self.path), &self.path)?;
            sync_directory(self.path.parent().expect("a tail lies in a directory"))?;
            self.named = true;
        }
        Ok(())
    }

    /// Makes room for another file. Returns the file to keep beside it: the last complete one, if it has other blocks.
    fn make_room_for(self, path: &Path) -> Option<PathBuf> {
        if self.path == path {
            return self.before;
        }
        remove_quietly(&begun(&self.path));
        if !self.path.exists() {
            return self.before.filter(|before| before != path);
        }
        self.before.iter().filter(|before| *before != path).for_each(|it| remove_quietly(it));
        Some(self.path)
    }

    fn remove(&self) {
        remove_quietly(&begun(&self.path));
        remove_quietly(&self.path);
        self.before.iter().for_each(|before| remove_quietly(before));
    }
}

/// Returns the temporary path of a file until it is complete.
fn begun(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(BEGUN_SUFFIX);
    name.into()
}

/// Removes a file. A file that remains is litter, which `recover` and `rm` remove.
fn remove_quietly(path: &Path) {
    let _ = remove_file(path);
}

/// Returns the complete partial-block files in a stream's directory.
pub fn tails_in(directory: &Path) -> Vec<PathBuf> {
    listed(directory, is_partial_block_file)
}

/// Returns all partial-block files in a stream's directory, complete or not.
pub fn litter_in(directory: &Path) -> Vec<PathBuf> {
    listed(directory, belongs_to_partial_block)
}

fn listed(directory: &Path, wanted: fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory.join(SIDE_DIRECTORY)) else { return Vec::new() };
    let is_wanted = |entry: &std::fs::DirEntry| entry.file_name().to_str().is_some_and(wanted);
    let mut files: Vec<PathBuf> =
        entries.flatten().filter(is_wanted).map(|entry| entry.path()).collect();
    files.sort();
    files
}
