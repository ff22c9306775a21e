//! Capture of datagrams: from a socket's batches to blocks in the queues of the writers, with every frame counted.
//!
//! ```text
//! socket ──► port ──► detect ──► reassembler │ sequential ──► striper ──► queue of a writer
//!              └────────── window: missing, late, duplicate, overrun ──────────┘
//! ```
//!
//! - [`Capture`]: the capture thread, which serves several ports
//! - [`DatagramInput`]: where the datagrams of a port come from: a socket, a [packet ring](RingInput), [XDP
//!   sockets](XdpInput), a [packet capture](FileInput), a [TCP connection](TcpInput), or [samples with
//!   gaps](SampleFramesInput) in a file
//! - [`Port`]: an input and its streams, as detected from the first datagrams
//! - [`window`]: the open part of a stream, in which frames are put in order
//! - [`Striper`]: the choice of a target for each block
//! - [`CaptureEvent`], [`CaptureCommand`]: the talk with the recorder, for sources of every kind
//!
//! It may touch sockets, block memory and queues through [`fullbore_linux`], and hand the blocks that are not full to
//! the journal of [`fullbore_store`]. Of files, it opens packet captures alone, and it knows no recorder.

mod capture;
pub mod checksum;
mod detect;
mod drops;
mod frame_parts;
mod input;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_writers;
mod names;
mod packet_file;
mod packet_filter;
mod packet_ring;
mod partial_block;
mod port;
mod reassembler;
mod resync;
mod sample_frames;
mod scan_stream;
mod second_boundary;
mod sequential;
mod sink_chain;
mod staging;
mod stream;
mod striping;
mod takers;
mod tcp_input;
mod unclaimed;
pub mod window;
mod xdp;

pub use capture::{Capture, CaptureCommand, Settings};
pub use detect::{stripped_bytes, wanted_block_bytes};
pub use input::{CounterName, DatagramInput};
pub use names::StreamNames;
pub use packet_file::{FileInput, Found, PacketFile};
pub use packet_ring::{RingError, RingInput, open as open_ring};
pub use port::{
    AMPLE_BLOCKS, CUT_PATIENCE, Port, PortError, PortMetrics, Sizes, TooFewBlocks, listen,
};
pub use sample_frames::{FrameRun, INDEX_BYTES, SampleFrames, SampleFramesInput};
pub use scan_stream::{
    CaptureEvent, ScanContext, ScanStream, SinkShare, SourceEnd, StreamLayout, StreamMetrics,
    StreamTotals, discovered,
};
pub use sink_chain::{
    ChainCursor, Settled, Share, SinkChain, SinkQueues, SinkReply, WrittenBlock, scan_in_store,
};
pub use staging::StagingBuffer;
pub use striping::{StripeCursor, Striper, WriterQueue};
pub use tcp_input::TcpInput;
pub use xdp::{Copies, XdpError, XdpInput, XdpInputs, open as open_xdp};
