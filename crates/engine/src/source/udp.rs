//! Datagram capture: sockets, frame detection, reassembly and striping.
//!
//! ```text
//! port ──► detect: format and streams
//!      ──► reassembler   indexed streams: slots predicted, checked, repaired             ─┐ FullBlock
//!      └─► sequential    unindexed streams: in receive order, threads or varying lengths ─┴──────► striping ──► members
//! ```
//!
//! A capture thread serves many ports. It never waits for a disk. When no block is free, it keeps reading and counts
//! the frames as *overrun*.

use std::any::Any;
use std::sync::Arc;

use fullbore_capture::{
    AMPLE_BLOCKS, Capture, DatagramInput, Port, Settings, Sizes, StagingBuffer, listen,
    stripped_bytes, wanted_block_bytes,
};
use fullbore_core::account::CountedBy;
use fullbore_core::endpoint::{Gro, SourceFormat, Threads, UdpSource};
use fullbore_core::layout::{BLOCK_BYTES, Geometry};
use fullbore_core::manifest::{Fill, Format, SourceEngine};
use fullbore_core::name::Name;
use fullbore_core::units::ByteSize;
use fullbore_linux::sys::memory::Region;

use super::receive_engine::{self, Chosen};
use super::{
    CaptureLink, Ending, MemoryNeeds, OpenContext, OpenRequest, OpenSource, Source, SourceConfig,
    Streams,
};
use crate::error::RecordError;
use crate::topology::NetworkPath;
use fullbore_capture::SinkChain;

/// Default receive buffer of each socket. The kernel doubles it; it holds 30 ms at 16 Gbit/s.
pub(super) const RECEIVE_BUFFER: u64 = 64 << 20;

/// Receive buffer of a socket that is opened for a check only.
const LITTLE_BUFFER: usize = 1 << 16;

/// The least block memory of a source whose rate is not known.
pub(crate) const LEAST_POOL_BYTES: u64 = 16 << 20;

/// The least block memory of a source whose rate is known to be slow.
const LEAST_SLOW_BYTES: u64 = 2 << 20;

/// The expected number of streams of a port that is split into its threads.
const SPLIT_INTO: u64 = 16;

impl Source for UdpSource {
    fn name(&self) -> &Name {
        &self.name
    }

    fn endpoint(&self) -> String {
        self.endpoint.to_string()
    }

    fn format(&self) -> Format {
        match self.format {
            SourceFormat::Frames(kind) => Format::Frames {
                kind,
                frames_per_second: self.frames_per_second,
                derived: false,
                threads: Vec::new(),
            },
            SourceFormat::Packets { format, .. } => Format::Packets { kind: format.kind() },
            SourceFormat::Raw => Format::Raw,
        }
    }

    fn counted_by(&self) -> CountedBy {
        UdpSource::counted_by(self)
    }

    fn fill(&self) -> Fill {
        self.fill
    }

    fn stripped_bytes(&self) -> u32 {
        stripped_bytes(self)
    }

    fn has_varying_frames(&self) -> bool {
        self.varying
    }

    fn frames_per_second(&self) -> Option<u64> {
        self.frames_per_second
    }

    fn streams(&self) -> Streams {
        match self.threads {
            Threads::Split => Streams::Discovered(SPLIT_INTO),
            Threads::Together | Threads::Listed(_) => Streams::One,
        }
    }

    /// For threads that are not listed, it is the rate of one.
    fn rate(&self) -> Option<u64> {
        let threads = match &self.threads {
            Threads::Listed(threads) => threads.len() as u64,
            Threads::Together | Threads::Split => 1,
        };
        let of_thread = self.frames_per_second?.checked_mul(self.frame_bytes?.into())?;
        of_thread.checked_mul(threads)
    }

    /// A source that is known to be slow needs less than usual.
    fn memory(&self) -> MemoryNeeds {
        let block_bytes = block_bytes(self);
        let least = match self.rate() {
            Some(_) => {
                (AMPLE_BLOCKS as u64 * block_bytes).clamp(LEAST_SLOW_BYTES, LEAST_POOL_BYTES)
            }
            None => LEAST_POOL_BYTES,
        };
        MemoryNeeds::ForStall { block_bytes, least }
    }

    fn most_block_bytes(&self) -> u64 {
        self.block.map_or(BLOCK_BYTES, |size| size.0)
    }

    fn least_chunk_bytes(&self, pool_bytes: u64) -> u64 {
        wanted_block_bytes(self, pool_bytes as usize, None)
    }

    fn network(&self) -> Option<NetworkPath<'_>> {
        Some(NetworkPath { address: self.address.ip(), interface: self.interface.as_deref() })
    }

    fn ending(&self) -> Ending {
        Ending::Never
    }

    fn shares_thread(&self) -> bool {
        true
    }

    fn preflight(&self) -> Result<Box<dyn Any>, RecordError> {
        Ok(Box::new(listen(self, LITTLE_BUFFER)?))
    }
}

/// Returns the expected block size of a source.
fn block_bytes(source: &UdpSource) -> u64 {
    let wanted = wanted_block_bytes(source, usize::MAX, source.rate());
    let whole = source.frame_bytes.and_then(|bytes| Geometry::of_frames(bytes, wanted, 0).ok());
    whole.map_or(wanted, |geometry| geometry.block_bytes.into())
}

/// The open ports of one capture thread.
pub(crate) struct UdpPorts {
    ports: Vec<Port>,
    engines: Vec<SourceEngine>,
}

