//! Certificate authorities and certificates of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate authority.
#[derive(Clone)]
pub struct Authority {
    issuer: Arc<Issuer<'static, KeyPair>>,
    pub pem: String,
}

impl Authority {
    /// An authority that can only be trusted: certificates that it issues are signed with another key.
    pub fn trusted_only(pem: &str) -> Self {
        Self { pem: pem.to_owned(), ..Self::new("unused") }
    }
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Leaf {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Strict verifiers require the key usage.
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Arc::new(Issuer::new(params, key)), pem }
    }

    pub fn server(&self) -> Leaf {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        self.issue(CertificateParams::new(names).unwrap(), ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A server certificate for one name, independent of the server's address.
    pub fn server_named(&self, name: &str) -> Leaf {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A server certificate like those of public authorities, valid for 90 days.
    pub fn public_server(&self, name: &str, key: KeyPair) -> Leaf {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let now = std::time::SystemTime::now();
        let day = std::time::Duration::from_secs(86_400);
        (params.not_before, params.not_after) = ((now - day).into(), (now + day * 89).into());
        params.use_authority_key_identifier_extension = true;
        self.issue_for(key, params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self, name: &str, groups: &[&str]) -> Leaf {
        self.issue(subject(name, groups), ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A client certificate that is valid until then (whole seconds).
    pub fn client_until(&self, name: &str, until: std::time::SystemTime) -> Leaf {
        let mut params = subject(name, &[]);
        params.not_after = until.into();
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A client certificate with a given serial number, which need not be unique.
    pub fn client_with_serial(&self, name: &str, serial: u64) -> Leaf {
        let mut params = subject(name, &[]);
        params.serial_number = Some(serial.into());
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Leaf {
        self.issue_for(KeyPair::generate().unwrap(), params, usage)
    }

    fn issue_for(&self, key: KeyPair, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Leaf {
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Leaf { certificate, key: key.serialize_pem() }
    }
}

fn subject(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    // rcgen keeps one value per type, so the second organisation has its type given as an OID.
    assert!(groups.len() <= 2);
    for (group, kind) in
        groups.iter().zip([DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])])
    {
        params.distinguished_name.push(kind, *group);
    }
    params
}

impl Leaf {
    pub fn write(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) =
            (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
        fs::write(&certificate, &self.certificate).unwrap();
        fs::write(&key, &self.key).unwrap();
        (certificate, key)
    }

    fn der(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes()).map(Result::unwrap).collect();
        (chain, PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap())
    }

    /// A server that requests client certificates of these authorities, and accepts clients without one.
    pub fn server_config(&self, clients: &[&Authority]) -> Arc<ServerConfig> {
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots(clients)),
            Arc::new(aws_lc_rs::default_provider()),
        )
        .allow_unauthenticated()
        .build()
        .unwrap();
        let (chain, key) = self.der();
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl Leaf {
    /// A server that requests no client certificates.
    pub fn public_server_config(&self) -> Arc<ServerConfig> {
        let (chain, key) = self.der();
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

/// A client that trusts this authority, presents this certificate and speaks this protocol.
pub fn client_config(server: &Authority, certificate: Option<&Leaf>, alpn: &[u8]) -> Arc<ClientConfig> {
    client_config_of(&[server], certificate, alpn)
}

/// A client that trusts several authorities.
pub fn client_config_of(
    servers: &[&Authority],
    certificate: Option<&Leaf>,
    alpn: &[u8],
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(servers));
    let mut config = match certificate {
        Some(leaf) => {
            let (chain, key) = leaf.der();
            let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
            builder.with_client_cert_resolver(Arc::new(FixedCertificate(Arc::new(CertifiedKey::new(
                chain, key,
            )))))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    Arc::new(config)
}

/// Presents a certificate without checks; rustls' own resolver refuses certificates that it cannot parse.
#[derive(Debug)]
struct FixedCertificate(Arc<CertifiedKey>);

impl ResolvesClientCert for FixedCertificate {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn roots(authorities: &[&Authority]) -> RootCertStore {
    let mut store = RootCertStore::empty();
    for authority in authorities {
        store.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    }
    store
}
