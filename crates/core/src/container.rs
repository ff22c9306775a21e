//! `hdf5:PATH`: a file in another container, and how it is written.
//!
//! ```text
//! hdf5:capture-%d.h5                       one file for each acquisition
//! hdf5:all.h5?scaled=false&flush=200ms     integers with scale and offset beside them, seen sooner
//! hdf5:all.h5?existing=append              continued with one more acquisition
//! ```

use std::path::PathBuf;
use std::time::Duration;

use crate::endpoint::{Endpoint, Error, Parameter, Query, parameter};

/// What to do with a file that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Leave it alone and refuse.
    #[default]
    Refuse,
    /// Begin anew.
    Overwrite,
    /// Continue it.
    Append,
}

/// How data is made smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Bytes shuffled, then gzip of this level.
    Gzip(u8),
    /// Bits shuffled, then LZ4.
    Bitshuffle,
}

/// An HDF5 file, or a template for several.
#[derive(Clone, Debug, PartialEq)]
pub struct Hdf5Target {
    /// The file; `%d` in its name is the number of the acquisition.
    pub path: PathBuf,
    /// Positions as doubles, else the integers as they were captured.
    pub scaled: bool,
    /// How often readers see what is new.
    pub flush: Duration,
    /// What to do with a file that is there already.
    pub existing: Existing,
    /// How data is made smaller.
    pub compression: Compression,
    /// Samples a second, where known: HDF5 chunks are sized by it.
    pub rate: Option<f64>,
}

/// The shortest and the longest time between two flushes.
const FLUSH_MS: std::ops::RangeInclusive<u128> = 10..=3_600_000;

impl Hdf5Target {
    /// What may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[
        parameter(
            "scaled",
            "false",
            "positions as doubles (default), or integers with their scale",
        ),
        parameter("flush", "200ms", "how often readers see what is new; default 1s"),
        parameter(
            "existing",
            "append",
            "with a file that is there: refuse (default), append, overwrite",
        ),
        parameter("compression", "gzip:1", "none (default), gzip:1 to gzip:9, or bitshuffle"),
        parameter("rate", "1e6", "samples a second, if known: HDF5 chunks are sized by it"),
    ];

    /// A plain file, with everything as it is without being asked for.
    pub fn of_path(path: PathBuf) -> Self {
        Hdf5Target {
            path,
            scaled: true,
            flush: Duration::from_secs(1),
            existing: Existing::default(),
            compression: Compression::default(),
            rate: None,
        }
    }

    /// Reads an `hdf5:` endpoint. A text without a scheme is the path of a file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("hdf5") => Self::read(&text.parse()?),
            Some((scheme, _)) if is_other_scheme(scheme) => Self::read(&text.parse()?),
            _ if text.is_empty() => Err(Error::Form { text: text.to_owned() }),
            _ => Ok(Self::of_path(PathBuf::from(text))),
        }
    }

    /// Says what the parts of an `hdf5:` endpoint mean.
    pub fn read(endpoint: &Endpoint) -> Result<Self, Error> {
        if endpoint.scheme != "hdf5" {
            let (scheme, wanted) = (endpoint.scheme.clone(), "container");
            return Err(Error::Scheme { scheme, wanted, example: "hdf5:capture-%d.h5" });
        }
        if endpoint.authority.is_some() || endpoint.path.is_empty() {
            return Err(Error::Form { text: endpoint.to_string() });
        }
        let query = Query::new(endpoint, Self::PARAMETERS)?;
        let plain = Self::of_path(PathBuf::from(&endpoint.path));
        Ok(Hdf5Target {
            scaled: query.flag("scaled")?.unwrap_or(plain.scaled),
            flush: query.value("flush", flush)?.unwrap_or(plain.flush),
            existing: query.value("existing", existing)?.unwrap_or_default(),
            compression: query.value("compression", compression)?.unwrap_or_default(),
            rate: query.value("rate", rate)?,
            ..plain
        })
    }
}

/// Whether it is the scheme of another endpoint, and not the beginning of a file's name.
fn is_other_scheme(text: &str) -> bool {
    ["udp", "store", "file", "panda", "tcp", "device", "pattern"].contains(&text)
}

/// `refuse`, `append` or `overwrite`.
pub fn existing(text: &str) -> Result<Existing, String> {
    match text {
        "refuse" => Ok(Existing::Refuse),
        "append" => Ok(Existing::Append),
        "overwrite" => Ok(Existing::Overwrite),
        _ => Err("it is refuse, append or overwrite".to_owned()),
    }
}

/// `none`, `gzip:1` … `gzip:9`, or `bitshuffle`.
pub fn compression(text: &str) -> Result<Compression, String> {
    let level = text.strip_prefix("gzip").map(|rest| rest.strip_prefix(':').unwrap_or("1"));
    match (text, level.map(str::parse)) {
        ("none", _) => Ok(Compression::None),
        ("bitshuffle", _) => Ok(Compression::Bitshuffle),
        (_, Some(Ok(level @ 1..=9))) => Ok(Compression::Gzip(level)),
        _ => Err("it is none, gzip:1 to gzip:9, or bitshuffle".to_owned()),
    }
}

/// `1s`, `200ms`, `0.5 s`.
pub fn flush(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.trim().parse::<f64>().ok().map(|n| n * unit);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| FLUSH_MS.contains(&time.as_millis()))
        .ok_or_else(|| "it is a time from 10ms to 3600s".to_owned())
}

/// `1e6`
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "it is a number of samples a second, above zero".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_a_file() {
        let target = Hdf5Target::parse("/data/capture-%d.h5").unwrap();
        assert_eq!(target, Hdf5Target::of_path("/data/capture-%d.h5".into()));
        assert_eq!(Hdf5Target::parse("hdf5:/data/capture-%d.h5").unwrap(), target);
        assert_eq!(Hdf5Target::parse("a:b.h5").unwrap().path, PathBuf::from("a:b.h5"));
    }

    #[test]
    fn every_parameter_is_read() {
        let text = "hdf5:x.h5?scaled=false&flush=200ms&existing=append&compression=gzip:4&rate=1e6";
        let target = Hdf5Target::parse(text).unwrap();
        assert!(!target.scaled);
        assert_eq!(target.flush, Duration::from_millis(200));
        assert_eq!((target.existing, target.compression), (Existing::Append, Compression::Gzip(4)));
        assert_eq!(target.rate, Some(1e6));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "",
            "hdf5:",
            "hdf5://host/x.h5",
            "udp://:1",
            "hdf5:x?flush=0s",
            "hdf5:x?flush=-1s",
            "hdf5:x?existing=maybe",
            "hdf5:x?compression=gzip:0",
            "hdf5:x?compression=zip",
            "hdf5:x?rate=0",
            "hdf5:x?speed=1",
        ] {
            assert!(Hdf5Target::parse(text).is_err(), "{text}");
        }
    }
}
