//! Admission of the shard, one module per resource.
//!
//! Mutation sets the fields that the shard determines; validation refuses writes. Both use only this shard's store
//! and the replicas of other shards in memory, so a decision costs no network round trip.

mod api_binding;
mod api_binding_claims;
mod api_conversion;
mod api_export;
mod api_export_endpoint_slice;
mod api_resource_schema;
mod cached_resource;
mod certificate_signing_request;
mod conversion_annotations;
mod custom_resource_definition;
mod dynamic;
mod field_order;
mod logical_cluster;
mod permission_claims;
mod rbac;
mod remote_configurations;
mod reserved;
mod workspace;
mod workspace_type;

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::{annotation, group};
use fairlead_apiserver::registry::{NamespaceLifecycle, ObjectStore};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{Action, Admission, AdmissionRequest, DynamicAdmission};
use fairlead_authn::UserInfo;
use fairlead_process::{GroupResource, Status, StatusCause};
use fairlead_schema::FieldError;
use fairlead_store::Mutation;
use serde_json::Value;

use crate::creation_fence::creation_fence;
use crate::exports::ExportLookup;
use crate::global::GlobalView;
use crate::host::Authorizer;
use crate::index::ClusterIndex;
use crate::names::BUILT_IN;
use crate::quota::UsageTracker;
use crate::workspace_types::TypeLookup;

pub(crate) use self::remote_configurations::follow_remote_configurations;

/// Admission plugin of the shard's API server.
pub(crate) struct ShardAdmission {
    pub(crate) objects: ObjectStore,
    pub(crate) namespaces: NamespaceLifecycle,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) types: Arc<TypeLookup>,
    exports: Arc<ExportLookup>,
    dynamic: Arc<DynamicAdmission>,
    global: Arc<GlobalView>,
    usage: Arc<UsageTracker>,
    authorizer: std::sync::OnceLock<Arc<Authorizer>>,
}

impl ShardAdmission {
    pub(crate) fn new(
        objects: ObjectStore,
        clusters: Arc<ClusterIndex>,
        types: Arc<TypeLookup>,
        exports: Arc<ExportLookup>,
        dynamic: Arc<DynamicAdmission>,
        global: Arc<GlobalView>,
        usage: Arc<UsageTracker>,
    ) -> Self {
        let namespaces = NamespaceLifecycle::new(objects.clone());
        let authorizer = std::sync::OnceLock::new();
        Self { objects, namespaces, clusters, types, exports, dynamic, global, usage, authorizer }
    }

    /// Sets the authorizer. It is not an argument of [`new`](Self::new), because the authorizer depends on the
    /// definitions, the definitions on the registry, and the registry on this admission.
    pub(crate) fn set_authorizer(&self, authorizer: Arc<Authorizer>) {
        self.dynamic.set_host(Arc::new(dynamic::ConfigurationHost {
            authorizer: authorizer.clone(),
            clusters: self.clusters.clone(),
            global: self.global.clone(),
        }));
        // The authorizer is set once, at start.
        let _ = self.authorizer.set(authorizer);
    }

    /// Whether a user may bind an export of a logical cluster.
    async fn permits_bind(&self, user: &UserInfo, cluster: &str, export: &str) -> Result<bool, Status> {
        let bind = Action::Resource {
            verb: "bind",
            group: "apis.kcp.io",
            version: "v1alpha2",
            resource: "apiexports",
            subresource: None,
            namespace: None,
            name: Some(export),
        };
        Ok(self.authorizer()?.permits_deep(user, cluster, &bind).await)
    }

    fn authorizer(&self) -> Result<&Authorizer, Status> {
        self.authorizer
            .get()
            .map(|authorizer| &**authorizer)
            .ok_or_else(|| Status::service_unavailable("not yet ready to handle request", 1))
    }
}

#[async_trait]
impl Admission for ShardAdmission {
    async fn mutate(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        let mut mutations = Vec::new();
        match resource_of(write) {
            ("tenancy.kcp.io", "workspaces") => self.mutate_workspace(write, object, old)?,
            ("core.kcp.io", "logicalclusters") => logical_cluster::mutate(object, old),
            ("core.kcp.io", "shards") => mutate_shard(object),
            ("apis.kcp.io", "apibindings") => self.mutate_api_binding(write, object, old)?,
            ("certificates.k8s.io", "certificatesigningrequests") => {
                certificate_signing_request::mutate(write, object);
            }
            ("apiextensions.k8s.io", "customresourcedefinitions") => {
                mutations = self.mutate_definition(write, object, old)?;
            }
            _ => {}
        }
        // Path and claim labels are set last: no webhook or policy can change them.
        self.dynamic.mutate(write, object, old).await?;
        self.set_claim_labels(write, object)?;
        self.set_path_annotation(write, object)?;
        Ok(mutations)
    }

