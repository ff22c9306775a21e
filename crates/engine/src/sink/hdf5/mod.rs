//! HDF5 files that grow while others read them.
//!
//! ```text
//! samples ──► columns ──► HDF5 chunks ──► H5Dwrite_chunk      whole chunks, past filters and cache
//!                              │    └───► io_uring            past the page cache too, where that is worth it
//!                              └─ each flush: the chunk being filled, then H5Dflush of every dataset
//! ```
//!
//! - **A file is one shape from the start.** Datasets and attributes are made before readers may come
//!   (SWMR); what is only known at the end has its place reserved, with the verdict `recording`.
//! - **Each row is written once**, and those of the chunk being filled once more per flush. HDF5 chunks are
//!   an eighth of what comes between two flushes, so that this costs little; a chunk that readers
//!   have seen half-full stays uncompressed, so that a compressed file never has to move it.
//! - **A flush makes rows visible** and safe from the death of this process. [`PandaFile::sync`] makes them
//!   safe from the death of the machine.
//! - **After a SIGKILL** the file opens for SWMR reading as it is; [`recover`] takes the mark of being
//!   written off, brings all datasets to the length of the shortest, and says so in the file.
//! - **After a failed write** no more rows are written: the file is cut to what the last flush has shown, of a PandA's to
//!   what lies whole in every column, and says how it ended. Room for that is taken on the disk while there is some.

mod attributes;
mod bytes;
mod container;
mod direct;
mod filter;
mod guard;
mod index;
mod joined;
mod panda;
mod recovery;
mod reserve;
mod rows;
mod slabs;
mod stream;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::account::{Account, Verdict};
use fullbore_core::container::Template;
use fullbore_core::format::panda::columns;
use fullbore_core::manifest::State;
use hdrhistogram::Histogram;

pub use bytes::{BytesFile, Shape};
pub use container::check_continuable;
pub use fullbore_core::format::panda::columns::Form;
pub use guard::{check_replaceable, remove_old};
pub use joined::{check_master, join, join_anew};
pub use panda::PandaFile;
pub use recovery::{Recovered, clear, recover};
pub use reserve::check_place;
pub use stream::{About, StreamFile};

/// The attribute of a file's root that holds what the PandA was set to, as JSON.
const SETTINGS: &str = "settings";

/// What to do with a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Existing {
    /// Leave it alone and refuse.
    #[default]
    Refuse,
    /// Begin anew.
    Overwrite,
    /// Continue it with one more acquisition of the same columns; the file keeps an index of them.
    Append,
}

/// How HDF5 chunks are made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all: the fastest, and what every reader can map.
    #[default]
    None,
    /// Bytes of like weight together, then gzip of level 1 to 9. Every HDF5 reader has both.
    Gzip(u8),
    /// Bits of like weight together, then LZ4, as many detectors have it. Readers need hdf5plugin.
    BitshuffleLz4,
}

/// As it is asked for.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Gzip(level) => write!(f, "gzip:{level}"),
            Compression::BitshuffleLz4 => f.write_str("bitshuffle"),
        }
    }
}

/// How a file is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Positions as doubles, or the integers with scale and offset beside them.
    pub form: Form,
    /// What to do with a file that is there already.
    pub existing: Existing,
    /// How HDF5 chunks are made smaller, if that is asked for. A file that is continued keeps its own way, and is
    /// refused if another one is asked for.
    pub compression: Option<Compression>,
    /// How often the caller will flush; HDF5 chunks are sized by it.
    pub flush: Duration,
    /// Samples expected each second, if known; HDF5 chunks are sized by it.
    pub rows_per_second: Option<f64>,
    /// Whether readers may follow while the file is written.
    pub live: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            form: Form::Scaled,
            existing: Existing::Refuse,
            compression: None,
            flush: Duration::from_secs(1),
            rows_per_second: None,
            live: true,
        }
    }
}

