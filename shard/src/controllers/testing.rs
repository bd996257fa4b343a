//! A shard without network listeners for tests: store, hub, indexes, registry and the content controllers.
//!
//! Tests use a paused clock, so pauses of controllers cost no time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::{ExportReference, LOGICAL_CLUSTER_NAME, annotation, finalizer};
use fairlead_apiserver::hub::{Hub, HubOptions, Interest, ProgressNotifications, Subscription};
use fairlead_apiserver::registry::{
    AppliedConfiguration, Catalog, CreateAuthorization, DeleteResult, NamespaceLifecycle, ObjectStore,
    Registry, StoreRegistry, StoredObject, Target, WriteResult,
};
use fairlead_apiserver::registry::{built_in_resources, is_built_in};
use fairlead_apiserver::request::{DeleteOptions, Propagation, WriteOptions};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{
    Action, Admission, AdmissionHost, AdmissionRequest, DynamicAdmission, Scope, ScopeSelector,
};
use fairlead_authn::{AuthenticationMethod, Identity, ServiceAccountSigner, UserInfo};
use fairlead_names::{KeyCodec, ResourceName};
use fairlead_process::{Reloadable, Shutdown, Status, Tasks};
use fairlead_store::{MemoryStore, Mutation, Range, Revision, Store};
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{IntCounterVec, Opts};
use serde_json::{Value, json};

use super::ContentControllers;
use super::logical_cluster::namespace_content;
use crate::bootstrap;
use crate::creation_fence::creation_fence;
use crate::exports::{ExportLookup, RootExports, as_bound, locks_of};
use crate::global::GlobalView;
use crate::index::{ClusterIndex, Definitions, PathIndex};
use crate::names::{CLEANUP_FINALIZER, CUSTOM, LOGICAL_CLUSTERS};
use crate::placement::Placement;
use crate::quota::UsageTracker;
use crate::resource_locks::ResourceLocks;
use crate::service_accounts::TokenIssuer;
use crate::writes::Writes;

/// Content of `kube-root-ca.crt`.
pub(super) const SERVING_CA: &str = "PEM";

pub(super) struct Shard {
    pub(super) objects: ObjectStore,
    pub(super) hub: Hub,
    pub(super) definitions: Arc<Definitions>,
    pub(super) exports: Arc<ExportLookup>,
    pub(super) root_exports: RootExports,
    pub(super) clusters: Arc<ClusterIndex>,
    pub(super) tasks: Tasks,
    pub(super) shutdown: Shutdown,
    registry: Arc<dyn Registry>,
    versions: Arc<Mutex<Versions>>,
}

#[derive(Default)]
struct Versions {
    /// The revision of the last change of each resource.
    last: HashMap<ResourceName, Revision>,
    /// The changes that have the revision of one before.
    faults: Vec<String>,
}

impl Versions {
    fn follow(hub: &Hub) -> Arc<Mutex<Self>> {
        let versions = Arc::<Mutex<Self>>::default();
        let observed = versions.clone();
        hub.observe_all(Box::new(move |event| {
            let Self { last, faults } = &mut *observed.lock();
            if last.insert(event.resource.clone(), event.revision) >= Some(event.revision) {
                faults.push(format!("{} {} at {}", event.resource, event.name, event.revision));
            }
        }));
        versions
    }
}

/// Every test checks that no two objects of a resource get the same resourceVersion.
impl Drop for Shard {
    fn drop(&mut self) {
        let faults = &self.versions.lock().faults;
        assert!(std::thread::panicking() || faults.is_empty(), "the same version again: {faults:#?}");
    }
}

impl Shard {
    /// Starts a shard: fills the store and starts the controllers.
    pub(super) async fn start() -> Self {
        Self::start_with_limit(None).await
    }

