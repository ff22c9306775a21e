//! Keys of this host, known peers, and invitations that make two hosts known to each other.

use std::path::Path;

/// The SHA-256 of a certificate's public key (SubjectPublicKeyInfo, DER).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fingerprint(pub [u8; 32]);

/// The key and self-signed certificate of this user on this host.
#[derive(Debug)]
pub struct Identity {}

impl Identity {
    /// Loads the key from the directory, or makes one there, readable by its owner only.
    pub fn load_or_create(_directory: &Path) -> Result<Self, IdentityError> {
        todo!()
    }

    /// The fingerprint that peers know.
    pub fn fingerprint(&self) -> Fingerprint {
        todo!()
    }
}

/// An address, the key to expect there, and a secret that makes the connecting end known, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Host and port.
    pub address: String,
    /// The key of the host.
    pub key: Fingerprint,
    /// The secret.
    pub secret: [u8; 16],
}

/// A key or peer file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {}
