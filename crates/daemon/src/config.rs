//! What a daemon needs to know, and where it keeps its own files.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sha2::{Digest, Sha256};

use crate::log::Log;
use crate::station_file::StationFile;
use crate::vsi;

/// Where the daemon listens if nothing else is said.
pub const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8480);

/// The Unix socket in the directory of a daemon.
pub const SOCKET: &str = "socket";

/// What a daemon needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directories of the store.
    pub members: Vec<PathBuf>,
    /// Where to listen, if there is no file: in clear on loopback, else with TLS. Port 0: any free port.
    pub listen: SocketAddr,
    /// The file of tokens, if there is no file of the station.
    pub tokens: Option<PathBuf>,
    /// The file that describes the station, with what it says.
    pub station: Option<StationFile>,
    /// Set: the file is to be read again.
    pub reload: Arc<AtomicBool>,
    /// The program that records: this one, with the verb `record`.
    pub program: PathBuf,
    /// For a demonstration: the directory of its files, which its owner removes afterwards.
    pub demo: Option<PathBuf>,
    /// The directory for files that clients let the station make, if there is no file of the station.
    pub exports: Option<PathBuf>,
    /// The port for VSI-S, if there is one.
    pub vsi: Option<vsi::Settings>,
    /// The log, a layer of the program's subscriber of `tracing`.
    pub log: Log,
}

impl Config {
    /// The directory of the daemon of this store: in that of a demonstration, else `station/…` in `FULLBORE_STATE`, else in `fullbore` in `XDG_STATE_HOME`
    /// or in `~/.local/state`. Each store has its own, by the paths of its members.
    pub fn state_directory(&self) -> Option<PathBuf> {
        self.state_in(|variable| std::env::var_os(variable).filter(|value| !value.is_empty()))
    }

    /// The Unix socket of the daemon of this store, by which the daemon's own user and root reach it.
    pub fn socket_of(members: &[PathBuf]) -> Option<PathBuf> {
        let state = state_in(|variable| std::env::var_os(variable).filter(|it| !it.is_empty()))?;
        Some(state.join("station").join(name_of_store(members)).join(SOCKET))
    }

    fn state_in(&self, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        if let Some(directory) = &self.demo {
            return Some(directory.join("station"));
        }
        Some(state_in(variable)?.join("station").join(name_of_store(&self.members)))
    }
}

/// The directory of all daemons, queues and the like of this user.
fn state_in(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(directory) = variable("FULLBORE_STATE") {
        return Some(PathBuf::from(directory));
    }
    // By the XDG specification, a relative path is ignored.
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|it| it.is_absolute());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    Some(state.or_else(home)?.join("fullbore"))
}

/// A name that depends on the members and not on their order.
fn name_of_store(members: &[PathBuf]) -> String {
    let whole = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let mut paths: Vec<PathBuf> = members.iter().map(whole).collect();
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update([0]);
    }
    data_encoding::HEXLOWER.encode(&hash.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(members: &[&str]) -> Config {
        let members = members.iter().map(PathBuf::from).collect();
        let (station, reload, demo, vsi) = (None, Arc::default(), None, None);
        let (listen, tokens, program) = (DEFAULT_ADDRESS, None, "fullbore".into());
        let (exports, log) = (None, Log::default());
        Config { members, listen, tokens, station, reload, program, demo, exports, vsi, log }
    }

    #[test]
    fn each_store_has_a_directory_of_its_own() {
        let of = |members: &[&str], given: &[(&str, &str)]| {
            let find = |name: &str| given.iter().find(|it| it.0 == name).map(|it| it.1.into());
            config(members).state_in(find).map(|path| path.display().to_string())
        };
        let home = of(&["/a", "/b"], &[("HOME", "/h")]).unwrap();
        assert!(home.starts_with("/h/.local/state/fullbore/station/"), "{home}");
        assert_eq!(of(&["/b", "/a"], &[("HOME", "/h")]), Some(home.clone()));
        assert_ne!(of(&["/a"], &[("HOME", "/h")]), Some(home));
        assert_ne!(of(&["/ab"], &[("HOME", "/h")]), of(&["/a", "b"], &[("HOME", "/h")]));
        let own = of(&["/a"], &[("FULLBORE_STATE", "/s"), ("HOME", "/h")]).unwrap();
        assert!(own.starts_with("/s/station/"), "{own}");
        let relative = of(&["/a"], &[("XDG_STATE_HOME", "x"), ("HOME", "/h")]).unwrap();
        assert!(relative.starts_with("/h/"), "{relative}");
        assert_eq!(of(&["/a"], &[]), None);
    }
}
