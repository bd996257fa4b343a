//! Initializes the logical clusters of this shard until they are Ready.
//!
//! The initializers that kcp itself implements, `root:universal` and `system:apibindings`, run here: all objects that
//! they create and the resulting phase are written in one commit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::{
    API_BINDINGS_INITIALIZER, Condition, ExportReference, LOGICAL_CLUSTER_NAME, Severity, annotation,
    condition_type, conditions_of, finalizer, label, set_condition, write_conditions,
};
use fairlead_apiserver::Scope;
use fairlead_apiserver::hub::Hub;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_process::Status;
use fairlead_store::CommitError;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::exports::RootExports;
use crate::index::Definitions;
use crate::names::{CUSTOM, LOGICAL_CLUSTERS};
use crate::resource_locks::ResourceLocks;
use crate::workspace_types::{TypeLookup, type_reference};
use crate::writes::Writes;

/// The initializer of the type that all ordinary types extend.
const UNIVERSAL: &str = "root:universal";

/// Interval of the look-ups of a type that is not known on this shard.
const TYPE_RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Controller of LogicalClusters that are not being deleted.
pub(crate) struct LogicalClusters {
    pub(crate) objects: ObjectStore,
    pub(crate) hub: Hub,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) types: Arc<TypeLookup>,
    pub(crate) exports: Arc<RootExports>,
    pub(crate) shard: String,
    pub(crate) external_url: String,
    /// PEM bundle for `kube-root-ca.crt`.
    pub(crate) serving_ca: String,
}

#[async_trait]
impl Controller for LogicalClusters {
    type Key = Box<str>;

    const NAME: &'static str = "logicalcluster";
    const WORKERS: usize = 32;

    async fn reconcile(&self, cluster: &Box<str>) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        let Some(stored) =
            self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME)?
        else {
            return Ok(ReconcileOutcome::Done);
        };
        let old = self.objects.tree(&stored)?;
        if old["metadata"]["deletionTimestamp"].is_string() {
            return Ok(ReconcileOutcome::Done);
        }
        let plan = plan(&old, &self.context(&old)?, Timestamp::now());
        // Types and exports of other shards arrive without an event for this key.
        let waits_for_bindings = waits_for(&plan.logical_cluster, API_BINDINGS_INITIALIZER);
        let becomes_inactive = phase(&old) == "Ready" && phase(&plan.logical_cluster) == "Inactive";
        let next = self.act(cluster, &stored, plan).await?;
        if becomes_inactive && next == ReconcileOutcome::Done {
            self.end_watches(&scope);
        }
        Ok(if waits_for_bindings && next == ReconcileOutcome::Done {
            ReconcileOutcome::RequeueAfter(TYPE_RECHECK_INTERVAL)
        } else {
            next
        })
    }
}

/// Inputs of the plan besides the object.
struct Context<'c> {
    shard: &'c str,
    external_url: &'c str,
    serving_ca: &'c str,
    exports: &'c RootExports,
    /// The exports that the type binds by default, or the reason why they are unknown.
    bindings: Result<Vec<ExportReference>, String>,
}

/// The change to a logical cluster.
#[derive(Debug, PartialEq)]
struct Plan {
    /// The desired LogicalCluster.
    logical_cluster: Value,
    /// Objects that are created unless they exist.
    objects: Vec<Value>,
}

impl LogicalClusters {
    /// Ends the watches that deliver objects of a logical cluster, as kcp does. New ones of the logical cluster alone are refused;
    /// those of all logical clusters continue from their last revision.
    fn end_watches(&self, scope: &Scope) {
        self.hub.end_watches(|interest| interest.scopes.selects(scope.as_str()));
    }

