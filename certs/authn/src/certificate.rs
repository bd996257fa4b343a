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

use crate::{
    Answer, Authenticator, CredentialKind, Identity, Method, Presented, Reason, SharedAuthorities, UserInfo,
    Verdict,
};

/// Under this key a user's extras say which certificate he has shown (KEP-3766).
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Accepts whoever presents a certificate that the client CA vouches for.
#[derive(Clone, Debug)]
pub struct ClientCertificateAuthenticator {
    authorities: SharedAuthorities,
}

impl ClientCertificateAuthenticator {
    /// Judges by the authorities in force at the time of each request.
    #[must_use]
    pub fn new(authorities: SharedAuthorities) -> Self {
        Self { authorities }
    }
}

impl Authenticator for ClientCertificateAuthenticator {
    fn name(&self) -> &'static str {
        "client certificate"
    }

    fn judges(&self) -> CredentialKind {
        CredentialKind::Certificate
    }

    /// Two atomic loads and a reference count, once the connection has been judged.
    fn authenticate<'a>(&'a self, request: &Presented<'a>) -> Answer<'a> {
        let Some(judgement) = request.connection.judgement(&self.authorities.load(), request.now) else {
            return Answer::Ready(Verdict::NoOpinion);
        };
        Answer::Ready(match &judgement.client {
            Ok(identity) => Verdict::Accepted(identity.clone()),
            Err(problem) => Verdict::Declined(Reason::Certificate(problem.clone())),
        })
    }
}

/// What a leaf certificate says about its holder. Nothing here is to be believed before the chain is
/// verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject's common name.
    pub common_name: String,
    /// The subject's organisations.
    pub organizations: Vec<String>,
    /// The first second in which it is valid.
    pub not_before: SystemTime,
    /// The last second in which it is valid.
    pub not_after: SystemTime,
    /// SHA-256 over the DER form.
    pub fingerprint: [u8; 32],
}

/// Why a certificate names nobody. Its issuer is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// Not X.509.
    #[error("the certificate cannot be parsed")]
    Malformed,
    /// The subject has no common name, or an empty one.
    #[error("the certificate's subject has no common name")]
    NoCommonName,
    /// It has several. Which one counts differs from program to program, so none does.
    #[error("the certificate's subject has more than one common name")]
    SeveralCommonNames,
    /// A name is not text in a known encoding.
    #[error("the certificate's subject is not readable text")]
    UnreadableName,
    /// It has dates before 1970.
    #[error("the certificate's dates cannot be used")]
    Dates,
}

impl ClientCertificate {
    /// Takes a certificate apart. Costs some microseconds, which
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

    /// The identity that it stands for.
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
        Identity::new(user, Method::ClientCertificate, Some(self.not_after))
    }
}

/// The first and the last second in which a certificate is valid, whatever it is for.
///
/// # Errors
/// It cannot be read.
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
