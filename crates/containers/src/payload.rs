//! The samples in a block: payloads without headers, and the samples that are not there.

use std::ops::Range;

use fullbore_core::manifest::Format;
use fullbore_formats::framed::FrameKind;
use fullbore_formats::packets::PacketKind;
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::vdif::Header;
use fullbore_formats::vita49::listing::ListedChange;
use fullbore_time::Tai;

use crate::packets::PacketPayloads;
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
    /// What context packets say of its samples, if it has packets.
    pub context: &'a [ListedChange],
    /// The index of its first frame, if that is known and frames have places. Samples begin there, even if a later frame
    /// is the first in a block.
    pub first: Option<i64>,
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
    /// The index of the first frame, and of the next.
    first: i64,
    next: i64,
    /// Samples of each frame, once there was one.
    frame_samples: u64,
    /// The start of a sample in a stream of bytes.
    carried: Vec<u8>,
    /// The packets, if it has packets instead of frames.
    packets: Option<Box<PacketPayloads>>,
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
            (Format::Packets { kind: PacketKind::Vita49 }, _) => Ok(()),
            (Format::Packets { kind }, _) => Err(refused(format!(
                "the samples in packets of {} are not decoded; `cat` writes the packets whole",
                kind.title()
            ))),
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
            Format::Panda { .. } | Format::Packets { .. } | Format::Raw => None,
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
            Format::Panda { .. } | Format::Packets { .. } | Format::Raw => None,
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
        if let Format::Packets { .. } = stream.format {
            return Self::of_packets(stream, block);
        }
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
        let first = stream.first.map_or(block.first, |first| first.min(block.first));
        Ok(Self {
            layout,
            header,
            kind,
            frame_bytes: if stream.is_of_bytes() { 0 } else { frame_bytes },
            has_places: stream.has_places && !stream.is_of_bytes(),
            first,
            next: first,
            frame_samples: 0,
            carried: Vec::new(),
            packets: None,
        })
    }

    fn of_packets(stream: &Framing<'_>, block: &SampleBlock<'_>) -> Result<Self, SampleError> {
        let packets = PacketPayloads::of(stream.samples, stream.context, block.bytes)?;
        Ok(Self {
            layout: packets.layout().clone(),
            header: None,
            kind: None,
            frame_bytes: 0,
            has_places: false,
            first: block.first,
            next: block.first,
            frame_samples: 0,
            carried: Vec::new(),
            packets: Some(Box::new(packets)),
        })
    }

    /// The time of the first sample, if packets tell it.
    pub fn start(&self) -> Option<Tai> {
        self.packets.as_ref().and_then(|packets| packets.start())
    }

    /// The stream id of packets that have one, as in manifests.
    pub fn stream_id(&self) -> Option<String> {
        let id = self.packets.as_ref().and_then(|packets| packets.stream())?;
        Some(format!("{id:08x}"))
    }

    /// Lists what was held until packets before it have come: the stream has ended.
    pub fn end(&mut self, parts: &mut Vec<Part>) {
        if let Some(packets) = &mut self.packets {
            packets.end(parts);
        }
    }

    /// Packets that came too late for their place, and are left out.
    pub fn late(&self) -> u64 {
        self.packets.as_ref().map_or(0, |packets| packets.late())
    }

    /// Lists the parts of a block, and the frames before it that no block had.
    pub fn read(
        &mut self,
        block: &SampleBlock<'_>,
        parts: &mut Vec<Part>,
    ) -> Result<(), SampleError> {
        if let Some(packets) = &mut self.packets {
            return Ok(packets.read(block.first, block.bytes, parts)?);
        }
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
            self.frame_samples = samples;
            parts.extend(self.absent_before(index));
            self.next = index.saturating_add(1);
            let begin = payload.as_ptr().addr() - start;
            parts.push(match is_valid {
                true => Part::Here(begin..begin + payload.len()),
                false => Part::Absent(samples),
            });
        }
        Ok(())
    }

    /// Frames between the last one and another.
    fn absent_before(&self, index: i64) -> Option<Part> {
        let frames = u64::try_from(index.saturating_sub(self.next)).ok()?;
        let absent = frames.saturating_mul(self.frame_samples);
        (self.has_places && absent > 0).then_some(Part::Absent(absent))
    }

    /// Frames behind the last block, up to the last one of the stream.
    pub fn behind(&self, last: i64) -> Option<Part> {
        self.absent_before(last.saturating_add(1))
    }

    /// The sample at a byte of a stream of bytes, or at a frame, counted from 0 with those that are not there.
    pub fn sample_at(&self, frame: i64, byte: u64) -> u64 {
        if let Some(packets) = &self.packets {
            return packets.sample_at(frame);
        }
        match self.frame_samples {
            0 => (u128::from(byte) * 8 / u128::from(self.layout.sample_bits().max(1))) as u64,
            samples => {
                let frames = frame.saturating_sub(self.first).max(0);
                frames.unsigned_abs().saturating_mul(samples)
            }
        }
    }

    /// Bytes at the end of a stream of bytes that are no whole sample.
    pub fn rest_bytes(&self) -> u64 {
        self.carried.len() as u64
    }

    /// The payload of a frame, and whether it is valid.
    fn payload<'a>(&self, frame: &'a [u8], is_fill: bool) -> Result<(&'a [u8], bool), SampleError> {
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
        let samples = Some(samples);
        let (format, context) = (&Format::Raw, &[][..]);
        Framing { format, frame_bytes, has_places: true, samples, context, first: None }
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
        let bytes: Vec<u8> = (0..64).collect();
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
            assert_eq!(joined, bytes[..60], "blocks of {size}");
            assert_eq!(payloads.rest_bytes(), 4, "blocks of {size}");
            assert_eq!(payloads.sample_at(0, 18), 3);
        }
    }

    #[test]
    fn fill_and_frames_between_blocks_are_samples_that_are_not_there() {
        let layout = SampleLayout::new("ri16_le".parse().unwrap(), 1);
        let bytes: Vec<u8> = (0..12).collect();
        let block = |first| SampleBlock { first, bytes: &bytes, is_fill: &|index| index == 7 };
        let framing = Framing { first: Some(5), ..raw(4, &layout) };
        let mut payloads = Payloads::of(&framing, &block(6)).unwrap();
        let mut read = |first| {
            let mut parts = Vec::new();
            payloads.read(&block(first), &mut parts).unwrap();
            listed(&bytes, parts)
        };
        let here = |range: Range<usize>| vec![Some(bytes[range].to_vec())];
        let absent = |samples| vec![None; samples];
        // Each frame has two samples.
        assert_eq!(read(6), [absent(2), here(0..4), absent(2), here(8..12)].concat());
        let whole = [here(0..4), here(4..8), here(8..12)].concat();
        assert_eq!(read(11), [absent(4), whole.clone()].concat(), "two frames were in no block");
        assert_eq!(read(14), whole);
        assert_eq!(payloads.behind(18), Some(Part::Absent(4)));
        assert_eq!((payloads.behind(16), payloads.sample_at(11, 0)), (None, 12));
    }

    #[test]
    fn a_stream_without_samples_is_refused() {
        let block = SampleBlock { first: 0, bytes: &[0; 64], is_fill: &|_| false };
        let layout = SampleLayout::new("ri16_le".parse().unwrap(), 1);
        let refused = |framing: &Framing<'_>| match Payloads::of(framing, &block) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{framing:?}"),
        };
        let rtp = Format::Packets { kind: PacketKind::Rtp };
        let vita49 = Format::Packets { kind: PacketKind::Vita49 };
        let of = |format| Framing { format, ..raw(0, &layout) };
        assert!(refused(&of(&rtp)).contains("RTP"));
        assert!(refused(&of(&vita49)).contains("not data"));
        assert!(refused(&raw(0, &layout)).contains("vary in length"));
        let undescribed = Framing { samples: None, ..raw(64, &layout) };
        assert!(refused(&undescribed).contains("did not describe"));
    }
}
