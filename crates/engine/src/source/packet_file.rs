//! The UDP ports that a packet capture has datagrams for.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use fullbore_capture::PacketFile;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::vita49;
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
    /// Datagrams that are one packet of VITA-49 each, and how many of them keep the rules of DIFI.
    pub vita49: (u64, u64),
    /// The times of the first and the last datagram.
    pub times: Option<(Tai, Tai)>,
}

impl Flow {
    /// The format of most of its datagrams, and whether a packet number precedes the frames.
    pub fn format(&self) -> Option<(FrameKind, bool)> {
        let (format, count) = self.frames.iter().max_by_key(|(_, count)| **count)?;
        (2 * count > self.packets).then_some(*format)
    }

    /// True if most of its datagrams are packets of VITA-49.
    pub fn is_vita49(&self) -> bool {
        2 * self.vita49.0 > self.packets
    }

    /// The format of most of its datagrams, as `format=` takes it.
    pub fn format_parameter(&self) -> Option<String> {
        let of_frames = self.format().map(|(kind, numbered)| match (kind.name(), numbered) {
            ("vdif", true) => "vtp".to_owned(),
            (name, true) => format!("{name}&psn=true"),
            (name, false) => name.to_owned(),
        });
        let packets = || if self.vita49.0 == self.vita49.1 { "difi" } else { "vita49" }.to_owned();
        of_frames.or_else(|| self.is_vita49().then(packets))
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
            if let Ok(packet) = vita49::Packet::read(datagram.payload) {
                flow.vita49.0 += 1;
                flow.vita49.1 += u64::from(vita49::difi::check(&packet.prologue).is_ok());
            }
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
