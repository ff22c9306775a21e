//! The samples in a block: payloads without headers, and the samples that are not there.

use std::ops::Range;

use fullbore_core::manifest::Format;
use fullbore_formats::framed::FrameKind;
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::vdif::Header;

use crate::{SampleError, SampleOptions};

/// What a stream is, as far as its samples depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Framing<'a> {
    /// The format of its frames.
    pub format: &'a Format,
    /// Bytes of each frame: 1 if it has bytes without frames, 0 if lengths vary.
    pub frame_bytes: u32,
    /// True if frames are stored by their index, with fill for absent ones.
    pub has_places: bool,
    /// The samples, as its endpoint describes them.
    pub samples: Option<&'a SampleLayout>,
}

/// A block of a stream.
pub struct SampleBlock<'a> {
    /// The index of its first frame.
    pub first: i64,
    /// Its frames, fill included.
    pub bytes: &'a [u8],
    /// True for the index of a frame that is fill.
    pub is_fill: &'a dyn Fn(i64) -> bool,
}

/// A part of a stream of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Whole samples in these bytes of the block.
    Here(Range<usize>),
    /// A sample that began in the block before.
    Carried(Vec<u8>),
    /// Samples that are not there.
    Absent(u64),
}

/// Takes payloads out of the blocks of a stream.
pub struct Payloads {
    /// The samples.
    pub layout: SampleLayout,
    /// The header of the first VDIF frame, which the others resemble.
    header: Option<Header>,
    kind: Option<FrameKind>,
    /// Bytes of each frame; 0 for bytes without frames.
    frame_bytes: usize,
    has_places: bool,
    /// The index of the next frame, once there was one.
    next: Option<i64>,
    /// The start of a sample in a stream of bytes.
    carried: Vec<u8>,
}

fn refused(why: impl Into<String>) -> SampleError {
    SampleError::Payload { why: why.into() }
}

impl Framing<'_> {
    /// Refuses a stream whose samples cannot be written, as far as is known before its first frame.
    pub fn check(&self, options: &SampleOptions) -> Result<(), SampleError> {
        self.check_format()?;
        if let Some(samples) = self.samples {
            options.format.encoding(samples.encoding, options.values)?;
        }
        Ok(())
    }

    fn check_format(&self) -> Result<(), SampleError> {
        match (self.format, self.samples) {
            (Format::Panda { .. }, _) => {
                Err(refused("samples of a PandA are columns, which HDF5 files have"))
            }
            (Format::Vita49, _) => Err(refused(
                "its packets have headers and trailers of their own; `cat` writes them whole",
            )),
            (Format::Frames { kind: FrameKind::Vdif, .. }, _) => Ok(()),
            (Format::Frames { .. } | Format::Raw, None) => {
                Err(refused("its endpoint did not describe its samples"))
            }
            (Format::Frames { .. } | Format::Raw, Some(_)) => Ok(()),
        }
    }

    fn kind(&self) -> Option<FrameKind> {
        match self.format {
            Format::Frames { kind, .. } => Some(*kind),
            Format::Panda { .. } | Format::Vita49 | Format::Raw => None,
        }
    }

    /// True if it has bytes without frames.
    fn is_of_bytes(&self) -> bool {
        self.frame_bytes == 1 && *self.format == Format::Raw
    }

    /// The layout that the header of a VDIF frame states.
    fn layout_of(&self, header: &Header) -> Result<SampleLayout, SampleError> {
        let rate = match self.format {
            Format::Frames { frames_per_second, .. } => *frames_per_second,
            Format::Panda { .. } | Format::Vita49 | Format::Raw => None,
        };
        SampleLayout::of_vdif(header, rate).ok_or_else(|| {
            let bits = header.bits_per_sample();
            refused(format!("its frames hold no whole samples of {bits} bits that can be decoded"))
        })
    }
}

