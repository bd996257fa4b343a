//! Objects as JSON: read, create, replace, patch, delete.

use std::fmt::Write as _;
use std::sync::Arc;

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{Client, Request};
use crate::error::ClientError;

/// Format of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902, a list of operations.
    Json,
    /// RFC 7386; `null` deletes.
    Merge,
    /// Strategic merge patch: merges lists by key; built-in types only.
    Strategic,
    /// Server-side apply; needs a field manager.
    Apply,
    /// Server-side apply that takes fields from other managers.
    ForcedApply,
}

/// Options of create, replace and patch.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Owner of the written fields.
    pub field_manager: Option<String>,
    /// Perform everything but the storage.
    pub dry_run: bool,
}

/// Options of delete; the body of the request.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteOptions {
    /// Preconditions of the deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preconditions: Option<Preconditions>,
    /// `Orphan`, `Background` or `Foreground`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation_policy: Option<&'static str>,
}

/// Conditions on the object to delete; otherwise the server responds with 409.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions {
    /// It must have this UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// It must have this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

/// A path with query parameters, percent-encoded as they are added.
#[derive(Debug, Clone)]
pub struct Query {
    text: String,
    separator: char,
}

impl Client {
    /// Reads an object or a list.
    pub async fn get_json<T: DeserializeOwned>(&self, path_and_query: &str) -> Result<T, ClientError> {
        self.exchange_json(Request::new(Method::GET, path_and_query)).await
    }

    /// POSTs an object to its collection.
    pub async fn create<T: DeserializeOwned>(
        &self,
        collection: &str,
        object: &impl Serialize,
        options: &WriteOptions,
    ) -> Result<T, ClientError> {
        self.write(Method::POST, options.query(collection), "application/json", object).await
    }

    /// PUTs an object over the one of its name.
    pub async fn replace<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &impl Serialize,
        options: &WriteOptions,
    ) -> Result<T, ClientError> {
        self.write(Method::PUT, options.query(path), "application/json", object).await
    }

    /// Changes a part of an object.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        patch_type: PatchType,
        patch: &impl Serialize,
        options: &WriteOptions,
    ) -> Result<T, ClientError> {
        let mut query = options.query(path);
        if patch_type == PatchType::ForcedApply {
            query = query.with("force", "true");
        }
        self.write(Method::PATCH, query, patch_type.content_type(), patch).await
    }

    /// Deletes an object. The response, the object or a `Status`, is dropped.
    pub async fn delete(&self, path: &str, options: &DeleteOptions) -> Result<(), ClientError> {
        let body = encode(options, path)?;
        let request = Request::new(Method::DELETE, path).with_body("application/json", body);
        self.request(request).await.map(drop)
    }

    async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        query: Query,
        content_type: &'static str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = encode(body, query.as_str())?;
        self.exchange_json(Request::new(method, query.into_string()).with_body(content_type, body)).await
    }

    async fn exchange_json<T: DeserializeOwned>(&self, request: Request) -> Result<T, ClientError> {
        let subject = request.path_and_query.clone();
        let response = self.request(request).await?;
        serde_json::from_slice(&response.body).map_err(|error| ClientError::decode(subject, error))
    }
}

impl PatchType {
    /// The media type of the request's body.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply | Self::ForcedApply => "application/apply-patch+yaml",
        }
    }
}

impl WriteOptions {
    fn query(&self, path: &str) -> Query {
        let mut query = Query::new(path);
        if let Some(manager) = &self.field_manager {
            query = query.with("fieldManager", manager);
        }
        if self.dry_run {
            query = query.with("dryRun", "All");
        }
        query
    }
}

impl Query {
    /// Starts from a path, which may have a query.
    pub fn new(path: &str) -> Self {
        Self { text: path.to_owned(), separator: if path.contains('?') { '&' } else { '?' } }
    }

    /// Adds a parameter.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        let value = utf8_percent_encode(value, UNRESERVED);
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{}{name}={value}", self.separator);
        self.separator = '&';
        self
    }

    /// Path and query.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Path and query.
    pub fn into_string(self) -> String {
        self.text
    }
}

/// RFC 3986 unreserved characters stand for themselves.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn encode(body: &impl Serialize, subject: &str) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(body)
        .map_err(|error| ClientError::Request { subject: subject.into(), source: Arc::new(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_encoded_and_appended() {
        let query = Query::new("/api").with("labelSelector", "a in (b,c)").with("continue", "x=y&z");
        assert_eq!(query.as_str(), "/api?labelSelector=a%20in%20%28b%2Cc%29&continue=x%3Dy%26z");
        assert_eq!(Query::new("/api?watch=1").with("limit", "5").into_string(), "/api?watch=1&limit=5");
    }

    #[test]
    fn write_options_are_query_parameters() {
        let options = WriteOptions { field_manager: Some("a/b".into()), dry_run: true };
        assert_eq!(options.query("/x").as_str(), "/x?fieldManager=a%2Fb&dryRun=All");
    }

    #[test]
    fn delete_options_have_their_wire_form() {
        let uid = Preconditions { uid: Some("u".into()), resource_version: None };
        let options = DeleteOptions { preconditions: Some(uid), propagation_policy: Some("Foreground") };
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(json, r#"{"preconditions":{"uid":"u"},"propagationPolicy":"Foreground"}"#);
        assert_eq!(serde_json::to_string(&DeleteOptions::default()).unwrap(), "{}");
    }
}
