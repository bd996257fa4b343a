//! The virtual workspace of API exports: `apiexport`. A provider sees the objects of all logical clusters of the shard that are bound to
//! its export, and the objects that consumers let it have by accepting its permission claims.
//!
//! A domain is one export, `<logical cluster>/<name>`. Its resources are those that the export has, those that it claims, and
//! APIBindings to it.

mod authorization;
mod catalog;
mod rules;
mod source;
#[cfg(test)]
mod tests;
mod view;

use std::num::NonZeroUsize;
use std::sync::Arc;

use fairlead_apiserver::Scope;
use fairlead_names::ClusterName;
use fairlead_process::Status;
use lru::LruCache;
use parking_lot::Mutex;

use self::view::ExportView;
use crate::domain::DomainPath;
use crate::shard::Shard;
use crate::workspace::{Service, View, VirtualRequest, VirtualWorkspace};

pub use source::{Binding, Export, Exports};

pub(crate) use authorization::permits_content;

/// The number of exports whose views are kept.
const CACHED_VIEWS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

const APIS_GROUP: &str = "apis.kcp.io";
const API_BINDINGS: &str = "apibindings";

/// Logical cluster and name of an export.
type ExportKey = (Box<str>, Box<str>);

/// The virtual workspaces of all API exports.
pub struct ExportWorkspaces {
    shard: Arc<dyn Shard>,
    exports: Arc<dyn Exports>,
    views: Mutex<LruCache<ExportKey, Arc<ExportView>>>,
}

impl ExportWorkspaces {
    /// The virtual workspaces of a shard.
    pub fn new(shard: Arc<dyn Shard>, exports: Arc<dyn Exports>) -> Self {
        Self { shard, exports, views: Mutex::new(LruCache::new(CACHED_VIEWS)) }
    }

    fn view(&self, cluster: Scope, name: &str) -> Arc<ExportView> {
        let key = (cluster.as_str().into(), name.into());
        let mut views = self.views.lock();
        if let Some(known) = views.get(&key) {
            return Arc::clone(known);
        }
        let view = ExportView::new(cluster, name, Arc::clone(&self.shard), Arc::clone(&self.exports));
        let view = Arc::new(view);
        views.put(key, Arc::clone(&view));
        view
    }
}

impl VirtualWorkspace for ExportWorkspaces {
    fn name(&self) -> &str {
        "apiexport"
    }

    fn open(&self, request: &VirtualRequest<'_>) -> Result<Option<Service>, Status> {
        let Some(path) = DomainPath::parse(request.segments(), 2) else { return Ok(None) };
        let [cluster, name] = *path.domain else { return Ok(None) };
        let Ok(cluster) = ClusterName::parse(cluster) else { return Ok(None) };
        let view: Arc<dyn View> = self.view(Scope::new(cluster.as_str()), name);
        Ok(Some(Service::View { view, scopes: path.scopes, length: path.length }))
    }
}
