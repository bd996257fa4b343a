//! Initializes the logical clusters of this shard until they are Ready.
//!
//! The initializers that kcp itself implements, `root:universal` and `system:apibindings`, run here: all objects that
//! they create are written at once, and the resulting phase in the last commit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::{
    API_BINDINGS_INITIALIZER, Condition, ExportReference, LOGICAL_CLUSTER_NAME, PermissionClaim, Severity,
    annotation, condition_type, conditions_of, finalizer, is_condition_true, label, set_condition,
    write_conditions,
};
use fairlead_apiserver::hub::Hub;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use fairlead_store::CommitError;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::exports::{ExportLookup, PublishedExport, as_bound, locks_of};
use crate::index::Definitions;
use crate::names::{API_BINDINGS, CUSTOM, LOGICAL_CLUSTERS};
use crate::resource_locks::ResourceLocks;
use crate::workspace_types::{TypeLookup, type_reference};
use crate::writes::Writes;

/// The initializer of the type that all ordinary types extend.
const UNIVERSAL: &str = "root:universal";

/// Mutations of a commit beside the CRDs of new bindings: the bindings, namespaces with their content, and the LogicalCluster.
const OTHER_MUTATIONS: usize = 40;

/// Interval of the look-ups of a type that is not known on this shard.
const TYPE_RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Controller of LogicalClusters that are not being deleted.
pub(crate) struct LogicalClusters {
    pub(crate) objects: ObjectStore,
    pub(crate) hub: Hub,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) types: Arc<TypeLookup>,
    pub(crate) exports: Arc<ExportLookup>,
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
    /// The exports that the type binds by default, or the reason and the message of the condition that they are unknown.
    defaults: Result<Vec<DefaultExport>, (&'static str, String)>,
    /// The APIBindings that exist, read only while default ones are missing.
    bindings: Vec<Value>,
}

