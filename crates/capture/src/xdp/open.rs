//! Opening AF_XDP sockets for the sources of a capture thread.
//!
//! The order matters: UDP sockets hold the ports, XDP sockets take the queues, and the program comes last. So no packet is
//! sent to a socket that is not there, and an interface that cannot be used never had a program.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fullbore_core::endpoint::UdpSource;
use fullbore_core::hint::Hint;
use fullbore_linux::sys::bpf::{self, SocketMap};
use fullbore_linux::sys::interfaces;
use fullbore_linux::sys::receive::{self, Receiver};
use fullbore_linux::sys::xdp::{self, REGISTERING, XdpSocket};
use rustix::event::epoll;
use rustix::io::Errno;

use super::card::{Card, Shape, Unfit, memory};
use super::program::{self, Flows, TooLong};
use super::sorter::Sorter;
use super::{Interface, Queue, Shared, XdpInput};
use crate::packet_filter::PortRule;
use crate::port::{PortError, listen};

/// The buffer of the UDP sockets, which receive what passes the program.
const SOCKET_BUFFER: usize = 8 << 20;

/// What to do where the driver has no zero-copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// The kernel may copy packets to the memory.
    Allowed,
    /// Fail.
    Refused,
}

/// XDP that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The port could not be held.
    #[error(transparent)]
    Listen(Box<PortError>),
    /// The interface could not be found.
    #[error(transparent)]
    Find(receive::Error),
    /// The addresses of this host could not be read.
    #[error("reading the addresses of this host")]
    Addresses(#[source] io::Error),
    /// The endpoint names no interface, and its address is not that of one.
    #[error("{endpoint}: no interface of this host has the address, and the endpoint names none")]
    NoInterface {
        /// The endpoint.
        endpoint: String,
    },
    /// An interface that XDP cannot use.
    #[error("{interface} cannot be used: {why}")]
    Unfit {
        /// Its name.
        interface: String,
        /// The reason.
        why: Unfit,
    },
    /// There are too many ports.
    #[error(transparent)]
    Program(#[from] TooLong),
    /// The kernel gives no socket.
    #[error(transparent)]
    Socket(xdp::Error),
    /// The driver has no zero-copy.
    #[error("the driver of {interface} has no zero-copy: the kernel would copy each packet")]
    Copies {
        /// The name of the interface.
        interface: String,
    },
    /// The kernel refuses the program.
    #[error("{interface}: {error}")]
    Attach {
        /// The name of the interface.
        interface: String,
        /// The failed request.
        error: bpf::Error,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The descriptors cannot be waited for.
    #[error("waiting for XDP sockets")]
    Wait(#[source] io::Error),
}

const NEEDS_RIGHTS: &str = "XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: sudo setcap \
                            cap_net_raw,cap_net_admin,cap_bpf+ep $(command -v fullbore), or record with engine=packet \
                            or engine=udp";

const NEEDS_MEMORY: &str = "the memory of XDP sockets is locked: raise `ulimit -l` or LimitMEMLOCK= of the service, \
                            give CAP_IPC_LOCK too, or ask for less with rcvbuf=";

const IS_TAKEN: &str = "one program at a time receives from an interface by XDP: stop the other one (`ip link show` \
                        tells of its program), or record with engine=packet";

const HAS_NONE: &str = "its driver may run no XDP program, or not at this MTU: record with engine=packet or engine=udp";

impl Hint for XdpError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let of_kernel = |error: &io::Error| match Errno::from_io_error(error)? {
            Errno::PERM | Errno::ACCESS => Some(NEEDS_RIGHTS.into()),
            Errno::BUSY | Errno::EXIST => Some(IS_TAKEN.into()),
            Errno::OPNOTSUPP | Errno::INVAL | Errno::RANGE => Some(HAS_NONE.into()),
            _ => None,
        };
        match self {
            Self::Socket(error) if error.action == REGISTERING => {
                let is_limit = Errno::from_io_error(&error.source) == Some(Errno::NOBUFS);
                if is_limit { Some(NEEDS_MEMORY.into()) } else { of_kernel(&error.source) }
            }
            Self::Socket(error) => of_kernel(&error.source),
            Self::Attach { source, .. } => of_kernel(source),
            Self::NoInterface { .. } => {
                Some("name the interface that the packets come through: interface=eth0".into())
            }
            Self::Unfit { .. } | Self::Copies { .. } | Self::Program(_) => {
                Some("record with engine=packet or engine=udp".into())
            }
            Self::Listen(_) | Self::Find(_) | Self::Addresses(_) | Self::Wait(_) => None,
        }
    }
}

/// Inputs that were opened together.
pub struct XdpInputs {
    /// One for each source.
    pub inputs: Vec<XdpInput>,
    /// How packets come, in words: `zero-copy on 4 queues of eth0`.
    pub how: String,
}

/// Opens one socket for each queue of each interface that these sources need, and an input for each source.
pub fn open(sources: &[&UdpSource], copies: Copies) -> Result<XdpInputs, XdpError> {
    let mut holders = Vec::with_capacity(sources.len());
    for source in sources {
        holders.push(
            listen(source, SOCKET_BUFFER).map_err(|error| XdpError::Listen(Box::new(error)))?,
        );
    }
    let addresses = interfaces::addresses().map_err(XdpError::Addresses)?;
    let names = names(sources, &addresses)?;
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        by_name.entry(name).or_default().push(number);
    }
    let mut taken = Vec::new();
    let mut rules: Vec<Option<PortRule>> = vec![None; sources.len()];
    for (name, users) in &by_name {
        let card = Card::read(Path::new("/sys/class/net"), name)
            .map_err(|why| XdpError::Unfit { interface: (*name).to_owned(), why })?;
        let number = holders[users[0]].interface_number(name).map_err(XdpError::Find)?;
        for &user in users {
            let address = holders[user].address().unwrap_or(sources[user].address);
            rules[user] = Some(PortRule { address, interface: Some(number) });
        }
        let of_card = users.iter().filter_map(|user| rules[*user]);
        let ranges = ranges(of_card, name, &addresses);
        let stated = users.iter().map(|user| sources[*user].receive_buffer.map(|it| it.0));
        taken.push(Taken::open(card, name, number, ranges, memory(stated))?);
    }
    if copies == Copies::Refused
        && let Some(copying) = taken.iter().find(|it| !it.is_zero_copy())
    {
        return Err(XdpError::Copies { interface: copying.name.clone() });
    }
    let how = taken.iter().map(Taken::how).collect::<Vec<_>>().join(", ");
    let buffer_bytes =
        taken.iter().flat_map(|it| &it.sockets).map(XdpSocket::bytes_of_memory).sum();
    let readiness = holders.iter().map(|holder| readiness(holder, &taken));
    let readiness = readiness.collect::<io::Result<Vec<OwnedFd>>>().map_err(XdpError::Wait)?;
    let place = |name: &String| by_name.keys().position(|it| it == name).unwrap_or_default();
    let places: Vec<usize> = names.iter().map(place).collect();
    let (mut attached, mut queues) = (Vec::new(), Vec::new());
    for (interface, taken) in taken.into_iter().enumerate() {
        let (one, sockets) = taken.attach()?;
        attached.push(one);
        queues.extend(sockets.into_iter().map(|socket| Queue { socket, interface }));
    }
    let sorter = Sorter::new(rules.into_iter().flatten().collect());
    let shared = Shared { interfaces: attached, queues, current: None, next: 0, sorter };
    let shared = Arc::new(Mutex::new(shared));
    let parts = holders.into_iter().zip(readiness).zip(places).enumerate();
    let input = |(queue, ((socket, readiness), interface))| XdpInput {
        shared: shared.clone(),
        queue,
        interface,
        socket,
        readiness,
        buffer_bytes,
        asked: Instant::now(),
        asks_first: false,
        emptied: false,
        passed: 0,
        told: (0, 0),
    };
    Ok(XdpInputs { inputs: parts.map(input).collect(), how })
}