    fn context(&self, object: &Value) -> Result<Context<'_>, Status> {
        Ok(Context {
            shard: &self.shard,
            external_url: &self.external_url,
            serving_ca: &self.serving_ca,
            exports: &self.exports,
            bindings: self.default_bindings(object)?,
        })
    }

    fn default_bindings(&self, object: &Value) -> Result<Result<Vec<ExportReference>, String>, Status> {
        if !waits_for(object, API_BINDINGS_INITIALIZER) {
            return Ok(Ok(Vec::new()));
        }
        let Some(text) = object["metadata"]["annotations"][annotation::TYPE].as_str() else {
            return Ok(Err("the LogicalCluster names no type".to_owned()));
        };
        let Some(own) = self.types.find(&type_reference(text))? else {
            return Ok(Err(format!("workspace type {text} is not known here")));
        };
        Ok(self.types.aliases(own)?.map_err(|error| error.to_string()).map(|aliases| {
            fairlead_api::default_bindings(&aliases)
                .into_iter()
                .map(|binding| ExportReference { path: binding.path, name: binding.export })
                .collect()
        }))
    }

    async fn act(
        &self,
        cluster: &str,
        stored: &StoredObject,
        plan: Plan,
    ) -> Result<ReconcileOutcome, Status> {
        let mut writes = Writes::new(&self.objects, &self.definitions);
        for object in plan.objects {
            let resource = writes.resource_of(&object)?;
            if writes.stored(&resource, cluster, &object)?.is_none() {
                writes.create(cluster, object)?;
            }
        }
        let resource = writes.resource_of(&plan.logical_cluster)?;
        if writes.is_empty() {
            writes.replace(&resource, stored, plan.logical_cluster)?;
        } else {
            // Creates nothing in a logical cluster whose deletion has begun.
            writes.replace_or_fence(&resource, stored, plan.logical_cluster)?;
        }
        match writes.commit().await {
            Ok(_) => Ok(ReconcileOutcome::Done),
            Err(CommitError::Conflict { .. }) => Ok(ReconcileOutcome::Retry),
            Err(error) => Err(Status::internal(error)),
        }
    }
}

/// Plans all steps that are possible now, for a logical cluster that is not being deleted.
fn plan(old: &Value, context: &Context<'_>, now: Timestamp) -> Plan {
    let mut new = old.clone();
    let mut objects = Vec::new();
    let cluster = old["metadata"]["annotations"][annotation::CLUSTER].as_str().unwrap_or_default().to_owned();
    if matches!(phase(&new), "" | "Scheduling") {
        new["status"]["phase"] = "Initializing".into();
        copy_to_status(&mut new, "initializers");
        copy_to_status(&mut new, "terminators");
    }
    let mut conditions = conditions_of(&new);
    if phase(&new) == "Initializing" {
        if waits_for(&new, UNIVERSAL) {
            for namespace in fairlead_api::universal_workspace() {
                objects.extend(namespace_content(&namespace, context.serving_ca));
                objects.push(namespace);
            }
            remove_initializer(&mut new, UNIVERSAL);
        }
        if waits_for(&new, API_BINDINGS_INITIALIZER) {
            match bindings(&new, &cluster, context, now) {
                Ok(bindings) => {
                    // CRDs may have been created before.
                    let mut locks = ResourceLocks::of(&new);
                    locks.0.extend(context.exports.locks(&bindings).0);
                    locks.set(&mut new);
                    objects.extend(bindings);
                    set_condition(
                        &mut conditions,
                        Condition::met(condition_type::API_BINDINGS_INITIALIZED),
                        now,
                    );
                    remove_initializer(&mut new, API_BINDINGS_INITIALIZER);
                }
                Err(reason) => {
                    let kind = condition_type::API_BINDINGS_INITIALIZED;
                    let unmet = Condition::unmet(kind, Severity::Error, "WorkspaceTypesInvalid", &reason);
                    set_condition(&mut conditions, unmet, now);
                }
            }
        }
        let waiting = initializers(&new);
        if waiting.is_empty() {
            new["status"]["phase"] = "Ready".into();
            set_condition(&mut conditions, Condition::met(condition_type::WORKSPACE_INITIALIZED), now);
        } else {
            let message = format!("Initializers still exist: [{}]", waiting.join(" "));
            let kind = condition_type::WORKSPACE_INITIALIZED;
            set_condition(
                &mut conditions,
                Condition::unmet(kind, Severity::Info, "InitializerExists", &message),
                now,
            );
        }
    }
    let inactive = [annotation::INACTIVE, annotation::INACTIVE_LEGACY]
        .iter()
        .any(|key| new["metadata"]["annotations"][*key] == "true");
    match phase(&new) {
        "Ready" if inactive => new["status"]["phase"] = "Inactive".into(),
        "Inactive" if !inactive => new["status"]["phase"] = "Ready".into(),
        _ => {}
    }
    if new["metadata"]["annotations"][annotation::RESOURCE_BINDINGS].is_null() {
        ResourceLocks::default().set(&mut new);
    }
    objects.extend(administrator_binding(&new));
    new["metadata"]["annotations"][annotation::SHARD] = context.shard.into();
    new["status"]["URL"] = fairlead_api::workspace_url(context.external_url, &cluster).into();
    set_life_cycle_labels(&mut new);
    sync_terminator_finalizer(&mut new);
    shrink_owner_annotation(&mut new);
    write_conditions(&mut new, &conditions);
    Plan { logical_cluster: new, objects }
}

