//! `npy:PATH?as=i16&flush=1s`: files of samples as the target of a recording.
//!
//! The path is taken as it is: it has neither escapes nor the number of a scan.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::container::flush;
use fullbore_core::endpoint::{Endpoint, Error, Parameter, Query};

#[cfg(feature = "hdf5")]
use crate::DigitalRfOptions;
use crate::tdms::TdmsLayout;
use crate::{SampleFormat, SampleOptions, sigmf};

/// The time between two syncs, unless the user gives another.
const FLUSH: Duration = Duration::from_secs(1);

const fn row(name: &'static str, example: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, example, meaning }
}

const VALUES: Parameter =
    row("as", "i16", "the type of the values; default: the one that the format prefers");
const FLUSH_EVERY: Parameter =
    row("flush", "200ms", "interval at which new data is durable and readers see it; default 1s");

/// Files of samples, one for each stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleTarget {
    /// The file.
    pub path: PathBuf,
    /// How samples are written.
    pub options: SampleOptions,
    /// The time between two syncs. A reader sees the samples of the last one.
    pub flush: Duration,
}

impl SampleTarget {
    /// The parameters that may follow the `?` of every format.
    pub const PARAMETERS: &'static [Parameter] = &[VALUES, FLUSH_EVERY];

    /// The parameters of a SigMF recording.
    pub const SIGMF: &'static [Parameter] = &[
        VALUES,
        FLUSH_EVERY,
        row("hash", "false", "the SHA-512 of the samples in the metadata (default), or none"),
    ];

    /// The parameters of a TDMS file.
    pub const TDMS: &'static [Parameter] = &[
        VALUES,
        FLUSH_EVERY,
        row(
            "layout",
            "interleaved",
            "`contiguous` channels in raw chunks (default), or `interleaved`",
        ),
    ];

    /// The parameters of a channel of Digital RF.
    #[cfg(feature = "hdf5")]
    pub const DIGITAL_RF: &'static [Parameter] = &[
        VALUES,
        FLUSH_EVERY,
        row("file", "1000", "milliseconds of each file; default 1000"),
        row("subdir", "3600", "seconds of each directory, a whole number of files; default 3600"),
        row("continuous", "true", "fill gaps, so that files are whole; default false"),
        row("checksum", "false", "a checksum for each chunk (default), or none"),
    ];

    /// Parses a target, if it names files of samples.
    pub fn parse(text: &str) -> Option<Result<Self, Error>> {
        let (target, query) = text.split_once('?').map_or((text, None), |(it, q)| (it, Some(q)));
        let (format, path) = SampleFormat::of_target(target)?;
        Some(Self::read(format, path.into(), query))
    }

    fn read(format: SampleFormat, path: PathBuf, query: Option<&str>) -> Result<Self, Error> {
        // Only the parameters are in the form of an endpoint.
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        let endpoint: Endpoint = format!("{}:file{query}", format.scheme()).parse()?;
        match format {
            SampleFormat::Numpy | SampleFormat::Wav | SampleFormat::Zarr => {
                Self::of_query(format, path, &Query::new(&endpoint, Self::PARAMETERS)?)
            }
            #[cfg(feature = "hdf5")]
            SampleFormat::DigitalRf(_) => {
                let query = Query::new(&endpoint, Self::DIGITAL_RF)?;
                Self::of_query(SampleFormat::DigitalRf(digital_rf(&query)?), path, &query)
            }
            SampleFormat::Sigmf { .. } => {
                let query = Query::new(&endpoint, Self::SIGMF)?;
                let hash = query.value("hash", flag)?.unwrap_or(true);
                Self::of_query(SampleFormat::Sigmf { hash }, sigmf::base_of(&path), &query)
            }
            SampleFormat::Tdms(_) => {
                let query = Query::new(&endpoint, Self::TDMS)?;
                let layout = query.value("layout", tdms_layout)?.unwrap_or_default();
                Self::of_query(SampleFormat::Tdms(layout), path, &query)
            }
        }
    }

    fn of_query(format: SampleFormat, path: PathBuf, query: &Query<'_>) -> Result<Self, Error> {
        Ok(Self {
            path,
            options: SampleOptions { format, values: query.parsed("as")? },
            flush: query.value("flush", flush)?.unwrap_or(FLUSH),
        })
    }
}

/// `true` or `false`.
fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "it is true or false".to_owned())
}

fn tdms_layout(text: &str) -> Result<TdmsLayout, String> {
    match text {
        "contiguous" => Ok(TdmsLayout::Contiguous),
        "interleaved" => Ok(TdmsLayout::Interleaved),
        _ => Err("it is contiguous or interleaved".to_owned()),
    }
}

/// The options of a channel.
#[cfg(feature = "hdf5")]
fn digital_rf(query: &Query<'_>) -> Result<DigitalRfOptions, Error> {
    let plain = DigitalRfOptions::default();
    let options = DigitalRfOptions {
        file_ms: query.parsed("file")?.unwrap_or(plain.file_ms),
        subdir_secs: query.parsed("subdir")?.unwrap_or(plain.subdir_secs),
        continuous: query.value("continuous", flag)?.unwrap_or(plain.continuous),
        checksum: query.value("checksum", flag)?.unwrap_or(plain.checksum),
    };
    match options.check() {
        Ok(()) => Ok(options),
        Err(what) => Err(Error::Together { what: what.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SampleType;

    #[test]
    fn a_target_has_a_path_and_parameters() {
        let target = SampleTarget::parse("npy:/a/%41 b.npy?as=i16&flush=200ms").unwrap().unwrap();
        let options = SampleOptions { format: SampleFormat::Numpy, values: Some(SampleType::I16) };
        let flush = Duration::from_millis(200);
        assert_eq!(target, SampleTarget { path: "/a/%41 b.npy".into(), options, flush });
        let plain = SampleTarget::parse("x.npy").unwrap().unwrap();
        assert_eq!((plain.options.values, plain.flush), (None, FLUSH));
        assert!(SampleTarget::parse("hdf5:x.h5?flush=1s").is_none());
        let sigmf = SampleTarget::parse("a/x.sigmf-data?hash=false").unwrap().unwrap();
        let format = SampleFormat::Sigmf { hash: false };
        assert_eq!((sigmf.path, sigmf.options.format), ("a/x".into(), format));
    }

    #[test]
    fn parameters_that_are_unknown_or_wrong_are_refused() {
        let refused = |text| SampleTarget::parse(text).unwrap().unwrap_err().to_string();
        assert!(refused("npy:x?as=i64").contains("i8, i16, i32 or f32"));
        assert!(refused("npy:x?flush=0").contains("10ms to 3600s"));
        assert!(refused("npy:x?existing=append").contains("as, flush"));
        assert!(refused("npy:x?as=i8&as=i16").contains("as"));
        assert!(refused("sigmf:x?hash=maybe").contains("true or false"));
        assert!(refused("x.tdms?layout=rows").contains("contiguous or interleaved"));
        assert!(refused("x.tdms?hash=false").contains("as, flush, layout"));
        #[cfg(feature = "hdf5")]
        assert!(refused("drf:x?file=7000").contains("whole number of files"));
    }
}
