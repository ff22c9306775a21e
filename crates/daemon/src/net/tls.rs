//! TLS 1.3 with a certificate from files, or with one that signs itself.
//!
//! The certificate that signs itself is made at the first start, and kept: a browser that has accepted it once, and a
//! program that pins its fingerprint, know the station again. Its names mean nothing.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use data_encoding::{BASE64, HEXUPPER};
use fullbore_core::hint::Hint;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

/// The largest file of certificates or of a key, in bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// PEM files: the certificate with its chain, and its key.
    Files {
        /// The certificate, then those that lead to a known authority.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// A certificate that signs itself, in this directory.
    Own {
        /// The directory.
        directory: PathBuf,
        /// The names and addresses in a new certificate.
        names: Vec<String>,
    },
}

/// There is no usable certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was done.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The certificate that signs itself.
    #[error("making a certificate: {what}")]
    Make {
        /// The reason.
        what: String,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Content { .. } => Some(Cow::Borrowed(
                "both files are PEM; leave `certificate` and `key` out for a certificate that signs itself",
            )),
            Self::File { .. } | Self::Make { .. } => None,
        }
    }
}

/// A certificate that can be replaced while the daemon serves.
#[derive(Debug)]
pub struct Certificate(RwLock<Arc<CertifiedKey>>);

impl Certificate {
    /// Loads a certificate, or makes one.
    pub fn load(source: &Source) -> Result<Self, Error> {
        Ok(Self(RwLock::new(read(source)?)))
    }

    /// Loads it again. The old one stays if this fails.
    pub fn reload(&self, source: &Source) -> Result<(), Error> {
        let fresh = read(source)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The SHA-256 of the certificate, as browsers and openssl show it.
    pub fn fingerprint(&self) -> String {
        let key = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let digest = Sha256::digest(key.cert.first().map_or(&[][..], |it| it.as_ref()));
        let pairs: Vec<String> = digest.iter().map(|byte| HEXUPPER.encode(&[*byte])).collect();
        pairs.join(":")
    }

    /// What makes connections encrypted.
    pub fn acceptor(self: Arc<Self>) -> Result<TlsAcceptor, Error> {
        let versions = ServerConfig::builder_with_provider(provider());
        let versions = versions.with_protocol_versions(&[&TLS13]);
        let versions = versions.map_err(|error| Error::Make { what: error.to_string() })?;
        let mut config = versions.with_no_client_auth().with_cert_resolver(self);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read(source: &Source) -> Result<Arc<CertifiedKey>, Error> {
    let (certificate, key) = match source {
        Source::Files { certificate, key } => (certificate.clone(), key.clone()),
        Source::Own { directory, names } => {
            let own = (directory.join("certificate.pem"), directory.join("key.pem"));
            if !own.0.exists() || !own.1.exists() {
                make(directory, names, &own.0, &own.1)?;
            }
            own
        }
    };
    let content = |path: &Path, what: String| Error::Content { path: path.to_owned(), what };
    let text = bounded(&certificate)?;
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| content(&certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(content(&certificate, "it has no certificate".to_owned()));
    }
    let key_der = PrivateKeyDer::from_pem_slice(&bounded(&key)?)
        .map_err(|_| content(&key, "it has no private key".to_owned()))?;
    let both = CertifiedKey::from_der(chain, key_der, &provider());
    let both = both.map_err(|error| {
        content(&key, format!("it is not usable with the certificate: {error}"))
    })?;
    Ok(Arc::new(both))
}

fn bounded(path: &Path) -> Result<Vec<u8>, Error> {
    let read = |source| Error::File { path: path.to_owned(), what: "reading it", source };
    if fs::metadata(path).map_err(read)?.len() > LONGEST_FILE {
        let what = format!("it is larger than {LONGEST_FILE} bytes");
        return Err(Error::Content { path: path.to_owned(), what });
    }
    fs::read(path).map_err(read)
}

/// Makes a certificate that signs itself.
fn make(directory: &Path, names: &[String], certificate: &Path, key: &Path) -> Result<(), Error> {
    let failed = |error: rcgen::Error| Error::Make { what: error.to_string() };
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let mut parameters = CertificateParams::new(names.to_vec()).map_err(failed)?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "fullbore station");
    let made = parameters.self_signed(&pair).map_err(failed)?;
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, what: "writing it", source }
    };
    fs::create_dir_all(directory).map_err(file(directory))?;
    write(key, &pem("PRIVATE KEY", &pair.serialize_der())).map_err(file(key))?;
    write(certificate, &pem("CERTIFICATE", made.der())).map_err(file(certificate))
}

/// Writes a file that only its owner reads, whole or not at all.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&part, path)
}

/// Bytes as PEM (RFC 7468).
fn pem(kind: &str, bytes: &[u8]) -> String {
    let encoded = BASE64.encode(bytes);
    let mut text = format!("-----BEGIN {kind}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text + &format!("-----END {kind}-----\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn own(directory: &Path) -> Source {
        let names = vec!["station.example.org".to_owned(), "192.0.2.1".to_owned()];
        Source::Own { directory: directory.to_owned(), names }
    }

    #[test]
    fn an_own_certificate_is_made_once_and_its_key_is_secret() {
        let place = tempfile::tempdir().unwrap();
        let first = Certificate::load(&own(place.path())).unwrap();
        let again = Certificate::load(&own(place.path())).unwrap();
        assert_eq!(first.fingerprint(), again.fingerprint());
        assert_eq!(first.fingerprint().len(), 32 * 3 - 1);
        let key = fs::metadata(place.path().join("key.pem")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
        Arc::new(first).acceptor().unwrap();
    }

    #[test]
    fn files_are_read_and_a_wrong_pair_is_refused() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = Certificate::load(&own(one.path())).unwrap();
        let second = Certificate::load(&own(other.path())).unwrap();
        assert_ne!(first.fingerprint(), second.fingerprint());
        let files = |certificate: &Path, key: &Path| Source::Files {
            certificate: certificate.join("certificate.pem"),
            key: key.join("key.pem"),
        };
        first.reload(&files(other.path(), other.path())).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        let error = first.reload(&files(one.path(), other.path())).unwrap_err();
        assert!(error.to_string().contains("not usable with the certificate"), "{error}");
        assert_eq!(first.fingerprint(), second.fingerprint());
        fs::write(one.path().join("key.pem"), "none").unwrap();
        let error = first.reload(&files(one.path(), one.path())).unwrap_err();
        assert!(error.to_string().contains("no private key") && error.hint().is_some());
        let error = first.reload(&files(Path::new("/nowhere"), one.path())).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
    }
}