    /// Starts a shard with a limit of the objects of each logical cluster.
    pub(super) async fn start_with_limit(limit: Option<u64>) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let codec = KeyCodec::new("/registry", 1, is_built_in);
        let objects = ObjectStore::new(store.clone(), codec, &[annotation::CLUSTER]);
        let hub = Hub::new(store, codec, HubOptions::default());
        let versions = Versions::follow(&hub);
        let clusters = ClusterIndex::follow(&objects, &hub).unwrap();
        let refusals = IntCounterVec::new(Opts::new("refusals", "refusals"), &["limit"]).unwrap();
        let usage = UsageTracker::follow(objects.clone(), &hub, clusters.clone(), limit, refusals).unwrap();
        let paths = PathIndex::follow(&hub);
        let global = GlobalView::new();
        let lookup =
            ExportLookup::follow(objects.clone(), &hub, clusters.clone(), paths, global.clone()).unwrap();
        let dynamic = DynamicAdmission::follow(objects.clone(), &hub).unwrap();
        let fences = FenceAdmission {
            dynamic: dynamic.clone(),
            objects: objects.clone(),
            namespaces: NamespaceLifecycle::new(objects.clone()),
            usage: usage.clone(),
            definitions: OnceLock::new(),
        };
        let fences = Arc::new(fences);
        let registry: Arc<dyn Registry> =
            Arc::new(StoreRegistry::new(objects.clone(), hub.clone(), fences.clone()));
        let built_in_registry = registry.clone();
        let built_in = built_in_resources(move |_| Some(built_in_registry.clone()));
        let definitions = Definitions::follow(objects.clone(), &hub, registry.clone(), built_in).unwrap();
        usage.set_definitions(definitions.clone());
        let _ = fences.definitions.set(definitions.clone());
        dynamic.set_host(Arc::new(CatalogHost { definitions: definitions.clone() }));
        let following = hub.clone();
        let shutdown = Shutdown::new(&Default::default());
        let tasks = Tasks::new(shutdown.clone());
        tasks.spawn_fallible("watch hub", async move { following.run().await });
        bootstrap::system(&objects, &definitions).await.unwrap();
        let exports = bootstrap::root_exports(&objects, &definitions).await.unwrap();
        definitions.set_identities(&exports.identities()).unwrap();
        lookup.set_root(exports.clone());
        let controllers = ContentControllers {
            objects: objects.clone(),
            hub: hub.clone(),
            definitions: definitions.clone(),
            admission: dynamic,
            clusters: clusters.clone(),
            exports: lookup.clone(),
            global,
            usage: usage.clone(),
            issuer: Arc::new(issuer()),
            keep_events: Duration::from_secs(3600),
            serving_ca: SERVING_CA.to_owned(),
        };
        controllers.start(&tasks, &shutdown);
        Self {
            objects,
            hub,
            definitions,
            exports: lookup,
            root_exports: exports,
            clusters,
            tasks,
            shutdown,
            registry,
            versions,
        }
    }

    /// Creates a workspace in its Ready state: namespaces with their content, bindings, administrator.
    pub(super) async fn workspace(&self, cluster: &str) {
        let bindings: Vec<Value> = ["tenancy.kcp.io", "topology.kcp.io"]
            .into_iter()
            .map(|export| {
                let reference = ExportReference { path: "root".to_owned(), name: export.to_owned() };
                let binding = fairlead_api::default_api_binding(cluster, &reference, "root", "root:w", &[]);
                as_bound(binding, self.root_exports.get(export).unwrap(), Timestamp::now())
            })
            .collect();
        let mut logical_cluster = json!({
            "apiVersion": "core.kcp.io/v1alpha1",
            "kind": "LogicalCluster",
            "metadata": {"name": LOGICAL_CLUSTER_NAME, "finalizers": [finalizer::LOGICAL_CLUSTER]},
            "spec": {"owner": {"cluster": "root", "name": cluster}},
            "status": {"phase": "Ready"},
        });
        let mut locks = ResourceLocks::default();
        for binding in &bindings {
            let export = binding["spec"]["reference"]["export"]["name"].as_str().unwrap();
            let export = self.root_exports.get(export).unwrap();
            locks.0.extend(locks_of(binding["metadata"]["name"].as_str().unwrap(), export).0);
        }
        locks.set(&mut logical_cluster);
        let mut writes = Writes::new(&self.objects, &self.definitions);
        writes.create(cluster, logical_cluster).unwrap();
        for namespace in fairlead_api::universal_workspace() {
            for object in namespace_content(&namespace, SERVING_CA) {
                writes.create(cluster, object).unwrap();
            }
            writes.create(cluster, namespace).unwrap();
        }
        for binding in bindings {
            writes.create(cluster, binding).unwrap();
        }
        writes.create(cluster, fairlead_api::workspace_admin_binding("alice")).unwrap();
        let revision = writes.commit().await.unwrap();
        self.hub.wait(revision).await.unwrap();
    }

    /// Creates or updates an object of the installation, as the shard itself does.
    pub(super) async fn ensure(&self, cluster: &str, object: Value) {
        let mut writes = Writes::new(&self.objects, &self.definitions);
        writes.ensure(cluster, object).unwrap();
        let revision = writes.commit().await.unwrap();
        self.hub.wait(revision).await.unwrap();
    }

    /// Removes an object of the installation.
    pub(super) async fn discard(&self, cluster: &str, object: &Value) {
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(object).unwrap();
        let stored = writes.stored(&resource, cluster, object).unwrap().unwrap();
        writes.remove(&resource, &stored, object);
        let revision = writes.commit().await.unwrap();
        self.hub.wait(revision).await.unwrap();
    }

    /// The view of the Shards in this shard's store.
    pub(super) fn placement(&self, global: &Arc<GlobalView>) -> Arc<Placement> {
        Arc::new(Placement {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            global: global.clone(),
            gateway: None,
            picks: IntCounterVec::new(Opts::new("picks", "picks"), &["by"]).unwrap(),
        })
    }

    /// Creates an established CRD, with the fields that admission sets.
    pub(super) async fn define(&self, cluster: &str, plural: &str, scope: &str) {
        let names = json!({"plural": plural, "singular": plural, "kind": "Thing", "listKind": "ThingList"});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com"), "finalizers": [CLEANUP_FINALIZER]},
            "spec": {
                "group": "example.com", "scope": scope, "names": names, "conversion": {"strategy": "None"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                              "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
            "status": {
                "acceptedNames": names, "storedVersions": ["v1"],
                "conditions": [{"type": "Established", "status": "True"}],
            },
        });
        let mut writes = Writes::new(&self.objects, &self.definitions);
        writes.create(cluster, definition).unwrap();
        let revision = writes.commit().await.unwrap();
        self.hub.wait(revision).await.unwrap();
    }

    /// Creates an object, as a client's POST does.
    pub(super) async fn create(
        &self,
        cluster: &str,
        group_resource: &str,
        object: Value,
    ) -> Result<(), Status> {
        self.create_with(cluster, group_resource, object, &WriteOptions::default()).await
    }

    /// Creates an object with options.
    pub(super) async fn create_with(
        &self,
        cluster: &str,
        group_resource: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<(), Status> {
        let namespace = object["metadata"]["namespace"].as_str().map(Into::into);
        let target = self.target(cluster, group_resource, namespace, Verb::Create)?;
        self.registry.create(&target, object, options).await.map(drop)
    }

    /// Changes an object, as a client's PATCH does.
    pub(super) async fn change(
        &self,
        cluster: &str,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
        change: impl Fn(&mut Value) + Send + Sync,
    ) {
        let target = self.target(cluster, group_resource, namespace.map(Into::into), Verb::Patch).unwrap();
        let changed = |old: Option<&Value>| {
            let mut new = old.cloned().unwrap();
            change(&mut new);
            Ok(new)
        };
        let written = self.registry.update(&target, name, &changed, &WriteOptions::default()).await;
        assert!(matches!(written, Ok(WriteResult::Updated(_))), "{:?}", written.err());
    }

    /// Applies an object of a namespace, as a client's server-side apply does.
    pub(super) async fn apply(
        &self,
        cluster: &str,
        group_resource: &str,
        object: &Value,
        options: &WriteOptions,
    ) -> StoredObject {
        let namespace = object["metadata"]["namespace"].as_str().map(Into::into);
        let target = self.target(cluster, group_resource, namespace, Verb::Patch).unwrap();
        let authorize_create: &CreateAuthorization<'_> = &|| Box::pin(async { Ok(()) });
        let configuration = AppliedConfiguration { value: object, authorize_create };
        let name = object["metadata"]["name"].as_str().unwrap();
        match self.registry.apply(&target, name, &configuration, options).await {
            Ok(WriteResult::Created(stored) | WriteResult::Updated(stored)) => stored,
            other => panic!("{:?}", other.err()),
        }
    }

    /// Deletes an object, as a client's DELETE does.
    pub(super) async fn delete(
        &self,
        cluster: &str,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) {
        self.delete_by(cluster, group_resource, namespace, name, &DeleteOptions::default()).await;
    }

    /// Deletes an object with a propagation policy.
    pub(super) async fn delete_with(
        &self,
        cluster: &str,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
        propagation: Propagation,
    ) {
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        self.delete_by(cluster, group_resource, namespace, name, &options).await;
    }

    async fn delete_by(
        &self,
        cluster: &str,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
        options: &DeleteOptions,
    ) {
        let target = self.target(cluster, group_resource, namespace.map(Into::into), Verb::Delete).unwrap();
        let deleted = self.registry.delete(&target, name, options).await;
        assert!(
            matches!(deleted, Ok(DeleteResult::Marked(_) | DeleteResult::Gone(_))),
            "{:?}",
            deleted.err()
        );
    }

    /// Deletes a logical cluster as the controller of its workspace does.
    pub(super) async fn delete_cluster(&self, cluster: &str) {
        self.delete(cluster, "logicalclusters.core.kcp.io", None, LOGICAL_CLUSTER_NAME).await;
    }

    /// An object as clients read it.
    pub(super) fn get(
        &self,
        cluster: &str,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Value> {
        let resource = self.target(cluster, group_resource, None, Verb::Get).ok()?.resource;
        let scope = Scope::new(cluster);
        let found = self.objects.get(&resource.name, &resource.origin, &scope, namespace, name).unwrap();
        found.map(|found| self.objects.tree(&found).unwrap())
    }

    pub(super) fn logical_cluster(&self, cluster: &str) -> Option<Value> {
        let scope = Scope::new(cluster);
        let found: Option<StoredObject> =
            self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME).unwrap();
        found.map(|found| self.objects.tree(&found).unwrap())
    }

    /// A watch on a resource of a logical cluster.
    pub(super) fn watch(&self, cluster: &str, group_resource: &str) -> Subscription {
        let resource = self.target(cluster, group_resource, None, Verb::Watch).unwrap().resource;
        let interest = Interest {
            resource: resource.name.clone(),
            origin: Some(resource.origin.clone()),
            scopes: ScopeSelector::One(Scope::new(cluster)),
            namespace: None,
            label: None,
        };
        self.hub.subscribe(interest, ProgressNotifications::Off, None)
    }

    /// All keys in the store that contain a logical cluster.
    pub(super) fn keys(&self, cluster: &str) -> Vec<String> {
        let segment = format!("/{cluster}/");
        let mut keys = Vec::new();
        let mut collect = |key: &[u8]| {
            let key = String::from_utf8_lossy(key).into_owned();
            keys.extend(key.contains(&segment).then_some(key));
        };
        let store = self.objects.store();
        store
            .scan(&Range::all(), None, &mut |record| {
                collect(record.key);
                ControlFlow::Continue(())
            })
            .unwrap();
        keys
    }

    /// Waits until `holds` is true; checks after every commit.
    pub(super) async fn until(&self, description: &str, holds: impl Fn() -> bool) {
        let store = self.objects.store();
        let mut commits = store.follow(store.revision()).unwrap();
        let waiting = async {
            while !holds() {
                commits.next().await.unwrap();
            }
        };
        assert!(
            tokio::time::timeout(Duration::from_secs(600), waiting).await.is_ok(),
            "never: {description}"
        );
    }

    /// Waits until the controllers have no more work. The paused clock advances only while all tasks wait.
    pub(super) async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(120)).await;
    }

    fn target(
        &self,
        cluster: &str,
        group_resource: &str,
        namespace: Option<Arc<str>>,
        verb: Verb,
    ) -> Result<Target, Status> {
        let (plural, group) = group_resource.split_once('.').unwrap_or((group_resource, ""));
        let name = ResourceName::new(group, plural);
        let scope = Scope::new(cluster);
        let catalog = self.definitions.catalog(&scope)?;
        let resource = catalog.resources.iter().find(|resource| resource.name == name).cloned();
        let resource = resource.ok_or_else(Status::unknown_resource)?;
        let user = UserInfo { name: "alice".to_owned(), ..UserInfo::default() };
        Ok(Target {
            version: resource.versions.storage.name.clone(),
            resource,
            scopes: ScopeSelector::One(scope),
            namespace,
            name: None,
            subresource: None,
            verb,
            identity: Arc::new(Identity::new(user, AuthenticationMethod::ClientCertificate, None)),
            spans_origins: false,
            flags: fairlead_apiserver::request::RequestFlags::default(),
        })
    }
}

