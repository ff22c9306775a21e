//! A member's io_uring: writes, reads, syncs, and one descriptor that wakes it.
//!
//! The ring owns the memory that the kernel reads and fills. A block is passed in with its write and returned with the
//! completion, so no code can access or free its memory in between:
//!
//! ```text
//! Block ──write──► pending[slot] ──kernel──► Done { block, result }
//! ```
//!
//! Only [`Ring::wait`] collects completions. It always enters the kernel and requests events, because with
//! `DEFER_TASKRUN` nothing completes otherwise.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::hint::Hint;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use super::memory::Region;
use crate::ring::{Block, Notifier};

/// Entries of the submission queue. A writer has far fewer operations under way.
const ENTRIES: u32 = 256;

/// Slots in the kernel's table of registered buffers: enough for many ports and for the buffers of index writes.
const BUFFERS: u16 = 512;

/// The largest registered buffer that the kernel accepts, in bytes.
const BUFFER_BYTES: usize = 1 << 30;

/// `RWF_DONTCACHE`: write through the page cache and leave nothing in it (Linux 6.14).
pub const DONTCACHE: u32 = 0x80;

/// `user_data` of the poll on the notifier's descriptor; slots are smaller.
const WAKE: u64 = u64::MAX;

/// A ring could not be created.
#[derive(Debug, thiserror::Error)]
#[error("io_uring cannot be set up: {source}")]
pub struct RingError {
    /// The error of the kernel.
    pub source: io::Error,
}

impl Hint for RingError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self.source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                "the kernel or the container forbids io_uring: see `sysctl kernel.io_uring_disabled` \
                 and the container's seccomp profile"
            }
            Some(libc::ENOSYS) => "this kernel has no io_uring; Linux 5.15 or later is needed",
            Some(libc::ENOMEM) => "the locked-memory limit (`ulimit -l`) is too small for the ring",
            Some(libc::EMFILE | libc::ENFILE) => "too many files are open: raise `ulimit -n`",
            _ => "see the kernel's log (`dmesg`)",
        }))
    }
}

/// The result of one operation.
#[derive(Debug)]
pub struct Done {
    /// The token it was submitted with.
    pub token: u64,
    /// Bytes transferred, or the error.
    pub result: io::Result<u32>,
    /// The block of a write or read.
    pub block: Option<Block>,
}

/// The memory and files that the kernel may still use for one operation.
struct Pending {
    token: u64,
    block: Option<Block>,
    /// Keeps the descriptor's number from being reused before the kernel has looked it up.
    _file: Arc<OwnedFd>,
}

/// A region that the kernel was asked to pin.
struct Registered {
    region: Arc<Region>,
    /// The first slot in the kernel's table; `None` if the kernel refused.
    slot: Option<u16>,
}

/// One io_uring, used by the thread that created it.
pub struct Ring {
    uring: IoUring,
    wake: Arc<Notifier>,
    listening: bool,
    pending: Vec<Option<Pending>>,
    vacant: Vec<usize>,
    under_way: usize,
    /// True if the kernel has a table for registered buffers.
    table: bool,
    next_buffer: u16,
    registered: Vec<Registered>,
}

impl Ring {
    /// Creates a ring for this thread, with the flags that the kernel supports.
    pub fn new(wake: Arc<Notifier>) -> Result<Self, RingError> {
        let uring = build().map_err(|source| RingError { source })?;
        let table = uring.submitter().register_buffers_sparse(BUFFERS.into()).is_ok();
        Ok(Self {
            uring,
            wake,
            listening: false,
            pending: Vec::new(),
            vacant: Vec::new(),
            under_way: 0,
            table,
            next_buffer: 0,
            registered: Vec::new(),
        })
    }

    /// Returns the number of operations that have not completed.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Writes bytes `from..from + bytes` of a block at `offset` of a file.
    pub fn write(
        &mut self,
        token: u64,
        file: Arc<OwnedFd>,
        offset: u64,
        block: Block,
        (from, bytes): (u32, u32),
        flags: u32,
    ) {
        let (pointer, buffer) = self.part(&block, (from, bytes));
        let (pointer, descriptor) = (pointer.as_ptr().cast_const(), Fd(file.as_raw_fd()));
        let entry = match buffer {
            Some(buffer) => opcode::WriteFixed::new(descriptor, pointer, bytes, buffer)
                .offset(offset)
                .rw_flags(flags.cast_signed())
                .build(),
            None => opcode::Write::new(descriptor, pointer, bytes)
                .offset(offset)
                .rw_flags(flags.cast_signed())
                .build(),
        };
        self.transfer(entry, Pending { token, block: Some(block), _file: file });
    }

