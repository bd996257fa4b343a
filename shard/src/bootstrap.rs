//! Fills the store before a shard serves: system logical clusters, and `root` on root's shard.
//!
//! Everything is idempotent and runs at every start; a start with a complete store writes nothing.

mod precedence;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_api::{
    BOOTSTRAP_VERSION, Condition, IDENTITY_NAMESPACE, annotation, condition_type, conditions_of,
    set_condition, write_conditions,
};
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_config::Battery;
use fairlead_process::Status;
use fairlead_store::CommitError;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::exports::{RootExports, as_bound, locks_of};
use crate::index::Definitions;
use crate::names::{
    API_EXPORTS, API_RESOURCE_SCHEMAS, BOUND_CRDS, BUILT_IN, CONFIG_MAPS, CUSTOM, SECRETS, SYSTEM_ADMIN,
    SYSTEM_CRDS, SYSTEM_SHARD,
};
use crate::resource_locks::ResourceLocks;
use crate::writes::Writes;

use precedence::begin;

/// ConfigMap in `system:shard` that stores root's exports and schemas.
const EXPORT_CACHE: &str = "apiexport-identity-cache";

/// Failure of the bootstrap. The cause is the store or its content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootstrapError {
    /// The store refused a commit.
    #[error("the store cannot be filled")]
    Commit(#[from] CommitError),
    /// An object could not be read or created.
    #[error("the store's content cannot be used: {0}")]
    Object(#[from] Status),
    /// The system provides no random bytes for an identity.
    #[error("the system provides no random bytes")]
    Random(getrandom::Error),
}

/// Fills `system:system-crds` and `system:admin`. Every shard has them, and they depend on nothing else.
pub(crate) async fn system(objects: &ObjectStore, definitions: &Definitions) -> Result<(), BootstrapError> {
    let mut writes = begin(objects, definitions, BOOTSTRAP_VERSION).await?;
    for definition in fairlead_api::system_crds() {
        writes.ensure(SYSTEM_CRDS, with_established_status(definition))?;
    }
    for object in fairlead_api::system_admin() {
        writes.ensure(SYSTEM_ADMIN, object)?;
    }
    writes.commit_in_parts().await?;
    Ok(())
}

/// Fills root with its schemas and exports, and returns the data that bindings need.
pub(crate) async fn root_exports(
    objects: &ObjectStore,
    definitions: &Definitions,
) -> Result<RootExports, BootstrapError> {
    let phase = fairlead_api::root_phase0();
    let mut writes = begin(objects, definitions, BOOTSTRAP_VERSION).await?;
    writes.ensure("root", fairlead_api::identity_namespace())?;
    for object in phase {
        match object["kind"].as_str() {
            Some("APIResourceSchema") => writes.ensure("root", object)?,
            Some("APIExport") => ensure_export(objects, &mut writes, object)?,
            _ => {}
        }
    }
    writes.commit_in_parts().await?;
    read_exports(objects)
}

/// Fills root with its LogicalCluster, bindings, types and roles.
pub(crate) async fn root(
    objects: &ObjectStore,
    definitions: &Definitions,
    exports: &RootExports,
    settings: &ShardSettings<'_>,
) -> Result<(), BootstrapError> {
    let mut writes = begin(objects, definitions, BOOTSTRAP_VERSION).await?;
    let bindings = bound_bindings(&fairlead_api::root_phase0(), exports);
    for object in fairlead_api::root_phase0() {
        if object["kind"] == "LogicalCluster" {
            ensure_cluster(&mut writes, "root", object, &bindings, exports, Some(settings))?;
        }
    }
    for binding in &bindings {
        writes.ensure("root", binding.clone())?;
    }
    for export in objects.list(&API_EXPORTS, &CUSTOM, &root_scope(), None)? {
        let export = objects.tree(&export)?;
        let metadata = serde_json::from_value(export["metadata"].clone()).map_err(Status::internal)?;
        if let Some(slice) = fairlead_api::default_endpoint_slice(&metadata, "root") {
            writes.ensure("root", with_valid_conditions(slice))?;
        }
    }
    let home_creators: Vec<&str> = settings.home_creators.iter().map(String::as_str).collect();
    for object in fairlead_api::root_phase1(&home_creators) {
        let is_included = match object["metadata"]["annotations"][annotation::BATTERY].as_str() {
            Some("workspace-types") => settings.batteries.contains(&Battery::WorkspaceTypes),
            Some("metrics-viewer") => settings.batteries.contains(&Battery::MetricsViewer),
            _ => true,
        };
        if is_included {
            writes.ensure("root", object)?;
        }
    }
    writes.commit_in_parts().await?;
    Ok(())
}

/// Settings of the shard for the objects of root.
pub(crate) struct ShardSettings<'p> {
    pub(crate) shard: &'p str,
    pub(crate) external_url: &'p str,
    pub(crate) batteries: &'p [Battery],
    /// Groups whose members may create their home workspace.
    pub(crate) home_creators: &'p [String],
}

