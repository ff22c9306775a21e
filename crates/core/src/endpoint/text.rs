//! The text of an endpoint: parser and formatter.
//!
//! ```text
//! scheme://host:ports/path?name=value&name=value
//! scheme:path?name=value
//! ```
//!
//! `%` and two hexadecimal digits stand for any byte, so a path may contain a `?`.

use std::fmt::{self, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::Error;

/// The longest text of an endpoint, in bytes.
pub const LONGEST: usize = 4096;

/// An endpoint, split into its parts. `Display` writes the text that parses to the same parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The text before the first colon, in lower case.
    pub scheme: String,
    /// Host and ports, if `//` follows the scheme.
    pub authority: Option<Authority>,
    /// The text after that, up to the `?`.
    pub path: String,
    /// `name=value` after the `?`, in the order given, no name twice.
    pub parameters: Vec<(String, String)>,
}

/// Host and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// An address (IPv6 without its brackets), a host name, or nothing: any address of this host.
    pub host: String,
    /// The ports, first and last.
    pub ports: Option<RangeInclusive<u16>>,
}

impl Endpoint {
    /// Returns an error for any other scheme: `wanted` names the expected kind, as in `example`.
    pub(crate) fn must_be(
        &self,
        scheme: &str,
        wanted: &'static str,
        example: &'static str,
    ) -> Result<(), Error> {
        if self.scheme == scheme {
            Ok(())
        } else {
            Err(Error::Scheme { scheme: self.scheme.clone(), wanted, example })
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > LONGEST {
            return Err(Error::Length { bytes: text.len() });
        }
        let bad = || Error::Form { text: text.to_owned() };
        let (scheme, rest) = text.trim().split_once(':').ok_or_else(bad)?;
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '+';
        if scheme.is_empty() || !scheme.chars().all(is_scheme) {
            return Err(bad());
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match place.strip_prefix("//") {
            None => (None, place),
            Some(place) => {
                let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
                (Some(authority.parse()?), path)
            }
        };
        Ok(Endpoint {
            scheme: scheme.to_ascii_lowercase(),
            authority,
            path: unescape(path)?,
            parameters: parameters(query)?,
        })
    }
}

impl FromStr for Authority {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let ports_error = || Error::Ports { text: text.to_owned() };
        let (host, ports) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) =
                    rest.split_once(']').ok_or_else(|| Error::Form { text: text.to_owned() })?;
                match (rest, rest.strip_prefix(':')) {
                    ("", _) => (host, None),
                    (_, Some(ports)) => (host, Some(ports)),
                    (_, None) => return Err(ports_error()),
                }
            }
            None => match text.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => {
                    return Err(Error::Address { host: text.to_owned() });
                }
                Some((host, ports)) => (host, Some(ports)),
                None => (text, None),
            },
        };
        let no_part_of_a_name =
            |c: char| matches!(c, '[' | ']' | '@') || c.is_whitespace() || c.is_control();
        if host.contains(no_part_of_a_name) {
            return Err(Error::Address { host: host.to_owned() });
        }
        Ok(Authority { host: host.to_owned(), ports: ports.map(port_range).transpose()? })
    }
}

fn port_range(text: &str) -> Result<RangeInclusive<u16>, Error> {
    let bad = || Error::Ports { text: text.to_owned() };
    let port = |text: &str| {
        let plain = text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|&port| plain && port > 0).ok_or_else(bad)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = port(first)?..=port(last)?;
    if range.is_empty() { Err(bad()) } else { Ok(range) }
}

fn parameters(query: &str) -> Result<Vec<(String, String)>, Error> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, "true"));
        let (name, value) = (unescape(name)?.to_ascii_lowercase(), unescape(value)?);
        if parameters.iter().any(|(known, _)| *known == name) {
            return Err(Error::Repeated { name });
        }
        parameters.push((name, value));
    }
    Ok(parameters)
}

/// Replaces `%41` by `A`; a `%` without two hexadecimal digits stays.
fn unescape(text: &str) -> Result<String, Error> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digit = |n: usize| bytes.get(at + n).and_then(|&b| char::from(b).to_digit(16));
        match (byte, digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(plain).map_err(|_| Error::Escape { text: text.to_owned() })
}

/// Writes the escapes that [`unescape`] reads, for bytes with a special meaning.
fn escape(text: &str, special: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        if c == '%' || c.is_whitespace() || c.is_control() || special.contains(c) {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                write!(f, "%{byte:02X}")?;
            }
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        match &self.ports {
            None => Ok(()),
            Some(ports) if ports.start() == ports.end() => write!(f, ":{}", ports.start()),
            Some(ports) => write!(f, ":{}-{}", ports.start(), ports.end()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if let Some(authority) = &self.authority {
            write!(f, "//{authority}")?;
        }
        // Two slashes at the start of a path without a host would be parsed as a host.
        let path = match (&self.authority, self.path.strip_prefix("//")) {
            (None, Some(path)) => {
                f.write_str("%2F/")?;
                path
            }
            _ => &self.path,
        };
        escape(path, "?", f)?;
        for (n, (name, value)) in self.parameters.iter().enumerate() {
            f.write_char(if n == 0 { '?' } else { '&' })?;
            escape(name, "&=?", f)?;
            f.write_char('=')?;
            escape(value, "&", f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::endpoint::{UdpSource, UdpTarget};

    #[test]
    fn what_prints_reads_back_where_the_text_could_mean_something_else() {
        let slashes: Endpoint = "file:%2F%2Fhome/x.vdif".parse().unwrap();
        assert_eq!((slashes.authority.as_ref(), slashes.path.as_str()), (None, "//home/x.vdif"));
        assert_eq!(slashes.to_string().parse(), Ok(slashes));
        for host in ["a b", "a\u{b}?", "\u{7f}", "a\t:5000"] {
            let error = format!("udp://{host}").parse::<Endpoint>().unwrap_err();
            assert!(matches!(error, Error::Address { .. }), "{host:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_what_is_read_prints_back(text in "\\PC{0,60}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>(), Ok(endpoint));
            }
        }

        #[test]
        fn texts_that_look_like_endpoints_do_so_too(
            text in "(udp|file|store):(//)?(\\[::1\\]|[a-z0-9.*]{0,8})(:[0-9]{0,5}(-[0-9]{1,5})?)?\
                     [/a-z%?]{0,5}(\\?[a-z]{1,5}=[^&]{0,6}(&(fps|frame|threads|seq|fill|format)=[^&]{0,6}){0,3})?"
        ) {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>(), Ok(endpoint.clone()));
                let ports = endpoint.authority.as_ref().and_then(|a| a.ports.clone());
                if ports.is_some_and(|ports| ports.count() < 100) {
                    for source in UdpSource::expand(&endpoint).unwrap_or_default() {
                        prop_assert_eq!(UdpSource::parse(&source.to_string()), Ok(vec![source]));
                    }
                    for target in UdpTarget::expand(&endpoint).unwrap_or_default() {
                        prop_assert_eq!(UdpTarget::parse(&target.to_string()), Ok(vec![target]));
                    }
                }
            }
        }
    }
}
