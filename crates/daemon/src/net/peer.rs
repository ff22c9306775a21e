//! The other end of a connection, and which names of this host it may use.

use std::net::{IpAddr, SocketAddr};

use super::table::Origin;

/// The other end of a connection. Requests carry it as an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client over TCP.
    Tcp {
        /// The address of this end.
        local: SocketAddr,
        /// The address of the client.
        remote: SocketAddr,
        /// True if the connection is encrypted.
        tls: bool,
    },
    /// A process of this host, over the Unix socket.
    Unix {
        /// The user, by the kernel (SO_PEERCRED).
        uid: u32,
    },
}

impl Peer {
    /// Who is counted together with it.
    pub fn origin(&self) -> Origin {
        match self {
            Self::Tcp { remote, .. } => Origin::of(remote.ip()),
            Self::Unix { uid } => Origin::User(*uid),
        }
    }

    /// The port that a browser has connected to, which is in the name of its cookie.
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp { local, .. } => local.port(),
            Self::Unix { .. } => 0,
        }
    }

    /// True if the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { tls: true, .. })
    }

    /// True if a `Host` header names this end: its own address, a name of loopback if it is loopback, or one of `names`.
    /// DNS of an attacker can lead another name here (DNS rebinding), so other names are not ours.
    pub fn is_named(&self, host: &str, names: &[String]) -> bool {
        let Self::Tcp { local, tls, .. } = self else { return true };
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
            _ => (host, Some(if *tls { 443 } else { 80 })),
        };
        port == Some(local.port()) && (is_address(name, local.ip()) || is_among(name, names))
    }

    /// True if an `Origin` header is that of our own pages.
    pub fn is_origin(&self, origin: &str, names: &[String]) -> bool {
        let scheme = if self.is_tls() { "https://" } else { "http://" };
        origin.strip_prefix(scheme).is_some_and(|host| self.is_named(host, names))
    }
}

fn is_address(name: &str, local: IpAddr) -> bool {
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let given = match bare {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => name.parse().ok().map(IpAddr::V4),
    };
    let local = local.to_canonical();
    match local.is_loopback() {
        true => name == "localhost" || given.is_some_and(|it| it.is_loopback()),
        false => given == Some(local),
    }
}

fn is_among(name: &str, names: &[String]) -> bool {
    names.iter().any(|it| it.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(local: &str, tls: bool) -> Peer {
        Peer::Tcp { local: local.parse().unwrap(), remote: "192.0.2.9:5".parse().unwrap(), tls }
    }

    #[test]
    fn only_names_of_loopback_with_the_port_are_ours() {
        let ours = |host: &str| peer("127.0.0.1:8480", false).is_named(host, &[]);
        for host in ["127.0.0.1:8480", "localhost:8480", "[::1]:8480", "127.1.2.3:8480"] {
            assert!(ours(host), "{host}");
        }
        let at_80 = peer("127.0.0.1:80", false);
        assert!(at_80.is_named("localhost", &[]) && at_80.is_named("[::1]", &[]));
        for other in [
            "",
            "localhost",
            "localhost:8481",
            "evil.example:8480",
            "127.0.0.1.evil.example:8480",
            "127.evil.example:8480",
            "localhost.evil.example:8480",
            "[::1]",
            "0.0.0.0:8480",
            "192.0.2.1:8480",
            "localhost:8480:8480",
        ] {
            assert!(!ours(other), "{other}");
        }
    }

    #[test]
    fn another_address_is_named_by_itself_or_by_the_names_of_the_file() {
        let names = ["Station.example.org".to_owned()];
        let open = peer("192.0.2.1:443", true);
        for host in ["192.0.2.1", "192.0.2.1:443", "station.example.org", "STATION.example.org:443"]
        {
            assert!(open.is_named(host, &names), "{host}");
        }
        for other in ["localhost", "192.0.2.2", "evil.example", "station.example.org:80"] {
            assert!(!open.is_named(other, &names), "{other}");
        }
        assert!(open.is_origin("https://station.example.org", &names));
        assert!(!open.is_origin("http://station.example.org", &names));
        assert!(peer("[2001:db8::1]:8443", true).is_named("[2001:db8::1]:8443", &[]));
        assert!(Peer::Unix { uid: 0 }.is_named("anything", &[]));
    }
}
