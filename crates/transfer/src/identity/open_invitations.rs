//! The invitations of this host that nobody has used yet. Only a hash of each secret is kept.

use std::time::Duration;

use data_encoding::HEXLOWER;
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::folder::Folder;
use super::invitation::check_address;
use super::peers::{PeerList, read_toml, write_toml};
use super::{Fingerprint, IdentityError, Invitation, Peer, Peers, random};

/// The time for which an invitation can be used.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const MOST_OPEN: usize = 1000;
const INVITATIONS_FILE: &str = "invitations.toml";

/// An invitation that was not used yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInvitation {
    /// The beginning of the hash of its secret, for lists and [`Peers::withdraw`].
    pub id: String,
    /// The address that it names.
    pub address: String,
    /// The time when it ends.
    pub expires: Tai,
    /// Its user may send scans to this host.
    pub may_send: bool,
    /// Its user may fetch scans from this host.
    pub may_fetch: bool,
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
}

impl Entry {
    fn id(&self) -> String {
        self.secret_hash.chars().take(8).collect()
    }

    /// Compares in constant time.
    fn has(&self, hash: &str) -> bool {
        self.secret_hash.as_bytes().ct_eq(hash.as_bytes()).into()
    }
}

impl Peers {
    /// Makes an invitation to this host at this `host` or `host:port`. `key` is the key of this host.
    pub fn invite(
        &self,
        address: &str,
        key: Fingerprint,
        may_send: bool,
        may_fetch: bool,
        lifetime: Duration,
    ) -> Result<Invitation, IdentityError> {
        let address = check_address(address)?;
        let secret = random()?;
        let lifetime_ns = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX);
        let expires = Clock::new().now().plus_ns(lifetime_ns.min(i64::MAX / 4));
        let secret_hash = hash(&secret);
        let entry = Entry { secret_hash, address: address.clone(), expires, may_send, may_fetch };
        self.change_invitations(|open, folder| {
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
    pub fn open_invitations(&self) -> Result<Vec<OpenInvitation>, IdentityError> {
        Ok(read(&self.folder()?)?.into_iter().map(OpenInvitation::from).collect())
    }

    /// Withdraws an open invitation by its id; false if there is none.
    pub fn withdraw(&self, id: &str) -> Result<bool, IdentityError> {
        self.change_invitations(|open, _| {
            let before = open.len();
            open.retain(|entry| entry.id() != id);
            Ok(open.len() < before)
        })
    }

    /// Makes the key known that presents this secret, with the rights of the invitation, which cannot be used again.
    /// `None` if the secret is not that of an open invitation.
    ///
    /// The invitation is removed before the peer is added. If the host fails between, a new invitation is needed.
    pub fn redeem(
        &self,
        secret: [u8; 16],
        key: Fingerprint,
        name: &str,
    ) -> Result<Option<Peer>, IdentityError> {
        let hash = hash(&secret);
        self.change_invitations(|open, folder| {
            // All are compared, so the time says nothing about the place in the list.
            let found: Vec<bool> = open.iter().map(|entry| entry.has(&hash)).collect();
            let Some(at) = found.iter().position(|found| *found) else { return Ok(None) };
            let entry = open.remove(at);
            write(folder, open)?;
            let mut list = PeerList::read(folder)?;
            let mut peer = list.known_or_new(key, name);
            peer.may_send |= entry.may_send;
            peer.may_fetch |= entry.may_fetch;
            list.insert(peer.clone(), folder)?;
            list.write(folder)?;
            Ok(Some(peer))
        })
    }

    /// Changes the list under the lock.
    fn change_invitations<T>(
        &self,
        how: impl FnOnce(&mut Vec<Entry>, &Folder) -> Result<T, IdentityError>,
    ) -> Result<T, IdentityError> {
        let folder = self.folder()?;
        let _lock = folder.lock()?;
        let mut open = read(&folder)?;
        let before = open.len();
        let result = how(&mut open, &folder)?;
        if open.len() != before {
            write(&folder, &open)?;
        }
        Ok(result)
    }
}

impl From<Entry> for OpenInvitation {
    fn from(entry: Entry) -> Self {
        let id = entry.id();
        let Entry { address, expires, may_send, may_fetch, .. } = entry;
        Self { id, address, expires, may_send, may_fetch }
    }
}

/// Reads the invitations that have not expired.
fn read(folder: &Folder) -> Result<Vec<Entry>, IdentityError> {
    let file: InvitationsFile = read_toml(folder, INVITATIONS_FILE)?.unwrap_or_default();
    let now = Clock::new().now();
    Ok(file.invitation.into_iter().filter(|entry| entry.expires > now).collect())
}

fn write(folder: &Folder, open: &[Entry]) -> Result<(), IdentityError> {
    write_toml(folder, INVITATIONS_FILE, &InvitationsFile { invitation: open.to_vec() })
}

fn hash(secret: &[u8; 16]) -> String {
    HEXLOWER.encode(&Sha256::digest(secret))
}
