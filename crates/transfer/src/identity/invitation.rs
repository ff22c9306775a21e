//! Addresses of hosts, with or without an invitation, as one word that can be copied and pasted.
//!
//! ```text
//! fullbore://HOST[:PORT]                     a host whose key is known
//! fullbore://HOST[:PORT]/mfqwc3tfon2dgmj…    an invitation: 80 characters of base32
//!
//! | key fingerprint 32 | secret 16 | checksum 2 |      the checksum: first bytes of the SHA-256 of the rest
//! ```
//!
//! No character has a meaning in a shell, except the brackets of an IPv6 address in some.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use fullbore_core::hint::Hint;
use sha2::{Digest, Sha256};

use super::Fingerprint;
use super::fingerprint::{from_base32, to_base32};
use super::peers::harmless;

/// The port of transfers.
pub const DEFAULT_PORT: u16 = 4780;
const SCHEME: &str = "fullbore://";
/// Characters of the code of an invitation.
const CODE_CHARACTERS: usize = 80;
const LONGEST_HOST: usize = 253;

/// An address, the key to expect there, and a secret that makes the connecting end known, once.
///
/// `Display` shows the secret; `Debug` does not.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Host and port.
    pub address: String,
    /// The key of the host.
    pub key: Fingerprint,
    /// The secret.
    pub secret: [u8; 16],
}

/// The host that a user names, with an invitation or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Host and port; an IPv6 address is in brackets.
    pub address: String,
    /// The invitation, if the text has one.
    pub invitation: Option<Invitation>,
}

/// A text that is no address or invitation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It does not begin with `fullbore://`.
    #[error("{text:?} is not an address of fullbore")]
    Scheme {
        /// The beginning of the text.
        text: String,
    },
    /// The host is missing or has characters that no host has.
    #[error("{host:?} is not a host name or IP address")]
    Host {
        /// The host.
        host: String,
    },
    /// The port is not a number from 1 to 65535.
    #[error("{port:?} is not a port: ports are 1 to 65535")]
    Port {
        /// The port.
        port: String,
    },
    /// The text has no invitation where one is needed.
    #[error("the address has no invitation")]
    NoCode,
    /// The code of the invitation has another length.
    #[error("the invitation has {characters} characters after the address, not {CODE_CHARACTERS}")]
    CodeLength {
        /// Its length.
        characters: usize,
    },
    /// A character that the code cannot have.
    #[error("the invitation contains {sign:?}, which does not occur in invitations")]
    CodeSign {
        /// The character.
        sign: char,
    },
    /// The checksum is wrong.
    #[error("the invitation is mistyped: its checksum is wrong")]
    Checksum,
}

impl Hint for AddressError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::Scheme { .. } => {
                format!("write {SCHEME}HOST or {SCHEME}HOST:PORT; the port is {DEFAULT_PORT} if none is given").into()
            }
            Self::Host { .. } => {
                format!("write an IPv6 address in brackets: {SCHEME}[2001:db8::1]:{DEFAULT_PORT}").into()
            }
            Self::Port { .. } => {
                format!("leave the port out if it is {DEFAULT_PORT}").into()
            }
            Self::NoCode => "ask the other end for an invitation".into(),
            Self::CodeLength { .. } | Self::CodeSign { .. } | Self::Checksum => {
                "copy the whole invitation again, as the other end shows it".into()
            }
        })
    }
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [self.key.0.as_slice(), &self.secret].concat();
        bytes.extend(checksum(&bytes));
        write!(f, "{SCHEME}{}/{}", self.address, to_base32(&bytes))
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("address", &self.address)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl FromStr for Invitation {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Destination>()?.invitation.ok_or(AddressError::NoCode)
    }
}

impl fmt::Display for Destination {
    /// Leaves out the invitation, since it is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.address)
    }
}

impl FromStr for Destination {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let scheme = || AddressError::Scheme { text: harmless(text, 40) };
        let begin = text.get(..SCHEME.len()).ok_or_else(scheme)?;
        if !begin.eq_ignore_ascii_case(SCHEME) {
            return Err(scheme());
        }
        let rest = &text[SCHEME.len()..];
        let (address, code) = rest.split_once('/').unwrap_or((rest, ""));
        let address = check_address(address)?;
        let invitation = match code {
            "" => None,
            code => Some(decode(&address, code)?),
        };
        Ok(Self { address, invitation })
    }
}

fn decode(address: &str, code: &str) -> Result<Invitation, AddressError> {
    let characters = code.chars().count();
    if characters != CODE_CHARACTERS {
        return Err(AddressError::CodeLength { characters });
    }
    let bytes = from_base32(code).map_err(|sign| AddressError::CodeSign { sign })?;
    let length = AddressError::CodeLength { characters };
    let (key, rest) = bytes.split_first_chunk::<32>().ok_or(length.clone())?;
    let (secret, sum) = rest.split_first_chunk::<16>().ok_or(length)?;
    if *sum != checksum(&bytes[..48]) {
        return Err(AddressError::Checksum);
    }
    Ok(Invitation { address: address.to_owned(), key: Fingerprint(*key), secret: *secret })
}

/// The address is not in the checksum: the same invitation holds for another name of the host.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let digest = Sha256::digest([b"fullbore invitation".as_slice(), bytes].concat());
    [digest[0], digest[1]]
}

/// Checks `host` or `host:port`, and returns it with the port.
pub(super) fn check_address(text: &str) -> Result<String, AddressError> {
    let (host, port) = split_port(text);
    let bad = || AddressError::Host { host: harmless(host, 80) };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => is_ipv6(inner),
        None => is_name(host),
    };
    if !is_host {
        return Err(bad());
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) => {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let port = text.parse().ok().filter(|port: &u16| digits && *port > 0);
            port.ok_or_else(|| AddressError::Port { port: harmless(text, 20) })?
        }
    };
    Ok(format!("{}:{port}", host.to_ascii_lowercase()))
}

/// Splits at the last colon that is not within brackets.
fn split_port(text: &str) -> (&str, Option<&str>) {
    let after = text.rfind(']').map_or(0, |at| at + 1);
    match text[after..].rfind(':') {
        Some(at) => (&text[..after + at], Some(&text[after + at + 1..])),
        None => (text, None),
    }
}

/// An IPv6 address, with the zone of a link-local one.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "lo"));
    let named = !zone.is_empty() && zone.len() < 16;
    address.parse::<Ipv6Addr>().is_ok() && named && is_name(zone)
}

fn is_name(text: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    starts && text.len() <= LONGEST_HOST && text.bytes().all(usual)
}
