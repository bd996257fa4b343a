//! Virtual workspaces in a process of their own, behind a gateway.
//!
//! The process has no objects of its own. It [replicates](VirtualServer::replicate) resources of a workspace, which its virtual
//! workspaces then show in views, and authenticates clients by their certificates or by the identity headers of a gateway.

mod contact;
mod error;
mod forward;
mod host;
mod program;
mod replica;
#[cfg(test)]
mod stub_shard;
mod watch_end;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::registry::{DiscoveredResource, ObjectStore, ResourceReplica};
use fairlead_apiserver::serve::{self, Mount, MountedServer};
use fairlead_apiserver::{ApiServer, Host, IdentityAssumption, RequestMetrics, Response};
use fairlead_authn::{
    Chain, ChainBuilder, ClientCertificateAuthenticator, RequestHeaderAuthenticator, RequestHeaderNames,
    ReviewVersion, TokenWebhook, TrustPurpose, WebhookSettings,
};
use fairlead_client::{Client, ClientOptions, Kubeconfig, UnverifiedTls};
use fairlead_config::VirtualWorkspacesConfig;
use fairlead_names::KeyCodec;
use fairlead_process::{
    ALL_PROBES, AllowedPeers, BoundServer, Health, LoadError, Metrics, Probe, ProcessError, ReloadableTls,
    Reloads, RequestBody, ServerMetrics, ServerOptions, Shutdown, Tasks, TlsSource, check_open_files,
    init_logging, signals,
};
use fairlead_store::{MemoryStore, RetainedRevisions, Revision, Store};
use http::Request;
use serde::Deserialize;

use self::contact::ShardContact;
use self::error::{KubeconfigCause, KubeconfigFault};
use self::forward::Forwarder;
use self::host::RootHost;
use crate::domain::SERVICES;
use crate::root_server::RootServer;
use crate::server::VirtualWorkspaces;
use crate::workspace::VirtualWorkspace;

pub use error::ServerError;
pub use program::main;
pub use replica::Replica;

/// The annotation with the logical cluster of an object.
const ANNOTATIONS: &[&str] = &[fairlead_api::annotation::CLUSTER];
/// All resources have keys of one form, whether or not the server behind has built them in.
const KEYS: KeyCodec = KeyCodec::new("/replicas", 1, |_, _| false);
/// Clients can resume from revisions of this time, at least.
const HISTORY: Duration = Duration::from_secs(300);
/// The logical cluster of the TokenReviews. Every shard has it, and it has no workspace type whose issuers might count.
const REVIEWS: &str = "/clusters/system:admin";
/// Longer than the minute after which a shard ends a request itself.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);
/// Each has a hundred requests or watches.
const MAX_CONNECTIONS: usize = 64;
/// File descriptors of the process besides those of connections.
const OWN_FILES: u64 = 64;

/// A process with virtual workspaces.
pub struct VirtualServer {
    config: VirtualWorkspacesConfig,
    metrics: Metrics,
    reloads: Reloads,
    shutdown: Shutdown,
    tasks: Tasks,
    health: Health,
    client: Client,
    objects: ObjectStore,
    hub: Hub,
}

impl VirtualServer {
    /// Sets up the process: logs, metrics, and a client for the server of the kubeconfig. Sends no request. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`ServerError`] if the kubeconfig cannot be used.
    pub fn new(config: VirtualWorkspacesConfig) -> Result<Self, ServerError> {
        init_logging(&config.log)?;
        let files = check_open_files(config.limits.max_connections as u64 + OWN_FILES);
        if let Some(warning) = files.warning {
            tracing::warn!("{warning}");
        }
        let metrics = Metrics::new("virtual-workspaces", env!("CARGO_PKG_VERSION"))?;
        let reloads = Reloads::new(&metrics)?;
        let shutdown = Shutdown::new(&config.drain);
        let client = client(&config, &reloads)?;
        // Greater than all revisions of an earlier process, as long as there is less than one write per millisecond.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let first = Revision(u64::try_from(now).unwrap_or_default());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::starting_at(first));
        let hub = Hub::new(Arc::clone(&store), KEYS, HubOptions::default());
        let health = Health::new();
        health.ping(ALL_PROBES);
        Ok(Self {
            tasks: Tasks::new(shutdown.clone()),
            objects: ObjectStore::new(store, KEYS, ANNOTATIONS),
            config,
            metrics,
            reloads,
            shutdown,
            health,
            client,
            hub,
        })
    }

