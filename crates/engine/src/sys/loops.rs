//! What a loop device shows, by the numbers of its file and not by a path that may have changed.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Asks a loop device what it shows.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

/// What the kernel answers with: three numbers, and what is of no interest here.
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
    /// The device that the file lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// The number of the device that the file stands for, if it is one.
    pub shown_device: u64,
}

/// The file behind an open loop device. One that shows nothing is an error.
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
