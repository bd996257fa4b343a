//! The resources that CRDs of any logical cluster define, for requests for partial metadata over all logical clusters.
//!
//! Logical clusters may define a resource differently, so these requests are served without a schema and in any version.

use std::sync::Arc;

use fairlead_apiserver::ScopeSelector;
use fairlead_apiserver::hub::{Hub, ObjectChange, ObjectEvent};
use fairlead_apiserver::object::ObjectBytes;
use fairlead_apiserver::registry::{
    Conversion, ObjectStore, Registry, ServedKey, ServedResource, ServedVersion, Versions,
};
use fairlead_apiserver::resource::{CustomStrategy, PrinterColumns, Shape, Verb, Verbs};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use fairlead_schema::names::NameRule;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use crate::names::{BUILT_IN, CUSTOM_RESOURCE_DEFINITIONS};

/// The CRDs of all logical clusters, counted by resource. Some 100 bytes per resource.
#[derive(Default)]
pub(super) struct DefinedResources(RwLock<FxHashMap<ResourceName, Definitions>>);

/// The CRDs of one resource.
#[derive(Default)]
struct Definitions {
    namespaced: usize,
    cluster_scoped: usize,
}

impl DefinedResources {
    /// Reads all CRDs and follows their events.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(super) fn follow(objects: &ObjectStore, hub: &Hub) -> Result<Arc<Self>, Status> {
        let index = Arc::new(Self::default());
        objects.for_each(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &ScopeSelector::all(), &mut |listed| {
            index.count(listed.object, true);
        })?;
        let follower = index.clone();
        hub.observe(
            CUSTOM_RESOURCE_DEFINITIONS.clone(),
            Box::new(move |event: &ObjectEvent| match &event.change {
                ObjectChange::Created(object) => follower.count(object.as_object(), true),
                ObjectChange::Deleted(object) => follower.count(object.as_object(), false),
                // Group, plural name and scope are immutable.
                ObjectChange::Updated { .. } => {}
            }),
        );
        Ok(index)
    }

    /// The resource in this version; `None` if no CRD defines it.
    pub(super) fn resource(
        &self,
        name: &ResourceName,
        version: &str,
        registry: Arc<dyn Registry>,
    ) -> Option<ServedResource> {
        let namespaced = self.0.read().get(name)?.namespaced > 0;
        let served = ServedVersion {
            name: version.into(),
            shape: Shape::Anything,
            open_api: None,
            columns: Arc::new(PrinterColumns::new(Vec::new())),
            selectable_fields: Vec::new(),
            deprecation_warning: None,
            subresources: Vec::new(),
            strategy: Arc::new(CustomStrategy::default()),
        };
        let scope: &[u8] = if namespaced { b"namespaced" } else { b"cluster" };
        Some(ServedResource {
            name: name.clone(),
            kind: "PartialObjectMetadata".into(),
            list_kind: "PartialObjectMetadataList".into(),
            singular: "".into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced,
            origin: Origin::Custom,
            key: ServedKey::of(&[
                b"metadata",
                name.group.as_bytes(),
                name.resource.as_bytes(),
                version.as_bytes(),
                scope,
            ]),
            versions: Arc::new(Versions { served: vec![served.clone()], storage: served }),
            schema_hash: 0,
            conversion: Conversion::None,
            storage_version_hash: None,
            name_rule: NameRule::PathSegment,
            verbs: Verbs::of(&[Verb::List, Verb::Watch]),
            registry,
        })
    }

    fn count(&self, definition: ObjectBytes<'_>, is_added: bool) {
        #[derive(Deserialize)]
        struct Wire {
            spec: WireSpec,
        }
        #[derive(Deserialize)]
        struct WireSpec {
            #[serde(default)]
            group: String,
            names: WireNames,
            scope: String,
        }
        #[derive(Deserialize)]
        struct WireNames {
            plural: String,
        }
        let Ok(Wire { spec }) = serde_json::from_slice(definition.json()) else {
            tracing::error!("a stored CRD is malformed");
            return;
        };
        let name = ResourceName::new(&spec.group, &spec.names.plural);
        let mut resources = self.0.write();
        let definitions = resources.entry(name.clone()).or_default();
        let count = if spec.scope == "Namespaced" {
            &mut definitions.namespaced
        } else {
            &mut definitions.cluster_scoped
        };
        *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
        if definitions.namespaced + definitions.cluster_scoped == 0 {
            resources.remove(&name);
        }
    }
}
