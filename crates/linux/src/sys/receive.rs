//! A UDP socket that receives into the final place of the data.
//!
//! [`Receiver::receive`] is recvmmsg: each message is scattered over slices that the caller chose, so the kernel's copy
//! out of the packet is the only one. With UDP_GRO a message may contain many datagrams of one size, which
//! [`Received::segment`] tells.

use std::io::{self, IoSliceMut};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::packet::{Instruction, attach_filter};

/// The largest number of messages in one call.
pub const MOST_MESSAGES: usize = 64;

/// Bytes for the ancillary data of one message: the GRO segment size, with a margin.
const CONTROL_BYTES: usize = 64;

/// The address and options of a listening socket.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Local address, or a multicast group to join.
    pub address: SocketAddr,
    /// Interface to join a group on, or to be bound to.
    pub interface: Option<String>,
    /// Requested receive buffer, in bytes.
    pub buffer_bytes: usize,
    /// True if the socket holds the port and takes nothing: no other program gets the port, and senders are not told that
    /// it is closed.
    pub holds_only: bool,
}

/// The filter of a socket that takes nothing: it returns 0.
const TAKE_NOTHING: Instruction = Instruction { code: 6, if_true: 0, if_false: 0, operand: 0 };

/// A failed step in creating a socket.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {action}")]
pub struct Error {
    /// The address of the socket.
    pub address: SocketAddr,
    /// The failed step.
    pub action: &'static str,
    /// The error of the kernel.
    pub source: io::Error,
}

/// A received message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// The true length, even if the slices were shorter.
    pub bytes: usize,
    /// Length of each datagram merged into it (the last may be shorter), if it was merged.
    pub segment: Option<usize>,
    /// The sender, if senders are requested.
    pub sender: Option<IpAddr>,
}

/// A bound, non-blocking UDP socket with its message headers.
pub struct Receiver {
    socket: Socket,
    buffer_bytes: usize,
    headers: Box<[libc::mmsghdr; MOST_MESSAGES]>,
    control: Box<[[u64; CONTROL_BYTES / 8]; MOST_MESSAGES]>,
    senders: Option<Box<[libc::sockaddr_storage; MOST_MESSAGES]>>,
    emptied: bool,
}

