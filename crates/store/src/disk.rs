//! The interface between a writer and its member: operations that are submitted and complete later.
//!
//! Writes and syncs go through the ring. Operations that make, rename and truncate files may wait for the file system's
//! journal, so a helper thread does them in order; they complete in the same way.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::{Block, Notifier};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::sys::uring::{DONTCACHE, Done, Ring, RingError};
use fullbore_time::Tai;
use rustix::fs::{FallocateFlags, IFlags, Mode, OFlags, RenameFlags, fallocate, ftruncate};

use super::reservation::SpaceRequest;
use crate::Member;

/// An operation on a member. Paths are relative to the member's root.
#[derive(Debug)]
pub enum Operation<F> {
    /// Make the directory of a stream and its side directory; both may exist.
    MakeDirectories {
        /// The stream's directory.
        directory: String,
    },
    /// Make a file that must not exist and reserve space for it; on failure, remove it.
    Create {
        /// The file.
        path: String,
        /// The space.
        space: SpaceRequest,
    },
    /// Open a directory, to sync it.
    OpenDirectory {
        /// The directory; empty for the root.
        path: String,
    },
    /// Reserve more space for a file.
    Extend {
        /// The file.
        file: F,
        /// First new byte.
        offset: u64,
        /// The space.
        space: SpaceRequest,
    },
    /// Truncate a file to its final length, if given, and rename it; the new name must not exist.
    Settle {
        /// The file.
        file: F,
        /// The final length.
        bytes: Option<u64>,
        /// The current name and the new name.
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
        /// The offset in the file.
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
        /// True if all metadata must be durable, not only data and size.
        metadata: bool,
    },
}

/// The result of an operation.
#[derive(Debug)]
pub struct Completion<F> {
    /// The token of the submission.
    pub token: u64,
    /// Bytes written (0 for anything but a write), or the error.
    pub result: io::Result<u32>,
    /// Bytes of space reserved.
    pub reserved: u64,
    /// The file that was made or opened.
    pub file: Option<F>,
    /// The memory of a write.
    pub block: Option<Block>,
}

/// A member as its writer sees it: a real one, or a simulated one that fails by a seed.
pub trait Disk {
    /// An open file; it is closed when the last handle of it is dropped.
    type File: Clone + fmt::Debug;

    /// Starts an operation. It completes under `token`, in any order.
    fn submit(&mut self, token: u64, operation: Operation<Self::File>);

    /// Waits for completions, but only while `idle` returns true.
    fn wait(
        &mut self,
        timeout: Duration,
        idle: &mut dyn FnMut() -> bool,
        into: &mut Vec<Completion<Self::File>>,
    ) -> io::Result<()>;

    /// Time since an arbitrary start, for durations.
    fn now(&self) -> Duration;

    /// The host's clock, for the index.
    fn clock(&self) -> Tai;

    /// Releases the registrations of block memory that is no longer in use.
    fn tidy(&mut self) {}
}

/// The way in which files of a member are opened and written, as probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// If not direct: through the page cache without staying there (`RWF_DONTCACHE`).
    pub uncached: bool,
    /// New directories get the no-copy-on-write attribute (btrfs).
    pub no_cow: bool,
}

/// Unnamed files of a member that leaves nothing behind: they exist as long as this value.
///
/// The keys are the names that the files would have: `<scan-stream>/<scan-stream>.00000000` for a complete chunk.
#[derive(Debug, Default)]
pub struct Nameless {
    files: Mutex<BTreeMap<String, Arc<OwnedFd>>>,
}

impl Nameless {
    /// Returns the file that would have this name.
    pub fn file(&self, name: &str) -> Option<Arc<OwnedFd>> {
        self.lock().get(name).cloned()
    }

    /// Frees the space of one file, even if the file is open elsewhere.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match self.lock().remove(name) {
            Some(file) => Ok(rustix::fs::ftruncate(&file, 0)?),
            None => Ok(()),
        }
    }

    /// Drops all files and thus frees their space.
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
    wake: Arc<Notifier>,
    chores: Option<mpsc::Sender<(u64, Operation<Arc<OwnedFd>>)>>,
    answers: mpsc::Receiver<Completion<Arc<OwnedFd>>>,
    helper: Option<JoinHandle<()>>,
    begun: Instant,
}

impl Local {
    /// Opens the member for the calling thread.
    pub fn new(member: &Member, wake: Arc<Notifier>) -> Result<Self, RingError> {
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

    /// Registers memory with the kernel for writing. If the kernel refuses, writes from it still work.
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
            reserved: 0,
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
            // A helper that panics prints its own message.
            let _ = helper.join();
        }
    }
}

/// The result of an operation of the helper thread.
#[derive(Default)]
struct Performed {
    /// The file that was made or opened.
    file: Option<Arc<OwnedFd>>,
    /// Bytes reserved.
    reserved: u64,
}

/// The state of the helper thread, which does everything except writes and syncs.
struct Files {
    root: PathBuf,
    access: Access,
    /// The store for unnamed files, if files are to have no names.
    nameless: Option<Arc<Nameless>>,
    member: Member,
}

impl Files {
    fn serve(
        &self,
        chores: &mpsc::Receiver<(u64, Operation<Arc<OwnedFd>>)>,
        answers: &mpsc::Sender<Completion<Arc<OwnedFd>>>,
        wake: &Notifier,
    ) {
        for (token, chore) in chores {
            let performed = match &self.nameless {
                Some(nameless) => self.perform_nameless(chore, nameless),
                None => self.perform(chore),
            };
            let (result, Performed { file, reserved }) = match performed {
                Ok(performed) => (Ok(0), performed),
                Err(error) => (Err(error), Performed::default()),
            };
            let completion = Completion { token, result, reserved, file, block: None };
            if answers.send(completion).is_err() {
                return;
            }
            wake.wake();
        }
    }

