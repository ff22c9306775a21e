//! What a writer needs of a member: operations that are submitted and complete later.
//!
//! Writes and syncs go through the ring. What makes, names and trims files may wait for the file
//! system's journal, so it is done by a helper thread, in order, and completes in the same way.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_core::time::Tai;
use rustix::fs::{FallocateFlags, IFlags, Mode, OFlags, RenameFlags, fallocate, ftruncate};

use super::member::Member;
use crate::clock::Clock;
use crate::ring::{Block, Wake};
use crate::sys::memory::Region;
use crate::sys::uring::{DONTCACHE, Done, Ring, RingError};

/// One thing asked of a member. Paths are relative to the member's root.
#[derive(Debug)]
pub enum Operation<F> {
    /// Make the directory of a stream and the one for all that is not data; both may exist.
    MakeDirectories {
        /// The stream's directory.
        directory: String,
    },
    /// Make a file that must not exist and take its space; nothing is left behind on failure.
    Create {
        /// The file.
        path: String,
        /// Bytes that will be written.
        bytes: u64,
    },
    /// Open a directory, to sync it.
    OpenDirectory {
        /// The directory; empty for the root.
        path: String,
    },
    /// Take more space for a file.
    Extend {
        /// The file.
        file: F,
        /// First new byte.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// Give a file its true length, if one is named, and then its place, which nothing may hold.
    Settle {
        /// The file.
        file: F,
        /// Its length.
        bytes: Option<u64>,
        /// Its name now and its name after.
        rename: Option<(String, String)>,
    },
    /// Remove a file.
    Remove {
        /// The file.
        path: String,
    },
    /// Write part of a block.
    Write {
        /// The file.
        file: F,
        /// Where in it.
        offset: u64,
        /// The memory.
        block: Block,
        /// First byte and number of bytes in the block.
        part: (u32, u32),
    },
    /// Sync a file, or with `metadata` a directory.
    Sync {
        /// The file.
        file: F,
        /// Whether more than data and size must be safe.
        metadata: bool,
    },
}

/// What came of an operation.
#[derive(Debug)]
pub struct Completion<F> {
    /// The number it was submitted under.
    pub token: u64,
    /// Bytes written (0 for anything but a write), or what went wrong.
    pub result: io::Result<u32>,
    /// The file that was made or opened.
    pub file: Option<F>,
    /// The memory of a write.
    pub block: Option<Block>,
}

/// A member as its writer sees it: the real one, or one that fails by a seed.
pub trait Disk {
    /// An open file; it is closed when the last handle of it is dropped.
    type File: Clone + fmt::Debug;

    /// Starts an operation. It completes under `token`, in any order.
    fn submit(&mut self, token: u64, operation: Operation<Self::File>);

    /// Waits for completions, but only while `idle` says that nothing else is to be done.
    fn wait(
        &mut self,
        timeout: Duration,
        idle: &mut dyn FnMut() -> bool,
        into: &mut Vec<Completion<Self::File>>,
    ) -> io::Result<()>;

    /// Time since some start, for durations.
    fn now(&self) -> Duration;

    /// The host's clock, for the index.
    fn clock(&self) -> Tai;

    /// Gives up what was held for block memory that is no longer in use.
    fn tidy(&mut self) {}
}

/// How files of a member are opened and written, as its probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Where not direct: through the page cache without staying there (`RWF_DONTCACHE`).
    pub uncached: bool,
    /// New directories are told not to copy on write (btrfs).
    pub no_cow: bool,
}

/// Files of a member that leaves nothing behind: they have no names, and last as long as this.
///
/// The names are those that they would have, `<scan-stream>/<scan-stream>.00000000` for a chunk in place.
#[derive(Debug, Default)]
pub struct Nameless {
    files: Mutex<BTreeMap<String, Arc<OwnedFd>>>,
}

impl Nameless {
    /// The file that would have this name.
    pub fn file(&self, name: &str) -> Option<Arc<OwnedFd>> {
        self.lock().get(name).cloned()
    }

    /// Gives the space of one file back, whoever else has it open.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match self.lock().remove(name) {
            Some(file) => Ok(rustix::fs::ftruncate(&file, 0)?),
            None => Ok(()),
        }
    }

    /// Lets go of all files, and with them of their space.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<OwnedFd>>> {
        self.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A directory on a file system of this host.