// SAFETY: the raw pointers in `headers` are set anew before every call and never followed after it.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Binds the socket, joins the group if the address is one, and requests the receive buffer.
    pub fn listen(listen: &Listen, tell_senders: bool) -> Result<Self, Error> {
        let address = listen.address;
        let error = |action| move |source| Error { address, action, source };
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
            .map_err(error("making a UDP socket"))?;
        socket.set_nonblocking(true).map_err(error("making it non-blocking"))?;
        if address.is_ipv6() {
            // The IPv6 wildcard accepts IPv4 as well, so that `[::]` is every address of this host.
            let only = !address.ip().is_unspecified();
            socket.set_only_v6(only).map_err(error("choosing IPv6 alone or with IPv4"))?;
        }
        if address.ip().is_multicast() {
            socket.set_reuse_address(true).map_err(error("sharing a multicast port"))?;
        } else if let Some(interface) = &listen.interface {
            socket
                .bind_device(Some(interface.as_bytes()))
                .map_err(|why| naming(interface, why))
                .map_err(error("binding to the interface given"))?;
        }
        if listen.holds_only {
            attach_filter(&socket, &[TAKE_NOTHING]).map_err(error("attaching a filter"))?;
        }
        let bound = scoped(&socket, listen).map_err(error("finding the interface"))?;
        socket.bind(&bound.into()).map_err(error("binding the port"))?;
        join_group(&socket, listen).map_err(error("joining the multicast group"))?;
        let buffer_bytes =
            set_buffer(&socket, listen.buffer_bytes).map_err(error("sizing the receive buffer"))?;
        // SAFETY: all-zero is a valid value of these plain C structures (null pointers, zero lengths).
        let (headers, senders) =
            unsafe { (Box::new(zeroed()), tell_senders.then(|| Box::new(zeroed()))) };
        let control = Box::new([[0; CONTROL_BYTES / 8]; MOST_MESSAGES]);
        Ok(Self { socket, buffer_bytes, headers, control, senders, emptied: false })
    }

    /// Returns the receive buffer in the kernel's own accounting (twice the request), in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Returns the bound address, with the port that the kernel chose if none was given.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Returns the number of an interface.
    pub fn interface_number(&self, name: &str) -> Result<u32, Error> {
        let address = self.address().unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let number = rustix::net::netdevice::name_to_index(&self.socket, name);
        number.map_err(|why| Error {
            address,
            action: "finding the interface",
            source: naming(name, why.into()),
        })
    }

    /// Lets the kernel merge datagrams of one size into one message. Returns `false` if it cannot.
    pub fn merge(&self, on: bool) -> bool {
        let value = libc::c_int::from(on);
        set_option(&self.socket, libc::SOL_UDP, libc::UDP_GRO, value).is_ok()
    }

    /// Returns the number of messages that this socket has dropped since its creation (`SO_MEMINFO`): exact at once,
    /// without privilege.
    pub fn drops(&self) -> io::Result<u64> {
        const SO_MEMINFO: libc::c_int = 55;
        const DROPS: usize = 8;
        let mut values = [0u32; 9];
        let mut length = size_of::<[u32; 9]>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, the size of `values`, which outlives the call.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_MEMINFO,
                values.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(values[DROPS].into()) }
    }

    /// Receives up to `received.len()` messages without waiting. Message *m* is scattered over `slices[m × per_message
    /// ..][.. per_message]`. Returns the number of messages; 0 if none is available.
    pub fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        let messages = received.len().min(slices.len() / per_message).min(MOST_MESSAGES);
        for (number, parts) in slices.chunks_exact_mut(per_message).take(messages).enumerate() {
            let header = &mut self.headers[number].msg_hdr;
            header.msg_iov = parts.as_mut_ptr().cast();
            header.msg_iovlen = per_message;
            header.msg_control = self.control[number].as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES;
            if let Some(senders) = &mut self.senders {
                header.msg_name = (&raw mut senders[number]).cast();
                header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            }
        }
        // SAFETY: the first `messages` headers point at slices borrowed for this call (`IoSliceMut` is an
        // iovec by its documented layout), at our own control and sender buffers with their true lengths.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                messages as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                std::ptr::null_mut(),
            )
        };
        self.emptied = (count as libc::c_uint) < messages as libc::c_uint;
        if count < 0 {
            let error = io::Error::last_os_error();
            self.emptied = error.kind() == io::ErrorKind::WouldBlock;
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        }
        for (number, message) in received.iter_mut().enumerate().take(count as usize) {
            *message = self.told(number);
        }
        Ok(count as usize)
    }

    /// True if the last call emptied the socket: it had room for more messages than it received.
    pub fn emptied(&self) -> bool {
        self.emptied
    }

    /// Returns the kernel's information about message `number`.
    fn told(&self, number: usize) -> Received {
        let header = &self.headers[number];
        let sender = self.senders.as_ref().and_then(|senders| sender(&senders[number]));
        Received { bytes: header.msg_len as usize, segment: segment(&header.msg_hdr), sender }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the segment size of a merged message.
fn segment(header: &libc::msghdr) -> Option<usize> {
    if header.msg_controllen < size_of::<libc::cmsghdr>() {
        return None;
    }
    // SAFETY: recvmmsg has set msg_control and msg_controllen to the ancillary data it wrote into our
    // buffer, which is aligned to 8 bytes; CMSG_FIRSTHDR/NXTHDR stay inside that length.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_UDP && (*message).cmsg_type == libc::UDP_GRO {
                let size = libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned();
                return usize::try_from(size).ok().filter(|&size| size > 0);
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

fn sender(storage: &libc::sockaddr_storage) -> Option<IpAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the kernel wrote a sockaddr_in here; it is smaller than the storage.
            let address = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the kernel wrote a sockaddr_in6 here; it is smaller than the storage.
            let address = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            // A socket of both families reports an IPv4 sender as a mapped address.
            Some(IpAddr::from(Ipv6Addr::from(address.sin6_addr.s6_addr)).to_canonical())
        }
        _ => None,
    }
}

/// Returns the number of the given interface; 0 for any.
fn interface_number(socket: &Socket, listen: &Listen) -> io::Result<u32> {
    match &listen.interface {
        Some(name) => rustix::net::netdevice::name_to_index(socket, name)
            .map_err(|why| naming(name, why.into())),
        None => Ok(0),
    }
}

