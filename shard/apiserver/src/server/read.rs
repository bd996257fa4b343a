//! Get, list and watch on the wire.

use core::future::poll_fn;
use std::time::{Duration, SystemTime};

use fairlead_names::Origin;
use fairlead_process::{Status, StatusCause, StatusReason};
use fairlead_store::Revision;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use super::{ApiServer, Context, negotiation_status};
use crate::host::Host;
use crate::list::ListBody;
use crate::metrics::LongRunning;
use crate::registry::{StoredObject, Target, WatchEnd};
use crate::render::{IncludeObjectPolicy, Renderer};
use crate::request::{Form, ListOptions, OptionsError, Query, ResponseFormat};
use crate::response::{self, Response, ResponseBody};
use crate::watch::{View, WatchBody, error_frame};

/// A watch without timeoutSeconds ends after this time, up to twice as long (Kubernetes' min-request-timeout).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Bytes of items from which a list is streamed. Shorter ones have a Content-Length.
const MIN_STREAM_BYTES: usize = 128 * 1024;

impl<H: Host> ApiServer<H> {
    pub(super) async fn get(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: &str,
    ) -> Result<Response, Status> {
        let accepted = context.accepted()?;
        let version = context.query.get("resourceVersion").map(str::parse).transpose();
        let at_least =
            version.map_err(|_| Status::bad_request("resourceVersion: Invalid value: must be a number"))?;
        let stored = target.resource.registry.get(target, name, at_least.map(Revision)).await?;
        self.one(context, target, accepted, &stored, StatusCode::OK)
    }

    /// A response with one object.
    pub(super) fn one(
        &self,
        context: &Context<'_>,
        target: &Target,
        accepted: ResponseFormat,
        stored: &StoredObject,
        code: StatusCode,
    ) -> Result<Response, Status> {
        let mut bytes = self.renderer(context.query, target, accepted.form)?.response_body(stored)?;
        bytes.push(b'\n');
        response::encoded(accepted, code, bytes)
    }

    pub(super) async fn list(&self, context: &Context<'_>, target: &Target) -> Result<Response, Status> {
        let accepted = context.accepted()?;
        let options = list_options(context.query, false)?;
        let included = self.renderer(context.query, target, accepted.form)?.included;
        let view = View { form: accepted.form, annotations: self.annotations, included };
        let cursor = target.resource.registry.list(target, &options).await?;
        let is_built_in = target.resource.origin == Origin::BuiltIn;
        let name = &target.resource.name;
        let returned = self.metrics.list(is_built_in, &name.group, &name.resource);
        let mut list = ListBody::new(target.clone(), view, cursor, options.limit.is_some(), returned);
        let is_compact = !accepted.is_yaml && !accepted.is_pretty;
        let mut items = Vec::with_capacity(4096);
        loop {
            if let Some(end) = poll_fn(|context| list.poll_items(context, &mut items)).await? {
                return response::encoded(accepted, StatusCode::OK, list.whole(&items, &end));
            }
            if is_compact && items.len() >= MIN_STREAM_BYTES {
                break;
            }
            // Each step is short; other requests run between two of them.
            tokio::task::yield_now().await;
        }
        list.begin_stream(&items);
        let mut response = Response::new(ResponseBody::List(Box::new(list)));
        let content_type = HeaderValue::from_static(accepted.content_type());
        response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
        Ok(response)
    }

    pub(super) async fn watch(
        &self,
        context: &Context<'_>,
        target: Target,
        name: Option<String>,
    ) -> Result<Response, Status> {
        let accepted = ResponseFormat::of_watch(&context.parts.headers, context.query)
            .map_err(|error| negotiation_status(&error))?;
        let mut options = list_options(context.query, true)?;
        if let Some(name) = name {
            // The old form of watching one object: `…/name?watch=true`.
            options.fields = options.fields.and("metadata.name", &name);
        }
        let observed = LongRunning::begin(context.series(&self.metrics));
        let until = WatchEnd { at: watch_end(options.timeout, context.identity.expires()) };
        let included = self.renderer(context.query, &target, accepted.form)?.included;
        let view = View { form: accepted.form, annotations: self.annotations, included };
        let registry = target.resource.registry.clone();
        let body = match registry.watch(&target, &options, until).await {
            Ok(watched) => {
                ResponseBody::Watch(Box::new(WatchBody::new(target, options, view, watched, observed)))
            }
            // A compacted version is reported inside the stream, as by the watch cache.
            Err(status) if status.reason == StatusReason::Expired => ResponseBody::full(error_frame(&status)),
            Err(status) => return Err(status),
        };
        let mut response = Response::new(body);
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    pub(super) fn renderer<'t>(
        &self,
        query: &Query<'_>,
        target: &'t Target,
        form: Form,
    ) -> Result<Renderer<'t>, Status> {
        let included = match query.get("includeObject") {
            None | Some("Metadata") => IncludeObjectPolicy::Metadata,
            Some("None") => IncludeObjectPolicy::Nothing,
            Some("Object") => IncludeObjectPolicy::Object,
            Some(other) => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                     'Metadata', 'Object', 'None', or empty"
                )));
            }
        };
        Ok(Renderer {
            resource: &target.resource,
            version: &target.version,
            form,
            annotations: self.annotations,
            now: jiff::Timestamp::now().as_second(),
            included,
            scale: target.scale(),
        })
    }
}

pub(super) fn list_options(query: &Query<'_>, watch: bool) -> Result<ListOptions, Status> {
    ListOptions::parse(query, watch).map_err(|error| options_status("ListOptions", &error))
}

/// The end of a watch: after the client's timeout or a random one, and no later than the expiry of the credential.
fn watch_end(timeout: Option<Duration>, expires: Option<SystemTime>) -> Instant {
    let timeout = timeout.unwrap_or_else(|| {
        let mut random = [0; 2];
        // If the system provides no random bytes, all watches end after the same time, which is harmless.
        let _ = getrandom::fill(&mut random);
        MIN_WATCH_TIMEOUT
            + MIN_WATCH_TIMEOUT.mul_f64(f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX))
    });
    let credential = expires.map(|expires| expires.duration_since(SystemTime::now()).unwrap_or_default());
    Instant::now() + credential.map_or(timeout, |credential| credential.min(timeout))
}

/// 400, or 422 on the kind of the options (`ListOptions`, …).
pub(super) fn options_status(kind: &str, error: &OptionsError) -> Status {
    let Some(reason) = error.reason() else {
        return Status::bad_request(error.to_string());
    };
    let field = error.field().unwrap_or_default();
    let text = error.to_string();
    let message =
        text.strip_prefix(field).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text).to_owned();
    Status::invalid("meta.k8s.io", kind, "", vec![StatusCause::field(reason, field, message)])
}
