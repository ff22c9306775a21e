//! Keys of this host, known peers, and invitations that make two hosts known to each other.
//!
//! ```text
//! ~/.config/fullbore/            0700
//!   key.pem                      the private key of this user on this host; its fingerprint is the identity
//!   peers.toml                   keys of other hosts, and what each may do
//!   invitations.toml             open invitations: only a hash of each secret
//!   lock                         held while one of these is written
//! ```
//!
//! Both ends of a connection use self-signed certificates. Names, dates and issuers in a certificate mean nothing: the
//! public key alone is compared. The certificate is therefore made anew from the key in each process.

mod error;
mod fingerprint;
pub(crate) mod folder;
mod invitation;
mod open_invitations;
mod peers;

use std::fmt;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

pub use error::IdentityError;
pub use fingerprint::{Fingerprint, FingerprintError};
pub use invitation::{AddressError, DEFAULT_PORT, Destination, Invitation};
pub use open_invitations::{
    DEFAULT_LIFETIME, OpenInvitation, invite, open_invitations, redeem, withdraw,
};
pub use peers::{
    LONGEST_NAME, MOST_PEERS, Peer, Peers, Permissions, add, check_new_name, clean_name, remember,
    remove, rename,
};

use folder::Folder;

/// The file of the private key.
pub const KEY_FILE: &str = "key.pem";

/// The key and self-signed certificate of this user on this host.
pub struct Identity {
    directory: PathBuf,
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Loads the key from the directory, or makes one there, readable by its owner only.
    pub fn load_or_create(directory: &Path) -> Result<Self, IdentityError> {
        let folder = Folder::open_or_create(directory)?;
        let pem = match folder.read(KEY_FILE)? {
            Some(pem) => pem,
            None => make_key(&folder)?,
        };
        Self::of_pem(directory, &pem)
    }

    fn of_pem(directory: &Path, pem: &[u8]) -> Result<Self, IdentityError> {
        let bad = |reason: String| IdentityError::BadKey { path: directory.join(KEY_FILE), reason };
        let key =
            PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|error| bad(error.to_string()))?;
        let pair = KeyPair::try_from(&key).map_err(|error| bad(error.to_string()))?;
        let certificate = CertificateParams::new(Vec::new())
            .and_then(|parameters| parameters.self_signed(&pair))
            .map_err(|error| bad(error.to_string()))?;
        let certificate = certificate.der().clone();
        let fingerprint =
            Fingerprint::of_certificate(&certificate).map_err(|error| bad(error.to_string()))?;
        Ok(Self { directory: directory.to_owned(), certificate, key, fingerprint })
    }

    /// The fingerprint that peers know.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The directory of the key, the peers and the invitations.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The certificate that is shown to peers.
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    /// The private key.
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

impl fmt::Debug for Identity {
    /// Leaves out the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("directory", &self.directory)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// Makes a key under the lock. If another process has made one in the meantime, that one counts.
fn make_key(folder: &Folder) -> Result<Vec<u8>, IdentityError> {
    let _lock = folder.lock()?;
    if let Some(pem) = folder.read(KEY_FILE)? {
        return Ok(pem);
    }
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|error| IdentityError::MakeKey { reason: error.to_string() })?;
    let pem = to_pem(&pair.serialize_der());
    folder.write(KEY_FILE, pem.as_bytes())?;
    Ok(pem.into_bytes())
}

fn to_pem(pkcs8: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(pkcs8);
    let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|&byte| char::from(byte)));
        pem.push('\n');
    }
    pem.push_str("-----END PRIVATE KEY-----\n");
    pem
}

/// The directory of keys and peers: `FULLBORE_CONFIG`, else `fullbore` in `XDG_CONFIG_HOME` or in `~/.config`.
pub fn default_directory() -> Result<PathBuf, IdentityError> {
    directory_of(|variable| std::env::var_os(variable).filter(|value| !value.is_empty()))
        .ok_or(IdentityError::NoDirectory)
}

fn directory_of(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    if let Some(directory) = variable("FULLBORE_CONFIG") {
        return Some(directory.into());
    }
    // By the XDG specification, a relative path is ignored.
    let configuration =
        variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|it| it.is_absolute());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
    Some(configuration.or_else(home)?.join("fullbore"))
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    let mut bytes = [0; N];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).map_err(|_| IdentityError::NoRandom)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
