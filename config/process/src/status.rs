//! `Status`: the error object of the Kubernetes API.
//!
//! Reasons, codes, texts and which fields of `details` are filled follow `k8s.io/apimachinery/pkg/api/errors`,
//! because clients branch on them; the JSON has the fields in the order in which Go prints them.

use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Serialize;

/// A failed request in the form of the Kubernetes API. Small enough (64 bytes) for the error of a `Result`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable class of the failure.
    pub reason: StatusReason,
    /// Human-readable description.
    pub message: String,
    /// The requested object. An empty value is serialized as `{}`, `None` is omitted, as Go does per kind of error.
    pub details: Option<Box<StatusDetails>>,
    /// A continue token or resource version that belongs to the failure.
    pub metadata: Option<Box<StatusMetadata>>,
}

/// The classes of failure that Kubernetes clients distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the words on the wire")]
pub enum StatusReason {
    /// No class; omitted in JSON.
    Unknown,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    ServerTimeout,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    Expired,
    ServiceUnavailable,
}

/// The subject of a failure or of a successful deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusDetails {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource (plural), in `invalid` the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Single faults, for example one per field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds after which to retry; also sent as the `Retry-After` header. 0 means none.
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One fault among several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusCause {
    /// For example `FieldValueInvalid`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: std::borrow::Cow<'static, str>,
    /// Human-readable description, without the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field, for example `spec.ports[0].name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// The list metadata of a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusMetadata {
    /// The revision at which the failure was found.
    #[serde(rename = "resourceVersion", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// A token to continue a list without consistency.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// A resource of an API group, as error messages name it: `widgets.example.com`, in the core group `configmaps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupResource<'a> {
    /// The API group, empty for the core group.
    pub group: &'a str,
    /// The plural name. Empty for requests without a resource.
    pub resource: &'a str,
}

impl<'a> GroupResource<'a> {
    /// `resource` of `group`.
    pub fn new(group: &'a str, resource: &'a str) -> Self {
        Self { group, resource }
    }
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            "" => f.write_str(self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}

impl StatusCause {
    /// A fault of one field; `reason` is for example `FieldValueRequired`.
    pub fn field(
        reason: impl Into<std::borrow::Cow<'static, str>>,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { reason: reason.into(), message: message.into(), field: field.into() }
    }
}

impl StatusReason {
    /// The word on the wire; empty for [`StatusReason::Unknown`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Invalid => "Invalid",
            Self::ServerTimeout => "ServerTimeout",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }
}

