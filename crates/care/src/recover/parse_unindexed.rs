//! Parses unindexed data behind the last record of a chunk: frames of the stream, or nothing.
//!
//! Frames that carry their own time are recognised by their headers, one after the other, up to the first that does not match. Other formats
//! have no such headers: a whole block is kept if its first and last bytes are not zeroes, because preallocated space
//! reads as zeroes. A complete chunk has no preallocated space, so all of it is kept.

use std::ops::Range;

use fullbore_core::layout::{ALIGNMENT, Geometry};
use fullbore_core::manifest::{Fill, Format};
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::vdif::{Header, Second};

/// The frames of a block without an index record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnindexedFrames {
    /// The number of bytes that belong to the stream.
    pub bytes: usize,
    /// Frames in them, fill included.
    pub frames: u32,
    /// The fill frames, as ranges of frames within the block.
    pub fill: Vec<Range<u32>>,
    /// Frames that the sender marked invalid.
    pub invalid: u32,
    /// Time of a real, valid frame: its number within the block, second, number and thread.
    pub timed: Option<(u32, Second, u32, u16)>,
}

/// The known properties of a stream's frames.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    pub format: &'a Format,
    /// Reads the frames, if they carry their own time.
    pub codec: Option<FrameCodec>,
    pub fill: Fill,
    pub geometry: Geometry,
    /// The header of an earlier frame: all frames have the same sample format.
    pub like: Option<Header>,
}

impl Known<'_> {
    /// Parses the bytes behind the last record, at most a block of them.
    pub fn salvage(&mut self, bytes: &[u8]) -> UnindexedFrames {
        let frame_bytes = self.geometry.frame_bytes as usize;
        match self.codec {
            Some(_) if frame_bytes > 0 => self.walk(bytes, frame_bytes),
            _ => self.whole_block(bytes, frame_bytes),
        }
    }

    /// Parses bytes of a chunk that was complete when its recorder renamed it: all of them belong to the stream,
    /// whatever their content, and the last block of a stream is a short one.
    pub fn complete(&mut self, bytes: &[u8]) -> UnindexedFrames {
        let frame_bytes = self.geometry.frame_bytes as usize;
        let known = match self.codec {
            Some(_) if frame_bytes > 0 => self.walk(bytes, frame_bytes),
            _ => UnindexedFrames::default(),
        };
        if known.bytes == bytes.len() {
            return known;
        }
        let mut found = UnindexedFrames {
            bytes: bytes.len(),
            timed: known.timed,
            ..UnindexedFrames::default()
        };
        if frame_bytes > 0 {
            for frame in bytes.chunks_exact(frame_bytes) {
                let header = self.fits(frame);
                let is_fill = |header: &Header| self.is_invalid_fill(frame, header);
                if self.is_pattern(frame) || header.as_ref().is_some_and(is_fill) {
                    found.add_fill(found.frames);
                } else {
                    found.invalid += u32::from(header.is_some_and(|header| header.invalid()));
                }
                found.frames += 1;
            }
        }
        found
    }

    fn walk(&mut self, bytes: &[u8], frame_bytes: usize) -> UnindexedFrames {
        let mut found = UnindexedFrames::default();
        let mut end = UnindexedFrames::default();
        for frame in bytes.chunks_exact(frame_bytes) {
            let number = found.frames;
            if self.is_pattern(frame) {
                found.add_fill(number);
            } else {
                let Some(header) = self.fits(frame) else { break };
                if self.is_invalid_fill(frame, &header) {
                    found.add_fill(number);
                } else {
                    found.invalid += u32::from(header.invalid());
                    if !header.invalid() {
                        let place = (header.second(), header.frame_number(), header.thread());
                        found.timed.get_or_insert((number, place.0, place.1, place.2));
                    }
                    self.like.get_or_insert(header);
                }
            }
            found.frames += 1;
            found.bytes += frame_bytes;
            // Fill at the end replaces no frame that is known to have been sent.
            if found.fill.last().is_none_or(|run| run.end != found.frames) {
                end = found.clone();
            }
        }
        // A whole block was written as it is, including fill at its end.
        if found.bytes == self.geometry.block_bytes as usize { found } else { end }
    }

    /// Returns the frame's header, if it is a frame of this stream.
    fn fits(&self, frame: &[u8]) -> Option<Header> {
        let header = self.codec?.check(frame, frame.len()).ok()?;
        let listed = match self.format {
            Format::Frames { threads, .. } => {
                threads.is_empty() || threads.contains(&header.thread())
            }
            Format::Panda { .. } | Format::Packets { .. } | Format::Raw => false,
        };
        let kind = |it: &Header| {
            (it.legacy(), it.version(), it.bits_per_sample(), it.log2_channels(), it.complex())
        };
        let alike = self.like.as_ref().is_none_or(|like| kind(like) == kind(&header));
        (listed && alike).then_some(header)
    }

    fn is_invalid_fill(&self, frame: &[u8], header: &Header) -> bool {
        self.fill == Fill::Invalid && self.codec.is_some_and(|codec| codec.is_fill(header, frame))
    }

    fn is_pattern(&self, frame: &[u8]) -> bool {
        matches!(self.fill, Fill::Pattern(word) if word != 0 && is_word(frame, word))
    }

    fn whole_block(&self, bytes: &[u8], frame_bytes: usize) -> UnindexedFrames {
        let block_bytes = self.geometry.block_bytes as usize;
        let page = ALIGNMENT as usize;
        let zeroes = |part: &[u8]| part.iter().all(|&byte| byte == 0);
        if bytes.len() < block_bytes
            || zeroes(&bytes[..page])
            || zeroes(&bytes[block_bytes - page..block_bytes])
        {
            return UnindexedFrames::default();
        }
        let mut found = UnindexedFrames { bytes: block_bytes, ..UnindexedFrames::default() };
        if frame_bytes > 0 {
            for frame in bytes[..block_bytes].chunks_exact(frame_bytes) {
                if self.is_pattern(frame) {
                    found.add_fill(found.frames);
                }
                found.frames += 1;
            }
        }
        found
    }
}

impl UnindexedFrames {
    fn add_fill(&mut self, number: u32) {
        match self.fill.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => self.fill.push(number..number + 1),
        }
    }

    /// The number of real frames.
    pub fn present(&self) -> u32 {
        self.frames - self.fill.iter().map(|run| run.end - run.start).sum::<u32>()
    }
}

fn is_word(bytes: &[u8], word: u32) -> bool {
    bytes.len() >= 4 && bytes.chunks_exact(4).all(|chunk| chunk == word.to_le_bytes())
}
