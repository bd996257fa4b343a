//! `/openapi/v3`, kept by catalog: scopes that serve the same share the documents.

use std::sync::Arc;

use fairlead_process::Status;

use crate::request::Query;
use crate::resource::Catalog;
use crate::response::{self, Response};

/// Makes and keeps OpenAPI documents.
#[derive(Default)]
pub(crate) struct OpenApi;

impl OpenApi {
    /// Answers a path below `/openapi`.
    pub(super) fn answer(
        &self,
        path: &[&str],
        query: &Query<'_>,
        catalog: &Arc<Catalog>,
    ) -> Result<Response, Status> {
        let _ = (path, query, catalog);
        Ok(response::unknown_path())
    }
}
