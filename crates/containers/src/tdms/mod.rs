//! TDMS files: written from samples, read, and put in order again.
//!
//! ```text
//! samples ──► TdmsWriter ──► Output ──► x.tdms, x.tdms_index
//!             de-interleaves, cuts into raw chunks
//! x.tdms ──► TdmsFile ──► ChannelReader ──► export: a SampleWriter of any format
//!                                       └──► defragment: another TDMS file
//! ```

mod defragment;
mod export;
mod index;
mod output;
mod properties;
mod reader;
mod transpose;
mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use self::defragment::{Defragmented, defragment};
pub use self::export::{GroupReader, GroupSamples};
pub use self::reader::{TdmsFile, TdmsFileError};
pub(crate) use self::writer::TdmsWriter;

/// The order of samples in a raw chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TdmsLayout {
    /// All values of a channel, then all of the next: readers are fastest.
    #[default]
    Contiguous,
    /// One value of each channel after the other: nothing is moved.
    Interleaved,
}

/// Bytes of a raw chunk, about.
const CHUNK_BYTES: usize = 8 << 20;

/// The index beside a file: `x.tdms_index` of `x.tdms`.
pub fn index_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("_index");
    name.into()
}

/// The number of rows in a raw chunk: about [`CHUNK_BYTES`], and whole units of the disk.
fn rows_in_chunk(row_bytes: usize) -> usize {
    let unit = output::UNIT as usize;
    let power = 1 << row_bytes.trailing_zeros().min(unit.trailing_zeros());
    (CHUNK_BYTES / row_bytes).max(1).next_multiple_of(unit / power)
}
