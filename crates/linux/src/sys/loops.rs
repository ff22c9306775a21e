//! The file behind a loop device, identified by numbers and not by a path that may have changed.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Request for the status of a loop device.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

/// The kernel's answer: three numbers, and fields that are not used here.
#[repr(C)]
struct Answer {
    device: u64,
    inode: u64,
    shown_device: u64,
    rest: [u64; 26],
}

// `struct loop_info64` of linux/loop.h: the kernel writes all of it.
const _: () = assert!(size_of::<Answer>() == 232);

/// The file behind a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The device that holds the file.
    pub device: u64,
    /// The inode number there.
    pub inode: u64,
    /// The device number of the file, if the file is a device.
    pub shown_device: u64,
}

/// Returns the file behind an open loop device. A device without a file is an error.
pub fn backing(device: &File) -> io::Result<Backing> {
    let mut answer = Answer { device: 0, inode: 0, shown_device: 0, rest: [0; 26] };
    // SAFETY: the kernel writes one `loop_info64` to the address, which is as large as `Answer` (asserted above),
    // has room for any bytes, and is borrowed for as long as the call takes.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut answer) };
    match done {
        0 => Ok(Backing {
            device: answer.device,
            inode: answer.inode,
            shown_device: answer.shown_device,
        }),
        _ => Err(io::Error::last_os_error()),
    }
}