/// Returns the interface of each source: the one that it names, or the one that has its address.
fn names(sources: &[&UdpSource], addresses: &[(String, IpAddr)]) -> Result<Vec<String>, XdpError> {
    let of_source = |source: &&UdpSource| {
        let address = source.address.ip().to_canonical();
        let owner =
            || addresses.iter().find(|(_, of)| *of == address).map(|(name, _)| name.clone());
        let found = source.interface.clone().or_else(owner);
        found.ok_or_else(|| XdpError::NoInterface { endpoint: source.endpoint.to_string() })
    };
    sources.iter().map(of_source).collect()
}

/// Returns the flows of these rules. The wildcard is every address that the interface has now.
fn ranges(
    rules: impl Iterator<Item = PortRule>,
    name: &str,
    addresses: &[(String, IpAddr)],
) -> Vec<(IpAddr, u16, u16)> {
    let mut flows: Vec<(IpAddr, u16)> = Vec::new();
    for rule in rules {
        let (own, port) = (rule.address.ip(), rule.address.port());
        if own.is_unspecified() {
            let of_interface = addresses.iter().filter(|(of, _)| of == name);
            let taken = of_interface
                .map(|(_, it)| *it)
                .filter(|it| rule.takes(*it, rule.interface.unwrap_or(0)));
            flows.extend(taken.map(|address| (address, port)));
        } else {
            flows.push((own.to_canonical(), port));
        }
    }
    flows.sort_unstable();
    flows.dedup();
    let mut ranges: Vec<(IpAddr, u16, u16)> = Vec::new();
    for (address, port) in flows {
        match ranges.last_mut() {
            Some((of, _, last)) if *of == address && u32::from(port) == u32::from(*last) + 1 => {
                *last = port;
            }
            _ => ranges.push((address, port, port)),
        }
    }
    ranges
}