pub struct Local {
    ring: Ring,
    done: Vec<Done>,
    flags: u32,
    wake: Arc<Wake>,
    chores: Option<mpsc::Sender<(u64, Operation<Arc<OwnedFd>>)>>,
    answers: mpsc::Receiver<Completion<Arc<OwnedFd>>>,
    helper: Option<JoinHandle<()>>,
    begun: Instant,
}

impl Local {
    /// The member, for the calling thread.
    pub fn new(member: &Member, wake: Arc<Wake>) -> Result<Self, RingError> {
        let access = member.access();
        let ring = Ring::new(wake.clone())?;
        let (chores, receiver) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        let (root, nameless) = (member.root().to_owned(), member.nameless_files());
        let member = member.clone();
        let (files, waker) = (Files { root, access, nameless, member }, wake.clone());
        let helper = std::thread::Builder::new()
            .name("fb-files".into())
            .spawn(move || files.serve(&receiver, &sender, &waker))
            .map_err(|source| RingError { source })?;
        Ok(Self {
            ring,
            done: Vec::new(),
            flags: if access.uncached && !access.direct { DONTCACHE } else { 0 },
            wake,
            chores: Some(chores),
            answers,
            helper: Some(helper),
            begun: Instant::now(),
        })
    }

    /// Has the kernel pin memory that will be written from. What it refuses is written from all the same.
    pub fn pin(&mut self, memory: &[Arc<Region>]) -> io::Result<()> {
        self.ring.pin(memory)
    }
}

impl Disk for Local {
    type File = Arc<OwnedFd>;

    fn submit(&mut self, token: u64, operation: Operation<Self::File>) {
        match operation {
            Operation::Write { file, offset, block, part } => {
                self.ring.write(token, file, offset, block, part, self.flags);
            }
            Operation::Sync { file, metadata } => self.ring.sync(token, file, metadata),
            chore => {
                let helper = self.chores.as_ref().expect("the helper runs until the drop");
                helper.send((token, chore)).expect("the helper runs until the drop");
            }
        }
    }

    fn wait(
        &mut self,
        timeout: Duration,
        idle: &mut dyn FnMut() -> bool,
        into: &mut Vec<Completion<Self::File>>,
    ) -> io::Result<()> {
        self.wake.about_to_sleep();
        into.extend(self.answers.try_iter());
        let timeout = if into.is_empty() && idle() { timeout } else { Duration::ZERO };
        let waited = self.ring.wait(timeout, &mut self.done);
        self.wake.awake();
        into.extend(self.answers.try_iter());
        let completions = self.done.drain(..);
        into.extend(completions.map(|Done { token, result, block }| Completion {
            token,
            result,
            file: None,
            block,
        }));
        waited
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn clock(&self) -> Tai {
        Clock::new().now()
    }

    fn tidy(&mut self) {
        self.ring.forget_unused();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.chores = None;
        if let Some(helper) = self.helper.take() {
            // A helper that panicked has said so on its own.
            let _ = helper.join();
        }
    }
}

/// The helper's side: everything that is not a write or a sync.
struct Files {
    root: PathBuf,
    access: Access,
    /// Where files go that are to have no names.
    nameless: Option<Arc<Nameless>>,
    member: Member,
}

impl Files {
    fn serve(
        &self,
        chores: &mpsc::Receiver<(u64, Operation<Arc<OwnedFd>>)>,
        answers: &mpsc::Sender<Completion<Arc<OwnedFd>>>,
        wake: &Wake,
    ) {
        for (token, chore) in chores {
            let performed = match &self.nameless {
                Some(nameless) => self.perform_nameless(chore, nameless),
                None => self.perform(chore).map(|file| file.map(Arc::new)),
            };
            let (result, file) = match performed {
                Ok(file) => (Ok(0), file),
                Err(error) => (Err(error), None),
            };
            if answers.send(Completion { token, result, file, block: None }).is_err() {
                return;
            }
            wake.wake();
        }
    }

