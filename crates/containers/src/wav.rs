//! A WAV file, or an RF64 file if it is larger than 4 GiB. A JSON file beside it has the facts that the format has no
//! place for.
//!
//! ```text
//! RIFF size WAVE                     RF64 ffffffff WAVE
//! JUNK 28 bytes                      ds64 sizes of 64 bits
//! fmt  16 bytes                      fmt
//! fact samples                       fact ffffffff
//! data size, samples                 data ffffffff, samples
//! ```
//!
//! The header has 92 bytes in both forms, so that a file turns from one into the other in place. Each sync writes the
//! sizes, so the file of a recorder that was killed is valid up to the last sync. The parts of complex samples are two
//! channels, as receivers of software radio write them. Samples that are not there are NaN, or 0 of integers.
//!
//! Source: EBU Tech 3306 (RF64), and Microsoft's RIFF forms of `WAVE`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_formats::samples::decode::DoesNotFit;
use fullbore_formats::samples::{Code, Encoding, SampleLayout};

use crate::beside::Beside;
use crate::fill::Fill;
use crate::{Ending, Finished, Opening, Recoder, SampleGaps, SampleType, SampleWriter};

/// Bytes of the header.
const HEADER_BYTES: u64 = 92;

/// A size that another chunk has with 64 bits.
const ELSEWHERE: u32 = u32::MAX;

/// Bytes that are collected before each write.
const BUFFER_BYTES: usize = 1 << 20;

/// Samples per second in the header if they are not known: 0 is no rate.
const UNKNOWN_RATE: u32 = 1;

/// A file that is being written.
pub struct WavWriter {
    path: PathBuf,
    beside: Beside,
    format: [u8; 16],
    file: BufWriter<File>,
    sample_bytes: u64,
    bytes: u64,
    /// The bytes of samples that the header states.
    synced: u64,
    gaps: SampleGaps,
    fill: Fill,
}

/// The encoding of values in a WAV file. Integers that it has not, and packed ones, become wider.
pub fn encoding(from: Encoding, wanted: Option<SampleType>) -> Result<Encoding, DoesNotFit> {
    let has = matches!(
        from.code,
        Code::Unsigned { bytes: 1, .. }
            | Code::Signed { bytes: 2 | 4, big_endian: false }
            | Code::Float { big_endian: false, .. }
    );
    match wanted {
        Some(SampleType::I8) => {
            Err(DoesNotFit { encoding: from, output: "a WAV file as i8: it has no such values" })
        }
        Some(wanted) => Recoder::encoding(from, wanted),
        None if has => Ok(from),
        None => [SampleType::I16, SampleType::I32]
            .into_iter()
            .find_map(|wanted| Recoder::encoding(from, wanted).ok())
            .map_or_else(|| Recoder::encoding(from, SampleType::F32), Ok),
    }
}

/// The content of the `fmt ` chunk.
fn format(layout: &SampleLayout) -> io::Result<[u8; 16]> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let code = layout.encoding.code;
    let tag: u16 = if matches!(code, Code::Float { .. }) { 3 } else { 1 };
    let bits = code.bits() as u16;
    let channels = layout.channels.checked_mul(layout.encoding.parts());
    let channels = channels.and_then(|channels| u16::try_from(channels).ok());
    let channels = channels.ok_or_else(|| bad("a WAV file has at most 65535 channels"))?;
    let align = u16::try_from(u32::from(channels) * u32::from(bits / 8));
    let align = align.map_err(|_| bad("a sample of all channels has more than 65535 bytes"))?;
    let rate = layout.sample_rate.map(|rate| rate.hertz().round());
    let rate = rate.filter(|rate| (1.0..=f64::from(u32::MAX)).contains(rate));
    let rate = rate.map_or(UNKNOWN_RATE, |rate| rate as u32);
    let bytes_per_second = rate.saturating_mul(align.into());
    let mut format = [0; 16];
    format[..2].copy_from_slice(&tag.to_le_bytes());
    format[2..4].copy_from_slice(&channels.to_le_bytes());
    format[4..8].copy_from_slice(&rate.to_le_bytes());
    format[8..12].copy_from_slice(&bytes_per_second.to_le_bytes());
    format[12..14].copy_from_slice(&align.to_le_bytes());
    format[14..].copy_from_slice(&bits.to_le_bytes());
    Ok(format)
}

