//! Containers of samples: files that other programs read.
//!
//! ```text
//! payloads ──► Recoder ──► SampleWriter ──► files
//!              to an encoding              numpy: x.npy and x.npy.json
//!              that the format has          tdms: x.tdms and x.tdms_index
//! ```
//!
//! A [`SampleFormat`] creates the writer of one stream. The caller appends its samples in order, those that are not
//! there too, and finishes the files with the account. A writer knows neither blocks nor frames.

mod gaps;
mod numpy;
mod recoder;
pub mod tdms;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fullbore_core::account::Account;
use fullbore_formats::samples::decode::DoesNotFit;
use fullbore_formats::samples::{Encoding, SampleLayout};
use fullbore_time::Tai;

pub use self::gaps::{SampleGap, SampleGaps};
use self::numpy::NumpyWriter;
pub use self::recoder::{Recoder, SampleType};
use self::tdms::{TdmsLayout, TdmsWriter};

/// What the files of a stream begin with.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The scan's name.
    pub scan: &'a str,
    /// The stream's name.
    pub stream: &'a str,
    /// The samples, as they are appended. The encoding is one of [`SampleFormat::encoding`].
    pub layout: &'a SampleLayout,
    /// The time of the first sample.
    pub start: Option<Tai>,
}

/// What the files of a stream end with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ending<'a> {
    /// The account of their content.
    pub account: Option<&'a Account>,
}

/// Files that have their ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Samples of each channel, those that are not there too.
    pub samples: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// The files of one stream, while they are written.
pub trait SampleWriter: Send {
    /// Appends whole samples of all channels, in the layout of the opening.
    fn append(&mut self, samples: &[u8]) -> io::Result<()>;

    /// Appends samples that are not there.
    fn append_absent(&mut self, samples: u64) -> io::Result<()>;

    /// Samples appended to each channel.
    fn samples(&self) -> u64;

    /// Makes what was appended survive a power failure, in a state that readers of the format accept.
    fn sync(&mut self) -> io::Result<()>;

    /// Writes the ending, and makes the files durable.
    fn finish(self: Box<Self>, ending: &Ending<'_>) -> io::Result<Finished>;
}

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFormat {
    /// An array of numpy, and a JSON file beside it.
    Numpy,
    /// A file of LabVIEW, and its index.
    Tdms(TdmsLayout),
}

/// A target of samples is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It has a parameter that the format has not.
    #[error(
        "`{parameter}`: a target `tdms:` has the parameter layout=contiguous or layout=interleaved"
    )]
    Parameter {
        /// The parameter.
        parameter: String,
    },
}

impl SampleFormat {
    /// The scheme of its targets, as in `npy:out.npy`.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Numpy => "npy",
            Self::Tdms(_) => "tdms",
        }
    }

    /// The format and the path of a target: `npy:PATH`, or a path with the usual ending.
    pub fn of_target(target: &str) -> Option<(Self, &Path)> {
        [Self::Numpy, Self::Tdms(TdmsLayout::Contiguous)].into_iter().find_map(|format| {
            let scheme = format.scheme();
            let named = target.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':'));
            let path = named.filter(|path| !path.is_empty());
            let (bare, _) = target.split_once('?').unwrap_or((target, ""));
            let usual = || !target.contains(':') && bare.ends_with(&format!(".{scheme}"));
            path.or_else(|| usual().then_some(target)).map(|path| (format, Path::new(path)))
        })
    }

    /// The format with the parameters at the end of a target's path, and the path without them.
    pub fn with_parameters(self, path: &Path) -> Result<(Self, PathBuf), TargetError> {
        let Self::Tdms(_) = self else { return Ok((self, path.to_owned())) };
        let (path, parameters) = split_query(path);
        let order = match parameters {
            None | Some(b"layout=contiguous") => TdmsLayout::Contiguous,
            Some(b"layout=interleaved") => TdmsLayout::Interleaved,
            Some(other) => {
                let parameter = String::from_utf8_lossy(other).chars().take(64).collect();
                return Err(TargetError::Parameter { parameter });
            }
        };
        Ok((Self::Tdms(order), path.to_owned()))
    }

    /// The encoding of values that are stored as `wanted`; without a wish, the one that the format prefers.
    pub fn encoding(
        self,
        from: Encoding,
        wanted: Option<SampleType>,
    ) -> Result<Encoding, DoesNotFit> {
        match self {
            Self::Numpy => Recoder::encoding(from, wanted.unwrap_or(SampleType::F32)),
            Self::Tdms(_) => match wanted.or(SampleType::of_packed(from)) {
                Some(wanted) => Recoder::encoding(from, wanted),
                None => Ok(from),
            },
        }
    }

    /// The files that it makes for a path. None of them may exist.
    pub fn files(self, path: &Path) -> Vec<PathBuf> {
        match self {
            Self::Numpy => vec![path.to_owned(), numpy::description_of(path)],
            Self::Tdms(_) => vec![path.to_owned(), tdms::index_of(path)],
        }
    }

    /// Creates the files of a stream.
    pub fn create(self, path: &Path, opening: &Opening<'_>) -> io::Result<Box<dyn SampleWriter>> {
        match self {
            Self::Numpy => Ok(Box::new(NumpyWriter::create(path, opening)?)),
            Self::Tdms(order) => Ok(Box::new(TdmsWriter::create(path, opening, order)?)),
        }
    }
}

/// A path, and what follows the first `?` in it.
fn split_query(path: &Path) -> (&Path, Option<&[u8]>) {
    let bytes = path.as_os_str().as_bytes();
    match bytes.iter().position(|&byte| byte == b'?') {
        Some(at) => (Path::new(OsStr::from_bytes(&bytes[..at])), Some(&bytes[at + 1..])),
        None => (path, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_by_scheme_or_ending() {
        let numpy = |path| Some((SampleFormat::Numpy, Path::new(path)));
        assert_eq!(SampleFormat::of_target("npy:out"), numpy("out"));
        assert_eq!(SampleFormat::of_target("out.npy"), numpy("out.npy"));
        let tdms = |path| Some((SampleFormat::Tdms(TdmsLayout::Contiguous), Path::new(path)));
        assert_eq!(SampleFormat::of_target("out.tdms"), tdms("out.tdms"));
        assert_eq!(SampleFormat::of_target("x.tdms?layout=y"), tdms("x.tdms?layout=y"));
        for other in ["npy:", "hdf5:out.npy", "out.h5", "npyx"] {
            assert_eq!(SampleFormat::of_target(other), None, "{other}");
        }
    }
    #[test]
    fn parameters_follow_a_path_of_tdms_only() {
        let with = |format: SampleFormat, path: &str| format.with_parameters(Path::new(path));
        let contiguous = SampleFormat::Tdms(TdmsLayout::Contiguous);
        let interleaved = SampleFormat::Tdms(TdmsLayout::Interleaved);
        assert_eq!(with(contiguous, "a/x"), Ok((contiguous, "a/x".into())));
        assert_eq!(with(contiguous, "x?layout=interleaved"), Ok((interleaved, "x".into())));
        assert!(with(contiguous, "x?layout=rows").is_err() && with(contiguous, "x?").is_err());
        assert_eq!(with(SampleFormat::Numpy, "x?.npy"), Ok((SampleFormat::Numpy, "x?.npy".into())));
    }
}
