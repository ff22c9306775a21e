//! The sources of bytes: `-`, `file:PATH`, `pattern:NAME`, `device:PATH`.

use std::path::PathBuf;

use super::endpoint::DeviceEnd;
use crate::endpoint::{
    Endpoint, Error, Parameter, Query, SAMPLE_PARAMETERS, file_path, parameter, sample_layout,
};
use crate::name::Name;
use crate::pattern::PatternSource;
use crate::units::ByteSize;

/// A source of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BytesSource {
    /// Standard input.
    Standard,
    /// A file or a named pipe, and the bytes before and of the recorded part of a file.
    File(PathBuf, u64, Option<u64>),
    /// A test pattern.
    Pattern(PatternSource),
    /// The contents of another device: a scan, or bare chunks.
    Device(Box<DeviceEnd>),
}

impl BytesSource {
    /// Reads `-`, `file:PATH`, `pattern:NAME` or `device:PATH`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text == "-" {
            return Ok(BytesSource::Standard);
        }
        let endpoint: Endpoint = text.parse()?;
        match endpoint.scheme.as_str() {
            "pattern" => PatternSource::parse(text).map(BytesSource::Pattern),
            "device" => DeviceEnd::parse(text).map(|end| BytesSource::Device(Box::new(end))),
            "file" => Ok(BytesSource::File(file_path(&endpoint)?, 0, None)),
            _ => Err(Error::Scheme {
                scheme: endpoint.scheme.clone(),
                wanted: "source for a device",
                example: "pattern:prbs31?bytes=1GiB, file:PATH, device:PATH, - or \
                          udp://0.0.0.0:46220",
            }),
        }
    }
}

/// A source of bytes as a stream of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BytesStream {
    /// The source.
    pub source: BytesSource,
    /// The name of the stream.
    pub name: Name,
    /// The endpoint, as given.
    pub endpoint: String,
    /// When the rest of the source is read and dropped.
    pub flush: Flush,
    /// Sentences about the source, for the user.
    pub notes: Vec<String>,
}

/// When the rest of a source is read and dropped, so that its sender can end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// Never: it stays in the source.
    #[default]
    Never,
    /// After an abort, for a short time.
    AfterAbort,
    /// After any end.
    Always,
}

impl BytesStream {
    /// The parameters of a `file:` source.
    pub const FILE_PARAMETERS: &'static [Parameter] = &[
        parameter("name", "sky", "the name of the stream; default `file`"),
        parameter("format", "raw", "bytes as they come, which is the only choice"),
        parameter("skip", "128", "bytes before the recorded part of the file; default 0"),
        parameter("bytes", "4GiB", "length of the recorded part; default: up to the end"),
    ];

    /// True if the text names a source of bytes, rightly or wrongly spelt.
    pub fn is_meant(text: &str) -> bool {
        let scheme = text.trim_start().split_once(':').map(|(scheme, _)| scheme);
        let known = |scheme: &str| {
            ["pattern", "file", "device"].iter().any(|it| scheme.eq_ignore_ascii_case(it))
        };
        text.trim() == "-" || scheme.is_some_and(known)
    }

    /// Reads `-`, `file:PATH`, `pattern:NAME` or `device:PATH`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let endpoint = text.trim().to_owned();
        let named = |source, name: &str| {
            let name = name.parse().expect("it is a name");
            Ok(Self {
                source,
                name,
                endpoint: endpoint.clone(),
                flush: Flush::Never,
                notes: vec![],
            })
        };
        if text.trim() == "-" {
            return named(BytesSource::Standard, "stdin");
        }
        let parsed: Endpoint = text.parse()?;
        if parsed.scheme == "file" {
            let (source, name) = file_of(parsed)?;
            let stream = named(source, "file")?;
            return Ok(Self { name: name.unwrap_or(stream.name), ..stream });
        }
        match BytesSource::parse(text)? {
            BytesSource::Pattern(pattern) => {
                let name = pattern.name.clone();
                named(BytesSource::Pattern(pattern), name.as_str())
            }
            source => named(source, "device"),
        }
    }
}

/// A `file:` source, and the name of its stream, if given.
fn file_of(mut endpoint: Endpoint) -> Result<(BytesSource, Option<Name>), Error> {
    let query = Query::with(&endpoint, BytesStream::FILE_PARAMETERS, SAMPLE_PARAMETERS)?;
    sample_layout(&endpoint)?;
    let name = query.parsed::<Name>("name")?;
    query.value("format", |format| match format {
        "raw" => Ok(()),
        _ => Err("frames in a file are not counted while it is recorded; its bytes are recorded as they come".into()),
    })?;
    let size = |name| query.parsed::<ByteSize>(name).map(|it| it.map(|size| size.0));
    let (skip, bytes) = (size("skip")?.unwrap_or(0), size("bytes")?);
    endpoint.parameters.clear();
    Ok((BytesSource::File(file_path(&endpoint)?, skip, bytes), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_files_pipes_and_devices_are_sources() {
        let pattern = BytesSource::parse("pattern:prbs31?bytes=1GiB").unwrap();
        let BytesSource::Pattern(pattern) = pattern else { panic!("{pattern:?}") };
        assert_eq!(pattern.bytes, Some(1 << 30));
        assert_eq!(BytesSource::parse("-"), Ok(BytesSource::Standard));
        let file = |skip, bytes| BytesSource::File("x.bin".into(), skip, bytes);
        assert_eq!(BytesSource::parse("file:x.bin"), Ok(file(0, None)));
        let part = BytesStream::parse("file:x.bin?skip=128&bytes=4KiB").unwrap();
        assert_eq!(part.source, file(128, Some(4096)));
        let device = BytesSource::parse("device:/dev/sdb?scan=r1_a").unwrap();
        let BytesSource::Device(device) = device else { panic!("{device:?}") };
        assert_eq!(device.path, PathBuf::from("/dev/sdb"));
    }

    #[test]
    fn a_stream_of_bytes_has_a_name() {
        let name = |text: &str| BytesStream::parse(text).map(|it| it.name.to_string());
        assert_eq!(name("-").unwrap(), "stdin");
        assert_eq!(name("pattern:prbs31?name=test").unwrap(), "test");
        assert_eq!(name("file:x.vdif").unwrap(), "file");
        assert_eq!(name("file:x.vdif?name=sky&format=raw").unwrap(), "sky");
        let error = BytesStream::parse("file:x.vdif?format=vdif").unwrap_err().to_string();
        assert!(error.contains("format=vdif") && error.contains("not counted"), "{error}");
        assert!(BytesStream::is_meant("-") && BytesStream::is_meant("File:x"));
        assert!(!BytesStream::is_meant("udp://:5000") && !BytesStream::is_meant("x"));
    }

    #[test]
    fn what_is_none_is_refused_with_an_example() {
        for (text, word) in [
            ("tcp:x", "source for a device"),
            ("pattern:stripes", "stripes"),
            ("pattern:prbs31?size=1", "bytes"),
            ("device:/dev/sdb?frist=0", "first"),
        ] {
            let error = BytesSource::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
