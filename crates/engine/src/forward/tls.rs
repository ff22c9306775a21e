//! Whom a TLS connection trusts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_platform_verifier::Verifier;
use sha2::{Digest, Sha256};

use super::ForwardError;
use super::target::TlsTrust;

/// The settings of connections that trust these certificates.
pub(super) fn config(trust: &TlsTrust) -> Result<Arc<ClientConfig>, ForwardError> {
    let provider = Arc::new(ring::default_provider());
    let tls = |source| ForwardError::Tls { source };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(tls)?;
    let wanted = match trust {
        TlsTrust::Authority(path) => {
            let roots = authorities(path)
                .map_err(|why| ForwardError::Authority { path: path.clone(), why })?;
            builder.with_root_certificates(roots)
        }
        TlsTrust::System => {
            let verifier = Verifier::new(provider).map_err(tls)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        TlsTrust::Pinned(digest) => {
            let verifier = Pinned::new(*digest, &provider);
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    Ok(Arc::new(wanted.with_no_client_auth()))
}

/// Reads the certificates of a PEM file. The error is the reason.
fn authorities(path: &std::path::Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|it| it.to_string())? {
        let certificate = certificate.map_err(|it| it.to_string())?;
        roots.add(certificate).map_err(|it| it.to_string())?;
    }
    match roots.is_empty() {
        true => Err("no certificate is in it".to_owned()),
        false => Ok(roots),
    }
}

/// Accepts a server that has one certificate.
#[derive(Debug)]
struct Pinned {
    digest: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(digest: [u8; 32], provider: &CryptoProvider) -> Self {
        Self { digest, algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match Sha256::digest(certificate)[..] == self.digest {
            true => Ok(ServerCertVerified::assertion()),
            false => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
