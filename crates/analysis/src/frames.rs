//! From frames to samples: the thread, the place and the payload of each frame.
//!
//! A place is the number of the payload's first byte among those of its thread. Frames that carry their own time (VDIF,
//! Mark 5B) have it by `second × rate + frame number`, counted from the first frame. Others follow each other; fill
//! takes the place of absent ones. Packets of VITA-49 have the place that their count and time give.

use std::collections::BTreeMap;
use std::ops::Range;

use fullbore_formats::framed::FrameCodec;
use fullbore_formats::samples::{SampleLayout, SampleRate};
use fullbore_formats::vdif::Header;
use fullbore_formats::vita49;
use fullbore_formats::vita49::listing::ListedChange;
use fullbore_formats::vita49::samples::PacketPlaces;

/// Frames have no samples that can be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplesError {
    /// Nobody has described the samples.
    #[error("its samples are not described")]
    Undescribed,
    /// Packets of VITA-49 have no samples that can be decoded.
    #[error(transparent)]
    Packets(#[from] vita49::samples::SamplesError),
    /// The frames have samples of another kind.
    #[error("its frames hold no whole samples of {bits} bits that can be decoded")]
    Undecodable {
        /// Bits of an element.
        bits: u32,
    },
    /// A payload is not a whole number of samples.
    #[error("{bytes} bytes of a frame are no whole samples of {layout}")]
    Partial {
        /// Bytes of the payload.
        bytes: usize,
        /// The samples.
        layout: String,
    },
}

/// Samples in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The thread.
    pub thread: u16,
    /// The number of the first byte among the payloads of the thread, from the start of the stream.
    pub at: u64,
    /// The payload within the frame.
    pub payload: Range<usize>,
}

/// Finds the samples in the frames of a stream.
#[derive(Clone, Debug)]
pub struct SampleFrames {
    /// The samples.
    pub layout: SampleLayout,
    frames_per_second: Option<u64>,
    /// The header of the first valid frame, which the others resemble.
    first: Option<Header>,
    /// The next byte of each thread.
    next: BTreeMap<u16, u64>,
    /// The places of packets, if frames are packets of VITA-49.
    packets: Option<PacketPlaces>,
    /// Frames that are invalid, fill, or of another kind.
    left_out: u64,
}

impl SampleFrames {
    /// Finds out what the samples are, from a description or from the first frame.
    pub fn of(
        described: Option<SampleLayout>,
        codec: Option<FrameCodec>,
        frames_per_second: Option<u64>,
        frame: &[u8],
    ) -> Result<Self, SamplesError> {
        let mut rate = frames_per_second;
        let header = codec.and_then(|codec| codec.read(frame));
        let layout = match (described, codec, header) {
            (Some(layout), _, _) => layout,
            (None, Some(codec), Some(header)) if codec.kind().states_length() => {
                rate = rate.or_else(|| header.frames_per_second());
                let bits = header.bits_per_sample();
                let layout = SampleLayout::of_vdif(&header, rate);
                layout.ok_or(SamplesError::Undecodable { bits })?
            }
            _ => return Err(SamplesError::Undescribed),
        };
        Ok(Self::new(layout, rate))
    }

    /// Samples of a layout, in frames of this rate.
    pub fn new(layout: SampleLayout, frames_per_second: Option<u64>) -> Self {
        let (next, first) = (BTreeMap::new(), None);
        Self { layout, frames_per_second, first, next, packets: None, left_out: 0 }
    }

    /// Finds out what the samples of packets of VITA-49 are, from a description or context packets, and the first packet.
    pub fn of_packets(
        described: Option<&SampleLayout>,
        context: &[ListedChange],
        packet: &[u8],
    ) -> Result<Self, SamplesError> {
        let prologue = vita49::Prologue::read(packet);
        let prologue = prologue.map_err(|_| vita49::samples::SamplesError::NoData)?;
        let layout = vita49::samples::layout(prologue.stream, described, context)?;
        let packets = Some(PacketPlaces::new(layout.clone(), packet)?);
        Ok(Self { packets, ..Self::new(layout, None) })
    }

