//! The client's side of TLS. The files are checked before a connection is made: a fault of a file would otherwise look like an
//! etcd that cannot be reached.

use std::path::Path;

use etcd_client::{Certificate, Identity, TlsOptions};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::EtcdError;
use crate::options::TlsFiles;

/// Reads the files.
///
/// # Errors
/// [`EtcdError::Options`] with the name of the file that cannot be read, has no certificate or private key, or whose private key is
/// not that of the certificate.
pub(crate) fn tls_options(files: &TlsFiles) -> Result<TlsOptions, EtcdError> {
    let mut options = match &files.authorities {
        Some(path) => {
            let pem = read(path)?;
            certificates(path, &pem)?;
            TlsOptions::new().ca_certificate(Certificate::from_pem(pem))
        }
        None => TlsOptions::new().with_native_roots(),
    };
    if let (Some(certificate), Some(key)) = (&files.certificate, &files.key) {
        let (chain_pem, key_pem) = (read(certificate)?, read(key)?);
        let chain = certificates(certificate, &chain_pem)?;
        let private_key = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|error| unusable(key, &format!("has no private key: {error}")))?;
        CertifiedKey::from_der(chain, private_key, &default_provider()).map_err(|error| {
            unusable(key, &format!("is not the private key of {}: {error}", certificate.display()))
        })?;
        options = options.identity(Identity::from_pem(chain_pem, key_pem));
    }
    Ok(options)
}

/// Reads a file of the options.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, EtcdError> {
    std::fs::read(path).map_err(|error| unusable(path, &format!("cannot be read: {error}")))
}

/// The certificates of a PEM text, at least one.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, EtcdError> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(certificates) if certificates.is_empty() => Err(unusable(path, "has no certificate")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unusable(path, &format!("has a damaged certificate: {error}"))),
    }
}

fn unusable(path: &Path, fault: &str) -> EtcdError {
    EtcdError::Options { reason: format!("{} {fault}", path.display()) }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn unusable_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| -> PathBuf {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (own, other) = (made(), made());
        let certificate = file("tls.crt", &own.cert.pem());
        let key = file("tls.key", &own.signing_key.serialize_pem());
        let other_key = file("other.key", &other.signing_key.serialize_pem());
        let (empty, text) = (file("empty.pem", ""), file("text.pem", "no PEM"));
        let damaged = file("damaged.pem", &own.cert.pem().replacen("MII", "M!I", 1));
        let missing = directory.path().join("missing.pem");
        let cases = [
            (&certificate, Some((&certificate, &key)), None),
            (&certificate, None, None),
            (&missing, None, Some("missing.pem cannot be read: No such file")),
            (&empty, None, Some("empty.pem has no certificate")),
            (&text, None, Some("text.pem has no certificate")),
            (&key, None, Some("tls.key has no certificate")),
            (&damaged, None, Some("damaged.pem has a damaged certificate: ")),
            (&certificate, Some((&text, &key)), Some("text.pem has no certificate")),
            (&certificate, Some((&certificate, &missing)), Some("missing.pem cannot be read: ")),
            (&certificate, Some((&certificate, &certificate)), Some("tls.crt has no private key: ")),
            (&certificate, Some((&certificate, &other_key)), Some("other.key is not the private key of ")),
        ];
        for (authorities, identity, fault) in cases {
            let files = TlsFiles {
                authorities: Some(authorities.clone()),
                certificate: identity.map(|(certificate, _)| certificate.clone()),
                key: identity.map(|(_, key)| key.clone()),
            };
            let refused = tls_options(&files).map(drop).map_err(|error| error.to_string());
            match fault {
                None => assert_eq!(refused, Ok(())),
                Some(fault) => assert!(
                    refused.as_ref().is_err_and(|error| error.contains(&format!("/{fault}"))),
                    "{refused:?}: {fault}"
                ),
            }
        }
    }
}
