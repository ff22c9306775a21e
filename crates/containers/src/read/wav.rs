//! The chunks of a WAV, RF64 or BW64 file.
//!
//! ```text
//! RIFF size WAVE   fmt  …   data size samples          sizes of 32 bits
//! RF64 ffffffff WAVE   ds64 …   fmt  …   data ffffffff samples     sizes in ds64
//! ```
//!
//! The sizes of a file whose writer died may be 0, or the largest number: then all bytes up to the end are samples.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fullbore_formats::samples::{Code, Encoding, MOST_CHANNELS, SampleLayout, SampleRate};

use super::{ReadError, SampleFile, SampleRun, content};

/// The most chunks before the samples.
const MOST_CHUNKS: usize = 1000;

/// Bytes of a chunk that are read.
const MOST_BYTES: usize = 64;

/// A size that `ds64` has with 64 bits, or that was never written.
const ELSEWHERE: u32 = u32::MAX;

/// Bytes of a file at an offset; fewer at its end.
pub trait ReadAt {
    /// Reads into a buffer. Returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match FileExt::read_at(self, &mut buffer[read..], offset + read as u64)? {
                0 => break,
                more => read += more,
            }
        }
        Ok(read)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let read = buffer.len().min(self.len() - from);
        buffer[..read].copy_from_slice(&self[from..from + read]);
        Ok(read)
    }
}

/// The samples of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Bytes before them.
    pub skip: u64,
    /// Bytes of whole samples.
    pub bytes: u64,
    /// The samples.
    pub layout: SampleLayout,
    /// What is to be told.
    pub notes: Vec<String>,
}

/// Opens a file.
pub fn open(path: &Path) -> Result<SampleFile, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let found = parse(&file, length).map_err(failed)?.map_err(|why| content(path, why))?;
    Ok(SampleFile {
        path: path.to_owned(),
        skip: found.skip,
        bytes: found.bytes,
        layout: found.layout,
        runs: vec![SampleRun { in_file: 0, in_stream: 0, time: None }],
        notes: found.notes,
    })
}

/// Finds the samples of a file of `length` bytes. The inner error says why it has none.
pub fn parse(file: &impl ReadAt, length: u64) -> io::Result<Result<Found, String>> {
    let mut head = [0; 12];
    let read = file.read_at(&mut head, 0)?;
    let is_known = [b"RIFF", b"RF64", b"BW64"].iter().any(|name| head.starts_with(*name));
    if read < head.len() || !is_known || &head[8..] != b"WAVE" {
        return Ok(Err("it is no WAV, RF64 or BW64 file".into()));
    }
    let (mut at, mut layout, mut long_size) = (12_u64, None, None);
    for _ in 0..MOST_CHUNKS {
        let mut chunk = [0; 8];
        if file.read_at(&mut chunk, at)? < chunk.len() {
            break;
        }
        let size = u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]);
        let mut bytes = [0; MOST_BYTES];
        let wanted = MOST_BYTES.min(size as usize);
        let read = file.read_at(&mut bytes[..wanted], at + 8)?;
        let bytes = &bytes[..read];
        match &chunk[..4] {
            b"ds64" => long_size = bytes.get(8..16).map(number),
            b"fmt " => match format(bytes) {
                Ok(read) => layout = Some(read),
                Err(why) => return Ok(Err(why)),
            },
            b"data" => {
                let Some(layout) = layout else {
                    return Ok(Err("its samples come before their format".into()));
                };
                return Ok(Ok(samples(at + 8, length, size, long_size, layout)));
            }
            _ => {}
        }
        at = at.saturating_add(8 + u64::from(size).next_multiple_of(2));
    }
    Ok(Err("it has no samples".into()))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The samples from `skip` on.
fn samples(
    skip: u64,
    length: u64,
    size: u32,
    long_size: Option<u64>,
    layout: SampleLayout,
) -> Found {
    let there = length.saturating_sub(skip);
    let stated = if size == ELSEWHERE { long_size } else { Some(u64::from(size)) };
    let mut notes = Vec::new();
    let bytes = match stated.filter(|stated| *stated > 0) {
        Some(stated) if stated > there => {
            notes.push(format!("it states {stated} bytes of samples and has {there}: it is cut"));
            there
        }
        Some(stated) => {
            if there - stated > u64::from(u32::MAX) {
                notes.push(format!(
                    "it states {stated} bytes of samples and has {there}: perhaps its program cannot write larger sizes. \
                     The others are left out"
                ));
            }
            stated
        }
        None if there == 0 => 0,
        None => {
            notes.push("it does not state its size: all bytes up to its end are taken".to_owned());
            there
        }
    };
    let sample_bytes = layout.sample_bits() / 8;
    Found { skip, bytes: bytes / sample_bytes * sample_bytes, layout, notes }
}

