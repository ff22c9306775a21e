//! Memory for blocks: one mapping, in 2 MiB pages if available, faulted in at once.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};

use crate::ring::Block;

/// Size of a huge page. Direct I/O from huge pages is 1.7 times faster.
pub const HUGE_PAGE: usize = 2 << 20;

/// The number of nodes in a mask: Linux has 1024 at most.
const MOST_NODES: usize = 1024;

/// A private, zeroed mapping that never moves or grows; every page is present when `new` returns.
#[derive(Debug)]
pub struct Region {
    /// First byte, aligned to a huge page. All of the mapping is used.
    start: NonNull<u8>,
    bytes: usize,
    locked: bool,
    reserved: bool,
}

// SAFETY: a `Region` is plain memory that it alone unmaps; the threads that share it keep to disjoint
// blocks, each owned by the one `ring::Block` handle of its number.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives raw pointers only, and every dereference states its own reason.
unsafe impl Sync for Region {}

impl Region {
    /// Maps and faults in at least `bytes` bytes, aligned to 2 MiB. Locks them if the limit allows.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Self::advised(whole_pages(bytes)?, None)
    }

    /// The same for the blocks of a recording: from reserved huge pages if there are enough, and on a memory node if it
    /// has room.
    pub fn for_blocks(bytes: usize, node: Option<u32>) -> io::Result<Self> {
        let bytes = whole_pages(bytes)?;
        match Self::set_aside(bytes, node) {
            Some(region) => Ok(region),
            None => Self::advised(bytes, node),
        }
    }

    /// Maps reserved huge pages (`vm.nr_hugepages`). Returns `None` if there are not enough.
    fn set_aside(bytes: usize, node: Option<u32>) -> Option<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let mut region = Self::map(bytes, flags).ok()?;
        region.keep_to(node);
        // A cgroup may forbid the reserved pages. This call returns that as an error, without a signal.
        region.populate().ok()?;
        // Reserved huge pages are never swapped, so they need no lock.
        (region.reserved, region.locked) = (true, true);
        Some(region)
    }

    /// Maps ordinary memory, with advice to the kernel to use huge pages.
    fn advised(bytes: usize, node: Option<u32>) -> io::Result<Self> {
        let mut region = Self::aligned(bytes)?;
        region.keep_to(node);
        let start = region.start.as_ptr().cast();
        // SAFETY: the range is our own mapping, which nothing refers to yet. Without the advice
        // the kernel gives 4 KiB pages: slower, not wrong, so a refusal is not an error.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        region.populate()?;
        // SAFETY: the range is our own mapping; locking changes no content.
        region.locked = unsafe { mlock(start, bytes) }.is_ok();
        Ok(region)
    }

    /// Maps `bytes` bytes at an address of the kernel's choice.
    fn map(bytes: usize, flags: MapFlags) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint and MAP_PRIVATE|MAP_ANONYMOUS make a new mapping that aliases nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes, locked: false, reserved: false })
    }

    /// Maps `bytes` bytes aligned to a huge page: maps one huge page more, and unmaps the excess.
    fn aligned(bytes: usize) -> io::Result<Self> {
        let long = bytes.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut region = Self::map(long, MapFlags::PRIVATE)?;
        let skip = region.start.as_ptr().align_offset(HUGE_PAGE);
        assert!(skip < HUGE_PAGE, "the mapping is one huge page longer than what is used of it");
        let first = region.start;
        // SAFETY: `skip` < HUGE_PAGE and the mapping is `bytes + HUGE_PAGE` long (asserted above).
        (region.start, region.bytes) = (unsafe { first.add(skip) }, bytes);
        for (offset, length) in [(0, skip), (skip + bytes, HUGE_PAGE - skip)] {
            if length > 0 {
                // SAFETY: the range is of our own new mapping, before or behind what is used, and page-aligned.
                // What cannot be unmapped is never touched, and costs addresses only.
                let _ = unsafe { munmap(first.add(offset).as_ptr().cast(), length) };
            }
        }
        Ok(region)
    }

    /// Requests memory of this node first. A kernel without nodes refuses, and then there is no choice.
    fn keep_to(&mut self, node: Option<u32>) {
        let Some(node) = node.map(|node| node as usize).filter(|&node| node < MOST_NODES) else {
            return;
        };
        let mut mask = [0u64; MOST_NODES / 64];
        mask[node / 64] |= 1 << (node % 64);
        // SAFETY: the range is our own mapping, and the kernel reads `MOST_NODES` bits of `mask`, which has as many;
        // by its count the last bit is not included.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.bytes,
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                MOST_NODES + 1,
                0,
            )
        };
    }

    /// Makes every page present. Too little memory is an error and no signal.
    fn populate(&mut self) -> io::Result<()> {
        loop {
            // SAFETY: the range is our own mapping, which nothing refers to yet; its content stays what it is.
            let done = unsafe {
                madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxPopulateWrite)
            };
            match done {
                Ok(()) => return Ok(()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // A kernel before Linux 5.14, or another one without this advice.
                Err(Errno::INVAL) => break,
                Err(error) => return Err(error.into()),
            }
        }
        for offset in (0..self.bytes).step_by(4096) {
            // SAFETY: `offset < bytes`, and no other reference to the new mapping exists yet.
            unsafe { self.start.add(offset).write_volatile(0) };
        }
        Ok(())
    }

    /// True if its pages are reserved huge pages.
    pub fn reserved(&self) -> bool {
        self.reserved
    }

    /// Returns the addresses of its bytes.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr() as usize;
        start..start + self.bytes
    }

    /// Bytes of usable memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if the pages are locked in memory.
    pub fn locked(&self) -> bool {
        self.locked
    }

    /// Returns a pointer to a range, which must be inside the region.
    pub fn pointer(&self, offset: usize, length: usize) -> NonNull<u8> {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes), "{offset}+{length} leaves the region");
        // SAFETY: the assertion keeps `offset` inside the mapping.
        unsafe { self.start.add(offset) }
    }
}

/// Access through a block's handle.
impl Region {
    /// Returns the bytes of a block.
    pub fn slice<'a>(&self, block: &'a Block) -> &'a [u8] {
        let (offset, length) = block.extent();
        let start = self.pointer(offset, length);
        // SAFETY: `pointer` checked the range; `block` is the only handle of these bytes and is borrowed
        // for as long as the slice lives, and it keeps the region mapped.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// Returns the bytes of a block for writing.
    pub fn slice_mut<'a>(&self, block: &'a mut Block) -> &'a mut [u8] {
        let (offset, length) = block.extent();
        let start = self.pointer(offset, length);
        // SAFETY: as in `slice`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map`, and blocks keep the region alive through an `Arc`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Rounds up to whole huge pages, one at least.
fn whole_pages(bytes: usize) -> io::Result<usize> {
    let whole = bytes.max(1).checked_next_multiple_of(HUGE_PAGE);
    Ok(whole.ok_or(io::ErrorKind::OutOfMemory)?)
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
    fn a_region_for_blocks_is_a_region_whatever_pages_and_nodes_there_are() {
        for node in [None, Some(0), Some(999), Some(5000)] {
            let region = Region::for_blocks(5 << 20, node).unwrap();
            assert_eq!((region.bytes(), region.addresses().len()), (6 << 20, 6 << 20));
            assert_eq!(region.addresses().start % HUGE_PAGE, 0);
        }
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        assert!(Region::new(usize::MAX).is_err());
        assert!(Region::for_blocks(1 << 60, None).is_err());
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