impl UdpPorts {
    /// Opens each socket, or what several sources share instead, and maps the block memory of each.
    pub fn open(requests: &[OpenRequest<'_>], context: &OpenContext) -> Result<Self, RecordError> {
        let sources: Vec<&UdpSource> = requests.iter().map(udp_source).collect();
        let Chosen { inputs, engines } = receive_engine::choose(&sources, context.shared_threads)?;
        let ports = requests.iter().zip(sources).zip(inputs);
        let ports =
            ports.map(|((request, source), input)| open_port(request, source, input, context));
        Ok(Self { ports: ports.collect::<Result<_, _>>()?, engines })
    }
}

fn udp_source<'a>(request: &OpenRequest<'a>) -> &'a UdpSource {
    let SourceConfig::Udp(source) = request.source else {
        unreachable!("the sources of a capture thread are of one kind")
    };
    source
}

fn open_port(
    request: &OpenRequest<'_>,
    source: &UdpSource,
    input: Option<Box<dyn DatagramInput>>,
    context: &OpenContext,
) -> Result<Port, RecordError> {
    let buffer = source.receive_buffer.map_or(RECEIVE_BUFFER, |size| size.0);
    let sizes = Sizes {
        pool_bytes: request.pool_bytes as usize,
        chunk_bytes: context.chunk_bytes,
        buffer_bytes: buffer as usize,
    };
    let number = request.number.unwrap_or(u16::MAX);
    let (next, mut source) = (context.next_number.clone(), source.clone());
    let mut port = match input {
        None => Port::open_near(request.node, source, number, next, sizes)?,
        Some(input) => {
            // A ring divides merged packets itself, and XDP has none.
            source.gro = Gro::Off;
            Port::with_input(input, request.node, source, number, next, sizes)?
        }
    };
    port.share_names(&context.names);
    if context.one_stream {
        port.keep_to_one_stream();
    }
    Ok(port)
}

impl OpenSource for UdpPorts {
    fn memory(&self) -> Vec<Arc<Region>> {
        self.ports.iter().map(Port::region).cloned().collect()
    }

    fn most_blocks(&self) -> usize {
        self.ports.iter().map(Port::most_blocks).sum()
    }

    fn receive_buffers(&self) -> Vec<usize> {
        self.ports.iter().map(|port| port.input().buffer_bytes()).collect()
    }

    fn warnings(&self) -> Vec<String> {
        let buffers = self.ports.iter().filter_map(small_buffer);
        buffers.chain(self.ports.iter().filter_map(Port::warning)).collect()
    }

    fn engines(&self) -> Vec<SourceEngine> {
        self.engines.clone()
    }

    /// Packets that have arrived so far belong to no scan.
    fn start(mut self: Box<Self>, link: CaptureLink) -> Result<Capture, RecordError> {
        let mut staging = StagingBuffer::new();
        for port in &mut self.ports {
            port.drain(&mut staging).map_err(RecordError::Thread)?;
        }
        let settings = Settings { thread_config: link.thread_config, hold: link.hold };
        Capture::start(link.number, self.ports, SinkChain::new(link.sinks), link.events, settings)
            .map_err(RecordError::Thread)
    }
}

/// Returns a warning if the buffer of a socket holds less than 50 ms of its stream, or is small if the rate is not
/// known.
fn small_buffer(port: &Port) -> Option<String> {
    let source = port.source();
    if port.input().counter().is_some() {
        // The memory of a ring, or of XDP, is shared, and holds the packets without the kernel's own structures.
        return None;
    }
    let held = port.input().buffer_bytes() as u64 / 2;
    let rate = source.frames_per_second.zip(source.frame_bytes);
    let needed = rate.map_or(16 << 20, |(fps, bytes)| fps * u64::from(bytes) / 20);
    (held < needed).then(|| {
        format!(
            "the receive buffer of {} holds {}, and 50 ms of its stream are {}; \
             allow more with `sysctl net.core.rmem_max={}`, or run with CAP_NET_ADMIN",
            source.endpoint,
            ByteSize(held),
            ByteSize(needed),
            RECEIVE_BUFFER,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(query: &str) -> UdpSource {
        UdpSource::parse(&format!("udp://0.0.0.0:46220?{query}")).unwrap().remove(0)
    }

    #[test]
    fn blocks_of_a_slow_stream_are_reckoned_as_small_as_they_will_be() {
        let block_bytes = |query: &str| block_bytes(&source(query));
        // Half a second of the stream, in whole frames that keep direct I/O aligned.
        assert_eq!(block_bytes("format=vdif&frame=8032&fps=250"), 8032 * 128);
        assert_eq!(block_bytes("format=vdif&frame=8192&fps=250"), 1_024_000 / 8192 * 8192);
        assert_eq!(block_bytes("format=vdif&frame=8032&fps=32000"), 8032 * 512);
        assert_eq!(block_bytes("format=vdif"), BLOCK_BYTES);
        assert_eq!(block_bytes("format=vdif&frame=8032&fps=250&block=2MiB"), 8032 * 256);
    }

    #[test]
    fn a_rate_is_known_beforehand_where_length_and_number_of_frames_are() {
        let rate = |query: &str| source(query).rate();
        assert_eq!(rate("format=vdif&frame=8032&fps=32000"), Some(8032 * 32_000));
        assert_eq!(rate("format=vdif&frame=8032&fps=1000&threads=0-3"), Some(4 * 8032 * 1000));
        assert_eq!(rate("format=vdif&fps=32000"), None);
        assert_eq!(rate("format=vdif&frame=8032"), None);
    }
}
