//! Converts settings to the options of the gateway's parts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_client::Endpoint;
use fairlead_config::{GatewayConfig, IndexConfig, KcpBehaviour};
use fairlead_process::{LoadError, Reloadable, Reloads};

use crate::policy::client_address::X_FORWARDED_FOR;
use crate::request::HeaderLimits;
use crate::request::identity_headers::TrustedIdentityHeaders;
use crate::routing::index::{IndexOptions, ShardSelection, WorkspaceAuthentication};
use crate::routing::mapping::{LivePathMappings, RootPathPolicy};
use crate::routing::mount::MountRules;
use crate::routing::resolver::LabelsBehindMounts;
use crate::upstream::{
    AdmissionOptions, BreakerOptions, CredentialFiles, HealthOptions, OwnCredentials, Unreachable,
    UpstreamCredential, UpstreamOptions,
};

/// Maximum number of bytes buffered on stalled streams of all connections.
pub(super) fn stalled_stream_budget(config: &GatewayConfig) -> usize {
    usize::try_from(config.stalled_stream_budget.bytes()).unwrap_or(usize::MAX)
}

pub(super) fn header_limits(config: &GatewayConfig) -> HeaderLimits {
    HeaderLimits {
        fields: config.limits.max_header_fields,
        bytes: usize::try_from(config.limits.max_header_bytes.bytes()).unwrap_or(usize::MAX),
    }
}

pub(super) fn restart_needed(old: &GatewayConfig, new: &GatewayConfig) -> Vec<&'static str> {
    let workspaces =
        |config: &GatewayConfig| config.listeners.iter().any(|listener| listener.authentication.workspaces);
    let files = |config: &GatewayConfig| {
        let upstream = &config.upstream;
        let (hosts, shards) = (upstream.hosts.clone(), upstream.shards.clone());
        (
            upstream.certificate.clone(),
            upstream.private_key.clone(),
            upstream.server_ca.clone(),
            hosts,
            shards,
        )
    };
    let index = |config: &GatewayConfig| {
        let miss_wait = GatewayConfig::default().index.miss_wait;
        IndexConfig { miss_wait, ..config.index.clone() }
    };
    let mut needed = Vec::new();
    if old.acme != new.acme {
        needed.push("acme");
    }
    if files(old) != files(new) {
        needed.push("upstream");
    }
    if index(old) != index(new) {
        needed.push("index");
    }
    if workspaces(new) && !workspaces(old) {
        needed.push("authentication.workspaces");
    }
    if old.upstream.ping_interval != new.upstream.ping_interval {
        needed.push("upstream.pingInterval of the index");
    }
    if old.paths.mapping_file != new.paths.mapping_file {
        needed.push("paths.mappingFile");
    }
    let reads_once = |config: &GatewayConfig| config.kcp_compatibility.contains(&KcpBehaviour::Reloads);
    if reads_once(old) != reads_once(new) {
        needed.push("kcpCompatibility: reloads");
    }
    if old.log != new.log {
        needed.push("log");
    }
    if old.state_file != new.state_file {
        needed.push("stateFile");
    }
    needed
}

pub(super) fn warn_of_insecure_kcp_behaviours(config: &GatewayConfig) {
    for (behaviour, hole) in
        config.kcp_compatibility.iter().filter_map(|behaviour| Some((behaviour, behaviour.hole()?)))
    {
        tracing::warn!(switch = ?behaviour, "kcpCompatibility weakens security: {hole}");
    }
}

pub(super) fn upstream_options(config: &GatewayConfig) -> UpstreamOptions {
    UpstreamOptions {
        connect_timeout: config.upstream.connect_timeout.get(),
        read_timeout: config.upstream.response_timeout.get() + Duration::from_secs(5),
        ping_interval: config.upstream.ping_interval.get(),
        pings: !config.kcp_compatibility.contains(&KcpBehaviour::Pings),
        idle_timeout: config.upstream.idle_timeout.get(),
        max_age: config.upstream.max_connection_age.get(),
        stream_window: u32::try_from(config.upstream.stream_window.bytes()).unwrap_or(u32::MAX >> 1),
        unreachable: if config.kcp_compatibility.contains(&KcpBehaviour::Unreachable) {
            Unreachable::BadGateway
        } else {
            Unreachable::ServiceUnavailable
        },
        retries: !config.kcp_compatibility.contains(&KcpBehaviour::Retries),
        admission: AdmissionOptions::new(&config.upstream.concurrency),
        health: HealthOptions::new(&config.upstream.health),
        breaker: BreakerOptions::new(&config.upstream.circuit_breaker),
    }
}

