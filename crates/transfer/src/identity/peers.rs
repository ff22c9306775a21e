//! The keys of other hosts, and what each of these hosts may do.
//!
//! ```toml
//! [[peer]]
//! name = "bonn"
//! fingerprint = "mfqw-c3tf-…"
//! added = "2026-11-25T19:00:00.000000Z"
//! address = "bonn.example:4780"    # only of a peer that this host connects to
//! may_send = true
//! may_fetch = false
//! ```

use std::path::{Path, PathBuf};

use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::{Destination, Fingerprint, IdentityError};

/// The most characters of a peer's name.
pub const LONGEST_NAME: usize = 64;
/// The most peers.
pub const MOST_PEERS: usize = 10_000;
const PEERS_FILE: &str = "peers.toml";

/// Another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name, for people on this host. One line without control characters.
    pub name: String,
    /// Its key.
    pub key: Fingerprint,
    /// When it became known.
    pub added: Tai,
    /// Host and port, if this host connects to it.
    pub address: Option<String>,
    /// It may send scans to this host.
    pub may_send: bool,
    /// It may fetch scans from this host.
    pub may_fetch: bool,
}

/// The known peers and the open invitations in a directory. Each call reads or changes the files, under the lock.
#[derive(Clone, Debug)]
pub struct Peers {
    pub(super) directory: PathBuf,
}

impl Peers {
    /// The peers in a directory, which need not exist yet.
    pub fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// All peers, the oldest first.
    pub fn all(&self) -> Result<Vec<Peer>, IdentityError> {
        Ok(PeerList::read(&self.folder()?)?.peers)
    }

    /// The peer that has this key.
    pub fn find(&self, key: Fingerprint) -> Result<Option<Peer>, IdentityError> {
        Ok(self.all()?.into_iter().find(|peer| peer.key == key))
    }

    /// The key to expect at a destination.
    pub fn key_of(&self, destination: &Destination) -> Result<Fingerprint, IdentityError> {
        if let Some(invitation) = &destination.invitation {
            return Ok(invitation.key);
        }
        let address = &destination.address;
        let known = self.all()?.into_iter().find(|peer| peer.is_at(address));
        known
            .map(|peer| peer.key)
            .ok_or_else(|| IdentityError::Unknown { address: address.clone() })
    }

    /// Keeps the key of a destination that this host has reached. It may do no more than before.
    pub fn remember(
        &self,
        destination: &Destination,
        key: Fingerprint,
        name: &str,
    ) -> Result<(), IdentityError> {
        if self.find(key)?.is_some_and(|peer| peer.is_at(&destination.address)) {
            return Ok(());
        }
        self.change(|list, folder| {
            let mut peer = list.known_or_new(key, name);
            peer.address = Some(destination.address.clone());
            list.insert(peer, folder)
        })
    }

    /// Adds a peer, or changes the one that has its key.
    pub fn add(&self, peer: Peer) -> Result<(), IdentityError> {
        self.change(|list, folder| list.insert(peer, folder))
    }

    /// Removes the peer with this name or fingerprint, and returns it.
    pub fn remove(&self, name_or_key: &str) -> Result<Peer, IdentityError> {
        let key: Option<Fingerprint> = name_or_key.parse().ok();
        let is_it = |peer: &Peer| peer.name == name_or_key || Some(peer.key) == key;
        self.change(|list, _| {
            let at = list.peers.iter().position(is_it);
            let missing =
                || IdentityError::NoSuchPeer { name: harmless(name_or_key, LONGEST_NAME) };
            Ok(list.peers.remove(at.ok_or_else(missing)?))
        })
    }

    pub(super) fn folder(&self) -> Result<Folder, IdentityError> {
        Folder::open_or_create(&self.directory)
    }

    fn change<T>(
        &self,
        how: impl FnOnce(&mut PeerList, &Folder) -> Result<T, IdentityError>,
    ) -> Result<T, IdentityError> {
        let folder = self.folder()?;
        let _lock = folder.lock()?;
        let mut list = PeerList::read(&folder)?;
        let result = how(&mut list, &folder)?;
        list.write(&folder)?;
        Ok(result)
    }
}

impl Peer {
    fn is_at(&self, address: &str) -> bool {
        self.address.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(address))
    }
}

/// The peers, as they were when the file was read.
#[derive(Debug)]
pub(super) struct PeerList {
    peers: Vec<Peer>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PeersFile {
    #[serde(default)]
    peer: Vec<PeerEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerEntry {
    name: String,
    fingerprint: Fingerprint,
    added: Tai,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(default)]
    may_send: bool,
    #[serde(default)]
    may_fetch: bool,
}

impl PeerList {
    pub fn read(folder: &Folder) -> Result<Self, IdentityError> {
        let file: PeersFile = read_toml(folder, PEERS_FILE)?.unwrap_or_default();
        Ok(Self { peers: file.peer.into_iter().map(Peer::from).collect() })
    }