    /// Reads into bytes `from..from + bytes` of a block from `offset` of a file.
    pub fn read(
        &mut self,
        token: u64,
        file: Arc<OwnedFd>,
        offset: u64,
        block: Block,
        (from, bytes): (u32, u32),
        flags: u32,
    ) {
        let (pointer, buffer) = self.part(&block, (from, bytes));
        let (pointer, descriptor) = (pointer.as_ptr(), Fd(file.as_raw_fd()));
        let entry = match buffer {
            Some(buffer) => opcode::ReadFixed::new(descriptor, pointer, bytes, buffer)
                .offset(offset)
                .rw_flags(flags.cast_signed())
                .build(),
            None => opcode::Read::new(descriptor, pointer, bytes)
                .offset(offset)
                .rw_flags(flags.cast_signed())
                .build(),
        };
        self.transfer(entry, Pending { token, block: Some(block), _file: file });
    }

    /// Syncs a file's data and size, or, with `metadata`, all of it. Covers writes that completed before.
    pub fn sync(&mut self, token: u64, file: Arc<OwnedFd>, metadata: bool) {
        let flags = if metadata { FsyncFlags::empty() } else { FsyncFlags::DATASYNC };
        let entry = opcode::Fsync::new(Fd(file.as_raw_fd())).flags(flags).build();
        self.submit(entry, Pending { token, block: None, _file: file });
    }

    /// Submits operations, waits for a completion, the notifier or the timeout, and collects completions.
    pub fn wait(&mut self, timeout: Duration, into: &mut Vec<Done>) -> io::Result<()> {
        self.listen();
        let time = Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        let arguments = SubmitArgs::new().timespec(&time);
        match self.uring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        self.collect(into);
        Ok(())
    }

