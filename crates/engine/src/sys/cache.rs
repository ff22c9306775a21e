//! What the page cache holds of a file.

use std::io;
use std::os::fd::AsFd;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The smallest page that there is.
const PAGE: usize = 4096;

/// Whether the first page of a file is in the page cache. The file is not empty, and the caller may write it: of others'
/// files the kernel tells nothing.
///
/// Reading would not tell: it starts a read from the disk, which a fast one has done before the kernel looks.
pub fn holds_first_page(file: impl AsFd) -> io::Result<bool> {
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours, and nothing is read through it.
    let page =
        unsafe { mmap(std::ptr::null_mut(), PAGE, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
    let mut held = 0u8;
    // SAFETY: `page` was just mapped so long, so it begins a page, and the kernel tells of it in one byte, which `held` is.
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
