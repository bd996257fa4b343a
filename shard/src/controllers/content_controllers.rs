//! Starts the controllers of a logical cluster's content: deletion, namespaces, roles, bindings and definitions, with
//! their event feeds.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{DynamicAdmission, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{Shutdown, Tasks};
use fairlead_store::Range;

use super::aggregation::RoleAggregation;
use super::binding::{AffectedBindings, BindingKey, Bindings};
use super::bound_conversion::BoundConversions;
use super::bound_definition::BoundDefinitionCleanup;
use super::definition::{DefinitionCleanup, DefinitionKey, DefinitionNaming};
use super::deletion::Deletion;
use super::event_expiry::EventExpiry;
use super::export::Exports;
use super::garbage::{GarbageCollector, GarbageKey};
use super::namespace::{NamespaceKey, Namespaces, ReviewQueue, ReviewedNamespaces};
use super::permission_claims::PermissionClaimLabels;
use super::policy_status::PolicyStatus;
use super::resource_quota::ResourceQuotas;
use super::token_secret::TokenSecrets;
use crate::controller_runtime::{Queue, drive, feed};
use crate::exports::ExportLookup;
use crate::global::GlobalView;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{
    API_BINDINGS, API_EXPORT_ENDPOINT_SLICES, API_EXPORTS, API_RESOURCE_SCHEMAS, BUILT_IN, CLUSTER_ROLES,
    CONFIG_MAPS, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS, EVENTS, LOGICAL_CLUSTERS, NAMESPACES, SECRETS,
    SERVICE_ACCOUNTS, VALIDATING_ADMISSION_POLICIES, WORKSPACES,
};
use crate::quota::UsageTracker;
use crate::service_accounts::TokenIssuer;

/// Dependencies of the controllers.
pub(crate) struct ContentControllers {
    pub(crate) objects: ObjectStore,
    pub(crate) hub: Hub,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) admission: Arc<DynamicAdmission>,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) exports: Arc<ExportLookup>,
    pub(crate) global: Arc<GlobalView>,
    pub(crate) usage: Arc<UsageTracker>,
    pub(crate) issuer: Arc<TokenIssuer>,
    /// The time that events are kept; zero: for ever.
    pub(crate) keep_events: Duration,
    /// PEM bundle for `kube-root-ca.crt`.
    pub(crate) serving_ca: String,
}

impl ContentControllers {
    /// Starts the controllers. They run until the process drains.
    pub(crate) fn start(&self, tasks: &Tasks, shutdown: &Shutdown) {
        self.start_deletion(tasks, shutdown);
        self.start_namespaces(tasks, shutdown);
        self.start_aggregation(tasks, shutdown);
        self.start_policy_status(tasks, shutdown);
        self.start_garbage_collection(tasks, shutdown);
        self.start_quotas(tasks, shutdown);
        self.start_permission_claims(tasks, shutdown);
        self.start_event_expiry(tasks, shutdown);
        self.start_token_secrets(tasks, shutdown);
        self.start_exports(tasks, shutdown);
        let cleanup =
            BoundDefinitionCleanup { objects: self.objects.clone(), definitions: self.definitions.clone() };
        Arc::new(cleanup).start(tasks, shutdown);
        let conversions = BoundConversions::new(
            self.objects.clone(),
            self.definitions.clone(),
            self.exports.clone(),
            self.global.clone(),
        );
        Arc::new(conversions).start(&self.hub, tasks, shutdown);
        let naming = self.start_naming(tasks, shutdown);
        let bindings = self.start_bindings(naming.clone(), tasks, shutdown);
        self.start_definitions(bindings, naming, tasks, shutdown);
    }

