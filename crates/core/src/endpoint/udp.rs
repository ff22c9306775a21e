//! The common parts of UDP sources and targets: address, ports, interface.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::ops::RangeInclusive;

use super::{Authority, Endpoint, Error};

/// The largest payload of a UDP datagram over IPv4.
pub const LARGEST_DATAGRAM: u32 = 65_507;

/// Host and ports of a `udp://` endpoint.
pub(super) fn udp_authority<'a>(
    endpoint: &'a Endpoint,
    wanted: &'static str,
    example: &'static str,
) -> Result<(&'a Authority, RangeInclusive<u16>), Error> {
    endpoint.must_be("udp", wanted, example)?;
    let no_ports = || Error::Ports { text: endpoint.to_string() };
    let no_slashes = || Error::Form { text: endpoint.to_string() };
    let authority = endpoint.authority.as_ref().ok_or_else(no_slashes)?;
    if !matches!(endpoint.path.as_str(), "" | "/") {
        return Err(Error::Form { text: endpoint.to_string() });
    }
    Ok((authority, authority.ports.clone().ok_or_else(no_ports)?))
}

/// Returns an address of this host or a group; `any` if no host is named.
pub(super) fn socket_address(host: &str, any: SocketAddr) -> Result<SocketAddr, Error> {
    match host {
        "" | "*" => Ok(any),
        "localhost" => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), any.port())),
        host if host.contains('%') => {
            let address = format!("[{host}]:{}", any.port()).parse::<SocketAddrV6>();
            address.map(SocketAddr::V6).map_err(|_| Error::Address { host: host.to_owned() })
        }
        host => {
            let ip = host.parse().map_err(|_| Error::Address { host: host.to_owned() })?;
            Ok(SocketAddr::new(ip, any.port()))
        }
    }
}

/// The kernel's limit for names of interfaces is 15 bytes.
pub(super) fn interface(value: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_graphic() && c != '/';
    if (1..=15).contains(&value.len()) && value.chars().all(fine) {
        Ok(value.to_owned())
    } else {
        Err("it is the name of a network interface, up to 15 characters".to_owned())
    }
}
