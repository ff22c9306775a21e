//! Containers of samples: files that other programs read.
//!
//! ```text
//! blocks ──► Payloads ──► Recoder ──► SampleWriter ──► files
//!            without      to an encoding              numpy: x.npy and x.npy.json
//!            headers      that the format has         Digital RF: top/channel/…
//! ```
//!
//! A [`SampleFile`] takes the blocks of one stream, stored or live. Its [`SampleFormat`] creates the writer, which gets the
//! samples in order, those that are not there too, and the account at the end. A writer knows neither blocks nor frames.

#[cfg(feature = "hdf5")]
mod digital_rf;
mod error;
mod file;
mod gaps;
mod numpy;
mod payload;
mod recoder;
mod target;

use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::account::Account;
use fullbore_formats::samples::decode::DoesNotFit;
use fullbore_formats::samples::{Encoding, SampleLayout};
use fullbore_time::Tai;

#[cfg(feature = "hdf5")]
pub use self::digital_rf::DigitalRfOptions;
#[cfg(feature = "hdf5")]
use self::digital_rf::DigitalRfWriter;
pub use self::error::SampleError;
pub use self::file::{Purpose, SampleFile, SampleOptions};
pub use self::gaps::{SampleGap, SampleGaps};
use self::numpy::NumpyWriter;
pub use self::payload::{Framing, SampleBlock};
pub use self::recoder::{Recoder, SampleType};
pub use self::target::SampleTarget;

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
    /// What they lack of it, and why, if a write failed.
    pub lacks: Option<&'a str>,
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

    /// After a failed write: leaves the samples of the last sync, with their ending if the format has room for it. Unless a
    /// format does more, its files stay as they are.
    fn abandon(self: Box<Self>, _ending: &Ending<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFormat {
    /// An array of numpy, and a JSON file beside it.
    Numpy,
    /// A channel of Digital RF, which is a directory.
    #[cfg(feature = "hdf5")]
    DigitalRf(DigitalRfOptions),
}

impl SampleFormat {
    /// The scheme of its targets, as in `npy:out.npy`.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Numpy => "npy",
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(_) => "drf",
        }
    }

    /// The format and the path of a target: `npy:PATH`, or a path with the usual ending.
    pub fn of_target(target: &str) -> Option<(Self, &Path)> {
        let all = [
            Self::Numpy,
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(DigitalRfOptions::default()),
        ];
        all.into_iter().find_map(|format| {
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
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(_) => digital_rf::encoding(from, wanted),
        }
    }

    /// The files that it makes for a path. None of them may exist.
    pub fn files(self, path: &Path) -> Vec<PathBuf> {
        match self {
            Self::Numpy => vec![path.to_owned(), numpy::description_of(path)],
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(_) => vec![path.to_owned()],
        }
    }

    /// Removes the files that it has made for a path, as far as they can be removed.
    pub fn remove(self, path: &Path) {
        for file in self.files(path) {
            let _ = match file.is_dir() {
                true => std::fs::remove_dir_all(file),
                false => std::fs::remove_file(file),
            };
        }
    }

    /// Creates the files of a stream.
    pub fn create(self, path: &Path, opening: &Opening<'_>) -> io::Result<Box<dyn SampleWriter>> {
        match self {
            Self::Numpy => Ok(Box::new(NumpyWriter::create(path, opening)?)),
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(options) => {
                Ok(Box::new(DigitalRfWriter::create(path, opening, options)?))
            }
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
        let channel =
            SampleFormat::of_target("drf:top/ch").map(|(format, path)| (format.scheme(), path));
        assert_eq!(channel, Some(("drf", Path::new("top/ch"))));
        for other in ["npy:", "hdf5:out.npy", "out.h5", "npyx"] {
            assert_eq!(SampleFormat::of_target(other), None, "{other}");
        }
    }
}
