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

use std::io;
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

impl SampleFormat {
    /// The scheme of its targets, as in `npy:out.npy`.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Numpy => "npy",
            Self::Tdms(_) => "tdms",
        }
    }

    /// The format and the path of a target: `npy:PATH`, or a path with the usual ending. `?layout=interleaved` after
    /// the path of a TDMS file is another format.
    pub fn of_target(target: &str) -> Option<(Self, &Path)> {
        let contiguous = Self::Tdms(TdmsLayout::Contiguous);
        if let Some((target, order)) = target.split_once("?layout=") {
            let order = match order {
                "contiguous" => TdmsLayout::Contiguous,
                "interleaved" => TdmsLayout::Interleaved,
                _ => return None,
            };
            let (format, path) = Self::of_target(target)?;
            return (format == contiguous).then_some((Self::Tdms(order), path));
        }
        [Self::Numpy, contiguous].into_iter().find_map(|format| {
            let scheme = format.scheme();
            let named = target.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':'));
            let path = named.filter(|path| !path.is_empty());
            let usual = || !target.contains(':') && target.ends_with(&format!(".{scheme}"));
            path.or_else(|| usual().then_some(target)).map(|path| (format, Path::new(path)))
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_by_scheme_or_ending() {
        let numpy = |path| Some((SampleFormat::Numpy, Path::new(path)));
        assert_eq!(SampleFormat::of_target("npy:out"), numpy("out"));
        assert_eq!(SampleFormat::of_target("out.npy"), numpy("out.npy"));
        let tdms = |order, path| Some((SampleFormat::Tdms(order), Path::new(path)));
        assert_eq!(SampleFormat::of_target("out.tdms"), tdms(TdmsLayout::Contiguous, "out.tdms"));
        let named = SampleFormat::of_target("tdms:out?layout=interleaved");
        assert_eq!(named, tdms(TdmsLayout::Interleaved, "out"));
        for other in [
            "npy:",
            "hdf5:out.npy",
            "out.h5",
            "npyx",
            "out.npy?layout=contiguous",
            "tdms:x?layout=y",
        ] {
            assert_eq!(SampleFormat::of_target(other), None, "{other}");
        }
    }
}