/// Fills `system:shard` and `system:bound-crds`, and stores root's exports.
pub(crate) async fn shard(
    objects: &ObjectStore,
    definitions: &Definitions,
    exports: &RootExports,
    schemas: &[Value],
) -> Result<(), BootstrapError> {
    let mut writes = begin(objects, definitions, BOOTSTRAP_VERSION).await?;
    for definition in RootExports::bound_definitions(schemas) {
        writes.ensure(BOUND_CRDS, with_established_status(definition))?;
    }
    let phase = fairlead_api::system_shard();
    let bindings = bound_bindings(&phase, exports);
    for object in phase {
        match object["kind"].as_str() {
            Some("LogicalCluster") => {
                ensure_cluster(&mut writes, SYSTEM_SHARD, object, &bindings, exports, None)?
            }
            Some("APIBinding") => {}
            _ => writes.ensure(SYSTEM_SHARD, object)?,
        }
    }
    for binding in bindings {
        writes.ensure(SYSTEM_SHARD, binding)?;
    }
    let identities = exports.identities();
    let mut data: serde_json::Map<String, Value> =
        identities.iter().map(|(name, identity)| (name.clone(), (**identity).into())).collect();
    let exports_json = serde_json::to_string(&exports.objects()).map_err(Status::internal)?;
    data.insert("fairlead.exports".into(), exports_json.into());
    let schemas_json: Result<String, Status> = serde_json::to_string(schemas).map_err(Status::internal);
    data.insert("fairlead.schemas".into(), schemas_json?.into());
    writes.ensure(
        SYSTEM_SHARD,
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": EXPORT_CACHE, "namespace": "default"},
            "data": data,
        }),
    )?;
    writes.commit_in_parts().await?;
    Ok(())
}

/// Root's exports and schemas as this shard stored them last.
pub(crate) fn stored_exports(objects: &ObjectStore) -> Result<Option<(RootExports, Vec<Value>)>, Status> {
    let scope = Scope::new(SYSTEM_SHARD);
    let Some(stored) = objects.get(&CONFIG_MAPS, &BUILT_IN, &scope, Some("default"), EXPORT_CACHE)? else {
        return Ok(None);
    };
    let data = objects.tree(&stored)?;
    let text = |key: &str| data["data"][key].as_str().unwrap_or_default().to_owned();
    let exports: Option<Vec<Value>> = serde_json::from_str(&text("fairlead.exports")).ok();
    let schemas: Option<Vec<Value>> = serde_json::from_str(&text("fairlead.schemas")).ok();
    let stored = exports.zip(schemas);
    Ok(stored.map(|(exports, schemas)| (RootExports::read(&exports, &schemas), schemas)))
}

/// The schemas of root in the store of root's shard.
pub(crate) fn root_schemas(objects: &ObjectStore) -> Result<Vec<Value>, Status> {
    trees(objects, objects.list(&API_RESOURCE_SCHEMAS, &CUSTOM, &root_scope(), None)?)
}

fn read_exports(objects: &ObjectStore) -> Result<RootExports, BootstrapError> {
    let exports = trees(objects, objects.list(&API_EXPORTS, &CUSTOM, &root_scope(), None)?)?;
    Ok(RootExports::read(&exports, &root_schemas(objects)?))
}

fn trees(objects: &ObjectStore, stored: Vec<StoredObject>) -> Result<Vec<Value>, Status> {
    stored.iter().map(|stored| objects.tree(stored)).collect()
}

fn root_scope() -> ScopeSelector {
    ScopeSelector::One(Scope::new("root"))
}

