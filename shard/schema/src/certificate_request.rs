//! PKCS #10 certificate requests (RFC 2986) and certificates, as contents of CertificateSigningRequests.

use thiserror::Error;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

const REQUEST_LABEL: &str = "CERTIFICATE REQUEST";
const CERTIFICATE_LABEL: &str = "CERTIFICATE";

/// A certificate request whose signature is valid: its author has the private key.
#[derive(Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The organisations of the subject, which become groups.
    pub organizations: Vec<String>,
}

/// The fault of a certificate request or of a certificate; its author has to correct it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CertificateDataError {
    /// The text is not PEM, or of another kind.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NoRequest,
    /// The content is not a certificate request.
    #[error("the certificate request cannot be parsed")]
    MalformedRequest,
    /// The signature does not match the public key, or its algorithm is not supported.
    #[error("the signature of the certificate request is not valid")]
    Signature,
    /// A block of another kind.
    #[error("only CERTIFICATE PEM blocks are allowed, found {0:?}")]
    OtherBlock(String),
    /// A block that is not a certificate.
    #[error("a certificate cannot be parsed")]
    MalformedCertificate,
    /// There is no block.
    #[error("must contain at least one CERTIFICATE PEM block")]
    NoCertificate,
}

impl CertificateRequest {
    /// Parses the first PEM block and checks its signature, which takes some 50 µs.
    ///
    /// # Errors
    /// [`CertificateDataError`]
    pub fn parse(pem: &[u8]) -> Result<Self, CertificateDataError> {
        let block = Pem::iter_from_buffer(pem).next().and_then(Result::ok);
        let block = block.filter(|block| block.label == REQUEST_LABEL);
        let block = block.ok_or(CertificateDataError::NoRequest)?;
        let parsed = X509CertificationRequest::from_der(&block.contents);
        let Ok((rest, request)) = parsed else { return Err(CertificateDataError::MalformedRequest) };
        if !rest.is_empty() {
            return Err(CertificateDataError::MalformedRequest);
        }
        request.verify_signature().map_err(|_| CertificateDataError::Signature)?;
        let subject = &request.certification_request_info.subject;
        let names = subject.iter_organization().filter_map(|name| name.as_str().ok());
        Ok(Self { organizations: names.map(str::to_owned).collect() })
    }
}

/// Checks that a text consists of PEM certificates.
///
/// # Errors
/// [`CertificateDataError`]
pub(crate) fn check_certificates(pem: &[u8]) -> Result<(), CertificateDataError> {
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(pem) {
        let Ok(block) = block else { break };
        if block.label != CERTIFICATE_LABEL {
            return Err(CertificateDataError::OtherBlock(block.label));
        }
        match X509Certificate::from_der(&block.contents) {
            Ok(([], _)) => blocks += 1,
            _ => return Err(CertificateDataError::MalformedCertificate),
        }
    }
    if blocks == 0 { Err(CertificateDataError::NoCertificate) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// CN=ann, O=team, with a key of P-256.
    pub(crate) const REQUEST: &str = include_str!("../tests/data/request.pem");
    const CERTIFICATE: &str = include_str!("../tests/data/certificate.pem");

    #[test]
    fn requests_are_parsed_and_their_signature_is_checked() {
        let request = CertificateRequest::parse(REQUEST.as_bytes());
        assert_eq!(request, Ok(CertificateRequest { organizations: vec!["team".to_owned()] }));
        for (text, expected) in [
            ("", CertificateDataError::NoRequest),
            (CERTIFICATE, CertificateDataError::NoRequest),
            (
                "-----BEGIN CERTIFICATE REQUEST-----\neA==\n-----END CERTIFICATE REQUEST-----\n",
                CertificateDataError::MalformedRequest,
            ),
        ] {
            assert_eq!(CertificateRequest::parse(text.as_bytes()), Err(expected), "{text}");
        }
        // The last bytes of the PEM are the signature.
        let lines: Vec<&str> = REQUEST.lines().collect();
        let last = lines.len() - 2;
        let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        changed[last] = changed[last].chars().rev().collect();
        assert!(CertificateRequest::parse(changed.join("\n").as_bytes()).is_err());
    }

    #[test]
    fn certificates_are_pem() {
        assert_eq!(check_certificates(CERTIFICATE.as_bytes()), Ok(()));
        assert_eq!(check_certificates(b"x"), Err(CertificateDataError::NoCertificate));
        let other = Err(CertificateDataError::OtherBlock("CERTIFICATE REQUEST".to_owned()));
        assert_eq!(check_certificates(REQUEST.as_bytes()), other);
    }
}
