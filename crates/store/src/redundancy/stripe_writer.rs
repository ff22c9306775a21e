//! Writes chunks of a stripe, data or parity, each whole or not at all.
//!
//! A chunk is written under a temporary name beside the others, synced, and then renamed. Unfinished files are removed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fullbore_core::index::Block as Record;
use fullbore_linux::regular_file;
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::MAKING_SUFFIX;
use super::stripe::{Rows, Stripe};
use crate::lock::sync_directory;
use crate::read::{Fault, StartError, aligned};

/// An error that kept a stripe's chunks from being written.
#[derive(Debug, thiserror::Error)]
pub enum StripeWriteError {
    /// Too many chunks of a row are lost for parity to restore it.
    #[error("row {row} of the stripe cannot be restored from parity ({})", first(faults))]
    Beyond {
        /// The row.
        row: usize,
        /// The read faults, by chunk of the stripe.
        faults: Vec<(usize, Fault)>,
    },
    /// A restored chunk differs from what was recorded.
    #[error("the restored chunk {chunk} does not match the checksums in its index")]
    Wrong {
        /// The number.
        chunk: u32,
    },
    /// A member cannot take the chunk.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The index among the chunks to write.
        at: usize,
        /// The reason.
        source: io::Error,
    },
    /// Memory is not available.
    #[error(transparent)]
    Memory(#[from] StartError),
    /// The stop was requested.
    #[error("interrupted")]
    Stopped,
}

fn first(faults: &[(usize, Fault)]) -> String {
    match faults.first() {
        Some((_, Fault::Checksum { .. })) => "a checksum is wrong".into(),
        Some((_, Fault::Short { .. })) => "a file is too short".into(),
        Some((_, Fault::System(why))) => why.clone(),
        None => "too little of it is there".into(),
    }
}

/// A file that is being made.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    making: PathBuf,
    file: File,
    direct: bool,
    at: u64,
    done: bool,
}

impl OutputFile {
    /// Begins the file that will be at `path`; until it is finished, it is in `side`.
    pub fn begin(side: &Path, path: &Path, bytes: u64) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let making = side.join(format!("{name}{MAKING_SUFFIX}"));
        // A file that a killed process left is useless.
        match std::fs::remove_file(&making) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (file, direct) = match open(&making, true) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let _ = std::fs::remove_file(&making);
                (open(&making, false)?, false)
            }
            file => (file?, true),
        };
        let output = Self { path: path.to_owned(), making, file, direct, at: 0, done: false };
        match fallocate(&output.file, FallocateFlags::empty(), 0, aligned(bytes as usize) as u64) {
            // A file system without preallocation allocates space at each write.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(output),
            Err(error) => Err(error.into()),
        }
    }

    /// Appends bytes, aligned as direct I/O needs them.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.file.write_all_at(bytes, self.at) {
            // Some file systems accept the flag and refuse the write.
            Err(error) if self.direct && error.raw_os_error() == Some(libc::EINVAL) => {
                self.file = regular_file::open_with(OpenOptions::new().write(true), &self.making)?;
                self.direct = false;
                self.file.write_all_at(bytes, self.at)?;
            }
            done => done?,
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Sets its length and renames it.
    pub fn finish(mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.file.sync_all()?;
        std::fs::rename(&self.making, &self.path)?;
        self.done = true;
        sync_directory(self.path.parent().unwrap_or(Path::new(".")))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if !self.done {
            // The file is unfinished, and no other process uses it.
            let _ = std::fs::remove_file(&self.making);
        }
    }
}

fn open(path: &Path, direct: bool) -> io::Result<File> {
    let direct = if direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = (direct | OFlags::NOFOLLOW).bits().cast_signed();
    OpenOptions::new().write(true).create_new(true).mode(0o644).custom_flags(flags).open(path)
}

/// A chunk of a stripe to be written.
#[derive(Debug)]
pub struct ChunkOutput {
    /// The index among the stripe's chunks, data before parity.
    pub shard: usize,
    /// The output file.
    pub output: OutputFile,
    /// The CRC32C of each row written so far.
    pub crcs: Vec<u32>,
}

