//! The datagrams to one UDP port in a packet capture, as a source.
//!
//! They take the way of datagrams from a socket, so the account is that of a live recording. The source waits while no
//! block is free, and loses nothing. Each source reads the file itself, in a capture thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_capture::{Capture, FileInput, PacketFile, Port, Settings, SinkChain, Sizes};
use fullbore_core::account::CountedBy;
use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::layout::BLOCK_BYTES;
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_core::units::ByteSize;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::vita49;
use fullbore_linux::sys::memory::Region;
use fullbore_time::Tai;

use super::{
    CaptureLink, Ending, MemoryNeeds, OpenContext, OpenRequest, OpenSource, Source, Streams,
};
use crate::error::RecordError;

/// Default block memory: what the writers of a few disks hold, and as much again.
const POOL_BYTES: u64 = 128 << 20;

/// The least block memory.
const LEAST_POOL_BYTES: u64 = 16 << 20;

/// The blocks in the memory of a capture that is split into streams.
const SPLIT_BLOCKS: u64 = 256;

/// The datagrams to one port in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketFileSource {
    /// The capture.
    pub path: PathBuf,
    /// The selection and format of the datagrams. Its endpoint names the file.
    pub udp: UdpSource,
}

impl Source for PacketFileSource {
    fn name(&self) -> &Name {
        &self.udp.name
    }

    fn endpoint(&self) -> String {
        self.udp.endpoint.to_string()
    }

    fn format(&self) -> Format {
        Source::format(&self.udp)
    }

    fn counted_by(&self) -> CountedBy {
        Source::counted_by(&self.udp)
    }

    fn fill(&self) -> Fill {
        self.udp.fill
    }

    fn stripped_bytes(&self) -> u32 {
        Source::stripped_bytes(&self.udp)
    }

    fn has_varying_frames(&self) -> bool {
        self.udp.varying
    }

    fn frames_per_second(&self) -> Option<u64> {
        self.udp.frames_per_second
    }

    fn streams(&self) -> Streams {
        Source::streams(&self.udp)
    }

    fn memory(&self) -> MemoryNeeds {
        MemoryNeeds::Fixed { default: POOL_BYTES, least: LEAST_POOL_BYTES }
    }

    fn most_block_bytes(&self) -> u64 {
        self.udp.most_block_bytes()
    }

    fn least_chunk_bytes(&self, pool_bytes: u64) -> u64 {
        self.udp.least_chunk_bytes(pool_bytes)
    }

    fn ending(&self) -> Ending {
        Ending::LastByte
    }

    fn can_wait(&self) -> bool {
        true
    }
}

/// An open capture with its block memory.
pub(crate) struct OpenPacketFile(Port);

impl OpenPacketFile {
    /// Opens the file, and maps the block memory.
    pub fn open(
        config: &PacketFileSource,
        request: &OpenRequest<'_>,
        context: &OpenContext,
    ) -> Result<Self, RecordError> {
        let path = config.path.clone();
        let input = FileInput::open(&config.path, config.udp.clone())
            .map_err(|source| RecordError::File { path, source })?;
        let sizes = Sizes {
            pool_bytes: request.pool_bytes as usize,
            chunk_bytes: context.chunk_bytes,
            buffer_bytes: 0,
        };
        let (next, mut udp) = (context.next_number.clone(), config.udp.clone());
        if udp.threads == Threads::Split && udp.block.is_none() {
            // Each stream holds the blocks of its window while the others are read.
            udp.block =
                Some(ByteSize((request.pool_bytes / SPLIT_BLOCKS).clamp(1 << 16, BLOCK_BYTES)));
        }
        let number = request.number.unwrap_or(u16::MAX);
        let mut port = Port::of_file(input, request.node, udp, number, next, sizes)?;
        port.share_names(&context.names);
        if context.one_stream {
            port.keep_to_one_stream();
        }
        Ok(Self(port))
    }
}

impl OpenSource for OpenPacketFile {
    fn memory(&self) -> Vec<Arc<Region>> {
        vec![self.0.region().clone()]
    }

    fn most_blocks(&self) -> usize {
        self.0.most_blocks()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warning().into_iter().collect()
    }

    fn start(self: Box<Self>, link: CaptureLink) -> Result<Capture, RecordError> {
        let settings = Settings { thread_config: link.thread_config, hold: link.hold };
        Capture::start(link.number, vec![self.0], SinkChain::new(link.sinks), link.events, settings)
            .map_err(RecordError::Thread)
    }
}

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