/// Constructors for each kind of failure.
impl Status {
    /// A failure with a given code, reason and message, without details.
    pub fn new(code: u16, reason: StatusReason, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, metadata: None }
    }

    /// 404: no object of that name.
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        Self::new(404, StatusReason::NotFound, format!("{resource} {} not found", quoted(name)))
            .with_object(resource, name)
    }

    /// 404: no such resource or path below `/api` and `/apis`.
    pub fn unknown_resource() -> Self {
        Self::new(404, StatusReason::NotFound, "the server could not find the requested resource")
            .with_details(StatusDetails::default())
    }

    /// 409: an object of that name exists.
    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        Self::new(409, StatusReason::AlreadyExists, format!("{resource} {} already exists", quoted(name)))
            .with_object(resource, name)
    }

    /// 409: a precondition does not hold; the client may read again and retry.
    pub fn conflict(resource: GroupResource<'_>, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quoted(name));
        Self::new(409, StatusReason::Conflict, message).with_object(resource, name)
    }

    /// 409: the object's resource version is not the one that the client wrote against.
    pub fn modified(resource: GroupResource<'_>, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 409: server-side apply conflicts with fields of other managers.
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<StatusCause>) -> Self {
        Self::new(409, StatusReason::Conflict, message)
            .with_details(StatusDetails { causes, ..StatusDetails::default() })
    }

    /// 422: the object breaks the rules of its kind. `kind` is the kind, not the resource.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<StatusCause>) -> Self {
        let mut message = format!("{} {} is invalid", GroupResource::new(group, kind), quoted(name));
        let mut faults: Vec<String> = Vec::with_capacity(causes.len());
        for cause in &causes {
            let fault = format!("{}: {}", cause.field, cause.message);
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        match faults.as_slice() {
            [] => {}
            [only] => message.push_str(&format!(": {only}")),
            many => message.push_str(&format!(": [{}]", many.join(", "))),
        }
        let details = StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..StatusDetails::default()
        };
        Self::new(422, StatusReason::Invalid, message).with_details(details)
    }

    /// 403. An empty resource means that the subject is a path, an empty name that it is a collection.
    pub fn forbidden(resource: GroupResource<'_>, name: &str, why: impl fmt::Display) -> Self {
        let message = match (resource.resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} {} is forbidden: {why}", quoted(name)),
        };
        Self::new(403, StatusReason::Forbidden, message).with_object(resource, name)
    }

    /// 401: the credential is invalid or missing.
    pub fn unauthorized() -> Self {
        Self::new(401, StatusReason::Unauthorized, "Unauthorized")
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, StatusReason::BadRequest, message)
    }

    /// 405: the resource exists but not with this verb (`list`, `create`, …).
    pub fn method_not_allowed(resource: GroupResource<'_>, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
        Self::new(405, StatusReason::MethodNotAllowed, message).with_object(resource, "")
    }

    /// 405: the HTTP method has no meaning on the path.
    pub fn unknown_method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, StatusReason::MethodNotAllowed, message).with_details(StatusDetails::default())
    }

    /// 406: none of the media types in `Accept` can be served.
    pub fn not_acceptable(served: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", served.join(", "));
        Self::new(406, StatusReason::NotAcceptable, message)
    }

    /// 415: the body's `Content-Type` cannot be read.
    pub fn unsupported_media_type(read: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            read.join(", ")
        );
        Self::new(415, StatusReason::UnsupportedMediaType, message)
    }

    /// 408: the rest of the request did not arrive in time.
    pub fn request_timeout() -> Self {
        Self::new(408, StatusReason::Unknown, "the request body arrives too slowly")
    }

    /// 413: the body has more than `limit` bytes.
    pub fn request_entity_too_large(limit: u64) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, StatusReason::RequestEntityTooLarge, message)
    }

    /// 431: too many or too large header fields.
    pub fn request_header_fields_too_large() -> Self {
        Self::new(431, StatusReason::Unknown, "the header fields of the request are too large")
    }

    /// 429: slow down; safe to retry.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, StatusReason::TooManyRequests, message).retry_after(retry_after_seconds)
    }

    /// 504: the request took too long; it may or may not have had an effect.
    pub fn timeout(message: impl fmt::Display, retry_after_seconds: u32) -> Self {
        Self::new(504, StatusReason::Timeout, format!("Timeout: {message}")).retry_after(retry_after_seconds)
    }

    /// 504: a read requests a revision that this server has not reached.
    pub fn resource_version_too_large(requested: u64, current: u64) -> Self {
        let mut status =
            Self::timeout(format_args!("Too large resource version: {requested}, current: {current}"), 1);
        if let Some(details) = &mut status.details {
            details.causes =
                vec![StatusCause::field("ResourceVersionTooLarge", "", "Too large resource version")];
        }
        status
    }

    /// 500: not possible at the moment; nothing was changed, the client may retry.
    pub fn server_timeout(resource: GroupResource<'_>, operation: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::new(500, StatusReason::ServerTimeout, message)
            .with_object(resource, operation)
            .retry_after(retry_after_seconds)
    }

    /// 410: the requested revision is no longer kept; start over.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, StatusReason::Expired, message)
    }

    /// 500: an internal error. The client sees the text: no secrets, no file paths.
    pub fn internal(why: impl fmt::Display) -> Self {
        let cause = StatusCause { message: why.to_string(), ..StatusCause::default() };
        Self::new(500, StatusReason::InternalError, format!("Internal error occurred: {why}"))
            .with_details(StatusDetails { causes: vec![cause], ..StatusDetails::default() })
    }

    /// 503: temporarily unavailable; safe to retry.
    pub fn service_unavailable(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(503, StatusReason::ServiceUnavailable, message).retry_after(retry_after_seconds)
    }
}

impl Status {
    /// The same failure with these details in place of any others.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// The same failure with a token to continue the list without consistency.
    #[must_use]
    pub fn with_continue(mut self, token: impl Into<String>) -> Self {
        self.metadata.get_or_insert_default().continue_token = token.into();
        self
    }

    /// The code as a type; 500 if the number is no HTTP status code.
    pub fn http_code(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Seconds after which the client may retry, if set.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details.as_ref().map(|d| d.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// The body, byte for byte as Go's encoder prints it, with the newline.
    pub fn to_json(&self) -> Bytes {
        let empty = StatusMetadata::default();
        print(&Wire {
            kind: "Status",
            api_version: "v1",
            metadata: self.metadata.as_deref().unwrap_or(&empty),
            status: "Failure",
            message: &self.message,
            reason: self.reason.as_str(),
            details: self.details.as_deref(),
            code: self.code,
        })
    }

    /// The whole response: code, `Content-Type`, `Retry-After` when one is given, body.
    pub fn to_response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.to_json());
        *response.status_mut() = self.http_code();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// The body of a completed deletion: a `Status` of success.
    pub fn success_json(details: &StatusDetails) -> Bytes {
        print(&Wire {
            kind: "Status",
            api_version: "v1",
            metadata: &StatusMetadata::default(),
            status: "Success",
            message: "",
            reason: "",
            details: Some(details),
            code: 0,
        })
    }

    fn with_object(self, resource: GroupResource<'_>, name: &str) -> Self {
        self.with_details(StatusDetails {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            ..StatusDetails::default()
        })
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }
}

#[derive(Serialize)]
struct Wire<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: &'a StatusMetadata,
    status: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a StatusDetails>,
    #[serde(skip_serializing_if = "is_zero_code")]
    code: u16,
}

fn print(wire: &Wire<'_>) -> Bytes {
    // A struct of strings and numbers always serialises.
    let mut json = serde_json::to_string(wire).unwrap_or_default();
    // Go escapes these for HTML. In compact JSON they can only stand inside a string.
    for (plain, escaped) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        if json.contains(plain) {
            json = json.replace(plain, escaped);
        }
    }
    json.push('\n');
    Bytes::from(json)
}

/// A name in quotes as Go's `%q` prints it.
fn quoted(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    out.push('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde wants")]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde wants")]
fn is_zero_code(code: &u16) -> bool {
    *code == 0
}

#[cfg(test)]
mod tests;