impl Options {
    /// Rows of an HDF5 chunk: about an eighth of what comes between two flushes.
    ///
    /// Never so few that the list of chunks outgrows the data, nor so many that a chunk is more
    /// than the caches hold.
    pub fn chunk_rows(&self) -> usize {
        const FEWEST: usize = 1024;
        const MOST: usize = 64 * 1024;
        let Some(rate) = self.rows_per_second.filter(|rate| rate.is_finite()) else {
            return 16 * 1024;
        };
        let rows = rate * self.flush.as_secs_f64() / 8.0;
        // The cast saturates, and a negative rate becomes none.
        (rows as usize).clamp(FEWEST, MOST).next_power_of_two()
    }
}

/// How a recording ended, for the file to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ending {
    /// The device's own word, `Ok`, or why the recording ended without one.
    pub reason: String,
    /// Samples that never came, before the first of this file and between those that did.
    pub missing: u64,
    /// How sure the account is.
    pub verdict: Option<Verdict>,
    /// The account itself, as JSON.
    pub account: Option<String>,
}

impl Ending {
    /// What a scan says of a stream that is no PandA's.
    pub fn of_stream(state: State, account: Option<&Account>) -> Self {
        Ending {
            reason: format!("{state:?}").to_lowercase(),
            missing: account.map_or(0, |account| account.terms.missing),
            verdict: account.map(|account| account.verdict),
            account: account.and_then(|account| serde_json::to_string(account).ok()),
        }
    }

    /// Of a recording that was given up, and for which nobody has an account.
    pub fn given_up(why: String) -> Self {
        Ending { reason: why, ..Ending::default() }
    }

    /// The same of a recording whose file could take no more.
    pub fn cut_short(&self, error: &Error) -> Self {
        let reason = format!("no more could be written: {}", cause(error));
        Ending { reason, ..self.clone() }
    }

    /// The verdict; without one it is unproven.
    pub fn verdict(&self) -> Verdict {
        self.verdict.unwrap_or(Verdict::Unproven)
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Rows written to it.
    pub rows: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// How long flushes took, in microseconds.
    pub flushes: Histogram<u64>,
    /// The longest that any write of an HDF5 chunk took.
    pub longest_write: Duration,
    /// Whether samples were written past the page cache.
    pub direct: bool,
}

impl Report {
    /// How many flushes took at most so many microseconds and more than half of that: powers of two, upwards.
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

/// Why an HDF5 file cannot be written, or not any further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It would have been written over.
    #[error("{} is there already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Making or opening it.
    #[error("{}: {doing}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What libhdf5 says.
        source: hdf5_metno::Error,
    },
    /// Writing an HDF5 chunk of a dataset.
    #[error("{}: writing row {row} of {dataset}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The dataset.
        dataset: String,
        /// The first row of the HDF5 chunk.
        row: u64,
        /// What libhdf5 says.
        source: hdf5_metno::Error,
    },
    /// Making rows visible.
    #[error("{}: flushing {dataset}", path.display())]
    Flush {
        /// The file.
        path: PathBuf,
        /// The dataset.
        dataset: String,
        /// What libhdf5 says.
        source: hdf5_metno::Error,
    },
    /// What the kernel does with the file: removing the old one, syncing the new.
    #[error("{}: {doing}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// Setting or reading an attribute.
    #[error("{}: attribute {name}", path.display())]
    Attribute {
        /// The file.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// What libhdf5 says.
        source: hdf5_metno::Error,
    },
    /// A write failed before, and what came after it would leave a hole.
    #[error("{}: an earlier write failed, so nothing more is written", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
    },
    /// The samples cannot be taken apart.
    #[error("{}: {source}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// Why.
        source: columns::Error,
    },
    /// A name that HDF5 would take for a path, or that has a meaning of its own.
    #[error("{}: a column cannot be named `{name}`", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Two columns of one name.
    #[error("{}: `{name}` is captured twice, and a file has one column of a name", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Whoever wrote it last died.
    #[error(
        "{}: its last recording was never ended; `fullbore recover {}` ends it",
        path.display(),
        path.display()
    )]
    Unended {
        /// The file.
        path: PathBuf,
    },
    /// Something else has the name of a file that shows several.
    #[error("{}: it is not a file that shows others, so none is put in its place", path.display())]
    NoMaster {
        /// The file.
        path: PathBuf,
    },
    /// The file that was to be continued holds something else.
    #[error("{}: {what}, so this acquisition cannot be added to it", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// In what it differs.
        what: String,
    },
    /// The file that was to be continued is made smaller in another way.
    #[error("{}: its compression is {has}, and {asked} was asked for", path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// How it is made smaller.
        has: Compression,
        /// How it was to be.
        asked: Compression,
    },
    /// Bytes that are no whole samples.
    #[error("{}: {length} bytes are no whole number of {unit} bytes", path.display())]
    Ragged {
        /// The file.
        path: PathBuf,
        /// How many there were.
        length: usize,
        /// Bytes of a sample or frame.
        unit: usize,
    },
    /// Whoever writes it lives.
    #[error("{}: another program has it open, and may be writing it", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Somebody took its last name away while it was written.
    #[error("{}: it was removed while it was written, and what was in it is lost", path.display())]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// No file to recover: it holds no dataset that grows.
    #[error("{}: not one of this program's HDF5 files", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        let says = |source: &hdf5_metno::Error, words: &[&str]| {
            let text = describe(source);
            words.iter().any(|word| text.contains(word))
        };
        match self {
            Error::Exists { .. } => {
                Some("give another name, ?existing=append to add to it, or ?existing=overwrite")
            }
            Error::Write { source, .. } | Error::Flush { source, .. } if says(source, NO_SPACE) => {
                Some(FULL)
            }
            Error::Disk { doing: WRITING, source, .. } if is_full(source) => Some(FULL),
            Error::Open { source, .. } if says(source, container::MARKED) => Some(
                "another program writes it, or one died doing so: then `fullbore recover FILE`",
            ),
            Error::Open { source, .. } if says(source, &["unable to lock", "errno = 11"]) => {
                Some("another program has it open: close it there, or give another name")
            }
            Error::InUse { .. } => {
                Some("stop what writes or reads it first; a program that died holds it no longer")
            }
            Error::Compressed { .. } => Some(
                "leave the compression out: what is added to a file is compressed as the file is",
            ),
            Error::Differs { .. } => {
                Some("give another file, or a template with %d for one file each")
            }
            _ => None,
        }
    }
}

