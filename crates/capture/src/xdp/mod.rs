//! Datagrams from AF_XDP sockets: the receive engine `xdp`.
//!
//! A program in the driver of an interface sends the packets of our flows to memory of ours, around IP, UDP and the
//! firewall. Everything else passes to the kernel.
//!
//! ```text
//! driver ──► program ─┬─► XDP socket of the queue ──► sorter ──┬─► queue of port 0 ──► slots of its blocks
//!                     │                                        └─► queue of port 1 ──► …
//!                     └─► kernel: IP, UDP ──► UDP socket of the port: fragments, tagged and merged packets ──► slots
//! ```
//!
//! The UDP socket of each port is an ordinary one. It holds the port, joins its group, and receives what the program lets
//! pass. So nothing is lost that a socket would get.

mod card;
mod open;
mod program;
mod sorter;

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::account::Layer;
use fullbore_linux::sys::bpf::Link;
use fullbore_linux::sys::receive::{MOST_MESSAGES, Received, Receiver};
use fullbore_linux::sys::xdp::{Statistics, XdpSocket};

use super::input::{CounterName, DatagramInput};

pub use open::{Copies, XdpError, XdpInputs, open};
use sorter::{Pieces, Sorter};

/// The most pieces that are sorted at once: they stay in a cache of the core.
const BATCH: usize = 512;

/// The time between two questions to the UDP socket while no packet comes through the program.
const OFTEN: Duration = Duration::from_millis(1);

/// The same while packets come.
const SELDOM: Duration = Duration::from_millis(10);

/// The most calls that empty a UDP socket. More than its buffer holds.
const MOST_CALLS: usize = 4096;

impl Pieces for XdpSocket {
    fn count(&self) -> usize {
        self.held()
    }

    fn piece(&self, number: usize) -> (&[u8], bool) {
        XdpSocket::piece(self, number)
    }
}

/// An interface with its program.
struct Interface {
    name: String,
    number: u32,
    /// The program leaves the interface when this is closed, also if the process is killed.
    _link: Link,
}

/// The socket of one queue.
struct Queue {
    socket: XdpSocket,
    /// Its place among the interfaces.
    interface: usize,
}

/// The sockets that the sources of a capture thread share.
struct Shared {
    // The programs go before the sockets.
    interfaces: Vec<Interface>,
    queues: Vec<Queue>,
    /// The queue whose pieces are sorted.
    current: Option<usize>,
    /// The queue that is looked at next.
    next: usize,
    sorter: Sorter,
}

impl Shared {
    /// Sorts the next batch that has a datagram for a source, if all of the one before were taken.
    fn sort_next(&mut self) {
        if !self.sorter.is_done() {
            return;
        }
        if let Some(done) = self.current.take() {
            self.queues[done].socket.give_back();
        }
        for _ in 0..self.queues.len() {
            let number = self.next;
            self.next = (self.next + 1) % self.queues.len();
            let Queue { socket, interface } = &mut self.queues[number];
            while socket.take(BATCH) > 0 {
                self.sorter.sort(socket, self.interfaces[*interface].number);
                if !self.sorter.is_done() {
                    self.current = Some(number);
                    return;
                }
                socket.give_back();
            }
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
        let Some(current) = self.current else { return 0 };
        let pieces = &self.queues[current].socket;
        let messages = received.iter_mut().zip(slices.chunks_exact_mut(per_message));
        let mut count = 0;
        for (message, parts) in messages {
            let Some(next) = self.sorter.take(queue) else { break };
            next.scatter(pieces, parts);
            *message = Received { bytes: next.bytes, segment: None, sender: Some(next.sender) };
            count += 1;
        }
        count
    }

    /// Drops everything that has arrived.
    fn discard(&mut self) {
        self.sorter.clear();
        self.current = None;
        for Queue { socket, .. } in &mut self.queues {
            socket.give_back();
            // What comes meanwhile is not waited for.
            let mut left = socket.bytes_of_memory();
            while left > 0 && socket.take(BATCH) > 0 {
                left = left
                    .saturating_sub((0..socket.held()).map(|it| socket.piece(it).0.len()).sum());
                socket.give_back();
            }
        }
    }

    /// The counters of an interface: those of its queues together.
    fn statistics(&self, interface: usize) -> io::Result<Statistics> {
        let of_interface = self.queues.iter().filter(|queue| queue.interface == interface);
        of_interface.map(|queue| queue.socket.statistics()).try_fold(
            Statistics::default(),
            |sum, read| {
                let read = read?;
                Ok(Statistics {
                    rx_dropped: sum.rx_dropped + read.rx_dropped,
                    rx_ring_full: sum.rx_ring_full + read.rx_ring_full,
                    rx_fill_ring_empty_descs: sum.rx_fill_ring_empty_descs
                        + read.rx_fill_ring_empty_descs,
                    rx_invalid_descs: sum.rx_invalid_descs + read.rx_invalid_descs,
                })
            },
        )
    }
}

/// The datagrams of one source.
pub struct XdpInput {
    shared: Arc<Mutex<Shared>>,
    queue: usize,
    /// The place of its interface.
    interface: usize,
    /// Receives what the program lets pass.
    socket: Receiver,
    readiness: OwnedFd,
    buffer_bytes: usize,
    /// Time of the last question to the socket.
    asked: Instant,
    /// True if the next call begins with the socket.
    asks_first: bool,
    emptied: bool,
    /// Datagrams that came by the socket.
    passed: u64,
    /// What its warnings have told.
    told: (u64, u64),
}

impl XdpInput {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        // A thread that panicked has left counts and places whole: each is one assignment.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives what the program has let pass.
    fn receive_passed(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        self.asked = Instant::now();
        let count = self.socket.receive(slices, per_message, received)?;
        self.passed += count as u64;
        self.asks_first = !self.socket.emptied();
        self.emptied = !self.asks_first;
        Ok(count)
    }

