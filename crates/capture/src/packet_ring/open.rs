//! Opening a ring for the sources of a capture thread.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fullbore_core::endpoint::{Gro, UdpSource};
use fullbore_core::hint::Hint;
use fullbore_linux::sys::packet::{self, BLOCK_BYTES, PacketRing, Protocol};
use fullbore_linux::sys::receive::{self, Listen, Receiver};
use rustix::event::epoll;

use super::sorter::Sorter;
use super::{OneRing, RETIRE_MS, RingInput, SharedRing};
use crate::packet_filter::{self, PortRule, TooLong};

/// The least memory of a ring for all of its sources.
const LEAST_BYTES: u64 = 64 << 20;

/// The memory for each source, unless its endpoint states it.
const BYTES_OF_SOURCE: u64 = 16 << 20;

/// The most memory of a ring.
const MOST_BYTES: u64 = 1 << 30;

/// The buffer of a socket that takes nothing, in bytes.
const HOLDER_BUFFER: usize = 4096;

/// Hardware types of interfaces with an Ethernet header, as `linux/if_arp.h` numbers them: Ethernet and loopback.
const WITH_ETHERNET: [&str; 2] = ["1", "772"];

/// The flag of an interface that is up.
const IS_UP: u32 = 1;

/// The first kernel that tells the length of merged datagrams in a packet ring.
const TELLS_SEGMENTS: (u32, u32) = (6, 2);

/// A ring that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The port could not be held.
    #[error(transparent)]
    Listen(receive::Error),
    /// The kernel gives no ring.
    #[error(transparent)]
    Ring(packet::Error),
    /// There are too many ports.
    #[error(transparent)]
    Filter(#[from] TooLong),
    /// An interface whose packets do not begin with an Ethernet header.
    #[error("{interface} has no Ethernet header, which a packet ring needs")]
    Interface {
        /// Its name.
        interface: String,
    },
    /// The descriptors cannot be waited for.
    #[error("waiting for a packet ring")]
    Wait(#[source] io::Error),
}

impl Hint for RingError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Ring(error) if error.source.kind() == io::ErrorKind::PermissionDenied => Some(
                "packet rings need CAP_NET_RAW: sudo setcap cap_net_raw+ep $(command -v fullbore), or record with \
                 engine=udp"
                    .into(),
            ),
            Self::Interface { .. } => {
                Some("name the interface that the packets come through: interface=eth0, or record with engine=udp".into())
            }
            Self::Filter(_) => Some("record fewer ports, ports in a row, or with engine=udp".into()),
            _ => None,
        }
    }
}

/// Opens one ring for these sources. Returns an input for each.
pub fn open(sources: &[&UdpSource]) -> Result<Vec<RingInput>, RingError> {
    let merges = merged_lengths_are_told();
    let mut holders = Vec::with_capacity(sources.len());
    for source in sources {
        let listen = Listen {
            address: source.address,
            interface: source.interface.clone(),
            buffer_bytes: HOLDER_BUFFER,
            holds_only: true,
        };
        let holder = Receiver::listen(&listen, false).map_err(RingError::Listen)?;
        // The kernel merges packets for a socket that asks for it, before the ring sees them.
        if merges && source.gro != Gro::Off {
            holder.merge(true);
        }
        holders.push(holder);
    }
    check_interfaces(sources, Path::new("/sys/class/net"))?;
    let rules = holders
        .iter()
        .zip(sources)
        .map(|(holder, source)| {
            let address = holder.address().unwrap_or(source.address);
            let interface = source.interface.as_deref().map(|name| holder.interface_number(name));
            Ok(PortRule { address, interface: interface.transpose()? })
        })
        .collect::<Result<Vec<PortRule>, receive::Error>>()
        .map_err(RingError::Listen)?;
    let protocols: Vec<Protocol> = [Protocol::Ipv4, Protocol::Ipv6]
        .into_iter()
        .filter(|protocol| rules.iter().any(|rule| rule.is_of(*protocol)))
        .collect();
    let blocks = ring_bytes(sources) as usize / BLOCK_BYTES / protocols.len();
    let rings = protocols
        .into_iter()
        .map(|protocol| {
            let filter = packet_filter::build(protocol, &rules)?;
            PacketRing::open(protocol, &filter, blocks, RETIRE_MS).map_err(RingError::Ring)
        })
        .collect::<Result<Vec<PacketRing>, RingError>>()?;
    let ring_bytes = rings.iter().map(PacketRing::bytes).sum();
    let readiness = holders.iter().map(|_| readiness(&rings)).collect::<io::Result<Vec<OwnedFd>>>();
    let readiness = readiness.map_err(RingError::Wait)?;
    let scope = match &rules[..] {
        [only] => only.address.to_string(),
        several => format!("{} and {} more", several[0].address, several.len() - 1),
    };
    let rings = rings.into_iter().map(|ring| OneRing { ring, discarded_ns: None }).collect();
    let sorter = Sorter::new(rules);
    let shared = SharedRing { rings, current: None, sorter, scope, told: (0, 0) };
    let ring = Arc::new(Mutex::new(shared));
    let inputs = holders.into_iter().zip(readiness).enumerate();
    Ok(inputs
        .map(|(queue, (holder, readiness))| RingInput {
            ring: ring.clone(),
            queue,
            holder,
            readiness,
            ring_bytes,
            emptied: false,
        })
        .collect())
}

