//! A stream of a port, of either kind: what a port asks of all of its streams alike.

use std::sync::Arc;

use fullbore_core::account::CountedBy;
use fullbore_core::manifest::Format;
use fullbore_core::time::Tai;
use uuid::Uuid;

use super::arrived::Arrived;
use super::part::{Opening, Part, Shape, StreamGauge};
use super::placed::{Lent, Placed};
use crate::ring::Pool;

/// A stream of a port.
pub enum Stream {
    /// Its frames have places.
    Placed(Box<Placed>),
    /// They lie as they come.
    Arrived(Box<Arrived>),
}

impl Stream {
    /// What is fixed of it.
    pub fn shape(&self) -> &Shape {
        match self {
            Stream::Placed(placed) => placed.shape(),
            Stream::Arrived(arrived) => arrived.shape(),
        }
    }

    /// What its frames are.
    pub fn format(&self) -> Format {
        match self {
            Stream::Placed(placed) => placed.format(),
            Stream::Arrived(arrived) => arrived.format(),
        }
    }

    /// Its counters.
    pub fn gauge(&self) -> &Arc<StreamGauge> {
        match self {
            Stream::Placed(placed) => placed.gauge(),
            Stream::Arrived(arrived) => arrived.gauge(),
        }
    }

    /// Whether a datagram belongs to it.
    pub fn owns(&self, head: &[u8], frame: &[u8], bytes: usize) -> bool {
        match self {
            Stream::Placed(placed) => placed.owns(head, frame, bytes),
            Stream::Arrived(arrived) => arrived.owns(frame),
        }
    }

    /// Takes one datagram.
    pub fn ingest(&mut self, datagram: &[u8], lent: &mut Lent<'_>) {
        match self {
            Stream::Placed(placed) => placed.ingest(datagram, lent),
            Stream::Arrived(arrived) => arrived.ingest(datagram, lent),
        }
    }

    /// Datagrams that were given to it and may belong to other streams.
    pub fn take_handed_back(&mut self) -> Vec<Vec<u8>> {
        match self {
            Stream::Placed(placed) => placed.take_handed_back(),
            Stream::Arrived(arrived) => arrived.take_handed_back(),
        }
    }

    /// The part that new frames belong to.
    pub fn newest(&mut self) -> &mut Part {
        match self {
            Stream::Placed(placed) => placed.part_of_new(),
            Stream::Arrived(arrived) => arrived.newest(),
        }
    }

    /// Ends the scan and begins the next, at once or with the next block.
    pub fn cut(&mut self, opening: Arc<Opening>, lent: &mut Lent<'_>) {
        match self {
            Stream::Placed(placed) => placed.cut(opening, lent),
            Stream::Arrived(arrived) => arrived.cut(opening, lent),
        }
    }

    /// Does not wait for the next block any longer.
    pub fn cut_now(&mut self, lent: &mut Lent<'_>) {
        if let Stream::Placed(placed) = self
            && placed.cutting()
        {
            placed.cut_now(lent);
        }
    }

    /// Takes frames held at a border between seconds that have waited long enough, or all of them.
    pub fn cross_border(&mut self, at_once: bool, lent: &mut Lent<'_>) {
        match self {
            Stream::Placed(placed) => placed.cross_border(at_once, lent),
            Stream::Arrived(arrived) => arrived.cross_border(at_once, lent),
        }
    }

    /// Has kept what is in blocks that are not full, once that is old.
    pub fn keep_tail(&mut self, lent: &mut Lent<'_>) {
        match self {
            Stream::Placed(placed) => placed.keep_tail(lent),
            Stream::Arrived(arrived) => arrived.keep_tail(lent),
        }
    }

    /// Ends the last scan.
    pub fn end(&mut self, lent: &mut Lent<'_>) {
        match self {
            Stream::Placed(placed) => placed.end(lent),
            Stream::Arrived(arrived) => arrived.end(lent),
        }
    }

    /// Brings the counters for screens up to date.
    pub fn tell(&self, pool: &Pool) {
        match self {
            Stream::Placed(placed) => placed.tell(pool),
            Stream::Arrived(arrived) => arrived.tell(pool),
        }
    }

    /// What is wrong with its frames, once.
    pub fn complaint(&mut self) -> Option<String> {
        match self {
            Stream::Placed(placed) => placed.complaint(),
            Stream::Arrived(arrived) => arrived.complaint(),
        }
    }

    /// Its part in a scan.
    pub fn part_mut(&mut self, scan: Uuid) -> Option<&mut Part> {
        match self {
            Stream::Placed(placed) => placed.part_mut(scan),
            Stream::Arrived(arrived) => arrived.part_mut(scan),
        }
    }

    /// Takes the oldest part if it is complete.
    pub fn take_complete(&mut self, now: Tai) -> Option<(Part, CountedBy)> {
        match self {
            Stream::Placed(placed) => placed.take_complete(),
            Stream::Arrived(arrived) => arrived.take_complete(now),
        }
    }

    /// Whether every part has been taken.
    pub fn is_done(&self) -> bool {
        match self {
            Stream::Placed(placed) => placed.is_done(),
            Stream::Arrived(arrived) => arrived.is_done(),
        }
    }
}
