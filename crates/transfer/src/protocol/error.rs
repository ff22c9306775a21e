//! The error of the protocol.

use std::borrow::Cow;

use super::VERSIONS;
use fullbore_core::hint::Hint;

/// An invalid message. The connection cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The first bytes are not those of a fullbore transfer.
    #[error("the other end does not speak the protocol of fullbore transfers")]
    NotFullbore,
    /// The answer has a version that this end does not speak.
    #[error(
        "the other end chose version {version} of the transfer protocol; this end speaks {} to {}",
        VERSIONS.0,
        VERSIONS.1
    )]
    Version {
        /// The version.
        version: u16,
    },
    /// The kind is not one of the agreed version.
    #[error("received a message of unknown kind {kind}")]
    Kind {
        /// The number of the kind.
        kind: u8,
    },
    /// The message needs an agreed version.
    #[error("received the message `{message}` before a version of the protocol was agreed")]
    Early {
        /// The name of the message.
        message: &'static str,
    },
    /// The message belongs to the start of a connection.
    #[error("received the message `{message}` after a version of the protocol was agreed")]
    Late {
        /// The name of the message.
        message: &'static str,
    },
    /// The received length is not one that this message can have.
    #[error("received a message `{message}` of {bytes} bytes; it has {least} to {most}")]
    Length {
        /// The name of the message.
        message: &'static str,
        /// The length of its body.
        bytes: usize,
        /// The smallest length.
        least: usize,
        /// The largest length.
        most: usize,
    },
    /// The message cannot be sent, because the protocol has no messages of this length.
    #[error("a message `{message}` of {bytes} bytes is too large to send; the limit is {most}")]
    TooLarge {
        /// The name of the message.
        message: &'static str,
        /// The length of its body.
        bytes: usize,
        /// The largest length.
        most: usize,
    },
    /// The contents of the message are invalid.
    #[error("received an invalid message `{message}`: {reason}")]
    Content {
        /// The name of the message.
        message: &'static str,
        /// The reason.
        reason: &'static str,
    },
}

impl Hint for ProtocolError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            ProtocolError::NotFullbore => {
                Some("check the address and port: they must be those of `fullbore receive`".into())
            }
            ProtocolError::Version { .. } | ProtocolError::Kind { .. } => {
                Some("install the same version of fullbore at both ends".into())
            }
            ProtocolError::TooLarge { .. } => Some(
                "a scan can be sent if its manifest, each account, and the lengths of the frames of \
                 each block fit this limit"
                    .into(),
            ),
            ProtocolError::Early { .. }
            | ProtocolError::Late { .. }
            | ProtocolError::Length { .. }
            | ProtocolError::Content { .. } => None,
        }
    }
}