impl Payloads {
    /// Finds out what the samples of a stream are, from its description or the first frame of its first block.
    pub fn of(stream: &Framing<'_>, block: &SampleBlock<'_>) -> Result<Self, SampleError> {
        stream.check_format()?;
        if stream.frame_bytes == 0 {
            return Err(refused("its frames vary in length"));
        }
        let kind = stream.kind();
        let frame_bytes = stream.frame_bytes as usize;
        let is_fill = |index| stream.has_places && (block.is_fill)(index);
        let mut frames = block.bytes.chunks_exact(frame_bytes).zip(block.first..);
        let first = frames.find(|(_, index)| !is_fill(*index)).map_or(block.bytes, |it| it.0);
        let header = match kind {
            Some(FrameKind::Vdif) => {
                Some(Header::read(first).map_err(|error| refused(error.to_string()))?)
            }
            _ => None,
        };
        let layout = match (&header, stream.samples) {
            (Some(header), _) => stream.layout_of(header)?,
            (None, described) => described.expect("it was checked").clone(),
        };
        Ok(Self {
            layout,
            header,
            kind,
            frame_bytes: if stream.is_of_bytes() { 0 } else { frame_bytes },
            has_places: stream.has_places,
            next: None,
            carried: Vec::new(),
        })
    }

    /// Lists the parts of a block. The first one begins the samples; frames between two blocks are not there.
    pub fn read(
        &mut self,
        block: &SampleBlock<'_>,
        parts: &mut Vec<Part>,
    ) -> Result<(), SampleError> {
        if self.frame_bytes == 0 {
            self.read_bytes(block.bytes, parts);
            return Ok(());
        }
        let start = block.bytes.as_ptr().addr();
        for (frame, index) in block.bytes.chunks_exact(self.frame_bytes).zip(block.first..) {
            let is_fill = self.has_places && (block.is_fill)(index);
            let (payload, is_valid) = self.payload(frame, is_fill)?;
            let samples = self.layout.samples_in(payload.len() as u64).ok_or_else(|| {
                let (bytes, layout) = (payload.len(), &self.layout);
                refused(format!("{bytes} bytes of a frame are no whole samples of {layout}"))
            })?;
            let expected = self.next.replace(index.saturating_add(1)).filter(|_| self.has_places);
            let before = expected.and_then(|next| u64::try_from(index.saturating_sub(next)).ok());
            if let Some(before) = before.filter(|&frames| frames > 0) {
                parts.push(Part::Absent(before.saturating_mul(samples)));
            }
            let begin = payload.as_ptr().addr() - start;
            parts.push(match is_valid {
                true => Part::Here(begin..begin + payload.len()),
                false => Part::Absent(samples),
            });
        }
        Ok(())
    }

