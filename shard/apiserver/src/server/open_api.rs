//! `/openapi/v3`: an index for each catalog, and documents that are shared by scopes. The submodule serves `/openapi/v2`.
//!
//! Documents are cached by a hash of their inputs, so that scopes with the same group version share one.
//! Documents of v3 are JSON only: clients that prefer protobuf accept JSON as well, or fall back after a 406.

mod cache;
mod v2;

use std::sync::Arc;

use bytes::Bytes;
use fairlead_names::Origin;
use fairlead_process::Status;
use fairlead_schema::openapi::{
    DiscoveryPath, OpenApiBody, OpenApiDocument, OpenApiResource, OpenApiSchema, OpenApiSubresource,
    discovery_document, open_api_document, open_api_index, open_api_path,
};
use http::header::{CACHE_CONTROL, EXPIRES, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

use self::cache::{Cache, ContentKey, DocumentSource, Index, IndexedDocument};
use self::v2::BuiltInDocument;
use super::Context;
use crate::host::DiscoveryForms;
use crate::registry::{Catalog, ServedResource, ServedVersion, Subresource};
use crate::request::Form;
use crate::resource::Shape;
use crate::response::{self, Response};

/// Seconds for which a client may cache a document that it requested by its hash: a year.
const IMMUTABLE_MAX_AGE: i64 = 365 * 24 * 60 * 60;

/// Builds and caches OpenAPI documents.
pub(crate) struct OpenApi {
    cache: Arc<Cache>,
    /// The paths of documents that the host serves besides the API groups.
    host_documents: &'static [&'static str],
    built_in: BuiltInDocument,
}

impl OpenApi {
    /// Documents for a host that also serves these paths.
    pub(super) fn new(host_documents: &'static [&'static str]) -> Self {
        Self { cache: Arc::default(), host_documents, built_in: BuiltInDocument::default() }
    }

    /// Responds to a path below `/openapi`. The first request for a new catalog builds its documents on a
    /// blocking thread; later requests cost two look-ups.
    pub(super) async fn respond(
        &self,
        path: &[&str],
        context: &Context<'_>,
        catalog: &Arc<Catalog>,
        forms: DiscoveryForms,
    ) -> Result<Response, Status> {
        let path = match path {
            ["v3", path @ ..] => path,
            ["v2"] => return self.built_in.respond(context, catalog, self.host_documents).await,
            _ => return Ok(response::unknown_path()),
        };
        let accepted = context.accepted().ok().filter(|accepted| !accepted.is_yaml);
        if accepted.is_none_or(|accepted| accepted.form != Form::Object) {
            return Err(Status::not_acceptable(&["application/json"]));
        }
        let index = self.index(catalog, forms).await?;
        if path.is_empty() {
            return Ok(tagged(context, &index.hash, &index.json));
        }
        let Some(indexed) = index.documents.get(&path.join("/")) else {
            return Ok(response::unknown_path());
        };
        match context.query.get("hash") {
            Some(hash) if !hash.eq_ignore_ascii_case(&indexed.hash) => Ok(redirect_to_hash(&indexed.hash)),
            requested => {
                let document = self.document(catalog, indexed).await?;
                let mut response = tagged(context, &document.hash, &document.json);
                if requested.is_some() {
                    cache_forever(response.headers_mut())?;
                }
                Ok(response)
            }
        }
    }

    async fn index(&self, catalog: &Arc<Catalog>, forms: DiscoveryForms) -> Result<Arc<Index>, Status> {
        let key = catalog.key();
        if let Some(index) = self.cache.index(key) {
            return Ok(index);
        }
        let (cache, catalog) = (Arc::clone(&self.cache), Arc::clone(catalog));
        let host_documents = self.host_documents;
        run_blocking(move || {
            let index =
                Arc::new(index_of(&catalog, &discovery_paths(&catalog, host_documents, forms), &cache));
            cache.insert_index(key, Arc::clone(&index));
            index
        })
        .await
    }

    async fn document(
        &self,
        catalog: &Arc<Catalog>,
        indexed: &IndexedDocument,
    ) -> Result<OpenApiDocument, Status> {
        if let Some(document) = self.cache.document(&indexed.key) {
            return Ok(document);
        }
        let (cache, catalog, indexed) = (Arc::clone(&self.cache), Arc::clone(catalog), indexed.clone());
        run_blocking(move || {
            let document = match &indexed.source {
                DocumentSource::GroupVersion { group, version } => {
                    open_api_document(group, version, &resources_of(&catalog, group, version))
                }
                DocumentSource::Discovery(path) => discovery_document(path),
            };
            cache.insert_document(indexed.key, &document);
            document
        })
        .await
    }
}

async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(Status::internal)
}

fn tagged(context: &Context<'_>, hash: &str, json: &Bytes) -> Response {
    let full = response::content(StatusCode::OK, "application/json", json.clone());
    response::tagged(&context.parts.headers, hash, full)
}

/// Lets the client cache a document that was requested by its hash, which never changes. Only the client may cache it: a
/// shared cache must not serve one workspace's APIs to another.
fn cache_forever(headers: &mut HeaderMap) -> Result<(), Status> {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, immutable, max-age=31536000"));
    let expires = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + IMMUTABLE_MAX_AGE)
        .map_err(Status::internal)?
        .strftime("%a, %d %b %Y %H:%M:%S GMT")
        .to_string();
    headers.insert(EXPIRES, HeaderValue::from_str(&expires).map_err(Status::internal)?);
    Ok(())
}

