//! The view of one endpoint slice.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::Catalog;
use fairlead_apiserver::{Attributes, Authorization, Scope};
use fairlead_process::Status;

use super::authorization;
use super::source::{CachedSlice, CachedSlices};
use crate::apiexport::Exports;
use crate::workspace::View;

/// The view of an endpoint slice, whether or not there is one of this name.
pub(super) struct SliceView {
    pub(super) cluster: Scope,
    pub(super) name: Box<str>,
    pub(super) exports: Arc<dyn Exports>,
    pub(super) slices: Arc<dyn CachedSlices>,
    pub(super) empty: Arc<Catalog>,
}

impl SliceView {
    fn slice(&self) -> Result<Option<Arc<CachedSlice>>, Status> {
        self.slices.slice(&self.cluster, &self.name)
    }
}

#[async_trait]
impl View for SliceView {
    fn catalog(&self) -> Result<Arc<Catalog>, Status> {
        let slice = self.slice()?;
        Ok(slice.map_or_else(|| Arc::clone(&self.empty), |slice| Arc::clone(&slice.catalog)))
    }

    async fn authorize(&self, attributes: &Attributes<'_>) -> Authorization {
        authorization::authorize(&*self.exports, &*self.slices, self.slice(), attributes).await
    }
}
