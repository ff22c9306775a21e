//! Writes past the page cache, of what lies on pages in memory and in the file.
//!
//! The file is kept longer than what is written to it, and has space on the disk for that. So writes need not wait for it
//! to grow, a full disk shows before libhdf5 has given a place away, and no place that it has given lies behind the end
//! that a recovery finds. libhdf5 cuts the file to its length when it is closed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, statfs};

use super::reserve::folder_of;
use crate::ring::{Block, Wake};
use crate::store::{Access, open_nameless};
use crate::sys::driver::PAGE;
use crate::sys::uring::{Done, Ring};

/// Space is taken in steps of so many bytes.
const STEP: u64 = 32 << 20;

/// What libhdf5 may want for its books while it gives one slab its place.
const BOOKS: u64 = 1 << 20;

/// A file system in memory: to write past its page cache is to write into it.
const TMPFS: u32 = 0x0102_1994;

/// How long one look at the ring lasts.
const LOOK: Duration = Duration::from_secs(1);

/// A part of a slab and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// First byte in the slab.
    pub from: u32,
    /// How many.
    pub bytes: u32,
    /// First byte in the file.
    pub at: u64,
}

/// A file that is written past the page cache, by the thread that opened it here.
pub(super) struct Direct {
    file: Arc<OwnedFd>,
    ring: Ring,
    /// What is still to be written of each slab that is under way: its number, and parts from the last to the first.
    jobs: Vec<(u32, Vec<Part>)>,
    done: Vec<Done>,
    /// Up to where the file has space, and up to where it has something.
    space: u64,
    end: u64,
}

impl Direct {
    /// Opens the file once more; nothing where it has to go through the page cache. `page` is memory of a slab, to try
    /// it with.
    pub(super) fn open(file: &File, path: &Path, page: &[u8]) -> Option<Self> {
        is_taken(folder_of(path), &page[..PAGE as usize]).then_some(())?;
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let this = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = rustix::fs::open(this, flags, Mode::empty()).ok()?;
        let ring = Ring::new(Arc::new(Wake::new().ok()?)).ok()?;
        let length = file.metadata().ok()?.len();
        let (jobs, done) = (Vec::new(), Vec::new());
        Some(Direct { file: Arc::new(direct), ring, jobs, done, space: length, end: length })
    }

    /// Takes space for so many bytes more, and for libhdf5's books of them.
    pub(super) fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let wanted = self.end + bytes + BOOKS;
        if wanted <= self.space {
            return Ok(());
        }
        let take =
            |to: u64| fallocate(&*self.file, FallocateFlags::empty(), self.space, to - self.space);
        let ahead = wanted.next_multiple_of(STEP);
        // A disk that is nearly full may have room for this one.
        self.space = match take(ahead) {
            Ok(()) => ahead,
            Err(_) => take(wanted).map(|()| wanted)?,
        };
        Ok(())
    }

    /// Starts to write parts of a slab, which is given back by [`Direct::wait`].
    pub(super) fn write(&mut self, slab: Block, parts: &[Part]) {
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

    /// Whether anything is being written.
    pub(super) fn is_busy(&self) -> bool {
        self.ring.under_way() > 0 || !self.done.is_empty()
    }

    /// Whether all that was to be written is; nothing is under way by then.
    pub(super) fn is_done(&self) -> bool {
        !self.is_busy() && self.jobs.is_empty()
    }

    /// Waits until something has been written, and gives the slabs of which all is.
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

    /// What comes after so many bytes of a slab's part: its rest, the next part, or nothing.
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

    fn submit(&mut self, slab: Block, part: Part) {
        let token = slab.number().into();
        self.ring.write(token, self.file.clone(), part.at, slab, (part.from, part.bytes), 0);
    }
}

/// Parts that follow one another in the slab and in the file, as one.
fn joined(parts: &[Part]) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
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

/// Whether files of a directory take what is written past the page cache, and space that is taken ahead: found by trying.
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
        let part = |from, bytes, at| Part { from, bytes, at };
        let parts = [part(0, 8, 100), part(8, 8, 108), part(16, 8, 200), part(32, 8, 208)];
        assert_eq!(joined(&parts), [part(0, 16, 100), part(16, 8, 200), part(32, 8, 208)]);
        assert_eq!(joined(&[]), []);
    }
}