/// The header of a file with so many bytes of samples.
fn header(format: &[u8; 16], sample_bytes: u64, bytes: u64) -> Vec<u8> {
    let samples = bytes / sample_bytes;
    let riff = bytes.next_multiple_of(2) + HEADER_BYTES - 8;
    let is_short = u32::try_from(riff).is_ok_and(|riff| riff < ELSEWHERE);
    let size = |size: u64| if is_short { size as u32 } else { ELSEWHERE };
    let mut header = Vec::with_capacity(HEADER_BYTES as usize);
    let mut chunk = |name: &[u8; 4], size: u32, content: &[u8]| {
        header.extend(name);
        header.extend(size.to_le_bytes());
        header.extend(content);
    };
    chunk(if is_short { b"RIFF" } else { b"RF64" }, size(riff), b"WAVE");
    if is_short {
        chunk(b"JUNK", 28, &[0; 28]);
    } else {
        let mut sizes = [riff, bytes, samples].map(u64::to_le_bytes).concat();
        sizes.extend([0; 4]);
        chunk(b"ds64", 28, &sizes);
    }
    chunk(b"fmt ", 16, format);
    chunk(b"fact", 4, &u32::try_from(samples).unwrap_or(ELSEWHERE).to_le_bytes());
    chunk(b"data", size(bytes), &[]);
    header
}

impl WavWriter {
    /// Creates the file, which must not exist.
    pub fn create(path: &Path, opening: &Opening<'_>) -> io::Result<Self> {
        let format = format(opening.layout)?;
        let sample_bytes = opening.layout.sample_bits() / 8;
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, File::create_new(path)?);
        file.write_all(&header(&format, sample_bytes, 0))?;
        file.flush()?;
        Ok(Self {
            path: path.to_owned(),
            beside: Beside::new(opening),
            format,
            file,
            sample_bytes,
            bytes: 0,
            synced: 0,
            gaps: SampleGaps::default(),
            fill: Fill::new(opening.layout.encoding),
        })
    }
}

impl SampleWriter for WavWriter {
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
        let header = header(&self.format, self.sample_bytes, self.bytes);
        self.file.get_ref().write_all_at(&header, 0)?;
        self.file.get_ref().sync_data()?;
        self.synced = self.bytes;
        Ok(())
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<Finished> {
        // A chunk of an odd number of bytes has one more.
        let pad = self.bytes % 2;
        self.file.write_all(&[0][..pad as usize])?;
        self.sync()?;
        self.file.get_ref().sync_all()?;
        let beside = self.beside.write(&self.path, self.samples(), &self.gaps, ending)?;
        Ok(Finished { samples: self.samples(), bytes: HEADER_BYTES + self.bytes + pad + beside })
    }

    fn abandon(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<()> {
        let samples = self.synced / self.sample_bytes;
        self.gaps.cut(samples);
        let file = self.file.get_ref();
        file.set_len(HEADER_BYTES + self.synced)?;
        file.set_len(HEADER_BYTES + self.synced.next_multiple_of(2))?;
        // A sync that failed may have written a header that counts more.
        file.write_all_at(&header(&self.format, self.sample_bytes, self.synced), 0)?;
        self.beside.write(&self.path, samples, &self.gaps, ending)?;
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
    use crate::read::wav;

    fn layout(encoding: &str, channels: u32, rate: &str) -> SampleLayout {
        let layout = SampleLayout::new(encoding.parse().unwrap(), channels);
        SampleLayout { sample_rate: Some(rate.parse().unwrap()), ..layout }
    }

    fn create(path: &Path, layout: &SampleLayout) -> io::Result<Box<WavWriter>> {
        let origin = Origin::default();
        let opening = Opening { scan: "s_a", stream: "x", layout, start: None, origin };
        WavWriter::create(path, &opening).map(Box::new)
    }

    #[test]
    fn a_synced_file_is_valid_and_a_finished_one_has_an_even_length() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.wav");
        let mut file = create(&path, &layout("ru8", 1, "8000")).unwrap();
        file.append(&[1, 2, 3]).unwrap();
        file.sync().unwrap();
        file.append_absent(1).unwrap();
        file.append(&[5]).unwrap();
        let synced = wav::open(&path).unwrap();
        assert_eq!((synced.skip, synced.bytes), (HEADER_BYTES, 3));
        assert_eq!(file.finish(&Ending::default()).unwrap().samples, 5);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[HEADER_BYTES as usize..], [1, 2, 3, 0, 5, 0]);
        assert_eq!(bytes[4..8], (bytes.len() as u32 - 8).to_le_bytes());
        let read = wav::open(&path).unwrap();
        assert_eq!((read.bytes, read.notes.len()), (5, 0));
        assert_eq!(read.layout, layout("ru8", 1, "8000"));
        let beside = std::fs::read_to_string(description_of(&path)).unwrap();
        assert!(beside.contains("\"count\": 1"), "{beside}");
        assert!(create(&path, &layout("ru8", 1, "8000")).is_err());
    }

