//! A `.npy` file, version 1.0 of numpy's format: a header of 128 bytes, then the values. A JSON file beside it has the
//! facts that the format has no place for.
//!
//! The shape is (samples, channels). Complex floats are `c8`; complex integers get a third axis for their two parts.
//! Samples that are not there are NaN, or 0 of integers.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_formats::samples::{Code, Encoding, SampleLayout};

use crate::beside::Beside;
use crate::fill::Fill;
use crate::{Ending, Finished, Opening, SampleGaps, SampleWriter};

/// Bytes of the header, which has room for the largest shape.
const HEADER_BYTES: usize = 128;

/// Bytes that are collected before each write.
const BUFFER_BYTES: usize = 1 << 20;

/// A file that is being written. Until the first sync, it states that it has no samples.
pub struct NumpyWriter {
    path: PathBuf,
    beside: Beside,
    file: BufWriter<File>,
    sample_bytes: u64,
    bytes: u64,
    /// The samples that the header states.
    synced: u64,
    gaps: SampleGaps,
    fill: Fill,
}

/// The type of an array's elements in numpy's words, and the end of its shape.
fn element(encoding: Encoding) -> (String, &'static str) {
    let order = |big_endian| if big_endian { '>' } else { '<' };
    let (order, kind, bytes) = match encoding.code {
        Code::Signed { bytes, big_endian } => (order(big_endian), 'i', bytes),
        Code::Unsigned { bytes, big_endian } => (order(big_endian), 'u', bytes),
        Code::Float { bytes, big_endian } => (order(big_endian), 'f', bytes),
        Code::Offset { .. } | Code::SignMagnitude => unreachable!("codes are recoded"),
    };
    match (kind, encoding.complex) {
        ('f', true) => (format!("{order}c{}", 2 * bytes), ""),
        (_, complex) => {
            let order = if bytes == 1 { '|' } else { order };
            (format!("{order}{kind}{bytes}"), if complex { ", 2" } else { "" })
        }
    }
}

/// The header of a file with this many samples.
fn header(layout: &SampleLayout, samples: u64) -> Vec<u8> {
    let (element, parts) = element(layout.encoding);
    let channels = layout.channels;
    let dictionary = format!(
        "{{'descr': '{element}', 'fortran_order': False, 'shape': ({samples}, {channels}{parts}), }}"
    );
    let length = HEADER_BYTES - 10;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{dictionary:<0$}\n", length - 1).bytes());
    assert_eq!(header.len(), HEADER_BYTES, "the dictionary has less than 118 bytes");
    header
}

impl NumpyWriter {
    /// Creates the file, which must not exist.
    pub fn create(path: &Path, opening: &Opening<'_>) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, File::create_new(path)?);
        file.write_all(&header(opening.layout, 0))?;
        file.flush()?;
        Ok(Self {
            path: path.to_owned(),
            beside: Beside::new(opening),
            file,
            sample_bytes: opening.layout.sample_bits() / 8,
            bytes: 0,
            synced: 0,
            gaps: SampleGaps::default(),
            fill: Fill::new(opening.layout.encoding),
        })
    }
}

impl SampleWriter for NumpyWriter {
    fn append(&mut self, samples: &[u8]) -> io::Result<()> {
        self.bytes += samples.len() as u64;
        self.file.write_all(samples)
    }