/// Reads the content of the `fmt ` chunk.
fn format(bytes: &[u8]) -> Result<SampleLayout, String> {
    let half = |at: usize| bytes.get(at..at + 2).map(|half| number(half) as u16);
    let rate = bytes.get(4..8).map(number);
    let read = || Some((half(0)?, half(2)?, rate?, half(12)?, half(14)?));
    let (tag, channels, rate, align, bits) = read().ok_or("its format is cut")?;
    // The extensible form has the tag at the start of a GUID.
    let tag = if tag == 0xFFFE { half(24).ok_or("its format is cut")? } else { tag };
    let code = match (tag, bits) {
        (1, 8) => Code::Unsigned { bytes: 1, big_endian: false },
        (1, 16 | 32) => Code::Signed { bytes: (bits / 8) as u8, big_endian: false },
        (3, 32 | 64) => Code::Float { bytes: (bits / 8) as u8, big_endian: false },
        (1 | 3, bits) => return Err(format!("values of {bits} bits are not supported")),
        (tag, _) => {
            return Err(format!(
                "samples that are compressed (format {tag:#06x}) are not supported"
            ));
        }
    };
    if !(1..=MOST_CHANNELS).contains(&u32::from(channels)) {
        return Err(format!("it has not 1 to {MOST_CHANNELS} channels"));
    }
    if u32::from(align) != u32::from(channels) * u32::from(bits / 8) {
        return Err("its samples have bytes between them".into());
    }
    let layout = SampleLayout::new(Encoding { complex: false, code }, channels.into());
    Ok(SampleLayout { sample_rate: SampleRate::new(rate, 1), ..layout })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let mut bytes = [&name[..], &(content.len() as u32).to_le_bytes(), content].concat();
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        bytes
    }

    fn format_of(tag: u16, channels: u16, rate: u32, bits: u16) -> Vec<u8> {
        let align = channels * (bits / 8);
        let halves =
            |values: &[u16]| values.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
        [halves(&[tag, channels]), rate.to_le_bytes().to_vec(), vec![0; 4], halves(&[align, bits])]
            .concat()
    }

    fn file(riff: &[u8; 4], chunks: &[Vec<u8>]) -> Vec<u8> {
        [&riff[..], &[0; 4], b"WAVE", &chunks.concat()].concat()
    }

    fn found(bytes: &[u8], length: u64) -> Result<Found, String> {
        parse(&bytes, length).unwrap()
    }

    #[test]
    fn samples_are_found_behind_other_chunks() {
        let format = format_of(1, 2, 48_000, 16);
        let bytes = file(
            b"RIFF",
            &[chunk(b"LIST", b"abc"), chunk(b"fmt ", &format), chunk(b"data", &[7; 10])],
        );
        let read = found(&bytes, bytes.len() as u64).unwrap();
        assert_eq!((read.skip, read.bytes), (12 + 12 + 24 + 8, 8));
        assert_eq!(
            read.layout.to_string(),
            SampleLayout {
                sample_rate: SampleRate::new(48_000, 1),
                ..SampleLayout::new("ri16_le".parse().unwrap(), 2)
            }
            .to_string()
        );
        let cut = found(&bytes, bytes.len() as u64 - 5).unwrap();
        assert!(cut.bytes == 4 && cut.notes[0].contains("it is cut"), "{cut:?}");
        for length in 0..56 {
            assert!(found(&bytes[..length], length as u64).is_err(), "{length}");
        }
    }

    #[test]
    fn sizes_of_64_bits_are_those_of_ds64() {
        let sizes = [0, 9_000_000_000, 0].map(u64::to_le_bytes).concat();
        for riff in [b"RF64", b"BW64"] {
            let mut bytes =
                file(riff, &[chunk(b"ds64", &sizes), chunk(b"fmt ", &format_of(3, 1, 10, 32))]);
            bytes.extend(b"data\xFF\xFF\xFF\xFF");
            let read = found(&bytes, 9_500_000_000).unwrap();
            assert_eq!((read.bytes, read.notes.len()), (9_000_000_000, 0));
        }
    }

    #[test]
    fn a_size_that_has_lost_its_higher_bits_is_told_of() {
        let mut bytes = file(b"RIFF", &[chunk(b"fmt ", &format_of(1, 1, 10, 8))]);
        bytes.extend(b"data\x10\0\0\0");
        let found = |samples: u64| found(&bytes, bytes.len() as u64 + samples).unwrap();
        let wrapped = found((1 << 32) + 16);
        assert!(wrapped.bytes == 16 && wrapped.notes[0].contains("left out"), "{wrapped:?}");
        assert_eq!(found(1 << 20).notes.len(), 0, "other chunks may follow");
    }

    #[test]
    fn a_file_whose_size_was_never_written_goes_to_its_end() {
        let mut bytes = file(b"RIFF", &[chunk(b"fmt ", &format_of(1, 1, 10, 8))]);
        bytes.extend(b"data\0\0\0\0abc");
        let read = found(&bytes, bytes.len() as u64).unwrap();
        assert!(read.bytes == 3 && read.notes[0].contains("does not state"), "{read:?}");
    }

    #[test]
    fn files_that_cannot_be_recorded_are_refused_with_the_reason() {
        let data = chunk(b"data", &[0; 8]);
        for (chunks, why) in [
            (vec![data.clone()], "before their format"),
            (vec![chunk(b"fmt ", &format_of(1, 1, 1, 16))], "no samples"),
            (vec![chunk(b"fmt ", &format_of(1, 1, 1, 24)), data.clone()], "24 bits"),
            (vec![chunk(b"fmt ", &format_of(0x11, 1, 1, 16)), data.clone()], "compressed"),
            (vec![chunk(b"fmt ", &format_of(1, 0, 1, 16)), data.clone()], "channels"),
            (vec![chunk(b"fmt ", &[0; 9]), data.clone()], "format is cut"),
        ] {
            let bytes = file(b"RIFF", &chunks);
            let error = found(&bytes, bytes.len() as u64).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(found(b"RIFFxxxxAVI LIST", 16).is_err());
    }
}
