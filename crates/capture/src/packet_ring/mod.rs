//! Datagrams from a packet ring: the receive engine `packet`.
//!
//! The sources of a capture thread share one ring. The kernel writes packets into its blocks without waking the thread;
//! the thread gets a whole block, sorts it, and each source copies its datagrams to their slots.
//!
//! ```text
//! kernel ──► filter ──► ring of 1 MiB blocks ──► sorter ──┬─► queue of port 0 ──► slots of its blocks
//!                                                         └─► queue of port 1 ──► …
//! ```
//!
//! A UDP socket holds each port, joins its group and takes nothing. So senders are not told that the port is closed, and
//! no other program gets it.

mod open;
mod sorter;

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fullbore_core::account::Layer;
use fullbore_linux::sys::packet::PacketRing;
use fullbore_linux::sys::receive::{Received, Receiver};

use super::input::{CounterName, DatagramInput};

pub use open::{RingError, open};
pub(crate) use sorter::Sorter;

/// The time after which the kernel hands over a block that is not full, in milliseconds.
const RETIRE_MS: u32 = 8;

/// The longest time that a datagram waits in the kernel's block. It looks at a block twice before it hands it over, with
/// the resolution of its timer.
const LATENCY: Duration = Duration::from_millis(2 * RETIRE_MS as u64 + 10);

/// A ring of one protocol.
struct OneRing {
    ring: PacketRing,
    /// The time of the last discarding, until the block that the kernel filled at that time was sorted.
    discarded_ns: Option<i64>,
}

/// The ring that the sources of a capture thread share.
struct SharedRing {
    /// One for IPv4, one for IPv6.
    rings: Vec<OneRing>,
    /// The ring whose block is sorted.
    current: Option<usize>,
    sorter: Sorter,
    /// The name of its counter.
    scope: String,
    /// What its warnings have told.
    told: (u64, u64),
}

impl SharedRing {
    /// Sorts the next block that has a datagram for a source, if all of the one before were taken.
    fn sort_next(&mut self) {
        while self.sorter.is_done() {
            if let Some(done) = self.current.take() {
                self.rings[done].ring.give_back();
            }
            let (rings, sorter) = (&mut self.rings, &mut self.sorter);
            let found = rings.iter_mut().position(|one| match one.ring.block() {
                Some(block) => {
                    sorter.sort(block, one.discarded_ns.take().unwrap_or(0));
                    true
                }
                None => false,
            });
            if found.is_none() {
                return;
            }
            self.current = found;
        }
    }

    /// Copies the next datagrams of a source.
    fn receive(
        &mut self,
        queue: usize,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> usize {
        if self.sorter.is_empty(queue) {
            self.sort_next();
        }
        let Self { rings, current, sorter, .. } = self;
        let block = current.and_then(|ring| rings[ring].ring.block()).unwrap_or_default();
        let messages = received.iter_mut().zip(slices.chunks_exact_mut(per_message));
        let mut count = 0;
        for (message, parts) in messages {
            let Some(next) = sorter.take(queue) else { break };
            let payload = next.payload(block);
            scatter(payload, parts);
            *message = Received { bytes: payload.len(), segment: None, sender: Some(next.sender) };
            count += 1;
        }
        count
    }

    /// Drops everything that has arrived.
    fn discard(&mut self) {
        self.sorter.clear();
        self.current = None;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos());
        for OneRing { ring, discarded_ns } in &mut self.rings {
            *discarded_ns = i64::try_from(now).ok();
            while ring.block().is_some() {
                ring.give_back();
            }
        }
    }

    fn drops(&mut self) -> io::Result<u64> {
        let drops = self.rings.iter_mut().map(|one| one.ring.drops());
        let lost = drops.sum::<io::Result<u64>>()?;
        Ok(lost + self.sorter.refused().damaged)
    }

    fn take_warnings(&mut self) -> Vec<String> {
        let (unjoined, checksums) = (self.sorter.unjoined(), self.sorter.refused().checksums);
        let mut warnings = Vec::new();
        if unjoined > self.told.0 {
            warnings.push(format!(
                "packet ring: fragments of {unjoined} datagrams did not arrive. These datagrams are not recorded"
            ));
        }
        if checksums > self.told.1 {
            warnings.push(format!(
                "packet ring: {checksums} packets have wrong checksums. They are not recorded"
            ));
        }
        self.told = (unjoined, checksums);
        warnings
    }
}

/// Copies a datagram to its slices, as far as they go.
pub(crate) fn scatter(mut payload: &[u8], parts: &mut [IoSliceMut<'_>]) {
    for part in parts {
        let (now, later) = payload.split_at(payload.len().min(part.len()));
        part[..now.len()].copy_from_slice(now);
        payload = later;
    }
}

/// The datagrams of one source in a ring.
pub struct RingInput {
    ring: Arc<Mutex<SharedRing>>,
    queue: usize,
    /// Holds the port.
    holder: Receiver,
    readiness: OwnedFd,
    ring_bytes: usize,
    emptied: bool,
}

impl RingInput {
    fn ring(&self) -> MutexGuard<'_, SharedRing> {
        // A thread that panicked has left counts and places whole: each is one assignment.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DatagramInput for RingInput {
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        let mut ring = self.ring();
        let count = ring.receive(self.queue, slices, per_message, received);
        // What follows for this source is in a block that comes when the others have taken theirs.
        let emptied = count == 0 || ring.sorter.is_empty(self.queue) && !ring.sorter.is_done();
        drop(ring);
        self.emptied = emptied;
        Ok(count)
    }

    fn emptied(&self) -> bool {
        self.emptied
    }

    fn drops(&self) -> io::Result<u64> {
        self.ring().drops()
    }

    fn counter(&self) -> Option<CounterName> {
        let ring = self.ring();
        let (own, coarse) = (ring.sorter.sources() == 1, ring.sorter.has_merged());
        let scope = ring.scope.clone();
        Some(CounterName { layer: Layer::PacketRing, counter: "tp_drops", scope, own, coarse })
    }

    fn buffer_bytes(&self) -> usize {
        self.ring_bytes
    }

    fn address(&self) -> Option<SocketAddr> {
        self.holder.address()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.readiness.as_fd())
    }

    fn take_warnings(&mut self) -> Vec<String> {
        self.ring().take_warnings()
    }

    fn latency(&self) -> Duration {
        LATENCY
    }

    fn discard(&mut self) -> bool {
        self.ring().discard();
        true
    }
}
