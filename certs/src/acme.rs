//! Material for ACME (RFC 8555): certificate requests, responses to challenges, and provisional certificates.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName};

use crate::files::{Secrecy, create_private_folder, replace, sync_folder};
use crate::issue::{generate_key, sign_self};
use crate::{Error, Host};

/// Lifetime of a provisional certificate, which is generated at each start: long enough to repair the renewal.
const PROVISIONAL_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// Lifetime of a challenge certificate, which an authority validates at once.
const CHALLENGE_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// A key and a certificate signing request for it.
pub struct CertificateRequest {
    /// The request, PKCS #10, DER.
    pub request: Vec<u8>,
    /// The key, PEM.
    pub key: String,
}

impl CertificateRequest {
    /// A request with a new key, for these DNS names and addresses.
    ///
    /// # Errors
    /// [`Error::Issue`] for a name that a certificate cannot have.
    pub fn new(names: &[String]) -> Result<Self, Error> {
        let item = "a request for a certificate";
        let key = generate_key(&item)?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(Error::issue(&item))?;
        // Host names are in the subject alternative names only.
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(Error::issue(&item))?;
        Ok(Self { request: request.der().to_vec(), key: key.serialize_pem() })
    }
}

/// A certificate with its key for the challenge tls-alpn-01 (RFC 8737, 3) of a name, as one PEM text. `digest` is the SHA-256
/// of the key authorization.
///
/// # Errors
/// [`Error::Issue`] for a name that a certificate cannot have.
pub fn challenge_certificate(name: &str, digest: &[u8]) -> Result<String, Error> {
    let item = "a challenge certificate";
    let key = generate_key(&item)?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(Error::issue(&item))?;
    let now = SystemTime::now();
    params.not_before = now.into();
    params.not_after = (now + CHALLENGE_LIFETIME).into();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key).map_err(Error::issue(&item))?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}

/// A self-signed certificate with its key, as one PEM text: for a server that waits for its ACME certificate.
///
/// # Errors
/// [`Error::Issue`] for a name that a certificate cannot have.
pub fn provisional_certificate(names: &[String]) -> Result<String, Error> {
    let item = "a provisional certificate";
    let key = generate_key(&item)?;
    let now = Timestamp::try_from(SystemTime::now()).map_err(|_| Error::Clock)?;
    let host = |name: &String| match name.parse::<IpAddr>() {
        Ok(address) => Host::Address(address),
        Err(_) => Host::Name(name.clone()),
    };
    let hosts: Vec<Host> = names.iter().map(host).collect();
    let signed = sign_self(&item, &hosts, &key, now, PROVISIONAL_LIFETIME)?;
    Ok(format!("{}{}", key.serialize_pem(), signed.pem()))
}

/// Writes a secret to a file atomically, readable by its owner only. A missing folder is created.
///
/// # Errors
/// [`Error::Io`]; the previous file is kept then.
pub fn write_secret(file: &Path, secret: impl AsRef<[u8]>) -> Result<(), Error> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_private_folder(folder)?;
    replace(file, &secret, Secrecy::Secret)?;
    sync_folder(folder)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    use x509_parser::prelude::{FromDer, X509Certificate, X509CertificationRequest};

    use super::*;

    #[test]
    fn a_request_is_for_its_names_and_signed_with_its_key() {
        let made = CertificateRequest::new(&["a.example".to_owned(), "192.0.2.1".to_owned()]).unwrap();
        let (_, parsed) = X509CertificationRequest::from_der(&made.request).unwrap();
        assert!(parsed.verify_signature().is_ok());
        assert_eq!(parsed.certification_request_info.subject.iter().count(), 0);
        assert!(made.key.contains("PRIVATE KEY"));
        assert!(CertificateRequest::new(&["ä".to_owned()]).is_err());
    }

    #[test]
    fn a_challenge_certificate_has_the_digest_in_a_critical_extension_and_one_name() {
        let pem = challenge_certificate("a.example", &[7; 32]).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        let extension =
            parsed.extensions().iter().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31").unwrap();
        assert!(extension.critical);
        assert_eq!(extension.value, [&[4, 32][..], &[7; 32]].concat());
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 1);
    }
}
