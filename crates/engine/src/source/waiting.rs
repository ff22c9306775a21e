//! Frames from an input that waits for its reader: a packet capture, a TCP connection, or a file of samples
//! with gaps.
//!
//! They take the way of datagrams from a socket, so the account is that of a live recording. The source waits while no
//! block is free, and loses nothing. Each source reads its input itself, in a capture thread of its own.

use std::path::PathBuf;
use std::sync::Arc;

use fullbore_capture::{
    Capture, DatagramInput, FileInput, Port, SampleFrames, SampleFramesInput, Settings, SinkChain,
    Sizes, TcpInput,
};
use fullbore_core::account::CountedBy;
use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::layout::BLOCK_BYTES;
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_core::units::ByteSize;
use fullbore_formats::framing::Framing;
use fullbore_linux::sys::memory::Region;

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

/// Where the frames come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitingInput {
    /// The datagrams to one port in a packet capture.
    PacketFile(PathBuf),
    /// A TCP connection.
    Tcp {
        /// The server, as `host:port`.
        server: String,
        /// The division of its bytes into frames.
        framing: Framing,
    },
    /// Samples with gaps in a file: datagrams with an index before each frame.
    Samples {
        /// The file of samples.
        path: PathBuf,
        /// Its frames.
        frames: SampleFrames,
        /// Sentences about the file.
        notes: Vec<String>,
    },
}

/// Frames from an input that waits for its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingSource {
    /// Where they come from.
    pub input: WaitingInput,
    /// Their format, as that of datagrams. Its endpoint names the input.
    pub udp: UdpSource,
}

impl Source for WaitingSource {
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

impl WaitingInput {
    fn open(&self, udp: &UdpSource) -> Result<Box<dyn DatagramInput>, RecordError> {
        match self {
            Self::PacketFile(path) => {
                let error = |source| RecordError::File { path: path.clone(), source };
                Ok(Box::new(FileInput::open(path, udp.clone()).map_err(error)?))
            }
            Self::Tcp { server, framing } => {
                let error = |source| RecordError::Connect { server: server.clone(), source };
                Ok(Box::new(TcpInput::connect(server, *framing).map_err(error)?))
            }
            Self::Samples { path, frames, .. } => {
                let error = |source| RecordError::File { path: path.clone(), source };
                Ok(Box::new(SampleFramesInput::open(path, frames).map_err(error)?))
            }
        }
    }

    fn notes(&self) -> Vec<String> {
        match self {
            Self::Samples { notes, .. } => notes.clone(),
            Self::PacketFile(_) | Self::Tcp { .. } => Vec::new(),
        }
    }
}

/// An open input with its block memory.
pub(crate) struct OpenWaiting(Port, Vec<String>);

impl OpenWaiting {
    /// Opens the file or the connection, and maps the block memory.
    pub fn open(
        config: &WaitingSource,
        request: &OpenRequest<'_>,
        context: &OpenContext,
    ) -> Result<Self, RecordError> {
        let input = config.input.open(&config.udp)?;
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
        let mut port = Port::with_input(input, request.node, udp, number, next, sizes)?;
        port.share_names(&context.names);
        if context.one_stream {
            port.keep_to_one_stream();
        }
        Ok(Self(port, config.input.notes()))
    }
}

impl OpenSource for OpenWaiting {
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
