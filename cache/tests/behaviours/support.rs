//! A cache server on a free port, and clients with any certificate.

use std::path::Path;
use std::sync::Arc;

use fairlead_authn::TrustPurpose;
use fairlead_cache::{CacheAccess, CacheServer, MASTERS};
use fairlead_client::{Client, ClientError, ClientOptions, Credentials, Endpoint, TrustRoots};
use fairlead_config::{
    CacheConfig, ConnectionLimits, DrainConfig, ServingConfig, SlowClientsConfig, StoreConfig,
};
use fairlead_process::{
    AllowedPeers, BoundServer, Health, Metrics, Reloads, ServerMetrics, ServerOptions, Shutdown, TlsSource,
};
use fairlead_server_store::check_store;
use fairlead_store::{MemoryStore, Store};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use serde_json::Value;
use tokio::task::JoinHandle;

/// A running cache server.
pub struct Cache {
    pub pki: Pki,
    pub store: Arc<dyn Store>,
    pub port: u16,
    shutdown: Shutdown,
    serving: JoinHandle<()>,
}

impl Cache {
    pub async fn start() -> Self {
        Self::with_store(Arc::new(MemoryStore::new())).await
    }

    pub async fn with_store(store: Arc<dyn Store>) -> Self {
        let pki = Pki::new();
        let metrics = Metrics::new("cache", "0").unwrap();
        let reloads = Reloads::new(&metrics).unwrap();
        let drain = DrainConfig { window: "5s".parse().unwrap(), ..DrainConfig::default() };
        let shutdown = Shutdown::new(&drain);
        let serving = ServingConfig {
            certificate: pki.file("tls.crt").into(),
            private_key: pki.file("tls.key").into(),
            ..ServingConfig::default()
        };
        let bundles = vec![(TrustPurpose::Client, pki.file("ca.crt"))];
        let authorities = fairlead_apiserver::serve::watch_authorities(bundles, &reloads).unwrap();
        let access = CacheAccess::of_certificates(authorities, &CacheConfig::default());
        let bound = BoundServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = bound.local_addr().port();
        let options = ServerOptions {
            name: "cache".into(),
            tls: TlsSource::https(&serving).watch("serving certificate", &reloads).unwrap(),
            limits: ConnectionLimits::default(),
            slow_clients: SlowClientsConfig::default(),
            peers: AllowedPeers::default(),
            shutdown: shutdown.clone(),
            metrics: ServerMetrics::new(&metrics).unwrap(),
        };
        let health = Health::new();
        check_store(&health, &store, &StoreConfig::default());
        let cache =
            CacheServer::new(store.clone(), access, health, &metrics, "127.0.0.1".to_owned()).await.unwrap();
        let serving = tokio::spawn(async move { cache.run(bound, options).await.unwrap() });
        Self { pki, store, port, shutdown, serving }
    }

    /// A client that may send any request.
    pub fn master(&self) -> Client {
        self.client(self.pki.client_certificate("shard", &[MASTERS]))
    }

    pub fn client(&self, credentials: Credentials) -> Client {
        let endpoint = Endpoint::parse(&format!("https://localhost:{}", self.port)).unwrap();
        Client::new(endpoint, credentials, ClientOptions::default())
    }

    /// Drains and waits until the last connection has ended.
    pub async fn stop(self) {
        self.shutdown.begin();
        tokio::select! {
            outcome = self.serving => outcome.unwrap(),
            () = async { self.shutdown.run().await; std::future::pending().await } => {}
        }
    }
}

/// A certificate authority, with a server certificate for localhost in files.
pub struct Pki {
    ca: CertifiedIssuer<'static, KeyPair>,
    dir: tempfile::TempDir,
}

impl Pki {
    pub fn new() -> Self {
        let mut params = named("test ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let pki = Self { ca, dir: tempfile::tempdir().unwrap() };
        let (certificate, key) = pki.issue(CertificateParams::new(vec!["localhost".to_owned()]).unwrap());
        for (name, text) in [("tls.crt", certificate), ("tls.key", key), ("ca.crt", pki.ca.pem())] {
            std::fs::write(pki.dir.path().join(name), text).unwrap();
        }
        pki
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Credentials that trust this authority's servers and have no certificate.
    pub fn anonymous(&self) -> Credentials {
        Credentials::new(TrustRoots::Pem(self.ca.pem().into_bytes())).unwrap()
    }

    /// Credentials that trust this authority's servers and have a certificate signed by it.
    pub fn client_certificate(&self, user: &str, groups: &[&str]) -> Credentials {
        self.client_signed_by(self, user, groups)
    }

    /// Credentials that trust this authority's servers and have a certificate signed by `issuer`.
    pub fn client_signed_by(&self, issuer: &Self, user: &str, groups: &[&str]) -> Credentials {
        let mut params = named(user);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        let (certificate, key) = issuer.issue(params);
        self.anonymous().with_certificate(certificate.as_bytes(), key.as_bytes()).unwrap()
    }

    fn issue(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// The path of a collection, such as `collection("s1", "root", "core.kcp.io/v1alpha1/shards")`.
pub fn collection(shard: &str, cluster: &str, resource: &str) -> String {
    format!("/services/cache/shards/{shard}/clusters/{cluster}/apis/{resource}")
}

/// An object with its apiVersion and kind, of a resource such as `core.kcp.io/v1alpha1/shards`.
pub fn typed(resource: &str, mut object: Value) -> Value {
    let (api_version, plural) = resource.rsplit_once('/').unwrap();
    object["apiVersion"] = api_version.into();
    object["kind"] = match plural {
        "apiexports" => "APIExport",
        "clusterroles" => "ClusterRole",
        "customresourcedefinitions" => "CustomResourceDefinition",
        "logicalclusters" => "LogicalCluster",
        "shards" => "Shard",
        other => panic!("the kind of {other} is missing here"),
    }
    .into();
    object
}

/// The names of a list's items.
pub fn names(list: &Value) -> Vec<String> {
    let item = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(item).collect()
}

/// The status code of a refused request.
pub fn code<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> u16 {
    outcome.unwrap_err().code().unwrap()
}
