//! The endpoint of this shard in an endpoint slice: planned as a pure function, written by server-side apply with the name
//! of the shard as field manager, so that shards do not overwrite each other's endpoints.
//!
//! It is common to all kinds of endpoint slices.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairlead_api::{ConditionStatus, conditions_of, group};
use fairlead_apiserver::Scope;
use fairlead_apiserver::ScopeSelector;
use fairlead_apiserver::registry::{AppliedConfiguration, Target};
use fairlead_apiserver::request::{RequestFlags, WriteOptions};
use fairlead_apiserver::resource::Verb;
use fairlead_authn::{AuthenticationMethod, Identity, UserInfo};
use fairlead_process::Status;
use serde_json::{Value, json};

use crate::external_clusters::ExternalClusters;
use crate::index::Definitions;

/// The user of writes to slices of this shard: the one with whose credential other shards write.
const USER: &str = "external-logical-cluster-admin";

/// A kind of endpoint slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceKind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
}

/// The shard that stores a slice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SliceOwner {
    ThisShard,
    OtherShard,
}

/// The facts that decide about an endpoint.
#[derive(Clone, Debug)]
pub(super) struct EndpointFacts<'f> {
    /// The name of this shard, which is its field manager.
    pub(super) shard: &'f str,
    /// The URL of this shard's virtual workspace for the slice.
    pub(super) url: &'f str,
    /// Whether `status.shardSelector` selects this shard.
    pub(super) is_selected: bool,
    /// Whether this shard has consumers.
    pub(super) has_consumers: bool,
}

/// The change of this shard's endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum EndpointPlan {
    /// The endpoint stays as it is.
    Keep,
    Publish,
    Withdraw,
}

/// Whether a slice is ready for endpoints: its owner has set all conditions, and all are true. Until then
/// `status.shardSelector` may be that of an earlier partition.
pub(super) fn is_ready(slice: &Value) -> bool {
    let conditions = conditions_of(slice);
    !conditions.is_empty() && conditions.iter().all(|one| one.status == ConditionStatus::True)
}

/// Decides about the endpoint of this shard in a slice that is ready. A shard that is not selected any more keeps its
/// endpoint while it has consumers, so that their controllers do not stop.
pub(super) fn plan(slice: &Value, facts: &EndpointFacts<'_>) -> EndpointPlan {
    let own = own_endpoints(slice, facts.shard);
    let listed = slice["status"]["endpoints"].as_array();
    let is_listed = listed.is_some_and(|all| all.iter().any(|endpoint| endpoint["url"] == facts.url));
    match (facts.has_consumers, facts.is_selected) {
        (true, false) => EndpointPlan::Keep,
        // Another URL is one from before a change of the shard's address.
        (true, true) if is_listed && own.iter().all(|url| url == facts.url) => EndpointPlan::Keep,
        (true, true) => EndpointPlan::Publish,
        (false, _) => {
            // Without managedFields, the list is all that is known.
            let is_own = !own.is_empty() || (is_listed && slice["metadata"]["managedFields"].is_null());
            if is_own { EndpointPlan::Withdraw } else { EndpointPlan::Keep }
        }
    }
}

/// The URLs of the endpoints that a shard has applied.
fn own_endpoints(slice: &Value, shard: &str) -> BTreeSet<String> {
    let mut urls = BTreeSet::new();
    for entry in slice["metadata"]["managedFields"].as_array().into_iter().flatten() {
        if entry["manager"] != shard || entry["operation"] != "Apply" || entry["subresource"] != "status" {
            continue;
        }
        let endpoints = entry["fieldsV1"]["f:status"]["f:endpoints"].as_object().into_iter().flatten();
        // Keys of list items are `k:` and a JSON object.
        urls.extend(endpoints.filter_map(|(key, _)| {
            let key: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
            key["url"].as_str().map(str::to_owned)
        }));
    }
    urls
}

/// Writes the endpoint of this shard.
pub(super) struct EndpointWriter {
    pub(super) definitions: Arc<Definitions>,
    /// Reaches slices of other shards.
    pub(super) external: Option<Arc<ExternalClusters>>,
    pub(super) shard: String,
}

impl EndpointWriter {
    /// Applies the URL as this shard's only endpoint in a slice, or removes its endpoints. A slice that does not exist any
    /// more is not written.
    ///
    /// # Errors
    /// Any refusal; 503 if the slice's shard cannot be reached. A retry helps.
    pub(super) async fn apply(
        &self,
        kind: SliceKind,
        owner: SliceOwner,
        (cluster, name): (&str, &str),
        url: Option<&str>,
    ) -> Result<(), Status> {
        let status = match url {
            Some(url) => json!({"endpoints": [{"url": url}]}),
            None => json!({}),
        };
        let configuration = json!({
            "apiVersion": format!("{}/{}", kind.group, kind.version),
            "kind": kind.kind,
            "metadata": {"name": name},
            "status": status,
        });
        match owner {
            SliceOwner::ThisShard => self.apply_here(kind, cluster, name, &configuration).await,
            SliceOwner::OtherShard => {
                let Some(external) = &self.external else {
                    let message = "no credential for endpoint slices of other shards: set \
                        externalLogicalClusterAdminKubeconfig";
                    return Err(Status::service_unavailable(message, 1));
                };
                let SliceKind { group, version, plural, .. } = kind;
                let path = format!("/apis/{group}/{version}/{plural}/{name}/status");
                let applied = external.apply(cluster, &path, &configuration, &self.shard).await;
                let unreachable = |error| Status::service_unavailable(format!("another shard: {error}"), 1);
                applied.map(drop).map_err(unreachable)
            }
        }
    }

    async fn apply_here(
        &self,
        kind: SliceKind,
        cluster: &str,
        name: &str,
        configuration: &Value,
    ) -> Result<(), Status> {
        let Some(resource) = self.definitions.resource_of_kind(kind.group, kind.kind) else {
            return Err(Status::service_unavailable(format!("{} is not served yet", kind.kind), 1));
        };
        let user = UserInfo {
            name: USER.to_owned(),
            groups: vec![group::EXTERNAL_LOGICAL_CLUSTER_ADMIN.to_owned()],
            ..UserInfo::default()
        };
        let target = Target {
            version: kind.version.into(),
            resource: resource.clone(),
            scopes: ScopeSelector::One(Scope::new(cluster)),
            namespace: None,
            name: None,
            subresource: Some("status".into()),
            verb: Verb::Patch,
            identity: Arc::new(Identity::new(user, AuthenticationMethod::ClientCertificate, None)),
            spans_origins: false,
            flags: RequestFlags::default(),
        };
        // The status of an object that does not exist is never created.
        let authorize_create = || -> core::pin::Pin<Box<dyn Future<Output = Result<(), Status>> + Send>> {
            Box::pin(async { Err(Status::unknown_resource()) })
        };
        let applied = AppliedConfiguration { value: configuration, authorize_create: &authorize_create };
        let options = WriteOptions { field_manager: self.shard.clone(), ..WriteOptions::default() };
        match resource.registry.apply(&target, name, &applied, &options).await {
            Ok(_) => Ok(()),
            Err(status) if status.code == 404 => Ok(()),
            Err(status) => Err(status),
        }
    }
}
