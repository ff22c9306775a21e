//! Containers of samples: files that other programs read.
//!
//! ```text
//! payloads ──► Recoder ──► SampleWriter ──► files
//!              to an encoding              numpy: x.npy and x.npy.json
//!              that the format has         SigMF: x.sigmf-data and x.sigmf-meta
//! ```
//!
//! A [`SampleFormat`] creates the writer of one stream. The caller appends its samples in order, those that are not
//! there too, and finishes the files with the account. A writer knows neither blocks nor frames.

mod fill;
mod gaps;
mod numpy;
pub mod read;
mod recoder;
mod sigmf;

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
pub use self::sigmf::SigmfWriter;

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
    /// Where the samples come from.
    pub origin: Origin<'a>,
}

/// Where samples come from. A text without a value is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin<'a> {
    /// Program and version that recorded them.
    pub software: &'a str,
    /// The host of the recording.
    pub host: &'a str,
    /// The endpoint that they came from.
    pub source: &'a str,
    /// The file that lists the streams of the scan, if there are several: see [`SampleFormat::list`].
    pub list: Option<&'a Path>,
}

/// What the files of a stream end with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ending<'a> {
    /// The account of their content.
    pub account: Option<&'a Account>,
    /// The notes on samples, in order.
    pub notes: &'a [Note],
}

/// A note on a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The number of the sample, counted from 0, those that are not there too.
    pub sample: u64,
    /// The marked moment.
    pub time: Tai,
    /// The text.
    pub text: String,
    /// A UUID.
    pub uuid: String,
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
    /// A SigMF recording: a file of samples, and its metadata.
    Sigmf {
        /// True if the metadata has the SHA-512 of the samples.
        hash: bool,
    },
}

/// A target of samples is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It has a parameter that the format has not.
    #[error("`{parameter}`: a target `sigmf:` has the parameter hash=true or hash=false")]
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
            Self::Sigmf { .. } => "sigmf",
        }
    }

    /// The endings of its files' names, which stand for the scheme.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Numpy => &[".npy"],
            Self::Sigmf { .. } => &[sigmf::META, sigmf::DATA],
        }
    }

    /// The format and the path of a target: `npy:PATH`, or a path with the usual ending.
    pub fn of_target(target: &str) -> Option<(Self, &Path)> {
        [Self::Numpy, Self::Sigmf { hash: true }].into_iter().find_map(|format| {
            let named =
                target.strip_prefix(format.scheme()).and_then(|rest| rest.strip_prefix(':'));
            let path = named.filter(|path| !path.is_empty());
            let ends = || format.endings().iter().any(|it| target.ends_with(it));
            let usual = || !target.contains(':') && ends();
            path.or_else(|| usual().then_some(target)).map(|path| (format, Path::new(path)))
        })
    }

    /// The format with the parameters at the end of a target's path, and the path without them and without the ending
    /// that the format adds.
    pub fn with_parameters(self, path: &Path) -> Result<(Self, PathBuf), TargetError> {
        let Self::Sigmf { .. } = self else { return Ok((self, path.to_owned())) };
        let (path, parameters) = split_query(path);
        let hash = match parameters {
            None | Some(b"hash=true") => true,
            Some(b"hash=false") => false,
            Some(other) => {
                let parameter = String::from_utf8_lossy(other).chars().take(64).collect();
                return Err(TargetError::Parameter { parameter });
            }
        };
        Ok((Self::Sigmf { hash }, sigmf::base_of(path)))
    }

    /// The encoding of values that are stored as `wanted`; without a wish, the one that the format prefers.
    pub fn encoding(
        self,
        from: Encoding,
        wanted: Option<SampleType>,
    ) -> Result<Encoding, DoesNotFit> {
        match self {
            Self::Sigmf { .. } if wanted.is_none() && from.sigmf_name().is_some() => Ok(from),
            Self::Numpy | Self::Sigmf { .. } => {
                Recoder::encoding(from, wanted.unwrap_or(SampleType::F32))
            }
        }
    }

    /// The files that it makes for a path. None of them may exist.
    pub fn files(self, path: &Path) -> Vec<PathBuf> {
        match self {
            Self::Numpy => vec![path.to_owned(), numpy::description_of(path)],
            Self::Sigmf { .. } => vec![sigmf::data_of(path), sigmf::meta_of(path)],
        }
    }

    /// Creates the files of a stream.
    pub fn create(self, path: &Path, opening: &Opening<'_>) -> io::Result<Box<dyn SampleWriter>> {
        match self {
            Self::Numpy => Ok(Box::new(NumpyWriter::create(path, opening)?)),
            Self::Sigmf { hash } => Ok(Box::new(SigmfWriter::create(path, opening, hash)?)),
        }
    }

    /// The file that lists the streams of a scan, if the format has one.
    pub fn list_of(self, path: &Path) -> Option<PathBuf> {
        match self {
            Self::Numpy => None,
            Self::Sigmf { .. } => Some(sigmf::collection_of(path)),
        }
    }

    /// Writes the file that lists these streams, whose files are finished.
    pub fn list(self, path: &Path, streams: &[PathBuf]) -> io::Result<()> {
        match self {
            Self::Numpy => Ok(()),
            Self::Sigmf { .. } => sigmf::write_collection(path, streams),
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
        let sigmf = |path| Some((SampleFormat::Sigmf { hash: true }, Path::new(path)));
        assert_eq!(SampleFormat::of_target("sigmf:out"), sigmf("out"));
        assert_eq!(SampleFormat::of_target("out.sigmf-meta"), sigmf("out.sigmf-meta"));
        for other in ["npy:", "hdf5:out.npy", "out.h5", "npyx", "sigmf"] {
            assert_eq!(SampleFormat::of_target(other), None, "{other}");
        }
    }

    #[test]
    fn parameters_follow_a_path_of_sigmf_only() {
        let with = |format: SampleFormat, path: &str| format.with_parameters(Path::new(path));
        let sigmf = SampleFormat::Sigmf { hash: true };
        assert_eq!(with(sigmf, "a/x.sigmf-data"), Ok((sigmf, "a/x".into())));
        let quick = SampleFormat::Sigmf { hash: false };
        assert_eq!(with(sigmf, "x?hash=false"), Ok((quick, "x".into())));
        assert!(with(sigmf, "x?hash=maybe").is_err() && with(sigmf, "x?").is_err());
        assert_eq!(with(SampleFormat::Numpy, "x?.npy"), Ok((SampleFormat::Numpy, "x?.npy".into())));
    }

    #[test]
    fn sigmf_keeps_the_encodings_that_it_has() {
        let to = |from: &str, wanted| {
            let sigmf = SampleFormat::Sigmf { hash: true };
            sigmf.encoding(from.parse().unwrap(), wanted).map(|it| it.to_string())
        };
        assert_eq!(to("ci16_be", None).unwrap(), "ci16_be");
        assert_eq!(to("ru32_le", None).unwrap(), "ru32_le");
        assert_eq!(to("ro2", None).unwrap(), "rf32_le");
        assert_eq!(to("ro2", Some(SampleType::I8)).unwrap(), "ri8");
        assert!(to("ri16_le", Some(SampleType::I8)).is_err());
    }
}
