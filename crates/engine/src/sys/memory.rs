//! Memory for blocks: one mapping, in 2 MiB pages where they can be had, faulted in at once.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};

use crate::ring::Block;

/// Size of the pages that direct I/O is 1.7 times faster from.
const HUGE_PAGE: usize = 2 << 20;

/// A private, zeroed mapping that never moves or grows; every page is present when `new` returns.
#[derive(Debug)]
pub struct Region {
    mapping: NonNull<u8>,
    mapped_bytes: usize,
    /// First byte aligned to a huge page.
    start: NonNull<u8>,
    bytes: usize,
    locked: bool,
}

// SAFETY: a `Region` is plain memory that it alone unmaps; the threads that share it keep to disjoint
// blocks, each owned by the one `ring::Block` handle of its number.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives raw pointers only, and every dereference states its own reason.
unsafe impl Sync for Region {}

impl Region {
    /// Maps and faults in at least `bytes` bytes, aligned to 2 MiB. Locks them where the limit allows.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HUGE_PAGE);
        let mapped_bytes = bytes.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint and MAP_PRIVATE|MAP_ANONYMOUS make a new mapping that aliases nothing.
        let mapping = unsafe {
            mmap_anonymous(std::ptr::null_mut(), mapped_bytes, protection, MapFlags::PRIVATE)?
        };
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let skip = mapping.as_ptr().align_offset(HUGE_PAGE);
        assert!(skip < HUGE_PAGE, "the mapping is one huge page longer than what is used of it");
        // SAFETY: `skip` < HUGE_PAGE and the mapping is `bytes + HUGE_PAGE` long (asserted above).
        let start = unsafe { mapping.add(skip) };
        let mut region = Self { mapping, mapped_bytes, start, bytes, locked: false };
        region.fault_in();
        Ok(region)
    }

    /// Asks for huge pages, touches every page, and locks them if allowed.
    fn fault_in(&mut self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: the range is inside our own mapping, which nothing refers to yet. Without the advice
        // the kernel gives 4 KiB pages: slower, not wrong, so a refusal is not an error.
        let _ = unsafe { madvise(start, self.bytes, Advice::LinuxHugepage) };
        for offset in (0..self.bytes).step_by(4096) {
            // SAFETY: `offset < bytes`, and no other reference to the new mapping exists yet.
            unsafe { self.start.add(offset).write_volatile(0) };
        }
        // SAFETY: the range is our own mapping; locking changes no content.
        self.locked = unsafe { mlock(start, self.bytes) }.is_ok();
    }

    /// Bytes of usable memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the pages are locked in memory.
    pub fn locked(&self) -> bool {
        self.locked
    }

    /// The first byte of a range, which must lie inside.
    pub fn pointer(&self, offset: usize, length: usize) -> NonNull<u8> {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes), "{offset}+{length} leaves the region");
        // SAFETY: the assertion keeps `offset` inside the mapping.
        unsafe { self.start.add(offset) }
    }
}

/// What a block's handle gives access to.
impl Region {
    /// The bytes of a block.
    pub(crate) fn slice<'a>(&self, block: &'a Block) -> &'a [u8] {
        let (offset, length) = block.extent();
        let start = self.pointer(offset, length);
        // SAFETY: `pointer` checked the range; `block` is the only handle of these bytes and is borrowed
        // for as long as the slice lives, and it keeps the region mapped.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// The bytes of a block, to be written.
    pub(crate) fn slice_mut<'a>(&self, block: &'a mut Block) -> &'a mut [u8] {
        let (offset, length) = block.extent();
        let start = self.pointer(offset, length);
        // SAFETY: as in `slice`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `new`, and blocks keep the region alive through an `Arc`.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_a_new_region_is_present() {
        let region = Region::new(8 << 20).unwrap();
        let mut pages = vec![0u8; region.bytes() / 4096];
        let start = region.start.as_ptr().cast();
        // SAFETY: the range is the region's own mapping, and `pages` has a byte for each page of it.
        let result = unsafe { libc::mincore(start, region.bytes(), pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        assert!(pages.iter().all(|page| page & 1 == 1), "a page would fault while frames come");
    }

    #[test]
    fn a_region_is_aligned_zeroed_and_bounded() {
        let region = Region::new(3 << 20).unwrap();
        assert_eq!(region.bytes(), 4 << 20);
        assert_eq!(region.pointer(0, 1).as_ptr() as usize % HUGE_PAGE, 0);
        let outside = std::panic::catch_unwind(|| region.pointer((4 << 20) - 1, 2));
        assert!(outside.is_err());
    }
}
