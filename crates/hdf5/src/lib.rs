//! HDF5 files that grow while other programs read them.
//!
//! ```text
//! samples ──► columns ──► HDF5 chunks ──► H5Dwrite_chunk      whole chunks, past filters and cache
//!                              │    └───► io_uring            past the page cache too, if worthwhile
//!                              └─ each flush: the chunk being filled, then H5Dflush of every dataset
//! ```
//!
//! - **The structure of a file is fixed from the start.** Datasets and attributes are created before readers have
//!   access (SWMR). Values that are known only at the end have reserved attributes, with the verdict `recording`.
//! - **Each row is written once**, and rows of the partly filled chunk once more per flush. An HDF5 chunk holds an
//!   eighth of the data between two flushes, so that this costs little. A chunk that readers have seen half-full stays
//!   uncompressed, so that a compressed file never has to move it.
//! - **A flush makes rows visible**, and they survive the death of this process. After [`PandaFile::sync`] they survive
//!   a crash of the machine.
//! - **After a SIGKILL** the file can be opened for SWMR reading as it is. [`recover`] clears the mark of being
//!   written, cuts all datasets to the length of the shortest, and writes that into the file.
//! - **After a failed write** no more rows are written. The file is cut to the last flush, or, for a PandA, to the rows
//!   that are complete in every column, and gets its ending. Disk space for that is reserved in advance.
//!
//! It may create and change files, through libhdf5 and past it. It knows no recorder. Without the feature `hdf5` it is
//! empty, and nothing needs CMake or a C compiler.

#![cfg(feature = "hdf5")]

mod attributes;
mod bytes;
mod column_buffers;
mod dataset;
mod direct;
mod file;
mod filter;
mod index;
mod master;
mod nexus;
mod panda;
mod recovery;
mod reserve;
mod stream;
mod writer_lock;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::account::{Account, Verdict};
use fullbore_core::completeness::{Completeness, Status};
use fullbore_core::container::Template;
use fullbore_core::hint::Hint;
use fullbore_core::manifest::{Format, State};
use fullbore_core::panda::AcquisitionResult;
use fullbore_formats::panda::{Ending as EndOfData, HeaderError, columns};
use fullbore_linux::place::PlaceError;
use hdrhistogram::Histogram;

pub use bytes::{BytesFile, Shape};
pub use file::check_continuable;
pub use fullbore_formats::panda::columns::Form;
pub use master::{check_master, join, join_anew};
pub use panda::PandaFile;
pub use recovery::{Recovered, clear, recover};
pub use reserve::check_place;
pub use stream::{About, StreamFile};
pub use writer_lock::{check_replaceable, remove_old};

/// The attribute of a file's root with the settings of the PandA, as JSON.
const SETTINGS: &str = "settings";

/// Handling of a file that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Existing {
    /// Keep the file and refuse.
    #[default]
    Refuse,
    /// Replace the file.
    Overwrite,
    /// Continue it with one more acquisition of the same columns; the file keeps an index of them.
    Append,
}

/// Compression of HDF5 chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    /// No compression: the fastest, and every reader can map it.
    #[default]
    None,
    /// Byte shuffle, then gzip of level 1 to 9. Every HDF5 reader has both.
    Gzip(u8),
    /// Bit shuffle, then LZ4, as common with detectors. Readers need hdf5plugin.
    BitshuffleLz4,
}

/// The name of the option.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Gzip(level) => write!(f, "gzip:{level}"),
            Compression::BitshuffleLz4 => f.write_str("bitshuffle"),
        }
    }
}

/// Options for writing a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Positions as doubles, or as integers with scale and offset attributes.
    pub form: Form,
    /// Handling of a file that exists already.
    pub existing: Existing,
    /// The compression, if one is requested. A file that is continued keeps its own; another request is refused.
    pub compression: Option<Compression>,
    /// The caller's flush interval, which determines the size of HDF5 chunks.
    pub flush: Duration,
    /// Samples expected each second, if known. They determine the size of HDF5 chunks.
    pub rows_per_second: Option<f64>,
    /// What a file of a PandA says to programs for NeXus files.
    pub nexus: Nexus,
    /// True if readers may follow while the file is written.
    pub live: bool,
}

