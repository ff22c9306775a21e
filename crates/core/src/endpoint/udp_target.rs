//! `udp://host:ports?…` as a target: the destination of datagrams.

use std::fmt;

use super::query::{Parameter, Query, parameter};
use super::udp::{interface, udp_authority};
use super::{Authority, Endpoint, Error};

/// One destination port. [`UdpTarget::expand`] makes one per port of the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpTarget {
    /// The address or host name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The hop limit of a datagram; `None`: 1 for a group, otherwise the default of the system.
    pub ttl: Option<u8>,
    /// The network interface to send through.
    pub interface: Option<String>,
}

impl UdpTarget {
    /// The parameters that may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[
        parameter("ttl", "8", "hop limit of datagrams; default 1 for a multicast group"),
        parameter("interface", "eth0", "the network interface to send through"),
    ];

    /// Reads one endpoint and makes a target of each of its ports.
    pub fn parse(text: &str) -> Result<Vec<UdpTarget>, Error> {
        Self::expand(&text.parse()?)
    }

    /// Makes a target of each port.
    pub fn expand(endpoint: &Endpoint) -> Result<Vec<UdpTarget>, Error> {
        let (authority, ports) = udp_authority(endpoint, "target", "udp://127.0.0.1:46220")?;
        let host = &authority.host;
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(Error::Address { host: host.clone() });
        }
        let query = Query::new(endpoint, Self::PARAMETERS)?;
        let ttl = query.number("ttl", 0..=255)?.map(|ttl| ttl as u8);
        let interface = query.value("interface", interface)?;
        let of_port =
            |port| UdpTarget { host: host.clone(), port, ttl, interface: interface.clone() };
        Ok(ports.map(of_port).collect())
    }
}

impl fmt::Display for UdpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ttl = self.ttl.map(|ttl| ("ttl".to_owned(), ttl.to_string()));
        let interface = self.interface.clone().map(|name| ("interface".to_owned(), name));
        let ports = Some(self.port..=self.port);
        Endpoint {
            scheme: "udp".to_owned(),
            authority: Some(Authority { host: self.host.clone(), ports }),
            path: String::new(),
            parameters: ttl.into_iter().chain(interface).collect(),
        }
        .fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ports_is_one_target_each() {
        let targets = UdpTarget::parse("udp://recorder.example:5000-5007?ttl=8").unwrap();
        assert_eq!(targets.len(), 8);
        assert_eq!(targets[7].to_string(), "udp://recorder.example:5007?ttl=8");
        assert!(UdpTarget::parse("udp://:5000").is_err());
    }
}
