//! The user and password of a WebDAV server: from the environment, or from `~/.netrc`.
//!
//! `FULLBORE_HTTP_USER` and `FULLBORE_HTTP_PASSWORD` count first. Otherwise the file that `NETRC` names, or `~/.netrc`,
//! has `machine HOST login USER password PASSWORD` (source: `netrc(5)`, and the GNU inetutils manual). A password is
//! never sent without TLS, except to this host itself.

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

/// Returns the header that signs in at a server; `None` if no password for it is known.
pub(super) fn header(url: &Url) -> Result<Option<HeaderValue>, LoginError> {
    let host = url.host_str().unwrap_or_default().to_owned();
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

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "(machine|login|password|default|macdef|a|b| |\n){0,30}") {
            let _ = find(&text, "a");
        }
    }
}
