//! Writes past the page cache, for data that is page-aligned in memory and in the file.
//!
//! The file is kept longer than its data, with disk space reserved for the rest. So writes need not wait for the file
//! to grow, a full disk shows before libhdf5 has allocated a place, and no allocated place is behind the end that a
//! recovery finds. libhdf5 cuts the file to its length when it closes it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fullbore_linux::place::folder_of;
use fullbore_linux::ring::{Block, Notifier};
use fullbore_linux::sys::driver::PAGE;
use fullbore_linux::sys::uring::{Done, Ring};
use fullbore_store::{Access, open_nameless};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, statfs};

/// Disk space is reserved in steps of this many bytes.
const STEP: u64 = 32 << 20;

/// Space for libhdf5's metadata while it allocates one slab.
const BOOKS: u64 = 1 << 20;

/// tmpfs, a file system in memory: a direct write to it is a write into its page cache.
const TMPFS: u32 = 0x0102_1994;

/// The longest single wait on the ring.
const LOOK: Duration = Duration::from_secs(1);

/// A part of a slab and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferPart {
    /// Offset in the slab.
    pub from: u32,
    /// Number of bytes.
    pub bytes: u32,
    /// Offset in the file.
    pub at: u64,
}

/// A file that is written past the page cache, by the thread that opened it here.
pub(super) struct Direct {
    file: Arc<OwnedFd>,
    ring: Ring,
    /// The remaining writes of each slab under way: its number, and its parts from last to first.
    jobs: Vec<(u32, Vec<BufferPart>)>,
    done: Vec<Done>,
    /// The end of the reserved space, and the end of the data.
    space: u64,
    end: u64,
}

impl Direct {
    /// Opens the file a second time; `None` if it must be written through the page cache. `page` is memory of a slab
    /// for a trial write.
    pub(super) fn open(file: &File, path: &Path, page: &[u8]) -> Option<Self> {
        is_taken(folder_of(path), &page[..PAGE as usize]).then_some(())?;
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let this = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = rustix::fs::open(this, flags, Mode::empty()).ok()?;
        let ring = Ring::new(Arc::new(Notifier::new().ok()?)).ok()?;
        let length = file.metadata().ok()?.len();
        let (jobs, done) = (Vec::new(), Vec::new());
        Some(Direct { file: Arc::new(direct), ring, jobs, done, space: length, end: length })
    }

    /// Reserves space for `bytes` more bytes and libhdf5's metadata for them.
    pub(super) fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let wanted = self.end + bytes + BOOKS;
        if wanted <= self.space {
            return Ok(());
        }
        let take =
            |to: u64| fallocate(&*self.file, FallocateFlags::empty(), self.space, to - self.space);
        let ahead = wanted.next_multiple_of(STEP);
        // A nearly full disk may still have space for this slab.
        self.space = match take(ahead) {
            Ok(()) => ahead,
            Err(_) => take(wanted).map(|()| wanted)?,
        };
        Ok(())
    }

    /// Starts to write parts of a slab. [`Direct::wait`] returns the slab.
    pub(super) fn write(&mut self, slab: Block, parts: &[BufferPart]) {
        let mut parts = joined(parts);
        parts.reverse();
        let last = parts.iter().map(|part| part.at + u64::from(part.bytes)).max();
        self.end = self.end.max(last.unwrap_or(0));
        let Some(&first) = parts.last() else {
            return self.done.push(Done {
                token: slab.number().into(),
                result: Ok(0),
                block: Some(slab),
            });
        };
        self.jobs.push((slab.number(), parts));
        self.submit(slab, first);
    }

    /// True if a write is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.ring.under_way() > 0 || !self.done.is_empty()
    }

    /// True if all writes are done; none is under way then.
    pub(super) fn is_done(&self) -> bool {
        !self.is_busy() && self.jobs.is_empty()
    }

    /// Waits until a write ends, and returns the slabs that are completely written.
    pub(super) fn wait(&mut self) -> io::Result<Vec<Block>> {
        if self.done.is_empty() {
            self.ring.wait(LOOK, &mut self.done)?;
        }
        let mut written = Vec::new();
        for Done { result, block, .. } in std::mem::take(&mut self.done) {
            let slab = block.expect("a write comes back with its block");
            written.extend(self.go_on(slab, result?)?);
        }
        Ok(written)
    }

    /// Continues after a write of `bytes` bytes of a slab: with the rest of the part, the next part, or nothing.
    fn go_on(&mut self, slab: Block, bytes: u32) -> io::Result<Option<Block>> {
        let Some(job) = self.jobs.iter().position(|(number, _)| *number == slab.number()) else {
            return Ok(Some(slab));
        };
        let parts = &mut self.jobs[job].1;
        let part = parts.last_mut().expect("a job has parts until it is done");
        if bytes == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        part.from += bytes;
        part.at += u64::from(bytes);
        part.bytes -= bytes;
        if part.bytes == 0 {
            parts.pop();
        }
        match parts.last() {
            Some(&next) => {
                self.submit(slab, next);
                Ok(None)
            }
            None => {
                self.jobs.swap_remove(job);
                Ok(Some(slab))
            }
        }
    }

    fn submit(&mut self, slab: Block, part: BufferPart) {
        let token = slab.number().into();
        self.ring.write(token, self.file.clone(), part.at, slab, (part.from, part.bytes), 0);
    }
}

/// Merges parts that are adjacent in the slab and in the file.
fn joined(parts: &[BufferPart]) -> Vec<BufferPart> {
    let mut joined: Vec<BufferPart> = Vec::new();
    for &part in parts {
        match joined.last_mut() {
            Some(last)
                if last.from + last.bytes == part.from
                    && last.at + u64::from(last.bytes) == part.at =>
            {
                last.bytes += part.bytes;
            }
            _ => joined.push(part),
        }
    }
    joined
}

/// True if files in a directory accept direct writes and reserved space, as a trial shows.
fn is_taken(directory: &Path, page: &[u8]) -> bool {
    if statfs(directory).is_ok_and(|it| it.f_type as u32 == TMPFS) {
        return false;
    }
    let access = Access { direct: true, uncached: false, no_cow: false };
    open_nameless(directory, access).is_ok_and(|file| {
        let space = fallocate(&file, FallocateFlags::empty(), 0, 2 * PAGE);
        space.is_ok() && rustix::io::pwrite(&file, page, PAGE) == Ok(page.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_follow_one_another_here_and_there_are_one_write() {
        let part = |from, bytes, at| BufferPart { from, bytes, at };
        let parts = [part(0, 8, 100), part(8, 8, 108), part(16, 8, 200), part(32, 8, 208)];
        assert_eq!(joined(&parts), [part(0, 16, 100), part(16, 8, 200), part(32, 8, 208)]);
        assert_eq!(joined(&[]), []);
    }
}
