//! `hdf5:PATH`: a file in another container, and its options.
//!
//! ```text
//! hdf5:capture-%d.h5                       one file for each acquisition
//! hdf5:all.h5?scaled=false&flush=200ms     integers with scale and offset beside them, seen sooner
//! hdf5:all.h5?existing=append              continued with one more acquisition
//! ```
//!
//! In a file name, `%d` is the number of the acquisition, and `%03d` is the same with leading zeros, as in the
//! PandABlocks client; `%%` is a percent sign.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::endpoint::{Endpoint, Error, Parameter, Query, parameter};

/// The action if the file already exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Leave the file unchanged and fail.
    #[default]
    Refuse,
    /// Replace the file.
    Overwrite,
    /// Append to the file.
    Append,
}

/// The compression of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// Byte shuffle, then gzip of this level.
    Gzip(u8),
    /// Bit shuffle, then LZ4.
    Bitshuffle,
}

/// What a file of a PandA says to programs for NeXus files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nexus {
    /// The columns are the data to draw.
    #[default]
    Data,
    /// The columns also have the places of areaDetector's files.
    AreaDetector,
    /// Nothing.
    Off,
}

/// An HDF5 file, or a template for several.
#[derive(Clone, Debug, PartialEq)]
pub struct Hdf5Target {
    /// The file, or a [`Template`] in its name.
    pub path: PathBuf,
    /// True: positions as doubles; false: the integers as captured.
    pub scaled: bool,
    /// The interval at which new data becomes visible to readers.
    pub flush: Duration,
    /// The action if the file already exists.
    pub existing: Existing,
    /// The compression, if one was requested: a file that is appended to keeps its own.
    pub compression: Option<Compression>,
    /// Samples per second, if known: it determines the size of HDF5 chunks.
    pub rate: Option<f64>,
    /// What a file of a PandA says to programs for NeXus files.
    pub nexus: Nexus,
}

/// The shortest and the longest time between two flushes.
const FLUSH_MS: std::ops::RangeInclusive<u128> = 10..=3_600_000;

impl Hdf5Target {
    /// The parameters that may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[
        parameter(
            "scaled",
            "false",
            "positions as doubles (default), or integers with their scale",
        ),
        parameter("flush", "200ms", "interval at which readers see new data; default 1s"),
        parameter("existing", "append", "if the file exists: refuse (default), append, overwrite"),
        parameter(
            "compression",
            "gzip:1",
            "none, gzip:1 to gzip:9, or bitshuffle; default: that of the appended file, else none",
        ),
        parameter("rate", "1e6", "samples per second, if known: sets the size of HDF5 chunks"),
        parameter(
            "nexus",
            "areadetector",
            "of a PandA: data (default: NXdata with links), areadetector (also its names), or off",
        ),
    ];

    /// A plain file with default options.
    pub fn of_path(path: PathBuf) -> Self {
        Hdf5Target {
            path,
            scaled: true,
            flush: Duration::from_secs(1),
            existing: Existing::default(),
            compression: None,
            rate: None,
            nexus: Nexus::default(),
        }
    }

    /// Parses an `hdf5:` endpoint. A text without a scheme is a file path with one of the HDF5 endings; any other
    /// ending means another container and is refused.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("hdf5") => {
                Self::read(&format!("hdf5:{}", without_escapes(rest)).parse()?)
            }
            Some((scheme, _)) if is_other_scheme(scheme) => Self::read(&text.parse()?),
            _ if text.is_empty() => Err(Error::Form { text: text.to_owned() }),
            _ if has_parameters(text) => Err(Error::Unprefixed { text: text.to_owned() }),
            // A file whose name has a colon is written `./name` or `hdf5:name`.
            Some((scheme, _)) if is_word(scheme) => Err(Error::Container { text: text.to_owned() }),
            _ => {
                Template::of(Path::new(text))?;
                let path = PathBuf::from(text);
                match is_name_of_hdf5(&path) {
                    true => Ok(Self::of_path(path)),
                    false => Err(Error::Container { text: text.to_owned() }),
                }
            }
        }
    }

    /// Reads the parts of an `hdf5:` endpoint.
    pub fn read(endpoint: &Endpoint) -> Result<Self, Error> {
        if endpoint.scheme != "hdf5" {
            let (scheme, wanted) = (endpoint.scheme.clone(), "container");
            return Err(Error::Scheme { scheme, wanted, example: "hdf5:capture-%d.h5" });
        }
        if endpoint.authority.is_some() || endpoint.path.is_empty() {
            return Err(Error::Form { text: endpoint.to_string() });
        }
        let query = Query::new(endpoint, Self::PARAMETERS)?;
        Template::of(Path::new(&endpoint.path))?;
        let plain = Self::of_path(PathBuf::from(&endpoint.path));
        Ok(Hdf5Target {
            scaled: query.flag("scaled")?.unwrap_or(plain.scaled),
            flush: query.value("flush", flush)?.unwrap_or(plain.flush),
            existing: query.value("existing", existing)?.unwrap_or_default(),
            compression: query.value("compression", compression)?,
            rate: query.value("rate", rate)?,
            nexus: query.value("nexus", nexus)?.unwrap_or_default(),
            ..plain
        })
    }
}

