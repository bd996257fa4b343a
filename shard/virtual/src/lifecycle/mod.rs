//! The virtual workspaces of initializers and terminators: `initializingworkspaces` and `terminatingworkspaces`.
//!
//! A domain is one initializer or terminator, `<logical cluster of its WorkspaceType>:<name of the type>`. Across logical
//! clusters it shows the LogicalClusters that wait for it; in one of them also the status, from which it removes itself, and
//! the content, under an identity that its type determines.

mod content;
mod status;
#[cfg(test)]
mod tests;
mod view;

use std::num::NonZeroUsize;
use std::sync::Arc;

use fairlead_apiserver::request::RequestKind;
use fairlead_apiserver::{Action, Scope, ScopeSelector};
use fairlead_authn::UserInfo;
use fairlead_names::{ClusterName, ResourceName, initializer_label, terminator_label};
use fairlead_process::Status;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;

use self::content::ContentAccess;
use self::view::{Extent, LifecycleView};
use crate::domain::DomainPath;
use crate::shard::Shard;
use crate::workspace::{Service, View, VirtualRequest, VirtualWorkspace};

/// The number of views that are kept: an initializer has two, of some hundred bytes each.
const CACHED_VIEWS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

const CORE_GROUP: &str = "core.kcp.io";
const LOGICAL_CLUSTERS: &str = "logicalclusters";
const TENANCY_GROUP: &str = "tenancy.kcp.io";
/// The cluster part of initializers that no WorkspaceType defines, such as `system:apibindings`.
const SYSTEM: &str = "system";

/// A part of the life of a logical cluster in which external controllers take part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lifecycle {
    /// Initializers work before the logical cluster becomes ready.
    Initializing,
    /// Terminators work after the logical cluster was marked for deletion.
    Terminating,
}

/// The virtual workspaces of all initializers, or of all terminators.
pub struct LifecycleWorkspaces {
    lifecycle: Lifecycle,
    shard: Arc<dyn Shard>,
    views: Mutex<LruCache<ViewKey, Arc<LifecycleView>>>,
}

/// The name of a controller, and the extent of its view.
type ViewKey = (Box<str>, Extent);

/// An initializer or terminator.
#[derive(Clone, Debug)]
struct Controller {
    lifecycle: Lifecycle,
    name: Arc<str>,
}

impl LifecycleWorkspaces {
    /// The virtual workspaces of a shard.
    pub fn new(lifecycle: Lifecycle, shard: Arc<dyn Shard>) -> Self {
        Self { lifecycle, shard, views: Mutex::new(LruCache::new(CACHED_VIEWS)) }
    }

    fn view(&self, controller: Controller, extent: Extent) -> Result<Arc<LifecycleView>, Status> {
        let key = (Box::from(&*controller.name), extent);
        if let Some(known) = self.views.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let logical_clusters = self.shard.resource(&ResourceName::new(CORE_GROUP, LOGICAL_CLUSTERS));
        let logical_clusters = logical_clusters
            .ok_or_else(|| Status::service_unavailable("LogicalClusters are not served yet", 1))?;
        let view =
            Arc::new(LifecycleView::new(controller, extent, logical_clusters, Arc::clone(&self.shard)));
        self.views.lock().put(key, Arc::clone(&view));
        Ok(view)
    }
}

impl VirtualWorkspace for LifecycleWorkspaces {
    fn name(&self) -> &str {
        self.lifecycle.service()
    }

    fn open(&self, request: &VirtualRequest<'_>) -> Result<Option<Service>, Status> {
        let Some(path) = DomainPath::parse(request.segments(), 1) else { return Ok(None) };
        let [name] = *path.domain else { return Ok(None) };
        let controller = Controller { lifecycle: self.lifecycle, name: name.into() };
        let DomainPath { scopes, length, .. } = path;
        let extent = match &scopes {
            ScopeSelector::Every { .. } => Extent::EveryCluster,
            ScopeSelector::One(cluster) => {
                let kind = request.kind_behind(length);
                if !self.lifecycle.is_of_view(&kind, request.segments().get(length).map(|first| &**first)) {
                    let access = ContentAccess {
                        shard: Arc::clone(&self.shard),
                        controller,
                        cluster: cluster.clone(),
                    };
                    let (assumption, cluster) = (Arc::new(access), cluster.as_str().to_owned());
                    return Ok(Some(Service::Content { assumption, cluster, length }));
                }
                Extent::OneCluster
            }
        };
        let view: Arc<dyn View> = self.view(controller, extent)?;
        Ok(Some(Service::View { view, scopes, length }))
    }
}

