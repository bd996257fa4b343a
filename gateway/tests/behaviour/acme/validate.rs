//! Validation of challenges: the checks with which an authority finds out that a client controls a name.

use std::net::Ipv4Addr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::{DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Validates an http-01 challenge (RFC 8555, 8.3).
pub async fn http(port: u16, name: &str, token: &str, proof: &str) -> Result<(), String> {
    let ask = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        let question = format!(
            "GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(question.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = ask.await.map_err(|error| error.to_string())?;
    let is_good = answer.starts_with("HTTP/1.1 200") && answer.ends_with(&format!("\r\n\r\n{proof}"));
    if is_good { Ok(()) } else { Err(format!("not what was expected: {answer}")) }
}

/// Validates a tls-alpn-01 challenge (RFC 8737, 3).
pub async fn tls(port: u16, name: &str, digest: &[u8]) -> Result<(), String> {
    let handshake = handshake(port, name, &[b"acme-tls/1"]).await.map_err(|error| error.to_string())?;
    if handshake.protocol.as_deref() != Some(b"acme-tls/1") {
        return Err("the server does not speak acme-tls/1".to_owned());
    }
    let (_, leaf) = X509Certificate::from_der(&handshake.leaf).map_err(|error| error.to_string())?;
    let names = leaf.subject_alternative_name().ok().flatten().map(|names| names.value.general_names.clone());
    if names != Some(vec![GeneralName::DNSName(name)]) {
        return Err(format!("the certificate is for {names:?}"));
    }
    let expected = [&[4, 32][..], digest].concat();
    let is_marked = leaf
        .extensions()
        .iter()
        .any(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31" && one.critical && one.value == expected);
    if is_marked { Ok(()) } else { Err("the certificate does not contain the proof".to_owned()) }
}

/// The certificate and the protocol that a server presents to a client that accepts every certificate.
pub struct Handshake {
    pub leaf: CertificateDer<'static>,
    pub protocol: Option<Vec<u8>>,
}

pub async fn handshake(port: u16, name: &str, protocols: &[&[u8]]) -> std::io::Result<Handshake> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptEveryCertificate))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let server = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(server, stream).await?;
    let session = stream.get_ref().1;
    Ok(Handshake {
        leaf: session.peer_certificates().unwrap()[0].clone().into_owned(),
        protocol: session.alpn_protocol().map(<[u8]>::to_vec),
    })
}

#[derive(Debug)]
struct AcceptEveryCertificate;

impl ServerCertVerifier for AcceptEveryCertificate {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, leaf, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // A challenge's certificate has a critical extension that is unknown to the library that would read its key.
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
