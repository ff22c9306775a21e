//! A UDP socket that sends groups of packets without copying them.
//!
//! A packet is two slices, its header and its payload, so a header can be made anew for each frame while the payload
//! stays in place. Packets of one length go out as one message that the kernel segments (UDP_SEGMENT), which is four
//! times cheaper than one call each. If the route cannot do that, [`Sender`] falls back to sendmmsg by itself.

use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::mem::{size_of, zeroed};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};

use fullbore_core::endpoint::UdpTarget;
use fullbore_core::hint::Hint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::receive::set_option;

/// The largest number of packets in one call, and in one segmented message of every kernel that supports them.
pub const MOST_PACKETS: usize = 64;

/// The largest message, before segmentation.
const LARGEST_MESSAGE: usize = 65_507;

/// Send buffer requested by [`Destination::of`]: a few milliseconds at 10 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;

/// The longest wait for a full socket before its packets are dropped.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// The number of attempts to send a packet after errors that earlier packets caused.
const MOST_ATTEMPTS: u32 = 4;

/// Header and payload of a packet.
pub type Packet<'a> = [IoSlice<'a>; 2];

/// The destination and options of a sender.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The address.
    pub address: SocketAddr,
    /// The number of routers that a packet may pass; `None`: 1 for a group, else the system's default.
    pub ttl: Option<u8>,
    /// The interface to send through.
    pub interface: Option<String>,
    /// Requested send buffer, in bytes.
    pub buffer_bytes: usize,
}

impl Destination {
    /// Resolves the host of an endpoint.
    pub fn of(target: &UdpTarget) -> Result<Self, Error> {
        let error = |source| Error { address: target.to_string(), action: "looking it up", source };
        let mut addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(error)?;
        let none = || error(io::ErrorKind::NotFound.into());
        Ok(Destination {
            address: addresses.next().ok_or_else(none)?,
            ttl: target.ttl,
            interface: target.interface.clone(),
            buffer_bytes: BUFFER_BYTES,
        })
    }
}

/// A failed step in sending.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {action}")]
pub struct Error {
    /// The destination.
    pub address: String,
    /// The failed step.
    pub action: &'static str,
    /// The error of the kernel.
    pub source: io::Error,
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self.source.raw_os_error()? {
            libc::EMSGSIZE => "frames must fit a datagram: at most 65507 bytes with all headers",
            libc::ENETUNREACH | libc::EHOSTUNREACH => {
                "no route leads there; look at `ip route get ADDRESS`"
            }
            libc::ENODEV => "there is no such interface; `ip link` lists them",
            _ => return None,
        }))
    }
}

/// Counts of a sender since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets that the kernel accepted.
    pub sent: u64,
    /// Packets that the kernel refused: a full transmit queue, a filter.
    pub refused: u64,
    /// Number of waits for a full socket.
    pub stalls: u64,
    /// Packets refused by the receiver (ICMP port unreachable).
    pub unreachable: u64,
}

/// A connected UDP socket.
pub struct Sender {
    socket: Socket,
    address: SocketAddr,
    segments: bool,
    tally: Tally,
    headers: Box<[libc::mmsghdr; MOST_PACKETS]>,
    /// One control message with the segment size; `u64` for its alignment.
    control: Box<[u64; CONTROL_WORDS]>,
}

/// Words for one control message that holds a `u16`.
const CONTROL_WORDS: usize = 3;

// SAFETY: the raw pointers in `headers` are set anew before every call and never followed after it.
unsafe impl Send for Sender {}

/// The result for a run of packets.
enum Fate {
    /// The kernel accepted this many, from the first.
    Taken(usize),
    /// The kernel refused this many for good, from the first.
    Refused(usize),
    /// The run must be sent again.
    Again,
}