    pub fn write(&self, folder: &Folder) -> Result<(), IdentityError> {
        let peer = self.peers.iter().cloned().map(PeerEntry::from).collect();
        write_toml(folder, PEERS_FILE, &PeersFile { peer })
    }

    /// The peer with this key, or a new one with this name, which it may have chosen itself. A name that another key has
    /// gets a number.
    pub fn known_or_new(&self, key: Fingerprint, name: &str) -> Peer {
        let known = self.peers.iter().find(|peer| peer.key == key);
        known.cloned().unwrap_or_else(|| {
            let (name, added) = (self.free_name(name), Clock::new().now());
            Peer { name, key, added, address: None, may_send: false, may_fetch: false }
        })
    }

    /// Adds a peer, or changes the one that has its key. Another peer at its address loses the address.
    pub fn insert(&mut self, mut peer: Peer, folder: &Folder) -> Result<(), IdentityError> {
        peer.name = clean_name(&peer.name).ok_or(IdentityError::NoName)?;
        for other in self.peers.iter_mut().filter(|other| other.key != peer.key) {
            if other.name == peer.name {
                return Err(IdentityError::NameTaken { name: peer.name, key: other.key });
            }
            if peer.address.as_ref().is_some_and(|address| other.is_at(address)) {
                other.address = None;
            }
        }
        match self.peers.iter().position(|known| known.key == peer.key) {
            Some(at) => self.peers[at] = peer,
            None if self.peers.len() >= MOST_PEERS => {
                return Err(IdentityError::Full {
                    path: folder.file(PEERS_FILE),
                    most: MOST_PEERS,
                });
            }
            None => self.peers.push(peer),
        }
        Ok(())
    }

    fn free_name(&self, name: &str) -> String {
        let name = clean_name(name).unwrap_or_else(|| "unnamed".into());
        let is_free = |name: &String| self.peers.iter().all(|peer| peer.name != *name);
        if is_free(&name) {
            return name;
        }
        let short: String = name.chars().take(LONGEST_NAME - 8).collect();
        let numbered = |number: usize| format!("{short}-{number}");
        (2..).map(numbered).find(is_free).unwrap_or(name)
    }
}

/// A name that is safe to print: one line of at most [`LONGEST_NAME`] characters; `None` if nothing is left.
pub fn clean_name(name: &str) -> Option<String> {
    let clean = harmless(name, LONGEST_NAME);
    let clean = clean.trim();
    (!clean.is_empty()).then(|| clean.to_owned())
}

/// A text without control characters and without characters that change the direction of text.
pub(crate) fn harmless(text: &str, most: usize) -> String {
    let moves = |sign: char| {
        sign.is_control()
            || matches!(sign, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
    };
    text.chars().filter(|sign| !moves(*sign)).take(most).collect()
}

pub(super) fn read_toml<T: serde::de::DeserializeOwned>(
    folder: &Folder,
    name: &str,
) -> Result<Option<T>, IdentityError> {
    let Some(bytes) = folder.read(name)? else { return Ok(None) };
    let bad = |reason: String| IdentityError::BadList { path: folder.file(name), reason };
    let text = std::str::from_utf8(&bytes).map_err(|error| bad(error.to_string()))?;
    toml::from_str(text).map(Some).map_err(|error| bad(error.to_string().trim_end().to_owned()))
}

pub(super) fn write_toml<T: Serialize>(
    folder: &Folder,
    name: &str,
    value: &T,
) -> Result<(), IdentityError> {
    let bad = |error: toml::ser::Error| IdentityError::BadList {
        path: folder.file(name),
        reason: error.to_string(),
    };
    folder.write(name, toml::to_string(value).map_err(bad)?.as_bytes())
}

impl From<PeerEntry> for Peer {
    /// The file may have been edited, so its names are cleaned too.
    fn from(entry: PeerEntry) -> Self {
        let name = clean_name(&entry.name).unwrap_or_else(|| "unnamed".into());
        let PeerEntry { fingerprint: key, added, address, may_send, may_fetch, .. } = entry;
        Self { name, key, added, address, may_send, may_fetch }
    }
}

impl From<Peer> for PeerEntry {
    fn from(peer: Peer) -> Self {
        let Peer { name, key: fingerprint, added, address, may_send, may_fetch } = peer;
        Self { name, fingerprint, added, address, may_send, may_fetch }
    }
}
