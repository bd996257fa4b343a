//! The requests of `ws`, and the fields of the responses that it reads.

use std::time::Duration;

use fairlead_client::{Client, ClientError, List, ObjectMeta, Request, RetryPolicy, WriteOptions, retry};
use http::Method;
use http::header::{ACCEPT, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claims::Binding;
use super::selector::LabelSelector;

const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const LOGICAL_CLUSTER: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
/// Any form of discovery.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                         application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                         application/json";

/// A Workspace object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Workspace {
    pub metadata: ObjectMeta,
    pub spec: WorkspaceSpec,
    pub status: PhaseStatus,
}

/// The spec of a Workspace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WorkspaceSpec {
    #[serde(rename = "type")]
    pub workspace_type: Option<TypeReference>,
    #[serde(rename = "URL")]
    pub url: String,
    /// The mount, if the workspace is not a logical cluster.
    pub mount: Option<Value>,
}

/// `status.phase` of a Workspace or LogicalCluster.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PhaseStatus {
    pub phase: String,
    pub conditions: Option<Vec<Condition>>,
}

/// One of `status.conditions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    pub status: String,
    pub reason: String,
    pub message: String,
}

impl PhaseStatus {
    /// Reason and message of the first condition that is false and has a message.
    pub(crate) fn unmet_condition(&self) -> Option<String> {
        let unmet =
            self.conditions.iter().flatten().find(|one| one.status == "False" && !one.message.is_empty())?;
        Some(format!("{}: {}", unmet.reason, unmet.message))
    }
}

/// A workspace type: its name, and the path of its workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TypeReference {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

impl std::fmt::Display for TypeReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() { f.write_str(&self.name) } else { write!(f, "{}:{}", self.path, self.name) }
    }
}

/// A Workspace to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewWorkspace {
    pub name: String,
    pub workspace_type: Option<TypeReference>,
    pub shards: Option<LabelSelector>,
}

/// Whether the user has access to a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Granted,
    Denied,
}

/// The Workspace object of the user's home. Waits while the server creates it.
pub(crate) async fn home(root: &Client) -> Result<Workspace, ClientError> {
    let policy =
        RetryPolicy { attempts: 10, initial: Duration::from_millis(200), longest: Duration::from_secs(10) };
    let path = format!("{WORKSPACES}/~");
    retry(&policy, || root.get_json(&path)).await
}

/// Checks access by discovery: the one request that every member of a workspace may send.
pub(crate) async fn access(workspace: &Client) -> Result<Access, ClientError> {
    let mut groups = 0;
    for path in ["/api", "/apis"] {
        let request =
            Request::new(Method::GET, path).with_header(ACCEPT, HeaderValue::from_static(DISCOVERY));
        match workspace.request(request).await {
            Ok(response) => {
                let found: Groups = serde_json::from_slice(&response.body).unwrap_or_default();
                groups += found.count();
            }
            Err(error) if error.code() == Some(403) => return Ok(Access::Denied),
            // Servers without core resources have no /api.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(if groups == 0 { Access::Denied } else { Access::Granted })
}

/// Discovery in any of its forms: aggregated, `APIGroupList` or `APIVersions`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Groups {
    items: Vec<Value>,
    groups: Vec<Value>,
    versions: Vec<Value>,
}

impl Groups {
    fn count(&self) -> usize {
        self.items.len() + self.groups.len() + self.versions.len()
    }
}

/// A Workspace object in its parent.
pub(crate) async fn workspace(parent: &Client, name: &str) -> Result<Workspace, ClientError> {
    parent.get_json(&format!("{WORKSPACES}/{name}")).await
}

/// All Workspace objects in a parent.
pub(crate) async fn workspaces(parent: &Client) -> Result<Vec<Workspace>, ClientError> {
    let list: List<Workspace> = parent.get_json(WORKSPACES).await?;
    Ok(list.items)
}

/// Creates a Workspace object.
pub(crate) async fn create(parent: &Client, new: &NewWorkspace) -> Result<Workspace, ClientError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        api_version: &'static str,
        kind: &'static str,
        metadata: Metadata<'a>,
        spec: Spec<'a>,
    }
    #[derive(Serialize)]
    struct Metadata<'a> {
        name: &'a str,
    }
    #[derive(Serialize)]
    struct Spec<'a> {
        #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
        workspace_type: Option<&'a TypeReference>,
        #[serde(skip_serializing_if = "Option::is_none")]
        location: Option<Location<'a>>,
    }
    #[derive(Serialize)]
    struct Location<'a> {
        selector: &'a LabelSelector,
    }
    let body = Body {
        api_version: "tenancy.kcp.io/v1alpha1",
        kind: "Workspace",
        metadata: Metadata { name: &new.name },
        spec: Spec {
            workspace_type: new.workspace_type.as_ref(),
            location: new.shards.as_ref().map(|selector| Location { selector }),
        },
    };
    parent.create(WORKSPACES, &body, &WriteOptions::default()).await
}

/// The phase of a workspace's logical cluster.
pub(crate) async fn logical_cluster_phase(workspace: &Client) -> Result<String, ClientError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct LogicalCluster {
        status: PhaseStatus,
    }
    let cluster: LogicalCluster = workspace.get_json(LOGICAL_CLUSTER).await?;
    Ok(cluster.status.phase)
}

/// The API bindings of a workspace; empty if the user may not read them.
pub(crate) async fn bindings(workspace: &Client) -> Result<Vec<Binding>, ClientError> {
    match workspace.get_json::<List<Binding>>(BINDINGS).await {
        Ok(list) => Ok(list.items),
        Err(error) if matches!(error.code(), Some(403 | 404)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
