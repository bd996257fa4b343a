//! The collection of a reflector and its selectors.

use std::time::Duration;

use http::Method;
use http::header::{ACCEPT, HeaderValue};

use crate::client::Request;
use crate::resource::Query;

/// A collection to follow, e.g. `/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters`, and its selectors.
#[derive(Debug, Clone)]
pub struct ListWatch {
    path: String,
    label_selector: Option<String>,
    field_selector: Option<String>,
    form: Form,
}

/// Representation of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Whole,
    MetadataOnly,
}

impl ListWatch {
    /// All objects of the collection at this path.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), label_selector: None, field_selector: None, form: Form::Whole }
    }

    /// Only those with matching labels.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }

    /// Only those with matching fields.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = Some(selector.into());
        self
    }

    /// As `PartialObjectMetadata`: only metadata is transferred.
    pub fn metadata_only(mut self) -> Self {
        self.form = Form::MetadataOnly;
        self
    }

    /// The path of the collection.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// One page; without a page size everything at once. Without a resourceVersion the server returns the most
    /// recent state.
    pub(super) fn list_request(&self, page_size: Option<u32>, continue_token: &str) -> Request {
        let mut query = self.selected();
        if let Some(size) = page_size {
            query = query.with("limit", &size.to_string());
        }
        if !continue_token.is_empty() {
            query = query.with("continue", continue_token);
        }
        self.request(query, "PartialObjectMetadataList")
    }

    /// A watch from a revision on.
    pub(super) fn watch_request(&self, resource_version: &str, timeout: Duration) -> Request {
        let query = self
            .selected()
            .with("watch", "1")
            .with("allowWatchBookmarks", "true")
            .with("resourceVersion", resource_version)
            .with("timeoutSeconds", &timeout.as_secs().max(1).to_string());
        self.request(query, "PartialObjectMetadata")
    }

    fn selected(&self) -> Query {
        let selectors = [("labelSelector", &self.label_selector), ("fieldSelector", &self.field_selector)];
        selectors.into_iter().fold(Query::new(&self.path), |query, (name, selector)| match selector {
            Some(selector) => query.with(name, selector),
            None => query,
        })
    }

    fn request(&self, query: Query, metadata_kind: &str) -> Request {
        let request = Request::new(Method::GET, query.into_string());
        let accept = format!("application/json;as={metadata_kind};g=meta.k8s.io;v=v1");
        match (self.form, HeaderValue::try_from(accept)) {
            (Form::MetadataOnly, Ok(accept)) => request.with_header(ACCEPT, accept),
            _ => request,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_the_collection_and_its_selectors() {
        let source =
            ListWatch::new("/api/v1/secrets").labels("a=b").fields("metadata.name=x").metadata_only();
        let list = source.list_request(Some(500), "next");
        let selected = "/api/v1/secrets?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx";
        assert_eq!(list.path_and_query, format!("{selected}&limit=500&continue=next"));
        assert_eq!(list.headers[ACCEPT], "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
        let watch = source.watch_request("7", Duration::from_secs(300));
        let rest = "&watch=1&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=300";
        assert_eq!(watch.path_and_query, format!("{selected}{rest}"));
    }
}
