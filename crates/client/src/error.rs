//! Why a station gave no answer, or refused.

use std::borrow::Cow;
use std::path::PathBuf;

use fullbore_core::hint::Hint;

/// A request had no success.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of the station is none.
    #[error("--station {text}: {what}")]
    Address {
        /// The text.
        text: String,
        /// What is wrong.
        what: String,
    },
    /// A file could not be used.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The token is in a file that others can read.
    #[error("{}: other users can read this file with a token", path.display())]
    Readable {
        /// The file.
        path: PathBuf,
    },
    /// The token would be sent in clear text.
    #[error(
        "{station}: the token is not sent without TLS, because others on the network could read it"
    )]
    Clear {
        /// Its address.
        station: String,
    },
    /// There is no runtime, or no TLS.
    #[error("preparing the connection: {what}")]
    Prepare {
        /// The reason.
        what: String,
    },
    /// The station could not be reached, or the connection broke.
    #[error("{station}: {why}")]
    Connection {
        /// Its address.
        station: String,
        /// The reason.
        why: String,
        /// True if there never was a connection.
        unreached: bool,
    },
    /// The station refused (`application/problem+json`, RFC 9457).
    #[error("{detail}")]
    Refused {
        /// The status.
        status: u16,
        /// What it said.
        detail: String,
        /// What to do about it.
        advice: Option<String>,
    },
    /// The answer is not that of a station.
    #[error("{station}: the answer is not that of a station: {why}")]
    Strange {
        /// Its address.
        station: String,
        /// The reason.
        why: String,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Refused { status: 401, .. } => Some(Cow::Borrowed(
                "set FULLBORE_TOKEN, or FULLBORE_TOKEN_FILE to a file that has the token",
            )),
            Self::Refused { advice, .. } => advice.clone().map(Cow::Owned),
            Self::Readable { path } => Some(format!("`chmod 600 {}`", path.display()).into()),
            Self::Clear { .. } => Some(Cow::Borrowed(
                "write https://HOST:PORT?pin=SHA256, or go through a tunnel: ssh -L 8480:127.0.0.1:8480 HOST",
            )),
            Self::Connection { unreached: true, .. } => {
                Some(Cow::Borrowed("does `fullbore serve` run there?"))
            }
            Self::Connection { .. } => {
                Some(Cow::Borrowed("what runs at the station goes on: `fullbore status` shows it"))
            }
            Self::Address { .. } => Some(Cow::Borrowed(
                "write unix:PATH, http://127.0.0.1:8480, or https://HOST:PORT?pin=SHA256",
            )),
            Self::File { .. } | Self::Prepare { .. } | Self::Strange { .. } => None,
        }
    }
}
