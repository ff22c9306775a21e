//! The payloads of blocks: the thread and the place of each, behind skipped blocks too.

use fullbore_containers::{PacketPayloads, Part};
use fullbore_core::manifest::Format;
use fullbore_formats::FILL;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::packets::PacketKind;
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::vita49;
use fullbore_time::Tai;

use super::{Block, DetectError};
use crate::frames::{SampleFrames, SamplesError};

/// The payloads of a stream.
pub enum Payloads {
    /// Frames that carry their time.
    Frames {
        /// The places of frames.
        frames: Box<SampleFrames>,
        /// Reads them.
        codec: FrameCodec,
        /// Samples of each.
        frame_samples: u64,
        /// The byte behind the last payload.
        end: u64,
    },
    /// Packets of VITA-49.
    Packets {
        /// The samples of packets.
        packets: Box<PacketPayloads>,
        /// The byte behind the last sample.
        end: u64,
    },
    /// Bytes, or frames without a header.
    Bytes {
        /// The samples.
        layout: SampleLayout,
        /// The byte behind the last block.
        end: u64,
    },
}

impl Payloads {
    /// Finds out what the samples are. `None` if the block does not show it.
    pub fn of(block: Block<'_>, now: Tai) -> Result<Option<Self>, DetectError> {
        match block.format {
            Format::Panda { .. } => Err(DetectError::Format { what: "samples of a PandA" }),
            Format::Packets { kind: PacketKind::Vita49 } => {
                match PacketPayloads::of(block.described, &[], block.bytes) {
                    Ok(packets) => Ok(Some(Self::Packets { packets: Box::new(packets), end: 0 })),
                    // The stream of context packets.
                    Err(vita49::samples::SamplesError::NoData) => Ok(None),
                    Err(error) => Err(SamplesError::Packets(error).into()),
                }
            }
            Format::Packets { .. } => {
                Err(DetectError::Format { what: "packets of SPEAD, RTP or GVSP" })
            }
            Format::Frames { frames_per_second, .. } => {
                let Some(codec) = block.format.codec(now) else { return Ok(None) };
                let valid = |frame: &&[u8]| {
                    codec.read(frame).is_some_and(|header| !codec.is_fill(&header, frame))
                };
                let mut frames = block.bytes.chunks_exact(block.frame_bytes.max(1) as usize);
                let Some(frame) = frames.find(valid) else { return Ok(None) };
                let described = block.described.cloned();
                let frames = SampleFrames::of(described, Some(codec), *frames_per_second, frame)?;
                let header = codec.read(frame).map_or(0, |header| codec.header_bytes(&header));
                let payload = frame.len().saturating_sub(header) as u64;
                let frame_samples = frames.layout.samples_in(payload).unwrap_or(0);
                let frames = Box::new(frames);
                Ok(Some(Self::Frames { frames, codec, frame_samples, end: 0 }))
            }
            Format::Raw => {
                let layout = block.described.cloned().ok_or(SamplesError::Undescribed)?;
                Ok(Some(Self::Bytes { layout, end: 0 }))
            }
        }
    }

    /// The samples.
    pub fn layout(&self) -> &SampleLayout {
        match self {
            Self::Frames { frames, .. } => &frames.layout,
            Self::Packets { packets, .. } => packets.layout(),
            Self::Bytes { layout, .. } => layout,
        }
    }

    /// Samples of a frame; 0 if there are no frames of one length.
    pub fn frame_samples(&self) -> u64 {
        match self {
            Self::Frames { frame_samples, .. } => *frame_samples,
            Self::Packets { .. } | Self::Bytes { .. } => 0,
        }
    }

    /// The byte behind the last payload of the latest block, from the start of its thread.
    pub fn end(&self) -> u64 {
        let (Self::Frames { end, .. } | Self::Packets { end, .. } | Self::Bytes { end, .. }) = self;
        *end
    }

    /// Gives the payloads of a block to `take`: the thread, the first byte among those of the thread, and the bytes.
    pub fn read(
        &mut self,
        block: Block<'_>,
        take: &mut dyn FnMut(u16, u64, &[u8]),
    ) -> Result<(), DetectError> {
        match self {
            Self::Frames { frames, codec, end, .. } => {
                // One frame with a wrong time does not stay the latest.
                let mut behind = 0;
                for frame in block.bytes.chunks_exact(block.frame_bytes.max(1) as usize) {
                    let header = codec.read(frame);
                    let fill = header.is_none_or(|header| codec.is_fill(&header, frame));
                    let Some(placed) = frames.place(frame, fill, Some(*codec))? else { continue };
                    behind = behind.max(placed.at + placed.payload.len() as u64);
                    take(placed.thread, placed.at, &frame[placed.payload]);
                }
                if behind > 0 {
                    *end = behind;
                }
                Ok(())
            }
            Self::Packets { packets, end } => {
                // Another number than the expected one: the first bytes belong to a skipped block.
                let lost = i64::from(block.skipped > 0);
                let first = packets.expected().map_or(0, |first| first.saturating_add(lost));
                let mut parts = Vec::new();
                packets.read(first, block.bytes, &mut parts).map_err(SamplesError::Packets)?;
                packets.forget_blocks();
                let bits = packets.layout().sample_bits();
                for part in parts {
                    let mut give = |bytes: &[u8]| {
                        take(0, *end, bytes);
                        *end = end.saturating_add(bytes.len() as u64);
                    };
                    match part {
                        Part::Here(range) => give(&block.bytes[range]),
                        Part::Carried(bytes) => give(&bytes),
                        Part::Absent(samples) => {
                            *end = end.saturating_add(samples.saturating_mul(bits) / 8);
                        }
                    }
                }
                Ok(())
            }
            Self::Bytes { layout, end } => {
                let bits = layout.sample_bits();
                let group = (bits >> bits.trailing_zeros().min(3)).max(1);
                let mut at = end.saturating_add(block.skipped);
                *end = at.saturating_add(block.bytes.len() as u64);
                let frame_bytes = match block.frame_bytes {
                    0 | 1 => block.bytes.len().max(1),
                    frame_bytes => frame_bytes as usize,
                };
                for frame in block.bytes.chunks(frame_bytes) {
                    if block.frame_bytes <= 1 || !is_fill(frame) {
                        // A block of bytes may begin within a sample.
                        let into = ((group - at % group) % group) as usize;
                        let whole = frame.get(into..).unwrap_or_default();
                        let whole = &whole[..whole.len() / group as usize * group as usize];
                        take(0, at + into as u64, whole);
                    }
                    at = at.saturating_add(frame.len() as u64);
                }
                Ok(())
            }
        }
    }
}

/// True if a frame without a header is the fill of an absent one.
fn is_fill(frame: &[u8]) -> bool {
    frame.chunks(4).all(|word| *word == FILL.to_le_bytes()[..word.len()])
}
