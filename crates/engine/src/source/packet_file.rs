//! The datagrams to one UDP port in a packet capture, as a source. Frames of samples in a file with gaps are one too.
//!
//! They take the way of datagrams from a socket, so the account is that of a live recording. The source waits while no
//! block is free, and loses nothing. Each source reads the file itself, in a capture thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_capture::{
    Capture, DatagramInput, FileInput, PacketFile, Port, SampleFrames, SampleFramesInput, Settings,
    SinkChain, Sizes,
};
use fullbore_core::account::CountedBy;
use fullbore_core::endpoint::UdpSource;
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_linux::sys::memory::Region;
use fullbore_time::Tai;

use super::{CaptureLink, Ending, MemoryNeeds, OpenContext, OpenRequest, OpenSource, Source};
use crate::error::RecordError;

/// Default block memory: what the writers of a few disks hold, and as much again.
const POOL_BYTES: u64 = 128 << 20;

/// The least block memory.
const LEAST_POOL_BYTES: u64 = 16 << 20;

/// The datagrams to one port in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketFileSource {
    /// The capture.
    pub path: PathBuf,
    /// The selection and format of the datagrams. Its endpoint names the file.
    pub udp: UdpSource,
    /// What the file holds.
    pub content: Content,
}

/// What a file with datagrams holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Packets of a network.
    Packets,
    /// Samples, which become datagrams with an index before each frame; and sentences about the file.
    Samples(SampleFrames, Vec<String>),
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
pub(crate) struct OpenPacketFile(Port, Vec<String>);

impl OpenPacketFile {
    /// Opens the file, and maps the block memory.
    pub fn open(
        config: &PacketFileSource,
        request: &OpenRequest<'_>,
        context: &OpenContext,
    ) -> Result<Self, RecordError> {
        let path = config.path.clone();
        let (input, notes) =
            open_input(config).map_err(|source| RecordError::File { path, source })?;
        let sizes = Sizes {
            pool_bytes: request.pool_bytes as usize,
            chunk_bytes: context.chunk_bytes,
            buffer_bytes: 0,
        };
        let number = request.number.expect("the stream of a packet capture is known");
        let (next, udp) = (context.next_number.clone(), config.udp.clone());
        let mut port = Port::of_file(input, request.node, udp, number, next, sizes)?;
        port.share_names(&context.names);
        if context.one_stream {
            port.keep_to_one_stream();
        }
        Ok(Self(port, notes))
    }
}

/// The datagrams of a file, and sentences about it.
fn open_input(config: &PacketFileSource) -> io::Result<(Box<dyn DatagramInput>, Vec<String>)> {
    Ok(match &config.content {
        Content::Packets => {
            (Box::new(FileInput::open(&config.path, config.udp.clone())?), Vec::new())
        }
        Content::Samples(frames, notes) => {
            (Box::new(SampleFramesInput::open(&config.path, frames)?), notes.clone())
        }
    })
}

impl OpenSource for OpenPacketFile {
    fn memory(&self) -> Vec<Arc<Region>> {
        vec![self.0.region().clone()]
    }

    fn most_blocks(&self) -> usize {
        self.0.most_blocks()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warning().into_iter().chain(self.1.iter().cloned()).collect()
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
