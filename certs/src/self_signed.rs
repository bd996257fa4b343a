//! A self-signed serving certificate, for a server without a configured one, and other files that a server creates itself.

use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use rcgen::KeyPair;

use crate::acme::write_secret;
use crate::files::{Secrecy, create_private_folder, replace, sync_folder};
use crate::issue::{generate_key, sign_chain, sign_self};
use crate::{Error, Host};

/// One year, as in Kubernetes.
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Generates a key and a certificate for these DNS names and writes them, the key for its owner only. Clients trust the
/// certificate only if it is configured explicitly.
///
/// # Errors
/// [`Error::Io`] if a file cannot be written.
pub fn write_self_signed(certificate: &Path, private_key: &Path, names: &[&str]) -> Result<(), Error> {
    let item = "a self-signed certificate";
    let key = generate_key(&item)?;
    let now = Timestamp::try_from(SystemTime::now()).map_err(|_| Error::Clock)?;
    let hosts: Vec<Host> = names.iter().map(|name| Host::Name((*name).to_owned())).collect();
    let signed = sign_self(&item, &hosts, &key, now, LIFETIME)?;
    write_pair(certificate, &signed.pem(), private_key, &key)
}

/// Generates an authority, a key and a certificate of this authority for these hosts, and writes the key for its owner
/// only. The certificate's file ends with the authority, so that it is also the bundle that clients trust. The authority's
/// key is not kept.
///
/// # Errors
/// [`Error::Io`] if a file cannot be written.
pub fn write_serving_chain(certificate: &Path, private_key: &Path, hosts: &[Host]) -> Result<(), Error> {
    let item = "a serving certificate";
    let now = Timestamp::try_from(SystemTime::now()).map_err(|_| Error::Clock)?;
    let key = generate_key(&item)?;
    let chain = sign_chain(&item, hosts, &key, now, LIFETIME)?;
    write_pair(certificate, &chain, private_key, &key)
}

/// Generates a private key for tokens of service accounts and writes it for its owner only.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written.
pub fn write_signing_key(file: &Path) -> Result<(), Error> {
    write_secret(file, generate_key(&"a key of service accounts")?.serialize_pem())
}

fn write_pair(
    certificate: &Path,
    certificate_pem: &str,
    private_key: &Path,
    key: &KeyPair,
) -> Result<(), Error> {
    let key_pem = key.serialize_pem();
    for (path, text, secrecy) in
        [(private_key, &*key_pem, Secrecy::Secret), (certificate, certificate_pem, Secrecy::Public)]
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        create_private_folder(folder)?;
        replace(path, text, secrecy)?;
        sync_folder(folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use std::os::unix::fs::PermissionsExt;

    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;

    #[test]
    fn the_certificate_is_for_its_names_and_the_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) =
            (folder.path().join("new/apiserver.crt"), folder.path().join("new/apiserver.key"));
        write_self_signed(&certificate, &key, &["localhost", "kubernetes"]).unwrap();
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        let pem = std::fs::read(&certificate).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
        let (_, parsed) = X509Certificate::from_der(&pem.contents).unwrap();
        assert!(parsed.verify_signature(None).is_ok());
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 2);
    }
    #[test]
    fn a_serving_chain_ends_with_its_authority() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("apiserver.crt"), folder.path().join("apiserver.key"));
        let hosts = [Host::Name("localhost".to_owned()), Host::Address([127, 0, 0, 1].into())];
        write_serving_chain(&certificate, &key, &hosts).unwrap();
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read(&certificate).unwrap();
        let pems: Vec<_> = x509_parser::pem::Pem::iter_from_buffer(&text).map(Result::unwrap).collect();
        let [leaf, authority] = &*pems else { panic!("{} certificates", pems.len()) };
        let (leaf, authority) = (leaf.parse_x509().unwrap(), authority.parse_x509().unwrap());
        assert!(leaf.verify_signature(Some(authority.public_key())).is_ok());
        assert!(authority.is_ca() && !leaf.is_ca());
        let names = leaf.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 2);
    }
}