impl Lifecycle {
    /// The name of the virtual workspace.
    fn service(self) -> &'static str {
        match self {
            Self::Initializing => "initializingworkspaces",
            Self::Terminating => "terminatingworkspaces",
        }
    }

    /// The word for its controllers.
    fn role(self) -> &'static str {
        match self {
            Self::Initializing => "initializer",
            Self::Terminating => "terminator",
        }
    }

    /// The verb on a WorkspaceType that permits to be its controller.
    fn verb(self) -> &'static str {
        match self {
            Self::Initializing => "initialize",
            Self::Terminating => "terminate",
        }
    }

    /// The field of the status of a LogicalCluster with the controllers that have not finished.
    fn status_field(self) -> &'static str {
        match self {
            Self::Initializing => "initializers",
            Self::Terminating => "terminators",
        }
    }

    /// The group in kcp's errors about that field.
    fn error_group(self) -> &'static str {
        match self {
            Self::Initializing => TENANCY_GROUP,
            Self::Terminating => CORE_GROUP,
        }
    }

    /// The field of a WorkspaceType with the permissions of its controller.
    fn permissions_field(self) -> &'static str {
        match self {
            Self::Initializing => "initializerPermissions",
            Self::Terminating => "terminatorPermissions",
        }
    }

    /// Whether a request in one logical cluster is one to the view, and not to the content. kcp's terminators see the discovery
    /// documents of the view, its initializers those of the content.
    fn is_of_view(self, kind: &RequestKind, first: Option<&str>) -> bool {
        match kind {
            RequestKind::Resource(path) => path.group == CORE_GROUP && path.resource == LOGICAL_CLUSTERS,
            RequestKind::NonResource => self == Self::Terminating && !matches!(first, None | Some("healthz")),
            RequestKind::UnknownMethod => false,
        }
    }
}

impl Controller {
    /// The label of the LogicalClusters that wait for it.
    fn label(&self) -> (String, String) {
        match self.lifecycle {
            Lifecycle::Initializing => initializer_label(&self.name),
            Lifecycle::Terminating => terminator_label(&self.name),
        }
    }

    /// The WorkspaceType that defines it. `None`: the name is malformed.
    fn workspace_type(&self) -> Option<(Scope, &str)> {
        let (cluster, name) = self.name.rsplit_once(':')?;
        let cluster = ClusterName::parse(cluster).ok()?;
        (!name.is_empty()).then(|| (Scope::new(cluster.as_str()), name))
    }

    /// Whether a user may act as this controller.
    async fn admits(&self, user: &UserInfo, shard: &dyn Shard) -> bool {
        let Some((cluster, name)) = self.workspace_type() else { return false };
        let action = Action::Resource {
            verb: self.lifecycle.verb(),
            group: TENANCY_GROUP,
            version: "v1alpha1",
            resource: "workspacetypes",
            subresource: None,
            namespace: None,
            name: Some(name),
        };
        shard.permits(user, &cluster, &action).await
    }

    /// Whether a logical cluster waits for it.
    fn is_awaited(&self, logical_cluster: &Value) -> bool {
        let is_in_phase = match self.lifecycle {
            Lifecycle::Initializing => logical_cluster["status"]["phase"] == "Initializing",
            Lifecycle::Terminating => logical_cluster["metadata"]["deletionTimestamp"].is_string(),
        };
        let awaited = logical_cluster["status"][self.lifecycle.status_field()].as_array();
        is_in_phase && awaited.is_some_and(|all| all.iter().any(|one| *one == *self.name))
    }
}
