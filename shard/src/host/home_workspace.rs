//! Home workspaces: `GET` of the workspace `~` in root creates the logical cluster of the user, and returns it as a Workspace
//! once it is ready. It has no parent and no Workspace object.

use std::sync::Arc;
use std::time::Duration;

use fairlead_api::{LOGICAL_CLUSTER_NAME, NewLogicalCluster, TypeReference};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{
    Action, Attributes, Response, Scope, ScopeSelector, content, failure, forbidden_because,
};
use fairlead_authn::UserInfo;
use fairlead_names::ClusterName;
use fairlead_process::{Status, StatusReason};
use fairlead_store::CommitError;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Authorizer;
use crate::index::Definitions;
use crate::names::{CUSTOM, LOGICAL_CLUSTERS};
use crate::workspace_types::TypeLookup;
use crate::writes::Writes;

/// The longest time in which a home workspace becomes ready.
const CREATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Creates and finds home workspaces.
pub(crate) struct HomeWorkspaces {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) types: Arc<TypeLookup>,
    /// Name of this shard.
    pub(crate) shard: String,
}

impl HomeWorkspaces {
    /// The home workspace of a user. It is created for users who may create the workspace `~` in root; an existing one
    /// needs no permission, because it is the user's own.
    pub(super) async fn get(&self, user: &UserInfo, authorizer: &Authorizer) -> Response {
        self.find_or_create(user, authorizer).await.unwrap_or_else(|status| failure(&status))
    }

    async fn find_or_create(&self, user: &UserInfo, authorizer: &Authorizer) -> Result<Response, Status> {
        let home = ClusterName::home_of(&user.name);
        let scope = Scope::new(home.as_str());
        let stored = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME)?;
        let Some(stored) = stored else {
            self.authorize_creation(user, authorizer).await?;
            self.create(&home, user).await?;
            return Ok(creating());
        };
        let logical_cluster = self.objects.tree(&stored)?;
        match logical_cluster["status"]["phase"].as_str() {
            None | Some("Scheduling") => Ok(creating()),
            Some("Initializing") => {
                let created = logical_cluster["metadata"]["creationTimestamp"].as_str();
                let created = created.and_then(|text| text.parse::<Timestamp>().ok());
                let age = created.map(|created| Timestamp::now().duration_since(created).unsigned_abs());
                if age.is_some_and(|age| age > CREATION_TIMEOUT) {
                    return Err(Status::internal("home workspace creation timeout"));
                }
                Ok(creating())
            }
            Some(_) => {
                let workspace = workspace(&home, &logical_cluster);
                Ok(content(StatusCode::OK, "application/json", workspace.to_string()))
            }
        }
    }

    async fn authorize_creation(&self, user: &UserInfo, authorizer: &Authorizer) -> Result<(), Status> {
        let root = ScopeSelector::One(Scope::new("root"));
        let action = Action::Resource {
            verb: "create",
            group: "tenancy.kcp.io",
            version: "",
            resource: "workspaces",
            subresource: None,
            namespace: None,
            name: Some("~"),
        };
        let attributes = Attributes::new(user, Some(&root), action);
        if authorizer.authorize(&attributes).decided().await.is_allowed() {
            Ok(())
        } else {
            Err(forbidden_because(user, &action, "workspace access not permitted"))
        }
    }

    async fn create(&self, home: &ClusterName, user: &UserInfo) -> Result<(), Status> {
        let reference = TypeReference { name: "home".to_owned(), path: "root".to_owned() };
        let own = self.types.find(&reference)?;
        let own =
            own.ok_or_else(|| Status::service_unavailable("workspace type root:home is not known here", 1))?;
        let aliases = self.types.aliases(own)?.map_err(Status::internal)?;
        let owner = fairlead_api::UserInfo {
            username: user.name.clone(),
            uid: user.uid.clone().unwrap_or_default(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        };
        let new = NewLogicalCluster {
            owner: None,
            path: format!("user:{}", user.name),
            type_reference: reference,
            shard: self.shard.clone(),
            owner_annotation: Some(fairlead_api::owner_annotation(&owner)),
            required_groups: None,
            initializers: fairlead_api::initializers(&aliases),
            terminators: fairlead_api::terminators(&aliases),
        };
        let mut object = new.build();
        object["status"] = json!({"phase": "Scheduling"});
        let mut writes = Writes::new(&self.objects, &self.definitions);
        writes.create(home.as_str(), object)?;
        match writes.commit().await {
            // Another request of the user has created it.
            Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
            Err(error) => Err(Status::internal(error)),
        }
    }
}

/// kcp's response while the workspace is not ready: clients repeat the request after the given time.
fn creating() -> Response {
    let mut response =
        failure(&Status::new(429, StatusReason::TooManyRequests, "Creating the home workspace"));
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The logical cluster in the form of a Workspace.
fn workspace(home: &ClusterName, logical_cluster: &Value) -> Value {
    let (metadata, status) = (&logical_cluster["metadata"], &logical_cluster["status"]);
    let mut own = json!({"phase": status["phase"]});
    for field in ["conditions", "initializers"] {
        if status[field].as_array().is_some_and(|list| !list.is_empty()) {
            own[field] = status[field].clone();
        }
    }
    json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": metadata["name"], "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {"cluster": home.as_str(), "URL": status["URL"]},
        "status": own,
    })
}

#[cfg(test)]
mod tests {
    use fairlead_api::annotation;

    use super::*;

    #[test]
    fn a_home_workspace_is_shown_without_a_name_of_its_own() {
        let logical_cluster = json!({
            "metadata": {
                "name": "cluster", "creationTimestamp": "2026-11-21T13:19:14Z",
                "annotations": {annotation::PATH: "user:ann"},
            },
            "status": {"phase": "Ready", "URL": "https://x/clusters/abc", "initializers": []},
        });
        assert_eq!(
            workspace(&ClusterName::home_of("kcp-admin"), &logical_cluster),
            json!({
                "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
                "metadata": {"name": "cluster", "creationTimestamp": "2026-11-21T13:19:14Z"},
                "spec": {"cluster": "kvdk2spgmbix", "URL": "https://x/clusters/abc"},
                "status": {"phase": "Ready"},
            })
        );
    }
}
