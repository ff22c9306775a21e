//! The fingerprint of a key, in a form that people can read to each other.
//!
//! ```text
//! mfqwc-3tfon-2dgmj-sgm2d-onjwg-44di4-…     RFC 4648 base32, lower case, groups of 4
//! ```

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, DecodeKind, HEXLOWER};
use fullbore_core::hint::Hint;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Characters of a fingerprint without separators.
const CHARACTERS: usize = 52;

/// The SHA-256 of a certificate's public key (SubjectPublicKeyInfo, DER).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(pub [u8; 32]);

/// A text that is no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FingerprintError {
    /// Not the right length.
    #[error("a fingerprint has {CHARACTERS} letters and digits, not {characters}")]
    Length {
        /// The length without separators.
        characters: usize,
    },
    /// A character that does not occur.
    #[error("a fingerprint has the letters a to z and the digits 2 to 7, but not {sign:?}")]
    Sign {
        /// The character.
        sign: char,
    },
}

impl Hint for FingerprintError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("copy the whole fingerprint as the other end shows it".into())
    }
}

impl Fingerprint {
    /// The fingerprint of the key in a certificate.
    pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        Ok(Self(Sha256::digest(key.as_ref()).into()))
    }
}

impl Fingerprint {
    /// The first two groups, which tell known keys apart at a glance.
    pub fn short(&self) -> String {
        self.to_string().chars().take(9).collect()
    }

    /// The same as 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = to_base32(&self.0);
        for (at, sign) in text.chars().enumerate() {
            let separator = if at > 0 && at % 4 == 0 { "-" } else { "" };
            write!(f, "{separator}{sign}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// Reads the output of `Display`, in any case and with any of `-`, `:`, `.`, `_` and white space between groups.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let separates = |sign: char| sign.is_whitespace() || matches!(sign, '-' | ':' | '.' | '_');
        let letters: String = text.chars().filter(|sign| !separates(*sign)).take(1024).collect();
        let length = FingerprintError::Length { characters: letters.chars().count() };
        if length != (FingerprintError::Length { characters: CHARACTERS }) {
            return Err(length);
        }
        let bytes = from_base32(&letters).map_err(|sign| FingerprintError::Sign { sign })?;
        bytes.try_into().map(Self).map_err(|_| length)
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = FingerprintError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}

pub(super) fn to_base32(bytes: &[u8]) -> String {
    BASE32_NOPAD.encode(bytes).to_ascii_lowercase()
}

/// Decodes base32 in any case, or returns the first character that is none.
pub(super) fn from_base32(text: &str) -> Result<Vec<u8>, char> {
    let upper = text.to_ascii_uppercase();
    BASE32_NOPAD.decode(upper.as_bytes()).map_err(|error| {
        let at = match error.kind {
            // Bits after the last byte: the last character is not one that an encoder writes.
            DecodeKind::Trailing | DecodeKind::Length => text.len().saturating_sub(1),
            DecodeKind::Symbol | DecodeKind::Padding => error.position,
        };
        text.get(at..).and_then(|rest| rest.chars().next()).unwrap_or('\u{fffd}')
    })
}
