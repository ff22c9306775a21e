//! The ways in which a connection fails.

use std::borrow::Cow;
use std::io;

use crate::identity::{DEFAULT_PORT, Fingerprint, IdentityError};
use crate::protocol::ProtocolError;
use fullbore_core::hint::Hint;

/// A connection that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The host name has no address.
    #[error("{address}: the host cannot be found: {source}")]
    Resolve {
        /// Host and port.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// Nothing listens there.
    #[error("{address}: the connection is refused")]
    Refused {
        /// Host and port.
        address: String,
    },
    /// The connection cannot be made.
    #[error("{address}: cannot connect: {source}")]
    Connect {
        /// Host and port.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// No answer in time.
    #[error("{address}: no answer within {seconds} s")]
    NoAnswer {
        /// Host and port.
        address: String,
        /// The limit.
        seconds: u64,
    },
    /// The other end has another key.
    #[error(
        "{address}: the key of this host is not the one that is known: expected {known}, found {found}"
    )]
    WrongKey {
        /// Host and port.
        address: String,
        /// The key that is expected.
        known: Fingerprint,
        /// The key that it has.
        found: Fingerprint,
    },
    /// The other end is not fullbore.
    #[error("{address}: the other end is not fullbore")]
    NotFullbore {
        /// Host and port.
        address: String,
    },
    /// The other end showed no key.
    #[error("{address}: the other end has no key")]
    NoKey {
        /// Host and port.
        address: String,
    },
    /// The other end closed the connection before it was agreed.
    #[error("{address}: the other end closed the connection during the handshake")]
    ClosedEarly {
        /// Host and port.
        address: String,
    },
    /// The handshake failed, or a record is damaged.
    #[error("{address}: TLS: {source}")]
    Tls {
        /// Host and port.
        address: String,
        /// The reason.
        source: rustls::Error,
    },
    /// The other end neither takes nor sends anything in the middle of a message.
    #[error("{address}: the other end {what} nothing for {seconds} s")]
    Stalled {
        /// Host and port.
        address: String,
        /// `takes` or `sends`.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// The other end closed the connection in order.
    #[error("{address}: the other end closed the connection")]
    Closed {
        /// Host and port.
        address: String,
    },
    /// The connection broke.
    #[error("{address}: the connection is lost: {source}")]
    Lost {
        /// Host and port.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// A message cannot be read, or cannot be sent.
    #[error("{address}: {source}")]
    Message {
        /// Host and port.
        address: String,
        /// The reason.
        source: ProtocolError,
    },
    /// The own key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The own key does not fit TLS.
    #[error("the key of this host cannot be used for TLS: {source}")]
    OwnKey {
        /// The reason.
        source: rustls::Error,
    },
}

impl ChannelError {
    /// True if the same attempt may succeed later without a change by anyone.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::Refused { .. }
            | Self::Connect { .. }
            | Self::NoAnswer { .. }
            | Self::ClosedEarly { .. }
            | Self::Stalled { .. }
            | Self::Closed { .. }
            | Self::Lost { .. } => true,
            Self::WrongKey { .. }
            | Self::NotFullbore { .. }
            | Self::NoKey { .. }
            | Self::Tls { .. }
            | Self::Message { .. }
            | Self::Identity(_)
            | Self::OwnKey { .. } => false,
        }
    }

    /// The error for what rustls reports of the other end.
    pub(super) fn of_tls(address: &str, source: rustls::Error) -> Self {
        use rustls::{AlertDescription, Error, PeerIncompatible};
        let address = address.to_owned();
        match source {
            Error::NoCertificatesPresented => Self::NoKey { address },
            Error::InvalidMessage(_)
            | Error::NoApplicationProtocol
            | Error::AlertReceived(
                AlertDescription::NoApplicationProtocol | AlertDescription::ProtocolVersion,
            )
            | Error::PeerIncompatible(
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls13RequiredForQuic,
            ) => Self::NotFullbore { address },
            source => Self::Tls { address, source },
        }
    }
}

impl Hint for ChannelError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::Resolve { .. } => "check the host name and this host's name server".into(),
            Self::Refused { .. } => format!(
                "start `fullbore receive` there, and check the port: it is {DEFAULT_PORT} unless another was chosen"
            )
            .into(),
            Self::Connect { .. } => "check the network between the two hosts".into(),
            Self::NoAnswer { .. } => {
                "check that the host is up, and that no firewall on the way drops the connection"
                    .into()
            }
            Self::WrongKey { .. } => "ask the other end on another way, such as the telephone, whether its key has \
                 changed. If it has, remove the peer and ask for a new invitation. If it has not, \
                 another host answers at this address"
                .into(),
            Self::NotFullbore { .. } | Self::ClosedEarly { .. } => {
                "check host and port, and that both ends have versions of fullbore that can transfer".into()
            }
            Self::NoKey { .. } => "only fullbore can connect to this port".into(),
            Self::Stalled { .. } => "look at the other end: its disks may be slow or full".into(),
            Self::Message { source, .. } => return source.hint(),
            Self::Identity(error) => return error.hint(),
            Self::OwnKey { .. } | Self::Tls { .. } | Self::Closed { .. } | Self::Lost { .. } => {
                return None;
            }
        })
    }
}