    fn perform(&self, chore: Operation<Arc<OwnedFd>>) -> io::Result<Option<OwnedFd>> {
        match chore {
            Operation::MakeDirectories { directory } => {
                self.member.is_there()?;
                make_directories(&self.root, &directory, self.access, false).map(|()| None)
            }
            Operation::Create { path, bytes } => {
                self.member.is_there()?;
                create(&self.root.join(path), self.access.direct, bytes).map(Some)
            }
            Operation::OpenDirectory { path } => {
                let directory = File::open(self.root.join(path))?;
                Ok(Some(directory.into()))
            }
            Operation::Extend { file, offset, bytes } => {
                take_space(&file, offset, bytes).map(|()| None)
            }
            Operation::Settle { file, bytes, rename } => {
                if let Some(bytes) = bytes {
                    ftruncate(&file, bytes)?;
                }
                if let Some((from, to)) = rename {
                    put_in_place(&self.root.join(from), &self.root.join(to))?;
                }
                Ok(None)
            }
            Operation::Remove { path } => std::fs::remove_file(self.root.join(path)).map(|()| None),
            Operation::Write { .. } | Operation::Sync { .. } => {
                unreachable!("writes and syncs go through the ring")
            }
        }
    }
}

/// The same without names: what is made is kept under the name that it would have.
impl Files {
    fn perform_nameless(
        &self,
        chore: Operation<Arc<OwnedFd>>,
        nameless: &Nameless,
    ) -> io::Result<Option<Arc<OwnedFd>>> {
        match chore {
            Operation::MakeDirectories { .. } => Ok(None),
            Operation::OpenDirectory { .. } => {
                let root = File::open(&self.root)?;
                Ok(Some(Arc::new(root.into())))
            }
            Operation::Create { path, bytes } => {
                let file = Arc::new(open_nameless(&self.root, self.access)?);
                take_space(&file, 0, bytes)?;
                nameless.lock().insert(path, file.clone());
                Ok(Some(file))
            }
            Operation::Settle { file, bytes, rename } => {
                if let Some(bytes) = bytes {
                    ftruncate(&file, bytes)?;
                }
                if let Some((from, to)) = rename {
                    let mut files = nameless.lock();
                    files.remove(&from);
                    files.insert(to, file);
                }
                Ok(None)
            }
            Operation::Remove { path } => {
                nameless.lock().remove(&path);
                Ok(None)
            }
            other => self.perform(other).map(|file| file.map(Arc::new)),
        }
    }
}

/// Opens a new file that no directory names: it is gone with its last handle, however the process ends.
pub fn open_nameless(directory: &Path, access: Access) -> io::Result<OwnedFd> {
    use rustix::io::Errno;
    let direct = if access.direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | direct;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        // A file system without such files: it has a name for as long as it takes to remove it.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let path = directory.join(format!(".fullbore-{}", uuid::Uuid::now_v7()));
            let made = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode);
            // There even after a refusal: some file systems make the file and then refuse the flag.
            let _ = std::fs::remove_file(&path);
            made?
        }
        opened => opened?,
    };
    if access.no_cow {
        let attributes = rustix::fs::ioctl_getflags(&file)?;
        rustix::fs::ioctl_setflags(&file, attributes | IFlags::NOCOW)?;
    }
    Ok(file)
}

/// Makes a stream's two directories. With `exclusive`, the first must be new.
pub fn make_directories(
    root: &Path,
    directory: &str,
    access: Access,
    exclusive: bool,
) -> io::Result<()> {
    let outer = root.join(directory);
    for (path, exclusive) in [(outer.clone(), exclusive), (outer.join(SIDE_DIRECTORY), false)] {
        match std::fs::DirBuilder::new().mode(0o755).create(&path) {
            Ok(()) if access.no_cow => no_cow(&path)?,
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !exclusive => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Tells a new directory that files in it are written in place (btrfs).
pub fn no_cow(directory: &Path) -> io::Result<()> {
    let directory = File::open(directory)?;
    let flags = rustix::fs::ioctl_getflags(&directory)?;
    Ok(rustix::fs::ioctl_setflags(&directory, flags | IFlags::NOCOW)?)
}

/// Opens a file for writing that must not exist yet.
pub fn open_new(path: &Path, direct: bool) -> io::Result<OwnedFd> {
    let direct = if direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = direct | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644).custom_flags(flags.bits().cast_signed());
    Ok(options.open(path)?.into())
}

fn create(path: &Path, direct: bool, bytes: u64) -> io::Result<OwnedFd> {
    let file = open_new(path, direct)?;
    if let Err(error) = take_space(&file, 0, bytes) {
        // ext4 leaves what it could get: a full disk would stay full. The first error is the one to tell.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// Takes the space for a file at its full size: writes that extend a file wait for one another.
fn take_space(file: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), offset, bytes) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            // A file system without preallocation: the size is set, and space is taken as it is written.
            Err(rustix::io::Errno::OPNOTSUPP) => return Ok(ftruncate(file, offset + bytes)?),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Renames without ever replacing a file.
fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::CWD;
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some network file systems know no such flag; names are only made here, so looking is enough.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !to.exists() => {
            std::fs::rename(from, to)
        }
        done => Ok(done?),
    }
}
