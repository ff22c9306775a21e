//! `device:PATH?…`: a drive, or a file in place of one, and a part of it.

use std::fmt;
use std::path::PathBuf;

use super::address::{AddressError, CHUNK_BYTES, Span, checked_chunk, read_address};
use crate::endpoint::{Endpoint, Error, Parameter, Query, parameter};
use crate::layout::{BLOCK_BYTES, LARGEST_BLOCK_BYTES};
use crate::name::ScanName;
use crate::pattern::Pattern;
use crate::units::ByteSize;

/// The smallest write: the alignment that direct I/O needs on any drive.
const LEAST_BLOCK: u64 = crate::layout::ALIGNMENT;

/// The largest number of writes in flight.
const MOST_DEPTH: u64 = 128;

/// A drive and the selected part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEnd {
    /// The endpoint it was read from.
    pub endpoint: Endpoint,
    /// The device, or the file in place of one.
    pub path: PathBuf,
    /// Address of the first chunk; `None`: the first of the medium.
    pub first: Option<u64>,
    /// Address of the last chunk; `None`: the last of the medium.
    pub last: Option<u64>,
    /// Bytes of a chunk, if given; not yet checked.
    pub chunk: Option<u64>,
    /// A scan of the drive's index.
    pub scan: Option<ScanName>,
    /// The size of a new file in place of a drive, if the file does not exist.
    pub size: Option<ByteSize>,
    /// Bytes of one write.
    pub block: Option<ByteSize>,
    /// Writes in flight.
    pub depth: Option<u64>,
    /// The expected pattern, for verification.
    pub pattern: Option<Pattern>,
}

impl DeviceEnd {
    /// The parameters that may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[
        parameter(
            "scan",
            "r1234_no0001",
            "a scan of the index on the device; without it, bare chunks",
        ),
        parameter(
            "first",
            "0x20000",
            "byte address of the first chunk; default: that of the medium",
        ),
        parameter(
            "last",
            "0xfffe0000",
            "byte address of the last chunk; default: that of the medium",
        ),
        parameter("chunk", "128KiB", "bytes of a chunk, a multiple of 4096; default 128KiB"),
        parameter("block", "4MiB", "bytes of one write; default about 4MiB"),
        parameter("depth", "8", "writes in flight; default 8"),
        parameter("size", "10GiB", "size of a new file"),
        parameter("pattern", "prbs31", "expected contents, for verify"),
    ];

    /// True if the text names a device.
    pub fn is_meant(text: &str) -> bool {
        text.trim_start().split_once(':').is_some_and(|(it, _)| it.eq_ignore_ascii_case("device"))
    }

    /// Reads an endpoint.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::of(text.parse()?)
    }

    fn of(endpoint: Endpoint) -> Result<Self, Error> {
        const EXAMPLE: &str = "device:/dev/nvme0n1?first=0&last=0xfffe0000";
        if endpoint.scheme != "device" {
            let scheme = endpoint.scheme.clone();
            return Err(Error::Scheme { scheme, wanted: "device", example: EXAMPLE });
        }
        let host = endpoint.authority.as_ref().is_some_and(|it| !it.host.is_empty());
        let ports = endpoint.authority.as_ref().is_some_and(|it| it.ports.is_some());
        if endpoint.path.is_empty() || host || ports {
            return Err(Error::Form { text: endpoint.to_string() });
        }
        let query = Query::new(&endpoint, Self::PARAMETERS)?;
        let size = |text: &str| -> Result<ByteSize, String> {
            let size: ByteSize = text.parse().map_err(|it: crate::units::Error| it.to_string())?;
            if size.0 == 0 { Err("it is zero".into()) } else { Ok(size) }
        };
        let block = query.value("block", |text| {
            let block = size(text)?;
            match (LEAST_BLOCK..=LARGEST_BLOCK_BYTES).contains(&block.0) {
                true => Ok(block),
                false => Err(format!("it is {LEAST_BLOCK} to {LARGEST_BLOCK_BYTES} bytes")),
            }
        })?;
        let end = DeviceEnd {
            path: PathBuf::from(&endpoint.path),
            first: query.value("first", read_address)?,
            last: query.value("last", read_address)?,
            chunk: query.value("chunk", |text| size(text).map(|size| size.0))?,
            scan: query.parsed("scan")?,
            size: query.value("size", size)?,
            block,
            depth: query.number("depth", 1..=MOST_DEPTH)?,
            pattern: query.parsed("pattern")?,
            endpoint,
        };
        if end.scan.is_some() && (end.first.is_some() || end.last.is_some()) {
            return Err(Error::Together {
                what: "`first` and `last` are for bare chunks; the index has the address of a scan"
                    .into(),
            });
        }
        Ok(end)
    }

    /// Returns the selected chunks of a medium of `media_bytes` bytes.
    pub fn span(&self, media_bytes: u64) -> Result<Span, AddressError> {
        Span::new(self.first, self.last, self.chunk_bytes()?, media_bytes)
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> Result<u32, AddressError> {
        self.chunk.map_or(Ok(CHUNK_BYTES), checked_chunk)
    }

    /// Returns the bytes of one write: a whole number of chunks, near the requested size.
    pub fn block_bytes(&self, chunk_bytes: u32) -> u32 {
        let chunk = u64::from(chunk_bytes);
        let wanted = self.block.map_or(BLOCK_BYTES, |size| size.0);
        // A chunk has at most 1 GiB, so this fits.
        ((wanted / chunk).max(1) * chunk) as u32
    }

    /// Writes in flight.
    pub fn depth(&self) -> u64 {
        self.depth.unwrap_or(8)
    }
}

