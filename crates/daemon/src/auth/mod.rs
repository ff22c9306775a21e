//! Who may do what: roles, tokens of programs, sessions of browsers.
//!
//! | way in | proven by | role |
//! |---|---|---|
//! | a program | `Authorization: Bearer TOKEN` on each request | that of the token |
//! | a browser | a code that works once, from the daemon's terminal | admin |
//! | a browser | a token, typed at the login | that of the token |
//!
//! A browser then has a session: a cookie that its scripts cannot read, and for writes a second value that another site
//! cannot know. Only hashes of tokens, codes and cookies are kept. All of them are 256 random bits, so a plain hash is
//! enough, and a wrong guess tells nothing by its time.

pub mod attempts;
pub mod sessions;
pub mod tokens;

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

/// What a client may do. Each role includes those before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// See everything.
    Viewer,
    /// Start, stop and mark recordings, verify scans.
    Operator,
    /// Protect and remove scans, let others log in.
    Admin,
}

/// A client that has proven who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of its token, or `console` for the link of the terminal.
    pub name: Arc<str>,
    /// Its role.
    pub role: Role,
}

/// The SHA-256 of a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    /// Of a secret.
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}…", &HEXLOWER.encode(&self.0)[..8])
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        HEXLOWER.encode(&hash.0)
    }
}

impl TryFrom<String> for Hash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = HEXLOWER.decode(text.to_ascii_lowercase().as_bytes()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("a SHA-256 is 64 hexadecimal digits")
    }
}

/// 256 random bits, as 64 hexadecimal digits.
pub fn new_secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(HEXLOWER.encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_includes_those_before_it() {
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
    }

    #[test]
    fn a_hash_is_that_of_sha256sum() {
        let expected = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert_eq!(String::from(Hash::of("secret")), expected);
        assert_eq!(Hash::try_from(expected.to_uppercase()), Ok(Hash::of("secret")));
        assert!(Hash::try_from("2bb8".to_owned()).is_err());
    }

    #[test]
    fn secrets_are_long_and_differ() {
        let (one, other) = (new_secret().unwrap(), new_secret().unwrap());
        assert_eq!(one.len(), 64);
        assert_ne!(one, other);
    }
}
