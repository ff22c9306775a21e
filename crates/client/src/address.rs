//! Where a station is: `unix:PATH`, `http://HOST:PORT`, or `https://HOST:PORT` with a pinned certificate or an authority.

use std::path::PathBuf;

use data_encoding::HEXUPPER;
use url::{Host, Url};

use crate::Error;

/// Where a station is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A server of the web.
    Web {
        /// The scheme, the host and the port.
        base: String,
        /// Whom to trust, if it has TLS.
        trust: Trust,
    },
}

/// Whom a connection with TLS trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The authorities of this host.
    System,
    /// The certificates of a PEM file.
    Authority(PathBuf),
    /// The certificate with this SHA-256, whatever its names are.
    Pinned([u8; 32]),
}

impl Address {
    /// True if a text is an address, and no plain word.
    pub fn is_meant(text: &str) -> bool {
        text.contains([':', '/'])
    }

    /// Reads an address. A path is a Unix socket.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |what: &str| Error::Address { text: text.to_owned(), what: what.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err(wrong("it names no socket")),
                false => Ok(Self::Unix(path.into())),
            };
        }
        if !text.contains("://") {
            return match text.contains('/') {
                true => Ok(Self::Unix(text.into())),
                false => Err(wrong("it is neither a web address nor the path of a socket")),
            };
        }
        let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("it begins with neither http://, https:// nor unix:")),
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() || has_user {
            return Err(wrong("it has more than a host, a port, `pin` and `ca`"));
        }
        let mut trust = Trust::System;
        for (key, value) in url.query_pairs() {
            if trust != Trust::System {
                return Err(wrong("it has more than one `pin` or `ca`"));
            }
            trust = match &*key {
                "pin" if tls => Trust::Pinned(digest(&value).ok_or_else(|| {
                    wrong("`pin` is the SHA-256 of the certificate, 64 hexadecimal digits")
                })?),
                "ca" if tls && !value.is_empty() => Trust::Authority(value.into_owned().into()),
                "pin" | "ca" => return Err(wrong("`pin` and `ca` are for https://")),
                _ => return Err(wrong("it has more than a host, a port, `pin` and `ca`")),
            };
        }
        let host = url.host_str().ok_or_else(|| wrong("it has no host"))?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self::Web { base: format!("{}://{host}{port}", url.scheme()), trust })
    }

    /// True if others on the network can read what is sent there: it has no TLS, and is not on this host.
    pub(crate) fn is_readable(&self) -> bool {
        let Self::Web { base, .. } = self else { return false };
        let Ok(url) = Url::parse(base) else { return false };
        let is_local = match url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        url.scheme() == "http" && !is_local
    }
}

/// A SHA-256 as `openssl x509 -fingerprint` and `fullbore serve` print it, with or without colons.
fn digest(text: &str) -> Option<[u8; 32]> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    HEXUPPER.decode(digits.to_ascii_uppercase().as_bytes()).ok()?.try_into().ok()
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Web { base, .. } => f.write_str(base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_web_servers() {
        let web = |base: &str, trust| Address::Web { base: base.into(), trust };
        let pin = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        for (text, expected) in [
            ("unix:/run/s", Address::Unix("/run/s".into())),
            ("./s", Address::Unix("./s".into())),
            ("http://127.0.0.1:8480", web("http://127.0.0.1:8480", Trust::System)),
            ("http://[::1]:8480/", web("http://[::1]:8480", Trust::System)),
            ("https://h", web("https://h", Trust::System)),
            (&format!("https://h:1?pin={pin}"), web("https://h:1", Trust::Pinned([0xab; 32]))),
            (&format!("https://h:1?pin={colons}"), web("https://h:1", Trust::Pinned([0xab; 32]))),
            ("https://h?ca=/a/b.pem", web("https://h", Trust::Authority("/a/b.pem".into()))),
        ] {
            assert_eq!(Address::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_are_explained() {
        for (text, why) in [
            ("KV", "neither a web address"),
            ("unix:", "names no socket"),
            ("ftp://h", "begins with neither"),
            ("https://h/x", "more than a host"),
            ("https://me@h", "more than a host"),
            ("https://:secret@h", "more than a host"),
            (&format!("https://h?pin={}&ca=/a", "ab".repeat(32)), "more than one"),
            ("https://h?x=1", "more than a host"),
            ("https://h?pin=12", "64 hexadecimal digits"),
            ("http://h?ca=/a", "are for https://"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(!Address::is_meant("KV") && Address::is_meant("unix:") && Address::is_meant("a/b"));
    }

    #[test]
    fn what_leaves_this_host_without_tls_is_known() {
        for (text, readable) in [
            ("unix:/run/s", false),
            ("https://station", false),
            ("http://localhost:8480", false),
            ("http://127.1.2.3:8480", false),
            ("http://[::1]:8480", false),
            ("http://station:8480", true),
            ("http://192.0.2.7", true),
            ("http://[2001:db8::1]", true),
            ("http://localhost.example.org", true),
        ] {
            assert_eq!(Address::parse(text).unwrap().is_readable(), readable, "{text}");
        }
    }
}
