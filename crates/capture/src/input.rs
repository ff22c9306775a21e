//! Where the datagrams of a port come from: a socket, a packet ring, XDP sockets, a packet capture in a file, or the frames of a TCP
//! connection.
//!
//! An input gives batches of datagrams, scattered over memory that the port chose: the slots of a block, where the
//! datagrams are to stay. An input that waits, such as a file, loses nothing while no block is free.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fullbore_core::account::Layer;
use fullbore_linux::sys::receive::{Received, Receiver};
use fullbore_time::Tai;

/// The drop counter of an input, as accounts name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterName {
    /// The layer that counts.
    pub layer: Layer,
    /// The name of the counter.
    pub counter: &'static str,
    /// The socket, the ring, or the file.
    pub scope: String,
    /// True if no other source moves the counter.
    pub own: bool,
    /// True if one step may stand for several datagrams.
    pub coarse: bool,
}

/// An input of datagrams, which one port receives from.
pub trait DatagramInput: Send {
    /// Receives up to `received.len()` messages without waiting for the network. Message *m* is scattered over
    /// `slices[m × per_message ..][.. per_message]`. Returns the number of messages; 0 if none is available.
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize>;

    /// True if the last call took everything that was there.
    fn emptied(&self) -> bool;

    /// Datagrams that it has dropped so far.
    fn drops(&self) -> io::Result<u64>;

    /// False if it cannot drop any: there is no counter.
    fn has_drops(&self) -> bool {
        true
    }

    /// The name of that counter; `None`: it is that of a socket.
    fn counter(&self) -> Option<CounterName> {
        None
    }

    /// Its other counters of drops, with their values so far.
    fn more_drops(&self) -> Vec<(CounterName, io::Result<u64>)> {
        Vec::new()
    }

    /// The receive buffer, in bytes; 0 if it has none.
    fn buffer_bytes(&self) -> usize {
        0
    }

    /// The address of its socket, if it has one.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// The descriptor that is ready when datagrams have come; `None` for an input that waits for its reader.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Reads ahead, for an input that waits.
    fn read_ahead(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The longest time between the arrival of a datagram on this host and the first call that can return it.
    fn latency(&self) -> Duration {
        Duration::ZERO
    }

    /// Drops what has arrived, if that is cheaper than to receive it. Returns false if it is not.
    fn discard(&mut self) -> bool {
        false
    }

    /// The arrival of the next datagram, or of the last one, if the input knows it better than the clock.
    fn arrival(&self) -> Option<Tai> {
        None
    }

    /// True if no datagram follows.
    fn is_over(&self) -> bool {
        false
    }

    /// Takes the warnings that cannot wait for the end of the recording.
    fn take_news(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Takes the warnings about it at the end of the recording.
    fn take_warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}

impl DatagramInput for Receiver {
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        Receiver::receive(self, slices, per_message, received)
    }

    fn emptied(&self) -> bool {
        Receiver::emptied(self)
    }

    fn drops(&self) -> io::Result<u64> {
        Receiver::drops(self)
    }

    fn buffer_bytes(&self) -> usize {
        Receiver::buffer_bytes(self)
    }

    fn address(&self) -> Option<SocketAddr> {
        Receiver::address(self)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}
