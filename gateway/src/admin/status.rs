//! Status of the gateway: the response of `/services/fairlead/v1/status`, shown by `fairlead status`, `fairlead gateway top` and
//! the admin page.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fairlead_authn::validity;
use fairlead_config::{GatewayConfig, ListenerConfig, TlsVersion, TokenPolicy};
use http::StatusCode;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Serialize;
use tokio::time::Instant;

use crate::admin::AdminApi;
use crate::admin::ListenerInfo;
use crate::auth::identity::RequestIdentity;
use crate::request::response::LocalResponse;
use crate::upstream::{EndpointStatus, Fault, ShardReport};

/// A certificate file and its use.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFile {
    object: String,
    file: PathBuf,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusReport {
    version: &'static str,
    uptime_seconds: u64,
    synced: bool,
    draining: bool,
    listeners: Vec<ListenerStatus>,
    shards: Vec<ShardStatus>,
    certificates: Vec<CertificateStatus>,
    reloads: Vec<ReloadStatus>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListenerStatus {
    name: Arc<str>,
    /// Its listen address.
    address: String,
    /// Summary of its policy, a few words per item.
    policy: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShardStatus {
    name: Arc<str>,
    url: Arc<str>,
    synced: bool,
    watching: bool,
    age_seconds: Option<f64>,
    /// Logical clusters of workspaces on the shard.
    workspaces: u32,
    /// Workspaces whose parent lives on the shard.
    child_workspaces: u32,
    unschedulable: bool,
    draining: bool,
    /// The reason why it gets no new workspaces.
    excluded: Option<&'static str>,
    weight: Option<u32>,
    capacity: Option<u32>,
    /// Workspaces placed by this gateway that the index does not show yet.
    reserved: u32,
    requests_per_second: f64,
    /// Average number of reads and writes in progress at the shard.
    busy: f64,
    lists: u64,
    watches: u64,
    last_error: Option<Arc<str>>,
    /// True if the latest connection attempt succeeded and not all of its addresses are ejected.
    healthy: bool,
    /// True if its circuit is open: requests for it fail at once.
    circuit_open: bool,
    /// Listeners with an `upstreamIdentity` for which the shard's circuit is open.
    circuit_open_for: Vec<Arc<str>>,
    /// Number of its addresses, from the latest name resolution.
    addresses: usize,
    ejected: Vec<EjectedAddress>,
    /// Requests in progress, waiting, and the concurrency limit; `None` before the first request.
    open: Option<u32>,
    waiting: Option<u32>,
    limit: Option<u32>,
}

/// An ejected address.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EjectedAddress {
    address: String,
    reason: Fault,
    /// Number of consecutive failures.
    failures: u32,
    for_seconds: u64,
    /// True if it gets no requests. An ejected address still gets requests if too many addresses fail, or if there is no other.
    excluded: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateStatus {
    object: String,
    /// The earliest expiry of a certificate in the file, in seconds since 1970.
    not_after: Option<u64>,
    error: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReloadStatus {
    object: String,
    /// Time at which the content in effect was loaded, in seconds since 1970.
    loaded: u64,
    /// Reason why the content of the files is not in effect.
    failure: Option<String>,
}

impl AdminApi {
    /// Responds to an operator.
    pub(crate) async fn status(&self, identity: &RequestIdentity) -> LocalResponse {
        if let Err(refused) = Self::require_operator(identity, "/services/fairlead/v1/status") {
            return refused;
        }
        let files = self.certificate_files.load_full();
        let read = move || files.iter().map(CertificateStatus::of).collect();
        let certificates = tokio::task::spawn_blocking(read).await.unwrap_or_default();
        match serde_json::to_vec(&self.report(certificates)) {
            Ok(body) => {
                let mut response = LocalResponse::json(StatusCode::OK, body, "status");
                response.set_no_store();
                response
            }
            Err(error) => LocalResponse::status(&fairlead_process::Status::internal(error), "internal"),
        }
    }

    /// Listeners with their own identity towards a shard for which the shard's circuit is open.
    fn listeners_with_open_circuit(&self, shard: &str) -> Vec<Arc<str>> {
        let listeners = self.listeners.load();
        let open_circuits = listeners.iter().filter(|info| {
            let connection_policy = info.listener.connection_policy.load();
            connection_policy.upstream_identity.as_ref().is_some_and(|upstream_identity| {
                self.pipeline.forwarder.upstreams.is_circuit_open(shard, upstream_identity)
            })
        });
        open_circuits.map(|info| Arc::clone(&info.listener.name)).collect()
    }

    fn report(&self, certificates: Vec<CertificateStatus>) -> StatusReport {
        let now = Instant::now();
        let view = self.pipeline.routing.table.load();
        let servers = self.pipeline.forwarder.upstreams.shards();
        let shards = view.shards().map(|shard| {
            let index_status = self.index.of(shard.index, now);
            let counts = view.counts(shard.index);
            let placement = self.scheduler.status(shard.index);
            let server = servers.iter().find(|server| server.name == shard.spec.name);
            let occupancy = |of: fn(&ShardReport) -> u32| server.map(of).filter(|count| *count < u32::MAX);
            ShardStatus {
                name: Arc::clone(&shard.spec.name),
                url: Arc::clone(&shard.spec.url),
                synced: shard.is_synced(),
                watching: index_status.watching,
                age_seconds: index_status.age.map(|age| age.as_secs_f64()),
                workspaces: counts.clusters,
                child_workspaces: counts.workspaces,
                unschedulable: shard.spec.cordoned,
                draining: shard.spec.constraints.draining,
                excluded: placement.as_ref().and_then(|placement| placement.exclusion),
                weight: placement.as_ref().map(|placement| placement.weight),
                capacity: placement.as_ref().and_then(|placement| placement.capacity),
                reserved: placement.as_ref().map_or(0, |placement| placement.reserved),
                requests_per_second: placement.as_ref().map_or(0.0, |placement| placement.rate),
                busy: placement.as_ref().map_or(0.0, |placement| placement.busy),
                lists: index_status.relists,
                watches: index_status.restarts,
                last_error: index_status.last_error,
                healthy: server.is_none_or(|server| server.is_healthy),
                circuit_open: server.is_some_and(|server| server.circuit_open),
                circuit_open_for: self.listeners_with_open_circuit(&shard.spec.name),
                addresses: server.map_or(0, |server| server.addresses.known),
                ejected: server.map(|server| ejected(&server.addresses)).unwrap_or_default(),
                open: occupancy(|server| server.occupancy.open),
                waiting: occupancy(|server| server.occupancy.waiting),
                limit: occupancy(|server| server.occupancy.limit),
            }
        });
        let mut shards: Vec<ShardStatus> = shards.collect();
        shards.sort_by(|one, other| one.name.cmp(&other.name));
        let reloads = self.reloads.statuses().into_iter().map(|reload| ReloadStatus {
            object: reload.object,
            loaded: seconds(reload.loaded),
            failure: reload.failure,
        });
        StatusReport {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: self.started.elapsed().as_secs(),
            synced: view.is_synced(),
            draining: self.shutdown.is_announced(),
            listeners: self.listeners.load().iter().map(ListenerStatus::of).collect(),
            shards,
            certificates,
            reloads: reloads.collect(),
        }
    }
}

impl ListenerStatus {
    fn of(info: &ListenerInfo) -> Self {
        let ListenerInfo { listener, address, config } = info;
        Self { name: Arc::clone(&listener.name), address: address.clone(), policy: policy(config) }
    }
}

fn ejected(addresses: &EndpointStatus) -> Vec<EjectedAddress> {
    let ejected = addresses.ejected.iter().map(|(address, ejection)| EjectedAddress {
        address: address.to_string(),
        reason: ejection.fault,
        failures: ejection.times,
        for_seconds: ejection.since.elapsed().as_secs(),
        excluded: addresses.excludes_ejected,
    });
    ejected.collect()
}

/// Summary of a listener's policy.
fn policy(listener: &ListenerConfig) -> Vec<String> {
    let authentication = &listener.authentication;
    let mut items = Vec::new();
    let mut add = |applies: bool, text: &dyn Fn() -> String| {
        if applies {
            items.push(text());
        }
    };
    add(listener.client_ca.is_some(), &|| "client certificates".to_owned());
    add(authentication.request_header.client_ca.is_some(), &|| "request headers of front proxies".to_owned());
    add(authentication.token_file.is_some(), &|| "token file".to_owned());
    add(!authentication.service_accounts.key_files.is_empty(), &|| "service accounts".to_owned());
    if let Some(oidc) = &authentication.oidc {
        add(true, &|| format!("OIDC: {}", oidc.issuer_url));
    }
    add(authentication.configuration.is_some(), &|| "structured authentication".to_owned());
    add(authentication.webhook.is_some(), &|| "token webhook".to_owned());
    add(authentication.workspaces, &|| "workspaces' own issuers".to_owned());
    let tokens = match listener.tokens {
        TokenPolicy::PassThrough => "other tokens are passed to shards",
        TokenPolicy::Refuse => "other tokens are refused",
    };
    add(true, &|| tokens.to_owned());
    add(listener.authenticate_before_routing, &|| "authenticates before routing".to_owned());
    add(!listener.hosts.is_empty(), &|| format!("hosts: {}", listener.hosts.join(", ")));
    add(listener.peers.allow.is_some(), &|| "restricted peers".to_owned());
    add(listener.tls.transport_client_ca.is_some(), &|| "transport client certificate required".to_owned());
    add(listener.deny.impersonation, &|| "no impersonation".to_owned());
    add(!listener.deny.users.is_empty(), &|| format!("refuses users: {}", listener.deny.users.join(", ")));
    add(!listener.deny.groups.is_empty(), &|| format!("refuses groups: {}", listener.deny.groups.join(", ")));
    add(!authentication.drop_groups.is_empty(), &|| {
        format!("drops groups: {}", authentication.drop_groups.join(", "))
    });
    add(listener.quotas != fairlead_config::ListenerQuotasConfig::default(), &|| "quotas".to_owned());
    add(listener.tls.minimum_version == TlsVersion::Tls13, &|| "TLS 1.3 only".to_owned());
    add(listener.placement_endpoint, &|| "placement endpoint".to_owned());
    add(listener.admin_page, &|| "admin page".to_owned());
    items
}

/// The certificates that the gateway presents, and the CA certificates that it trusts.
pub(crate) fn certificate_files(config: &GatewayConfig) -> Vec<CertificateFile> {
    let mut files = Vec::new();
    let mut add = |object: String, file: &std::path::Path| {
        files.push(CertificateFile { object, file: file.to_owned() })
    };
    for listener in &config.listeners {
        add(format!("listener {}", listener.name), &listener.serving.certificate);
        for named in &listener.tls.server_names {
            add(format!("listener {}: {}", listener.name, named.names.join(", ")), &named.certificate);
        }
        if let Some(file) = &listener.client_ca {
            add(format!("listener {}: client CA", listener.name), file);
        }
    }
    if config.paths.mapping_file.is_none() {
        add("client certificate for shards".to_owned(), &config.upstream.certificate);
        add("CA of shards".to_owned(), &config.upstream.server_ca);
    }
    files
}

impl CertificateStatus {
    /// Reads the file.
    fn of(certificate_file: &CertificateFile) -> Self {
        let earliest_expiry = || {
            let pem = std::fs::read(&certificate_file.file).map_err(|error| error.to_string())?;
            let mut expiries = Vec::new();
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| error.to_string())?;
                expiries.push(validity(&certificate).map_err(|error| error.to_string())?.1);
            }
            expiries.into_iter().min().ok_or_else(|| "the file contains no certificate".to_owned())
        };
        let (not_after, error) = match earliest_expiry() {
            Ok(expiry) => (Some(seconds(expiry)), None),
            Err(error) => (None, Some(error)),
        };
        Self { object: certificate_file.object.clone(), not_after, error }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
