//! Prepared payloads: a ring in memory from which frames are sent without copying.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fullbore_core::pattern::Pattern;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::vdif::Header;
use serde::Serialize;

/// The source of payloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadSource {
    /// A known pattern.
    Pattern(Pattern),
    /// The payloads of a file of frames in sequence, repeated.
    Sample(PathBuf),
    /// A weak background of this pattern, and a tone for some time: complex samples of 16 bits, big-endian.
    Burst(Pattern, Burst),
}

/// A tone at an eighth of the sample rate, in the frames from one on, counted from the first full second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Burst {
    /// The first frame.
    pub first: u64,
    /// The number of frames.
    pub frames: u64,
}

impl Burst {
    #[inline]
    fn has(&self, frame: u64) -> bool {
        frame.checked_sub(self.first).is_some_and(|since| since < self.frames)
    }
}

/// The bits by which the background of a burst is weaker than its pattern: 48 dB.
const WEAKER_BITS: u32 = 8;

/// The amplitude of the tone of a burst: 18 dB below full scale.
const TONE_AMPLITUDE: f64 = 4096.0;

/// A sample that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The file cannot be read.
    #[error("{}: reading the sample", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is too large for memory.
    #[error("{}: {bytes} bytes are more than the {LARGEST_SAMPLE} that a sample can have", path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// The file's size.
        bytes: u64,
    },
    /// The file contains no frames, or does not begin with one.
    #[error("{}: there is no frame at byte {offset}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The offset at which a frame was expected.
        offset: usize,
    },
}

/// The largest sample kept in memory.
const LARGEST_SAMPLE: u64 = 1 << 30;

/// The approximate size of a ring of patterns, which fits into the cache of the sending core.
const RING_BYTES: usize = 512 << 10;

/// Bytes after the last payload, so that any payload can be sent with extra bytes.
pub const SPARE_BYTES: usize = 64;

/// A ring of payloads.
#[derive(Debug)]
pub struct Payloads {
    bytes: Vec<u8>,
    /// Bytes of one payload.
    each: usize,
    count: usize,
    /// Frames with a tone, and a ring of their payloads.
    burst: Option<(Burst, Vec<u8>)>,
    /// The format of the sample, and its first header.
    template: Option<(FrameKind, Header)>,
}

impl Payloads {
    /// Consecutive pieces of a pattern from its start.
    pub fn of_pattern(pattern: &Pattern, each: usize) -> Self {
        let count = (RING_BYTES / each.max(1)).clamp(8, 4096);
        let mut bytes = vec![0; count * each + SPARE_BYTES];
        pattern.fill(&mut bytes, 0);
        Payloads { bytes, each, count, burst: None, template: None }
    }

    /// A weak background of a pattern, and a tone in the frames of a burst.
    pub fn of_burst(pattern: &Pattern, each: usize, burst: Burst) -> Self {
        let mut payloads = Self::of_pattern(pattern, each);
        let used = payloads.count * each;
        // The tone has whole periods in the ring, so that it goes on from its end to its start.
        let samples = (used / 4).max(1);
        let step = std::f64::consts::TAU * (samples / 8) as f64 / samples as f64;
        let mut loud = payloads.bytes.clone();
        let values = payloads.bytes.as_chunks_mut::<2>().0.iter_mut();
        for (number, (weak, loud)) in values.zip(loud.as_chunks_mut::<2>().0).enumerate() {
            let value = i16::from_be_bytes(*weak) >> WEAKER_BITS;
            let phase = step * (number / 2) as f64;
            let tone = TONE_AMPLITUDE * if number % 2 == 0 { phase.cos() } else { phase.sin() };
            *weak = value.to_be_bytes();
            *loud = (value + tone.round() as i16).to_be_bytes();
        }
        payloads.burst = Some((burst, loud));
        payloads
    }

    /// The payloads of a file of frames of one length. An incomplete last frame is ignored.
    pub fn of_sample(path: &Path) -> Result<Self, SampleError> {
        let error = |source| SampleError::Read { path: path.to_owned(), source };
        let mut file = std::fs::File::open(path).map_err(error)?;
        let bytes = file.metadata().map_err(error)?.len();
        if bytes > LARGEST_SAMPLE {
            return Err(SampleError::Large { path: path.to_owned(), bytes });
        }
        let mut content = Vec::with_capacity(bytes as usize);
        (&mut file).take(LARGEST_SAMPLE).read_to_end(&mut content).map_err(error)?;
        Self::of_frames(&content)
            .map_err(|offset| SampleError::Form { path: path.to_owned(), offset })
    }

