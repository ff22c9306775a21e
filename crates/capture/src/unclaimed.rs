//! Whole frames that belong to no stream of their port: of threads and stations that begin late, and of unknown ones.
//!
//! ```text
//! excluded by `threads=` or `frame=`       ──► counted as excluded
//! three agree on station, thread, length   ──► a stream of their own, from the earliest of them on
//! fewer, or no stream can be opened        ──► counted as unrecorded, which lowers the verdict
//! ```

use std::collections::VecDeque;

use fullbore_core::endpoint::{SourceFormat, Threads, UdpSource};
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::vdif::Header;

use super::detect::DatagramContents;

/// The number of frames of a thread that open a stream. Fewer may be there by mistake, or be forged.
const AGREE: usize = 3;

/// The most frames held while too few agree.
const MOST: usize = 256;

/// The most datagrams that a stream holds for its port between two checks.
const MOST_HANDED_BACK: usize = 1024;

/// Station, thread and frame length, which identify a stream of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub station: u16,
    pub thread: u16,
    pub frame_bytes: u32,
}

impl Key {
    /// Returns the key and header of a datagram that holds a whole frame behind `strip` bytes.
    pub fn of(codec: FrameCodec, datagram: &[u8], strip: usize) -> Option<(Self, Header)> {
        let frame = datagram.get(strip..)?;
        let header = codec.check(frame, frame.len()).ok()?;
        let (station, thread) = (header.station(), header.thread());
        Some((Self { station, thread, frame_bytes: codec.frame_bytes(&header) }, header))
    }
}

/// The decision about a frame that belongs to no stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Claim {
    /// The frame is held until others agree with it. This many held frames were given up for it.
    Held { given_up: u64 },
    /// The user's filter excludes the frame.
    Excluded,
    /// Enough frames agree: these are all held frames of this key, in receive order.
    Open(Key, Vec<Vec<u8>>),
}

/// The frames held.
#[derive(Default)]
pub struct Unclaimed {
    held: VecDeque<(Key, bool, Vec<u8>)>,
}

impl Unclaimed {
    /// Processes a whole frame. Frames marked invalid do not count as agreeing: their header may be wrong.
    pub fn take(&mut self, source: &UdpSource, key: Key, valid: bool, datagram: &[u8]) -> Claim {
        if excludes(source, key) {
            return Claim::Excluded;
        }
        self.held.push_back((key, valid, datagram.to_vec()));
        let agree = match source.threads {
            // With this option each thread is a stream.
            Threads::Split => 1,
            Threads::Together | Threads::Listed(_) => AGREE,
        };
        let alike = self.held.iter().filter(|(of, valid, _)| *of == key && *valid).count();
        if alike >= agree {
            return Claim::Open(key, self.release(key));
        }
        let surplus = self.held.len().saturating_sub(MOST);
        self.held.drain(..surplus);
        Claim::Held { given_up: surplus as u64 }
    }

    fn release(&mut self, key: Key) -> Vec<Vec<u8>> {
        let (released, kept) = std::mem::take(&mut self.held)
            .into_iter()
            .partition::<Vec<_>, _>(|(of, ..)| *of == key);
        self.held = kept.into();
        released.into_iter().map(|(_, _, datagram)| datagram).collect()
    }

    /// Gives up all held frames, and returns their number.
    pub fn give_up(&mut self) -> u64 {
        std::mem::take(&mut self.held).len() as u64
    }
}

/// Datagrams that a stream received and that belong to others. They hold whole frames, and the port takes them back.
#[derive(Default)]
pub struct HandedBack {
    datagrams: Vec<Vec<u8>>,
}

impl HandedBack {
    /// Takes a datagram if it may belong to another stream, and there is room for it. Returns what happened.
    pub fn push(&mut self, codec: FrameCodec, datagram: &[u8], strip: usize) -> Handed {
        let frame = Key::of(codec, datagram, strip).map(drop);
        match frame.or_else(|| DatagramContents::beside(codec, datagram, strip).map(drop)) {
            None => Handed::NoFrame,
            Some(()) if self.datagrams.len() >= MOST_HANDED_BACK => Handed::NoRoom,
            Some(()) => {
                self.datagrams.push(datagram.to_vec());
                Handed::Back
            }
        }
    }

    /// Takes the datagrams out.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.datagrams)
    }
}

