//! Why a transfer failed, and whether trying again can help.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;

use fullbore_core::hint::Hint;
use fullbore_core::name::ScanName;
use fullbore_store::landing::LandingError;
use fullbore_store::{MemberError, copies};

use crate::channel::ChannelError;
use crate::identity::{Fingerprint, IdentityError};
use crate::outgoing::OutgoingError;
use crate::protocol::Refusal;

/// A transfer that failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The connection.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The keys and peers of this host.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The scan cannot be sent.
    #[error(transparent)]
    Outgoing(#[from] OutgoingError),
    /// The scan cannot be received.
    #[error(transparent)]
    Landing(#[from] LandingError),
    /// The other end refuses.
    #[error("{peer} refuses: {text}")]
    Refused {
        /// The other end.
        peer: String,
        /// The reason.
        refusal: Refusal,
        /// The reason in words.
        text: String,
    },
    /// The other end sent something that it must not send.
    #[error("{peer} does not keep to the protocol: {why}")]
    Protocol {
        /// The other end.
        peer: String,
        /// What it sent.
        why: String,
    },
    /// The other end is silent.
    #[error("{peer} has been silent for {seconds} s")]
    Silent {
        /// The other end.
        peer: String,
        /// For this long.
        seconds: u64,
    },
    /// The other end answers, and no block becomes durable there.
    #[error("{peer} has made no block durable for {seconds} s")]
    Stalled {
        /// The other end.
        peer: String,
        /// For this long.
        seconds: u64,
    },
    /// The other end closed the connection before the transfer was complete.
    #[error("{peer} ended the transfer")]
    Ended {
        /// The other end.
        peer: String,
    },
    /// The recorder of the scan is gone, and the scan is not sealed.
    #[error(
        "the recorder of {scan} died, so the scan is not sealed; the copy is as complete as the scan"
    )]
    Died {
        /// The scan.
        scan: ScanName,
    },
    /// The scan is itself a copy that has not arrived whole.
    #[error("{scan} is itself an incomplete copy: {host} has not sent all of it")]
    Incomplete {
        /// The scan.
        scan: ScanName,
        /// The host that it comes from.
        host: String,
    },
    /// The receipt does not match the scan.
    #[error(
        "the copy of {scan} at {peer} is sealed, and its data differs from the scan here: {why}"
    )]
    WrongReceipt {
        /// The other end.
        peer: String,
        /// The scan.
        scan: ScanName,
        /// The difference.
        why: String,
    },
    /// The receipt could not be kept beside the scan.
    #[error(transparent)]
    Receipt(#[from] copies::Error),
    /// Another process sends the scan there.
    #[error("{scan} is being sent there by another process")]
    AlreadySending {
        /// The scan.
        scan: ScanName,
    },
    /// The scan was removed while it was sent.
    #[error("{scan} was removed while it was sent")]
    Removed {
        /// The scan.
        scan: ScanName,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// A peer that nobody has made known.
    #[error("{peer} (\"{name}\") has an unknown key: {key}")]
    Stranger {
        /// Its address.
        peer: String,
        /// The name that it gives itself.
        name: String,
        /// Its key.
        key: Fingerprint,
    },
    /// A server that this end does not know.
    #[error("the key of {address} is not known here")]
    UnknownSite {
        /// Its address.
        address: String,
    },
    /// A member of the disk set cannot be used.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A thread or memory is not to be had.
    #[error("not enough memory or threads: {0}")]
    Resources(String),
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

impl TransferError {
    /// Returns true if the same attempt can succeed later without anybody's help.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Channel(ChannelError::Tls { source: rustls::Error::DecryptError, .. }) => true,
            Self::Channel(error) => error.may_pass(),
            Self::Silent { .. } | Self::Stalled { .. } | Self::Ended { .. } => true,
            Self::Refused { refusal, .. } => {
                matches!(refusal, Refusal::Busy | Refusal::NoRoom | Refusal::Failed)
            }
            _ => false,
        }
    }
}

impl Hint for TransferError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Channel(error) => error.hint(),
            Self::Identity(error) => error.hint(),
            Self::Outgoing(error) => error.hint(),
            Self::Landing(error) => error.hint(),
            Self::Member(error) => error.hint(),
            Self::Receipt(error) => error.hint(),
            Self::UnknownSite { .. } | Self::Refused { refusal: Refusal::NotAllowed, .. } => Some(
                "ask the other site for an invitation (`fullbore peers invite` there), and give it as the destination once"
                    .into(),
            ),
            Self::WrongReceipt { scan, .. } => Some(
                format!(
                    "`fullbore verify {scan}` here and there shows which of them lacks blocks"
                )
                .into(),
            ),
            Self::Refused { refusal: Refusal::Version, .. } => {
                Some("use the same version of fullbore on both ends".into())
            }
            Self::Died { scan } => {
                Some(format!("`fullbore recover {scan}`, then send it again: only the rest is sent").into())
            }
            Self::Stopped | Self::Silent { .. } | Self::Stalled { .. } | Self::Ended { .. } => {
                Some("the same command continues: only blocks that are not durable there are sent".into())
            }
            _ => None,
        }
    }
}