    /// The payload of a frame, and whether it is valid.
    fn payload<'a>(
        &self,
        frame: &'a [u8],
        is_fill: bool,
    ) -> Result<(&'a [u8], bool), SampleError> {
        let Some(first) = &self.header else {
            let header_bytes = self.kind.map_or(0, |kind| kind.usual_header_bytes() as usize);
            return Ok((frame.get(header_bytes..).unwrap_or_default(), !is_fill));
        };
        if is_fill {
            return Ok((frame.get(first.header_bytes()..).unwrap_or_default(), false));
        }
        let header = Header::read(frame).map_err(|error| refused(error.to_string()))?;
        if header.thread() != first.thread() {
            return Err(refused("it has several threads, whose samples are not one array"));
        }
        let kind =
            |it: &Header| (it.bits_per_sample(), it.channels(), it.complex(), it.payload_bytes());
        if kind(&header) != kind(first) {
            return Err(refused("its frames differ in bits, channels or length"));
        }
        let payload = frame.get(header.header_bytes()..).unwrap_or_default();
        Ok((payload, !header.invalid()))
    }

    /// Lists the whole samples of a stream of bytes. The rest of the block is the start of the next one.
    fn read_bytes(&mut self, block: &[u8], parts: &mut Vec<Part>) {
        let bits = self.layout.sample_bits();
        // The fewest bytes that are whole samples: 3 for samples of 6 bits.
        let unit = (bits >> bits.trailing_zeros().min(3)) as usize;
        let mut begin = 0;
        if !self.carried.is_empty() {
            begin = (unit - self.carried.len()).min(block.len());
            self.carried.extend(&block[..begin]);
            if self.carried.len() < unit {
                return;
            }
            parts.push(Part::Carried(std::mem::take(&mut self.carried)));
        }
        let end = begin + (block.len() - begin) / unit * unit;
        parts.push(Part::Here(begin..end));
        self.carried.extend(&block[end..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(frame_bytes: u32, samples: &SampleLayout) -> Framing<'_> {
        Framing { format: &Format::Raw, frame_bytes, has_places: true, samples: Some(samples) }
    }

    /// The samples of the parts: those that are there as bytes, the others as `None`.
    fn listed(block: &[u8], parts: Vec<Part>) -> Vec<Option<Vec<u8>>> {
        let of = |part| match part {
            Part::Here(range) => vec![Some(block[range].to_vec())],
            Part::Carried(whole) => vec![Some(whole)],
            Part::Absent(count) => vec![None; count as usize],
        };
        parts.into_iter().flat_map(of).collect()
    }

    #[test]
    fn samples_that_cross_blocks_are_joined() {
        let layout = SampleLayout::new("ri16_le".parse().unwrap(), 3);
        let bytes: Vec<u8> = (0..60).collect();
        for size in 1..=bytes.len() {
            let block = |bytes| SampleBlock { first: 0, bytes, is_fill: &|_| false };
            let mut payloads = Payloads::of(&raw(1, &layout), &block(&bytes)).unwrap();
            let mut joined = Vec::new();
            for bytes in bytes.chunks(size) {
                let mut parts = Vec::new();
                payloads.read(&block(bytes), &mut parts).unwrap();
                joined.extend(listed(bytes, parts).into_iter().flatten().flatten());
                assert_eq!(joined.len() % 6, 0, "blocks of {size}");
            }
            assert_eq!(joined, bytes, "blocks of {size}");
        }
    }

    #[test]
    fn fill_and_frames_between_blocks_are_samples_that_are_not_there() {
        let layout = SampleLayout::new("ri16_le".parse().unwrap(), 1);
        let bytes: Vec<u8> = (0..12).collect();
        let block = |first| SampleBlock { first, bytes: &bytes, is_fill: &|index| index == 7 };
        let mut payloads = Payloads::of(&raw(4, &layout), &block(6)).unwrap();
        let mut read = |first| {
            let mut parts = Vec::new();
            payloads.read(&block(first), &mut parts).unwrap();
            listed(&bytes, parts)
        };
        let here = |range: Range<usize>| Some(bytes[range].to_vec());
        assert_eq!(read(6), [here(0..4), None, None, here(8..12)]);
        let gap = [None, None, None, None, here(0..4), here(4..8), here(8..12)];
        assert_eq!(read(11), gap, "two frames were in no block");
        assert_eq!(read(14), [here(0..4), here(4..8), here(8..12)]);
    }

    #[test]
    fn a_stream_without_samples_is_refused() {
        let block = SampleBlock { first: 0, bytes: &[0; 64], is_fill: &|_| false };
        let layout = SampleLayout::new("ri16_le".parse().unwrap(), 1);
        let vita49 = Framing { format: &Format::Vita49, ..raw(64, &layout) };
        let refused = |framing: &Framing<'_>| match Payloads::of(framing, &block) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{framing:?}"),
        };
        assert!(refused(&vita49).contains("trailers"));
        assert!(refused(&raw(0, &layout)).contains("vary in length"));
        let undescribed = Framing { samples: None, ..raw(64, &layout) };
        assert!(refused(&undescribed).contains("did not describe"));
    }
}