/// The path mappings and the client certificate for shards: both from the mapping file, if there is one.
pub(super) fn paths(
    config: &GatewayConfig,
    kcp_compatibility: &Arc<ArcSwap<Vec<KcpBehaviour>>>,
    root_shard: &Endpoint,
    reloads: &Reloads,
) -> Result<(Arc<LivePathMappings>, Arc<Reloadable<UpstreamCredential>>), LoadError> {
    let paths = Arc::new(LivePathMappings::built_in(config.paths.services));
    let reads_once = config.kcp_compatibility.contains(&KcpBehaviour::Reloads);
    let credential = match &config.paths.mapping_file {
        None => {
            let files = CredentialFiles {
                certificate: config.upstream.certificate.to_path_buf(),
                private_key: config.upstream.private_key.to_path_buf(),
                authorities: config.upstream.server_ca.to_path_buf(),
                server_name: None,
            };
            let watched = if reads_once { Vec::new() } else { files.files().into() };
            reloads.register("credential for shards", watched, move || files.load())?
        }
        Some(file) => {
            let (path_mappings, file): (_, PathBuf) = (Arc::clone(&paths), file.to_path_buf());
            let watched = if reads_once { Vec::new() } else { vec![file.clone()] };
            let (root_shard, kcp_compatibility) = (root_shard.clone(), Arc::clone(kcp_compatibility));
            reloads.register_naming("mapping file", watched, move || {
                let refuses_root_path = kcp_compatibility.load().contains(&KcpBehaviour::RootPath);
                let read = path_mappings.read(&file, if refuses_root_path { RootPathPolicy::Refuse } else { RootPathPolicy::Allow });
                if read.is_ok() && path_mappings.load().maps_services_to(&root_shard) {
                    tracing::warn!(
                        "the mapping file maps /services/ to the root shard, which serves only its own virtual workspaces; \
                         without a mapping file each shard serves its own (paths.services)"
                    );
                }
                read.map(|(credential, named)| (credential, if reads_once { Vec::new() } else { named }))
            })?
        }
    };
    Ok((paths, credential))
}

/// The identity headers that listeners trust, where they are not the default ones, and the headers from which some listeners
/// take the client's address. All other listeners strip them, because the upstream server could trust them.
pub(super) fn listener_trusted_headers(config: &GatewayConfig) -> TrustedIdentityHeaders {
    let mut trusted = TrustedIdentityHeaders::default();
    for listener in &config.listeners {
        let headers = &listener.authentication.request_header;
        let names = [&headers.username_headers, &headers.uid_headers, &headers.group_headers];
        names.into_iter().flatten().for_each(|name| trusted.add_name(name));
        headers.extra_header_prefixes.iter().for_each(|prefix| trusted.add_prefix(prefix));
        let address = listener.peers.client_address_header.as_ref();
        // The gateway itself sends this header to servers and appends to the client's value.
        if let Some(name) = address.filter(|name| !name.eq_ignore_ascii_case(X_FORWARDED_FOR.as_str())) {
            trusted.add_name(name);
        }
    }
    trusted
}

/// The client certificates and certificate authorities of shards with their own settings.
pub(super) fn own_credentials(
    config: &GatewayConfig,
    reloads: &Reloads,
) -> Result<OwnCredentials, LoadError> {
    let upstream = &config.upstream;
    let reads_once = config.kcp_compatibility.contains(&KcpBehaviour::Reloads);
    let mut own = OwnCredentials::default();
    for shard in &upstream.shards {
        if shard.certificate.is_none() && shard.server_ca.is_none() && shard.server_name.is_none() {
            continue;
        }
        let files = CredentialFiles {
            certificate: shard.certificate.as_ref().unwrap_or(&upstream.certificate).to_path_buf(),
            private_key: shard.private_key.as_ref().unwrap_or(&upstream.private_key).to_path_buf(),
            authorities: shard.server_ca.as_ref().unwrap_or(&upstream.server_ca).to_path_buf(),
            server_name: shard.server_name.clone(),
        };
        let object = format!("credential for shard {}", shard.name);
        let watched = if reads_once { Vec::new() } else { files.files().into() };
        own.insert(shard.name.as_str().into(), reloads.register(&object, watched, move || files.load())?);
    }
    Ok(own)
}

pub(super) fn mount_rules(config: &GatewayConfig) -> MountRules {
    MountRules { hosts: config.paths.mount_hosts.clone(), hops: config.paths.mount_hops }
}

pub(super) fn behind_mounts(config: &GatewayConfig) -> LabelsBehindMounts {
    if config.kcp_compatibility.contains(&KcpBehaviour::MountLabels) {
        LabelsBehindMounts::Ignored
    } else {
        LabelsBehindMounts::Refused
    }
}

/// The index of the workspaces' own authenticators, if a listener uses it.
pub(super) fn workspace_authentication(config: &GatewayConfig) -> Option<Arc<WorkspaceAuthentication>> {
    let is_wanted = config.listeners.iter().any(|listener| listener.authentication.workspaces);
    is_wanted.then(|| Arc::new(WorkspaceAuthentication::new()))
}

pub(super) fn index_options(config: &GatewayConfig) -> IndexOptions {
    let index = &config.index;
    IndexOptions {
        selection: ShardSelection::new(index.shards.clone(), index.shard_selector.clone()),
        snapshot: index.snapshot.as_ref().map(|path| path.to_path_buf()),
        ..IndexOptions::default()
    }
}
