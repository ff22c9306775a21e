//! Why a connection failed.

use std::borrow::Cow;
use std::io;

use rustls::CertificateError;

use crate::identity::Fingerprint;
use crate::protocol::ProtocolError;

/// A connection that failed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The name of the host has no address.
    #[error("{address}: no address: {source}")]
    Resolve {
        /// Host and port.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// Nobody accepts a connection there.
    #[error("{address}: cannot connect: {source}")]
    Connect {
        /// Host and port.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// The connection is lost.
    #[error("{address}: the connection is lost: {source}")]
    Io {
        /// Host and port.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// The other end closed the connection.
    #[error("{address}: the other end closed the connection")]
    Closed {
        /// Host and port.
        address: String,
    },
    /// The other end stopped in the middle of a message.
    #[error("{address}: nothing came for {seconds} s in the middle of a message")]
    Stalled {
        /// Host and port.
        address: String,
        /// For this long.
        seconds: u64,
    },
    /// The handshake was not over in time.
    #[error("{address}: the handshake was not over in time")]
    Handshake {
        /// Host and port.
        address: String,
    },
    /// The other end does not speak TLS 1.3 as this protocol needs it.
    #[error("{address}: no TLS connection: {error}")]
    Tls {
        /// Host and port.
        address: String,
        /// The reason.
        error: rustls::Error,
    },
    /// Another key than the known one.
    #[error("{address}: the key there is not the known one, {known}")]
    WrongKey {
        /// Host and port.
        address: String,
        /// The known key.
        known: Fingerprint,
    },
    /// The other end showed no key.
    #[error("{address}: the other end shows no key")]
    NoKey {
        /// Host and port.
        address: String,
    },
    /// A message is invalid.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

impl ChannelError {
    /// Returns a hint for the user: the next step.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::Connect { .. } => {
                "does `fullbore receive --listen …` run there, and does the firewall admit its port?".into()
            }
            Self::WrongKey { .. } => {
                "if the other site has a new key, ask it for an invitation; if not, somebody else answers there".into()
            }
            Self::Tls { .. } => "is it fullbore that listens at this port?".into(),
            _ => return None,
        })
    }

    /// Returns true if a later attempt can succeed without anybody's help.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Io { .. }
            | Self::Closed { .. }
            | Self::Stalled { .. }
            | Self::Handshake { .. } => true,
            Self::Tls { .. } | Self::WrongKey { .. } | Self::NoKey { .. } | Self::Protocol(_) => {
                false
            }
        }
    }

    pub(super) fn io(address: &str, source: io::Error) -> Self {
        let address = address.to_owned();
        match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Self::Closed { address },
            _ => Self::Io { address, source },
        }
    }

    pub(super) fn tls(address: &str, known: Fingerprint, error: rustls::Error) -> Self {
        let address = address.to_owned();
        Self::Tls { address, error }.with_key(&known.to_string(), Some(known))
    }

    /// Says which key was expected, if the error is that there is another one.
    pub(super) fn with_key(self, host: &str, known: Option<Fingerprint>) -> Self {
        match (self, known) {
            (
                Self::Tls {
                    error:
                        rustls::Error::InvalidCertificate(
                            CertificateError::ApplicationVerificationFailure,
                        ),
                    ..
                },
                Some(known),
            ) => Self::WrongKey { address: host.to_owned(), known },
            (error, _) => error,
        }
    }
}