/// The objects that every namespace contains.
pub(super) fn namespace_content(namespace: &Value, serving_ca: &str) -> [Value; 2] {
    let name = &namespace["metadata"]["name"];
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "kube-root-ca.crt",
                "namespace": name,
                "annotations": {"kubernetes.io/description": ROOT_CA_DESCRIPTION},
            },
            "data": {"ca.crt": serving_ca},
        }),
    ]
}

const ROOT_CA_DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
     endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions \
     of Kubernetes clusters.";

/// The default bindings, with the status of bound ones.
fn bindings(
    object: &Value,
    cluster: &str,
    context: &Context<'_>,
    now: Timestamp,
) -> Result<Vec<Value>, String> {
    let desired = context.bindings.as_ref().map_err(Clone::clone)?;
    let path = object["metadata"]["annotations"][annotation::PATH].as_str().unwrap_or(cluster);
    let bound = desired.iter().map(|reference| {
        let binding = fairlead_api::default_api_binding(cluster, reference, "root", path, &[]);
        context
            .exports
            .as_bound(binding, now)
            .ok_or_else(|| format!("export {}:{} is not one of root's", reference.path, reference.name))
    });
    bound.collect()
}

/// The binding that makes the creator of a workspace its administrator.
fn administrator_binding(object: &Value) -> Option<Value> {
    let created_by = object["spec"]["createdBy"]["username"].as_str().filter(|user| !user.is_empty());
    let user = created_by.map(str::to_owned).or_else(|| {
        let owner = object["metadata"]["annotations"][annotation::OWNER].as_str()?;
        let owner: Value = serde_json::from_str(owner).ok()?;
        owner["username"].as_str().map(str::to_owned)
    })?;
    let initialized = matches!(phase(object), "Ready" | "Initializing");
    initialized.then(|| fairlead_api::workspace_admin_binding(&user))
}

pub(super) fn set_life_cycle_labels(object: &mut Value) {
    let texts = |field: &str| -> Vec<String> {
        let all = object["status"][field].as_array();
        all.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (waiting, terminating) = (texts("initializers"), texts("terminators"));
    let desired = fairlead_api::life_cycle_labels(phase(object), &waiting, &terminating);
    let phase = phase(object).to_owned();
    let labels = &mut object["metadata"]["labels"];
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|key, _| !fairlead_api::is_life_cycle_label(key));
    }
    for (key, value) in desired {
        labels[key] = value.into();
    }
    labels[label::PHASE] = phase.into();
}

pub(super) fn sync_terminator_finalizer(object: &mut Value) {
    let terminating = object["status"]["terminators"].as_array().is_some_and(|all| !all.is_empty());
    let finalizers = &mut object["metadata"]["finalizers"];
    let Some(all) = finalizers.as_array_mut() else { return };
    let has = all.iter().any(|one| one == finalizer::HAS_TERMINATORS);
    if terminating && !has {
        all.push(finalizer::HAS_TERMINATORS.into());
    } else if !terminating && has {
        all.retain(|one| one != finalizer::HAS_TERMINATORS);
    }
}

fn shrink_owner_annotation(object: &mut Value) {
    if phase(object) != "Ready" {
        return;
    }
    let owner = object["metadata"]["annotations"][annotation::OWNER].as_str();
    if let Some(shrunk) = owner.and_then(fairlead_api::username_only_owner_annotation) {
        object["metadata"]["annotations"][annotation::OWNER] = shrunk.into();
    }
}

