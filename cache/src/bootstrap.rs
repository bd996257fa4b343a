//! Stores the CustomResourceDefinitions of the served resources, which shards watch.

use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_names::Origin;
use fairlead_process::Status;
use fairlead_store::{CommitError, Expect, Mutation};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::definitions::{OWN_CLUSTER, OWN_SHARD, definitions, definitions_name};

/// How often the definitions are compared again. A process that starts at the same time on the same store, such as another
/// replica of root's shard, can only be faster as often as it has commits.
const ATTEMPTS: u32 = 256;

/// Creates missing definitions and updates changed ones. Writes nothing if all are up to date.
///
/// # Errors
/// 500 if the store fails.
pub(crate) async fn write_definitions(objects: &ObjectStore) -> Result<(), Status> {
    for _ in 0..ATTEMPTS {
        match objects.commit_each(changes(objects)?).await {
            Ok(()) => return Ok(()),
            Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(Status::internal(error)),
        }
    }
    Err(Status::internal("the definitions are written by another process again and again"))
}

/// The writes that the definitions need.
fn changes(objects: &ObjectStore) -> Result<Vec<Mutation>, Status> {
    let scope = Scope::new(&format!("{OWN_SHARD}/{OWN_CLUSTER}"));
    let mut mutations = Vec::new();
    for definition in definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let stored = objects.get(&definitions_name(), &Origin::BuiltIn, &scope, None, &name)?;
        let (object, expect) = match &stored {
            None => (new_definition(definition), Expect::Absent),
            Some(stored) => {
                let stored_definition = objects.tree(stored)?;
                if stored_definition["spec"] == definition["spec"] {
                    continue;
                }
                (changed_definition(stored_definition, definition), Expect::At(stored.revision))
            }
        };
        let encoded = objects.encode(object, 0)?;
        let key = objects.key(&definitions_name(), &Origin::BuiltIn, scope.as_str(), None, &name);
        mutations.push(Mutation {
            key,
            expect,
            change: fairlead_store::Change::Put(encoded.stored().clone()),
        });
    }
    Ok(mutations)
}

fn new_definition(mut definition: Value) -> Value {
    definition["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    definition["metadata"]["creationTimestamp"] = now().into();
    definition["metadata"]["generation"] = 1.into();
    definition["status"] = status(&definition["spec"], &now());
    definition
}

fn changed_definition(mut stored_definition: Value, mut definition: Value) -> Value {
    let generation = stored_definition["metadata"]["generation"].as_i64().unwrap_or(0);
    stored_definition["metadata"]["generation"] = (generation + 1).into();
    stored_definition["spec"] = definition["spec"].take();
    stored_definition["status"] = status(&stored_definition["spec"], &now());
    stored_definition
}

/// The status that the controllers of a Kubernetes API server would compute.
fn status(spec: &Value, since: &str) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        })
    };
    let versions = spec["versions"].as_array().into_iter().flatten();
    let stored: Vec<&Value> =
        versions.filter(|version| version["storage"] == true).map(|version| &version["name"]).collect();
    json!({
        "acceptedNames": spec["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    })
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
