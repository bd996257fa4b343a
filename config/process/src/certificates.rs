//! Selection of the serving certificate by the server name that a client requests (SNI).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::tls_error::TlsError;

/// Files of a certificate, and the server names for which it is presented.
#[derive(Clone, Debug)]
pub struct NamedCertificate {
    /// PEM file with the certificate and its intermediates.
    pub certificate: PathBuf,
    /// PEM file with its key.
    pub private_key: PathBuf,
    /// Names, `*.example.com` for all one level below; empty means the DNS names in the certificate.
    pub names: Vec<String>,
}

/// The certificates of a listener.
#[derive(Debug)]
pub(crate) struct Certificates {
    default: Arc<CertifiedKey>,
    by_name: Vec<(String, Arc<CertifiedKey>)>,
}

impl Certificates {
    /// Reads the certificates by name; the default one is given.
    pub(crate) fn load(
        default: CertifiedKey,
        named: &[NamedCertificate],
        provider: &CryptoProvider,
    ) -> Result<Self, TlsError> {
        let default = Arc::new(default);
        let mut by_name = Vec::new();
        for entry in named {
            let key = Arc::new(load_certified_key(&entry.certificate, &entry.private_key, provider)?);
            let names = if entry.names.is_empty() { dns_names(&key) } else { entry.names.clone() };
            by_name.extend(names.into_iter().map(|name| (name.to_ascii_lowercase(), Arc::clone(&key))));
        }
        Ok(Self { default, by_name })
    }

    /// The certificate for a name: an exact entry before a wildcard, the first of several, the default for all other names.
    fn of(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        let Some(name) = name.map(str::to_ascii_lowercase) else {
            return &self.default;
        };
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let find = |wanted: &str| self.by_name.iter().find(|(known, _)| known == wanted).map(|(_, key)| key);
        find(&name).or_else(|| find(&wildcard?)).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.of(hello.server_name())))
    }
}

/// A certificate that is presented until the files can be loaded for the first time: a chain and its key as one PEM text, in
/// memory only.
#[derive(Clone)]
pub struct ProvisionalCertificate {
    pem: Arc<str>,
    is_replaced: Arc<AtomicBool>,
}

impl ProvisionalCertificate {
    /// A provisional certificate from PEM text.
    pub fn new(pem: &str) -> Self {
        Self { pem: pem.into(), is_replaced: Arc::default() }
    }

    /// The certificate of the files, or the provisional one until the files have been loaded once.
    pub(crate) fn loaded_or_provisional(
        &self,
        loaded: Result<CertifiedKey, TlsError>,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, TlsError> {
        match loaded {
            Ok(loaded) => {
                self.is_replaced.store(true, Ordering::Relaxed);
                Ok(loaded)
            }
            Err(_) if !self.is_replaced.load(Ordering::Relaxed) => self.certified_key(provider),
            Err(error) => Err(error),
        }
    }

    fn certified_key(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let pem = self.pem.as_bytes();
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(TlsError::Provisional)?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(TlsError::Provisional)?;
        CertifiedKey::from_der(chain, key, provider).map_err(TlsError::Library)
    }
}

impl fmt::Debug for ProvisionalCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The PEM text has the private key and is not shown.
        formatter
            .debug_struct("ProvisionalCertificate")
            .field("is_replaced", &self.is_replaced)
            .finish_non_exhaustive()
    }
}

/// Reads a certificate and its key.
pub(crate) fn load_certified_key(
    certificate: &Path,
    private_key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let unreadable = |error| TlsError::Certificate(certificate.to_owned(), error);
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .map_err(unreadable)?
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(certificate.to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(private_key)
        .map_err(|error| TlsError::PrivateKey(private_key.to_owned(), error))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Pair {
        certificate: certificate.to_owned(),
        private_key: private_key.to_owned(),
        source,
    })
}

fn dns_names(key: &CertifiedKey) -> Vec<String> {
    let parsed = key.cert.first().and_then(|leaf| X509Certificate::from_der(leaf).ok());
    let Some((_, certificate)) = parsed else {
        return Vec::new();
    };
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let dns = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    dns.collect()
}