    fn start_deletion(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::new());
        let controller = Arc::new(Deletion {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            hub: self.hub.clone(),
        });
        tasks.spawn("logical cluster deletion", drive(controller, queue.clone(), shutdown.clone()));
        for (name, resource, origin) in [
            ("events of deleted logical clusters", &LOGICAL_CLUSTERS, Some(CUSTOM)),
            ("events of deleted workspaces", &WORKSPACES, None),
        ] {
            let (clusters, resync_queue, event_queue) = (self.clusters.clone(), queue.clone(), queue.clone());
            let resync = move || {
                let deleted = |cluster: &str| clusters.get(cluster).is_some_and(|state| state.is_deleted);
                for cluster in clusters.names() {
                    if deleted(&cluster) {
                        resync_queue.add(cluster);
                    }
                }
            };
            let keys = move |event: &ObjectEvent| {
                Deletion::keys_of(event).into_iter().for_each(|key| event_queue.add(key))
            };
            tasks.spawn(
                name,
                feed(self.hub.clone(), (**resource).clone(), origin, shutdown.clone(), resync, keys),
            );
        }
    }

    fn start_namespaces(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::with_groups(|(cluster, _): &NamespaceKey| cluster));
        let reviews = ReviewQueue::new();
        let controller = Arc::new(Namespaces {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
            hub: self.hub.clone(),
            admission: self.admission.clone(),
            reviews: reviews.clone(),
            serving_ca: self.serving_ca.clone(),
        });
        let reviewed = Arc::new(ReviewedNamespaces::new(controller.clone()));
        tasks.spawn("content of namespaces", drive(reviewed, reviews.queue(), shutdown.clone()));
        tasks.spawn("namespaces", drive(controller, queue.clone(), shutdown.clone()));
        for (name, resource) in [
            ("namespace events", &NAMESPACES),
            ("service account events", &SERVICE_ACCOUNTS),
            ("config map events", &CONFIG_MAPS),
        ] {
            let (objects, resync_queue, event_queue) = (self.objects.clone(), queue.clone(), queue.clone());
            let resync = move || {
                for_each_key(&objects, &NAMESPACES, &BUILT_IN, |cluster, name| {
                    resync_queue.add((cluster, name))
                })
            };
            let keys = move |event: &ObjectEvent| {
                Namespaces::keys_of(event).into_iter().for_each(|key| event_queue.add(key))
            };
            let origin = Some(BUILT_IN);
            tasks.spawn(
                name,
                feed(self.hub.clone(), (**resource).clone(), origin, shutdown.clone(), resync, keys),
            );
        }
    }

    fn start_aggregation(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::new());
        let controller = Arc::new(RoleAggregation {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
        });
        tasks.spawn("role aggregation", drive(controller.clone(), queue.clone(), shutdown.clone()));
        let (resync_controller, resync_queue) = (controller.clone(), queue.clone());
        let resync = move || {
            resync_controller
                .aggregated(&ScopeSelector::all())
                .into_iter()
                .for_each(|key| resync_queue.add(key));
        };
        let keys = move |event: &ObjectEvent| {
            controller.keys_of(event).into_iter().for_each(|key| queue.add(key));
        };
        let resource = CLUSTER_ROLES.clone();
        tasks.spawn(
            "role events",
            feed(self.hub.clone(), resource, Some(BUILT_IN), shutdown.clone(), resync, keys),
        );
    }

    fn start_policy_status(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::new());
        let controller =
            Arc::new(PolicyStatus { objects: self.objects.clone(), definitions: self.definitions.clone() });
        tasks.spawn("policy status", drive(controller, queue.clone(), shutdown.clone()));
        let (objects, resync_queue) = (self.objects.clone(), queue.clone());
        let resource = &VALIDATING_ADMISSION_POLICIES;
        let resync = move || {
            for_each_key(&objects, resource, &BUILT_IN, |cluster, name| resync_queue.add((cluster, name)));
        };
        let keys = move |event: &ObjectEvent| queue.add(((*event.scope).into(), event.name.clone()));
        tasks.spawn(
            "policy events",
            feed(self.hub.clone(), (**resource).clone(), Some(BUILT_IN), shutdown.clone(), resync, keys),
        );
    }

    fn start_garbage_collection(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::with_groups(GarbageKey::cluster));
        let collector = Arc::new(GarbageCollector::new(
            self.objects.clone(),
            self.definitions.clone(),
            self.clusters.clone(),
            self.hub.clone(),
        ));
        collector.follow(&queue);
        let (resumed, resume_queue) = (collector.clone(), queue.clone());
        tasks.spawn("earlier garbage", async move { resumed.resume(&resume_queue).await });
        tasks.spawn("garbage collection", drive(collector, queue, shutdown.clone()));
    }

    fn start_quotas(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let controller = Arc::new(ResourceQuotas {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            usage: self.usage.clone(),
        });
        tasks.spawn("resource quotas", drive(controller, self.usage.queue().clone(), shutdown.clone()));
    }

    fn start_permission_claims(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let controller = Arc::new(PermissionClaimLabels {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
        });
        let queue = self.definitions.claims().queue().clone();
        tasks.spawn("permission claims", drive(controller, queue, shutdown.clone()));
    }

    fn start_event_expiry(&self, tasks: &Tasks, shutdown: &Shutdown) {
        if self.keep_events.is_zero() {
            return;
        }
        let queue = Arc::new(Queue::new());
        let controller = Arc::new(EventExpiry { objects: self.objects.clone(), keep: self.keep_events });
        tasks.spawn("event expiry", drive(controller, queue.clone(), shutdown.clone()));
        let (objects, resync_queue) = (self.objects.clone(), queue.clone());
        let resync = move || {
            for_each_namespaced_key(&objects, &EVENTS, &BUILT_IN, |cluster, namespace, name| {
                resync_queue.add((cluster, namespace, name))
            })
        };
        let keys = move |event: &ObjectEvent| {
            EventExpiry::key_of(event).into_iter().for_each(|key| queue.add(key));
        };
        tasks.spawn(
            "events of events",
            feed(self.hub.clone(), EVENTS.clone(), Some(BUILT_IN), shutdown.clone(), resync, keys),
        );
    }

    fn start_token_secrets(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::new());
        let controller = Arc::new(TokenSecrets {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            issuer: self.issuer.clone(),
            serving_ca: self.serving_ca.clone(),
        });
        tasks.spawn("token secrets", drive(controller.clone(), queue.clone(), shutdown.clone()));
        for (name, resource) in
            [("token secret events", &SECRETS), ("events of accounts with tokens", &SERVICE_ACCOUNTS)]
        {
            let (controller, resync_queue, event_queue) = (controller.clone(), queue.clone(), queue.clone());
            let resync = move || controller.all().into_iter().for_each(|key| resync_queue.add(key));
            let keys = move |event: &ObjectEvent| {
                TokenSecrets::key_of(event).into_iter().for_each(|key| event_queue.add(key));
            };
            tasks.spawn(
                name,
                feed(self.hub.clone(), (**resource).clone(), Some(BUILT_IN), shutdown.clone(), resync, keys),
            );
        }
    }

    fn start_bindings(&self, naming: NamingQueue, tasks: &Tasks, shutdown: &Shutdown) -> BindingQueue {
        let queue = Arc::new(Queue::new());
        let controller = Arc::new(Bindings {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
            exports: self.exports.clone(),
        });
        tasks.spawn("bindings", drive(controller.clone(), queue.clone(), shutdown.clone()));
        let binding_queue = BindingQueue { controller, queue };
        let (resync_queue, event_queue) = (binding_queue.clone(), binding_queue.clone());
        let resource = API_BINDINGS.clone();
        tasks.spawn(
            "binding events",
            feed(
                self.hub.clone(),
                resource,
                Some(CUSTOM),
                shutdown.clone(),
                move || resync_queue.add_unsettled(),
                move |event| {
                    event_queue.add_for(event);
                    naming.add_for(event);
                },
            ),
        );
        for (name, resource) in [("export events", &API_EXPORTS), ("schema events", &API_RESOURCE_SCHEMAS)] {
            let event_queue = binding_queue.clone();
            let keys = move |event: &ObjectEvent| event_queue.add_for(event);
            let resource = (**resource).clone();
            let feed = feed(self.hub.clone(), resource.clone(), Some(CUSTOM), shutdown.clone(), || {}, keys);
            tasks.spawn(name, feed);
            let (bindings, replica_queue) =
                (self.definitions.bindings().clone(), binding_queue.queue.clone());
            // The view of other shards owns this function, and the look-up owns the view.
            let exports = Arc::downgrade(&self.exports);
            let replicated = move |cluster: &str| {
                let Some(exports) = exports.upgrade() else { return };
                replica_queue.add_bulk(bindings.of_exports_in(cluster, &exports.paths_of_replicas(cluster)));
            };
            self.global.on_change(resource.clone(), Box::new(replicated));
        }
        binding_queue
    }

    fn start_exports(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::new());
        let controller = Arc::new(Exports {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
        });
        tasks.spawn("exports", drive(controller.clone(), queue.clone(), shutdown.clone()));
        for (name, resource, origin) in [
            ("events of exports", &API_EXPORTS, CUSTOM),
            ("events of identity secrets", &SECRETS, BUILT_IN),
            ("events of default endpoint slices", &API_EXPORT_ENDPOINT_SLICES, CUSTOM),
        ] {
            let (objects, resync_queue) = (self.objects.clone(), queue.clone());
            let resync = move || {
                for_each_key(&objects, &API_EXPORTS, &CUSTOM, |cluster, name| {
                    resync_queue.add((cluster, name))
                });
            };
            let (controller, event_queue) = (controller.clone(), queue.clone());
            let keys = move |event: &ObjectEvent| {
                controller.keys_of(event).into_iter().for_each(|key| event_queue.add(key));
            };
            let resource = (**resource).clone();
            let feed = feed(self.hub.clone(), resource, Some(origin), shutdown.clone(), resync, keys);
            tasks.spawn(name, feed);
        }
    }

    fn start_naming(&self, tasks: &Tasks, shutdown: &Shutdown) -> NamingQueue {
        let queue = Arc::new(Queue::new());
        let controller = Arc::new(DefinitionNaming {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
        });
        tasks.spawn("definition names", drive(controller.clone(), queue.clone(), shutdown.clone()));
        NamingQueue { controller, queue }
    }

    fn start_definitions(
        &self,
        bindings: BindingQueue,
        naming: NamingQueue,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) {
        let queue = Arc::new(Queue::new());
        let controller = Arc::new(DefinitionCleanup {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
            hub: self.hub.clone(),
        });
        tasks.spawn("definition cleanup", drive(controller, queue.clone(), shutdown.clone()));
        let (objects, resync_queue, binding_queue) = (self.objects.clone(), queue.clone(), bindings.clone());
        let naming_queue = naming.clone();
        let resync = move || {
            let resource = &CUSTOM_RESOURCE_DEFINITIONS;
            for_each_key(&objects, resource, &BUILT_IN, |cluster, name| resync_queue.add((cluster, name)));
            binding_queue.add_unsettled();
            naming_queue.add_waiting();
        };
        let keys = move |event: &ObjectEvent| {
            DefinitionCleanup::keys_of(event).into_iter().for_each(|key| queue.add(key));
            bindings.add_for(event);
            naming.add_for(event);
        };
        let resource = CUSTOM_RESOURCE_DEFINITIONS.clone();
        tasks.spawn(
            "definition events",
            feed(self.hub.clone(), resource, Some(BUILT_IN), shutdown.clone(), resync, keys),
        );
    }
}

