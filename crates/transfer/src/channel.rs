//! A TLS connection that carries messages.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::identity::{Fingerprint, Identity};
use crate::protocol::Message;

/// The settings of connections.
#[derive(Clone, Debug, Default)]
pub struct LinkSettings {
    /// The congestion control asked for; otherwise BBR on a WAN and the system's on a LAN.
    pub congestion: Option<String>,
    /// The most bytes per second of one connection.
    pub rate: Option<u64>,
}

/// A connection after the handshake.
#[derive(Debug)]
pub struct Channel {}

/// A connection that failed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {}

impl Channel {
    /// Connects to a peer that must have this key.
    pub fn connect(
        _address: &str,
        _identity: &Identity,
        _key: Fingerprint,
        _settings: &LinkSettings,
    ) -> Result<Self, ChannelError> {
        todo!()
    }

    /// Accepts a connection: any client key is accepted, [`peer`](Self::peer) says which.
    pub fn accept(
        _stream: TcpStream,
        _identity: &Identity,
        _settings: &LinkSettings,
    ) -> Result<Self, ChannelError> {
        todo!()
    }

    /// The key of the other end.
    pub fn peer(&self) -> Fingerprint {
        todo!()
    }

    /// The address of the other end.
    pub fn address(&self) -> SocketAddr {
        todo!()
    }

    /// Sends a message.
    pub fn send(&mut self, _message: &Message) -> Result<(), ChannelError> {
        todo!()
    }

    /// Sends a block or probe message and its data.
    pub fn send_data(&mut self, _message: &Message, _data: &[u8]) -> Result<(), ChannelError> {
        todo!()
    }

    /// Returns the next message; `None` if none arrives within this time.
    pub fn receive(&mut self, _within: Duration) -> Result<Option<Message>, ChannelError> {
        todo!()
    }

    /// Reads the data that follows a block or probe message.
    pub fn receive_data(&mut self, _into: &mut [u8]) -> Result<(), ChannelError> {
        todo!()
    }

    /// Sets the most bytes per second, on the live connection.
    pub fn set_rate(&self, _rate: Option<u64>) {
        todo!()
    }

    /// Round trip, congestion control, retransmissions and delivery rate, by the kernel.
    pub fn link(&self) -> Option<LinkStatus> {
        todo!()
    }
}

/// The state of a connection, by `TCP_INFO`.
#[derive(Clone, Debug, Default)]
pub struct LinkStatus {
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Smallest round trip seen.
    pub least_round_trip: Duration,
    /// Congestion control in force.
    pub congestion: String,
    /// Segments sent again.
    pub retransmitted: u64,
    /// All segments sent.
    pub segments: u64,
    /// Bytes per second delivered lately.
    pub delivery_rate: u64,
}