fn copy_to_status(object: &mut Value, field: &str) {
    let desired = object["spec"][field].clone();
    if desired.as_array().is_some_and(|all| !all.is_empty()) {
        object["status"][field] = desired;
    }
}

fn waits_for(object: &Value, initializer: &str) -> bool {
    initializers(object).contains(&initializer)
        || (matches!(phase(object), "" | "Scheduling")
            && object["spec"]["initializers"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one == initializer)))
}

fn initializers(object: &Value) -> Vec<&str> {
    object["status"]["initializers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn remove_initializer(object: &mut Value, initializer: &str) {
    let Some(status) = object["status"].as_object_mut() else { return };
    if let Some(all) = status.get_mut("initializers").and_then(Value::as_array_mut) {
        all.retain(|one| one != initializer);
        if all.is_empty() {
            status.remove("initializers");
        }
    }
}

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logical_cluster(phase: &str, initializers: &[&str]) -> Value {
        json!({
            "apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
            "metadata": {"name": "cluster", "annotations": {
                annotation::CLUSTER: "abc", annotation::PATH: "root:a", annotation::TYPE: "root:universal",
                annotation::OWNER: r#"{"username":"alice","groups":["g"]}"#}},
            "spec": {"initializers": initializers},
            "status": {"phase": phase},
        })
    }

    fn context(exports: &RootExports) -> Context<'_> {
        Context {
            shard: "s1",
            external_url: "https://x",
            serving_ca: "PEM",
            exports,
            bindings: Ok(Vec::new()),
        }
    }

    fn kinds(plan: &Plan) -> Vec<&str> {
        plan.objects.iter().filter_map(|object| object["kind"].as_str()).collect()
    }

    #[test]
    fn a_new_logical_cluster_becomes_ready_in_one_step() {
        let exports = RootExports::default();
        let old = logical_cluster("Scheduling", &[UNIVERSAL, API_BINDINGS_INITIALIZER]);
        let plan = plan(&old, &context(&exports), Timestamp::UNIX_EPOCH);
        let new = &plan.logical_cluster;
        assert_eq!(new["status"]["phase"], "Ready");
        assert_eq!(new["status"]["URL"], "https://x/clusters/abc");
        assert_eq!(new["metadata"]["labels"], json!({label::PHASE: "Ready"}));
        assert_eq!(new["metadata"]["annotations"][annotation::OWNER], r#"{"username":"alice"}"#);
        assert_eq!(
            kinds(&plan),
            [
                "ServiceAccount",
                "ConfigMap",
                "Namespace",
                "ServiceAccount",
                "ConfigMap",
                "Namespace",
                "ClusterRoleBinding"
            ]
        );
    }

    #[test]
    fn foreign_initializers_are_waited_for() {
        let exports = RootExports::default();
        let old = logical_cluster("", &[UNIVERSAL, "abc:custom"]);
        let plan = plan(&old, &context(&exports), Timestamp::UNIX_EPOCH);
        let new = &plan.logical_cluster;
        assert_eq!(new["status"]["phase"], "Initializing");
        assert_eq!(new["status"]["initializers"], json!(["abc:custom"]));
        let (key, value) = fairlead_names::initializer_label("abc:custom");
        assert_eq!(new["metadata"]["labels"][key], value.as_str());
    }

    #[test]
    fn planning_again_changes_nothing() {
        let exports = RootExports::default();
        let first = plan(&logical_cluster("", &[UNIVERSAL]), &context(&exports), Timestamp::UNIX_EPOCH);
        let again = plan(&first.logical_cluster, &context(&exports), Timestamp::UNIX_EPOCH);
        assert_eq!(again.logical_cluster, first.logical_cluster);
    }

    #[test]
    fn an_unknown_type_is_reported_and_retried() {
        let exports = RootExports::default();
        let mut context = context(&exports);
        context.bindings = Err("no such type".into());
        let plan = plan(&logical_cluster("", &[API_BINDINGS_INITIALIZER]), &context, Timestamp::UNIX_EPOCH);
        assert_eq!(plan.logical_cluster["status"]["phase"], "Initializing");
        let conditions = plan.logical_cluster["status"]["conditions"].to_string();
        assert!(conditions.contains("no such type"), "{conditions}");
    }
}