    /// The client for the server of the kubeconfig.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Replicates a resource of the workspace of the kubeconfig (or of all logical clusters, if its server is
    /// `…/clusters/*` of a shard) until the process ends. `group_version` is `v1` or `<group>/<version>`, `plural` the name in
    /// discovery documents. The server is unready until the first list is complete.
    ///
    /// # Errors
    /// [`ServerError`] if the workspace cannot be reached or does not serve the resource.
    pub async fn replicate(&self, group_version: &str, plural: &str) -> Result<Replica, ServerError> {
        let api = if group_version.contains('/') { "apis" } else { "api" };
        let path = format!("/{api}/{group_version}");
        let found: DiscoveredResources = self.client.get_json(&path).await.map_err(ServerError::Client)?;
        let discovered = found.resources.into_iter().find(|resource| resource.name == plural);
        let discovered = discovered.ok_or_else(|| ServerError::NoResource {
            server: self.client.endpoint().to_string(),
            resource: format!("{group_version} {plural}"),
        })?;
        let (objects, hub) = (self.objects.clone(), self.hub.clone());
        let stored = Arc::new(ResourceReplica::new(&discovered, group_version, objects, hub));
        let resource = Arc::clone(stored.resource());
        let synced = self.health.flag(format!("replica-sync/{}", resource.name), &[Probe::Ready]);
        let replica = Replica { resource, synced };
        let following = replica.follow(stored, self.client.clone(), format!("{path}/{plural}"));
        let shutdown = self.shutdown.clone();
        self.tasks.spawn_fallible("replica", async move {
            tokio::select! {
                outcome = following => outcome,
                () = shutdown.draining() => Ok(()),
            }
        });
        Ok(replica)
    }

    /// Serves virtual workspaces until a signal ends the process. Requests without a valid certificate get 401.
    ///
    /// # Errors
    /// [`ServerError`] if the process cannot serve, or fails while it does.
    pub async fn run(self, workspaces: Vec<Box<dyn VirtualWorkspace>>) -> Result<(), ServerError> {
        let Some(chain) = self.certificates()? else { return Err(ServerError::NoAuthority) };
        let bound = BoundServer::bind(self.config.serving.address)?;
        let api = self.root_server(Arc::new(chain.build()), &bound)?;
        let root = Arc::new(Standalone { api: Arc::clone(&api) });
        let mount = VirtualWorkspaces::new(&api, root, workspaces).mount();
        self.serve(bound, api, mount).await
    }

    /// Serves the virtual workspaces of the shard of the kubeconfig until a signal ends the process. Bearer tokens are reviewed by
    /// the shard.
    ///
    /// # Errors
    /// [`ServerError`] if the process cannot serve, or fails while it does.
    pub(super) async fn forward(self) -> Result<(), ServerError> {
        let settings = WebhookSettings {
            version: ReviewVersion::V1,
            cache_ttl: self.config.token_cache_ttl.get(),
            ..WebhookSettings::default()
        };
        let reviews = TokenWebhook::of_api_server(&self.client.with_prefix(REVIEWS), settings);
        let chain = self.certificates()?.unwrap_or_else(Chain::builder).with(reviews).build();
        let authentication = Arc::new(chain);
        let bound = BoundServer::bind(self.config.serving.address)?;
        let api = self.root_server(Arc::clone(&authentication), &bound)?;
        let shard = self.client.with_prefix("");
        let contact = ShardContact::new(shard.clone(), self.config.kubeconfig.to_path_buf());
        let (probed, kept, shutdown) = (contact.clone(), contact.clone(), self.shutdown.clone());
        self.health.check("shard", &[Probe::Ready], move || probed.readiness());
        self.tasks.spawn("contact to the shard", async move {
            tokio::select! {
                () = kept.keep() => {}
                () = shutdown.draining() => {}
            }
        });
        let root: Arc<dyn MountedServer> = Arc::<ApiServer<RootHost>>::clone(&api);
        let forwarder = Forwarder { authentication, shard, contact, root };
        let mount = Mount { path: SERVICES, server: Arc::new(forwarder), hub: None };
        self.serve(bound, api, mount).await
    }

    fn root_server(
        &self,
        authentication: Arc<Chain>,
        bound: &BoundServer,
    ) -> Result<Arc<ApiServer<RootHost>>, ServerError> {
        let host = RootHost::new(authentication, self.metrics.clone());
        let metrics = RequestMetrics::new(&self.metrics)?;
        Ok(Arc::new(ApiServer::new(host, ANNOTATIONS, bound.local_addr().to_string(), metrics)))
    }

