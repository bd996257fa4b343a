//! Assembles the parts of a shard, before any of them runs.

use std::sync::Arc;

use fairlead_apiserver::DynamicAdmission;
use fairlead_apiserver::audit::{AuditMetrics, AuditWorker};
use fairlead_apiserver::hub::Hub;
use fairlead_apiserver::registry::{ObjectStore, Registry, StoreRegistry, built_in_resources};
use fairlead_apiserver::{ApiServer, RequestMetrics};
use fairlead_config::ShardConfig;
use fairlead_process::{Metrics, Reloadable, Reloads};
use fairlead_store::RetainedRevisions;
use prometheus::{IntCounterVec, IntGauge};

use super::clients::{access_webhook, external_clusters};
use super::{ANNOTATIONS, ShardError, audit, authenticators};
use crate::admission::{ShardAdmission, follow_remote_configurations};
use crate::backup::Backups;
use crate::bootstrap;
use crate::exports::ExportLookup;
use crate::external_clusters::ExternalClusters;
use crate::global::GlobalView;
use crate::host::{
    Authentication, Authenticators, Authorizer, HomeWorkspaces, RbacChain, Reviews, ShardHost, TokenReviewer,
};
use crate::index::{ClusterIndex, Definitions, PathIndex, PolicyIndex};
use crate::quota::UsageTracker;
use crate::replication::ReplicationMetrics;
use crate::service_accounts::{AccountLookup, ServiceAccountTokens, TokenIssuer};
use crate::virtual_storage::{NewMirrors, PublishedCopies, SourceLookup, VirtualStorage};
use crate::virtual_workspaces::ShardAccess;
use crate::workspace_authentication::WorkspaceAuthenticators;
use crate::workspace_types::TypeLookup;

/// The build part of `gitVersion` in `/version`; clients look for `+kcp-`.
const BUILD: &str = concat!("kcp-v0.32.0-fairlead-", env!("CARGO_PKG_VERSION"));

/// The parts of a shard that exist before it starts.
pub(super) struct ShardParts {
    pub(super) objects: ObjectStore,
    pub(super) hub: Hub,
    pub(super) global: Arc<GlobalView>,
    pub(super) clusters: Arc<ClusterIndex>,
    pub(super) paths: Arc<PathIndex>,
    pub(super) definitions: Arc<Definitions>,
    pub(super) dynamic: Arc<DynamicAdmission>,
    pub(super) types: Arc<TypeLookup>,
    pub(super) exports: Arc<ExportLookup>,
    pub(super) copies: Arc<PublishedCopies>,
    /// The history that backups need.
    pub(super) retained: RetainedRevisions,
    /// Taken at the start.
    pub(super) new_mirrors: Option<NewMirrors>,
    pub(super) storage: VirtualStorage,
    pub(super) external: Option<Arc<ExternalClusters>>,
    pub(super) usage: Arc<UsageTracker>,
    pub(super) issuer: Arc<TokenIssuer>,
    pub(super) picks: IntCounterVec,
    /// 1 while this process leads.
    pub(super) leads: IntGauge,
    pub(super) replication_metrics: ReplicationMetrics,
    pub(super) authenticators: Arc<Reloadable<Authenticators>>,
    pub(super) request_metrics: RequestMetrics,
    pub(super) api: Arc<ApiServer<ShardHost>>,
    /// Write the events of the audit log.
    pub(super) audit_workers: Vec<AuditWorker>,
}

