//! What the development user may do: a role and its binding in the workspace root, made through the gateway as anybody
//! could who may. Nothing in the servers knows this user.
//!
//! The user gets into root and may make, list and remove workspaces there; in a workspace of his own he is administrator
//! as is everybody who makes one. What is there is left alone: whoever wants the user to have other rights, or none,
//! changes the binding. Only if the binding is missing is it made, at every start.

use fairlead_certs::{Client as Identity, Layout};
use fairlead_client::{Client, ClientError, RetryPolicy, WriteOptions, retry};
use serde_json::{Value, json};

use super::readiness::{ProbeError, client};
use super::settings::{DEVELOPER, USERNAME_PREFIX};

/// The name of the role and of its binding.
pub(crate) const NAME: &str = "development-user";

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Sees to the rights of the development user.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    root: Client,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    /// The binding was there; nobody knows better than whoever has written it.
    Before,
    /// It was missing.
    Now,
}

impl Rights {
    /// As the administrator, at a gateway.
    pub(crate) fn at(gateway: &str, certificates: &Layout) -> Result<Self, ProbeError> {
        let root = client(gateway, &Identity::Admin, certificates)?.with_prefix("/clusters/root");
        Ok(Self { root })
    }

    /// Makes role and binding unless the binding is there. Doing it again is always right.
    pub(crate) async fn grant(self) -> Result<Granted, ClientError> {
        retry(&RetryPolicy::default(), || self.grant_once()).await
    }

    async fn grant_once(&self) -> Result<Granted, ClientError> {
        match self.root.get(&format!("{BINDINGS}/{NAME}")).await {
            Ok(_) => return Ok(Granted::Before),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        self.make(ROLES, &role()).await?;
        self.make(BINDINGS, &binding()).await?;
        Ok(Granted::Now)
    }

    async fn make(&self, collection: &str, object: &Value) -> Result<(), ClientError> {
        match self.root.create::<Value>(collection, object, &WriteOptions::default()).await {
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }
}

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": NAME },
        "rules": [
            { "nonResourceURLs": ["/"], "verbs": ["access"] },
            {
                "apiGroups": ["tenancy.kcp.io"],
                "resources": ["workspaces"],
                "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
            },
            {
                "apiGroups": ["tenancy.kcp.io"],
                "resources": ["workspacetypes"],
                "verbs": ["get", "list", "watch"],
            },
        ],
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": NAME },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME },
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "User",
            "name": format!("{USERNAME_PREFIX}{DEVELOPER}"),
        }],
    })
}