/// Writes these chunks of a stripe, restored from the others if they cannot be read. `go_on` is called before each row,
/// with the bytes of the last one.
pub fn pour(
    stripe: &Stripe,
    rows: &mut Rows,
    into: &mut [ChunkOutput],
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(), StripeWriteError> {
    let data = stripe.data.len();
    let is_parity = |it: &ChunkOutput| it.shard >= data;
    let known_bad: Vec<usize> = into.iter().map(|it| it.shard).collect();
    let mut checks: Vec<Option<Check<'_>>> = into
        .iter()
        .map(|it| stripe.data.get(it.shard).map(|chunk| Check::of(&chunk.blocks)))
        .collect();
    let mut bytes = 0;
    for row in 0..stripe.rows() {
        if !go_on(bytes) {
            return Err(StripeWriteError::Stopped);
        }
        // A chunk that is damaged elsewhere may be good in this row, and then it helps to restore others.
        rows.complete(stripe, row, &known_bad)
            .or_else(|_| rows.complete(stripe, row, &[]))
            .map_err(|faults| StripeWriteError::Beyond { row, faults })?;
        if into.iter().any(is_parity) {
            rows.encode(stripe, row);
        }
        for (at, (pouring, check)) in into.iter_mut().zip(&mut checks).enumerate() {
            let length = stripe.length(pouring.shard, row);
            let made = &rows.rows[pouring.shard];
            if length == 0 {
                continue;
            }
            if let Some(check) = check
                && !check.take(&made[..length])
            {
                let chunk = stripe.data[pouring.shard].chunk;
                return Err(StripeWriteError::Wrong { chunk });
            }
            pouring.crcs.push(crc32c::crc32c(&made[..length]));
            let path = pouring.output.path.clone();
            pouring
                .output
                .write(&made[..aligned(length)])
                .map_err(|source| StripeWriteError::Write { path, at, source })?;
        }
        bytes = (0..data).map(|shard| stripe.length(shard, row) as u64).sum();
    }
    go_on(bytes);
    Ok(())
}

/// Renames the written chunks to their final names.
pub fn finish(
    stripe: &Stripe,
    poured: Vec<ChunkOutput>,
) -> Result<Vec<Vec<u32>>, StripeWriteError> {
    let mut crcs = Vec::with_capacity(poured.len());
    for (at, pouring) in poured.into_iter().enumerate() {
        let path = pouring.output.path.clone();
        let bytes = stripe.bytes_of(pouring.shard);
        pouring.output.finish(bytes).map_err(|source| StripeWriteError::Write {
            path,
            at,
            source,
        })?;
        crcs.push(pouring.crcs);
    }
    Ok(crcs)
}

/// Checks a chunk's bytes against the checksums of its blocks as they are written.
struct Check<'a> {
    blocks: &'a [Record],
    at: u64,
    crc: u32,
}

impl<'a> Check<'a> {
    fn of(blocks: &'a [Record]) -> Self {
        Self { blocks, at: 0, crc: 0 }
    }

    /// Takes the next bytes; returns false if a block that ended in them differs.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        while let Some(block) = self.blocks.first() {
            // Bytes between blocks have no checksum and are never read.
            let skip = usize::try_from(block.offset.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let skip = skip.min(bytes.len());
            bytes = &bytes[skip..];
            self.at += skip as u64;
            if bytes.is_empty() {
                return true;
            }
            let end = block.offset + u64::from(block.bytes);
            let left = usize::try_from(end - self.at).unwrap_or(usize::MAX);
            let part = left.min(bytes.len());
            self.crc = crc32c::crc32c_append(self.crc, &bytes[..part]);
            bytes = &bytes[part..];
            self.at += part as u64;
            if self.at < end {
                return true;
            }
            if self.crc != block.crc {
                return false;
            }
            self.crc = 0;
            self.blocks = &self.blocks[1..];
        }
        true
    }
}
