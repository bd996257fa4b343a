//! The folder of certificates and of the account, and the properties of its certificates.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::listener::acme::AcmeError;

/// The folder of certificates, by its path.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// A listener's certificate with its intermediates and its key.
    pub(super) fn certificate(&self, listener: &str) -> PathBuf {
        // The operator chooses the names of listeners, with arbitrary characters.
        self.0.join(format!(
            "{}.pem",
            percent_encoding::utf8_percent_encode(listener, percent_encoding::NON_ALPHANUMERIC)
        ))
    }

    /// The account with the authority of this directory.
    pub(super) fn account(&self, directory: &str) -> PathBuf {
        let digest = Sha256::digest(directory.as_bytes());
        let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        self.0.join(format!("account-{short}.json"))
    }

    /// The folder of responses to open challenges.
    pub(super) fn challenge_responses(&self) -> PathBuf {
        self.0.join("challenges")
    }

    /// The lock for orders; `None` while another process holds it. It is released when the file is closed.
    ///
    /// # Errors
    /// [`AcmeError::Lock`] if the folder cannot be written to, or its file system does not support locks.
    pub(super) fn lock(&self) -> Result<Option<File>, AcmeError> {
        let file = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(AcmeError::Lock(self.0.join("lock"), error)),
        }
    }

    /// Creates the folders and checks that they can be written to.
    ///
    /// # Errors
    /// [`AcmeError`].
    pub(super) fn make(&self) -> Result<(), AcmeError> {
        fairlead_certs::create_private_folder(&self.0)?;
        self.lock_file().map(drop)
    }

    fn lock_file(&self) -> Result<File, AcmeError> {
        let path = self.0.join("lock");
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).mode(0o600).open(&path);
        file.map_err(|source| AcmeError::Lock(path, source))
    }
}

/// A certificate that was read from its file.
#[derive(Clone, Debug)]
pub(super) struct StoredCertificate {
    pub(super) names: BTreeSet<String>,
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    /// True if it is self-signed.
    pub(super) is_provisional: bool,
    pub(super) leaf: CertificateDer<'static>,
}

impl StoredCertificate {
    /// `None` if the file does not exist or cannot be parsed.
    pub(super) fn read(file: &Path) -> Option<Self> {
        Self::of(CertificateDer::from_pem_file(file).ok()?)
    }

    pub(super) fn of(leaf: CertificateDer<'static>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(&leaf).ok()?;
        let names = match parsed.subject_alternative_name() {
            Ok(Some(names)) => names.value.general_names.iter().filter_map(text).collect(),
            _ => BTreeSet::new(),
        };
        let time =
            |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        Some(Self {
            names,
            not_before: time(parsed.validity().not_before.timestamp()),
            not_after: time(parsed.validity().not_after.timestamp()),
            is_provisional: parsed.subject().as_raw() == parsed.issuer().as_raw(),
            leaf: leaf.clone(),
        })
    }

    /// Time at which it should be replaced: after two thirds of its lifetime. `jitter`, from 0 to 1, spreads certificates of equal
    /// age over a twentieth of it, towards an earlier time.
    pub(super) fn due(&self, wanted: &BTreeSet<String>, jitter: f64) -> SystemTime {
        if self.is_provisional || self.names != *wanted {
            return UNIX_EPOCH;
        }
        let lifetime = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + lifetime.mul_f64(2.0 / 3.0 - jitter / 20.0)
    }
}

fn text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress([a, b, c, d]) => Some(std::net::Ipv4Addr::from([*a, *b, *c, *d]).to_string()),
        GeneralName::IPAddress(bytes) => {
            Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_certificate_is_due_when_a_third_of_its_life_is_left() {
        let day = Duration::from_secs(86_400);
        let names: BTreeSet<_> = ["a.example".to_owned()].into();
        let not_before = UNIX_EPOCH + day * 1000;
        let held = StoredCertificate {
            names: names.clone(),
            not_before,
            not_after: not_before + day * 90,
            is_provisional: false,
            leaf: Vec::new().into(),
        };
        let days = |jitter| {
            held.due(&names, jitter).duration_since(not_before).unwrap().as_secs_f64() / day.as_secs_f64()
        };
        for (jitter, expected) in [(0.0, 60.0), (0.5, 57.75), (1.0, 55.5)] {
            assert!((days(jitter) - expected).abs() < 0.001, "{jitter}: {}", days(jitter));
        }
        assert_eq!(held.due(&BTreeSet::new(), 0.0), UNIX_EPOCH, "of other names");
        assert_eq!(StoredCertificate { is_provisional: true, ..held }.due(&names, 0.0), UNIX_EPOCH);
    }

    #[test]
    fn listeners_with_odd_names_have_files_in_the_folder() {
        let folder = Folder::at("/acme".into());
        for (listener, expected) in [("edge", "edge.pem"), ("../x", "%2E%2E%2Fx.pem"), ("a b", "a%20b.pem")] {
            assert_eq!(folder.certificate(listener), Path::new("/acme").join(expected));
        }
    }
}
