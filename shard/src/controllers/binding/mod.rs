//! Binds APIBindings to the resources of their exports that are free, follows changes of the exports, and removes the objects of
//! deleted bindings.
//!
//! The LogicalCluster records which binding owns which resource (kcp's resource locks). Binding, locks and the CRDs of schemas that
//! are new on this shard are written at once.

mod bind;
mod unbind;

use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::{LOGICAL_CLUSTER_NAME, PartialBinding, annotation, condition_type};
use fairlead_apiserver::hub::ObjectEvent;
use fairlead_apiserver::object::ObjectBytes;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName, export_hash};
use fairlead_process::Status;
use fairlead_schema::FieldPath;
use fairlead_schema::crd::{CrdNames, CrdSpec, has_condition};
use fairlead_store::{Mutation, Range};
use jiff::Timestamp;
use serde_json::Value;

use self::bind::{BindContext, NameHolder, NameOwner, Obstacles, bind, follow};
use self::unbind::{Adoption, adopts, inherited, unbind};
use super::deletion::{Sweep, commit, visit_resource};
use crate::bootstrap::with_established_status;
use crate::bound_conversion::set_rules;
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::exports::{ExportLookup, PublishedExport, PublishedSchema};
use crate::index::{ClusterIndex, Definitions};
use crate::names::{
    API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, BOUND_CRDS, BUILT_IN, CUSTOM,
    CUSTOM_RESOURCE_DEFINITIONS, LOGICAL_CLUSTERS,
};
use crate::resource_locks::ResourceLocks;
use crate::writes::Writes;

/// The size of the CRDs in one commit from which on the others wait for the next one. A commit has a limit of 16 MiB, a CRD of 3 MiB;
/// on etcd less.
const MAX_CREATED_BYTES: usize = 4 << 20;
/// Mutations of a commit beside those of CRDs: the binding and the LogicalCluster.
const OTHER_MUTATIONS: usize = 2;

/// Logical cluster and name of an APIBinding.
pub(crate) type BindingKey = (Box<str>, Box<str>);

/// Controller of APIBindings.
pub(crate) struct Bindings {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) exports: Arc<ExportLookup>,
}

/// The bindings to reconcile after an event.
pub(crate) enum AffectedBindings {
    /// Bindings of one logical cluster, for which a client may wait.
    Few(Vec<BindingKey>),
    /// Bindings to exports, of any number of logical clusters.
    OfExports(Vec<BindingKey>),
}

/// What a binding needs of its controller.
enum Need {
    /// It is settled.
    Nothing,
    /// Its export, or a schema of it, was known and is missing only because it is on another shard whose replicas this shard has not
    /// read yet since its start.
    Replicas,
    /// Its export has new schemas, claims or annotations, and resources of the same names as before. No conflict of names can begin,
    /// and the locks stay, so that no other object has to be read.
    Schemas(Arc<PublishedExport>),
    /// A decision that depends on its logical cluster.
    Decision,
}

/// The CRD of a schema that a binding may be bound to now.
struct NeededDefinition {
    schema: Box<str>,
    requirement: Requirement,
}

/// What the commit of the binding has to do for a CRD.
enum Requirement {
    Create(Value),
    /// The CRD is not removed meanwhile.
    Exists(Mutation),
}

/// The change to a binding, in the last commit of the sweep of its objects.
#[derive(Debug, PartialEq)]
struct Plan {
    /// The desired binding; `None` removes it.
    binding: Option<Value>,
    locks: ResourceLocks,
    /// Whether the binding gives up its resources in this commit.
    is_released: bool,
    next: ReconcileOutcome,
}

impl Bindings {
    /// The bindings to reconcile after an event: of an APIBinding, the binding itself; after the removal of an APIBinding or a CRD, all
    /// that may have waited for a resource; of an export or one of its schemas, all bindings to exports of its logical cluster.
    pub(crate) fn keys_of(&self, event: &ObjectEvent) -> AffectedBindings {
        let is_schema = event.resource == *API_RESOURCE_SCHEMAS;
        if is_schema && !self.exports.may_use_schema(&event.scope, &event.name) {
            return AffectedBindings::Few(Vec::new());
        }
        if is_schema || event.resource == *API_EXPORTS {
            let metadata = event.metadata().ok();
            let path = metadata.as_ref().and_then(|metadata| metadata.annotation(annotation::PATH));
            let paths: Vec<Box<str>> = path.map(Into::into).into_iter().collect();
            return AffectedBindings::OfExports(
                self.definitions.bindings().of_exports_in(&event.scope, &paths),
            );
        }
        let is_binding = event.resource == *API_BINDINGS;
        if !event.is_deletion() {
            let is_relevant = is_binding && !self.is_settled(&event.scope, event.object().json());
            let own = is_relevant.then(|| ((*event.scope).into(), event.name.clone()));
            return AffectedBindings::Few(own.into_iter().collect());
        }
        if !is_binding && event.resource != *CUSTOM_RESOURCE_DEFINITIONS {
            return AffectedBindings::Few(Vec::new());
        }
        let bindings = self.definitions.bindings().of_cluster(&event.scope);
        let keys = bindings.iter().map(|binding| ((*event.scope).into(), binding.name.clone()));
        AffectedBindings::Few(keys.collect())
    }