    /// The same at another rate of samples, of a stream that does not state it.
    pub fn with_rate(
        mut self,
        rate: Option<SampleRate>,
        frame: &[u8],
        codec: Option<FrameCodec>,
    ) -> Self {
        let Some(rate) = rate else { return self };
        self.layout.sample_rate = Some(rate);
        if let Some(codec) = codec
            && let Some(header) = codec.read(frame)
        {
            let payload = frame.len().saturating_sub(codec.header_bytes(&header)) as u64;
            let samples = self.layout.samples_in(payload).filter(|samples| *samples > 0);
            let frames = samples.map(|samples| rate.hertz() / samples as f64);
            self.frames_per_second =
                frames.map(|frames| frames.round() as u64).filter(|it| *it > 0);
        }
        self
    }

    /// Frames that were invalid, fill, or of another kind.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Places a frame. `None` if it is left out.
    pub fn place(
        &mut self,
        frame: &[u8],
        fill: bool,
        codec: Option<FrameCodec>,
    ) -> Result<Option<Placed>, SamplesError> {
        if let Some(packets) = &mut self.packets {
            let Some(placed) = packets.place(frame)? else {
                self.left_out += 1;
                return Ok(None);
            };
            let at = placed.sample.saturating_mul(self.layout.sample_bits()) / 8;
            let next = self.next.entry(0).or_default();
            *next = (*next).max(at + placed.payload.len() as u64);
            return Ok(Some(Placed { thread: 0, at, payload: placed.payload }));
        }
        let Some(codec) = codec else { return Ok(self.place_in_order(frame, fill)) };
        let header = codec.read(frame).filter(|header| !fill && !header.invalid());
        let Some(header) = header.filter(|header| self.is_like_the_first(codec, header)) else {
            self.left_out += 1;
            return Ok(None);
        };
        let begin = codec.header_bytes(&header).min(frame.len());
        let bytes = frame.len() - begin;
        if self.layout.samples_in(bytes as u64).is_none() {
            return Err(SamplesError::Partial { bytes, layout: self.layout.to_string() });
        }
        let first = *self.first.get_or_insert(header);
        let seconds = i128::from(header.second().0) - i128::from(first.second().0);
        let frames = i128::from(header.frame_number()) - i128::from(first.frame_number());
        let at = match self.frames_per_second {
            Some(rate) => (seconds * i128::from(rate) + frames) * bytes as i128,
            // Within one second, no rate is needed. After that, frames follow each other.
            None if seconds == 0 => frames * bytes as i128,
            None => self.next.get(&header.thread()).map_or(0, |next| i128::from(*next)),
        };
        // A frame before the first, or in another century.
        let Some(at) = u64::try_from(at).ok().filter(|at| *at < u64::MAX >> 16) else {
            self.left_out += 1;
            return Ok(None);
        };
        self.next.insert(header.thread(), at + bytes as u64);
        Ok(Some(Placed { thread: header.thread(), at, payload: begin..frame.len() }))
    }

    fn place_in_order(&mut self, frame: &[u8], fill: bool) -> Option<Placed> {
        let next = self.next.entry(0).or_default();
        let at = *next;
        *next = next.saturating_add(frame.len() as u64);
        self.left_out += u64::from(fill);
        (!fill).then_some(Placed { thread: 0, at, payload: 0..frame.len() })
    }

    /// The bytes behind the last frame of each thread: the extent of the stream.
    pub fn extent(&self) -> u64 {
        self.next.values().copied().max().unwrap_or(0)
    }

    /// The thread of the first frame.
    pub fn first_thread(&self) -> u16 {
        self.first.map_or(0, |header| header.thread())
    }

    fn is_like_the_first(&self, codec: FrameCodec, header: &Header) -> bool {
        let kind = |it: &Header| {
            (it.bits_per_sample(), it.channels(), it.complex(), codec.frame_bytes(it), it.legacy())
        };
        self.first.is_none_or(|first| kind(&first) == kind(header))
    }
}

#[cfg(test)]
mod tests {
    use fullbore_formats::framed::FrameKind;
    use fullbore_formats::vdif::Second;
    use fullbore_time::Tai;

    use super::*;

    fn codec() -> Option<FrameCodec> {
        Some(FrameCodec::new(FrameKind::Vdif, Tai(0)))
    }

