//! The samples in a block: payloads without headers, and the samples that are not there.

use std::ops::Range;

use fullbore_core::index::Block;
use fullbore_core::manifest::Format;
use fullbore_core::marker::Position;
use fullbore_formats::framed::FrameKind;
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::vdif::Header;
use fullbore_store::reader::{Frame, StoredStream};
use fullbore_time::Tai;

use super::super::ExportError;

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
    /// The index of the next frame, if frames have places.
    next: Option<i64>,
    /// The index of the first frame; 0 if frames have no places.
    first: i64,
    /// Samples of each frame; 0 of a stream of bytes.
    frame_samples: u64,
    /// The start of a sample in a stream of bytes.
    carried: Vec<u8>,
}

fn refused(stream: &StoredStream, why: impl Into<String>) -> ExportError {
    ExportError::Samples { stream: stream.name.clone(), why: why.into() }
}

impl Payloads {
    /// Finds out what the samples of a stream are, from its description or its first frame.
    pub fn of(
        stream: &StoredStream,
        described: Option<SampleLayout>,
        block: &[u8],
    ) -> Result<Self, ExportError> {
        let (kind, rate) = match &stream.format {
            Format::Panda { .. } => {
                return Err(refused(
                    stream,
                    "samples of a PandA are columns: convert them to HDF5",
                ));
            }
            Format::Vita49 => {
                return Err(refused(
                    stream,
                    "its packets have headers and trailers of their own; `cat` writes them whole",
                ));
            }
            Format::Raw => (None, None),
            Format::Frames { kind, frames_per_second, .. } => (Some(*kind), *frames_per_second),
        };
        let mut header = None;
        let layout = match (kind, described) {
            (Some(FrameKind::Vdif), _) => {
                let first =
                    Header::read(block).map_err(|error| refused(stream, error.to_string()))?;
                header = Some(first);
                SampleLayout::of_vdif(&first, rate).ok_or_else(|| {
                    let bits = first.bits_per_sample();
                    refused(
                        stream,
                        format!(
                            "its frames hold no whole samples of {bits} bits that can be decoded"
                        ),
                    )
                })?
            }
            (_, Some(layout)) => layout,
            (_, None) => {
                return Err(refused(stream, "its endpoint did not describe its samples"));
            }
        };
        let placed = stream.placed_edges().map(|(first, _)| first);
        let (next, carried) = (placed.filter(|_| !stream.is_of_bytes()), Vec::new());
        let (first, frame_samples) = (next.unwrap_or(0), 0);
        Ok(Self { layout, header, kind, next, first, frame_samples, carried })
    }

    /// The time of the first sample, which is in the place of the first frame even if this block is a later one.
    pub fn start(&self, stream: &StoredStream, block: &Block) -> Tai {
        let edge = stream.account.as_ref().and_then(|account| account.first);
        let is_earlier = self.next.is_some_and(|first| first < block.first);
        let earlier = edge.and_then(|edge| edge.time).filter(|_| is_earlier);
        earlier.unwrap_or_else(|| stream.time_of_block(block))
    }

    /// The sample at the position of a marker, counted from 0, those that are not there too.
    pub fn sample_at(&self, position: &Position) -> u64 {
        match self.frame_samples {
            0 => (u128::from(position.byte) * 8 / u128::from(self.layout.sample_bits())) as u64,
            samples => {
                let frames = position.frame.saturating_sub(self.first).max(0);
                frames.unsigned_abs().saturating_mul(samples)
            }
        }
    }

    /// Lists the parts of a block.
    pub fn read(
        &mut self,
        stream: &StoredStream,
        location: &Block,
        block: &[u8],
        parts: &mut Vec<Part>,
    ) -> Result<(), ExportError> {
        if stream.is_of_bytes() {
            self.read_bytes(block, parts);
            return Ok(());
        }
        let start = block.as_ptr().addr();
        for frame in stream.frames(location, block) {
            let (payload, is_valid) = self.payload(stream, &frame)?;
            let samples = self.layout.samples_in(payload.len() as u64).ok_or_else(|| {
                let (bytes, layout) = (payload.len(), &self.layout);
                refused(
                    stream,
                    format!("{bytes} bytes of a frame are no whole samples of {layout}"),
                )
            })?;
            self.frame_samples = samples;
            if let Some(next) = &mut self.next {
                let before = u64::try_from(frame.index.saturating_sub(*next)).unwrap_or(0);
                *next = frame.index.saturating_add(1);
                if before > 0 {
                    parts.push(Part::Absent(before.saturating_mul(samples)));
                }
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
        stream: &StoredStream,
        frame: &Frame<'a>,
    ) -> Result<(&'a [u8], bool), ExportError> {
        let Some(first) = &self.header else {
            let header_bytes = self.kind.map_or(0, |kind| kind.usual_header_bytes() as usize);
            let payload = frame.bytes.get(header_bytes..).unwrap_or_default();
            return Ok((payload, !frame.fill));
        };
        let header = Header::read(frame.bytes).map_err(|it| refused(stream, it.to_string()))?;
        if header.thread() != first.thread() {
            return Err(refused(stream, "it has several threads, whose samples are not one array"));
        }
        let kind =
            |it: &Header| (it.bits_per_sample(), it.channels(), it.complex(), it.payload_bytes());
        if kind(&header) != kind(first) {
            return Err(refused(stream, "its frames differ in bits, channels or length"));
        }
        let payload = frame.bytes.get(header.header_bytes()..).unwrap_or_default();
        Ok((payload, !frame.fill && !header.invalid()))
    }

    /// The parts behind the last block: the frames up to the last one of the account.
    pub fn behind(&self, stream: &StoredStream) -> Option<Part> {
        let next = self.next?;
        let (_, last) = stream.placed_edges()?;
        let frames = u64::try_from(last.saturating_add(1).saturating_sub(next)).ok()?;
        let absent = frames.checked_mul(self.frame_samples).filter(|samples| *samples > 0);
        absent.map(Part::Absent)
    }

    /// Bytes at the end of a stream of bytes that are not a whole sample.
    pub fn rest_bytes(&self) -> u64 {
        self.carried.len() as u64
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

    #[test]
    fn samples_that_cross_blocks_are_joined() {
        let layout = SampleLayout::new("ri16_le".parse().unwrap(), 3);
        let bytes: Vec<u8> = (0..64).collect();
        for size in 1..=bytes.len() {
            let mut payloads = Payloads {
                layout: layout.clone(),
                header: None,
                kind: None,
                next: None,
                first: 0,
                frame_samples: 0,
                carried: Vec::new(),
            };
            let mut joined = Vec::new();
            for block in bytes.chunks(size) {
                let mut parts = Vec::new();
                payloads.read_bytes(block, &mut parts);
                for part in parts {
                    match part {
                        Part::Here(range) => joined.extend(&block[range]),
                        Part::Carried(whole) => joined.extend(whole),
                        Part::Absent(_) => unreachable!("bytes have no gaps"),
                    }
                    assert_eq!(joined.len() % 6, 0, "blocks of {size}");
                }
            }
            assert_eq!(joined, bytes[..60], "blocks of {size}");
            assert_eq!(payloads.rest_bytes(), 4, "blocks of {size}");
        }
    }
}
