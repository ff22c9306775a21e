//! The UDP ports that a packet capture has datagrams for.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use fullbore_capture::PacketFile;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_time::Tai;

/// The datagrams to one port of a capture, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of their payloads on the network.
    pub bytes: u64,
    /// Datagrams that are one frame each, by format, without and with a packet number of eight bytes before it.
    pub frames: BTreeMap<(FrameKind, bool), u64>,
    /// The times of the first and the last datagram.
    pub times: Option<(Tai, Tai)>,
}

impl Flow {
    /// The format of most of its datagrams, and whether a packet number precedes the frames.
    pub fn format(&self) -> Option<(FrameKind, bool)> {
        let (format, count) = self.frames.iter().max_by_key(|(_, count)| **count)?;
        (2 * count > self.packets).then_some(*format)
    }
}

/// Counts the datagrams of a capture by their destination port. Reads the whole file. Returns also the warnings about
/// it.
pub fn flows(path: &Path) -> io::Result<(BTreeMap<u16, Flow>, Vec<String>)> {
    let mut file = PacketFile::open(path)?;
    let mut flows = BTreeMap::<u16, Flow>::new();
    loop {
        while let Some(found) = file.next_here()? {
            let (Some(datagram), now) = (file.datagram(&found), file.time().unwrap_or(Tai(0)))
            else {
                continue;
            };
            let flow = flows.entry(datagram.port).or_default();
            flow.packets += 1;
            flow.bytes += datagram.bytes as u64;
            flow.times = Some((flow.times.map_or(now, |(first, _)| first), now));
            for &kind in FrameKind::ALL {
                for strip in [0, 8] {
                    let frame = datagram.payload.get(strip..).unwrap_or_default();
                    if FrameCodec::new(kind, now).check(frame, frame.len()).is_ok() {
                        *flow.frames.entry((kind, strip > 0)).or_default() += 1;
                    }
                }
            }
        }
        if file.is_over() {
            return Ok((flows, file.take_warnings()));
        }
        file.read()?;
    }
}