    fn frame(second: i64, number: u32, change: impl Fn(Header) -> Header) -> Vec<u8> {
        let mut header = Header::default().with_frame_bytes(40).with_bits_per_sample(2);
        header.set_time(Second(1_700_000_000 + second), number);
        let header = change(header);
        let mut frame = vec![0; header.frame_bytes() as usize];
        header.write(&mut frame).unwrap();
        frame
    }

    #[test]
    fn frames_have_the_place_that_their_time_gives() {
        let plain = |second, number| frame(second, number, |header| header);
        let mut frames = SampleFrames::of(None, codec(), Some(10), &plain(0, 8)).unwrap();
        assert_eq!(frames.layout.to_string(), "1 channel of ro2 at 320 Hz");
        let mut at = |frame: &[u8], fill| {
            frames.place(frame, fill, codec()).unwrap().map(|placed| (placed.thread, placed.at))
        };
        assert_eq!(at(&plain(0, 8), false), Some((0, 0)));
        assert_eq!(at(&plain(1, 0), false), Some((0, 16)));
        assert_eq!(at(&frame(0, 9, |header| header.with_thread(7)), false), Some((7, 8)));
        for (odd, fill) in [
            (plain(0, 7), false),
            (plain(1, 1), true),
            (frame(1, 1, |header| header.with_invalid(true)), false),
            (frame(1, 1, |header| header.with_bits_per_sample(8)), false),
            (vec![0; 3], false),
        ] {
            assert_eq!(at(&odd, fill), None);
        }
        assert_eq!(frames.left_out(), 5);
    }

    #[test]
    fn without_a_rate_frames_of_later_seconds_follow_each_other() {
        let plain = |second, number| frame(second, number, |header| header);
        let mut frames = SampleFrames::of(None, codec(), None, &plain(0, 8)).unwrap();
        let mut at = |second, number| {
            frames.place(&plain(second, number), false, codec()).unwrap().unwrap().at
        };
        assert_eq!([at(0, 8), at(0, 10), at(1, 0), at(1, 1)], [0, 16, 24, 32]);
    }

    #[test]
    fn packets_have_the_place_that_their_count_and_time_give() {
        use fullbore_formats::vita49::Kind;
        use fullbore_formats::vita49::write::{Stamp, difi_prologue, prologue};
        let packet = |number: u64| {
            let stamp = Stamp { seconds: 1_700_000_000, picoseconds: number * 1_000_000 };
            let start = difi_prologue(Kind::Data, 7, stamp, (number % 16) as u8, 2);
            let mut packet = vec![0; 36];
            prologue(&start, &mut packet).unwrap();
            packet
        };
        let layout = SampleLayout::new("ci16_be".parse().unwrap(), 1);
        let mut frames = SampleFrames::of_packets(Some(&layout), &[], &packet(0)).unwrap();
        let mut place = |number| frames.place(&packet(number), false, None).unwrap().unwrap();
        let at = [0, 1, 2, 3, 40].map(|number| place(number).at);
        assert_eq!(at, [0, 8, 16, 24, 320]);
        assert_eq!(place(41), Placed { thread: 0, at: 328, payload: 28..36 });
        assert_eq!(frames.extent(), 336);
        assert_eq!(frames.place(&packet(42)[..30], false, None), Ok(None));
        assert_eq!(frames.left_out(), 1);
        let error = SampleFrames::of_packets(None, &[], &packet(0)).unwrap_err();
        assert!(error.to_string().contains("no context packet"), "{error}");
    }

    #[test]
    fn frames_without_time_follow_each_other_and_fill_keeps_a_place() {
        let layout = SampleLayout::new("ri16_le".parse().unwrap(), 2);
        let mut frames = SampleFrames::of(Some(layout), None, None, &[]).unwrap();
        let at = |frames: &mut SampleFrames, fill| frames.place(&[0; 8], fill, None);
        assert_eq!(at(&mut frames, false).unwrap().unwrap().at, 0);
        assert_eq!(at(&mut frames, true), Ok(None));
        assert_eq!(at(&mut frames, false).unwrap().unwrap().at, 16);
        assert_eq!(frames.extent(), 24);
        assert_eq!(SampleFrames::of(None, None, None, &[]).unwrap_err(), SamplesError::Undescribed);
    }
}
