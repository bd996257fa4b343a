//! Certificates as identities: the common name is the user, the organisations are the groups.

use std::{
    collections::BTreeMap,
    fmt::Write,
    time::{Duration, SystemTime},
};

use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use thiserror::Error;
use x509_parser::{
    certificate::X509Certificate, prelude::FromDer, time::ASN1Time, x509::AttributeTypeAndValue,
};

use crate::{AuthenticationMethod, Identity, UserInfo};

/// Key of the extra with the fingerprint of the user's certificate (KEP-3766).
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The contents of a leaf certificate. They are not trusted before the chain is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject's common name.
    pub common_name: String,
    /// The subject's organisations.
    pub organizations: Vec<String>,
    /// The first second of its validity.
    pub not_before: SystemTime,
    /// The last second of its validity.
    pub not_after: SystemTime,
    /// SHA-256 over the DER form.
    pub fingerprint: [u8; 32],
}

/// A certificate that cannot be an identity; its issuer has to correct it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The certificate is not X.509.
    #[error("the certificate cannot be parsed")]
    Malformed,
    /// The subject has no common name, or an empty one.
    #[error("the certificate's subject has no common name")]
    NoCommonName,
    /// The subject has several common names. Programs differ in which one they use, so it is rejected.
    #[error("the certificate's subject has more than one common name")]
    SeveralCommonNames,
    /// A name is not text in a known encoding.
    #[error("the certificate's subject is not readable text")]
    UnreadableName,
    /// The certificate has dates before 1970.
    #[error("the certificate's dates cannot be used")]
    Dates,
}

impl ClientCertificate {
    /// Parses a certificate. Costs some microseconds, which
    /// [`ConnectionCredentials`](crate::ConnectionCredentials) spends once per connection.
    pub fn parse(der: &CertificateDer<'_>) -> Result<Self, CertificateError> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::Malformed)?;
        if !rest.is_empty() {
            return Err(CertificateError::Malformed);
        }
        let subject = certificate.subject();
        let mut common_names = texts(subject.iter_common_name())?;
        let common_name = match (common_names.pop(), common_names.is_empty()) {
            (Some(name), true) if !name.is_empty() => name,
            (Some(_), false) => return Err(CertificateError::SeveralCommonNames),
            (Some(_) | None, _) => return Err(CertificateError::NoCommonName),
        };
        Ok(Self {
            common_name,
            organizations: texts(subject.iter_organization())?,
            not_before: time(certificate.validity().not_before)?,
            not_after: time(certificate.validity().not_after)?,
            fingerprint: Sha256::digest(der).into(),
        })
    }

    /// The identity of the certificate's holder.
    pub(crate) fn identity(&self) -> Identity {
        let mut credential_id = String::with_capacity(76);
        credential_id.push_str("X509SHA256=");
        for byte in self.fingerprint {
            // Writing to a string cannot fail.
            let _ = write!(credential_id, "{byte:02x}");
        }
        let user = UserInfo {
            name: self.common_name.clone(),
            uid: None,
            groups: self.organizations.clone(),
            extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![credential_id])]),
        };
        Identity::new(user, AuthenticationMethod::ClientCertificate, Some(self.not_after))
    }
}

/// The first and the last second of a certificate's validity, for any purpose.
///
/// # Errors
/// [`CertificateError`] if it cannot be parsed.
pub fn validity(der: &CertificateDer<'_>) -> Result<(SystemTime, SystemTime), CertificateError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::Malformed)?;
    let validity = certificate.validity();
    Ok((time(validity.not_before)?, time(validity.not_after)?))
}

fn texts<'a>(
    attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>,
) -> Result<Vec<String>, CertificateError> {
    attributes
        .map(|attribute| attribute.as_str().map(str::to_owned).map_err(|_| CertificateError::UnreadableName))
        .collect()
}

fn time(time: ASN1Time) -> Result<SystemTime, CertificateError> {
    let seconds = u64::try_from(time.timestamp()).map_err(|_| CertificateError::Dates)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).ok_or(CertificateError::Dates)
}