pub(super) fn config_map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub(super) fn thing(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}})
}

/// Status, reason and message of a condition.
pub(super) fn condition(object: &Value, kind: &str) -> Option<(bool, String, String)> {
    let all = object["status"]["conditions"].as_array()?;
    let found = all.iter().find(|one| one["type"] == kind)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((found["status"] == "True", text("reason"), text("message")))
}

/// An issuer with a new key.
fn issuer() -> TokenIssuer {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    TokenIssuer {
        issuers: vec!["https://kcp.default.svc".to_owned()],
        audiences: Vec::new(),
        max_seconds: None,
        keys_url: String::new(),
        signer: Some(Arc::new(Reloadable::new(ServiceAccountSigner::from_pem(key.as_bytes()).unwrap()))),
        keys: Arc::new(Reloadable::new(Default::default())),
    }
}

/// The host of policies, which permits nothing to anyone.
struct CatalogHost {
    definitions: Arc<Definitions>,
}

impl AdmissionHost for CatalogHost {
    fn catalog(&self, scope: &Scope) -> Result<Arc<Catalog>, Status> {
        self.definitions.catalog(scope)
    }

    fn is_allowed(&self, _scope: &Scope, _user: &UserInfo, _action: &Action<'_>) -> bool {
        false
    }

    fn service_account(&self, _scope: &Scope, _namespace: &str, _name: &str) -> UserInfo {
        UserInfo::default()
    }
}