    async fn validate(
        &self,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        let mut fences: Vec<Mutation> = self.namespaces.validate(write)?.into_iter().collect();
        fences.extend(creation_fence(&self.objects, write)?);
        if write.verb == Verb::Create && write.resource.origin != BUILT_IN {
            fences.extend(self.authorizer()?.definitions().creation_fence(
                write.scope,
                write.resource,
                write.name,
            )?);
        }
        let resource = resource_of(write);
        if write.verb == Verb::Delete {
            self.validate_delete(write, old)?;
            self.dynamic.validate(write, None, old).await?;
            return Ok(fences);
        }
        let Some(object) = object else { return Ok(fences) };
        validate_cel_rules(write, object, old)?;
        match resource {
            ("tenancy.kcp.io", "workspaces") => self.validate_workspace(write, object, old).await?,
            ("tenancy.kcp.io", "workspacetypes") => self.validate_workspace_type(write, object, old).await?,
            ("core.kcp.io", "logicalclusters") => logical_cluster::validate(write, object, old)?,
            ("apis.kcp.io", "apibindings") => {
                api_binding_claims::validate(write, object, old)?;
                self.validate_api_binding(write, object, old).await?;
            }
            ("apis.kcp.io", "apiresourceschemas") => api_resource_schema::validate(write, object, old)?,
            ("apis.kcp.io", "apiexports") => api_export::validate(write, object)?,
            ("apis.kcp.io", "apiconversions") => self.validate_api_conversion(write, object)?,
            ("cache.kcp.io", "clustercachedresources") if old.is_none() => {
                self.validate_cached_resource(write, object)?;
            }
            ("cache.kcp.io", "cachedobjects") if !is_master(write) => {
                return Err(forbidden(write, "CachedObjects are not supported"));
            }
            ("apis.kcp.io", "apiexportendpointslices") => {
                self.validate_api_export_endpoint_slice(write, object, old).await?;
            }
            ("migration.kcp.io", "logicalclustermigrations") if old.is_none() => {
                return Err(forbidden(write, "migrations of logical clusters are not supported yet"));
            }
            ("rbac.authorization.k8s.io", _) => self.validate_rbac(write, object, old).await?,
            ("certificates.k8s.io", "certificatesigningrequests") => {
                self.validate_certificate_signing_request(write, object, old).await?;
            }
            _ => {}
        }
        reserved::validate(write, object, old)?;
        self.dynamic.validate(write, Some(object), old).await?;
        // Last: what another plugin refuses reserves nothing.
        self.usage.reserve(write).await?;
        Ok(fences)
    }
}

impl ShardAdmission {
    fn validate_delete(&self, write: &AdmissionRequest<'_>, old: Option<&Value>) -> Result<(), Status> {
        match resource_of(write) {
            ("", "namespaces") => {
                let is_default = matches!(write.name, "default" | "kube-system" | "kube-public");
                let is_cluster_deleted =
                    self.clusters.get(write.scope.as_str()).is_some_and(|state| state.is_deleted);
                if is_default && !is_cluster_deleted && !is_master(write) {
                    return Err(forbidden(write, "this namespace may not be deleted"));
                }
                Ok(())
            }
            ("core.kcp.io", "logicalclusters") => logical_cluster::validate_delete(write, old),
            _ => Ok(()),
        }
    }

    /// Sets `kcp.io/path` on the kinds that are found by path.
    fn set_path_annotation(&self, write: &AdmissionRequest<'_>, object: &mut Value) -> Result<(), Status> {
        let always = matches!(
            resource_of(write),
            ("apis.kcp.io", "apiexports" | "apibindings")
                | ("cache.kcp.io", "clustercachedresources")
                | ("tenancy.kcp.io", "workspacetypes")
        );
        let has_path = object["metadata"]["annotations"][annotation::PATH].is_string();
        let is_cluster = resource_of(write) == ("core.kcp.io", "logicalclusters");
        if is_cluster || !(always || has_path) {
            return Ok(());
        }
        let cluster = write.scope.as_str();
        let path = match self.clusters.get(cluster) {
            Some(state) => state.path.as_deref().unwrap_or(cluster).to_owned(),
            None if resource_of(write) == ("apis.kcp.io", "apibindings") => return Ok(()),
            None => return Err(forbidden(write, "cannot get this workspace: it has no LogicalCluster")),
        };
        object["metadata"]["annotations"][annotation::PATH] = path.into();
        Ok(())
    }
}

/// Evaluates the CEL rules of kcp's schemas, which are implemented natively.
fn validate_cel_rules(
    write: &AdmissionRequest<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let (group, resource) = resource_of(write);
    let Some(definition) = fairlead_api::resource(group, resource) else { return Ok(()) };
    let violations = definition.validate_rules(write.version, old, object);
    if violations.is_empty() {
        return Ok(());
    }
    let causes = violations
        .iter()
        .map(|violation| {
            fairlead_process::StatusCause::field(
                "FieldValueInvalid",
                violation.path.clone(),
                violation.cause(),
            )
        })
        .collect();
    Err(Status::invalid(group, definition.kind, write.name, causes))
}

/// Sets missing URLs of a Shard to its base URL.
fn mutate_shard(object: &mut Value) {
    let base = object["spec"]["baseURL"].clone();
    for field in ["externalURL", "virtualWorkspaceURL"] {
        if object["spec"][field].as_str().is_none_or(str::is_empty) && base.is_string() {
            object["spec"][field] = base.clone();
        }
    }
}

/// Group and plural name of the written resource.
pub(super) fn resource_of<'w>(write: &AdmissionRequest<'w>) -> (&'w str, &'w str) {
    (&write.resource.name.group, &write.resource.name.resource)
}

/// Whether the user is a member of `system:masters`. Admission does not restrict these users.
pub(super) fn is_master(write: &AdmissionRequest<'_>) -> bool {
    crate::host::is_in(write.user, group::MASTERS)
}

/// Errors in the form of Go's lists, which kcp's refusals contain.
pub(super) fn listed(errors: &[FieldError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    format!("[{}]", errors.join(" "))
}

/// 422 with all errors.
pub(super) fn invalid(write: &AdmissionRequest<'_>, errors: &[FieldError]) -> Status {
    let causes = errors
        .iter()
        .map(|error| StatusCause::field(error.reason(), error.path.as_str(), error.message.clone()))
        .collect();
    Status::invalid(&write.resource.name.group, &write.resource.kind, write.name, causes)
}

/// 403 with the message of Kubernetes.
pub(super) fn forbidden(write: &AdmissionRequest<'_>, message: impl core::fmt::Display) -> Status {
    let (group, resource) = resource_of(write);
    Status::forbidden(GroupResource::new(group, resource), write.name, message)
}