    /// A counter of the sockets of its interface.
    fn name(&self, counter: &'static str) -> CounterName {
        let shared = self.shared();
        let own = shared.sorter.sources() == 1;
        let scope = shared.interfaces[self.interface].name.clone();
        CounterName { layer: Layer::Xdp, counter, scope, own, coarse: false }
    }
}

impl DatagramInput for XdpInput {
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        if std::mem::take(&mut self.asks_first) {
            let count = self.receive_passed(slices, per_message, received)?;
            if count > 0 {
                return Ok(count);
            }
        }
        let mut shared = self.shared();
        let count = shared.receive(self.queue, slices, per_message, received);
        // What follows for this source is in a batch that comes when the others have taken theirs.
        let emptied = count == 0 || shared.sorter.is_empty(self.queue) && !shared.sorter.is_done();
        drop(shared);
        let since = self.asked.elapsed();
        if count == 0 && since >= OFTEN {
            return self.receive_passed(slices, per_message, received);
        }
        self.asks_first = count > 0 && since >= SELDOM;
        self.emptied = emptied && !self.asks_first;
        Ok(count)
    }

    fn emptied(&self) -> bool {
        self.emptied
    }

    fn drops(&self) -> io::Result<u64> {
        Ok(self.shared().statistics(self.interface)?.rx_dropped)
    }

    fn counter(&self) -> Option<CounterName> {
        Some(self.name("rx_dropped"))
    }

    fn more_drops(&self) -> Vec<(CounterName, io::Result<u64>)> {
        type Field = fn(Statistics) -> u64;
        let of_kernel: [(&'static str, Field); 3] = [
            ("rx_ring_full", |it| it.rx_ring_full),
            ("rx_fill_ring_empty_descs", |it| it.rx_fill_ring_empty_descs),
            ("rx_invalid_descs", |it| it.rx_invalid_descs),
        ];
        let of_kernel = of_kernel.into_iter().map(|(counter, field)| {
            (self.name(counter), self.shared().statistics(self.interface).map(field))
        });
        let refused = self.shared().sorter.refused(self.queue);
        let scope = self.socket.address().map_or_else(String::new, |it| it.to_string());
        let own = |layer, counter| CounterName {
            layer,
            counter,
            scope: scope.clone(),
            own: true,
            coarse: false,
        };
        let ours = [
            (own(Layer::Xdp, "wrong_checksums"), Ok(refused.checksums)),
            (own(Layer::Xdp, "damaged"), Ok(refused.damaged)),
            (own(Layer::Socket, "drops"), self.socket.drops()),
        ];
        of_kernel.chain(ours).collect()
    }

    fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    fn address(&self) -> Option<SocketAddr> {
        self.socket.address()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.readiness.as_fd())
    }

    fn take_warnings(&mut self) -> Vec<String> {
        let checksums = self.shared().sorter.refused(self.queue).checksums;
        let port = self.socket.address().map_or_else(String::new, |it| it.to_string());
        let mut warnings = Vec::new();
        if self.passed > self.told.0 {
            warnings.push(format!(
                "{port}: {} datagrams came through its socket and not through XDP: fragments, packets with a VLAN tag \
                 or with IP options, merged packets, or packets of another interface",
                self.passed
            ));
        }
        if checksums > self.told.1 {
            warnings.push(format!(
                "{port}: {checksums} packets have wrong checksums. They are not recorded"
            ));
        }
        self.told = (self.passed, checksums);
        warnings
    }

    /// A stop asks the socket once more.
    fn latency(&self) -> Duration {
        2 * OFTEN
    }

    fn discard(&mut self) -> bool {
        self.shared().discard();
        let mut memory = [0u8; MOST_MESSAGES];
        let mut received = [Received::default(); MOST_MESSAGES];
        for _ in 0..MOST_CALLS {
            let mut slices: Vec<IoSliceMut<'_>> =
                memory.chunks_exact_mut(1).map(IoSliceMut::new).collect();
            // The socket keeps an error, and reports it again when the scan has begun.
            let count = self.socket.receive(&mut slices, 1, &mut received).unwrap_or(0);
            if count == 0 || self.socket.emptied() {
                break;
            }
        }
        (self.passed, self.asks_first) = (0, false);
        true
    }
}