    async fn serve(
        self,
        bound: BoundServer,
        api: Arc<ApiServer<RootHost>>,
        mount: Mount,
    ) -> Result<(), ServerError> {
        let Self { config, metrics, reloads, shutdown, tasks, health, objects, hub, client: _ } = self;
        let handled = signals(&shutdown, reloads.trigger()).map_err(ProcessError::System)?;
        let options = ServerOptions {
            name: "virtual-workspaces".to_owned(),
            tls: certificate(&config, &reloads)?,
            limits: config.limits.clone(),
            slow_clients: config.slow_clients.clone(),
            peers: AllowedPeers::of(&config.peers, "the virtual workspaces", &reloads)?,
            shutdown: shutdown.clone(),
            metrics: ServerMetrics::new(&metrics)?,
        };
        health.shutdown(&shutdown);
        tracing::info!(address = %bound.local_addr(), "serving");
        tasks.spawn("reloads", reloads.run(shutdown.clone()));
        let store = Arc::clone(objects.store());
        let retained = RetainedRevisions::default();
        let compaction = serve::compact_periodically(store, HISTORY, retained, shutdown);
        tasks.spawn_fallible("compaction", compaction);
        let serving = serve::serve(bound, options, api, health, hub.clone(), vec![mount], None);
        tasks.spawn_fallible("listener", async move {
            tokio::select! {
                () = serving => Ok(()),
                ended = hub.run() => ended,
            }
        });
        // Concurrent with the supervisor, because a second signal must be handled until the process exits.
        tokio::select! {
            outcome = tasks.supervise() => Ok(outcome?),
            never = handled => match never {},
        }
    }

    /// Identity headers count on connections of gateways only; a certificate of another authority is an identity itself. `None`: no
    /// authority is configured.
    fn certificates(&self) -> Result<Option<ChainBuilder>, ServerError> {
        let trust = &self.config.trust;
        let bundles = [
            (TrustPurpose::Client, &trust.client_ca),
            (TrustPurpose::RequestHeader, &trust.request_header_ca),
        ];
        let bundles =
            bundles.into_iter().filter_map(|(purpose, file)| Some((purpose, file.as_ref()?.to_path_buf())));
        let bundles: Vec<_> = bundles.collect();
        if bundles.is_empty() {
            return Ok(None);
        }
        let authorities = serve::watch_authorities(bundles, &self.reloads)?;
        let mut chain = Chain::builder();
        if trust.request_header_ca.is_some() {
            let names = RequestHeaderNames::parse(
                &trust.username_headers,
                &trust.uid_headers,
                &trust.group_headers,
                &trust.extra_header_prefixes,
            )
            .map_err(ServerError::Header)?;
            let allowed = trust.request_header_allowed_names.clone();
            chain = chain.with(RequestHeaderAuthenticator::new(authorities.clone(), allowed, names));
        }
        if trust.client_ca.is_some() {
            chain = chain.with(ClientCertificateAuthenticator::new(authorities));
        }
        Ok(Some(chain))
    }
}

/// The discovery document of a group version.
#[derive(Deserialize)]
struct DiscoveredResources {
    resources: Vec<DiscoveredResource>,
}

/// The root server of the process.
struct Standalone {
    api: Arc<ApiServer<RootHost>>,
}

#[async_trait]
impl RootServer for Standalone {
    fn host(&self) -> &dyn Host {
        self.api.host()
    }

    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }

    async fn serve(&self, request: Request<RequestBody>) -> Response {
        self.api.handle(request).await
    }

    /// There are no logical clusters here, so this responds with 404.
    async fn serve_as(&self, request: Request<RequestBody>, assumption: &dyn IdentityAssumption) -> Response {
        self.api.handle_as(request, assumption).await
    }
}

/// The certificate of the listener, which is reloaded.
fn certificate(
    config: &VirtualWorkspacesConfig,
    reloads: &Reloads,
) -> Result<Arc<ReloadableTls>, ServerError> {
    let tls = TlsSource::https(&config.serving).with_server_policy(&config.tls);
    tls.watch("serving certificate", reloads).map_err(ServerError::Certificate)
}