/// An export that a type binds by default.
struct DefaultExport {
    reference: ExportReference,
    export: Arc<PublishedExport>,
    /// Whether the binding is complete without another step: the shard has the CRDs of the schemas, and no claims have to be applied.
    is_immediate: bool,
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
            defaults: self.default_exports(object)?,
            bindings: self.bindings(object)?,
        })
    }

    fn default_exports(
        &self,
        object: &Value,
    ) -> Result<Result<Vec<DefaultExport>, (&'static str, String)>, Status> {
        if !waits_for(object, API_BINDINGS_INITIALIZER) {
            return Ok(Ok(Vec::new()));
        }
        let invalid = |message: String| Ok(Err(("WorkspaceTypesInvalid", message)));
        let Some(text) = object["metadata"]["annotations"][annotation::TYPE].as_str() else {
            return invalid("the LogicalCluster names no type".to_owned());
        };
        let Some(own) = self.types.find(&type_reference(text))? else {
            return invalid(format!("workspace type {text} is not known here"));
        };
        let aliases = match self.types.aliases(own)? {
            Ok(aliases) => aliases,
            Err(error) => return invalid(error.to_string()),
        };
        // The CRDs of immediate bindings are compared in each commit; the controller of bindings binds the others, in portions.
        let limits = self.objects.store().limits();
        let mut free = limits.mutations.saturating_sub(OTHER_MUTATIONS);
        let mut defaults = Vec::new();
        for binding in fairlead_api::default_bindings(&aliases) {
            let Some(export) = self.exports.find(&binding.path, &binding.export)? else {
                let message = "encountered errors: unable to complete initialization: unable to find at least 1 APIExport";
                return Ok(Err(("APIBindingErrors", message.to_owned())));
            };
            let reference = ExportReference { path: binding.path, name: binding.export };
            let is_immediate = export.schemas.len() <= free && self.is_immediate(&export);
            if is_immediate {
                free -= export.schemas.len();
            }
            defaults.push(DefaultExport { is_immediate, reference, export });
        }
        Ok(Ok(defaults))
    }

    fn is_immediate(&self, export: &PublishedExport) -> bool {
        let is_served = |name: &ResourceName, uid: &str, identity: &str| {
            let origin = Origin::Identity(identity.into());
            self.definitions.exported(name).is_some_and(|own| own.origin == origin)
                || self.definitions.bindings().newest_schema(identity, name).as_deref() == Some(uid)
        };
        export.claims().is_empty()
            && export.missing_schema.is_none()
            && export.identity.as_deref().is_some_and(|identity| {
                export.schemas.iter().all(|schema| {
                    is_served(&ResourceName::new(&schema.group, &schema.resource), &schema.uid, identity)
                })
            })
    }

    fn bindings(&self, object: &Value) -> Result<Vec<Value>, Status> {
        let cluster = object["metadata"]["annotations"][annotation::CLUSTER].as_str().unwrap_or_default();
        if !waits_for(object, API_BINDINGS_INITIALIZER) {
            return Ok(Vec::new());
        }
        let one = ScopeSelector::One(Scope::new(cluster));
        let stored = self.objects.list(&API_BINDINGS, &CUSTOM, &one, None)?;
        stored.iter().map(|stored| self.objects.tree(stored)).collect()
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
            if writes.stored(&resource, cluster, &object)?.is_some() {
                continue;
            }
            // The CRDs that a new binding uses are not removed meanwhile.
            for bound in object["status"]["boundResources"].as_array().into_iter().flatten() {
                let schema = bound["schema"]["UID"].as_str().unwrap_or_default();
                writes.extend(self.definitions.bound_fence(schema)?);
            }
            writes.create(cluster, object)?;
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
            let kind = condition_type::API_BINDINGS_INITIALIZED;
            let waiting = match &context.defaults {
                Ok(defaults) => {
                    let incomplete = bind_defaults(defaults, &mut new, &mut objects, context, now);
                    (!incomplete.is_empty()).then(|| {
                        let message = format!("APIBinding(s) not yet fully bound: {}", incomplete.join(", "));
                        Condition::unmet(kind, Severity::Info, "WaitingOnAPIBindings", message)
                    })
                }
                Err((reason, message)) => {
                    Some(Condition::unmet(kind, Severity::Error, reason, message.as_str()))
                }
            };
            match waiting {
                Some(unmet) => _ = set_condition(&mut conditions, unmet, now),
                None => {
                    set_condition(&mut conditions, Condition::met(kind), now);
                    remove_initializer(&mut new, API_BINDINGS_INITIALIZER);
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

/// Adds the default bindings that do not exist, and returns those that are not complete. A binding to resources that are free is
/// complete at once.
fn bind_defaults(
    defaults: &[DefaultExport],
    logical_cluster: &mut Value,
    objects: &mut Vec<Value>,
    context: &Context<'_>,
    now: Timestamp,
) -> Vec<String> {
    let annotations = &logical_cluster["metadata"]["annotations"];
    let cluster = annotations[annotation::CLUSTER].as_str().unwrap_or_default().to_owned();
    let path = annotations[annotation::PATH].as_str().unwrap_or(&cluster).to_owned();
    // CRDs may have been created before.
    let mut locks = ResourceLocks::of(logical_cluster);
    let mut incomplete = Vec::new();
    for default in defaults {
        let export = &default.export;
        let existing = context.bindings.iter().find(|binding| {
            let reference = &binding["spec"]["reference"]["export"];
            reference["path"] == default.reference.path.as_str()
                && reference["name"] == default.reference.name.as_str()
        });
        if let Some(binding) = existing {
            match incompletion(binding) {
                Some(reason) => incomplete.push(reason),
                // Created by this controller in a commit before that of the locks, which may have failed.
                None => {
                    let name = binding["metadata"]["name"].as_str().unwrap_or_default();
                    for (resource, lock) in locks_of(name, export).0 {
                        locks.0.entry(resource).or_insert(lock);
                    }
                }
            }
            continue;
        }
        let claims: Vec<PermissionClaim> =
            export.claims().iter().filter_map(|claim| serde_json::from_value(claim.clone()).ok()).collect();
        let binding =
            fairlead_api::default_api_binding(&cluster, &default.reference, &export.cluster, &path, &claims);
        let name = binding["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let desired = locks_of(&name, export);
        let is_free =
            desired.0.iter().all(|(resource, lock)| locks.0.get(resource).is_none_or(|held| held == lock));
        if default.is_immediate && is_free {
            locks.0.extend(desired.0);
            objects.push(as_bound(binding, export, now));
        } else {
            objects.push(binding);
            incomplete.push(name);
        }
    }
    locks.set(logical_cluster);
    incomplete.sort_unstable();
    incomplete
}

/// The reason why a binding is not complete, for a message.
fn incompletion(binding: &Value) -> Option<String> {
    let name = binding["metadata"]["name"].as_str().unwrap_or_default();
    let conditions = conditions_of(binding);
    if !is_condition_true(&conditions, condition_type::INITIAL_BINDING_COMPLETED) {
        return Some(name.to_owned());
    }
    let claims = binding["spec"]["permissionClaims"].as_array();
    let accepts = claims.is_some_and(|claims| claims.iter().any(|claim| claim["state"] == "Accepted"));
    (accepts && !is_condition_true(&conditions, condition_type::PERMISSION_CLAIMS_APPLIED))
        .then(|| format!("{name} waiting for permission claims to be applied"))
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

    fn context() -> Context<'static> {
        Context {
            shard: "s1",
            external_url: "https://x",
            serving_ca: "PEM",
            defaults: Ok(Vec::new()),
            bindings: Vec::new(),
        }
    }

    fn kinds(plan: &Plan) -> Vec<&str> {
        plan.objects.iter().filter_map(|object| object["kind"].as_str()).collect()
    }

    #[test]
    fn a_new_logical_cluster_becomes_ready_in_one_step() {
        let old = logical_cluster("Scheduling", &[UNIVERSAL, API_BINDINGS_INITIALIZER]);
        let plan = plan(&old, &context(), Timestamp::UNIX_EPOCH);
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
        let old = logical_cluster("", &[UNIVERSAL, "abc:custom"]);
        let plan = plan(&old, &context(), Timestamp::UNIX_EPOCH);
        let new = &plan.logical_cluster;
        assert_eq!(new["status"]["phase"], "Initializing");
        assert_eq!(new["status"]["initializers"], json!(["abc:custom"]));
        let (key, value) = fairlead_names::initializer_label("abc:custom");
        assert_eq!(new["metadata"]["labels"][key], value.as_str());
    }

    #[test]
    fn planning_again_changes_nothing() {
        let first = plan(&logical_cluster("", &[UNIVERSAL]), &context(), Timestamp::UNIX_EPOCH);
        let again = plan(&first.logical_cluster, &context(), Timestamp::UNIX_EPOCH);
        assert_eq!(again.logical_cluster, first.logical_cluster);
    }

    #[test]
    fn the_locks_of_a_default_binding_are_completed_if_only_the_binding_was_committed() {
        let schema = json!({
            "metadata": {"name": "v1.widgets.example.com", "uid": "1"},
            "spec": {
                "group": "example.com", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "storage": true, "served": true}],
            },
        });
        let export = json!({
            "metadata": {"name": "example.com"},
            "spec": {"resources": [{"group": "example.com", "name": "widgets", "schema": "v1.widgets.example.com"}]},
            "status": {"identityHash": "hash"},
        });
        let schema = Arc::new(schema);
        let export = PublishedExport::read("root", Arc::new(export), |_| Ok(Some(schema.clone()))).unwrap();
        let reference = ExportReference { path: "root".into(), name: "example.com".into() };
        let context = |bindings| {
            let (reference, export) = (reference.clone(), Arc::new(export.clone()));
            let default = DefaultExport { reference, export, is_immediate: true };
            Context { defaults: Ok(vec![default]), bindings, ..context() }
        };
        let old = logical_cluster("", &[API_BINDINGS_INITIALIZER]);
        let first = plan(&old, &context(Vec::new()), Timestamp::UNIX_EPOCH);
        let bindings: Vec<Value> =
            first.objects.iter().filter(|object| object["kind"] == "APIBinding").cloned().collect();
        assert_eq!(bindings.len(), 1);
        let locks = |plan: &Plan| ResourceLocks::of(&plan.logical_cluster).0;
        assert_eq!(locks(&first).keys().collect::<Vec<_>>(), ["widgets.example.com"]);

        let second = plan(&old, &context(bindings), Timestamp::UNIX_EPOCH);
        assert!(!kinds(&second).contains(&"APIBinding"));
        assert_eq!(locks(&second), locks(&first));
        assert_eq!(second.logical_cluster["status"]["phase"], "Ready");
    }

    #[test]
    fn an_unknown_type_is_reported_and_retried() {
        let mut context = context();
        context.defaults = Err(("WorkspaceTypesInvalid", "no such type".into()));
        let plan = plan(&logical_cluster("", &[API_BINDINGS_INITIALIZER]), &context, Timestamp::UNIX_EPOCH);
        assert_eq!(plan.logical_cluster["status"]["phase"], "Initializing");
        let conditions = plan.logical_cluster["status"]["conditions"].to_string();
        assert!(conditions.contains("no such type"), "{conditions}");
    }
}