/// What a file of a PandA says to programs for NeXus files. A file that is continued stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Nexus {
    /// The columns are the data to draw, by links in `/entry/data`.
    #[default]
    Data,
    /// The same, and links where areaDetector's files have the values of each frame.
    AreaDetector,
    /// Nothing.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            form: Form::Scaled,
            existing: Existing::Refuse,
            compression: None,
            flush: Duration::from_secs(1),
            rows_per_second: None,
            nexus: Nexus::default(),
            live: true,
        }
    }
}

impl Options {
    /// Rows of an HDF5 chunk: about an eighth of the rows between two flushes.
    ///
    /// The number is never so small that the list of chunks outgrows the data, nor so large that a chunk exceeds the
    /// caches.
    pub fn chunk_rows(&self) -> usize {
        const FEWEST: usize = 1024;
        const MOST: usize = 64 * 1024;
        let Some(rate) = self.rows_per_second.filter(|rate| rate.is_finite()) else {
            return 16 * 1024;
        };
        let rows = rate * self.flush.as_secs_f64() / 8.0;
        // The cast saturates, and a negative rate becomes zero.
        (rows as usize).clamp(FEWEST, MOST).next_power_of_two()
    }
}

/// The ending of a recording, as the file records it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ending {
    /// The reason that the device reports, such as `Ok`, or the reason why the recording ended without one.
    pub reason: String,
    /// Samples not received, before the first of this file and between the others.
    pub missing: u64,
    /// The verdict of the account.
    pub verdict: Option<Verdict>,
    /// The account itself, as JSON.
    pub account: Option<String>,
    /// The headline of its completeness, as on every screen.
    pub headline: String,
}

impl Ending {
    /// The ending of a stream. `lack` is the part of the recording that its file lacks, if there is one.
    pub fn of_stream(
        state: State,
        format: &Format,
        account: Option<&Account>,
        lack: Option<String>,
    ) -> Self {
        let ending = match format {
            Format::Panda { .. } => Ending::of_panda(format, account, lack.clone()),
            Format::Frames { .. } | Format::Packets { .. } | Format::Raw => {
                Ending::of_frames(state, account)
            }
        };
        match lack {
            Some(lack) => {
                let reason = format!("{}; {lack}", ending.reason);
                Ending { reason, ..ending.lacking(&lack) }
            }
            None => ending,
        }
    }

    fn of_panda(format: &Format, account: Option<&Account>, lack: Option<String>) -> Self {
        let (Format::Panda { ending, captured, connections, notes, .. }, Some(account)) =
            (format, account)
        else {
            return Ending::default();
        };
        let ending = ending.clone().unwrap_or(EndOfData::ConnectionLost);
        let (connections, notes) = (connections.clone(), notes.iter().cloned().chain(lack));
        let closed = AcquisitionResult::restored(
            account.clone(),
            ending,
            *captured,
            connections,
            notes.collect(),
        );
        Ending {
            reason: closed.ending.to_string(),
            missing: account.terms.missing,
            verdict: Some(account.verdict),
            account: serde_json::to_string(&closed).ok(),
            headline: account.completeness().headline,
        }
    }

    fn of_frames(state: State, account: Option<&Account>) -> Self {
        let reason = format!("{state:?}").to_lowercase();
        let headline = match account {
            Some(account) => Completeness::of_account_in(state, account).headline,
            None if state == State::Sealed => "UNKNOWN: this stream has no account".to_owned(),
            None => format!("INCOMPLETE: this stream has no account; the scan is {reason}"),
        };
        Ending {
            reason,
            missing: account.map_or(0, |account| account.terms.missing),
            verdict: account.map(|account| account.verdict),
            account: account.and_then(|account| serde_json::to_string(account).ok()),
            headline,
        }
    }

    /// The ending of a recording that was given up without an account.
    pub fn given_up(why: String) -> Self {
        Ending { headline: format!("INCOMPLETE: {why}"), reason: why, ..Ending::default() }
    }

    /// The same ending for a file that lacks a part of the recording.
    pub fn lacking(self, what: &str) -> Self {
        let complete = Status::of_headline(&self.headline).and_then(Status::complete);
        let headline = match complete {
            Some(false) => format!("{}; {what}", self.headline),
            Some(true) | None => format!("INCOMPLETE: {what}"),
        };
        Ending { headline, ..self }
    }

    /// The same ending for a file that accepted no more data.
    pub fn cut_short(&self, cause: &str) -> Self {
        let reason = format!("no more could be written: {cause}");
        Ending { reason: reason.clone(), ..self.clone().lacking(&reason) }
    }