/// What is done when samples are written past the page cache.
const WRITING: &str = "writing samples";

/// What to do when there is no more room.
const FULL: &str =
    "the disk is full: make room, or give a file on another one; what is in this one can be read";

fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

const NO_SPACE: &[&str] =
    &["No space left", "errno = 28", "Disk quota", "errno = 122", "File too large"];

/// An error and what it came from, in one line.
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

/// What an error came from, without what was being done.
pub fn cause(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = words(inner);
        cause = inner.source();
    }
    text
}

/// What libhdf5 passes on from the kernel, in the kernel's words: the addresses and lengths around them help nobody.
fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let of_kernel = error.downcast_ref().and_then(what_the_kernel_said);
    of_kernel.unwrap_or_else(|| error.to_string())
}

/// What the kernel said to libhdf5: `… errno = 28, error message = 'No space left on device', …`.
fn what_the_kernel_said(error: &hdf5_metno::Error) -> Option<String> {
    let text = describe(error);
    let (_, from) = text.split_once("error message = '")?;
    from.split_once('\'').map(|(said, _)| said.to_owned())
}

/// All that libhdf5 says of a failure: the cause is at the bottom of its stack.
pub(crate) fn describe(error: &hdf5_metno::Error) -> String {
    use std::fmt::Write as _;
    let mut text = error.to_string();
    for frame in error.stack().iter().flat_map(|stack| stack.iter()) {
        // Writing to a string does not fail.
        let _ = write!(text, "; {}", frame.desc());
    }
    text
}

/// The file of one stream of several, beside the one that shows all of them: `out.h5` and `46220` give
/// `out_46220.h5`.
pub fn beside(path: &Path, stream: &str) -> PathBuf {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy()));
    path.with_file_name(format!("{stem}_{stream}{}", ending.unwrap_or_default()))
}