/// Adds the name of the interface to an error of the kernel.
fn naming(interface: &str, why: io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("`{interface}`: {why}"))
}

/// Returns the address to bind. A link-local IPv6 group needs the number of the link.
fn scoped(socket: &Socket, listen: &Listen) -> io::Result<SocketAddr> {
    match listen.address {
        SocketAddr::V6(mut address) if address.ip().is_multicast() && address.scope_id() == 0 => {
            address.set_scope_id(interface_number(socket, listen)?);
            Ok(address.into())
        }
        address => Ok(address),
    }
}

fn join_group(socket: &Socket, listen: &Listen) -> io::Result<()> {
    let number = interface_number(socket, listen)?;
    match listen.address.ip() {
        IpAddr::V4(group) if group.is_multicast() => {
            socket.join_multicast_v4_n(&group, &socket2::InterfaceIndexOrAddress::Index(number))
        }
        IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, number),
        _ => Ok(()),
    }
}

/// Requests a receive buffer by force, else within the limit, and reads the granted size back.
fn set_buffer(socket: &Socket, bytes: usize) -> io::Result<usize> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value).is_err() {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.recv_buffer_size()
}

pub(super) fn set_option(
    socket: &Socket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the kernel reads one int, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn local() -> Receiver {
        let address = "127.0.0.1:0".parse().unwrap();
        let listen = Listen { address, interface: None, buffer_bytes: 1 << 20, holds_only: false };
        Receiver::listen(&listen, true).unwrap()
    }

    #[test]
    fn messages_are_scattered_over_the_slices_given() {
        let mut receiver = local();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for text in ["HEADpayload", "HE", "HEADlonger than the slices"] {
            sender.send_to(text.as_bytes(), receiver.address().unwrap()).unwrap();
        }
        let (mut heads, mut bodies) = ([[0u8; 4]; 4], [[0u8; 8]; 4]);
        let mut slices: Vec<IoSliceMut<'_>> = heads
            .iter_mut()
            .zip(&mut bodies)
            .flat_map(|(head, body)| [IoSliceMut::new(head), IoSliceMut::new(body)])
            .collect();
        let mut received = [Received::default(); 4];
        assert_eq!(receiver.receive(&mut slices, 2, &mut received).unwrap(), 3);
        assert_eq!(received.map(|r| r.bytes), [11, 2, 26, 0]);
        assert_eq!(received[0].sender, Some("127.0.0.1".parse().unwrap()));
        assert_eq!((&heads[0], &bodies[0][..7]), (b"HEAD", &b"payload"[..]));
        assert_eq!(receiver.receive(&mut [], 1, &mut received).unwrap_or(0), 0);
    }

    #[test]
    fn a_full_socket_tells_its_drops_at_once() {
        let address = "127.0.0.1:0".parse().unwrap();
        let listen = Listen { address, interface: None, buffer_bytes: 4096, holds_only: false };
        let receiver = Receiver::listen(&listen, false).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[7; 1000], receiver.address().unwrap()).unwrap();
        }
        let held = 100 - receiver.drops().unwrap();
        assert!(
            (1..100).contains(&held),
            "{held} of 100 held in {} bytes",
            receiver.buffer_bytes()
        );
    }

    #[test]
    fn a_socket_that_only_holds_its_port_takes_nothing_and_lets_nobody_have_it() {
        let address = "127.0.0.1:0".parse().unwrap();
        let listen = Listen { address, interface: None, buffer_bytes: 4096, holds_only: true };
        let mut holder = Receiver::listen(&listen, false).unwrap();
        let address = holder.address().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(address).unwrap();
        // A port that nobody holds answers the first datagram, and the next call returns that as an error.
        (0..3).for_each(|_| assert_eq!(sender.send(&[7; 100]).unwrap(), 100));
        let (mut memory, mut received) = ([0; 100], [Received::default(); 1]);
        let mut slices = [IoSliceMut::new(&mut memory)];
        assert_eq!(holder.receive(&mut slices, 1, &mut received).unwrap(), 0);
        assert!(UdpSocket::bind(address).is_err());
    }

    #[test]
    fn a_port_in_use_is_named() {
        let first = local();
        let address = first.address().unwrap();
        let listen = Listen { address, interface: None, buffer_bytes: 4096, holds_only: false };
        let error = Receiver::listen(&listen, false).err().unwrap();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
    }
}
