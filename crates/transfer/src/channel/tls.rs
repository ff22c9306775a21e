//! TLS 1.3 with self-signed certificates: the key counts, and nothing else in the certificate.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved,
    ServerConfig, SignatureScheme,
};

use super::ChannelError;
use crate::identity::{Fingerprint, Identity};

/// The protocol and the version of its framing, as agreed in the handshake.
const ALPN: &[u8] = b"fullbore/1";

/// The name in the handshake. It is the same for all, and tells an observer nothing.
pub(super) fn name() -> ServerName<'static> {
    ServerName::try_from("fullbore").expect("a valid name")
}

/// The client's side: the server must have this key.
pub(super) fn client(
    identity: &Identity,
    key: Fingerprint,
) -> Result<Arc<ClientConfig>, ChannelError> {
    let verifier = Arc::new(Keys::new(Some(key)));
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(own)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(vec![identity.certificate()], identity.key())
        .map_err(own)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The server's side: the client must have a key.
pub(super) fn server(identity: &Identity) -> Result<Arc<ServerConfig>, ChannelError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(own)?
        .with_client_cert_verifier(Arc::new(Keys::new(None)))
        .with_single_cert(vec![identity.certificate()], identity.key())
        .map_err(own)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The error for a key of this end that cannot be used.
fn own(error: Error) -> ChannelError {
    ChannelError::Tls { address: "this end".to_owned(), error }
}

/// Accepts any certificate whose key the peer has, or only that with the known key.
#[derive(Debug)]
struct Keys {
    known: Option<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Keys {
    fn new(known: Option<Fingerprint>) -> Self {
        Self { known, algorithms: ring::default_provider().signature_verification_algorithms }
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let key = Fingerprint::of_certificate(certificate)?;
        match self.known.is_none_or(|known| known == key) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn signed(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }
}

/// The answer to a signature of TLS 1.2, which is never negotiated.
fn not_in_use() -> Error {
    PeerMisbehaved::SelectedUnofferedKxGroup.into()
}

impl ServerCertVerifier for Keys {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(not_in_use())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Keys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(not_in_use())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