/// A client for the server of the kubeconfig, whose credentials are reloaded. They may be meant for the server that is named beside
/// them only, so that those for another server are refused.
fn client(config: &VirtualWorkspacesConfig, reloads: &Reloads) -> Result<Client, LoadError> {
    let (file, context) = (config.kubeconfig.to_path_buf(), config.context.clone());
    let known = Arc::new(std::sync::OnceLock::<Client>::new());
    let loaded = reloads.register_naming("kubeconfig", vec![file.clone()], move || {
        let load = || {
            let resolved = Kubeconfig::load(&file)?.resolve(context.as_deref())?;
            let mut files: Vec<_> = resolved.files().map(Path::to_path_buf).collect();
            files.push(file.clone());
            let credentials = resolved.credentials(UnverifiedTls::Refuse)?;
            let client = known.get_or_init(|| {
                let options = ClientOptions {
                    request_timeout: REQUEST_TIMEOUT,
                    max_connections: MAX_CONNECTIONS,
                    ..ClientOptions::default()
                };
                Client::new(resolved.endpoint.clone(), credentials.clone(), options)
            });
            if *client.endpoint() != resolved.endpoint {
                let (used, present) = (client.endpoint().to_string(), resolved.endpoint.to_string());
                return Err(KubeconfigCause::OtherServer { used, present });
            }
            client.set_credentials(credentials);
            Ok::<_, KubeconfigCause>((client.clone(), files))
        };
        load().map_err(|cause| KubeconfigFault { file: file.clone(), cause })
    })?;
    Ok((*loaded.load()).clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_config::ServingConfig;
    use fairlead_process::FatalError as _;

    use super::*;

    fn reloads() -> Reloads {
        Reloads::new(&Metrics::new("test", "1").unwrap()).unwrap()
    }

    /// A kubeconfig of this server.
    fn kubeconfig(server: &str, token: &str) -> String {
        format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: s, user: u}}}}]\n\
             clusters: [{{name: s, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\n"
        )
    }

    #[test]
    fn credentials_for_another_server_are_refused_until_the_process_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shard.kubeconfig");
        let write = |server: &str, token: &str| std::fs::write(&file, kubeconfig(server, token)).unwrap();
        write("http://127.0.0.1:6443", "first");
        let config =
            VirtualWorkspacesConfig { kubeconfig: file.clone().into(), ..VirtualWorkspacesConfig::default() };
        let reloads = reloads();
        let client = client(&config, &reloads).unwrap();
        write("http://127.0.0.1:7443", "second");
        reloads.check_now();
        let failures = reloads.failures();
        assert!(failures[0].1.contains("http://127.0.0.1:7443: restart the process"), "{failures:?}");
        assert_eq!(client.endpoint().to_string(), "http://127.0.0.1:6443");
        // The new credentials have not been taken over, so they still differ.
        write("http://127.0.0.1:6443", "second");
        let credentials = Kubeconfig::load(&file).unwrap().resolve(None).unwrap();
        let credentials = credentials.credentials(UnverifiedTls::Refuse).unwrap();
        assert!(client.set_credentials(credentials));
        reloads.check_now();
        assert!(reloads.failures().is_empty());
    }

    #[test]
    fn faults_of_a_kubeconfig_name_its_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let (file, reloads) = (folder.path().join("shard.kubeconfig"), reloads());
        let valid = kubeconfig("http://127.0.0.1:6443", "a");
        for (text, expected) in [
            (None, "cannot access kubeconfig"),
            (Some("[]".to_owned()), "is not a kubeconfig"),
            (Some(valid.replace("current-context: c", "")), "the kubeconfig has no current-context"),
            (Some(valid.replace("name: u,", "name: v,")), "the kubeconfig has no user named"),
            (Some(kubeconfig("shard", "a")), "is not a server URL"),
        ] {
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            let config = VirtualWorkspacesConfig {
                kubeconfig: file.clone().into(),
                ..VirtualWorkspacesConfig::default()
            };
            let text = client(&config, &reloads).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
            assert_eq!(text.matches("shard.kubeconfig").count(), 1, "{text}");
        }
    }

    #[test]
    fn a_missing_certificate_leads_to_the_flags_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let serving = ServingConfig {
            certificate: folder.path().join("none.crt").into(),
            private_key: folder.path().join("none.key").into(),
            ..ServingConfig::default()
        };
        let config = VirtualWorkspacesConfig { serving, ..VirtualWorkspacesConfig::default() };
        let error = certificate(&config, &reloads()).unwrap_err();
        assert!(error.to_string().contains("none.crt"), "{error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("--tls-cert-file") && hint.contains("--tls-private-key-file"), "{hint}");
    }
}