/// Creates or updates an export. It gets an identity once: a changed identity would hide its objects.
fn ensure_export(
    objects: &ObjectStore,
    writes: &mut Writes<'_>,
    mut export: Value,
) -> Result<(), BootstrapError> {
    let name = export["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let secret = objects.get(&SECRETS, &BUILT_IN, &Scope::new("root"), Some(IDENTITY_NAMESPACE), &name)?;
    let key = match secret {
        Some(secret) => {
            let secret = objects.tree(&secret)?;
            let encoded = secret["data"]["key"].as_str().unwrap_or_default().to_owned();
            STANDARD.decode(encoded).map_err(Status::internal)?
        }
        None => {
            let mut random = [0; 32];
            getrandom::fill(&mut random).map_err(BootstrapError::Random)?;
            let key = fairlead_names::base62(&random).into_bytes();
            writes.create("root", fairlead_api::identity_secret(&name, &STANDARD.encode(&key)))?;
            key
        }
    };
    export["spec"]["identity"] = json!({"secretRef": {"namespace": IDENTITY_NAMESPACE, "name": name}});
    let mut conditions = conditions_of(&export);
    set_condition(&mut conditions, Condition::met(condition_type::IDENTITY_VALID), Timestamp::now());
    export["status"] = json!({"identityHash": fairlead_names::hex_sha256(&key)});
    write_conditions(&mut export, &conditions);
    writes.ensure("root", export)?;
    Ok(())
}

/// Creates or updates the LogicalCluster of a system cluster or of root, with phase Ready.
fn ensure_cluster(
    writes: &mut Writes<'_>,
    cluster: &str,
    mut object: Value,
    bindings: &[Value],
    exports: &RootExports,
    settings: Option<&ShardSettings<'_>>,
) -> Result<(), BootstrapError> {
    let resource = writes.resource_of(&object)?;
    let stored = writes.stored(&resource, cluster, &object)?;
    let mut locks = match stored {
        Some(stored) => ResourceLocks::of(&writes.tree(&stored)?),
        None => ResourceLocks::default(),
    };
    for binding in bindings {
        let name = binding["metadata"]["name"].as_str().unwrap_or_default();
        let export =
            binding["spec"]["reference"]["export"]["name"].as_str().and_then(|name| exports.get(name));
        locks.0.extend(export.into_iter().flat_map(|export| locks_of(name, export).0));
    }
    locks.set(&mut object);
    let mut conditions = Vec::new();
    set_condition(&mut conditions, Condition::met(condition_type::WORKSPACE_INITIALIZED), Timestamp::now());
    object["status"] = json!({"phase": "Ready"});
    if let Some(settings) = settings {
        object["status"]["URL"] = fairlead_api::workspace_url(settings.external_url, cluster).into();
        object["metadata"]["annotations"][annotation::SHARD] = settings.shard.into();
    }
    object["metadata"]["labels"][fairlead_api::label::PHASE] = "Ready".into();
    write_conditions(&mut object, &conditions);
    writes.ensure(cluster, object)?;
    Ok(())
}

/// The APIBindings among `objects`, with the status of bound ones.
fn bound_bindings(objects: &[Value], exports: &RootExports) -> Vec<Value> {
    let bindings = objects.iter().filter(|object| object["kind"] == "APIBinding");
    let bound = |binding: &Value| {
        let export = exports.get(binding["spec"]["reference"]["export"]["name"].as_str()?)?;
        Some(as_bound(binding.clone(), export, Timestamp::now()))
    };
    bindings.filter_map(bound).collect()
}

/// Marks an endpoint slice as valid: its export and partition exist.
fn with_valid_conditions(mut slice: Value) -> Value {
    let mut conditions = Vec::new();
    for kind in [condition_type::API_EXPORT_VALID, condition_type::PARTITION_VALID] {
        set_condition(&mut conditions, Condition::met(kind), Timestamp::now());
    }
    slice["status"] = json!({"endpoints": []});
    write_conditions(&mut slice, &conditions);
    slice
}

/// Marks a system or bound CRD as established, so that it is served from the start.
pub(crate) fn with_established_status(mut definition: Value) -> Value {
    let now = crate::writes::now();
    let spec = &definition["spec"];
    let names = spec["names"].clone();
    let stored: Vec<Value> = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    definition["status"] = json!({
        "acceptedNames": names,
        "storedVersions": stored,
        "conditions": [
            {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now, "reason": "NoConflicts",
             "message": "no conflicts found"},
            {"type": "Established", "status": "True", "lastTransitionTime": now, "reason": "InitialNamesAccepted",
             "message": "the initial names have been accepted"},
        ],
    });
    definition
}