/// Redirects to the current hash. The location is relative, so that it is valid below any path prefix.
fn redirect_to_hash(hash: &str) -> Response {
    let mut response = Response::new(response::ResponseBody::Full(None));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&format!("?hash={hash}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn index_of(catalog: &Catalog, discovery_paths: &[DiscoveryPath], cache: &Cache) -> Index {
    let mut built: Vec<(String, IndexedDocument, OpenApiDocument)> = Vec::new();
    let mut add =
        |path: String, key: ContentKey, source: DocumentSource, assemble: &dyn Fn() -> OpenApiDocument| {
            let document = cache.document(&key).unwrap_or_else(|| {
                let document = assemble();
                cache.insert_document(key, &document);
                document
            });
            let indexed = IndexedDocument { source, key, hash: Arc::clone(&document.hash) };
            built.push((path, indexed, document));
        };
    for (group, version) in group_versions(catalog) {
        let resources = resources_of(catalog, group, version);
        let key = ContentKey::of(group, version, &resources);
        let source = DocumentSource::GroupVersion { group: group.into(), version: version.into() };
        let assemble = || open_api_document(group, version, &resources);
        add(open_api_path(group, version), key, source, &assemble);
    }
    for path in discovery_paths {
        let key = ContentKey::of_discovery(&path.key());
        add(path.key(), key, DocumentSource::Discovery(path.clone()), &|| discovery_document(path));
    }
    let json = open_api_index(built.iter().map(|(path, _, document)| (&**path, document)));
    let hash = response::content_hash(&json);
    let documents = built.into_iter().map(|(path, indexed, _)| (path, indexed)).collect();
    Index { json, hash, documents }
}

/// The documents that belong to no group version. As in Kubernetes, groups of custom resources have none.
/// The paths of discovery documents. As in kcp, those of a workspace have the groups of built-in resources only, and those of a
/// view have all groups and no documents of the host.
fn discovery_paths(
    catalog: &Catalog,
    host_documents: &[&'static str],
    forms: DiscoveryForms,
) -> Vec<DiscoveryPath> {
    let is_view = forms == DiscoveryForms::Unaggregated;
    let host_documents = if is_view { &[] } else { host_documents };
    let listed = catalog.resources.iter().filter(|resource| is_view || resource.origin == Origin::BuiltIn);
    let mut groups: Vec<&str> =
        listed.map(|resource| &*resource.name.group).filter(|group| !group.is_empty()).collect();
    groups.sort_unstable();
    groups.dedup();
    let is_issuer = |path: &&str| path.starts_with("/.well-known/") || path.starts_with("/openid/");
    [DiscoveryPath::Core, DiscoveryPath::Groups, DiscoveryPath::Version]
        .into_iter()
        .chain(groups.into_iter().map(|group| DiscoveryPath::Group(group.to_owned())))
        .chain(host_documents.iter().copied().filter(is_issuer).map(DiscoveryPath::Document))
        .collect()
}

fn group_versions(catalog: &Catalog) -> Vec<(&str, &str)> {
    let versions = catalog.resources.iter().flat_map(|resource| {
        resource.versions.served.iter().map(|version| (&*resource.name.group, &*version.name))
    });
    let mut versions: Vec<(&str, &str)> = versions.collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

fn resources_of(catalog: &Catalog, group: &str, version: &str) -> Vec<OpenApiResource> {
    let of_group = catalog.resources.iter().filter(|resource| *resource.name.group == *group);
    let mut resources: Vec<OpenApiResource> = of_group
        .filter_map(|resource| resource.version(version).map(|version| open_api_resource(resource, version)))
        .collect();
    resources.sort_by(|one, other| one.plural.cmp(&other.plural));
    resources
}

fn open_api_resource(resource: &ServedResource, version: &ServedVersion) -> OpenApiResource {
    let verbs = |verbs: crate::resource::Verbs| verbs.iter().map(|verb| verb.as_str().to_owned()).collect();
    let schema = match (&version.shape, &version.open_api) {
        (Shape::BuiltIn(kind), None) => OpenApiSchema::Builtin(kind.definition),
        (_, Some(schema)) => OpenApiSchema::Custom(Arc::clone(schema)),
        // The schema is unknown: any object.
        (Shape::Anything | Shape::Structural(_), None) => OpenApiSchema::Custom(Arc::new(Value::Null)),
    };
    let subresources = version.subresources.iter().map(|subresource| OpenApiSubresource {
        name: subresource.name.to_owned(),
        verbs: verbs(subresource.verbs),
        body: body_of(subresource),
    });
    OpenApiResource {
        group: resource.name.group.to_string(),
        version: version.name.to_string(),
        kind: resource.kind.to_string(),
        list_kind: resource.list_kind.to_string(),
        plural: resource.name.resource.to_string(),
        namespaced: resource.namespaced,
        verbs: verbs(resource.verbs),
        subresources: subresources.collect(),
        schema,
    }
}

fn body_of(subresource: &Subresource) -> Option<OpenApiBody> {
    match subresource.kind? {
        ("autoscaling", _, "Scale") => Some(OpenApiBody::Scale),
        ("authentication.k8s.io", _, "TokenRequest") => Some(OpenApiBody::TokenRequest),
        _ => None,
    }
}