    /// The verdict, or unproven if there is none.
    pub fn verdict(&self) -> Verdict {
        self.verdict.unwrap_or(Verdict::Unproven)
    }
}

/// A report of the data written.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Rows written to it.
    pub rows: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Durations of flushes, in microseconds.
    pub flushes: Histogram<u64>,
    /// The longest time for writing an HDF5 chunk.
    pub longest_write: Duration,
    /// True if samples were written past the page cache.
    pub direct: bool,
}

impl Report {
    /// A report of a file that has nothing yet.
    pub fn of(path: PathBuf) -> Self {
        let (flushes, longest_write) = (histogram(), Duration::ZERO);
        Report { path, rows: 0, bytes_in: 0, file_bytes: 0, flushes, longest_write, direct: false }
    }

    /// Adds a flush that took this long.
    pub fn flushed(&mut self, took: Duration) {
        self.flushes.saturating_record(took.as_micros() as u64);
    }

    /// The number of flushes that took at most this many microseconds and more than half of that: powers of two,
    /// ascending.
    pub fn flush_histogram(&self) -> Vec<(u64, u64)> {
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for step in self.flushes.iter_recorded() {
            let most = step.value_iterated_to().max(1).next_power_of_two();
            match counts.last_mut() {
                Some((of, count)) if *of == most => *count += step.count_since_last_iteration(),
                _ => counts.push((most, step.count_since_last_iteration())),
            }
        }
        counts
    }
}

/// An error in writing an HDF5 file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file can be made at the place.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The file exists and would be overwritten.
    #[error("{} is there already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be created or opened.
    #[error("{}: {doing}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The failed step.
        doing: &'static str,
        /// The error of libhdf5.
        source: hdf5_metno::Error,
    },
    /// The file that was to be continued or renewed holds something else.
    #[error("{}: not an HDF5 file", path.display())]
    NotHdf5 {
        /// The file.
        path: PathBuf,
    },
    /// An HDF5 chunk of a dataset could not be written.
    #[error("{}: writing row {row} of {dataset}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The dataset.
        dataset: String,
        /// The first row of the HDF5 chunk.
        row: u64,
        /// The error of libhdf5.
        source: hdf5_metno::Error,
    },
    /// Rows could not be made visible.
    #[error("{}: flushing {dataset}", path.display())]
    Flush {
        /// The file.
        path: PathBuf,
        /// The dataset.
        dataset: String,
        /// The error of libhdf5.
        source: hdf5_metno::Error,
    },
    /// A file operation of the kernel failed: removing the old file, syncing the new one.
    #[error("{}: {doing}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The failed step.
        doing: &'static str,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// An attribute could not be written or read.
    #[error("{}: attribute {name}", path.display())]
    Attribute {
        /// The file.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// The error of libhdf5.
        source: hdf5_metno::Error,
    },
    /// An earlier write failed, and a later one would leave a hole.
    #[error("{}: an earlier write failed, so nothing more is written", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
    },
    /// The header of a PandA cannot be read.
    #[error("{}: the header of the acquisition", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: HeaderError,
    },
    /// The samples cannot be split into columns.
    #[error("{}: {source}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: columns::Error,
    },
    /// HDF5 would take the name for a path, or the name is reserved.
    #[error("{}: a column cannot be named `{name}`", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Two columns have the same name.
    #[error("{}: `{name}` is captured twice; column names must be unique", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The last writer of the file died.
    #[error(
        "{}: its last recording was never ended; `fullbore recover {}` ends it",
        path.display(),
        path.display()
    )]
    Unended {
        /// The file.
        path: PathBuf,
    },
    /// Another kind of file has the name of the master file.
    #[error("{}: not a fullbore master file; refusing to replace it", path.display())]
    NoMaster {
        /// The file.
        path: PathBuf,
    },
    /// The file that was to be continued holds other data.
    #[error("{}: {what}, so this acquisition cannot be added to it", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// The difference.
        what: String,
    },
    /// The file that was to be continued has another compression.
    #[error("{}: its compression is {has}, and {requested} was asked for", path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// The file's compression.
        has: Compression,
        /// The requested compression.
        requested: Compression,
    },
    /// The bytes are not a whole number of samples.
    #[error("{}: {length} bytes are no whole number of {unit} bytes", path.display())]
    Ragged {
        /// The file.
        path: PathBuf,
        /// The number of bytes.
        length: usize,
        /// Bytes of a sample or frame.
        unit: usize,
    },
    /// The file has a living writer.
    #[error("{}: another program has it open, and may be writing it", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The last name of the file was removed while it was written.
    #[error("{}: it was removed while it was written; its data is lost", path.display())]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be recovered: it has no dataset that grows.
    #[error("{}: not one of this program's HDF5 files", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// True if the file system has no space for more data, or allows no more.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Error::Write { source, .. } | Error::Flush { source, .. } => says(source, NO_SPACE),
            Error::Disk { doing: WRITING, source, .. } => is_full(source),
            _ => false,
        }
    }

    /// Returns the reason why a file takes no more data, on one line. The words before ` (` are the headline's.
    pub fn why_no_more(&self) -> String {
        let told = in_full(self);
        match self.hint() {
            Some(hint) if self.is_disk_full() => {
                let advice = hint.trim_start_matches("the disk is full: ");
                format!("the disk is full ({told}); {advice}")
            }
            Some(hint) => format!("{told} ({hint})"),
            None => told,
        }
    }
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Place(error) => return error.hint(),
            Error::Exists { .. } => {
                "give another name, or ?existing=append or ?existing=overwrite (`panda record`: --existing)"
            }
            full if full.is_disk_full() => FULL,
            Error::Open { source, .. } if says(source, file::MARKED) => {
                "another program writes it; if that program has died, use `fullbore recover FILE`"
            }
            Error::Open { source, .. } if says(source, &["unable to lock", "errno = 11"]) => {
                "another program has it open: close it there, or give another name"
            }
            Error::NotHdf5 { .. } => "give another name",
            Error::InUse { .. } => {
                "stop the programs that use it first; a program that died holds no lock"
            }
            Error::Compressed { .. } => {
                "leave the compression out: data that is added gets the compression of the file"
            }
            Error::Differs { .. } => "give another file, or a template with %d for one file each",
            _ => return None,
        }))
    }
}

