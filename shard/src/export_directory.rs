//! The exports that references lead to, and whether this shard has consumers of them.

use std::sync::Arc;

use fairlead_process::Status;

use crate::exports::ExportLookup;
use crate::index::BindingIndex;

/// Finds exports of all shards, and their consumers on this one.
pub(crate) trait ExportDirectory: Send + Sync {
    /// The logical cluster of the export with this name, by its path or logical cluster. `None` if there is no such
    /// export.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    fn cluster_of(&self, path_or_cluster: &str, export: &str) -> Result<Option<Box<str>>, Status>;

    /// Whether this shard has an APIBinding of an export.
    fn has_bindings(&self, export_cluster: &str, export: &str) -> bool;
}

/// The exports and bindings that this shard knows.
pub(crate) struct IndexedExports {
    pub(crate) lookup: Arc<ExportLookup>,
    pub(crate) bindings: Arc<BindingIndex>,
}

impl ExportDirectory for IndexedExports {
    fn cluster_of(&self, path_or_cluster: &str, export: &str) -> Result<Option<Box<str>>, Status> {
        Ok(self.lookup.find(path_or_cluster, export)?.map(|export| export.cluster.clone()))
    }

    fn has_bindings(&self, export_cluster: &str, export: &str) -> bool {
        self.bindings.has_bindings(export_cluster, export)
    }
}
