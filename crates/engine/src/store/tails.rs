//! Who keeps the tails of slow streams: what is in blocks that are not full yet, in a file beside the chunks.
//!
//! ```text
//! capture thread ──Snapshot──► keeper of a member ──► .fullbore/tail.<sequence>   appended, synced
//! sealing ─────────Forget────►                    ──► removed
//! ```
//!
//! Each member has a thread for it, apart from its writer and its scribe: a sync that lasts holds up neither blocks nor
//! manifests. A file begins under another name and gets its own with its first picture, so that there is always one
//! that is whole; the one before it stays until the next, for its blocks may still be on their way.

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
use fullbore_core::tail::{BEGUN_SUFFIX, Codec, Entry, is_of_tail, is_tail, tail_file};
use uuid::Uuid;

use super::lock::sync_directory;
use super::{Member, hanging};
use crate::ring::{Snapshot, Standing};

/// The keepers of all members.
#[derive(Clone)]
pub struct Tails {
    all: Arc<[Sender<Errand>]>,
    /// Which members have had something of which scan.
    held: Arc<Mutex<BTreeSet<(Uuid, usize)>>>,
}

enum Errand {
    Keep(Snapshot),
    Forget(Uuid, Sender<()>),
}

impl Tails {
    /// Starts one for each member. They end when nobody can ask them any more.
    pub fn start(members: &[Member]) -> io::Result<Self> {
        let start = |(number, member): (usize, &Member)| -> io::Result<Sender<Errand>> {
            let (errands, receiver) = mpsc::channel();
            let (member, files, buffer) = (member.clone(), BTreeMap::new(), Vec::new());
            let keeper = Keeper { member, files, buffer };
            Builder::new().name(format!("tail{number}")).spawn(move || keeper.serve(&receiver))?;
            Ok(errands)
        };
        let all: io::Result<Vec<_>> = members.iter().enumerate().map(start).collect();
        Ok(Self { all: all?.into(), held: Arc::default() })
    }

    /// Has a member keep what is new of a stream; the snapshot's slip says when it has. Never waits: `false` if it could
    /// not be handed over now.
    pub fn keep(&self, member: usize, snapshot: Snapshot) -> bool {
        if snapshot.fresh {
            let Ok(mut held) = self.held.try_lock() else { return false };
            held.insert((snapshot.track.scan, member));
        }
        let slip = snapshot.slip.clone();
        slip.put(Standing::Busy);
        if self.all[member].send(Errand::Keep(snapshot)).is_err() {
            slip.put(Standing::Failed);
        }
        true
    }

    /// Has the tails of a scan removed: all of its blocks are durable. Waits for so long at most, and says which
    /// members have not done it by then; they will once they can.
    pub fn forget(&self, scan: Uuid, patience: Duration) -> Vec<usize> {
        let mut holders = Vec::new();
        self.held.lock().unwrap_or_else(PoisonError::into_inner).retain(|&(of, member)| {
            if of == scan {
                holders.push(member);
            }
            of != scan
        });
        let end = Instant::now() + patience;
        let asked = holders.into_iter().map(|member| {
            let (done, answer) = mpsc::channel();
            // A keeper that failed gives no answer.
            let _ = self.all[member].send(Errand::Forget(scan, done));
            (member, answer)
        });
        let asked: Vec<(usize, Receiver<()>)> = asked.collect();
        let silent = |(_, answer): &(usize, Receiver<()>)| {
            answer.recv_timeout(end.saturating_duration_since(Instant::now())).is_err()
        };
        asked.into_iter().filter(silent).map(|(member, _)| member).collect()
    }
}

/// A keeper's own side: its member, and the file of each stream there.
struct Keeper {
    member: Member,
    files: BTreeMap<(Uuid, u16), Kept>,
    buffer: Vec<u8>,
}

/// The tail of a stream.
struct Kept {
    file: File,
    path: PathBuf,
    /// Whether it has its name.
    named: bool,
    /// The one before it, whose blocks may not be durable yet.
    before: Option<PathBuf>,
}

impl Keeper {
    fn serve(mut self, errands: &Receiver<Errand>) {
        while let Ok(errand) = errands.recv() {
            hanging::at(self.member.root());
            match errand {
                Errand::Keep(snapshot) => {
                    let kept = self.keep(&snapshot);
                    if kept.is_err() {
                        self.give_up(&snapshot);
                    }
                    let standing = if kept.is_ok() { Standing::Idle } else { Standing::Failed };
                    snapshot.slip.put(standing);
                }
                Errand::Forget(scan, done) => {
                    self.forget(scan);
                    // Who asked may have gone on without an answer.
                    let _ = done.send(());
                }
            }
        }
    }

    fn keep(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let key = (snapshot.track.scan, snapshot.track.number);
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
        if let Some(picture) = &snapshot.picture {
            codec.encode(&Entry::Picture(picture.clone()), &mut self.buffer);
        }
        kept.file.write_all(&self.buffer)?;
        if snapshot.picture.is_some() {
            kept.file.sync_data()?;
            kept.give_name()?;
        }
        Ok(())
    }

    fn begin(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        // A member that is gone must not come back as a directory on the disk below.
        self.member.is_there()?;
        let track = &snapshot.track;
        let side = self.member.root().join(&track.directory).join(SIDE_DIRECTORY);
        super::make_side(&side)?;
        let path = side.join(tail_file(snapshot.sequence));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o644);
        let file = options.open(begun(&path))?;
        let old = self.files.remove(&(track.scan, track.number));
        let before = old.and_then(|old| old.make_room_for(&path));
        let kept = Kept { file, path, named: false, before };
        self.files.insert((track.scan, track.number), kept);
        Ok(())
    }

    /// A tail that cannot be written on is of no use to whoever recovers, as far as it was not whole before.
    fn give_up(&mut self, snapshot: &Snapshot) {
        let key = (snapshot.track.scan, snapshot.track.number);
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

impl Kept {
    /// Gives it its name, once it is whole.
    fn give_name(&mut self) -> io::Result<()> {
        if !self.named {
            rename(begun(&self.path), &self.path)?;
            sync_directory(self.path.parent().expect("a tail lies in a directory"))?;
            self.named = true;
        }
        Ok(())
    }

    /// Another begins. Gives what stays beside it: the last one that is whole, if it is of other blocks.
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

/// Where a tail is written until it is whole.
fn begun(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(BEGUN_SUFFIX);
    name.into()
}

/// What cannot be removed is litter, which `recover` and `rm` take away.
fn remove_quietly(path: &Path) {
    let _ = remove_file(path);
}

/// Whole tails beside the chunks in a stream's directory.
pub fn tails_in(directory: &Path) -> Vec<PathBuf> {
    listed(directory, is_tail)
}

/// All files beside the chunks in a stream's directory that are tails, or became none.
pub fn litter_in(directory: &Path) -> Vec<PathBuf> {
    listed(directory, is_of_tail)
}

fn listed(directory: &Path, wanted: fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory.join(SIDE_DIRECTORY)) else { return Vec::new() };
    let is_wanted = |entry: &std::fs::DirEntry| entry.file_name().to_str().is_some_and(wanted);
    let mut files: Vec<PathBuf> =
        entries.flatten().filter(is_wanted).map(|entry| entry.path()).collect();
    files.sort();
    files
}