/// Returns the size of a ring for these sources: what their endpoints state, and enough for the others.
fn ring_bytes(sources: &[&UdpSource]) -> u64 {
    let stated = sources.iter().all(|source| source.receive_buffer.is_some());
    let each =
        sources.iter().map(|source| source.receive_buffer.map_or(BYTES_OF_SOURCE, |it| it.0));
    let least = if stated { 4 * BLOCK_BYTES as u64 } else { LEAST_BYTES };
    each.sum::<u64>().clamp(least, MOST_BYTES)
}

/// Returns a descriptor that is ready when one of the rings is. Each source needs its own.
fn readiness(rings: &[PacketRing]) -> io::Result<OwnedFd> {
    if let [ring] = rings {
        return ring.readiness();
    }
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for ring in rings {
        epoll::add(&all, ring, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
}

/// Refuses interfaces whose packets the filter could not read: they would be lost without a count.
fn check_interfaces(sources: &[&UdpSource], directory: &Path) -> Result<(), RingError> {
    let named: Option<Vec<&str>> = sources.iter().map(|it| it.interface.as_deref()).collect();
    let every = || -> Vec<String> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let names = named.map_or_else(every, |names| names.into_iter().map(str::to_owned).collect());
    let read = |name: &str, file: &str| {
        let text = std::fs::read_to_string(directory.join(name).join(file)).ok();
        text.map(|text| text.trim().to_owned())
    };
    let is_up = |name: &str| {
        let flags = read(name, "flags").unwrap_or_default();
        u32::from_str_radix(flags.trim_start_matches("0x"), 16).is_ok_and(|it| it & IS_UP != 0)
    };
    let other = |name: &String| {
        let kind = read(name, "type");
        is_up(name) && kind.is_some_and(|kind| !WITH_ETHERNET.contains(&kind.as_str()))
    };
    match names.into_iter().find(other) {
        Some(interface) => Err(RingError::Interface { interface }),
        None => Ok(()),
    }
}

/// True if the kernel tells the length of merged datagrams. An older one drops merged packets at the ring.
fn merged_lengths_are_told() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy().into_owned();
    release_number(&release).is_some_and(|release| release >= TELLS_SEGMENTS)
}

fn release_number(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> UdpSource {
        UdpSource::parse(text).unwrap().remove(0)
    }

    #[test]
    fn a_ring_has_what_its_endpoints_state_or_enough_for_all() {
        let bytes = |texts: &[&str]| {
            let sources: Vec<UdpSource> = texts.iter().map(|text| source(text)).collect();
            ring_bytes(&sources.iter().collect::<Vec<_>>())
        };
        let plain = "udp://10.0.0.1:5000";
        assert_eq!(bytes(&[plain]), 64 << 20);
        assert_eq!(bytes(&[plain; 16]), 256 << 20);
        assert_eq!(bytes(&["udp://10.0.0.1:5000?rcvbuf=8MiB"; 2]), 16 << 20);
        assert_eq!(bytes(&["udp://10.0.0.1:5000?rcvbuf=4KiB"]), 4 << 20);
        assert_eq!(bytes(&["udp://10.0.0.1:5000?rcvbuf=1GiB"; 9]), 1 << 30);
    }

    #[test]
    fn an_interface_without_ethernet_header_is_refused_unless_another_is_named() {
        let root = tempfile::tempdir().unwrap();
        for (name, kind, flags) in [
            ("lo", "772", "0x9"),
            ("eth0", "1", "0x1003"),
            ("tun0", "65534", "0x1091"),
            ("sit0", "776", "0x80"),
        ] {
            let path = root.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("type"), format!("{kind}\n")).unwrap();
            std::fs::write(path.join("flags"), format!("{flags}\n")).unwrap();
        }
        let checked = |text: &str| check_interfaces(&[&source(text)], root.path());
        let error = checked("udp://0.0.0.0:5000").unwrap_err();
        assert!(error.to_string().starts_with("tun0 has no Ethernet header"), "{error}");
        assert!(error.hint().is_some());
        assert!(checked("udp://0.0.0.0:5000?interface=eth0").is_ok());
        assert!(checked("udp://0.0.0.0:5000?interface=sit0").is_ok(), "it is down");
        assert!(checked("udp://0.0.0.0:5000?interface=tun0").is_err());
    }

    #[test]
    fn the_release_of_a_kernel_is_read() {
        assert_eq!(release_number("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(release_number("5.15-generic"), Some((5, 15)));
        assert_eq!(release_number("linux"), None);
    }
}