/// The annotation of objects whose deletion is reviewed by a webhook that never responds.
pub(super) const SILENT_WEBHOOK: &str = "example.com/silent-webhook";

/// The fences, limits, claim labels, webhooks and policies of the shard's admission, without its other checks.
struct FenceAdmission {
    dynamic: Arc<DynamicAdmission>,
    objects: ObjectStore,
    namespaces: NamespaceLifecycle,
    usage: Arc<UsageTracker>,
    definitions: OnceLock<Arc<Definitions>>,
}

#[async_trait]
impl Admission for FenceAdmission {
    async fn mutate(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        if write.subresource.is_none() {
            let resource = (&write.resource.name, &write.resource.origin);
            self.definitions.get().unwrap().claims().label(write.scope.as_str(), resource, object);
        }
        Ok(Vec::new())
    }

    async fn validate(
        &self,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        let definitions = self.definitions.get().unwrap();
        let definition = match write.verb {
            Verb::Create => definitions.creation_fence(write.scope, write.resource, write.name)?,
            _ => None,
        };
        let is_silent = |old: &Value| old["metadata"]["annotations"][SILENT_WEBHOOK].is_string();
        if write.verb == Verb::Delete && old.is_some_and(is_silent) {
            std::future::pending::<()>().await;
        }
        self.dynamic.validate(write, object, old).await?;
        let fences = [self.namespaces.validate(write)?, creation_fence(&self.objects, write)?, definition];
        self.usage.reserve(write).await?;
        Ok(fences.into_iter().flatten().collect())
    }
}