    fn perform(&self, chore: Operation<Arc<OwnedFd>>) -> io::Result<Performed> {
        match chore {
            Operation::MakeDirectories { directory } => {
                self.member.is_there()?;
                make_directories(&self.root, &directory, self.access, false)?;
                Ok(Performed::default())
            }
            Operation::Create { path, space } => {
                self.member.is_there()?;
                let (file, reserved) = create(&self.root.join(path), self.access.direct, space)?;
                Ok(Performed { file: Some(Arc::new(file)), reserved })
            }
            Operation::OpenDirectory { path } => {
                let directory = File::open(self.root.join(path))?;
                Ok(Performed { file: Some(Arc::new(directory.into())), reserved: 0 })
            }
            Operation::Extend { file, offset, space } => {
                Ok(Performed { file: None, reserved: reserve(&file, offset, space)? })
            }
            Operation::Settle { file, bytes, rename } => {
                if let Some(bytes) = bytes {
                    ftruncate(&file, bytes)?;
                }
                if let Some((from, to)) = rename {
                    put_in_place(&self.root.join(from), &self.root.join(to))?;
                }
                Ok(Performed::default())
            }
            Operation::Remove { path } => {
                std::fs::remove_file(self.root.join(path))?;
                Ok(Performed::default())
            }
            Operation::Write { .. } | Operation::Sync { .. } => {
                unreachable!("writes and syncs go through the ring")
            }
        }
    }
}

/// The same operations without names: each file is kept under the name that it would have.
impl Files {
    fn perform_nameless(
        &self,
        chore: Operation<Arc<OwnedFd>>,
        nameless: &Nameless,
    ) -> io::Result<Performed> {
        match chore {
            Operation::MakeDirectories { .. } => Ok(Performed::default()),
            Operation::OpenDirectory { .. } => {
                let root = File::open(&self.root)?;
                Ok(Performed { file: Some(Arc::new(root.into())), reserved: 0 })
            }
            Operation::Create { path, space } => {
                let file = Arc::new(open_nameless(&self.root, self.access)?);
                let reserved = reserve(&file, 0, space)?;
                nameless.lock().insert(path, file.clone());
                Ok(Performed { file: Some(file), reserved })
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
                Ok(Performed::default())
            }
            Operation::Remove { path } => {
                nameless.lock().remove(&path);
                Ok(Performed::default())
            }
            other => self.perform(other),
        }
    }
}

/// Opens a new file that is in no directory: it disappears with its last handle, even if the process is killed.
pub fn open_nameless(directory: &Path, access: Access) -> io::Result<OwnedFd> {
    use rustix::io::Errno;
    let direct = if access.direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | direct;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        // On a file system without such files, the file has a name until it is removed right after.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let path = directory.join(format!(".fullbore-{}", uuid::Uuid::now_v7()));
            let made = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode);
            // The file may exist even after a refusal: some file systems make the file and then refuse the flag.
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

/// Makes a stream's two directories. With `exclusive`, the first must not exist.
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

/// Sets the no-copy-on-write attribute on a new directory, so that files in it are written in place (btrfs).
pub fn no_cow(directory: &Path) -> io::Result<()> {
    let directory = File::open(directory)?;
    let flags = rustix::fs::ioctl_getflags(&directory)?;
    Ok(rustix::fs::ioctl_setflags(&directory, flags | IFlags::NOCOW)?)
}

/// Opens a file for writing; the file must not exist.
pub fn open_new(path: &Path, direct: bool) -> io::Result<OwnedFd> {
    let direct = if direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = direct | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644).custom_flags(flags.bits().cast_signed());
    Ok(options.open(path)?.into())
}

/// Makes a file and reserves space for it. Returns the number of bytes reserved.
pub fn create(path: &Path, direct: bool, space: SpaceRequest) -> io::Result<(OwnedFd, u64)> {
    let file = open_new(path, direct)?;
    match reserve(&file, 0, space) {
        Ok(reserved) => Ok((file, reserved)),
        Err(error) => {
            // ext4 keeps the space that it could allocate: a full disk would stay full. The first error is the one to
            // report.
            let _ = std::fs::remove_file(path);
            Err(error)
        }
    }
}

/// Reserves space by a request and the free space at this moment. Returns the number of bytes.
pub fn reserve(file: &OwnedFd, offset: u64, space: SpaceRequest) -> io::Result<u64> {
    // If the file system does not report its free space, the smallest step is tried.
    let free = rustix::fs::fstatvfs(file)
        .map_or(0, |status| status.f_bavail.saturating_mul(status.f_frsize));
    let mut begun = false;
    space.reserve(free, |bytes| {
        if std::mem::replace(&mut begun, true) {
            // ext4 keeps what it could allocate of a larger step. Nothing is written behind the offset yet.
            ftruncate(file, offset)?;
        }
        take_space(file, offset, bytes)
    })
}

/// Allocates space of a file before it is written, because writes that extend a file wait for one another.
fn take_space(file: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), offset, bytes) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            // On a file system without preallocation, the size is set, and each write allocates its space.
            Err(rustix::io::Errno::OPNOTSUPP) => return Ok(ftruncate(file, offset + bytes)?),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Renames a file without ever replacing another.
pub fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::CWD;
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some network file systems do not support the flag. Only this process makes names here, so a check is enough.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !to.exists() => {
            std::fs::rename(from, to)
        }
        done => Ok(done?),
    }
}
