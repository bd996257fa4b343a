//! Writes the definitions of what is served as real objects: shards watch them to learn what there is.

use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_names::Origin;
use fairlead_process::Status;
use fairlead_store::{CommitError, Expect, Mutation};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::definitions::{OWN_CLUSTER, OWN_SHARD, definitions, definitions_name};

/// Brings the stored definitions up to date, in one commit; writes nothing if they are.
///
/// # Errors
/// 500 when the store fails.
pub(crate) async fn write_definitions(objects: &ObjectStore) -> Result<(), Status> {
    let scope = Scope::new(&format!("{OWN_SHARD}/{OWN_CLUSTER}"));
    let mut mutations = Vec::new();
    for wanted in definitions() {
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let stored = objects.get(&definitions_name(), &Origin::BuiltIn, &scope, None, &name)?;
        let (object, expect) = match &stored {
            None => (new_definition(wanted), Expect::Absent),
            Some(stored) => {
                let present = objects.tree(stored)?;
                if present["spec"] == wanted["spec"] {
                    continue;
                }
                (changed_definition(present, wanted), Expect::At(stored.revision))
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
    if mutations.is_empty() {
        return Ok(());
    }
    objects.store().commit(mutations).await.map(drop).map_err(|error: CommitError| Status::internal(error))
}

fn new_definition(mut definition: Value) -> Value {
    definition["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    definition["metadata"]["creationTimestamp"] = now().into();
    definition["metadata"]["generation"] = 1.into();
    definition["status"] = status(&definition["spec"], &now());
    definition
}

fn changed_definition(mut present: Value, mut wanted: Value) -> Value {
    let generation = present["metadata"]["generation"].as_i64().unwrap_or(0);
    present["metadata"]["generation"] = (generation + 1).into();
    present["spec"] = wanted["spec"].take();
    present["status"] = status(&present["spec"], &now());
    present
}

/// What the controllers of a Kubernetes API server would find out.
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
