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

use std::path::Path;

use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::{Fingerprint, IdentityError};

/// The most characters of a peer's name.
pub const LONGEST_NAME: usize = 64;
/// The most peers.
pub const MOST_PEERS: usize = 10_000;
const PEERS_FILE: &str = "peers.toml";

/// What a peer may ask of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// It may send scans to this host.
    pub send: bool,
    /// It may fetch scans from this host.
    pub fetch: bool,
}

impl Permissions {
    /// What either of the two permits.
    pub fn or(self, other: Self) -> Self {
        Self { send: self.send || other.send, fetch: self.fetch || other.fetch }
    }
}

/// Another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name, for people on this host. One line without control characters.
    pub name: String,
    /// Its key.
    pub fingerprint: Fingerprint,
    /// When it became known.
    pub added: Tai,
    /// Host and port, if this host connects to it.
    pub address: Option<String>,
    /// What it may do.
    pub may: Permissions,
}

impl Peer {
    fn is_at(&self, address: &str) -> bool {
        self.address.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(address))
    }
}

/// The known peers, as they were when the file was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
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

impl Peers {
    /// Reads the peers; none if there is no file.
    pub fn load(directory: &Path) -> Result<Self, IdentityError> {
        Self::read(&Folder::open_or_create(directory)?)
    }

    pub(super) fn read(folder: &Folder) -> Result<Self, IdentityError> {
        let file: PeersFile = read_toml(folder, PEERS_FILE)?.unwrap_or_default();
        Ok(Self { peers: file.peer.into_iter().map(Peer::from).collect() })
    }

    pub(super) fn write(&self, folder: &Folder) -> Result<(), IdentityError> {
        let peer = self.peers.iter().cloned().map(PeerEntry::from).collect();
        write_toml(folder, PEERS_FILE, &PeersFile { peer })
    }

