//! Destinations of `--forward`: `udp://`, `tcp://` and `tcp+tls://`.

use std::fmt;
use std::path::PathBuf;

use data_encoding::HEXLOWER_PERMISSIVE;
use fullbore_core::endpoint::{Endpoint, Error, UdpTarget};

/// The number of bytes of a SHA-256.
const DIGEST_BYTES: usize = 32;

/// A destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardTarget {
    /// A datagram for each frame.
    Udp {
        /// The address.
        to: UdpTarget,
        /// True if a packet number precedes each frame (VTP).
        numbered: bool,
    },
    /// A connection with the frames of a stream one after the other.
    Tcp {
        /// The address or host name.
        host: String,
        /// The port.
        port: u16,
        /// TLS over the connection, if it is encrypted.
        tls: Option<TlsTrust>,
    },
}

/// The certificates that a destination of `tcp+tls://` may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsTrust {
    /// Those for its host name, issued by an authority that this host trusts.
    System,
    /// Those for its host name, issued by an authority in this PEM file.
    Authority(PathBuf),
    /// One certificate, by the SHA-256 of its DER form. Its names and dates do not matter.
    Pinned([u8; DIGEST_BYTES]),
}

impl fmt::Display for ForwardTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp { to, .. } => to.fmt(f),
            Self::Tcp { host, port, tls } => {
                let scheme = if tls.is_some() { "tcp+tls" } else { "tcp" };
                match host.contains(':') {
                    true => write!(f, "{scheme}://[{host}]:{port}"),
                    false => write!(f, "{scheme}://{host}:{port}"),
                }
            }
        }
    }
}

impl ForwardTarget {
    /// Reads one endpoint, and makes a destination of each of its ports.
    pub fn parse(text: &str) -> Result<Vec<Self>, Error> {
        let mut endpoint: Endpoint = text.parse()?;
        let tls = match endpoint.scheme.as_str() {
            "tcp" => None,
            "tcp+tls" => Some(trust(&mut endpoint)?),
            _ => return udp(endpoint),
        };
        if let Some((name, _)) = endpoint.parameters.first() {
            let known = if tls.is_some() { "pin, ca" } else { "none" };
            let (name, scheme) = (name.clone(), endpoint.scheme);
            return Err(Error::Unknown { name, scheme, known: known.to_owned() });
        }
        endpoint.scheme = "udp".to_owned();
        let ports = UdpTarget::expand(&endpoint)?.into_iter();
        Ok(ports.map(|it| Self::Tcp { host: it.host, port: it.port, tls: tls.clone() }).collect())
    }
}

fn udp(mut endpoint: Endpoint) -> Result<Vec<ForwardTarget>, Error> {
    let numbered = ("format".to_owned(), "vtp".to_owned());
    let before = endpoint.parameters.len();
    endpoint.parameters.retain(|parameter| *parameter != numbered);
    let numbered = endpoint.parameters.len() < before;
    let targets = UdpTarget::expand(&endpoint)?.into_iter();
    Ok(targets.map(|to| ForwardTarget::Udp { to, numbered }).collect())
}

/// Takes the parameters that say whom to trust.
fn trust(endpoint: &mut Endpoint) -> Result<TlsTrust, Error> {
    let mut take = |name: &str| {
        let place = endpoint.parameters.iter().position(|(it, _)| it == name)?;
        Some(endpoint.parameters.remove(place).1)
    };
    match (take("pin"), take("ca")) {
        (None, None) => Ok(TlsTrust::System),
        (None, Some(path)) => Ok(TlsTrust::Authority(path.into())),
        (Some(pin), None) => digest(&pin).map(TlsTrust::Pinned).ok_or_else(|| Error::Value {
            name: "pin".to_owned(),
            value: pin,
            why: "not a SHA-256 in hexadecimal digits".to_owned(),
            example: "sha256:5c:1e:…, as `openssl x509 -fingerprint -sha256` prints it",
        }),
        (Some(_), Some(_)) => Err(Error::Together {
            what: "`pin` names one certificate, and `ca` an authority: give one of them".to_owned(),
        }),
    }
}

/// Reads a digest, with or without `sha256:` and colons.
fn digest(text: &str) -> Option<[u8; DIGEST_BYTES]> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text).replace(':', "");
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_read_with_its_ports_and_its_framing() {
        let texts = |text: &str| -> Vec<String> {
            ForwardTarget::parse(text).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(texts("tcp://h:5000-5001"), ["tcp://h:5000", "tcp://h:5001"]);
        assert_eq!(texts("tcp+tls://[::1]:5000"), ["tcp+tls://[::1]:5000"]);
        assert_eq!(texts("udp://h:5000?ttl=3"), ["udp://h:5000?ttl=3"]);
        let numbered = ForwardTarget::parse("udp://h:1?format=vtp").unwrap();
        assert!(matches!(numbered[..], [ForwardTarget::Udp { numbered: true, .. }]));
        let wrong = ["file:x", "tcp://h:1?ttl=3", "udp://h:1?format=raw", "udp://h", "tcp://:1"];
        for wrong in wrong.into_iter().chain(["tcp+tls://h:1?ttl=3", "tcp://h:1?ca=x"]) {
            assert!(ForwardTarget::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_certificate_is_pinned_in_each_form_that_openssl_prints() {
        let trust = |text: &str| match ForwardTarget::parse(text).ok()?.pop()? {
            ForwardTarget::Tcp { tls, .. } => tls,
            ForwardTarget::Udp { .. } => None,
        };
        let colons = ["AB"; DIGEST_BYTES].join(":");
        let plain = "ab".repeat(DIGEST_BYTES);
        for pin in [format!("sha256:{colons}"), colons, plain.clone()] {
            let found = trust(&format!("tcp+tls://h:1?pin={pin}"));
            assert_eq!(found, Some(TlsTrust::Pinned([0xAB; DIGEST_BYTES])), "{pin}");
        }
        assert_eq!(trust("tcp+tls://h:1"), Some(TlsTrust::System));
        let file = Some(TlsTrust::Authority("/etc/ca.pem".into()));
        assert_eq!(trust("tcp+tls://h:1?ca=/etc/ca.pem"), file);
        for wrong in [&plain[2..], "sha1:00", ""] {
            assert_eq!(trust(&format!("tcp+tls://h:1?pin={wrong}")), None, "{wrong}");
        }
        assert_eq!(trust(&format!("tcp+tls://h:1?pin={plain}&ca=x")), None);
    }
}