impl ShardParts {
    /// Assembles the parts. It reads only the indexes from the store.
    pub(super) fn assemble(
        config: &ShardConfig,
        admin_users: Vec<authenticators::TokenUser>,
        objects: &ObjectStore,
        hub: &Hub,
        metrics: &Metrics,
        reloads: &Reloads,
    ) -> Result<Self, ShardError> {
        let broken = |status: fairlead_process::Status| ShardError::Bootstrap(status.to_string());
        let global = GlobalView::new();
        let clusters = ClusterIndex::follow(objects, hub).map_err(broken)?;
        let paths = PathIndex::follow(hub);
        let policies = PolicyIndex::follow(objects.clone(), hub, global.clone());
        let types =
            Arc::new(TypeLookup::new(objects.clone(), clusters.clone(), paths.clone(), global.clone()));
        let exports =
            ExportLookup::follow(objects.clone(), hub, clusters.clone(), paths.clone(), global.clone())
                .map_err(broken)?;
        let dynamic = DynamicAdmission::follow(objects.clone(), hub).map_err(broken)?;
        follow_remote_configurations(hub, &global, &clusters, &dynamic);
        let refusals = metrics.counters(
            "fairlead_shard_quota_refusals_total",
            "Creates refused because of a limit on the number of objects, by kind of limit: resource-quota or logical-cluster.",
            &["limit"],
        )?;
        let default_limit = config.object_limits.total.and_then(|limit| u64::try_from(limit).ok());
        let usage = UsageTracker::follow(objects.clone(), hub, clusters.clone(), default_limit, refusals)
            .map_err(broken)?;
        let issuer = Arc::new(authenticators::token_issuer(config, reloads)?);
        let admission = Arc::new(ShardAdmission::new(
            objects.clone(),
            clusters.clone(),
            types.clone(),
            exports.clone(),
            dynamic.clone(),
            global.clone(),
            usage.clone(),
        ));
        let registry = || StoreRegistry::new(objects.clone(), hub.clone(), admission.clone());
        let stored: Arc<dyn Registry> = Arc::new(registry());
        let tokens = Arc::new(ServiceAccountTokens { objects: objects.clone(), issuer: issuer.clone() });
        let service_accounts: Arc<dyn Registry> = Arc::new(registry().with_subresources(tokens));
        let reviews = Reviews::new();
        let built_in = built_in_resources(|kind| {
            Some(match kind.kind {
                "ServiceAccount" => service_accounts.clone(),
                _ if kind.is_stored() => stored.clone(),
                _ => reviews.clone(),
            })
        });
        let definitions = Definitions::follow(objects.clone(), hub, stored, built_in)?;
        usage.set_definitions(definitions.clone());
        let (copies, new_mirrors) = PublishedCopies::new();
        let lookup = SourceLookup {
            bindings: definitions.bindings().clone(),
            exports: exports.clone(),
            global: global.clone(),
        };
        let storage = VirtualStorage::new(lookup, copies.clone(), &global);
        definitions.set_virtual_storage(storage.registry());
        let rbac = RbacChain {
            clusters: clusters.clone(),
            policies,
            definitions: definitions.clone(),
            exports: exports.clone(),
            global: global.clone(),
        };
        let access_webhook = access_webhook(config)?;
        let authorizer = Arc::new(Authorizer::new(&config.authorization, rbac, access_webhook));
        admission.set_authorizer(authorizer.clone());
        reviews.set_authorizer(authorizer.clone());
        let external = external_clusters(config)?;
        let accounts = Arc::new(AccountLookup {
            objects: objects.clone(),
            clusters: clusters.clone(),
            external: external.clone(),
        });
        let chain = authenticators::authenticators(config, admin_users, accounts, reloads)?;
        let workspaces = config.authentication.workspaces.then(|| {
            WorkspaceAuthenticators::follow(
                objects.clone(),
                hub,
                &global,
                definitions.clone(),
                clusters.clone(),
                types.clone(),
                external.clone(),
            )
        });
        reviews.set_token_reviewer(TokenReviewer {
            authenticators: chain.clone(),
            workspaces: workspaces.clone(),
            audiences: issuer.audiences.clone(),
        });
        let retained = RetainedRevisions::default();
        let backups = Backups::new(
            objects.clone(),
            hub.clone(),
            definitions.clone(),
            config.name.as_str(),
            retained.clone(),
            metrics,
        )?;
        let host = ShardHost {
            clusters: clusters.clone(),
            paths: paths.clone(),
            definitions: definitions.clone(),
            authentication: Authentication::new(chain.clone(), workspaces),
            issuer: issuer.clone(),
            homes: config.home_workspaces.enabled.then(|| HomeWorkspaces {
                objects: objects.clone(),
                definitions: definitions.clone(),
                types: types.clone(),
                shard: config.name.as_str().to_owned(),
            }),
            authorizer,
            backups,
            metrics: metrics.clone(),
            version: fairlead_apiserver::version_document(BUILD),
        };
        let picks = metrics.counters(
            "fairlead_shard_picks_total",
            "Shards chosen for new workspaces, by source: gateway or random.",
            &["by"],
        )?;
        let leads = metrics.int_gauges(
            "fairlead_shard_leader",
            "1 while this process runs the controllers of the shard, 0 while another replica does.",
            &["shard"],
        )?;
        let leads = leads.with_label_values(&[config.name.as_str()]);
        let address = config.serving.address.to_string();
        let request_metrics = RequestMetrics::new(metrics)?;
        let mut api = ApiServer::new(host, ANNOTATIONS, address, request_metrics.clone());
        let mut audit_workers = Vec::new();
        if let Some((log, workers)) = audit::open(config.audit.as_ref(), AuditMetrics::new(metrics)?)? {
            api = api.with_audit(log);
            audit_workers = workers;
        }
        let api = Arc::new(api);
        Ok(Self {
            objects: objects.clone(),
            hub: hub.clone(),
            global,
            clusters,
            paths,
            definitions,
            dynamic,
            types,
            exports,
            copies,
            retained,
            new_mirrors: Some(new_mirrors),
            storage,
            external,
            usage,
            issuer,
            picks,
            leads,
            replication_metrics: ReplicationMetrics::new(metrics)?,
            authenticators: chain,
            request_metrics,
            api,
            audit_workers,
        })
    }

    /// The access of virtual workspaces to this shard.
    pub(super) fn virtual_workspaces(&self) -> ShardAccess {
        ShardAccess {
            api: self.api.clone(),
            objects: self.objects.clone(),
            types: self.types.clone(),
            exports: self.exports.clone(),
            storage: self.storage.clone(),
        }
    }

    /// The replicas of other shards, if this shard must have read them before it is ready: only at its first start.
    /// Later it starts without the cache server, too.
    pub(super) fn replicas_to_wait_for(
        &self,
        config: &ShardConfig,
    ) -> Result<Option<Arc<GlobalView>>, ShardError> {
        let stored_exports =
            bootstrap::stored_exports(&self.objects).map_err(bootstrap::BootstrapError::from)?;
        Ok((config.cache_kubeconfig.is_some() && stored_exports.is_none()).then(|| self.global.clone()))
    }
}
