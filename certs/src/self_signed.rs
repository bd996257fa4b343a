//! A self-signed serving certificate, for a server without a configured one.

use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use crate::files::{Secrecy, create_private_folder, replace, sync_folder};
use crate::issue::{generate_key, sign_self};
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
    for (path, text, secrecy) in
        [(private_key, key.serialize_pem(), Secrecy::Secret), (certificate, signed.pem(), Secrecy::Public)]
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        create_private_folder(folder)?;
        replace(path, &text, secrecy)?;
        sync_folder(folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
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
}