    /// The bindings of all logical clusters that need a reconciliation.
    pub(crate) fn unsettled(&self) -> Vec<BindingKey> {
        let range = Range::prefix(self.objects.codec().range(&API_BINDINGS, &CUSTOM, "", None));
        let mut keys = Vec::new();
        let read = self.objects.store().scan(&range, None, &mut |record| {
            if let (Ok(key), Ok(object)) =
                (self.objects.codec().decode(record.key), ObjectBytes::parse(record.value))
                && !self.is_settled(key.scope, object.json())
            {
                keys.push((key.scope.into(), key.name.into()));
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = read {
            tracing::error!(%error, "bindings cannot be read");
        }
        keys
    }

    fn is_settled(&self, cluster: &str, json: &[u8]) -> bool {
        matches!(self.need_of(cluster, json), Ok(Need::Nothing))
    }

    fn need_of(&self, cluster: &str, json: &[u8]) -> Result<Need, Status> {
        let Ok(binding) = PartialBinding::decode(json) else { return Ok(Need::Decision) };
        if binding.is_deleted {
            return Ok(Need::Decision);
        }
        let path = if binding.export_path.is_empty() { cluster } else { &binding.export_path };
        let export = self.exports.find(path, &binding.export_name)?;
        let Some(export) = export.filter(|export| export.missing_schema.is_none()) else {
            let exporter = &binding.export_cluster;
            let is_unread = !exporter.is_empty() && self.exports.is_unread(exporter);
            return Ok(if is_unread { Need::Replicas } else { Need::Decision });
        };
        if is_current(&binding, &export) {
            return Ok(Need::Nothing);
        }
        Ok(if self.keeps_names(&binding, &export)? { Need::Schemas(export) } else { Need::Decision })
    }

    /// Whether a bound binding has all resources of its export already, under the names that they have now.
    fn keeps_names(&self, binding: &PartialBinding<'_>, export: &PublishedExport) -> Result<bool, Status> {
        let Some(identity) = export.identity.as_deref().filter(|_| binding.phase == "Bound") else {
            return Ok(false);
        };
        for (at, schema) in export.schemas.iter().enumerate() {
            let bound = find_near(&binding.resources, at, |bound| {
                bound.resource == *schema.resource
                    && bound.group == *schema.group
                    && bound.identity == *identity
            });
            let Some(bound) = bound else { return Ok(false) };
            if bound.schema != *schema.uid
                && self.definitions.bound_names(&bound.schema)?.is_none_or(|names| *names != schema.names)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a binding is bound to the current resources and claims of its export, says so, and has the export's annotations. Bindings are
/// created in this state with a workspace, and mostly stay in it.
fn is_current(binding: &PartialBinding<'_>, export: &PublishedExport) -> bool {
    let says = |kind| binding.is_condition_true(kind);
    let Some(identity) = &export.identity else { return false };
    let is_bound = |(at, schema): (usize, &PublishedSchema)| {
        let bound = find_near(&binding.resources, at, |bound| bound.schema == *schema.uid);
        !schema.lacks_conversion && bound.is_some_and(|bound| bound.identity == **identity)
    };
    binding.phase == "Bound"
        && says(condition_type::API_EXPORT_VALID)
        && says(condition_type::BINDING_UP_TO_DATE)
        && export.schemas.iter().enumerate().all(is_bound)
        && binding.export_cluster == *export.cluster
        && binding.export_hash.as_deref() == Some(&*export_hash(&export.cluster, &binding.export_name))
        && has_claims(binding, export)
        && has_extra_annotations(binding, export)
}

/// The item that matches. Bindings have their resources mostly in the order of their export, so the one at the same place is tried first.
fn find_near<T>(items: &[T], at: usize, matches: impl Fn(&T) -> bool) -> Option<&T> {
    let near = items.get(at).filter(|item| matches(item));
    near.or_else(|| items.iter().find(|item| matches(item)))
}

/// Whether the status of a binding has the claims of its export.
fn has_claims(binding: &PartialBinding<'_>, export: &PublishedExport) -> bool {
    let Some(claims) = binding.export_claims else { return export.claims().is_empty() };
    serde_json::from_str::<Vec<Value>>(claims.get()).is_ok_and(|claims| claims == export.claims())
}

/// Whether the extra annotations of a binding are those of its export.
fn has_extra_annotations(binding: &PartialBinding<'_>, export: &PublishedExport) -> bool {
    let own = &binding.extra_annotations;
    let mut of_export = export.extra_annotations();
    own.len() == export.extra_annotations().count()
        && of_export.all(|(key, value)| own.iter().any(|(name, text)| name == key && text == value))
}

#[async_trait]
impl Controller for Bindings {
    type Key = BindingKey;

    const NAME: &'static str = "apibinding";
    const WORKERS: usize = 16;

    async fn reconcile(&self, (cluster, name): &BindingKey) -> Result<ReconcileOutcome, Status> {
        // The `deletion` controller removes the content of a deleted logical cluster.
        if self.clusters.get(cluster).is_some_and(|state| state.is_deleted) {
            return Ok(ReconcileOutcome::Done);
        }
        let scope = Scope::new(cluster);
        // A change of an export or of a replica queues all its bindings, of which mostly none has to change.
        let own = self.objects.get(&API_BINDINGS, &CUSTOM, &scope, None, name)?;
        let Some(own) = own else { return Ok(ReconcileOutcome::Done) };
        match self.need_of(cluster, own.object.as_object().json())? {
            Need::Nothing => Ok(ReconcileOutcome::Done),
            Need::Replicas => Ok(ReconcileOutcome::Retry),
            Need::Schemas(export) => self.follow_schemas(&own, &export).await,
            Need::Decision => self.decide(&scope, name).await,
        }
    }
}

impl Bindings {
    async fn follow_schemas(
        &self,
        own: &StoredObject,
        export: &PublishedExport,
    ) -> Result<ReconcileOutcome, Status> {
        let binding = self.objects.tree(own)?;
        let before: Vec<String> = bound_schemas(&binding).map(ToOwned::to_owned).collect();
        let mut obstacles = Obstacles::default();
        let needed = self.needed_definitions(export, &before, &mut obstacles)?;
        let new = follow(binding, export, &obstacles, Timestamp::now());
        let mut writes = Writes::new(&self.objects, &self.definitions);
        Self::require_definitions(&new, &before, needed, &mut writes)?;
        let resource = writes.resource_of(&new)?;
        writes.replace(&resource, own, new)?;
        let is_written = commit(writes).await?.is_some();
        Ok(if is_written { obstacles.next() } else { ReconcileOutcome::Retry })
    }

    async fn decide(&self, scope: &Scope, name: &str) -> Result<ReconcileOutcome, Status> {
        let cluster = scope.as_str();
        let bindings = self.list(scope)?;
        let Some((stored, binding)) = bindings.iter().find(|(_, one)| name_of(one) == Some(name)) else {
            return Ok(ReconcileOutcome::Done);
        };
        let lock_holder = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, scope, None, LOGICAL_CLUSTER_NAME)?;
        let Some(lock_holder) = lock_holder else { return Ok(ReconcileOutcome::Done) };
        let logical_cluster = self.objects.tree(&lock_holder)?;
        let locks = ResourceLocks::of(&logical_cluster);
        let others: Vec<&Value> = bindings.iter().map(|(_, one)| one).filter(|one| *one != binding).collect();
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let plan = if binding["metadata"]["deletionTimestamp"].is_null() {
            let export = self.export_of(cluster, binding)?;
            let before: Vec<String> = bound_schemas(binding).map(ToOwned::to_owned).collect();
            let mut context = BindContext {
                cluster,
                export: export.as_deref(),
                locks,
                others: &others,
                holders: self.name_holders(scope, &others)?,
                obstacles: Obstacles::default(),
            };
            let needed = match &export {
                Some(export) => self.needed_definitions(export, &before, &mut context.obstacles)?,
                None => Vec::new(),
            };
            let plan = bind(binding, &context, Timestamp::now());
            if let Some(new) = &plan.binding {
                Self::require_definitions(new, &before, needed, &mut writes)?;
            }
            plan
        } else {
            let mut sweep = Sweep::within(self.objects.store().limits());
            let adoptions = self.sweep(scope, binding, &others, &mut sweep).await?;
            let plan = unbind(binding, locks, &sweep, &adoptions, Timestamp::now());
            writes.extend(sweep.into_mutations());
            if plan.is_released {
                for (stored, heir) in &bindings {
                    if let Some(new) = inherited(heir, &adoptions) {
                        let resource = writes.resource_of(heir)?;
                        writes.replace(&resource, stored, new)?;
                    }
                }
            }
            plan
        };
        let resource = writes.resource_of(binding)?;
        match plan.binding {
            Some(new) => writes.replace(&resource, stored, new)?,
            None => writes.remove(&resource, stored, binding),
        }
        // A CRD that takes one of the resources meanwhile changes the LogicalCluster, too.
        let mut new = logical_cluster.clone();
        plan.locks.set(&mut new);
        let resource = writes.resource_of(&new)?;
        writes.replace_or_fence(&resource, &lock_holder, new)?;
        Ok(if commit(writes).await?.is_some() { plan.next } else { ReconcileOutcome::Retry })
    }

    /// Adds the CRDs of the schemas that a binding is bound to now and was not before to the writes, or the expectation that they exist.
    fn require_definitions(
        binding: &Value,
        before: &[String],
        mut needed: Vec<NeededDefinition>,
        writes: &mut Writes<'_>,
    ) -> Result<(), Status> {
        for schema in bound_schemas(binding).filter(|schema| !before.iter().any(|uid| uid == schema)) {
            let Some(at) = needed.iter().position(|one| *one.schema == *schema) else { continue };
            match needed.swap_remove(at).requirement {
                Requirement::Create(definition) => writes.create(BOUND_CRDS, definition)?,
                Requirement::Exists(fence) => writes.extend([fence]),
            }
        }
        Ok(())
    }

    fn list(&self, scope: &Scope) -> Result<Vec<(StoredObject, Value)>, Status> {
        let all = self.objects.list(&API_BINDINGS, &CUSTOM, &ScopeSelector::One(scope.clone()), None)?;
        all.into_iter().map(|stored| self.objects.tree(&stored).map(|tree| (stored, tree))).collect()
    }

    /// The export of a binding.
    fn export_of(&self, cluster: &str, binding: &Value) -> Result<Option<Arc<PublishedExport>>, Status> {
        let reference = &binding["spec"]["reference"]["export"];
        let path = reference["path"].as_str().filter(|path| !path.is_empty()).unwrap_or(cluster);
        self.exports.find(path, reference["name"].as_str().unwrap_or_default())
    }

    /// The names that CRDs and other bindings of a logical cluster use.
    fn name_holders(&self, scope: &Scope, others: &[&Value]) -> Result<Vec<NameHolder>, Status> {
        let mut holders = Vec::new();
        for other in others {
            let reference = &other["spec"]["reference"]["export"];
            for bound in bound_resources(other) {
                let uid = bound["schema"]["UID"].as_str().unwrap_or_default();
                let Some(names) = self.definitions.bound_names(uid)? else { continue };
                holders.push(NameHolder {
                    group: text(&bound["group"]),
                    names,
                    uid: uid.to_owned(),
                    owner: NameOwner::Binding {
                        name: text(&other["metadata"]["name"]),
                        export_path: text(&reference["path"]),
                        export: text(&reference["name"]),
                    },
                });
            }
        }
        let one = ScopeSelector::One(scope.clone());
        for stored in self.objects.list(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &one, None)? {
            let crd = self.objects.tree(&stored)?;
            holders.push(NameHolder {
                group: text(&crd["spec"]["group"]),
                names: Arc::new(CrdNames::read(&crd["status"]["acceptedNames"])),
                uid: text(&crd["metadata"]["uid"]),
                owner: NameOwner::Definition {
                    name: text(&crd["metadata"]["name"]),
                    is_established: has_condition(&crd, "Established"),
                },
            });
        }
        holders.sort_by(|a, b| a.uid.cmp(&b.uid));
        Ok(holders)
    }

    /// The CRDs of an export's schemas. `bound` are the schemas that the binding has, and which therefore are there. Schemas that cannot
    /// be bound now are added to `obstacles`. Root's own schemas need no CRD.
    fn needed_definitions(
        &self,
        export: &PublishedExport,
        bound: &[String],
        obstacles: &mut Obstacles,
    ) -> Result<Vec<NeededDefinition>, Status> {
        let limits = self.objects.store().limits();
        let max_needed = limits.mutations.saturating_sub(OTHER_MUTATIONS);
        let max_created = MAX_CREATED_BYTES.min(limits.bytes / 4);
        let (mut needed, mut created_bytes) = (Vec::new(), 0);
        let need = |schema: &PublishedSchema, requirement| NeededDefinition {
            schema: schema.uid.clone(),
            requirement,
        };
        for schema in &export.schemas {
            if bound.iter().any(|uid| **uid == *schema.uid) {
                continue;
            }
            if needed.len() >= max_needed {
                obstacles.deferred.push(schema.uid.clone());
                continue;
            }
            if let Some(fence) = self.definitions.bound_fence(&schema.uid)? {
                needed.push(need(schema, Requirement::Exists(fence)));
                continue;
            }
            if created_bytes >= max_created {
                obstacles.deferred.push(schema.uid.clone());
                continue;
            }
            let Some(object) = self.exports.schema(&export.cluster, &schema.name)? else { continue };
            let mut definition = match fairlead_api::bound_crd(&object, &export.cluster) {
                Ok(definition) => definition,
                Err(error) => {
                    obstacles.invalid.push((schema.uid.clone(), error.to_string()));
                    continue;
                }
            };
            let conversion = self.exports.conversion(&export.cluster, &schema.name)?;
            match CrdSpec::parse_spec(&definition["spec"], &FieldPath::new("spec")) {
                Ok(_) => {
                    set_rules(&mut definition, conversion.as_deref());
                    let bytes = definition.to_string().len();
                    if created_bytes > 0 && created_bytes + bytes > limits.bytes / 2 {
                        obstacles.deferred.push(schema.uid.clone());
                        continue;
                    }
                    created_bytes += bytes;
                    let definition = with_established_status(definition);
                    needed.push(need(schema, Requirement::Create(definition)));
                }
                Err(errors) => {
                    let causes: Vec<String> = errors
                        .iter()
                        .map(|error| format!("{}: {}", error.path.as_str(), error.message))
                        .collect();
                    obstacles.invalid.push((schema.uid.clone(), format!("[{}]", causes.join(" "))));
                }
            }
        }
        Ok(needed)
    }

    /// Collects the objects of the bound resources, unless another binding adopts them. Returns the adoptions.
    async fn sweep(
        &self,
        scope: &Scope,
        binding: &Value,
        others: &[&Value],
        sweep: &mut Sweep,
    ) -> Result<Vec<Adoption>, Status> {
        let mut candidates = Vec::new();
        for other in others.iter().filter(|other| other["metadata"]["deletionTimestamp"].is_null()) {
            let export = self.export_of(scope.as_str(), other)?;
            candidates.extend(export.map(|export| (name_of(other).unwrap_or_default(), export)));
        }
        let mut adoptions = Vec::new();
        for bound in bound_resources(binding) {
            let (Some(resource), Some(identity)) = (
                bound["resource"].as_str(),
                bound["schema"]["identityHash"].as_str().filter(|hash| !hash.is_empty()),
            ) else {
                continue;
            };
            if let Some((heir, _)) = candidates.iter().find(|(_, export)| adopts(export, bound)) {
                adoptions.push(Adoption { heir: (*heir).into(), bound: bound.clone() });
                continue;
            }
            let resource = ResourceName::new(bound["group"].as_str().unwrap_or_default(), resource);
            let origin = Origin::Identity(identity.into());
            let cluster = scope.as_str();
            // A full sweep stops by itself.
            let _ = visit_resource(&self.objects, &resource, &origin, cluster, None, &mut |found| {
                sweep.add(&self.objects, found)
            })
            .await?;
            if sweep.is_truncated() {
                break;
            }
        }
        Ok(adoptions)
    }
}

fn bound_resources(binding: &Value) -> impl Iterator<Item = &Value> {
    binding["status"]["boundResources"].as_array().into_iter().flatten()
}

/// The UIDs of the schemas of a binding's resources.
fn bound_schemas(binding: &Value) -> impl Iterator<Item = &str> {
    bound_resources(binding).filter_map(|bound| bound["schema"]["UID"].as_str())
}

fn name_of(object: &Value) -> Option<&str> {
    object["metadata"]["name"].as_str()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
