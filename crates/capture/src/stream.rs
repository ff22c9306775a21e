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
    Indexed(Box<Reassembler>),
    /// A sequential stream.
    Unindexed(Box<SequentialStream>),
}

impl CaptureStream {
    /// The layout.
    pub fn shape(&self) -> &StreamLayout {
        match self {
            CaptureStream::Indexed(indexed) => indexed.shape(),
            CaptureStream::Unindexed(unindexed) => unindexed.shape(),
        }
    }

    /// The format of its frames.
    pub fn format(&self) -> Format {
        match self {
            CaptureStream::Indexed(indexed) => indexed.format(),
            CaptureStream::Unindexed(unindexed) => unindexed.format(),
        }
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<StreamMetrics> {
        match self {
            CaptureStream::Indexed(indexed) => indexed.metrics(),
            CaptureStream::Unindexed(unindexed) => unindexed.metrics(),
        }
    }

    /// True if a datagram belongs to it.
    pub fn owns(&self, head: &[u8], frame: &[u8], bytes: usize) -> bool {
        match self {
            CaptureStream::Indexed(indexed) => indexed.owns(head, frame, bytes),
            CaptureStream::Unindexed(unindexed) => unindexed.owns(frame),
        }
    }

    /// Processes one datagram.
    pub fn ingest(&mut self, datagram: &[u8], resources: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Indexed(indexed) => indexed.ingest(datagram, resources),
            CaptureStream::Unindexed(unindexed) => unindexed.ingest(datagram, resources),
        }
    }

    /// Returns the datagrams that may belong to other streams.
    pub fn take_handed_back(&mut self) -> Vec<Vec<u8>> {
        match self {
            CaptureStream::Indexed(indexed) => indexed.take_handed_back(),
            CaptureStream::Unindexed(unindexed) => unindexed.take_handed_back(),
        }
    }

    /// Returns the scan stream of new frames.
    pub fn newest(&mut self) -> &mut ScanStream {
        match self {
            CaptureStream::Indexed(indexed) => indexed.part_of_new(),
            CaptureStream::Unindexed(unindexed) => unindexed.newest(),
        }
    }

    /// Ends the scan and begins the next, at once or with the next block.
    pub fn cut(&mut self, context: Arc<ScanContext>, resources: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Indexed(indexed) => indexed.cut(context, resources),
            CaptureStream::Unindexed(unindexed) => unindexed.cut(context, resources),
        }
    }

    /// Ends the wait for the next block.
    pub fn cut_now(&mut self, resources: &mut CaptureResources<'_>) {
        if let CaptureStream::Indexed(indexed) = self
            && indexed.cutting()
        {
            indexed.cut_now(resources);
        }
    }

    /// Releases frames held at a second boundary that have waited long enough, or all of them.
    pub fn cross_border(&mut self, at_once: bool, resources: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Indexed(indexed) => indexed.cross_border(at_once, resources),
            CaptureStream::Unindexed(unindexed) => unindexed.cross_border(at_once, resources),
        }
    }

    /// Journals old data of partial blocks.
    pub fn journal_partial_blocks(&mut self, resources: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Indexed(indexed) => indexed.journal_partial_blocks(resources),
            CaptureStream::Unindexed(unindexed) => unindexed.journal_partial_blocks(resources),
        }
    }

    /// Ends the last scan.
    pub fn end(&mut self, resources: &mut CaptureResources<'_>) {
        match self {
            CaptureStream::Indexed(indexed) => indexed.end(resources),
            CaptureStream::Unindexed(unindexed) => unindexed.end(resources),
        }
    }

    /// Updates the metrics for screens.
    pub fn tell(&self, pool: &Pool) {
        match self {
            CaptureStream::Indexed(indexed) => indexed.tell(pool),
            CaptureStream::Unindexed(unindexed) => unindexed.tell(pool),
        }
    }

    /// Returns a warning about its frames, once.
    pub fn complaint(&mut self) -> Option<String> {
        match self {
            CaptureStream::Indexed(indexed) => indexed.complaint(),
            CaptureStream::Unindexed(unindexed) => unindexed.complaint(),
        }
    }

    /// Returns the scan stream of a scan.
    pub fn part_mut(&mut self, scan: Uuid) -> Option<&mut ScanStream> {
        match self {
            CaptureStream::Indexed(indexed) => indexed.part_mut(scan),
            CaptureStream::Unindexed(unindexed) => unindexed.part_mut(scan),
        }
    }

    /// Returns the oldest scan stream if it is complete.
    pub fn take_complete(&mut self, now: Tai) -> Option<(ScanStream, CountedBy)> {
        match self {
            CaptureStream::Indexed(indexed) => indexed.take_complete(),
            CaptureStream::Unindexed(unindexed) => unindexed.take_complete(now),
        }
    }

    /// True if every scan stream has been taken.
    pub fn is_done(&self) -> bool {
        match self {
            CaptureStream::Indexed(indexed) => indexed.is_done(),
            CaptureStream::Unindexed(unindexed) => unindexed.is_done(),
        }
    }
}