    /// Lets the kernel pin these regions now instead of at the first write from each. Writes from a refused region
    /// still work, for some more CPU time. Returns the first refusal.
    pub fn pin(&mut self, regions: &[Arc<Region>]) -> io::Result<()> {
        if !self.table {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let mut refusal = Ok(());
        for region in regions {
            let known = self.registered.iter().any(|known| Arc::ptr_eq(&known.region, region));
            if known {
                continue;
            }
            let pinned = self.register(region).map(drop);
            if refusal.is_ok() {
                refusal = pinned;
            }
        }
        refusal
    }

    /// Releases pinned memory that only the ring still refers to.
    pub fn forget_unused(&mut self) {
        let mut unused = Vec::new();
        for registered in &mut self.registered {
            if Arc::strong_count(&registered.region) == 1
                && let Some(slot) = registered.slot.take()
            {
                unused.push((slot, buffers_of(&registered.region)));
            }
        }
        unused.into_iter().for_each(|(slot, parts)| self.clear(slot, parts));
        self.registered.retain(|registered| Arc::strong_count(&registered.region) > 1);
        if self.registered.is_empty() {
            self.next_buffer = 0;
        }
    }

    /// Clears slots of the kernel's table.
    fn clear(&self, first: u16, parts: u16) {
        let empty = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
        for slot in first..first + parts {
            // SAFETY: an empty entry refers to no memory; it only clears the kernel's slot.
            let _ = unsafe {
                self.uring.submitter().register_buffers_update(slot.into(), &empty, None)
            };
        }
    }

    /// Returns the registered buffer that contains this range. Registers its region at first use.
    fn buffer(&mut self, region: &Arc<Region>, start: usize, bytes: usize) -> Option<u16> {
        if !self.table {
            return None;
        }
        let known = self.registered.iter().find(|known| Arc::ptr_eq(&known.region, region));
        let slot = match known {
            Some(known) => known.slot,
            None => self.register(region).ok(),
        }?;
        let part = start / BUFFER_BYTES;
        let within = part == (start + bytes - 1) / BUFFER_BYTES;
        within.then(|| slot + part as u16)
    }

    /// Asks the kernel to pin a region. A refusal (memlock) is remembered and costs only some CPU time.
    fn register(&mut self, region: &Arc<Region>) -> io::Result<u16> {
        let parts = buffers_of(region);
        let first = self.next_buffer;
        let mut slot = Err(io::Error::other("the ring's table of buffers is full"));
        if parts <= BUFFERS - first {
            // One at a time: of several the kernel may register only some and report success.
            slot = (0..parts).try_fold(first, |first, part| {
                let start = usize::from(part) * BUFFER_BYTES;
                let length = BUFFER_BYTES.min(region.bytes() - start);
                let base = region.pointer(start, length).as_ptr().cast();
                let buffer = [libc::iovec { iov_base: base, iov_len: length }];
                // SAFETY: the range lies in `region` (`pointer` checks), which `registered` keeps mapped
                // until the slots are cleared in `forget_unused` or below, or the ring is gone.
                let update = unsafe {
                    let submitter = self.uring.submitter();
                    submitter.register_buffers_update((first + part).into(), &buffer, None)
                };
                update.map(|()| first)
            });
            match slot {
                Ok(_) => self.next_buffer += parts,
                Err(_) => self.clear(first, parts),
            }
        }
        let kept = slot.as_ref().ok().copied();
        self.registered.push(Registered { region: region.clone(), slot: kept });
        slot
    }

    /// Polls the notifier's descriptor, so that a write to it ends a wait.
    fn listen(&mut self) {
        if !self.listening {
            let descriptor = Fd(self.wake.as_fd().as_raw_fd());
            let entry = opcode::PollAdd::new(descriptor, libc::POLLIN as u32).build();
            self.push(&entry.user_data(WAKE));
            self.listening = true;
        }
    }

    /// Returns a pointer to these bytes of a block, and the registered buffer that contains them.
    fn part(&mut self, block: &Block, (from, bytes): (u32, u32)) -> (NonNull<u8>, Option<u16>) {
        let (region, start) = block.place();
        let inside = u64::from(from) + u64::from(bytes) <= block.len() as u64;
        assert!(inside, "{from}+{bytes} leaves a block of {} bytes", block.len());
        let (start, bytes) = (start + from as usize, bytes as usize);
        (region.pointer(start, bytes), self.buffer(region, start, bytes))
    }

    /// Submits a write or a read at once, so that the caller can checksum the next block meanwhile. An entry that
    /// cannot be submitted now is submitted with the next wait.
    fn transfer(&mut self, entry: squeue::Entry, pending: Pending) {
        self.submit(entry, pending);
        let _ = self.uring.submit();
    }

    fn submit(&mut self, entry: squeue::Entry, pending: Pending) {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        self.pending[slot] = Some(pending);
        self.under_way += 1;
        self.push(&entry.user_data(slot as u64));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory that `entry` points to is the block's in `pending`, which stays there until
        // its completion is collected, or belongs to `wake`'s descriptor, which points to none.
        while unsafe { self.uring.submission().push(entry) }.is_err() {
            // Submission empties a full queue. A failure here means that the ring itself is broken.
            let submitted = self.uring.submit();
            assert!(
                submitted.is_ok() || submitted.as_ref().is_err_and(is_passing),
                "the ring takes no submissions: {submitted:?}"
            );
        }
    }

    fn collect(&mut self, into: &mut Vec<Done>) {
        let mut woken = false;
        for entry in self.uring.completion() {
            if entry.user_data() == WAKE {
                woken = true;
                continue;
            }
            let slot = entry.user_data() as usize;
            let pending = self.pending[slot].take().expect("an operation completes once");
            self.vacant.push(slot);
            self.under_way -= 1;
            let result = match entry.result() {
                error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                bytes => Ok(bytes.unsigned_abs()),
            };
            into.push(Done { token: pending.token, result, block: pending.block });
        }
        if woken {
            self.listening = false;
            // The descriptor is read here, because a remaining count would end every later wait at once.
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        }
    }
}

impl Drop for Ring {
    /// Waits for the kernel: memory that it still reads must not be reused.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.under_way > 0 {
            if self.wait(Duration::from_secs(1), &mut done).is_err() {
                // The kernel no longer answers, so the memory that it may still read stays mapped for ever.
                std::mem::forget(std::mem::take(&mut self.pending));
                return;
            }
            done.clear();
        }
    }
}

