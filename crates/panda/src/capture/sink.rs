//! The sink for blocks of certified samples.

use std::sync::Arc;
use std::time::Duration;

use fullbore_core::panda::{AcquisitionResult, SourceEvent};
use fullbore_formats::panda::Header;
use fullbore_linux::ring::Block;
use fullbore_time::Tai;

use super::described::Described;

/// One acquisition: from ARM to END.
#[derive(Clone, Debug)]
pub struct Acquisition {
    /// Counted from 1 since the recorder began.
    pub number: u64,
    /// The header from the PandA.
    pub header: Header,
    /// The text of the header as received.
    pub text: String,
    /// Arrival of the header.
    pub seen: Tai,
    /// The PandA's settings at that time.
    pub settings: Described,
}

/// Certified samples in a block.
#[derive(Debug)]
pub struct Batch {
    /// The memory. Its first `bytes` bytes are valid and hold whole samples.
    pub block: Block,
    /// The number of valid bytes.
    pub bytes: usize,
    /// Index of the first sample. The others follow without a hole, unless the sink takes only full blocks.
    pub first: u64,
    /// Time from the arrival of the first sample until the batch was passed on.
    pub over: Duration,
}

/// The stop request of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopRequest {
    /// Continue.
    Go,
    /// Write the samples that are held, then end.
    Stop,
    /// End now.
    Abort,
}

/// The sink is closed; it reports the reason elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkClosed;

/// Takes blocks of certified samples and gives them back empty.
pub trait AcquisitionSink {
    /// The current stop request.
    fn stop_request(&mut self) -> StopRequest;

    /// The number of bytes of a block that are filled: a multiple of `sample_bytes`, at most `stride`.
    fn block_bytes(&self, sample_bytes: usize, stride: usize) -> usize;

    /// Time after which a partly filled block is passed on; `None`: only at the end.
    fn hand_on_after(&self) -> Option<Duration>;

    /// True if the sink can take a new acquisition. Until then the PandA is not armed.
    fn is_ready(&mut self) -> bool {
        true
    }

    /// An acquisition begins.
    fn begin(&mut self, acquisition: &Arc<Acquisition>) -> Result<(), SinkClosed>;

    /// Takes samples.
    fn filled(&mut self, batch: Batch);

    /// Takes a copy of certified samples of a block that will be passed on only when it is full, if the samples are
    /// old. They are the beginning of the next block.
    fn keep(&mut self, _samples: &[u8], _old: Duration) {}

    /// Returns an empty block; waits for it at most `wait`.
    fn emptied(&mut self, wait: Duration) -> Result<Option<Block>, SinkClosed>;

    /// The source reports an event.
    fn report(&mut self, _event: SourceEvent) {}

    /// The acquisition has ended; all of its blocks were passed on.
    fn end(&mut self, closed: AcquisitionResult);
}
