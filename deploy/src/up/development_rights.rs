//! Rights of the development user: a ClusterRole and its binding in the workspace root, created through the gateway with
//! the credentials of the administrator. This user is not built into the servers.
//!
//! The user may enter root, and create, list and delete workspaces there. In a workspace that it has created it is
//! administrator, like any other user. An existing binding is left as it is, so an operator can change or empty it. A
//! missing binding is created at every start.

use fairlead_certs::{Client as Identity, Layout};
use fairlead_client::{Client, ClientError, RetryPolicy, WriteOptions, retry};
use serde_json::{Value, json};

use super::readiness::{ProbeError, client};
use super::settings::{DEVELOPER, USERNAME_PREFIX};

/// The name of the role and of its binding.
pub(crate) const NAME: &str = "development-user";

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Grants the rights of the development user.
#[derive(Clone, Debug)]
pub(crate) struct DevelopmentRights {
    root: Client,
}

/// The outcome of granting the rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantOutcome {
    /// The binding exists, and is left as it is.
    Existing,
    /// The binding was missing, and has been created.
    Created,
}

impl DevelopmentRights {
    /// Uses a gateway, with the certificate of the administrator.
    pub(crate) fn at(gateway: &str, certificates: &Layout) -> Result<Self, ProbeError> {
        let root = client(gateway, &Identity::Admin, certificates)?.with_prefix("/clusters/root");
        Ok(Self { root })
    }

    /// Creates the role and the binding unless the binding exists. Idempotent.
    pub(crate) async fn grant(self) -> Result<GrantOutcome, ClientError> {
        retry(&RetryPolicy::default(), || self.grant_once()).await
    }

    async fn grant_once(&self) -> Result<GrantOutcome, ClientError> {
        match self.root.get(&format!("{BINDINGS}/{NAME}")).await {
            Ok(_) => return Ok(GrantOutcome::Existing),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        self.create(ROLES, &role()).await?;
        self.create(BINDINGS, &binding()).await?;
        Ok(GrantOutcome::Created)
    }

    async fn create(&self, collection: &str, object: &Value) -> Result<(), ClientError> {
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