/// The result for a datagram that does not belong to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed {
    /// The port will look for its stream.
    Back,
    /// The datagram is no whole frame.
    NoFrame,
    /// Too many datagrams wait already.
    NoRoom,
}

/// True if the user's filter excludes these frames, by their thread or their length.
pub fn excludes(source: &UdpSource, key: Key) -> bool {
    let of_thread = match &source.threads {
        Threads::Listed(list) => list.contains(&key.thread),
        Threads::Together | Threads::Split => true,
    };
    !of_thread || source.frame_bytes.is_some_and(|bytes| bytes != key.frame_bytes)
}

/// True if frames of a source carry station and thread, which identify streams.
pub fn tells_threads(source: &UdpSource) -> bool {
    matches!(source.format, SourceFormat::Frames(_)) && source.sequence.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> UdpSource {
        UdpSource::parse(text).unwrap().remove(0)
    }

    fn frame(station: u16, thread: u16, bytes: u32, number: u32) -> Vec<u8> {
        let mut frame = vec![0; bytes as usize];
        let header = Header::default().with_frame_bytes(bytes).with_station(station);
        header.with_thread(thread).with_frame_number(number).write(&mut frame).unwrap();
        frame
    }

    fn take(unclaimed: &mut Unclaimed, source: &UdpSource, datagram: &[u8]) -> Claim {
        let (key, header) = Key::of(FrameCodec::VDIF, datagram, 0).unwrap();
        unclaimed.take(source, key, !header.invalid(), datagram)
    }

    #[test]
    fn three_frames_that_agree_open_a_stream_with_all_of_them() {
        let (source, mut unclaimed) = (source("udp://:5000"), Unclaimed::default());
        let held = Claim::Held { given_up: 0 };
        assert_eq!(take(&mut unclaimed, &source, &frame(1, 1, 1032, 0)), held);
        assert_eq!(take(&mut unclaimed, &source, &frame(1, 2, 1032, 0)), held);
        assert_eq!(take(&mut unclaimed, &source, &frame(1, 1, 1032, 1)), held);
        let Claim::Open(key, frames) = take(&mut unclaimed, &source, &frame(1, 1, 1032, 2)) else {
            panic!("three agree");
        };
        assert_eq!((key.station, key.thread, frames.len()), (1, 1, 3));
        assert_eq!(unclaimed.give_up(), 1, "the other thread still waits");
    }

    #[test]
    fn frames_of_many_forged_stations_are_bounded_and_counted() {
        let (source, mut unclaimed) = (source("udp://:5000"), Unclaimed::default());
        let mut given_up = 0;
        for station in 0..1000 {
            match take(&mut unclaimed, &source, &frame(station, 0, 1032, 0)) {
                Claim::Held { given_up: more } => given_up += more,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(given_up + unclaimed.give_up(), 1000);
    }

    #[test]
    fn a_thread_that_is_not_listed_is_excluded_and_a_split_one_opens_at_once() {
        let mut unclaimed = Unclaimed::default();
        let listed = source("udp://:5000?threads=0,1");
        assert_eq!(take(&mut unclaimed, &listed, &frame(1, 2, 1032, 0)), Claim::Excluded);
        let split = source("udp://:5000?threads=split");
        let opened = take(&mut unclaimed, &split, &frame(1, 2, 1032, 0));
        assert!(matches!(opened, Claim::Open(_, frames) if frames.len() == 1));
    }

    #[test]
    fn what_is_no_frame_is_not_handed_back() {
        let mut handed = HandedBack::default();
        assert_eq!(handed.push(FrameCodec::VDIF, b"rubbish", 0), Handed::NoFrame);
        assert_eq!(
            handed.push(FrameCodec::VDIF, &frame(1, 1, 1032, 0)[..1000], 0),
            Handed::NoFrame
        );
        let numbered = [vec![7; 8], frame(1, 1, 1032, 0)].concat();
        assert_eq!(
            handed.push(FrameCodec::VDIF, &numbered, 0),
            Handed::Back,
            "a whole frame lies in it"
        );
        handed.take();
        for number in 0..1024 {
            assert_eq!(handed.push(FrameCodec::VDIF, &frame(1, 1, 1032, number), 0), Handed::Back);
        }
        assert_eq!(handed.push(FrameCodec::VDIF, &frame(1, 1, 1032, 0), 0), Handed::NoRoom);
        assert_eq!(handed.take().len(), 1024);
    }
}
