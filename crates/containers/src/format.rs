//! The formats of files, and how a target names one.

use std::io;
use std::path::{Path, PathBuf};

use fullbore_formats::samples::Encoding;
use fullbore_formats::samples::decode::DoesNotFit;

use crate::beside;
use crate::numpy::NumpyWriter;
use crate::sigmf::{self, SigmfWriter};
use crate::tdms::{self, TdmsLayout, TdmsWriter};
use crate::wav::{self, WavWriter};
use crate::zarr::ZarrWriter;
#[cfg(feature = "hdf5")]
use crate::{DigitalRfOptions, digital_rf};
use crate::{Opening, Recoder, SampleType, SampleWriter};

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFormat {
    /// An array of numpy, and a JSON file beside it.
    Numpy,
    /// A channel of Digital RF, which is a directory.
    #[cfg(feature = "hdf5")]
    DigitalRf(DigitalRfOptions),
    /// A SigMF recording: a file of samples, and its metadata.
    Sigmf {
        /// True if the metadata has the SHA-512 of the samples.
        hash: bool,
    },
    /// A file of LabVIEW, and its index.
    Tdms(TdmsLayout),
    /// A WAV file, or RF64 above 4 GiB, and a JSON file beside it.
    Wav,
    /// A Zarr array, which is a directory.
    Zarr,
}

impl SampleFormat {
    /// Every format, with its default options.
    pub fn all() -> Vec<Self> {
        vec![
            Self::Numpy,
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(DigitalRfOptions::default()),
            Self::Sigmf { hash: true },
            Self::Tdms(TdmsLayout::Contiguous),
            Self::Wav,
            Self::Zarr,
        ]
    }

    /// The scheme of its targets, as in `npy:out.npy`.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Numpy => "npy",
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(_) => "drf",
            Self::Sigmf { .. } => "sigmf",
            Self::Tdms(_) => "tdms",
            Self::Wav => "wav",
            Self::Zarr => "zarr",
        }
    }

    /// The endings of its files' names, which stand for the scheme.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Numpy => &[".npy"],
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(_) => &[],
            Self::Sigmf { .. } => &[sigmf::META, sigmf::DATA],
            Self::Tdms(_) => &[".tdms"],
            Self::Wav => &[".wav"],
            Self::Zarr => &[".zarr"],
        }
    }

    /// The format and the path of a target without its parameters: `npy:PATH`, or a path with the usual ending.
    pub fn of_target(target: &str) -> Option<(Self, &Path)> {
        Self::all().into_iter().find_map(|format| {
            let scheme = format.scheme();
            let named = target.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':'));
            let path = named.filter(|path| !path.is_empty());
            let ends = || format.endings().iter().any(|ending| target.ends_with(ending));
            let usual = || !target.contains(':') && ends();
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
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(_) => digital_rf::encoding(from, wanted),
            Self::Sigmf { .. } if wanted.is_none() && from.sigmf_name().is_some() => Ok(from),
            Self::Numpy | Self::Zarr | Self::Sigmf { .. } => {
                Recoder::encoding(from, wanted.unwrap_or(SampleType::F32))
            }
            Self::Wav => wav::encoding(from, wanted),
            Self::Tdms(_) => match wanted.or(SampleType::of_packed(from)) {
                Some(wanted) => Recoder::encoding(from, wanted),
                None => Ok(from),
            },
        }
    }

    /// The files that it makes for a path. None of them may exist.
    pub fn files(self, path: &Path) -> Vec<PathBuf> {
        match self {
            Self::Numpy | Self::Wav => vec![path.to_owned(), beside::description_of(path)],
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(_) => vec![path.to_owned()],
            Self::Zarr => vec![path.to_owned()],
            Self::Sigmf { .. } => vec![sigmf::data_of(path), sigmf::meta_of(path)],
            Self::Tdms(_) => vec![path.to_owned(), tdms::index_of(path)],
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
                Ok(Box::new(digital_rf::DigitalRfWriter::create(path, opening, options)?))
            }
            Self::Sigmf { hash } => Ok(Box::new(SigmfWriter::create(path, opening, hash)?)),
            Self::Tdms(order) => Ok(Box::new(TdmsWriter::create(path, opening, order)?)),
            Self::Wav => Ok(Box::new(WavWriter::create(path, opening)?)),
            Self::Zarr => Ok(Box::new(ZarrWriter::create(path, opening)?)),
        }
    }

    /// The file that lists the streams of a scan, if the format has one.
    pub fn list_of(self, path: &Path) -> Option<PathBuf> {
        match self {
            Self::Sigmf { .. } => Some(sigmf::collection_of(path)),
            Self::Numpy | Self::Tdms(_) | Self::Wav | Self::Zarr => None,
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(_) => None,
        }
    }

    /// Writes the file that lists these streams, whose files are finished.
    pub fn list(self, path: &Path, streams: &[PathBuf]) -> io::Result<()> {
        match self {
            Self::Sigmf { .. } => sigmf::write_collection(path, streams),
            Self::Numpy | Self::Tdms(_) | Self::Wav | Self::Zarr => Ok(()),
            #[cfg(feature = "hdf5")]
            Self::DigitalRf(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_by_scheme_or_ending() {
        let of =
            |target| SampleFormat::of_target(target).map(|(format, path)| (format.scheme(), path));
        for (target, scheme, path) in [
            ("npy:out", "npy", "out"),
            ("out.npy", "npy", "out.npy"),
            ("sigmf:out", "sigmf", "out"),
            ("out.sigmf-meta", "sigmf", "out.sigmf-meta"),
            ("out.tdms", "tdms", "out.tdms"),
            ("out.wav", "wav", "out.wav"),
            ("out.zarr", "zarr", "out.zarr"),
            #[cfg(feature = "hdf5")]
            ("drf:top/ch", "drf", "top/ch"),
        ] {
            assert_eq!(of(target), Some((scheme, Path::new(path))), "{target}");
        }
        for other in ["npy:", "hdf5:out.npy", "out.h5", "npyx", "sigmf", "out.drf"] {
            assert_eq!(of(other), None, "{other}");
        }
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