    #[test]
    fn an_abandoned_file_ends_with_the_last_sync() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.wav");
        let mut file = create(&path, &layout("ri16_le", 2, "1000")).unwrap();
        file.append(&[1; 8]).unwrap();
        file.sync().unwrap();
        file.append(&[2; 2 * BUFFER_BYTES]).unwrap();
        file.abandon(&Ending { lacks: Some("full"), ..Ending::default() }).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[HEADER_BYTES as usize..], [1; 8]);
        assert_eq!(wav::open(&path).unwrap().bytes, 8);
    }

    #[test]
    fn an_abandoned_file_of_odd_length_has_the_sizes_of_its_header() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.wav");
        let mut file = create(&path, &layout("ru8", 1, "8000")).unwrap();
        file.append(&[1, 2, 3]).unwrap();
        file.sync().unwrap();
        // The next sync fails behind its header.
        file.append(&[4; 8]).unwrap();
        file.file.flush().unwrap();
        let later = header(&file.format, 1, 11);
        file.file.get_ref().write_all_at(&later, 0).unwrap();
        file.abandon(&Ending::default()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[HEADER_BYTES as usize..], [1, 2, 3, 0]);
        assert_eq!(bytes[4..8], (bytes.len() as u32 - 8).to_le_bytes());
        let read = wav::open(&path).unwrap();
        assert_eq!((read.bytes, read.notes.len()), (3, 0));
    }

    #[test]
    fn a_header_turns_into_one_of_rf64_at_4_gib() {
        let format = format(&layout("ri16_le", 2, "64000000")).unwrap();
        let limit = u64::from(u32::MAX) - (HEADER_BYTES - 8);
        let largest = header(&format, 4, limit / 4 * 4 - 4);
        assert!(largest.starts_with(b"RIFF") && largest.len() as u64 == HEADER_BYTES);
        let larger = header(&format, 4, 6 << 30);
        assert!(larger.starts_with(b"RF64\xFF\xFF\xFF\xFFWAVEds64") && larger.len() == 92);
        assert_eq!(larger[28..36], (6_u64 << 30).to_le_bytes());
        assert_eq!(larger[36..44], (6_u64 << 28).to_le_bytes());
        assert!(larger.ends_with(b"data\xFF\xFF\xFF\xFF"));
    }

    #[test]
    fn values_that_a_wav_file_has_not_become_wider() {
        let to = |from: &str, wanted| {
            encoding(from.parse().unwrap(), wanted).map(|encoding| encoding.to_string())
        };
        for (from, into) in [
            ("ru8", "ru8"),
            ("ci16_le", "ci16_le"),
            ("rf64_le", "rf64_le"),
            ("ri8", "ri16_le"),
            ("ro2", "ri16_le"),
            ("ci16_be", "ci16_le"),
            ("ri32_be", "ri32_le"),
            ("rf32_be", "rf32_le"),
        ] {
            assert_eq!(to(from, None).as_deref(), Ok(into), "{from}");
        }
        assert_eq!(to("ri16_le", Some(SampleType::F32)).as_deref(), Ok("rf32_le"));
        assert!(to("ri8", Some(SampleType::I8)).is_err());
    }

    #[test]
    fn a_layout_that_a_header_has_no_place_for_is_refused() {
        assert!(format(&layout("ri16_le", 40_000, "1000")).is_err());
        assert!(format(&layout("ci16_le", 40_000, "1000")).is_err());
        let fraction = format(&layout("ci16_le", 2, "200/3")).unwrap();
        assert_eq!(fraction[2..8], [4, 0, 67, 0, 0, 0]);
    }
}