/// True if libhdf5 reports one of these words.
fn says(source: &hdf5_metno::Error, words: &[&str]) -> bool {
    let text = describe(source);
    words.iter().any(|word| text.contains(word))
}

/// The step of writing samples past the page cache.
const WRITING: &str = "writing samples";

/// Advice for a full disk.
const FULL: &str =
    "the disk is full: make room, or give a file on another disk; this file can be read";

fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

const NO_SPACE: &[&str] =
    &["No space left", "errno = 28", "Disk quota", "errno = 122", "File too large"];

/// Formats an error and its causes in one line.
pub fn in_full(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let more = words(inner);
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

/// Formats the cause of an error, without the failed step.
pub fn cause(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = words(inner);
        cause = inner.source();
    }
    text
}

/// Extracts the kernel's error text from libhdf5's message, without the addresses and lengths around it.
fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let of_kernel = error.downcast_ref().and_then(what_the_kernel_said);
    of_kernel.unwrap_or_else(|| error.to_string())
}

/// Extracts the kernel's error text: `… errno = 28, error message = 'No space left on device', …`.
fn what_the_kernel_said(error: &hdf5_metno::Error) -> Option<String> {
    let text = describe(error);
    let (_, from) = text.split_once("error message = '")?;
    from.split_once('\'').map(|(said, _)| said.to_owned())
}

/// Formats libhdf5's whole error stack; the cause is at its bottom.
pub(crate) fn describe(error: &hdf5_metno::Error) -> String {
    use std::fmt::Write as _;
    let mut text = error.to_string();
    for frame in error.stack().iter().flat_map(|stack| stack.iter()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "; {}", frame.desc());
    }
    text
}

/// The file of one of several streams, beside the master file: `out.h5` and `46220` give `out_46220.h5`.
pub fn beside(path: &Path, stream: &str) -> PathBuf {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy()));
    path.with_file_name(format!("{stem}_{stream}{}", ending.unwrap_or_default()))
}

/// The file of acquisition `number`, counted from 1, by the [`Template`] in its name. A name without a template stays
/// as it is.
pub fn numbered(template: &Path, number: u64) -> PathBuf {
    match Template::of(template) {
        Ok(names) => template.with_file_name(names.name(number)),
        Err(_) => template.to_owned(),
    }
}

