//! The user and password of a WebDAV server: from the environment, or from `~/.netrc`.
//!
//! `FULLBORE_HTTP_USER` and `FULLBORE_HTTP_PASSWORD` count first. Otherwise the file that `NETRC` names, or `~/.netrc`,
//! has `machine HOST login USER password PASSWORD` (source: `netrc(5)`, and the GNU inetutils manual). A password is
//! never sent without TLS, except to this host itself.
//!
//! A station has tokens instead: that of the address, or `FULLBORE_TOKEN`, or the file that `FULLBORE_TOKEN_FILE` names.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fullbore_linux::regular_file;
use object_store::HeaderValue;
use url::{Host, Url};

/// The variables with user and password.
const VARIABLES: [&str; 2] = ["FULLBORE_HTTP_USER", "FULLBORE_HTTP_PASSWORD"];

/// Where a station has its scans as copies.
const COPIES: &str = "/api/v1/copies";

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;

/// A user and password that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// Only one of both variables is set.
    #[error("only one of FULLBORE_HTTP_USER and FULLBORE_HTTP_PASSWORD is set")]
    Half,
    /// A user with a colon cannot be sent (RFC 7617, section 2).
    #[error("the user name for {host} has a `:` or a control character")]
    User {
        /// The server.
        host: String,
    },
    /// The token cannot be sent.
    #[error("the token for {host} is empty, or has a space or a control character")]
    Token {
        /// The server.
        host: String,
    },
    /// The connection is not encrypted.
    #[error("the password for {host} is not sent: the address does not use TLS")]
    Plain {
        /// The server.
        host: String,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Other users can read the file.
    #[error("{} is readable by other users", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
}

/// Returns the header that signs in at a server, with this token if there is one; `None` if no password for it is known.
pub(super) fn header(url: &Url, token: Option<&str>) -> Result<Option<HeaderValue>, LoginError> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let of_environment = || match is_station(url) {
        true => token_of_environment(),
        false => Ok(None),
    };
    if let Some(token) = token.map_or_else(of_environment, |it| Ok(Some(it.to_owned())))? {
        return bearer(host, &token).map(Some);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    let login = match VARIABLES.map(variable) {
        [Some(user), Some(password)] => Some((user, password)),
        [None, None] => of_file(&host)?,
        _ => return Err(LoginError::Half),
    };
    let Some((user, password)) = login else { return Ok(None) };
    if user.contains(|c: char| c == ':' || c.is_control()) {
        return Err(LoginError::User { host });
    }
    if url.scheme() != "https" && !is_this_host(url) {
        return Err(LoginError::Plain { host });
    }
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    let mut value = HeaderValue::from_str(&format!("Basic {encoded}"))
        .expect("base64 is the alphabet of header values");
    value.set_sensitive(true);
    Ok(Some(value))
}

fn is_station(url: &Url) -> bool {
    url.path().strip_prefix(COPIES).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn bearer(host: String, token: &str) -> Result<HeaderValue, LoginError> {
    if token.is_empty() || token.contains(|c: char| c.is_control() || c == ' ') {
        return Err(LoginError::Token { host });
    }
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| LoginError::Token { host })?;
    value.set_sensitive(true);
    Ok(value)
}

fn token_of_environment() -> Result<Option<String>, LoginError> {
    let variable = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty());
    if let Some(token) = variable("FULLBORE_TOKEN") {
        return Ok(Some(token.to_string_lossy().into_owned()));
    }
    let Some(path) = variable("FULLBORE_TOKEN_FILE").map(PathBuf::from) else { return Ok(None) };
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let read = read(&path).and_then(|found| found.ok_or_else(missing));
    let (text, mode) = read.map_err(|source| LoginError::File { path: path.clone(), source })?;
    if mode & 0o077 != 0 {
        return Err(LoginError::Exposed { path });
    }
    Ok(Some(text.trim().to_owned()))
}

fn is_this_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn of_file(host: &str) -> Result<Option<(String, String)>, LoginError> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".netrc"));
    let named = std::env::var_os("NETRC").filter(|it| !it.is_empty()).map(PathBuf::from);
    let Some(path) = named.or_else(home) else { return Ok(None) };
    let failed = |source| LoginError::File { path: path.clone(), source };
    let Some((text, mode)) = read(&path).map_err(failed)? else { return Ok(None) };
    let found = find(&text, host);
    if found.is_some() && mode & 0o077 != 0 {
        return Err(LoginError::Exposed { path });
    }
    Ok(found)
}

/// Reads a file with its mode; `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<(String, u32)>> {
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mode = file.metadata()?.mode();
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        let why = format!("larger than {LARGEST} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(Some((text, mode)))
}

/// Finds the user and password of a machine, or those of `default`.
fn find(text: &str, host: &str) -> Option<(String, String)> {
    let words: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(str::split_whitespace)
        .collect();
    let (mut wanted, mut user, mut password) = (false, None::<&str>, None::<&str>);
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        match word {
            "machine" | "default" => {
                if let (true, Some(user), Some(password)) = (wanted, user, password) {
                    return Some((user.to_owned(), password.to_owned()));
                }
                let is_host = |it: &str| it.eq_ignore_ascii_case(host);
                wanted = word == "default" || rest.next().is_some_and(is_host);
                (user, password) = (None, None);
            }
            "login" => user = rest.next(),
            "password" => password = rest.next(),
            "account" => drop(rest.next()),
            // The commands behind it end at an empty line, and no entry may follow on another without one.
            "macdef" => break,
            _ => {}
        }
    }
    let found = (user?.to_owned(), password?.to_owned());
    wanted.then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_the_host_is_found() {
        let text = "# machine no login a password b\nmachine one login u password p\nmachine Two\n  login v\n  account x\n  \
                    password q\ndefault login anonymous password me@here\n";
        let found = |host| find(text, host).unwrap();
        assert_eq!(found("one"), ("u".to_owned(), "p".to_owned()));
        assert_eq!(found("two"), ("v".to_owned(), "q".to_owned()));
        assert_eq!(found("three").0, "anonymous");
        assert_eq!(find("machine one login u", "one"), None);
        assert_eq!(find("machine one login u password p", "two"), None);
    }

    #[test]
    fn only_this_host_gets_a_password_without_tls() {
        for (url, is_here) in [
            ("http://127.0.0.1:80/x", true),
            ("http://[::1]/x", true),
            ("http://localhost/x", true),
            ("http://localhost.example.org/x", false),
            ("http://10.0.0.1/x", false),
        ] {
            assert_eq!(is_this_host(&url.parse().unwrap()), is_here, "{url}");
        }
    }

    #[test]
    fn a_token_is_sent_as_it_is_or_not_at_all() {
        let url = "http://10.0.0.1/api/v1/copies".parse().unwrap();
        let header = |token| super::header(&url, Some(token));
        let sent = header("5ec2e7").unwrap().unwrap();
        assert!(sent.is_sensitive() && sent == "Bearer 5ec2e7");
        for wrong in ["", "a b", "a\nb", "a\u{7f}"] {
            assert!(matches!(header(wrong), Err(LoginError::Token { .. })), "{wrong:?}");
        }
        for (url, is_one) in [
            ("http://10.0.0.1/api/v1/copies/r1_one", true),
            ("http://10.0.0.1/api/v1/copies2/r1_one", false),
            ("http://10.0.0.1/x/api/v1/copies", false),
        ] {
            assert_eq!(is_station(&url.parse().unwrap()), is_one, "{url}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "(machine|login|password|default|macdef|a|b| |\n){0,30}") {
            let _ = find(&text, "a");
        }
    }
}