/// The file of acquisition `number`, counted from 1, by a [`Template`] in its name. What is no template is a name.
pub fn numbered(template: &Path, number: u64) -> PathBuf {
    match Template::of(template) {
        Ok(names) => template.with_file_name(names.name(number)),
        Err(_) => template.to_owned(),
    }
}

/// Whether a name is taken, be it by a link that leads nowhere.
pub fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn histogram() -> Histogram<u64> {
    // From a microsecond to ten minutes, three digits.
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
        let times: Vec<_> = (0..30_000).map(fullbore_core::time::Tai).collect();
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
        use fullbore_core::time::Tai;
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
                // The second one is compressed as the file is, without being asked to.
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
                let ending = Ending { verdict, missing: 5, ..Ending::default() };
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
            // The root speaks of all of them.
            assert_eq!(attributes::read_text(&file, "verdict").as_deref(), Some("consistent"));
            assert_eq!(attributes::read_number::<u64>(&file, "samples"), Some(3 * rows));
            assert_eq!(attributes::read_number::<u64>(&file, "missing"), Some(15));
            file.close().unwrap();
            let options = Options { existing: Existing::Append, ..Options::default() };
            let asked = Options { compression: Some(Compression::Gzip(2)), ..options.clone() };
            let refused = BytesFile::create(&path, shape, &[], &asked).unwrap_err();
            assert!(matches!(refused, Error::Compressed { .. }), "{refused}");
            let other = Shape::Frames { frame_bytes: 10 };
            let refused = BytesFile::create(&path, other, &[], &options).unwrap_err();
            assert!(matches!(refused, Error::Differs { .. }), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_abandoned_ends_with_what_readers_have_seen_in_every_dataset() {
        use fullbore_core::time::Tai;
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
            file.append(&vec![7; rows * 10], &vec![fullbore_core::time::Tai(0); rows]).unwrap();
            file.finish(&Ending::default()).unwrap();
        };
        make(3, Existing::Refuse);
        join(&master, &[("a%b", &source)]).unwrap();
        make(4, Existing::Append);
        assert!(matches!(join(&master, &[]), Err(Error::Exists { .. })));
        // A stream that has nothing new stays.
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
            file.append(&[7; 300], &[fullbore_core::time::Tai(0); 3]).unwrap();
            file.flush().unwrap();
            let refused = recover(&path).unwrap_err();
            assert!(
                matches!(refused, Error::InUse { .. }) && refused.hint().is_some(),
                "{refused}"
            );
            assert!(matches!(clear(&path), Err(Error::InUse { .. })));
            let reader = std::fs::File::open(&path).unwrap();
            let shared = rustix::fs::FlockOperation::NonBlockingLockShared;
            // As libhdf5 has its readers do.
            assert_eq!(rustix::fs::flock(&reader, shared).is_ok(), live);
            drop(reader);
            file.finish(&Ending::default()).unwrap();
            assert!(recover(&path).unwrap().ended);
        }
    }

    #[test]
    fn flushes_are_told_by_powers_of_two() {
        let mut flushes = histogram();
        for us in [1, 3, 4, 5, 8, 1000, 1000] {
            flushes.record(us).unwrap();
        }
        let longest_write = Duration::ZERO;
        let path = PathBuf::new();
        let (rows, bytes_in, file_bytes, direct) = (0, 0, 0, false);
        let report = Report { path, rows, bytes_in, file_bytes, flushes, longest_write, direct };
        assert_eq!(report.flush_histogram(), [(1, 1), (4, 2), (8, 2), (1024, 2)]);
    }

    #[test]
    fn a_file_of_others_is_not_recovered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.h5");
        hdf5_metno::File::create(&path).unwrap().close().unwrap();
        assert!(matches!(recover(&path), Err(Error::Foreign { .. })));
        std::fs::write(&path, b"no HDF5 at all").unwrap();
        assert!(matches!(recover(&path), Err(Error::Open { .. })));
    }
}
