//! A stream of a port, indexed or not, behind one interface.

use std::sync::Arc;

use fullbore_core::account::CountedBy;
use fullbore_core::manifest::Format;
use fullbore_linux::ring::Pool;
use fullbore_time::Tai;
use uuid::Uuid;

use super::reassembler::{CaptureResources, Reassembler};
use super::scan_stream::{ScanContext, ScanStream, StreamLayout, StreamMetrics};
use super::sequential::SequentialStream;

/// A stream of a port.
pub enum CaptureStream {
    /// An indexed stream.
    Placed(Box<Reassembler>),
    /// A sequential stream.
    Arrived(Box<SequentialStream>),
}

impl CaptureStream {
    /// The layout.
    pub fn shape(&self) -> &StreamLayout {
        match self {
            CaptureStream::Placed(placed) => placed.shape(),
            CaptureStream::Arrived(arrived) => arrived.shape(),
        }
    }

    /// The format of its frames.
    pub fn format(&self) -> Format {
        match self {
            CaptureStream::Placed(placed) => placed.format(),
            CaptureStream::Arrived(arrived) => arrived.format(),
        }
    }

    /// The metrics.
    pub fn gauge(&self) -> &Arc<StreamMetrics> {
        match self {
            CaptureStream::Placed(placed) => placed.gauge(),
            CaptureStream::Arrived(arrived) => arrived.gauge(),
        }
    }

    /// True if a datagram belongs to it.
    pub fn owns(&self, head: &[u8], frame: &[u8], bytes: usize) -> bool {
        match self {
            CaptureStream::Placed(placed) => placed.owns(head, frame, bytes),
            CaptureStream::Arrived(arrived) => arrived.owns(frame),
        }
    }

    /// Processes one datagram.
    pub fn ingest(&mut self, datagram: &[u8], lent: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Placed(placed) => placed.ingest(datagram, lent),
            CaptureStream::Arrived(arrived) => arrived.ingest(datagram, lent),
        }
    }

    /// Returns the datagrams that may belong to other streams.
    pub fn take_handed_back(&mut self) -> Vec<Vec<u8>> {
        match self {
            CaptureStream::Placed(placed) => placed.take_handed_back(),
            CaptureStream::Arrived(arrived) => arrived.take_handed_back(),
        }
    }

    /// Returns the scan stream of new frames.
    pub fn newest(&mut self) -> &mut ScanStream {
        match self {
            CaptureStream::Placed(placed) => placed.part_of_new(),
            CaptureStream::Arrived(arrived) => arrived.newest(),
        }
    }

    /// Ends the scan and begins the next, at once or with the next block.
    pub fn cut(&mut self, context: Arc<ScanContext>, lent: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Placed(placed) => placed.cut(context, lent),
            CaptureStream::Arrived(arrived) => arrived.cut(context, lent),
        }
    }

    /// Ends the wait for the next block.
    pub fn cut_now(&mut self, lent: &mut CaptureResources<'_>) {
        if let CaptureStream::Placed(placed) = self
            && placed.cutting()
        {
            placed.cut_now(lent);
        }
    }

    /// Releases frames held at a second boundary that have waited long enough, or all of them.
    pub fn cross_border(&mut self, at_once: bool, lent: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Placed(placed) => placed.cross_border(at_once, lent),
            CaptureStream::Arrived(arrived) => arrived.cross_border(at_once, lent),
        }
    }

    /// Journals old data of partial blocks.
    pub fn journal_partial_blocks(&mut self, lent: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Placed(placed) => placed.journal_partial_blocks(lent),
            CaptureStream::Arrived(arrived) => arrived.journal_partial_blocks(lent),
        }
    }

    /// Ends the last scan.
    pub fn end(&mut self, lent: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Placed(placed) => placed.end(lent),
            CaptureStream::Arrived(arrived) => arrived.end(lent),
        }
    }

    /// Updates the metrics for screens.
    pub fn tell(&self, pool: &Pool) {
        match self {
            CaptureStream::Placed(placed) => placed.tell(pool),
            CaptureStream::Arrived(arrived) => arrived.tell(pool),
        }
    }

    /// Returns a warning about its frames, once.
    pub fn complaint(&mut self) -> Option<String> {
        match self {
            CaptureStream::Placed(placed) => placed.complaint(),
            CaptureStream::Arrived(arrived) => arrived.complaint(),
        }
    }

    /// Returns the scan stream of a scan.
    pub fn part_mut(&mut self, scan: Uuid) -> Option<&mut ScanStream> {
        match self {
            CaptureStream::Placed(placed) => placed.part_mut(scan),
            CaptureStream::Arrived(arrived) => arrived.part_mut(scan),
        }
    }

    /// Returns the oldest scan stream if it is complete.
    pub fn take_complete(&mut self, now: Tai) -> Option<(ScanStream, CountedBy)> {
        match self {
            CaptureStream::Placed(placed) => placed.take_complete(),
            CaptureStream::Arrived(arrived) => arrived.take_complete(now),
        }
    }

    /// True if every scan stream has been taken.
    pub fn is_done(&self) -> bool {
        match self {
            CaptureStream::Placed(placed) => placed.is_done(),
            CaptureStream::Arrived(arrived) => arrived.is_done(),
        }
    }
}
