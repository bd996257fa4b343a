//! Observations of a request while it is carried out: its warnings, audit record and metrics.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fairlead_names::Origin;
use fairlead_process::Status;
use http::request::Parts;
use http::{Method, StatusCode};
use http_body::Body as _;
use jiff::Timestamp;

use super::Context;
use crate::audit::AuditRecord;
use crate::metrics::{RequestEnd, RequestLabels, RequestMetrics, RequestScope, RequestSeries};
use crate::registry::Target;
use crate::request::{PatchKind, Query, RequestPath, parse_duration};
use crate::resource::Verb;
use crate::response::{Response, ResponseBody};

/// The observations of one request.
pub(super) struct Exchange {
    pub(super) warnings: Vec<String>,
    /// The audit record, from the time when the client is known.
    pub(super) record: Option<AuditRecord>,
    /// The metrics, from the time when the resource is known.
    pub(super) series: OnceLock<Arc<RequestSeries>>,
    started: Instant,
    /// Read only where there is an audit log.
    received: Option<Timestamp>,
}

impl Exchange {
    pub(super) fn begin(is_audited: bool) -> Self {
        Self {
            warnings: Vec::new(),
            record: None,
            series: OnceLock::new(),
            started: Instant::now(),
            received: is_audited.then(Timestamp::now),
        }
    }

    pub(super) fn received(&self) -> Timestamp {
        self.received.unwrap_or_else(Timestamp::now)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Counts the request.
    pub(super) fn count(&self, metrics: &RequestMetrics, parts: &Parts, response: &Response) {
        let is_watch = matches!(response.body(), ResponseBody::Watch(_));
        let size = match response.body() {
            ResponseBody::Full(_) => response.body().size_hint().exact(),
            ResponseBody::List(_) | ResponseBody::Watch(_) | ResponseBody::Streamed(_) => None,
        };
        let end = RequestEnd {
            code: response.status(),
            is_dry_run: parts.uri.query().is_some_and(|query| query.contains("dryRun=All")),
            duration: (!is_watch).then(|| self.elapsed()),
            size: size.and_then(|size| usize::try_from(size).ok()),
        };
        match self.series.get() {
            Some(series) => series.finish(&end),
            None => metrics.series(&non_resource_labels(parts, response.status())).finish(&end),
        }
    }
}

impl Context<'_> {
    /// The metrics of the request's resource.
    pub(super) fn series(&self, metrics: &RequestMetrics) -> Arc<RequestSeries> {
        let found = self.series.get().cloned();
        found.unwrap_or_else(|| metrics.series(&non_resource_labels(self.parts, StatusCode::OK)))
    }

    /// Notes the resource for the metrics. Only here, so that names of resources that do not exist are no labels.
    pub(super) fn observe(&self, metrics: &RequestMetrics, target: &Target) {
        let name = &target.resource.name;
        let scope = match (&target.name, &target.namespace) {
            (Some(_), _) => RequestScope::Resource,
            _ if target.verb == Verb::Create => RequestScope::Resource,
            (None, Some(_)) => RequestScope::Namespace,
            (None, None) => RequestScope::Cluster,
        };
        let labels = RequestLabels {
            is_built_in: target.resource.origin == Origin::BuiltIn,
            group: &name.group,
            version: &target.version,
            resource: &name.resource,
            subresource: target.subresource.as_deref().unwrap_or_default(),
            scope,
            verb: self.metric_verb(target.verb),
        };
        // A request has one resource.
        let _ = self.series.set(metrics.series(&labels));
    }

    fn metric_verb(&self, verb: Verb) -> &'static str {
        match verb {
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch if PatchKind::of(&self.parts.headers).is_ok_and(|kind| kind == PatchKind::Apply) => {
                "APPLY"
            }
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
        }
    }
}

/// The labels of discovery, documents, and requests that were refused before their resource was known.
fn non_resource_labels(parts: &Parts, code: StatusCode) -> RequestLabels<'static> {
    const PATHS: [&str; 8] =
        ["/apis", "/api", "/openapi/v2", "/openapi/v3", "/version", "/metrics", "/.well-known", "/openid"];
    let verb = match parts.method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    };
    // A scope may be in front of the path.
    let path = parts.uri.path();
    let is_below = |known: &str| {
        path.find(known).is_some_and(|at| matches!(path.as_bytes().get(at + known.len()), None | Some(b'/')))
    };
    let found = PATHS.iter().copied().find(|known| code.is_success() && is_below(known));
    let subresource = found.unwrap_or_default();
    RequestLabels {
        is_built_in: true,
        group: "",
        version: "",
        resource: "",
        subresource,
        scope: RequestScope::None,
        verb,
    }
}

/// The path of a request without its scope, with the query, for audit events.
pub(super) fn audited_uri(path: &RequestPath<'_>, parts: &Parts) -> String {
    let mut uri = path.text();
    if let Some(query) = parts.uri.query() {
        uri.push('?');
        uri.push_str(query);
    }
    uri
}

/// The limit of time of a request: its own (`timeout`), up to that of the server.
///
/// # Errors
/// 400 for a text that is no duration.
pub(super) fn time_limit(query: &Query<'_>, limit: Duration) -> Result<Duration, Status> {
    let Some(text) = query.get("timeout") else { return Ok(limit) };
    let requested = parse_duration(text).map_err(|error| {
        Status::bad_request(format!("invalid timeout specified in the request URL - {error}"))
    })?;
    Ok(if requested.is_zero() { limit } else { requested.min(limit) })
}
