//! Queries of the page cache.

use std::io;
use std::os::fd::AsFd;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The smallest page size.
const PAGE: usize = 4096;

/// Returns true if the first page of a file is in the page cache. The file must not be empty, and the caller must have
/// write permission: the kernel reports nothing about other users' files.
///
/// A read is no test: it starts a read from the disk, which a fast disk completes before the kernel checks.
pub fn holds_first_page(file: impl AsFd) -> io::Result<bool> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use, and no code reads it.
    let page =
        unsafe { mmap(std::ptr::null_mut(), PAGE, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
    let mut held = 0u8;
    // SAFETY: `page` was just mapped with this length, so it begins a page. The kernel writes one byte, `held`.
    let status = unsafe { libc::mincore(page, PAGE, &mut held) };
    let told = if status == 0 { Ok(held & 1 == 1) } else { Err(io::Error::last_os_error()) };
    // SAFETY: this is the whole of the mapping made above, and nothing refers to it.
    unsafe { munmap(page, PAGE)? };
    told
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_page_is_held_once_it_was_written_and_a_hole_is_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(2 * PAGE as u64).unwrap();
        assert!(!holds_first_page(&file).unwrap());
        file.write_all(&[1; 100]).unwrap();
        assert!(holds_first_page(&file).unwrap());
    }
}