    fn append_absent(&mut self, samples: u64) -> io::Result<()> {
        let first = self.samples();
        let bytes = samples.checked_mul(self.sample_bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "the gap has more bytes than a file")
        })?;
        self.gaps.add(first, samples);
        self.bytes += bytes;
        self.fill.write(&mut self.file, bytes)
    }

    fn samples(&self) -> u64 {
        self.bytes / self.sample_bytes
    }

    fn sync(&mut self) -> io::Result<()> {
        // Samples are durable before the header counts them.
        self.file.flush()?;
        self.file.get_ref().sync_data()?;
        let samples = self.samples();
        self.file.get_ref().write_all_at(&header(&self.beside.layout, samples), 0)?;
        self.file.get_ref().sync_data()?;
        self.synced = samples;
        Ok(())
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<Finished> {
        self.sync()?;
        self.file.get_ref().sync_all()?;
        let samples = self.samples();
        let beside = self.beside.write(&self.path, samples, &self.gaps, ending)?;
        Ok(Finished { samples, bytes: HEADER_BYTES as u64 + self.bytes + beside })
    }

    fn abandon(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<()> {
        self.bytes = self.synced * self.sample_bytes;
        self.gaps.cut(self.synced);
        self.file.get_ref().set_len(HEADER_BYTES as u64 + self.bytes)?;
        // A sync that failed may have written a header that counts more.
        self.file.get_ref().write_all_at(&header(&self.beside.layout, self.synced), 0)?;
        self.beside.write(&self.path, self.synced, &self.gaps, ending)?;
        // What could not be written is in the buffer, and must not follow.
        let (file, _) = self.file.into_parts();
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;
    use crate::beside::description_of;

    fn layout(encoding: &str, channels: u32) -> SampleLayout {
        SampleLayout::new(encoding.parse().unwrap(), channels)
    }

    fn create(path: &Path, layout: &SampleLayout) -> io::Result<NumpyWriter> {
        let origin = Origin::default();
        let opening = Opening { scan: "s_a", stream: "x", layout, start: None, origin };
        NumpyWriter::create(path, &opening)
    }

    #[test]
    fn the_header_of_the_largest_shape_has_128_bytes() {
        let largest = header(&layout("ci32_le", 65_536), u64::MAX);
        assert_eq!(largest.len(), 128);
        assert!(String::from_utf8_lossy(&largest).contains("(18446744073709551615, 65536, 2), }"));
        assert_eq!(largest.last(), Some(&b'\n'));
    }

    #[test]
    fn an_abandoned_file_has_the_samples_and_gaps_of_the_last_sync() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.npy");
        let layout = layout("ru8", 1);
        let mut file = Box::new(create(&path, &layout).unwrap());
        file.append(&[1, 2]).unwrap();
        file.append_absent(2).unwrap();
        file.sync().unwrap();
        file.append_absent(5).unwrap();
        file.append(&[3; 2 * BUFFER_BYTES]).unwrap();
        file.append(&[4]).unwrap();
        // The next sync fails behind its header.
        file.file.get_ref().write_all_at(&header(&layout, 9), 0).unwrap();
        file.abandon(&Ending { lacks: Some("the disk is full"), ..Ending::default() }).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes, [header(&layout, 4), vec![1, 2, 0, 0]].concat());
        let beside: serde_json::Value =
            serde_json::from_slice(&std::fs::read(description_of(&path)).unwrap()).unwrap();
        assert_eq!(beside["gaps"], serde_json::json!([{"first": 2, "count": 2}]));
        assert_eq!((&beside["samples"], &beside["lacks"]), (&4.into(), &"the disk is full".into()));
    }

    #[test]
    fn a_synced_file_has_the_samples_until_then_and_a_finished_one_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.npy");
        let layout = layout("rf32_le", 2);
        let mut file = Box::new(create(&path, &layout).unwrap());
        let row = [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat();
        file.append(&row).unwrap();
        file.sync().unwrap();
        assert!(std::fs::read(&path).unwrap().starts_with(&header(&layout, 1)));
        file.append_absent(3000).unwrap();
        file.append(&row).unwrap();
        let finished = file.finish(&Ending::default()).unwrap();
        assert_eq!(finished.samples, 3002);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 128 + 3002 * 8);
        assert!(bytes.starts_with(&header(&layout, 3002)));
        assert_eq!(bytes[128..136], row);
        assert!(f32::from_le_bytes(bytes[136..140].try_into().unwrap()).is_nan());
        let beside = std::fs::read_to_string(description_of(&path)).unwrap();
        assert!(beside.contains("\"count\": 3000"), "{beside}");
        assert!(create(&path, &layout).is_err());
    }
}
