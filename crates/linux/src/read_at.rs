//! Bytes at an offset, wherever they are stored.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes with random access: a file, or the contents of a device.
pub trait ReadAt: Debug + Send + Sync {
    /// Reads all of `into` from `offset` on.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, into, offset)
    }
}
