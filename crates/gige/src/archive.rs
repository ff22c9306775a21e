//! The XML file in a camera's memory: where it is, and how it is packed.
//!
//! ```text
//! Local:name.zip;8001C400;1A2B3    name; address and length in hexadecimal digits
//! ```
//!
//! A zip archive has one file here. Its header is followed by the file, stored or compressed by *deflate*.

use std::io::Read;

use flate2::read::DeflateDecoder;

/// The largest file, in bytes, packed or not.
pub const MOST_BYTES: u64 = 32 << 20;

/// The reason why the file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// The file is not in the memory of the camera.
    #[error("the description of the camera's registers is not in its memory: {0:?}")]
    Elsewhere(String),
    /// The address of the file makes no sense.
    #[error("{0:?} is no address of a file in the camera's memory")]
    Address(String),
    /// The archive is damaged.
    #[error("the archive with the camera's description cannot be unpacked: {0}")]
    Damaged(String),
}

/// The place of a file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address.
    pub address: u32,
    /// Bytes.
    pub bytes: u32,
}

impl Place {
    /// Reads the address of a file.
    pub fn parse(text: &str) -> Result<Self, ArchiveError> {
        let bad = || ArchiveError::Address(text.to_owned());
        let (scheme, rest) = text.split_once(':').ok_or_else(bad)?;
        if !scheme.eq_ignore_ascii_case("local") {
            return Err(ArchiveError::Elsewhere(text.to_owned()));
        }
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let mut parts = rest.split(';').skip(1).map(|part| {
            let digits = part.trim().trim_start_matches("0x").trim_start_matches("0X");
            u32::from_str_radix(digits, 16).ok()
        });
        let (address, bytes) = (parts.next().flatten(), parts.next().flatten());
        let (address, bytes) = address.zip(bytes).ok_or_else(bad)?;
        match u64::from(bytes) {
            1..=MOST_BYTES => Ok(Self { address, bytes }),
            _ => Err(bad()),
        }
    }
}

/// Bytes of a local file header.
const HEADER: usize = 30;

/// Unpacks a file, if it is packed.
pub fn unpack(bytes: Vec<u8>) -> Result<Vec<u8>, ArchiveError> {
    let Some(head) = bytes.strip_prefix(b"PK\x03\x04").and_then(|_| bytes.get(..HEADER)) else {
        return Ok(bytes);
    };
    let half = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let damaged = |why: &str| ArchiveError::Damaged(why.to_owned());
    let packed = bytes.get(HEADER + half(26) + half(28)..).ok_or_else(|| damaged("it is cut"))?;
    if half(6) & 1 != 0 {
        return Err(damaged("it is encrypted"));
    }
    let stored = u32::from_le_bytes([head[18], head[19], head[20], head[21]]) as usize;
    match half(8) {
        0 => packed.get(..stored).map(<[u8]>::to_vec).ok_or_else(|| damaged("it is cut")),
        8 => {
            let mut file = Vec::new();
            let mut inflated = DeflateDecoder::new(packed).take(MOST_BYTES + 1);
            inflated.read_to_end(&mut file).map_err(|error| damaged(&error.to_string()))?;
            match file.len() as u64 > MOST_BYTES {
                true => Err(damaged("the file is too large")),
                false => Ok(file),
            }
        }
        method => Err(ArchiveError::Damaged(format!("compression method {method} is not known"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::DeflateEncoder};

    use super::*;

    /// An archive with one file, as zip programs write it.
    fn archive(method: u16, packed: &[u8]) -> Vec<u8> {
        let mut bytes = b"PK\x03\x04\x14\0\0\0".to_vec();
        bytes.extend(method.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend((packed.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(5u16.to_le_bytes());
        bytes.extend(3u16.to_le_bytes());
        bytes.extend(b"a.xml...");
        bytes.extend(packed);
        bytes
    }

    #[test]
    fn files_are_unpacked_and_cut_archives_are_refused() {
        let text = b"<RegisterDescription/>".repeat(9);
        assert_eq!(unpack(text.clone()), Ok(text.clone()));
        assert_eq!(unpack(archive(0, &text)), Ok(text.clone()));
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&text).unwrap();
        let packed = archive(8, &encoder.finish().unwrap());
        assert_eq!(unpack(packed.clone()), Ok(text));
        for length in HEADER..packed.len() - 1 {
            assert!(unpack(packed[..length].to_vec()).is_err(), "{length}");
        }
        assert!(unpack(archive(99, b"x")).unwrap_err().to_string().contains("method 99"));
    }

    #[test]
    fn an_archive_that_unpacks_to_too_much_is_refused() {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let zeros = vec![0; 1 << 20];
        (0..33).for_each(|_| encoder.write_all(&zeros).unwrap());
        let error = unpack(archive(8, &encoder.finish().unwrap())).unwrap_err();
        assert_eq!(error, ArchiveError::Damaged("the file is too large".into()));
    }

    #[test]
    fn places_are_read_and_others_refused() {
        let place = Place { address: 0x8001_C400, bytes: 0x1A2B3 };
        for text in
            ["Local:name.zip;8001C400;1A2B3", "local:a.xml;0x8001C400;0x1a2b3?SchemaVersion=1.1.0"]
        {
            assert_eq!(Place::parse(text), Ok(place));
        }
        for text in ["", "Local:a", "Local:a;1", "Local:a;x;1", "Local:a;1;0", "Local:a;1;FFFFFFFF"]
        {
            assert_eq!(Place::parse(text), Err(ArchiveError::Address(text.into())), "{text}");
        }
        let elsewhere = "http://example.org/a.xml".to_owned();
        assert_eq!(Place::parse(&elsewhere), Err(ArchiveError::Elsewhere(elsewhere)));
    }
}