    /// The peer that has this key.
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.fingerprint == *fingerprint)
    }

    /// The peer of this name.
    pub fn named(&self, name: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.name == name)
    }

    /// The peer at this host and port: its key is the one to expect there.
    pub fn at(&self, address: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.is_at(address))
    }

    /// The peer that this end connects to at an address with a port, or whose name is the host of the address.
    pub fn of(&self, address: &str) -> Option<&Peer> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let is_it = |it: &&Peer| it.name.eq_ignore_ascii_case(host) && it.address.is_some();
        let by_name = || self.peers.iter().find(is_it);
        self.at(address).or_else(by_name)
    }

    /// All peers, the oldest first.
    pub fn iter(&self) -> std::slice::Iter<'_, Peer> {
        self.peers.iter()
    }

    /// Adds a peer, or changes the one that has its key. Another peer at its address loses the address.
    fn insert(&mut self, mut peer: Peer, folder: &Folder) -> Result<(), IdentityError> {
        peer.name = clean_name(&peer.name).ok_or(IdentityError::NoName)?;
        if let Some(other) = self.named(&peer.name)
            && other.fingerprint != peer.fingerprint
        {
            let (name, fingerprint) = (peer.name, other.fingerprint);
            return Err(IdentityError::NameTaken { name, fingerprint });
        }
        if let Some(address) = &peer.address {
            let others = self.peers.iter_mut().filter(|it| it.fingerprint != peer.fingerprint);
            others.filter(|other| other.is_at(address)).for_each(|other| other.address = None);
        }
        match self.peers.iter().position(|known| known.fingerprint == peer.fingerprint) {
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

    /// Fails if a peer has this name.
    pub(super) fn check_free(&self, name: &str) -> Result<(), IdentityError> {
        match self.peers.iter().find(|it| it.name.eq_ignore_ascii_case(name)) {
            Some(Peer { name, fingerprint, .. }) => {
                Err(IdentityError::NameTaken { name: name.clone(), fingerprint: *fingerprint })
            }
            None => Ok(()),
        }
    }

    /// Adds a peer, and what it may do to what it may do already. `given` is the name that people here chose for it. Without
    /// one, the name that it gave itself counts, with a number if another key has it.
    pub(super) fn admit(
        &mut self,
        fingerprint: Fingerprint,
        name: &str,
        given: Option<&str>,
        may: Permissions,
        folder: &Folder,
    ) -> Result<Peer, IdentityError> {
        let mut peer = self.known_or_new(fingerprint, name);
        if let Some(given) = given {
            given.clone_into(&mut peer.name);
        }
        peer.may = peer.may.or(may);
        self.insert(peer.clone(), folder)?;
        Ok(peer)
    }

    /// The place of the peer with this name or fingerprint.
    fn position(&self, name_or_key: &str) -> Result<usize, IdentityError> {
        let key: Option<Fingerprint> = name_or_key.parse().ok();
        let is_it = |peer: &Peer| peer.name == name_or_key || Some(peer.fingerprint) == key;
        let found = self.peers.iter().position(is_it);
        let name = || harmless(name_or_key, LONGEST_NAME);
        found.ok_or_else(|| IdentityError::NoSuchPeer { name: name() })
    }

    fn known_or_new(&self, fingerprint: Fingerprint, name: &str) -> Peer {
        self.find(&fingerprint).cloned().unwrap_or_else(|| {
            let (name, added) = (self.free_name(name), Clock::new().now());
            Peer { name, fingerprint, added, address: None, may: Permissions::default() }
        })
    }

    fn free_name(&self, name: &str) -> String {
        let name = clean_name(name).unwrap_or_else(|| "unnamed".into());
        if self.named(&name).is_none() {
            return name;
        }
        let short: String = name.chars().take(LONGEST_NAME - 8).collect();
        let numbered = |number: usize| format!("{short}-{number}");
        (2..).map(numbered).find(|name| self.named(name).is_none()).unwrap_or(name)
    }
}

impl<'a> IntoIterator for &'a Peers {
    type Item = &'a Peer;
    type IntoIter = std::slice::Iter<'a, Peer>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Adds a peer, or changes the one that has its key.
pub fn add(directory: &Path, peer: Peer) -> Result<(), IdentityError> {
    let folder = Folder::open_or_create(directory)?;
    let _lock = folder.lock()?;
    let mut peers = Peers::read(&folder)?;
    peers.insert(peer, &folder)?;
    peers.write(&folder)
}

/// Keeps the key of a host that was reached at this `host:port`. What it may do here does not change.
pub fn remember(
    directory: &Path,
    fingerprint: Fingerprint,
    name: &str,
    address: &str,
) -> Result<(), IdentityError> {
    let folder = Folder::open_or_create(directory)?;
    let _lock = folder.lock()?;
    let mut peers = Peers::read(&folder)?;
    let mut peer = peers.known_or_new(fingerprint, name);
    if peer.is_at(address) {
        return Ok(());
    }
    peer.address = Some(address.to_owned());
    peers.insert(peer, &folder)?;
    peers.write(&folder)
}

/// Gives the peer with this name or fingerprint another name, and returns it.
pub fn rename(directory: &Path, name_or_key: &str, name: &str) -> Result<Peer, IdentityError> {
    let name = check_name(name)?;
    let folder = Folder::open_or_create(directory)?;
    let _lock = folder.lock()?;
    let mut peers = Peers::read(&folder)?;
    let at = peers.position(name_or_key)?;
    if !peers.peers[at].name.eq_ignore_ascii_case(&name) {
        peers.check_free(&name)?;
    }
    peers.peers[at].name = name;
    peers.write(&folder)?;
    Ok(peers.peers.remove(at))
}

/// Fails if a peer has this name, or if no peer can have it.
pub fn check_new_name(directory: &Path, name: &str) -> Result<String, IdentityError> {
    let name = check_name(name)?;
    Peers::load(directory)?.check_free(&name)?;
    Ok(name)
}

/// Checks a name that people give: it can stand in an address, like that of a host.
pub(super) fn check_name(name: &str) -> Result<String, IdentityError> {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins && name.len() <= LONGEST_NAME && name.bytes().all(usual) {
        true => Ok(name.to_owned()),
        false => Err(IdentityError::BadName { name: harmless(name, LONGEST_NAME) }),
    }
}

/// Removes the peer with this name or fingerprint, and returns it.
pub fn remove(directory: &Path, name_or_key: &str) -> Result<Peer, IdentityError> {
    let folder = Folder::open_or_create(directory)?;
    let _lock = folder.lock()?;
    let mut peers = Peers::read(&folder)?;
    let at = peers.position(name_or_key)?;
    let peer = peers.peers.remove(at);
    peers.write(&folder)?;
    Ok(peer)
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
        let may = Permissions { send: entry.may_send, fetch: entry.may_fetch };
        let name = clean_name(&entry.name).unwrap_or_else(|| "unnamed".into());
        let PeerEntry { fingerprint, added, address, .. } = entry;
        Self { name, fingerprint, added, address, may }
    }
}

impl From<Peer> for PeerEntry {
    fn from(peer: Peer) -> Self {
        let Peer { name, fingerprint, added, address, may } = peer;
        Self { name, fingerprint, added, address, may_send: may.send, may_fetch: may.fetch }
    }
}