impl Sender {
    /// Connects, so that the route is looked up once and refusals are reported.
    pub fn connect(destination: &Destination) -> Result<Self, Error> {
        let address = destination.address;
        let error = |action| move |source| Error { address: address.to_string(), action, source };
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
            .map_err(error("making a UDP socket"))?;
        socket.set_nonblocking(true).map_err(error("making it non-blocking"))?;
        if let Some(interface) = &destination.interface {
            socket
                .bind_device(Some(interface.as_bytes()))
                .map_err(error("binding to the interface given"))?;
        }
        set_hops(&socket, destination).map_err(error("setting the time to live"))?;
        set_buffer(&socket, destination.buffer_bytes).map_err(error("sizing the send buffer"))?;
        // With this option the kernel reports drops of the transmit queue.
        let (level, name) = match address {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        set_option(&socket, level, name, 1).map_err(error("asking for errors on the way"))?;
        socket.connect(&address.into()).map_err(error("finding a route"))?;
        // SAFETY: all-zero is a valid value of these plain C structures (null pointers, zero lengths).
        let headers = unsafe { Box::new(zeroed()) };
        let control = Box::new([0; CONTROL_WORDS]);
        let segments = true;
        Ok(Self { socket, address, segments, tally: Tally::default(), headers, control })
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// True if packets still go out as segmented messages.
    pub fn segments(&self) -> bool {
        self.segments
    }

    /// Disables segmented messages, as for a route without them.
    #[cfg(test)]
    fn without_segments(mut self) -> Self {
        self.segments = false;
        self
    }

    /// Sends up to [`MOST_PACKETS`] packets in order. Bit *n* of the result is set if the kernel refused packet *n*. An
    /// error is one that would affect every packet alike.
    pub fn send(&mut self, packets: &[Packet<'_>]) -> Result<u64, Error> {
        assert!(packets.len() <= MOST_PACKETS, "{} packets at once", packets.len());
        let (mut at, mut refused, mut attempts) = (0, 0u64, 0);
        while at < packets.len() {
            let rest = &packets[at..];
            let run = if self.segments { equal_run(rest) } else { rest.len() };
            let result = if self.segments && run > 1 {
                self.send_segmented(&rest[..run]).map(|()| run)
            } else {
                self.send_each(&rest[..run])
            };
            attempts += 1;
            match self.fate(result, run, attempts)? {
                Fate::Taken(count) => {
                    (at, attempts) = (at + count, 0);
                    self.tally.sent += count as u64;
                }
                Fate::Refused(count) => {
                    refused |= (at..at + count).fold(0, |bits, n| bits | 1 << n);
                    (at, attempts) = (at + count, 0);
                    self.tally.refused += count as u64;
                }
                Fate::Again => {}
            }
        }
        Ok(refused)
    }

    /// Interprets the kernel's result for a run of packets.
    fn fate(
        &mut self,
        result: io::Result<usize>,
        run: usize,
        attempts: u32,
    ) -> Result<Fate, Error> {
        let source = match result {
            Ok(count) => return Ok(Fate::Taken(count)),
            Err(error) => error,
        };
        // A segmented message is refused as a whole; of single packets, the first was refused.
        let first = if self.segments { run } else { 1 };
        match source.raw_os_error().unwrap_or(0) {
            libc::EINTR => Ok(Fate::Again),
            libc::EAGAIN => {
                self.tally.stalls += 1;
                self.forget_errors();
                if self.wait_for_room() { Ok(Fate::Again) } else { Ok(Fate::Refused(first)) }
            }
            libc::ENOBUFS | libc::ENOMEM | libc::EPERM => Ok(Fate::Refused(first)),
            // An error caused by an earlier packet: this one was not even tried.
            libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN => {
                self.tally.unreachable += 1;
                self.forget_errors();
                Ok(if attempts < MOST_ATTEMPTS { Fate::Again } else { Fate::Refused(first) })
            }
            libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP
                if run > 1 && self.segments =>
            {
                self.segments = false;
                Ok(Fate::Again)
            }
            _ => Err(Error { address: self.address.to_string(), action: "sending", source }),
        }
    }

    /// Sends a run of packets of one length in one message.
    fn send_segmented(&mut self, packets: &[Packet<'_>]) -> io::Result<()> {
        let length = bytes(&packets[0]) as u16;
        // SAFETY: all-zero is a valid msghdr (null pointers, zero lengths).
        let mut header: libc::msghdr = unsafe { zeroed() };
        point_at(&mut header, packets);
        header.msg_control = self.control.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute. `control` is aligned to 8 bytes and has 24, which is
        // the space of one message with a u16 (asserted), so the first header and its data lie inside.
        unsafe {
            let space = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
            assert!(space <= CONTROL_WORDS * 8, "the control buffer is too short");
            header.msg_controllen = space as _;
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_UDP;
            (*message).cmsg_type = libc::UDP_SEGMENT;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(message).cast::<u16>().write_unaligned(length);
        }
        // SAFETY: `header` points at slices borrowed for this call (`IoSlice` is an iovec by its documented
        // layout), which the kernel only reads, and at our control buffer with its length.
        let result = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &header, libc::MSG_DONTWAIT) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends each packet in its own message. Returns the number accepted.
    fn send_each(&mut self, packets: &[Packet<'_>]) -> io::Result<usize> {
        for (header, packet) in self.headers.iter_mut().zip(packets.chunks(1)) {
            point_at(&mut header.msg_hdr, packet);
        }
        // SAFETY: as many headers as packets (at most MOST_PACKETS, asserted in `send`) were just pointed at
        // slices borrowed for this call, which the kernel only reads; their other pointers are null.
        let count = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                packets.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
    }

    /// Waits until the socket accepts packets again. Returns `false` after a timeout.
    fn wait_for_room(&self) -> bool {
        let socket = self.socket.as_fd();
        let mut wanted = [PollFd::new(&socket, PollFlags::OUT)];
        !matches!(poll(&mut wanted, Some(&PATIENCE)), Ok(0))
    }

    /// Empties the error queue, which would otherwise fill up.
    fn forget_errors(&self) {
        for _ in 0..MOST_PACKETS {
            // SAFETY: all-zero is a valid msghdr; with no slices the kernel writes no data anywhere.
            let mut header: libc::msghdr = unsafe { zeroed() };
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: `header` lives through the call and points at nothing.
            if unsafe { libc::recvmsg(self.socket.as_raw_fd(), &mut header, flags) } < 0 {
                break;
            }
        }
    }
}

fn bytes(packet: &Packet<'_>) -> usize {
    packet[0].len() + packet[1].len()
}

/// Returns how many of the first packets have one length and fit one message; at least one.
fn equal_run(packets: &[Packet<'_>]) -> usize {
    let length = bytes(&packets[0]).max(1);
    let most = (LARGEST_MESSAGE / length).clamp(1, MOST_PACKETS);
    packets.iter().take(most).take_while(|packet| bytes(packet) == length).count().max(1)
}

/// Points `header` at these packets.
fn point_at(header: &mut libc::msghdr, packets: &[Packet<'_>]) {
    header.msg_iov = packets.as_ptr().cast_mut().cast();
    header.msg_iovlen = packets.as_flattened().len() as _;
}

fn set_hops(socket: &Socket, destination: &Destination) -> io::Result<()> {
    let Some(ttl) = destination.ttl.map(u32::from) else { return Ok(()) };
    match (destination.address, destination.address.ip().is_multicast()) {
        (SocketAddr::V4(_), true) => socket.set_multicast_ttl_v4(ttl),
        (SocketAddr::V4(_), false) => socket.set_ttl_v4(ttl),
        (SocketAddr::V6(_), true) => socket.set_multicast_hops_v6(ttl),
        (SocketAddr::V6(_), false) => socket.set_unicast_hops_v6(ttl),
    }
}

/// Requests a send buffer by force, else within the limit.
fn set_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    match set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, value) {
        Ok(()) => Ok(()),
        Err(_) => socket.set_send_buffer_size(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn pair(any: &str) -> (UdpSocket, Sender) {
        let receiver = UdpSocket::bind(any).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let address = receiver.local_addr().unwrap();
        (receiver, to(address))
    }

    fn to(address: SocketAddr) -> Sender {
        let destination =
            Destination { address, ttl: Some(1), interface: None, buffer_bytes: 1 << 20 };
        Sender::connect(&destination).unwrap()
    }

    fn received(socket: &UdpSocket) -> Vec<u8> {
        let mut datagram = vec![0; 1 << 16];
        let length = socket.recv(&mut datagram).unwrap();
        datagram.truncate(length);
        datagram
    }

    /// Sends packets of various lengths and expects each of them whole and in order.
    fn all_arrive(receiver: &UdpSocket, sender: &mut Sender) {
        let payloads: Vec<Vec<u8>> =
            [1000, 1000, 1000, 900, 0, 1000, 1000, 1].map(|length| vec![7; length]).into();
        let heads: Vec<[u8; 4]> = (0..8u32).map(u32::to_le_bytes).collect();
        let packets: Vec<Packet<'_>> =
            heads.iter().zip(&payloads).map(|(h, p)| [IoSlice::new(h), IoSlice::new(p)]).collect();
        assert_eq!(sender.send(&packets).unwrap(), 0);
        for (head, payload) in heads.iter().zip(&payloads) {
            assert_eq!(received(receiver), [&head[..], payload].concat());
        }
        assert_eq!((sender.tally().sent, sender.tally().refused), (8, 0));
    }

    #[test]
    fn packets_arrive_whole_and_in_order_segmented_or_not() {
        let (receiver, mut sender) = pair("127.0.0.1:0");
        all_arrive(&receiver, &mut sender);
        assert!(sender.segments());
        let (receiver, sender) = pair("127.0.0.1:0");
        all_arrive(&receiver, &mut sender.without_segments());
    }

    #[test]
    fn the_same_holds_over_ipv6() {
        if UdpSocket::bind("[::1]:0").is_err() {
            eprintln!("skipped: this host has no IPv6");
            return;
        }
        let (receiver, mut sender) = pair("[::1]:0");
        all_arrive(&receiver, &mut sender);
    }

    #[test]
    fn groups_larger_than_a_message_are_divided() {
        let (receiver, mut sender) = pair("127.0.0.1:0");
        let payload = vec![1; 8028];
        let heads: Vec<[u8; 4]> = (0..20u32).map(u32::to_le_bytes).collect();
        let packets: Vec<Packet<'_>> =
            heads.iter().map(|head| [IoSlice::new(head), IoSlice::new(&payload)]).collect();
        // In two halves, since an untouched receive buffer holds about twelve of them.
        for (packets, heads) in packets.chunks(10).zip(heads.chunks(10)) {
            assert_eq!(sender.send(packets).unwrap(), 0);
            for head in heads {
                assert_eq!(received(&receiver)[..4], *head);
            }
        }
    }

    #[test]
    fn a_receiver_that_is_not_there_yet_loses_its_own_packets_only() {
        let (receiver, mut sender) = pair("127.0.0.1:0");
        let address = receiver.local_addr().unwrap();
        drop(receiver);
        let head = [1, 2, 3, 4];
        let packet = [IoSlice::new(&head), IoSlice::new(&[])];
        for _ in 0..10 {
            assert_eq!(sender.send(&[packet]).unwrap(), 0);
        }
        assert!(sender.tally().unreachable > 0);
        let receiver = UdpSocket::bind(address).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(sender.send(&[packet]).unwrap(), 0);
        assert_eq!(received(&receiver), head);
    }

    #[test]
    fn a_packet_that_fits_no_datagram_is_an_error_with_a_hint() {
        let (_receiver, mut sender) = pair("127.0.0.1:0");
        let payload = vec![0; 65_508];
        let error = sender.send(&[[IoSlice::new(&payload), IoSlice::new(&[])]]).unwrap_err();
        assert!(error.hint().unwrap().contains("65507"), "{error}");
    }
}