/// Creates the best ring that this kernel supports: unknown flags are dropped one by one.
fn build() -> io::Result<IoUring> {
    let mut deferring = IoUring::builder();
    deferring.dontfork().setup_single_issuer().setup_coop_taskrun().setup_defer_taskrun();
    let mut cooperative = IoUring::builder();
    cooperative.dontfork().setup_coop_taskrun();
    let mut plain = IoUring::builder();
    plain.dontfork();
    let refused = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    match deferring.build(ENTRIES) {
        Err(error) if refused(&error) => match cooperative.build(ENTRIES) {
            Err(error) if refused(&error) => plain.build(ENTRIES),
            ring => ring,
        },
        ring => ring,
    }
}

/// Returns the number of slots for a region.
fn buffers_of(region: &Region) -> u16 {
    u16::try_from(region.bytes().div_ceil(BUFFER_BYTES)).unwrap_or(u16::MAX)
}

/// True if a wait merely ended early: timeout, signal, or a full completion queue that is read next.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::ring::Pool;

    fn drain(ring: &mut Ring) -> Vec<Done> {
        let mut done = Vec::new();
        while ring.under_way() > 0 {
            ring.wait(Duration::from_secs(5), &mut done).unwrap();
        }
        done
    }

    #[test]
    fn blocks_are_written_where_they_were_sent_and_come_back() {
        let wake = Arc::new(Notifier::new().unwrap());
        let mut ring = Ring::new(wake).unwrap();
        let mut pool = Pool::new(Arc::new(Region::new(2 << 20).unwrap()), 8192, 0);
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(OwnedFd::from(File::create(path.path()).unwrap()));
        for place in 0..200u64 {
            let mut block = pool.take().unwrap();
            block.fill(place as u8);
            ring.write(place, file.clone(), place * 8192, block, (0, 8192), 0);
        }
        let done = drain(&mut ring);
        assert_eq!(done.len(), 200);
        for one in done {
            assert_eq!(one.result.unwrap(), 8192);
            pool.put(one.block.unwrap());
        }
        let bytes = std::fs::read(path.path()).unwrap();
        assert!(bytes.chunks(8192).enumerate().all(|(n, b)| b.iter().all(|&x| x == n as u8)));
        assert_eq!(bytes.len(), 200 * 8192);
    }

    #[test]
    fn what_was_written_is_read_into_the_part_of_a_block_that_was_named() {
        let mut ring = Ring::new(Arc::new(Notifier::new().unwrap())).unwrap();
        let mut pool = Pool::new(Arc::new(Region::new(1).unwrap()), 8192, 0);
        let mut path = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut path, &[7; 6000]).unwrap();
        let file = Arc::new(OwnedFd::from(path.reopen().unwrap()));
        ring.read(0, file, 2000, pool.take().unwrap(), (512, 5000), 0);
        let one = drain(&mut ring).pop().unwrap();
        assert_eq!(one.result.unwrap(), 4000, "the file ends there");
        let block = one.block.unwrap();
        assert!(block[..512].iter().all(|&byte| byte == 0));
        assert!(block[512..4512].iter().all(|&byte| byte == 7));
        assert!(block[4512..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_wake_ends_a_wait_and_is_forgotten_after() {
        let wake = Arc::new(Notifier::new().unwrap());
        let mut ring = Ring::new(wake.clone()).unwrap();
        let mut done = Vec::new();
        for _ in 0..3 {
            wake.about_to_sleep();
            wake.wake();
            let before = std::time::Instant::now();
            ring.wait(Duration::from_secs(30), &mut done).unwrap();
            assert!(before.elapsed() < Duration::from_secs(20), "the wake was slept through");
            wake.awake();
            let before = std::time::Instant::now();
            ring.wait(Duration::from_millis(20), &mut done).unwrap();
            assert!(before.elapsed() >= Duration::from_millis(15), "an old wake ended the wait");
        }
    }

    #[test]
    fn a_ring_that_is_dropped_waits_for_what_is_under_way() {
        let mut ring = Ring::new(Arc::new(Notifier::new().unwrap())).unwrap();
        let mut pool = Pool::new(Arc::new(Region::new(2 << 20).unwrap()), 1 << 20, 0);
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(OwnedFd::from(File::create(path.path()).unwrap()));
        ring.write(0, file.clone(), 0, pool.take().unwrap(), (0, 1 << 20), 0);
        ring.sync(1, file, false);
        drop(ring);
        assert_eq!(std::fs::metadata(path.path()).unwrap().len(), 1 << 20);
    }
}
