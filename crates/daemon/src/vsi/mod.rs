//! The port for VSI-S: the NASA Field System, m5copy and people with telnet command recordings over it.
//!
//! ```text
//! TCP 2620  ──► a thread for each connection ──► FlexBuff (crate vsi) ──► DaemonStation
//! TCP 14242 ──► the same for each                Cplane of a Mark6   ──►  │ from memory
//!                                 Runs ──► Recorders      Index ◄── the store      Copies ──► files
//! ```
//!
//! No answer waits for a disk or for a recorder: threads of their own start recorders, list scans and copy files. Who may
//! connect may ask. Commands are for listed addresses only, and each is in the audit log.

mod copies;
mod port;
mod runs;
mod scans;
mod station;

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use fullbore_core::hint::Hint;
use fullbore_transfer::files::AllowList;

pub use self::port::{MOST_CONNECTIONS, MOST_READERS, Port};

/// Reads an address with or without a port: `192.0.2.5`, `[::1]:2620`.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    address_at(text, fullbore_vsi::DEFAULT_PORT)
}

/// The same for the dialect of a Mark6.
pub fn mark6_address(text: &str) -> Result<SocketAddr, String> {
    address_at(text, fullbore_vsi::cplane::DEFAULT_PORT)
}

fn address_at(text: &str, port: u16) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
    let alone = || bare.parse().ok().map(|ip| SocketAddr::new(ip, port));
    let found = text.parse().ok().or_else(alone);
    found.ok_or_else(|| "write an address such as 127.0.0.1, 192.0.2.5:2620 or [::1]".to_owned())
}

/// What the port needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen. Port 0: any free port.
    pub listen: SocketAddr,
    /// Where to listen in the dialect of a Mark6, if at all.
    pub mark6: Option<SocketAddr>,
    /// Addresses from which commands are taken. Queries are answered to everybody.
    pub allow: AllowList,
    /// The directory for files of `disk2file`.
    pub files: Option<PathBuf>,
}

/// The port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listener.
    #[error("listening for VSI-S on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The directory for files is none.
    #[error("--vsi-s-files {}: this is not a directory", path.display())]
    Files {
        /// The path.
        path: PathBuf,
    },
    /// A thread.
    #[error("starting the threads of the port for VSI-S")]
    Start(#[source] io::Error),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Listen { .. } => {
                "does another program, such as jive5ab, use the port? `--vsi-s 127.0.0.1:0` takes a free one"
            }
            Self::Files { .. } => "make the directory first",
            Self::Start(_) => return None,
        }))
    }
}

#[cfg(test)]
mod tests;
