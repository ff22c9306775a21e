//! Answers about the queue and about known sites as JSON, the same from the command line (`--json`) and from the station.

use std::path::PathBuf;

use fullbore_transfer::identity::{OpenInvitation, Peer};
use fullbore_transfer::queue;
use fullbore_transfer::queue::job::{Job, Rule, Wishes};
use serde::Serialize;

/// A transfer that was added, or that was there already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Added {
    /// Its number.
    pub id: u64,
    /// The scan.
    pub scan: String,
    /// The destination, without a secret.
    pub to: String,
    /// False if it was there already.
    pub new: bool,
}

impl From<queue::Added> for Added {
    fn from(added: queue::Added) -> Self {
        let queue::Added { id, job, new } = added;
        Self { id, scan: job.scan.to_string(), to: job.target.to, new }
    }
}

/// A transfer that was changed or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Its number.
    pub id: u64,
    /// The scan.
    pub scan: String,
    /// The destination, without a secret.
    pub to: String,
}

impl Changed {
    /// Of the number of a job, and the job.
    pub fn of(id: u64, job: &Job) -> Self {
        Self { id, scan: job.scan.to_string(), to: job.target.to.clone() }
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleAnswer {
    /// Its number.
    pub id: u64,
    /// The names of sessions, with `*`, `?` and `[…]`.
    pub sessions: String,
    /// The destination, without a secret.
    pub to: String,
    /// The priority of its transfers.
    pub priority: i32,
    /// The most bytes per second of each of its transfers.
    pub rate_limit: Option<u64>,
    /// The time of day in which they send, UTC.
    pub window: Option<String>,
    /// The members of the store.
    pub store: Vec<PathBuf>,
}

impl RuleAnswer {
    /// Of the number of a rule, and the rule.
    pub fn of(id: u64, rule: Rule) -> Self {
        let Wishes { priority, rate, window } = rule.wishes;
        Self {
            id,
            sessions: rule.sessions,
            to: rule.target.to,
            priority,
            rate_limit: rate,
            window: window.map(|it| it.to_string()),
            store: rule.store,
        }
    }
}

/// A known site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerAnswer {
    /// Its name here.
    pub name: String,
    /// Its key.
    pub key: String,
    /// Host and port, if this site connects to it.
    pub address: Option<String>,
    /// True if it may send scans to here.
    pub may_send: bool,
    /// True if it may fetch scans from here.
    pub may_fetch: bool,
    /// When it became known.
    pub added: String,
}

impl From<&Peer> for PeerAnswer {
    fn from(peer: &Peer) -> Self {
        Self {
            name: peer.name.clone(),
            key: peer.fingerprint.to_string(),
            address: peer.address.clone(),
            may_send: peer.may.send,
            may_fetch: peer.may.fetch,
            added: peer.added.to_string(),
        }
    }
}

/// An invitation that nobody has used, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpenAnswer {
    /// Its number, by which it is withdrawn.
    pub id: String,
    /// The address that it names.
    pub address: String,
    /// The end of its time.
    pub expires: String,
    /// True if its user may send scans to here.
    pub may_send: bool,
    /// True if its user may fetch scans from here.
    pub may_fetch: bool,
}

impl From<&OpenInvitation> for OpenAnswer {
    fn from(open: &OpenInvitation) -> Self {
        Self {
            id: open.id.clone(),
            address: open.address.clone(),
            expires: open.expires.to_string(),
            may_send: open.may.send,
            may_fetch: open.may.fetch,
        }
    }
}

/// This site, and those that it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sites {
    /// The key of this site.
    pub key: String,
    /// Known sites.
    pub peers: Vec<PeerAnswer>,
    /// Open invitations.
    pub invitations: Vec<OpenAnswer>,
}

/// An invitation that was made.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct InvitationAnswer {
    /// The invitation, with its secret.
    pub invitation: String,
    /// The key of this site.
    pub key: String,
    /// The end of its time.
    pub expires: String,
}

impl std::fmt::Debug for InvitationAnswer {
    /// Leaves out the invitation.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InvitationAnswer").field("expires", &self.expires).finish_non_exhaustive()
    }
}
