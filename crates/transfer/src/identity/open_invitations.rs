//! The invitations of this host that nobody has used yet. Only a hash of each secret is kept.

use std::path::Path;
use std::time::Duration;

use data_encoding::HEXLOWER;
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::folder::Folder;
use super::invitation::check_address;
use super::peers::{check_name, read_toml, write_toml};
use super::{Fingerprint, IdentityError, Invitation, Peer, Peers, Permissions, random};

/// The time for which an invitation can be used.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const MOST_OPEN: usize = 1000;
/// Time for which an invitation is kept after its end, so that its user is told that it has expired.
const KEPT_NS: i64 = 30 * 24 * 3600 * 1_000_000_000;
const INVITATIONS_FILE: &str = "invitations.toml";

/// An invitation that was not used yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInvitation {
    /// The beginning of the hash of its secret, for lists and [`withdraw`].
    pub id: String,
    /// The address that it names.
    pub address: String,
    /// The time when it ends.
    pub expires: Tai,
    /// What its user may do.
    pub may: Permissions,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct InvitationsFile {
    #[serde(default)]
    invitation: Vec<Entry>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// SHA-256 of the secret, in hex.
    secret_hash: String,
    address: String,
    expires: Tai,
    #[serde(default)]
    may_send: bool,
    #[serde(default)]
    may_fetch: bool,
    /// The name here of the site that uses it; otherwise the site names itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl Entry {
    fn may(&self) -> Permissions {
        Permissions { send: self.may_send, fetch: self.may_fetch }
    }

    fn is_open(&self) -> bool {
        self.expires > Clock::new().now()
    }

    fn id(&self) -> String {
        self.secret_hash.chars().take(8).collect()
    }

    /// Compares in constant time.
    fn has(&self, hash: &str) -> bool {
        self.secret_hash.as_bytes().ct_eq(hash.as_bytes()).into()
    }
}

/// Makes an invitation to this host at this `host:port`, whose key is `key`. The site that uses it gets this name here; no
/// other site may have it.
pub fn invite(
    directory: &Path,
    address: &str,
    key: Fingerprint,
    may: Permissions,
    lifetime: Duration,
    name: Option<&str>,
) -> Result<Invitation, IdentityError> {
    let address = check_address(address)?;
    let name = name.map(check_name).transpose()?;
    let secret = random()?;
    let lifetime_ns = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX / 4);
    let expires = Clock::new().now().plus_ns(lifetime_ns.min(i64::MAX / 4));
    let (may_send, may_fetch) = (may.send, may.fetch);
    let entry = Entry {
        secret_hash: hash(&secret),
        address: address.clone(),
        expires,
        may_send,
        may_fetch,
        name: name.clone(),
    };
    change(directory, |open, folder| {
        if let Some(name) = &name {
            Peers::read(folder)?.check_free(name)?;
            let is_it = |it: &&Entry| it.is_open() && it.name.as_ref() == Some(name);
            if let Some(other) = open.iter().find(is_it) {
                return Err(IdentityError::NameInvited { name: name.clone(), id: other.id() });
            }
        }
        // Expired ones make room.
        let full = open.len() >= MOST_OPEN;
        open.retain(|it| !full || it.is_open());
        if open.len() >= MOST_OPEN {
            let path = folder.file(INVITATIONS_FILE);
            return Err(IdentityError::Full { path, most: MOST_OPEN });
        }
        open.push(entry);
        Ok(())
    })?;
    Ok(Invitation { address, key, secret })
}

/// The invitations that can still be used.
pub fn open_invitations(directory: &Path) -> Result<Vec<OpenInvitation>, IdentityError> {
    let folder = Folder::open_or_create(directory)?;
    let shown = |entry: Entry| OpenInvitation {
        id: entry.id(),
        may: entry.may(),
        address: entry.address,
        expires: entry.expires,
    };
    Ok(read(&folder)?.into_iter().filter(Entry::is_open).map(shown).collect())
}

/// Withdraws an open invitation by its id; false if there is none.
pub fn withdraw(directory: &Path, id: &str) -> Result<bool, IdentityError> {
    change(directory, |open, _| {
        let before = open.len();
        open.retain(|entry| entry.id() != id || !entry.is_open());
        Ok(open.len() < before)
    })
}

/// Makes the key known that presents this secret, with the rights of the invitation, which cannot be used again.
///
/// The invitation is removed before the peer is added. If the host fails between, a new invitation is needed.
pub fn redeem(
    directory: &Path,
    secret: &[u8; 16],
    fingerprint: Fingerprint,
    name: &str,
) -> Result<Peer, IdentityError> {
    let hash = hash(secret);
    change(directory, |open, folder| {
        // All are compared, so the time says nothing about the place in the list.
        let found: Vec<bool> = open.iter().map(|entry| entry.has(&hash)).collect();
        let at = found.iter().position(|found| *found).ok_or(IdentityError::NotInvited)?;
        if !open[at].is_open() {
            return Err(IdentityError::Expired { at: open[at].expires });
        }
        let entry = open.remove(at);
        write(folder, open)?;
        let mut peers = Peers::read(folder)?;
        let peer = peers.admit(fingerprint, name, entry.name.as_deref(), entry.may(), folder)?;
        peers.write(folder)?;
        Ok(peer)
    })
}

/// Changes the list under the lock.
fn change<T>(
    directory: &Path,
    how: impl FnOnce(&mut Vec<Entry>, &Folder) -> Result<T, IdentityError>,
) -> Result<T, IdentityError> {
    let folder = Folder::open_or_create(directory)?;
    let _lock = folder.lock()?;
    let mut open = read(&folder)?;
    let result = how(&mut open, &folder)?;
    write(&folder, &open)?;
    Ok(result)
}

/// Reads the invitations that are open or have expired lately.
fn read(folder: &Folder) -> Result<Vec<Entry>, IdentityError> {
    let file: InvitationsFile = read_toml(folder, INVITATIONS_FILE)?.unwrap_or_default();
    let now = Clock::new().now();
    Ok(file.invitation.into_iter().filter(|entry| entry.expires.plus_ns(KEPT_NS) > now).collect())
}

fn write(folder: &Folder, open: &[Entry]) -> Result<(), IdentityError> {
    write_toml(folder, INVITATIONS_FILE, &InvitationsFile { invitation: open.to_vec() })
}

fn hash(secret: &[u8; 16]) -> String {
    HEXLOWER.encode(&Sha256::digest(secret))
}