/// True if the end of a file name can only be meant as endpoint parameters.
fn has_parameters(text: &str) -> bool {
    let known = |name| Hdf5Target::PARAMETERS.iter().any(|parameter| parameter.name == name);
    let parts = text.split_once('?').map(|(_, query)| query.split('&'));
    parts.is_some_and(|mut parts| {
        parts.any(|part| part.split_once('=').is_some_and(|(name, _)| known(name)))
    })
}

/// Replaces `%03d`, which stands for a number: an escape of an endpoint also has two hexadecimal digits.
fn without_escapes(text: &str) -> String {
    let (path, query) = text.split_at(text.find('?').unwrap_or(text.len()));
    let mut parts = path.split('%');
    let mut spelt = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_number = part.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('d');
        let is_number = is_number && (part.starts_with('0') || part.starts_with('d'));
        spelt += if is_number { "%25" } else { "%" };
        spelt += part;
    }
    spelt + query
}

/// The name of a file, or a template for one file per acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    before: String,
    /// The minimum number of digits, if the name contains a number.
    digits: Option<usize>,
    after: String,
}

/// The largest number of digits: no acquisition number has more.
const MOST_DIGITS: usize = 20;

impl Template {
    /// Reads the last component of a path; directories are taken literally.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        Self::read(&name).map_err(|why| Error::Template { name: name.into_owned(), why })
    }

    fn read(name: &str) -> Result<Self, &'static str> {
        let mut template = Template { before: String::new(), digits: None, after: String::new() };
        let mut rest = name;
        while let Some((plain, behind)) = rest.split_once('%') {
            template.push(plain);
            let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
            let (width, behind) = behind.split_at(digits);
            rest = match (width, behind.strip_prefix('d'), behind.strip_prefix('%')) {
                ("", _, Some(rest)) => {
                    template.push("%");
                    rest
                }
                (_, Some(_), _) if template.digits.is_some() => {
                    return Err("it contains the number of the acquisition twice");
                }
                (width, Some(rest), _) if width.is_empty() || width.starts_with('0') => {
                    let width = width.parse().unwrap_or(0);
                    if width > MOST_DIGITS {
                        return Err("a number has at most 20 digits");
                    }
                    template.digits = Some(width);
                    rest
                }
                _ => {
                    return Err(
                        "after %, write d for the number of the acquisition, 03d for three digits, or % for a \
                         percent sign",
                    );
                }
            };
        }
        template.push(rest);
        Ok(template)
    }

    fn push(&mut self, text: &str) {
        match self.digits {
            None => self.before.push_str(text),
            Some(_) => self.after.push_str(text),
        }
    }

    /// True if each acquisition has a name of its own.
    pub fn is_of_several(&self) -> bool {
        self.digits.is_some()
    }

    /// The name of acquisition `number`.
    pub fn name(&self, number: u64) -> String {
        let Template { before, digits, after } = self;
        match digits {
            None => before.clone(),
            Some(digits) => format!("{before}{number:0digits$}{after}"),
        }
    }

    /// Returns the acquisition with this name.
    pub fn number(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        let number = digits.parse().ok()?;
        // `+7` and `07` parse as numbers too, but no acquisition has such a name.
        (self.is_of_several() && self.name(number) == name).then_some(number)
    }
}

/// The endings of HDF5 file names.
const ENDINGS: [&str; 6] = ["h5", "hdf5", "hdf", "he5", "nxs", "nx5"];

/// True if a file name has an HDF5 ending.
fn is_name_of_hdf5(path: &Path) -> bool {
    let ending = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
    ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// True if the text can be a scheme: a word of two characters or more.
fn is_word(text: &str) -> bool {
    text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'+')
}

/// True if the text is the scheme of another endpoint, not the start of a file name.
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