/// An interface whose queues have their sockets, and no program yet.
struct Taken {
    name: String,
    number: u32,
    flows: Flows,
    sockets: Vec<XdpSocket>,
}

impl Taken {
    fn open(
        card: Card,
        name: &str,
        number: u32,
        ranges: Vec<(IpAddr, u16, u16)>,
        bytes: u64,
    ) -> Result<Self, XdpError> {
        let Shape { chunk_bytes, chunks, in_parts } = card.shape(bytes);
        let Card { ethernet, mtu, queues } = card;
        let flows = Flows { ranges, ethernet, mtu, in_parts };
        // A program that is too long is found before a queue is taken.
        program::build(&flows, 0)?;
        let sockets = (0..queues)
            .map(|queue| {
                let interface = number;
                let name = name.to_owned();
                XdpSocket::open(&xdp::Settings {
                    name,
                    interface,
                    queue,
                    chunks,
                    chunk_bytes,
                    in_parts,
                })
            })
            .collect::<Result<Vec<XdpSocket>, xdp::Error>>()
            .map_err(XdpError::Socket)?;
        Ok(Self { name: name.to_owned(), number, flows, sockets })
    }

    fn is_zero_copy(&self) -> bool {
        self.sockets.iter().all(XdpSocket::is_zero_copy)
    }

    fn how(&self) -> String {
        let way = if self.is_zero_copy() { "zero-copy" } else { "copies" };
        let count = self.sockets.len();
        format!("{way} on {count} queue{} of {}", if count == 1 { "" } else { "s" }, self.name)
    }

    /// Attaches the program. Packets come from here on.
    fn attach(self) -> Result<(Interface, Vec<XdpSocket>), XdpError> {
        let Self { name, number, flows, sockets } = self;
        let attached = || {
            let map = SocketMap::new(sockets.len() as u32)?;
            for (queue, socket) in sockets.iter().enumerate() {
                map.set(queue as u32, socket.as_fd())?;
            }
            let program = program::build(&flows, map.number()).expect("it was built before");
            bpf::Program::load(&program, flows.in_parts)?.attach(number)
        };
        let failed = |mut error: bpf::Error| {
            let source = std::mem::replace(&mut error.source, io::ErrorKind::Other.into());
            XdpError::Attach { interface: name.clone(), error, source }
        };
        let link = attached().map_err(failed)?;
        Ok((Interface { name, number, _link: link }, sockets))
    }
}

/// Returns a descriptor that is ready when packets came for the source, or for others through the same queues.
fn readiness(holder: &Receiver, taken: &[Taken]) -> io::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(0);
    epoll::add(&all, holder, data, epoll::EventFlags::IN)?;
    for socket in taken.iter().flat_map(|it| &it.sockets) {
        epoll::add(&all, socket, data, epoll::EventFlags::IN)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> UdpSource {
        UdpSource::parse(text).unwrap().remove(0)
    }

    fn addresses() -> Vec<(String, IpAddr)> {
        [("eth0", "10.0.0.1"), ("eth0", "10.0.0.7"), ("eth0", "fd00::1"), ("eth1", "10.1.0.1")]
            .map(|(name, address)| (name.to_owned(), address.parse().unwrap()))
            .to_vec()
    }

    #[test]
    fn a_source_has_the_interface_of_its_address_or_the_one_that_it_names() {
        let found = |text: &str| names(&[&source(text)], &addresses());
        assert_eq!(found("udp://10.1.0.1:5000").unwrap(), ["eth1"]);
        assert_eq!(found("udp://0.0.0.0:5000?interface=eth0").unwrap(), ["eth0"]);
        for text in ["udp://0.0.0.0:5000", "udp://239.1.2.3:5000", "udp://10.9.9.9:5000"] {
            let error = found(text).unwrap_err();
            assert!(error.to_string().starts_with(text) && error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn a_wildcard_is_every_address_of_its_interface_and_ports_in_a_row_are_one_range() {
        let of = |texts: &[&str]| {
            let rule =
                |text: &&str| PortRule { address: text.parse().unwrap(), interface: Some(2) };
            let found = ranges(texts.iter().map(rule), "eth0", &addresses());
            found.iter().map(|(to, first, last)| format!("{to} {first}-{last}")).collect::<Vec<_>>()
        };
        assert_eq!(of(&["0.0.0.0:5000"]), ["10.0.0.1 5000-5000", "10.0.0.7 5000-5000"]);
        let every = ["10.0.0.1 7-7", "10.0.0.7 7-7", "fd00::1 7-7"];
        assert_eq!(of(&["[::]:7"]), every);
        let several =
            ["10.0.0.1:5002", "10.0.0.1:5000", "10.0.0.1:5001", "10.0.0.1:5009", "10.0.0.1:65535"];
        assert_eq!(
            of(&several),
            ["10.0.0.1 5000-5002", "10.0.0.1 5009-5009", "10.0.0.1 65535-65535"]
        );
    }
}
