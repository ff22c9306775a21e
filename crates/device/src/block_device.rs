//! An open block device, or a regular file used as one.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_core::device::{DeviceEnd, Span};
use fullbore_linux::overlap::Identity;
use fullbore_linux::ring::Block;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::error::Error;
use super::overwrite_guard::Cleared;

/// Wait for a device that is still busy: the kernel releases the ring of a dead process with a delay.
const PATIENCE: Duration = Duration::from_millis(500);

/// An open block device.
#[derive(Debug)]
pub struct BlockDevice {
    path: PathBuf,
    file: File,
    descriptor: Arc<OwnedFd>,
    bytes: u64,
    direct: bool,
}

impl BlockDevice {
    /// Opens a device for reading. Another process may be writing to it.
    pub fn open_to_read(path: &Path) -> Result<Self, Error> {
        let mut options = OpenOptions::new();
        options.read(true);
        Self::open(path, &options, OFlags::empty())
    }

    /// Opens a cleared device exclusively: while it is open, no other process can write to it or mount it.
    pub fn open_to_write(cleared: &Cleared) -> Result<Self, Error> {
        let path = cleared.path();
        if let Some(bytes) = cleared.create_bytes() {
            let make = |source| Error::Make { path: path.to_owned(), bytes, source };
            let file = File::create_new(path).map_err(make)?;
            let made = file.set_len(bytes).map_err(make).and_then(|()| Self::open_alone(path));
            return made.inspect_err(|_| unmake(path));
        }
        Self::open_alone(path)
    }

    /// Opens an existing device or file exclusively.
    fn open_alone(path: &Path) -> Result<Self, Error> {
        let kind = std::fs::metadata(path)
            .map_err(|source| Error::Open { path: path.to_owned(), source })?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // Without O_CREAT, O_EXCL has a meaning for block devices only: exclusive use.
        let exclusive = match kind.file_type().is_block_device() {
            true => OFlags::EXCL,
            false => OFlags::empty(),
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Self::open(path, &options, exclusive).and_then(Self::locked) {
                // The kernel tells nobody when a device is no longer busy.
                Err(Error::Busy { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(PATIENCE / 20)
                }
                opened => return opened,
            }
        }
    }

    fn open(path: &Path, options: &OpenOptions, flags: OFlags) -> Result<Self, Error> {
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(libc::EBUSY) => Error::Busy { path: path.to_owned() },
            _ => Error::Open { path: path.to_owned(), source },
        };
        let open = |flags: OFlags| {
            let mut options = options.clone();
            options.custom_flags(flags.bits().cast_signed()).open(path)
        };
        let (mut file, direct) = match open(flags | OFlags::DIRECT) {
            Ok(file) => (file, true),
            // The file system has no direct I/O. Writing is slower and as correct.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (open(flags).map_err(failed)?, false)
            }
            Err(error) => return Err(failed(error)),
        };
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let descriptor = Arc::new(OwnedFd::from(file.try_clone().map_err(failed)?));
        Ok(Self { path: path.to_owned(), file, descriptor, bytes, direct })
    }

    /// Locks the file, which keeps a second recorder away.
    fn locked(self) -> Result<Self, Error> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(self),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Busy { path: self.path }),
            Err(errno) => Err(Error::Open { path: self.path, source: errno.into() }),
        }
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if writes bypass the page cache.
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// The number of the device, or of the device of the file's file system.
    pub fn number(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok()?;
        match metadata.file_type().is_block_device() {
            true => Some(metadata.rdev()),
            false => Some(metadata.dev()),
        }
    }

    /// The descriptor that the ring writes to.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        self.descriptor.clone()
    }

    /// The chunks that an endpoint names.
    pub fn span(&self, end: &DeviceEnd) -> Result<Span, Error> {
        let address = |source| Error::Address { path: self.path.clone(), source };
        end.span(self.bytes).map_err(address)
    }

    /// Reads into the first bytes of a block. The address and the number of bytes are multiples of a sector.
    pub fn read(&self, block: &mut Block, bytes: usize, address: u64) -> Result<(), Error> {
        self.file.read_exact_at(&mut block[..bytes], address).map_err(|source| Error::Read {
            path: self.path.clone(),
            address,
            bytes: bytes as u64,
            source,
        })
    }

    /// Writes the first bytes of a block, and waits.
    pub(super) fn write(&self, block: &Block, bytes: usize, address: u64) -> Result<(), Error> {
        self.file.write_all_at(&block[..bytes], address).map_err(|source| Error::Write {
            path: self.path.clone(),
            address,
            bytes: bytes as u64,
            source,
        })
    }

    /// Writes zeros from an address to the end, which is less than a page away and need not be sector-aligned.
    pub(super) fn wipe_from(&self, address: u64) -> Result<(), Error> {
        let zeros = vec![0; self.bytes.saturating_sub(address) as usize];
        // Writes through the page cache, which takes any length.
        let again = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let wipe = || -> io::Result<()> {
            let file = OpenOptions::new().write(true).open(again)?;
            file.write_all_at(&zeros, address)?;
            file.sync_data()
        };
        let bytes = zeros.len() as u64;
        let failed = |source| Error::Write { path: self.path.clone(), address, bytes, source };
        if zeros.is_empty() { Ok(()) } else { wipe().map_err(failed) }
    }

    /// Identifies the device or file.
    pub fn identity(&self) -> Option<Identity> {
        Identity::of(&self.file)
    }

    /// Waits until all written data is durable.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|source| Error::Sync { path: self.path.clone(), source })
    }
}

/// Removes a file that was created for a recording that cannot begin.
pub fn unmake(path: &Path) {
    // A file that cannot be removed is empty, and the caller reports the reason of the failure.
    let _ = std::fs::remove_file(path);
}
