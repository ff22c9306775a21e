//! What is written to a device as it is: `-`, `file:PATH`, `pattern:NAME`, `device:PATH`.

use std::path::PathBuf;

use super::endpoint::DeviceEnd;
use crate::endpoint::{Endpoint, Error, file_path};
use crate::pattern::PatternSource;

/// A source of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BytesSource {
    /// Standard input.
    Standard,
    /// A file, or a named pipe.
    File(PathBuf),
    /// Known bytes.
    Pattern(PatternSource),
    /// What lies on another device: a scan, or bare chunks.
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
            "file" => file_path(&endpoint).map(BytesSource::File),
            _ => Err(Error::Scheme {
                scheme: endpoint.scheme.clone(),
                wanted: "source for a device",
                example: "pattern:prbs31?bytes=1GiB, file:PATH, device:PATH, - or \
                          udp://0.0.0.0:46220",
            }),
        }
    }
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
        assert_eq!(BytesSource::parse("file:x.bin"), Ok(BytesSource::File("x.bin".into())));
        let device = BytesSource::parse("device:/dev/sdb?scan=r1_a").unwrap();
        let BytesSource::Device(device) = device else { panic!("{device:?}") };
        assert_eq!(device.path, PathBuf::from("/dev/sdb"));
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