/// `data`, `areadetector` or `off`.
fn nexus(text: &str) -> Result<Nexus, String> {
    match text {
        "data" => Ok(Nexus::Data),
        "areadetector" => Ok(Nexus::AreaDetector),
        "off" => Ok(Nexus::Off),
        _ => Err("it is data, areadetector or off".to_owned()),
    }
}

/// `1e6`
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "it is a number of samples a second, above zero".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::Hint;

    #[test]
    fn a_plain_name_is_a_file() {
        let target = Hdf5Target::parse("/data/capture-%d.h5").unwrap();
        assert_eq!(target, Hdf5Target::of_path("/data/capture-%d.h5".into()));
        assert_eq!(Hdf5Target::parse("hdf5:/data/capture-%d.h5").unwrap(), target);
        assert_eq!(Hdf5Target::parse("a:b.h5").unwrap().path, PathBuf::from("a:b.h5"));
    }

    #[test]
    fn numbers_stand_in_names_as_the_panda_client_has_them() {
        for (text, first, later) in [
            ("run_%d.h5", "run_1.h5", "run_1234.h5"),
            ("run_%03d.h5", "run_001.h5", "run_1234.h5"),
            ("/data/%x/100%%_%05d", "100%_00001", "100%_01234"),
            ("plain.h5", "plain.h5", "plain.h5"),
            ("50%%.h5", "50%.h5", "50%.h5"),
        ] {
            let template = Template::of(Path::new(text)).unwrap();
            assert_eq!((template.name(1).as_str(), template.name(1234).as_str()), (first, later));
            let several = template.is_of_several();
            assert_eq!(several, first != later);
            assert_eq!(template.number(later), several.then_some(1234));
        }
        let three = Template::of(Path::new("a%03d")).unwrap();
        for name in ["a7", "a+07", "a0007", "a", "b007"] {
            assert_eq!(three.number(name), None, "{name}");
        }
        for text in
            ["%s.h5", "%3d.h5", "50%.h5", "%", "%-3d", "%d_%d.h5", "%0999d.h5", "%i", "%x.h5"]
        {
            let refused = Hdf5Target::parse(text).unwrap_err().to_string();
            assert!(refused.contains(text), "{refused}");
            // In an endpoint `%3d` is the escape of `=`.
            let within = Hdf5Target::parse(&format!("hdf5:{text}"));
            assert_eq!(within.is_err(), text != "%3d.h5", "{text}");
        }
        for text in ["/data/a-%03d.h5", "%012d", "%dab.h5", "a%20b%d.h5"] {
            let target = Hdf5Target::parse(&format!("hdf5:{text}?flush=1s")).unwrap();
            assert_eq!(target.path, PathBuf::from(text.replace("%20", " ")));
        }
    }

    #[test]
    fn parameters_behind_a_plain_name_are_no_part_of_it() {
        for text in ["h.h5?scaled=false", "a-%d.h5?x=1&flush=1s"] {
            let refused = Hdf5Target::parse(text).unwrap_err();
            assert!(refused.hint().unwrap().contains(&format!("hdf5:{text}")), "{refused}");
        }
        for text in ["what?.h5", "a?b=c.h5", "scaled=false.h5"] {
            assert_eq!(Hdf5Target::parse(text).unwrap().path, PathBuf::from(text));
        }
    }

    #[test]
    fn a_name_of_another_container_is_refused() {
        for text in [
            "x.tdms",
            "x.sigmf",
            "x",
            "x.h5.gz",
            "h.h5?scaled",
            "mark6:/a/b.h5",
            "dir.h5/x",
            "tdms:x.h5",
            "sigmf:y.hdf5",
        ] {
            let refused = Hdf5Target::parse(text).unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
            assert!(refused.hint().unwrap().contains("hdf5:"), "{refused}");
        }
        // An explicit scheme permits any file name.
        for text in ["x.tdms", "x", "run_%d"] {
            assert_eq!(Hdf5Target::parse(&format!("hdf5:{text}")).unwrap().path, Path::new(text));
        }
        for text in ["x.H5", "x.nxs", "c:x.hdf5", "run_%d.he5"] {
            assert_eq!(Hdf5Target::parse(text).unwrap().path, Path::new(text));
        }
    }

    #[test]
    fn every_parameter_is_read() {
        let text = "hdf5:x.h5?scaled=false&flush=200ms&existing=append&compression=gzip:4&rate=1e6";
        let target = Hdf5Target::parse(text).unwrap();
        assert!(!target.scaled);
        assert_eq!(target.flush, Duration::from_millis(200));
        assert_eq!(target.existing, Existing::Append);
        assert_eq!(target.compression, Some(Compression::Gzip(4)));
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