/// Adds bindings to the queue of their controller.
#[derive(Clone)]
struct BindingQueue {
    controller: Arc<Bindings>,
    queue: Arc<Queue<BindingKey>>,
}

impl BindingQueue {
    fn add_for(&self, event: &ObjectEvent) {
        match self.controller.keys_of(event) {
            AffectedBindings::Few(keys) => keys.into_iter().for_each(|key| self.queue.add(key)),
            AffectedBindings::OfExports(keys) => self.queue.add_bulk(keys),
        }
    }

    fn add_unsettled(&self) {
        self.controller.unsettled().into_iter().for_each(|key| self.queue.add(key));
    }
}

/// Adds CRDs that wait for names to the queue of their controller.
#[derive(Clone)]
struct NamingQueue {
    controller: Arc<DefinitionNaming>,
    queue: Arc<Queue<DefinitionKey>>,
}

impl NamingQueue {
    fn add_for(&self, event: &ObjectEvent) {
        self.controller.keys_of(event).into_iter().for_each(|key| self.queue.add(key));
    }

    fn add_waiting(&self) {
        self.controller.waiting(&ScopeSelector::all()).into_iter().for_each(|key| self.queue.add(key));
    }
}

/// Visits logical cluster and name of all objects of a cluster-scoped resource.
pub(super) fn for_each_key(
    objects: &ObjectStore,
    resource: &ResourceName,
    origin: &Origin,
    mut visit: impl FnMut(Box<str>, Box<str>),
) {
    for_each_namespaced_key(objects, resource, origin, |cluster, _, name| visit(cluster, name));
}

/// Visits logical cluster, namespace and name of all objects of a resource.
fn for_each_namespaced_key(
    objects: &ObjectStore,
    resource: &ResourceName,
    origin: &Origin,
    mut visit: impl FnMut(Box<str>, Box<str>, Box<str>),
) {
    let codec = objects.codec();
    let range = Range::prefix(codec.range(resource, origin, "", None));
    let read = objects.store().scan(&range, None, &mut |record| {
        if let Ok(key) = codec.decode(record.key) {
            visit(key.scope.into(), key.namespace.unwrap_or_default().into(), key.name.into());
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = read {
        tracing::error!(%resource, %error, "objects cannot be read");
    }
}
