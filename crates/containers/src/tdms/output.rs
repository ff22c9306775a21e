//! A TDMS file that is being written, one segment after the other.
//!
//! ```text
//! │ header, padded │ raw chunk │ raw chunk │ …        the open segment: its length is unknown
//! │ header │ raw data │                               a short segment, written as a whole
//! ```
//!
//! At any moment, readers find every raw chunk that was written: a segment is closed before the next one is begun, and
//! no byte is reserved behind the data. Raw chunks go past the page cache if the file system can do that.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use fullbore_formats::tdms::{LEAD_IN_BYTES, SegmentHeader};
use rustix::fs::OFlags;

/// Raw chunks begin at multiples of this, and their length is one.
pub const UNIT: u64 = 4096;

/// The place of a segment's length in its lead-in.
const LENGTH_AT: u64 = 12;

/// A file.
pub struct Output {
    file: File,
    /// The same file, for writes past the page cache.
    direct: Option<File>,
    end: u64,
    /// The open segment's offset.
    open: Option<u64>,
    /// The end at the last sync.
    synced: u64,
}

impl Output {
    /// Creates the file, which must not exist.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let flags = OFlags::DIRECT.bits() as i32;
        let direct = OpenOptions::new().write(true).custom_flags(flags).open(path).ok();
        Ok(Self { file, direct, end: 0, open: None, synced: 0 })
    }

    /// True while a segment is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Opens a segment of raw chunks.
    pub fn open_segment(&mut self, header: SegmentHeader) -> io::Result<()> {
        self.close_segment()?;
        let header = header.aligned(self.end, UNIT).to_bytes(None);
        self.open = Some(self.end);
        self.append(&header)
    }

    /// Appends a raw chunk to the open segment. Memory at a multiple of [`UNIT`] can pass the page cache by.
    pub fn raw_chunk(&mut self, chunk: &[u8]) -> io::Result<()> {
        assert!(self.is_open(), "a raw chunk belongs to a segment");
        let is_aligned =
            (self.end | chunk.len() as u64 | chunk.as_ptr() as u64).is_multiple_of(UNIT);
        if let Some(direct) = self.direct.as_ref().filter(|_| is_aligned) {
            match direct.write_all_at(chunk, self.end) {
                Ok(()) => {
                    self.end += chunk.len() as u64;
                    return Ok(());
                }
                // The file system opens such files and does not write them.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.direct = None,
                Err(error) => return Err(error),
            }
        }
        self.append(chunk)
    }

    /// Closes the open segment: its length is known from now on.
    pub fn close_segment(&mut self) -> io::Result<()> {
        let Some(at) = self.open.take() else { return Ok(()) };
        let length = self.end - at - LEAD_IN_BYTES;
        self.file.write_all_at(&length.to_le_bytes(), at + LENGTH_AT)
    }

    /// Appends a segment as a whole.
    pub fn segment(&mut self, header: &SegmentHeader, raw: &[u8]) -> io::Result<()> {
        self.close_segment()?;
        let mut bytes = header.to_bytes(Some(raw.len() as u64));
        bytes.extend(raw);
        self.append(&bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Closes the open segment, and makes the data survive a power failure.
    pub fn sync(&mut self) -> io::Result<()> {
        self.close_segment()?;
        self.file.sync_data()?;
        self.synced = self.end;
        Ok(())
    }

    /// Removes what follows the last sync. Returns the bytes before it.
    pub fn cut(&mut self) -> io::Result<u64> {
        self.open = None;
        self.file.set_len(self.synced)?;
        self.end = self.synced;
        Ok(self.end)
    }

    /// Closes the file, writes its index beside it, and makes both durable. Returns the bytes of both.
    pub fn finish(mut self, path: &Path) -> io::Result<u64> {
        self.close_segment()?;
        self.file.sync_all()?;
        let index = super::index::of(&self.file, self.end)?;
        let mut beside = File::create_new(super::index_of(path))?;
        beside.write_all(&index)?;
        beside.sync_all()?;
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(self.end + index.len() as u64)
    }
}

/// Memory at a multiple of [`UNIT`].
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    from: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Zeros.
    pub fn new(length: usize) -> Self {
        let bytes = vec![0; length + UNIT as usize];
        let address = bytes.as_ptr() as usize;
        let from = address.next_multiple_of(UNIT as usize) - address;
        Self { bytes, from, length }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.length]
    }

    /// The bytes, to change them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.length]
    }
}
