//! The view of one export.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use fairlead_apiserver::registry::Catalog;
use fairlead_apiserver::{Attributes, Authorization, Scope};
use fairlead_process::Status;

use super::authorization::{ExportAuthorizer, permits_content};
use super::catalog::{ExportCatalog, sources};
use super::source::{Export, Exports};
use crate::shard::Shard;
use crate::workspace::View;

/// The view of an export, whether or not there is one of this name.
pub(super) struct ExportView {
    cluster: Scope,
    name: Box<str>,
    shard: Arc<dyn Shard>,
    exports: Arc<dyn Exports>,
    known: ArcSwapOption<ExportCatalog>,
    empty: Arc<Catalog>,
}

impl ExportView {
    pub(super) fn new(cluster: Scope, name: &str, shard: Arc<dyn Shard>, exports: Arc<dyn Exports>) -> Self {
        let (known, empty) = (ArcSwapOption::empty(), Arc::new(Catalog::new(Vec::new())));
        Self { cluster, name: name.into(), shard, exports, known, empty }
    }

    fn export(&self) -> Result<Option<Arc<Export>>, Status> {
        self.exports.export(&self.cluster, &self.name)
    }
}

#[async_trait]
impl View for ExportView {
    /// Made again when the export has changed, or one whose resources it claims. Costs some map look-ups otherwise.
    fn catalog(&self) -> Result<Arc<Catalog>, Status> {
        let Some(export) = self.export()? else { return Ok(Arc::clone(&self.empty)) };
        let sources = sources(export, &*self.exports)?;
        if let Some(known) = &*self.known.load()
            && known.is_of(&sources)
        {
            return Ok(Arc::clone(&known.catalog));
        }
        let made = Arc::new(ExportCatalog::new(sources, &self.shard, &self.exports));
        let catalog = Arc::clone(&made.catalog);
        self.known.store(Some(made));
        Ok(catalog)
    }

    async fn authorize(&self, attributes: &Attributes<'_>) -> Authorization {
        match self.export() {
            Ok(Some(export)) => {
                let authorizer =
                    ExportAuthorizer { export: &export, shard: &*self.shard, exports: &*self.exports };
                authorizer.authorize(attributes).await
            }
            // A user who may see the content of the export gets 404.
            Ok(None) => match permits_content(&*self.exports, attributes, &self.cluster, &self.name).await {
                true => {
                    Authorization::allow("apiexport", "a role permits the verb on the content of the export")
                }
                false => Authorization::no_opinion("apiexport", "there is no such APIExport"),
            },
            Err(status) => {
                tracing::error!(%status, "an APIExport cannot be read; the request is refused");
                Authorization::no_opinion("apiexport", "the APIExport cannot be read")
            }
        }
    }
}