impl fmt::Display for DeviceEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_with_its_addresses() {
        let end =
            DeviceEnd::parse("device:/dev/nvme0n1?first=0x20000&last=4GiB&chunk=128KiB").unwrap();
        assert_eq!(end.path, PathBuf::from("/dev/nvme0n1"));
        assert_eq!((end.first, end.last), (Some(0x20000), Some(1 << 32)));
        assert_eq!((end.chunk_bytes(), end.depth()), (Ok(128 << 10), 8));
        assert_eq!(end.block_bytes(128 << 10), 4 << 20);
        assert_eq!(DeviceEnd::parse(&end.to_string()), Ok(end));
        assert_eq!(DeviceEnd::parse("device:///dev/sdb").unwrap().path, PathBuf::from("/dev/sdb"));
        let odd = DeviceEnd::parse("device:x?chunk=12KiB").unwrap();
        assert_eq!(odd.block_bytes(odd.chunk_bytes().unwrap()) % (12 << 10), 0);
        let huge = DeviceEnd::parse("device:x?chunk=1GiB").unwrap();
        assert_eq!(huge.block_bytes(huge.chunk_bytes().unwrap()), 1 << 30);
    }

    #[test]
    fn a_scan_is_named_as_everywhere_and_has_no_addresses() {
        let end = DeviceEnd::parse("device:/dev/sdb?scan=r1234_no0001").unwrap();
        assert_eq!(end.scan.unwrap().to_string(), "r1234_no0001");
        let both = DeviceEnd::parse("device:/dev/sdb?scan=r1_a&first=0").unwrap_err();
        assert!(matches!(both, Error::Together { .. }), "{both}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_an_example() {
        for (text, word) in [
            ("device:", "endpoint"),
            ("device://host/dev/sdb", "endpoint"),
            ("device:/dev/sdb?chunk=0", "zero"),
            ("device:/dev/sdb?block=1", "4096"),
            ("device:/dev/sdb?first=x", "number"),
            ("device:/dev/sdb?frist=0", "first"),
            ("device:/dev/sdb?scan=a", "_"),
            ("device:/dev/sdb?depth=0", "128"),
            ("file:/dev/sdb", "device"),
        ] {
            let error = DeviceEnd::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        for chunk in ["1000", "4097", "2GiB", "8GiB"] {
            let end = DeviceEnd::parse(&format!("device:/dev/sdb?chunk={chunk}")).unwrap();
            assert_eq!(end.span(1 << 40).unwrap_err().name(), "chunk-size", "{chunk}");
        }
        assert!(DeviceEnd::is_meant("device:/dev/sdb") && !DeviceEnd::is_meant("store:a_b"));
    }
}
