//! `/openapi/v2`: the built-in kinds, in JSON and in the protobuf form that older clients ask for.
//!
//! As in kcp, custom resources are not part of it: clients read them in v3. So there is one document for the process, and it
//! is built when it is requested first.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fairlead_names::Origin;
use fairlead_process::Status;
use fairlead_schema::openapi::{encode_open_api_v2, open_api_v2};
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};

use super::{discovery_paths, open_api_resource, run_blocking};
use crate::host::DiscoveryForms;
use crate::registry::Catalog;
use crate::response::{self, Response};
use crate::server::Context;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name of the same form in older clients.
const OLD_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The document in both forms.
#[derive(Default)]
pub(super) struct BuiltInDocument(Arc<OnceLock<Forms>>);

struct Forms {
    json: Form,
    protobuf: Form,
}

struct Form {
    bytes: Bytes,
    hash: Arc<str>,
}

impl BuiltInDocument {
    /// Responds with the document. The built-in kinds of every catalog are the same.
    pub(super) async fn respond(
        &self,
        context: &Context<'_>,
        catalog: &Arc<Catalog>,
        host_documents: &'static [&'static str],
    ) -> Result<Response, Status> {
        let media = accepted(&context.parts.headers)
            .ok_or_else(|| Status::not_acceptable(&[JSON, PROTOBUF, OLD_PROTOBUF]))?;
        if self.0.get().is_none() {
            let (forms, catalog) = (Arc::clone(&self.0), Arc::clone(catalog));
            run_blocking(move || {
                forms.get_or_init(|| build(&catalog, host_documents));
            })
            .await?;
        }
        let forms = self.0.get().ok_or_else(|| Status::internal("the OpenAPI document is missing"))?;
        let form = if media == JSON { &forms.json } else { &forms.protobuf };
        let full = response::content(StatusCode::OK, media, form.bytes.clone());
        Ok(response::tagged(&context.parts.headers, &form.hash, full))
    }
}

fn build(catalog: &Catalog, host_documents: &[&'static str]) -> Forms {
    let built_in = catalog.resources.iter().filter(|resource| resource.origin == Origin::BuiltIn);
    let resources: Vec<_> = built_in
        .flat_map(|resource| {
            resource.versions.served.iter().map(|version| open_api_resource(resource, version))
        })
        .collect();
    let document = open_api_v2(&resources, &discovery_paths(catalog, host_documents, DiscoveryForms::All));
    let form = |bytes: Vec<u8>| {
        let hash = response::content_hash(&bytes);
        Form { bytes: bytes.into(), hash }
    };
    Forms { json: form(document.to_string().into_bytes()), protobuf: form(encode_open_api_v2(&document)) }
}

/// The media type of the response: that of the first range, by weight and then order, that can be served.
fn accepted(headers: &HeaderMap) -> Option<&'static str> {
    let mut ranges: Vec<(f32, &'static str)> = Vec::new();
    let mut has_ranges = false;
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')).map(str::trim).filter(|range| !range.is_empty()) {
        has_ranges = true;
        let mut parts = range.split(';').map(str::trim);
        let media = match parts.next().unwrap_or_default() {
            JSON | "application/*" | "*/*" => JSON,
            PROTOBUF | OLD_PROTOBUF => PROTOBUF,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        ranges.push((weight, media));
    }
    if !has_ranges {
        return Some(JSON);
    }
    ranges.retain(|(weight, _)| *weight > 0.0);
    // A stable sort keeps the client's order among equal weights.
    ranges.sort_by(|one, other| other.0.total_cmp(&one.0));
    ranges.first().map(|(_, media)| *media)
}
