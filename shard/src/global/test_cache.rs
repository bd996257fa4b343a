//! A cache server in this process, for tests: it can be stopped, started again, and replaced by an empty one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairlead_apiserver::object::EncodedObject;
use fairlead_authn::TrustPurpose;
use fairlead_cache::{CacheAccess, CacheServer, MASTERS};
use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, TrustRoots, WriteOptions};
use fairlead_config::{CacheConfig, ConnectionLimits, DrainConfig, ServingConfig, SlowClientsConfig};
use fairlead_process::{
    AllowedPeers, BoundServer, Health, Metrics, Reloads, ServerMetrics, ServerOptions, Shutdown, TlsSource,
};
use fairlead_store::{MemoryStore, Range, Store};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::CacheResource;

/// Maximum wait for a condition; a test fails afterwards.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct TestCache {
    store: Arc<dyn Store>,
    dir: tempfile::TempDir,
    credentials: Credentials,
    port: u16,
    running: Option<(Shutdown, JoinHandle<()>)>,
}

impl TestCache {
    pub(crate) async fn start() -> Self {
        let mut params = certificate_params("test ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let issue = |params: CertificateParams| {
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
        };
        let dir = tempfile::tempdir().unwrap();
        let serving = issue(CertificateParams::new(vec!["localhost".to_owned()]).unwrap());
        for (name, text) in [("tls.crt", serving.0), ("tls.key", serving.1), ("ca.crt", ca.pem())] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let mut params = certificate_params("shard");
        params.distinguished_name.push(DnType::OrganizationName, MASTERS);
        let (certificate, key) = issue(params);
        let credentials = Credentials::new(TrustRoots::Pem(ca.pem().into_bytes()))
            .unwrap()
            .with_certificate(certificate.as_bytes(), key.as_bytes())
            .unwrap();
        let mut cache =
            Self { store: Arc::new(MemoryStore::new()), dir, credentials, port: 0, running: None };
        cache.resume().await;
        cache
    }

    pub(crate) fn client(&self) -> Client {
        let endpoint = Endpoint::parse(&format!("https://localhost:{}", self.port)).unwrap();
        Client::new(endpoint, self.credentials.clone(), ClientOptions::default())
    }

    /// Starts the server again on the same port.
    pub(crate) async fn resume(&mut self) {
        assert!(self.running.is_none());
        let metrics = Metrics::new("cache", "0").unwrap();
        let reloads = Reloads::new(&metrics).unwrap();
        // Watches are closed soon after the drain starts: clients must handle that.
        let drain = DrainConfig { window: "50ms".parse().unwrap(), ..DrainConfig::default() };
        let shutdown = Shutdown::new(&drain);
        let file = |name: &str| self.dir.path().join(name);
        let serving = ServingConfig {
            certificate: file("tls.crt").into(),
            private_key: file("tls.key").into(),
            ..ServingConfig::default()
        };
        let bundles = vec![(TrustPurpose::Client, file("ca.crt"))];
        let authorities = fairlead_apiserver::serve::watch_authorities(bundles, &reloads).unwrap();
        let access = CacheAccess::of_certificates(authorities, &CacheConfig::default());
        let bound = BoundServer::bind(([127, 0, 0, 1], self.port).into()).unwrap();
        self.port = bound.local_addr().port();
        let options = ServerOptions {
            name: "cache".into(),
            tls: TlsSource::https(&serving).watch("serving certificate", &reloads).unwrap(),
            limits: ConnectionLimits::default(),
            slow_clients: SlowClientsConfig::default(),
            peers: AllowedPeers::default(),
            shutdown: shutdown.clone(),
            metrics: ServerMetrics::new(&metrics).unwrap(),
        };
        let cache = CacheServer::new(Arc::clone(&self.store), access, Health::new(), &metrics, String::new())
            .await
            .unwrap();
        let serving = tokio::spawn(async move { cache.run(bound, options).await.unwrap() });
        self.running = Some((shutdown, serving));
    }

    pub(crate) async fn stop(&mut self) {
        let (shutdown, serving) = self.running.take().unwrap();
        shutdown.begin();
        shutdown.run().await;
        serving.await.unwrap();
    }

    /// Replaces the store of the stopped server by an empty one whose revision is higher than the old store's.
    pub(crate) async fn lose_store(&mut self) {
        assert!(self.running.is_none());
        let reached = self.store.revision();
        let store = MemoryStore::new();
        while store.revision() <= reached {
            let mutation = fairlead_store::Mutation::put("/elsewhere", store.revision().to_string());
            store.commit(vec![mutation]).await.unwrap();
        }
        self.store = Arc::new(store);
    }

    /// Writes an object for a shard, as another shard would.
    pub(crate) async fn create(&self, resource: &CacheResource, shard: &str, cluster: &str, object: &Value) {
        let path = resource.collection(shard, cluster);
        let mut object = object.clone();
        let definition = fairlead_api::resource(&resource.name.group, &resource.name.resource).unwrap();
        object["apiVersion"] = format!("{}/{}", resource.name.group, resource.version).into();
        object["kind"] = definition.kind.into();
        self.client().create::<Value>(&path, &object, &WriteOptions::default()).await.unwrap();
    }

    /// All copies by `<resource>/<shard>/<cluster>/<name>`.
    pub(crate) fn contents(&self) -> BTreeMap<String, Value> {
        let page = self.store.list(&Range::prefix("/cache/"), None, None).unwrap();
        let copies = page.records.into_iter().filter_map(|record| {
            let key = String::from_utf8(record.key.to_vec()).unwrap();
            let (_, rest) = key.split_once("/customresources/")?;
            let resource = key.split('/').nth(3)?;
            let object = EncodedObject::parse(record.value).unwrap();
            let mut tree: Value = serde_json::from_slice(object.as_object().json()).unwrap();
            if let Ok(owners) = serde_json::from_slice(object.as_object().managed_fields()) {
                tree["metadata"]["managedFields"] = owners;
            }
            Some((format!("{resource}/{rest}"), tree))
        });
        copies.collect()
    }

    /// Waits until `holds` is true for the contents.
    pub(crate) async fn until(&self, description: &str, holds: impl Fn(&BTreeMap<String, Value>) -> bool) {
        let mut follower = self.store.follow(self.store.revision()).unwrap();
        let waiting = async {
            while !holds(&self.contents()) {
                follower.next().await.unwrap();
            }
        };
        if timeout(WAIT_TIMEOUT, waiting).await.is_err() {
            panic!("the cache never had {description}: {:#?}", self.contents());
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.store.revision().0
    }
}

fn certificate_params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// Waits for a change of the view after which `holds` is true.
pub(crate) async fn until_view(view: &super::GlobalView, description: &str, mut holds: impl FnMut() -> bool) {
    let mut changed = view.changed();
    let waiting = changed.wait_for(|_| holds());
    assert!(timeout(WAIT_TIMEOUT, waiting).await.is_ok(), "the view never showed {description}");
}
