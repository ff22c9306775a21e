//! `[listen]`: addresses, the certificate, and the Unix socket.

use std::net::SocketAddr;
use std::path::Path;

use super::reader::{Given, Keys};
use super::{Listen, ROLES, UnixSocket, role};
use crate::config::DEFAULT_ADDRESS;
use crate::net::tls::{Certificate, Source};
use crate::settings::Settings;

/// The most addresses of one kind.
const MOST_ADDRESSES: usize = 16;

pub(super) fn listen(keys: &Keys<'_>, directory: &Path, settings: &mut Settings) -> Listen {
    let Some(keys) = keys.table("listen", "[listen]") else {
        return Listen { http: vec![DEFAULT_ADDRESS], ..Listen::default() };
    };
    let http = addresses(&keys, "http");
    for Given { value, line } in &http {
        if !value.ip().is_loopback() {
            keys.fault(
                *line,
                format!("`http`: other hosts reach {value}, and nothing is encrypted there"),
                "move the address to `https`; `http` is for 127.0.0.1 and [::1]",
            );
        }
    }
    let https = addresses(&keys, "https");
    settings.names = names(&keys);
    let certificate = certificate(&keys, directory, !https.is_empty());
    let unix = unix(&keys, directory);
    let others = keys.parsed("unix-role", ROLES, role);
    settings.others = others.map(|it| it.value);
    if unix.is_none() {
        for key in ["unix-mode", "unix-role"] {
            if keys.has(key) {
                let line = keys.line_of(key);
                keys.fault(
                    line,
                    format!("`{key}` is for the socket of `unix`, which is missing"),
                    "",
                );
            }
        }
    }
    if http.is_empty() && https.is_empty() && unix.is_none() {
        keys.fault(keys.line, "[listen] has no address", "give `http`, `https` or `unix`");
    }
    let values = |list: Vec<Given<SocketAddr>>| list.into_iter().map(|it| it.value).collect();
    let listen = Listen { http: values(http), https: values(https), certificate, unix };
    keys.finish();
    listen
}

/// What depends on other tables.
pub(super) fn check(keys: &Keys<'_>, listen: &Listen, settings: &Settings) {
    let open = listen.https.iter().find(|it| !it.ip().is_loopback());
    if let Some(address) = open
        && settings.tokens.is_empty()
    {
        keys.fault(
            keys.line_of("listen"),
            format!("other hosts reach {address}, and the file has no token"),
            "add a [[token]], so that clients can prove who they are",
        );
    }
}

fn addresses(keys: &Keys<'_>, key: &'static str) -> Vec<Given<SocketAddr>> {
    let given = keys.texts(key);
    if given.len() > MOST_ADDRESSES {
        keys.fault(
            keys.line_of(key),
            format!("`{key}` has more than {MOST_ADDRESSES} addresses"),
            "",
        );
    }
    let mut addresses: Vec<Given<SocketAddr>> = Vec::new();
    for Given { value, line } in given {
        let Ok(address) = value.parse::<SocketAddr>() else {
            let what = format!("`{key}`: `{}` is no address with a port", short(&value));
            keys.fault(line, what, "write 127.0.0.1:8480, 0.0.0.0:8443 or [::]:8443");
            continue;
        };
        match address.port() != 0 && addresses.iter().any(|it| it.value == address) {
            true => keys.fault(line, format!("`{key}` has {address} twice"), ""),
            false => addresses.push(Given { value: address, line }),
        }
    }
    addresses
}

fn names(keys: &Keys<'_>) -> Vec<String> {
    let is_name = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        (1..=253).contains(&text.len()) && text.chars().all(plain)
    };
    let mut names = Vec::new();
    for Given { value, line } in keys.texts("names") {
        match is_name(&value) {
            true => names.push(value),
            false => {
                let what = format!("`names`: `{}` is no name of a host", short(&value));
                keys.fault(line, what, "write it without scheme and port: station.example.org");
            }
        }
    }
    names
}

fn certificate(
    keys: &Keys<'_>,
    directory: &Path,
    is_used: bool,
) -> Option<(std::path::PathBuf, std::path::PathBuf)> {
    let (certificate, key) = (keys.text("certificate"), keys.text("key"));
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return None,
        (Some(one), None) | (None, Some(one)) => {
            let what = "`certificate` and `key` belong together, and one is missing";
            keys.fault(one.line, what, "leave both out for a certificate that signs itself");
            return None;
        }
    };
    if !is_used {
        keys.fault(certificate.line, "`certificate` is for `https`, which is missing", "");
    }
    let line = certificate.line;
    let pair = (directory.join(certificate.value), directory.join(key.value));
    let source = Source::Files { certificate: pair.0.clone(), key: pair.1.clone() };
    if let Err(error) = Certificate::load(&source) {
        keys.fault(line, fullbore_core::hint::with_causes(&error), "");
    }
    Some(pair)
}

fn unix(keys: &Keys<'_>, directory: &Path) -> Option<UnixSocket> {
    let mode = keys.parsed("unix-mode", "write it as in chmod: \"0660\"", |text| {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
        mode.ok_or("it is no file mode")
    });
    let Given { value, line } = keys.text("unix")?;
    let path = directory.join(value);
    if path.as_os_str().len() > 107 {
        let what = "`unix`: the path of a socket has at most 107 bytes";
        keys.fault(line, what, "choose a shorter one, such as /run/fullbore/station.sock");
    }
    let parent = path.parent().filter(|it| it.is_dir());
    if parent.is_none() {
        let what = format!("`unix`: the directory of {} is not there", path.display());
        keys.fault(line, what, "make it, or let systemd make it with RuntimeDirectory=fullbore");
    }
    Some(UnixSocket { path, mode: mode.map_or(0o660, |it| it.value) })
}

/// The beginning of a text, for a message.
pub(super) fn short(text: &str) -> String {
    text.chars().take(60).filter(|c| !c.is_control()).collect()
}