    /// The payloads of consecutive frames. The error is the offset of the first invalid frame.
    fn of_frames(content: &[u8]) -> Result<Self, usize> {
        let kind = FrameKind::of_start(content).ok_or(0usize)?;
        let codec = FrameCodec::any_day(kind);
        let lengths =
            |header: &Header| (codec.frame_bytes(header) as usize, codec.header_bytes(header));
        let template = codec.read(content).ok_or(0usize)?;
        let (frame_bytes, header_bytes) = lengths(&template);
        if frame_bytes <= header_bytes || frame_bytes > content.len() {
            return Err(0);
        }
        let each = frame_bytes - header_bytes;
        let mut bytes = Vec::with_capacity(content.len());
        for (number, frame) in content.chunks_exact(frame_bytes).enumerate() {
            let same = codec
                .read(frame)
                .is_some_and(|header| lengths(&header) == (frame_bytes, header_bytes));
            if !same {
                return Err(number * frame_bytes);
            }
            bytes.extend_from_slice(&frame[header_bytes..]);
        }
        let count = bytes.len() / each;
        bytes.resize(bytes.len() + SPARE_BYTES, 0);
        Ok(Payloads { bytes, each, count, burst: None, template: Some((kind, template)) })
    }

    /// The format and the first header of the sample, if the source is a sample.
    pub fn template(&self) -> Option<(FrameKind, Header)> {
        self.template
    }

    /// Bytes of one payload.
    pub fn each(&self) -> usize {
        self.each
    }

    /// The number of different payloads.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The payload of a frame.
    #[inline]
    pub fn of(&self, frame: u64) -> &[u8] {
        self.cut(frame, self.each)
    }

    /// The same, shortened or extended by up to `SPARE_BYTES`.
    #[inline]
    pub fn cut(&self, frame: u64, length: usize) -> &[u8] {
        let start = (frame % self.count as u64) as usize * self.each;
        let ring = match &self.burst {
            Some((burst, loud)) if burst.has(frame) => loud,
            _ => &self.bytes,
        };
        &ring[start..start + length.min(self.each + SPARE_BYTES)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(frames: usize) -> Vec<u8> {
        let header = Header::default().with_frame_bytes(40);
        let frame = |n: usize| [header.as_bytes(), &[n as u8; 8]].concat();
        (0..frames).flat_map(frame).collect()
    }

    #[test]
    fn a_sample_gives_its_payloads_again_and_again() {
        let payloads = Payloads::of_frames(&sample(3)).unwrap();
        assert_eq!((payloads.each(), payloads.count()), (8, 3));
        assert_eq!(payloads.of(4), [1; 8]);
        assert_eq!(payloads.cut(5, 12).len(), 12);
        assert_eq!(payloads.template().unwrap().1.frame_bytes(), 40);
    }

    #[test]
    fn what_is_no_sample_is_told_with_the_place() {
        assert_eq!(Payloads::of_frames(&[]).err(), Some(0));
        assert_eq!(Payloads::of_frames(&[0; 100]).err(), Some(0));
        let mut broken = sample(3);
        broken[80..].fill(0xFF);
        assert_eq!(Payloads::of_frames(&broken).err(), Some(80));
        assert_eq!(Payloads::of_frames(&sample(3)[..110]).unwrap().count(), 2);
        let error = Payloads::of_sample(Path::new("/nowhere.vdif")).unwrap_err();
        assert!(error.to_string().contains("/nowhere.vdif"));
    }

    #[test]
    fn a_burst_has_a_tone_over_the_weak_background() {
        let pattern: Pattern = "prbs31".parse().unwrap();
        let payloads = Payloads::of_burst(&pattern, 1000, Burst { first: 5, frames: 2 });
        let power = |frame: u64| {
            let values = payloads.of(frame).as_chunks::<2>().0.iter();
            let squares = values.map(|it| f64::from(i16::from_be_bytes(*it)).powi(2));
            2.0 * squares.sum::<f64>() / 500.0
        };
        for frame in [0, 4, 7, 600] {
            assert!((5000.0..20_000.0).contains(&power(frame)), "{frame}: {}", power(frame));
        }
        for frame in [5, 6] {
            let ratio = power(frame) / TONE_AMPLITUDE.powi(2);
            assert!((0.99..1.01).contains(&ratio), "{frame}: {ratio}");
        }
        // An eighth of the sample rate: eight samples later, the phase is nearly the same.
        let real = |sample: usize| {
            let bytes = payloads.of(5)[4 * sample..].first_chunk().unwrap();
            f64::from(i16::from_be_bytes(*bytes))
        };
        for sample in 0..100 {
            assert!((real(sample) - real(sample + 8)).abs() < 300.0, "{sample}");
        }
    }

    #[test]
    fn a_pattern_goes_on_from_payload_to_payload() {
        let pattern: Pattern = "counter".parse().unwrap();
        let payloads = Payloads::of_pattern(&pattern, 8000);
        assert_eq!(payloads.of(0)[..8], [0; 8]);
        assert_eq!(payloads.of(1)[..8], 1000u64.to_le_bytes());
        assert_eq!(payloads.of(payloads.count() as u64), payloads.of(0));
    }
}