/// True if the name exists, even as a dangling link.
pub fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn histogram() -> Histogram<u64> {
    // From one microsecond to ten minutes, with three digits.
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("the bounds are in order")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_numbers_files_and_a_plain_name_stays() {
        assert_eq!(numbered(Path::new("/d/run_%d.h5"), 12), Path::new("/d/run_12.h5"));
        assert_eq!(numbered(Path::new("/d/%d/run.h5"), 12), Path::new("/d/%d/run.h5"));
        assert_eq!(numbered(Path::new("run_%03d.h5"), 12), Path::new("run_012.h5"));
        assert_eq!(numbered(Path::new("%d_%d.h5"), 1), Path::new("%d_%d.h5"));
    }

    #[test]
    fn each_stream_has_a_file_beside_the_one_that_shows_them() {
        assert_eq!(beside(Path::new("/d/out.h5"), "46220"), PathBuf::from("/d/out_46220.h5"));
        assert_eq!(beside(Path::new("out"), "a"), PathBuf::from("out_a"));
    }

    #[test]
    fn chunks_follow_the_rate_within_bounds() {
        let rows = |rate| Options { rows_per_second: rate, ..Options::default() }.chunk_rows();
        assert_eq!(rows(None), 16 * 1024);
        assert_eq!(rows(Some(10.0)), 1024);
        assert_eq!(rows(Some(100_000.0)), 16 * 1024);
        assert_eq!(rows(Some(16e6)), 64 * 1024);
        assert_eq!(rows(Some(f64::NAN)), 16 * 1024);
        assert_eq!(rows(Some(-1.0)), 1024);
        assert_eq!(rows(Some(f64::MAX)), 64 * 1024);
    }

    #[test]
    fn what_is_written_is_read_back_by_the_library_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frames.h5");
        let shape = Shape::Frames { frame_bytes: 100 };
        let mut file = BytesFile::create(&path, shape, &[], &Options::default()).unwrap();
        let bytes: Vec<u8> = (0..30_000 * 100).map(|n| (n / 100 % 251) as u8).collect();
        let times: Vec<_> = (0..30_000).map(fullbore_time::Tai).collect();
        for (bytes, times) in bytes.chunks(700 * 100).zip(times.chunks(700)) {
            file.append(bytes, times).unwrap();
            file.flush().unwrap();
        }
        assert!(matches!(file.append(&bytes[..150], &times[..1]), Err(Error::Ragged { .. })));
        assert!(matches!(file.append(&bytes[..200], &times[..1]), Err(Error::Ragged { .. })));
        let report = file.finish(&Ending { reason: "Ok".into(), ..Ending::default() }).unwrap();
        assert_eq!((report.rows, report.bytes_in), (30_000, 3_000_000));
        let file = hdf5_metno::File::open(&path).unwrap();
        assert_eq!(file.dataset("frames").unwrap().read_raw::<u8>().unwrap(), bytes);
        let read = file.dataset("time").unwrap().read_raw::<i64>().unwrap();
        assert!(read.into_iter().eq(0..30_000));
        file.close().unwrap();
        assert_eq!(recover(&path).unwrap(), Recovered { rows: 30_000, cut: 0, ended: true });
    }

    #[test]
    fn frames_and_bytes_of_several_scans_follow_one_another_in_one_file() {
        use fullbore_time::Tai;
        use hdf5_metno::types::VarLenUnicode;
        let folder = tempfile::tempdir().unwrap();
        let frames = ("frames", Shape::Frames { frame_bytes: 100 });
        let ways = [Compression::None, Compression::Gzip(1)];
        for ((name, shape), way) in
            [frames, ("data", Shape::Bytes)].into_iter().flat_map(|it| ways.map(|way| (it, way)))
        {
            let path = folder.path().join(format!("{name}-{way}.h5"));
            for (scan, existing) in
                [Existing::Refuse, Existing::Append, Existing::Append].iter().enumerate()
            {
                // The second scan gets the file's compression without a request.
                let compression = (scan != 1).then_some(way);
                let options = Options { existing: *existing, compression, ..Options::default() };
                let scan_name = format!("s_{scan}");
                let mut file =
                    BytesFile::create(&path, shape, &[("scan", &scan_name)], &options).unwrap();
                for n in 0..700 {
                    file.append(&[n as u8; 100], &[Tai(n + 1000 * scan as i64)]).unwrap();
                    if n % 90 == 0 {
                        file.flush().unwrap();
                    }
                }
                let verdict = Some([Verdict::Proven, Verdict::Consistent, Verdict::Proven][scan]);
                let headline = ["COMPLETE: all 700 frames", "LOST 5 of 705 frames", "UNKNOWN: 700"];
                let headline = headline[scan].to_owned();
                let ending = Ending { verdict, missing: 5, headline, ..Ending::default() };
                file.finish(&ending).unwrap();
            }
            let file = hdf5_metno::File::open(&path).unwrap();
            let bytes = file.dataset(name).unwrap().read_raw::<u8>().unwrap();
            let wanted = (0..3).flat_map(|_| (0..700).flat_map(|n| [n as u8; 100]));
            assert!(bytes.into_iter().eq(wanted));
            let times = if name == "data" { "blocks/time" } else { "time" };
            let times = file.dataset(times).unwrap().read_raw::<i64>().unwrap();
            assert!(
                times
                    .into_iter()
                    .eq((0..3).flat_map(|scan| (0..700).map(move |n| n + 1000 * scan)))
            );
            if name == "data" {
                let rows = file.dataset("blocks/row").unwrap().read_raw::<i64>().unwrap();
                assert!(rows.into_iter().eq((0..2100).map(|n| n * 100)));
            }
            let rows = if name == "data" { 70_000 } else { 700 };
            let column = |name| file.dataset(name).unwrap().read_raw::<u64>().unwrap();
            assert_eq!(column("acquisitions/first_row"), [0, rows, 2 * rows]);
            let scans = file.dataset("acquisitions/scan").unwrap().read_raw::<VarLenUnicode>();
            let scans = scans.unwrap();
            assert!(scans.iter().map(|it| it.as_str()).eq(["s_0", "s_1", "s_2"]));
            // The root describes all of them.
            assert_eq!(attributes::read_text(&file, "verdict").as_deref(), Some("consistent"));
            assert_eq!(attributes::read_number::<u64>(&file, "samples"), Some(3 * rows));
            assert_eq!(attributes::read_number::<u64>(&file, "missing"), Some(15));
            let headline = attributes::read_text(&file, "headline");
            assert_eq!(headline.as_deref(), Some("LOST 5 of 705 frames"));
            assert_eq!(attributes::read_number::<bool>(&file, "complete"), Some(false));
            file.close().unwrap();
            let options = Options { existing: Existing::Append, ..Options::default() };
            let requested = Options { compression: Some(Compression::Gzip(2)), ..options.clone() };
            let refused = BytesFile::create(&path, shape, &[], &requested).unwrap_err();
            assert!(matches!(refused, Error::Compressed { .. }), "{refused}");
            let other = Shape::Frames { frame_bytes: 10 };
            let refused = BytesFile::create(&path, other, &[], &options).unwrap_err();
            assert!(matches!(refused, Error::Differs { .. }), "{refused}");
        }
    }

    #[test]
    fn a_full_disk_is_the_first_word_of_the_reason_and_the_rest_stays_on_its_line() {
        let full = |source| Error::Disk { path: "t/x.h5".into(), doing: WRITING, source };
        let why = full(std::io::Error::from_raw_os_error(28)).why_no_more();
        assert_eq!(why.split(" (").next(), Some("the disk is full"), "{why}");
        assert!(
            why.contains("t/x.h5: writing samples: No space left") && why.contains("make room")
        );
        assert!(!why.contains('\n'), "{why}");
        let other = full(std::io::Error::from_raw_os_error(5)).why_no_more();
        assert!(other.starts_with("t/x.h5: writing samples: Input/output error"), "{other}");
        let in_use = Error::InUse { path: "t/x.h5".into() }.why_no_more();
        assert!(!in_use.contains('\n') && in_use.contains(" (stop the programs"), "{in_use}");
    }

    #[test]
    fn a_file_that_is_abandoned_ends_with_what_readers_have_seen_in_every_dataset() {
        use fullbore_time::Tai;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes.h5");
        let mut file = BytesFile::create(&path, Shape::Bytes, &[], &Options::default()).unwrap();
        file.append(&[1; 5000], &[Tai(1)]).unwrap();
        file.flush().unwrap();
        file.append(&vec![2; 3 << 20], &[Tai(2)]).unwrap();
        let kept = file.abandon(&Ending::given_up("the disk is full".into())).unwrap();
        assert_eq!(kept, 5000);
        let file = hdf5_metno::File::open(&path).unwrap();
        for (name, rows) in [("data", 5000), ("blocks/row", 1), ("blocks/time", 1)] {
            assert_eq!(file.dataset(name).unwrap().size(), rows, "{name}");
        }
        assert_eq!(attributes::read_text(&file, "verdict").as_deref(), Some("unproven"));
        assert_eq!(attributes::read_text(&file, "end_reason").as_deref(), Some("the disk is full"));
        let headline = attributes::read_text(&file, "headline");
        assert_eq!(headline.as_deref(), Some("INCOMPLETE: the disk is full"));
        assert_eq!(attributes::read_number::<bool>(&file, "complete"), Some(false));
        assert_eq!(attributes::read_number::<u64>(&file, "samples"), Some(5000));
    }

    #[test]
    fn percent_signs_in_names_of_sources_are_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let master = folder.path().join("50%d.h5");
        let source = beside(&master, "a%b");
        let shape = Shape::Frames { frame_bytes: 10 };
        let make = |rows: usize, existing| {
            let options = Options { existing, ..Options::default() };
            let mut file = BytesFile::create(&source, shape, &[], &options).unwrap();
            file.append(&vec![7; rows * 10], &vec![fullbore_time::Tai(0); rows]).unwrap();
            file.finish(&Ending::default()).unwrap();
        };
        make(3, Existing::Refuse);
        join(&master, &[("a%b", &source)]).unwrap();
        make(4, Existing::Append);
        assert!(matches!(join(&master, &[]), Err(Error::Exists { .. })));
        // A stream without new data stays.
        let other = beside(&master, "other");
        std::fs::copy(&source, &other).unwrap();
        join_anew(&master, &[("other", &other)]).unwrap();
        assert_eq!(check_master(&master).unwrap(), ["a%b", "other"]);
        let file = hdf5_metno::File::open(&master).unwrap();
        for name in ["a%b", "other"] {
            let rows = file.dataset(&format!("{name}/frames")).unwrap().read_raw::<u8>().unwrap();
            assert_eq!(rows, vec![7; 70], "{name}");
            let first = file.dataset(&format!("{name}/acquisitions/first_row")).unwrap();
            assert_eq!(first.read_raw::<u64>().unwrap(), [0, 3]);
        }
        file.close().unwrap();
        assert!(matches!(join_anew(&source, &[]), Err(Error::NoMaster { .. })));
    }

    #[test]
    fn a_file_with_a_writer_is_not_recovered_and_readers_are_let_in() {
        for live in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("live.h5");
            let options = Options { live, ..Options::default() };
            let shape = Shape::Frames { frame_bytes: 100 };
            let mut file = BytesFile::create(&path, shape, &[], &options).unwrap();
            file.append(&[7; 300], &[fullbore_time::Tai(0); 3]).unwrap();
            file.flush().unwrap();
            let refused = recover(&path).unwrap_err();
            assert!(
                matches!(refused, Error::InUse { .. }) && refused.hint().is_some(),
                "{refused}"
            );
            assert!(matches!(clear(&path), Err(Error::InUse { .. })));
            let reader = std::fs::File::open(&path).unwrap();
            let shared = rustix::fs::FlockOperation::NonBlockingLockShared;
            // libhdf5 takes this lock for its readers.
            assert_eq!(rustix::fs::flock(&reader, shared).is_ok(), live);
            drop(reader);
            file.finish(&Ending::default()).unwrap();
            assert!(recover(&path).unwrap().ended);
        }
    }

    #[test]
    fn flushes_are_told_by_powers_of_two() {
        let mut report = Report::of(PathBuf::new());
        for us in [1, 3, 4, 5, 8, 1000, 1000] {
            report.flushed(Duration::from_micros(us));
        }
        assert_eq!(report.flush_histogram(), [(1, 1), (4, 2), (8, 2), (1024, 2)]);
    }

    #[test]
    fn a_file_of_others_is_not_recovered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.h5");
        hdf5_metno::File::create(&path).unwrap().close().unwrap();
        assert!(matches!(recover(&path), Err(Error::Foreign { .. })));
        std::fs::write(&path, b"no HDF5 at all").unwrap();
        assert!(matches!(recover(&path), Err(Error::NotHdf5 { .. })));
    }
}
