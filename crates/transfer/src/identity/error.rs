//! The ways in which keys, peers and invitations fail.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use super::{AddressError, Fingerprint};
use fullbore_core::hint::Hint;
use fullbore_time::Tai;

/// A key, a peer or an invitation that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// No environment variable says where the directory is.
    #[error("no directory for keys: FULLBORE_CONFIG, XDG_CONFIG_HOME and HOME are not set")]
    NoDirectory,
    /// Other users may read or write.
    #[error("{}: other users can access it (mode {mode:03o})", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// The permissions it should have.
        should_be: u32,
    },
    /// A file cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file is too large.
    #[error("{}: larger than {most} bytes", path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// The most bytes.
        most: u64,
    },
    /// Another process holds the lock.
    #[error("{}: another process has held the lock for {seconds} s", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// The time waited.
        seconds: u64,
    },
    /// The key file holds no usable key.
    #[error("{}: not a usable private key: {reason}", path.display())]
    BadKey {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A list cannot be parsed.
    #[error("{}: {reason}", path.display())]
    BadList {
        /// The file.
        path: PathBuf,
        /// The reason, with the line.
        reason: String,
    },
    /// No key could be made.
    #[error("cannot make a key: {reason}")]
    MakeKey {
        /// The reason.
        reason: String,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandom,
    /// A name is empty.
    #[error("the name of a peer is empty")]
    NoName,
    /// A name that people give, which cannot stand in an address.
    #[error("{name:?} cannot be the name of a peer")]
    BadName {
        /// The name.
        name: String,
    },
    /// An open invitation has this name.
    #[error("the open invitation {id} is for {name}")]
    NameInvited {
        /// The name.
        name: String,
        /// The invitation.
        id: String,
    },
    /// The invitation is not valid any more.
    #[error("the invitation has expired: it was valid until {at:.0}")]
    Expired {
        /// The end of its time.
        at: Tai,
    },
    /// Another key has this name.
    #[error("another peer is named {name}: its key is {fingerprint}")]
    NameTaken {
        /// The name.
        name: String,
        /// The key that has it.
        fingerprint: Fingerprint,
    },
    /// No peer has this name or key.
    #[error("no peer is named {name}")]
    NoSuchPeer {
        /// The name or key.
        name: String,
    },
    /// The list is full.
    #[error("{}: {most} entries, which is the maximum", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// The maximum.
        most: usize,
    },
    /// The secret is not that of an open invitation.
    #[error("the invitation is not valid: it was used or withdrawn")]
    NotInvited,
    /// The address of an invitation cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl Hint for IdentityError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NoDirectory => Some("set FULLBORE_CONFIG to a directory of your own".into()),
            Self::Open { path, should_be, .. } => {
                Some(format!("chmod {should_be:o} {}", path.display()).into())
            }
            Self::BadKey { path, .. } => Some(
                format!(
                    "restore {} from a backup, or move it away: a new key is made, and peers have to be invited again",
                    path.display()
                )
                .into(),
            ),
            Self::BadList { path, .. } => {
                Some(format!("correct {} with an editor, or move it away", path.display()).into())
            }
            Self::Locked { .. } => {
                Some("wait for the other fullbore, or end it; a lock ends with its process".into())
            }
            Self::NameTaken { .. } => Some("choose another name, or remove that peer first".into()),
            Self::Full { .. } => Some("remove what is no longer needed".into()),
            Self::BadName { .. } => {
                Some("use letters, digits, dots, dashes and underscores, at most 64 in all".into())
            }
            Self::NameInvited { id, .. } => {
                Some(format!("choose another name, or `fullbore peers rm {id}` first").into())
            }
            Self::Expired { .. } | Self::NotInvited => Some("ask the other end for a new invitation".into()),
            Self::Address(error) => error.hint(),
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Large { .. }
            | Self::MakeKey { .. }
            | Self::NoRandom
            | Self::NoName
            | Self::NoSuchPeer { .. } => None,
        }
    }
}
