//! `Status`: the one error value of the Kubernetes wire.
//!
//! Reasons, codes, texts and which fields of `details` are filled follow `k8s.io/apimachinery/pkg/api/errors`,
//! because clients branch on them; the JSON has the fields in the order in which Go prints them.

use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Serialize;

/// A failed request as a Kubernetes client is told. Small enough (64 bytes) to travel in a `Result`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable class of the failure.
    pub reason: StatusReason,
    /// For people.
    pub message: String,
    /// What was asked for. An empty value is printed as `{}`, `None` is left out, as Go does per kind of error.
    pub details: Option<Box<StatusDetails>>,
    /// A continue token or resource version that goes with the failure.
    pub metadata: Option<Box<StatusMetadata>>,
}

/// The classes of failure that Kubernetes clients tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the words on the wire")]
pub enum StatusReason {
    /// No class; left out in JSON.
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

/// What a failure (or a successful deletion) is about.
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
    /// When to try again; also sent as the `Retry-After` header. 0 means nothing is said.
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One fault among several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusCause {
    /// For example `FieldValueInvalid`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: std::borrow::Cow<'static, str>,
    /// For people, without the field.
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
    /// A token with which a list may go on, without consistency.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// A resource of an API group, as errors name it: `widgets.example.com`, in the core group `configmaps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupResource<'a> {
    /// The API group, empty for the core group.
    pub group: &'a str,
    /// The plural name. Empty for requests that are not about a resource.
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

/// Where each kind of failure comes from and what it says.
impl Status {
    /// A failure with an own code, reason and text and no details.
    pub fn new(code: u16, reason: StatusReason, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, metadata: None }
    }

    /// 404: no object of that name.
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        Self::new(404, StatusReason::NotFound, format!("{resource} {} not found", quoted(name)))
            .about(resource, name)
    }

    /// 404: no such resource or path below `/api` and `/apis`.
    pub fn unknown_resource() -> Self {
        Self::new(404, StatusReason::NotFound, "the server could not find the requested resource")
            .with_details(StatusDetails::default())
    }

    /// 409: the name is taken.
    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        Self::new(409, StatusReason::AlreadyExists, format!("{resource} {} already exists", quoted(name)))
            .about(resource, name)
    }

    /// 409: a precondition does not hold; the client may read again and retry.
    pub fn conflict(resource: GroupResource<'_>, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quoted(name));
        Self::new(409, StatusReason::Conflict, message).about(resource, name)
    }

    /// 409: the object's resource version is not the one that the client wrote against.
    pub fn modified(resource: GroupResource<'_>, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 409: server-side apply met fields of other managers.
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

    /// 403. With an empty resource the failure is about a path, with an empty name about a collection.
    pub fn forbidden(resource: GroupResource<'_>, name: &str, why: impl fmt::Display) -> Self {
        let message = match (resource.resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} {} is forbidden: {why}", quoted(name)),
        };
        Self::new(403, StatusReason::Forbidden, message).about(resource, name)
    }

    /// 401: a credential was given and is not good, or one is needed.
    pub fn unauthorized() -> Self {
        Self::new(401, StatusReason::Unauthorized, "Unauthorized")
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, StatusReason::BadRequest, message)
    }

    /// 405: the resource exists but not with this verb (`list`, `create`, …).
    pub fn method_not_allowed(resource: GroupResource<'_>, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
        Self::new(405, StatusReason::MethodNotAllowed, message).about(resource, "")
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

    /// 408: the rest of the request does not come.
    pub fn request_timeout() -> Self {
        Self::new(408, StatusReason::Unknown, "the body of the request comes too slowly")
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

    /// 504: a read asks for a revision that this server has not reached.
    pub fn resource_version_too_large(asked: u64, current: u64) -> Self {
        let mut status =
            Self::timeout(format_args!("Too large resource version: {asked}, current: {current}"), 1);
        if let Some(details) = &mut status.details {
            details.causes =
                vec![StatusCause::field("ResourceVersionTooLarge", "", "Too large resource version")];
        }
        status
    }

    /// 500: could not be done now; nothing happened, try again.
    pub fn server_timeout(resource: GroupResource<'_>, operation: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::new(500, StatusReason::ServerTimeout, message)
            .about(resource, operation)
            .retry_after(retry_after_seconds)
    }

    /// 410: the requested revision is no longer kept; start over.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, StatusReason::Expired, message)
    }

    /// 500: our fault. The text is shown to the client: no secrets, no paths of files.
    pub fn internal(why: impl fmt::Display) -> Self {
        let cause = StatusCause { message: why.to_string(), ..StatusCause::default() };
        Self::new(500, StatusReason::InternalError, format!("Internal error occurred: {why}"))
            .with_details(StatusDetails { causes: vec![cause], ..StatusDetails::default() })
    }

    /// 503: not now; safe to retry.
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

    /// The same failure with a token with which an inconsistent list may go on.
    #[must_use]
    pub fn with_continue(mut self, token: impl Into<String>) -> Self {
        self.metadata.get_or_insert_default().continue_token = token.into();
        self
    }

    /// The code as a type; 500 should somebody have set a number that is none.
    pub fn http_code(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// When the client is told to come back, if it is.
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

    /// The whole answer: code, `Content-Type`, `Retry-After` when one is given, body.
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

    /// The body of a deletion that is complete: a `Status` too, but of success.
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

    fn about(self, resource: GroupResource<'_>, name: &str) -> Self {
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
mod tests {
    use super::*;

    const WIDGETS: GroupResource<'_> = GroupResource { group: "example.com", resource: "widgets" };
    const CONFIG_MAPS: GroupResource<'_> = GroupResource { group: "", resource: "configmaps" };

    /// What a Kubernetes API server prints for the same failure.
    #[test]
    fn bodies_are_those_of_kubernetes() {
        let cause = StatusCause::field;
        let table: Vec<(Status, &str)> = vec![
            (
                Status::not_found(CONFIG_MAPS, "a"),
                r#""message":"configmaps \"a\" not found","reason":"NotFound","details":{"name":"a","kind":"configmaps"},"code":404}"#,
            ),
            (
                Status::not_found(WIDGETS, "a"),
                r#""message":"widgets.example.com \"a\" not found","reason":"NotFound","details":{"name":"a","group":"example.com","kind":"widgets"},"code":404}"#,
            ),
            (
                Status::unknown_resource(),
                r#""message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
            ),
            (
                Status::already_exists(WIDGETS, "a"),
                r#""message":"widgets.example.com \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","group":"example.com","kind":"widgets"},"code":409}"#,
            ),
            (
                Status::modified(CONFIG_MAPS, "a"),
                r#""message":"Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"a","kind":"configmaps"},"code":409}"#,
            ),
            (
                Status::apply_conflict(
                    "Apply failed with 1 conflict: conflict with \"kubectl\": .data.k",
                    vec![cause("FieldManagerConflict", ".data.k", "conflict with \"kubectl\"")],
                ),
                r#""message":"Apply failed with 1 conflict: conflict with \"kubectl\": .data.k","reason":"Conflict","details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl\"","field":".data.k"}]},"code":409}"#,
            ),
            (
                Status::invalid(
                    "example.com",
                    "Widget",
                    "w",
                    vec![cause("FieldValueForbidden", "spec.color", "Forbidden: color is immutable")],
                ),
                r#""message":"Widget.example.com \"w\" is invalid: spec.color: Forbidden: color is immutable","reason":"Invalid","details":{"name":"w","group":"example.com","kind":"Widget","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: color is immutable","field":"spec.color"}]},"code":422}"#,
            ),
            (
                Status::invalid(
                    "",
                    "Secret",
                    "",
                    vec![
                        cause("FieldValueRequired", "a", "Required value"),
                        cause("FieldValueRequired", "a", "Required value"),
                        cause("FieldValueRequired", "b", "Required value"),
                    ],
                ),
                r#""message":"Secret \"\" is invalid: [a: Required value, b: Required value]","reason":"Invalid","details":{"kind":"Secret","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"a"},{"reason":"FieldValueRequired","message":"Required value","field":"a"},{"reason":"FieldValueRequired","message":"Required value","field":"b"}]},"code":422}"#,
            ),
            (
                Status::forbidden(WIDGETS, "", "User \"u\" cannot list resource"),
                r#""message":"widgets.example.com is forbidden: User \"u\" cannot list resource","reason":"Forbidden","details":{"group":"example.com","kind":"widgets"},"code":403}"#,
            ),
            (
                Status::forbidden(CONFIG_MAPS, "a", "no"),
                r#""message":"configmaps \"a\" is forbidden: no","reason":"Forbidden","details":{"name":"a","kind":"configmaps"},"code":403}"#,
            ),
            (
                Status::forbidden(GroupResource::default(), "", "User \"\" cannot get path \"/\""),
                r#""message":"forbidden: User \"\" cannot get path \"/\"","reason":"Forbidden","details":{},"code":403}"#,
            ),
            (Status::unauthorized(), r#""message":"Unauthorized","reason":"Unauthorized","code":401}"#),
            (
                Status::bad_request("field label not supported: <x>"),
                r#""message":"field label not supported: \u003cx\u003e","reason":"BadRequest","code":400}"#,
            ),
            (
                Status::method_not_allowed(WIDGETS, "create"),
                r#""message":"create is not supported on resources of kind \"widgets.example.com\"","reason":"MethodNotAllowed","details":{"group":"example.com","kind":"widgets"},"code":405}"#,
            ),
            (
                Status::unknown_method(),
                r#""message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405}"#,
            ),
            (
                Status::not_acceptable(&["application/json", "application/yaml"]),
                r#""message":"only the following media types are accepted: application/json, application/yaml","reason":"NotAcceptable","code":406}"#,
            ),
            (
                Status::unsupported_media_type(&["application/json", "application/yaml"]),
                r#""message":"the body of the request was in an unknown format - accepted media types include: application/json, application/yaml","reason":"UnsupportedMediaType","code":415}"#,
            ),
            (
                Status::request_entity_too_large(3_145_728),
                r#""message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}"#,
            ),
            (
                Status::too_many_requests("slow down", 1),
                r#""message":"slow down","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#,
            ),
            (
                Status::resource_version_too_large(99_999_999, 746),
                r#""message":"Timeout: Too large resource version: 99999999, current: 746","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
            ),
            (
                Status::server_timeout(WIDGETS, "list", 2),
                r#""message":"The list operation against widgets.example.com could not be completed at this time, please try again.","reason":"ServerTimeout","details":{"name":"list","group":"example.com","kind":"widgets","retryAfterSeconds":2},"code":500}"#,
            ),
            (
                Status::expired("The resourceVersion for the provided list is too old."),
                r#""message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410}"#,
            ),
            (
                Status::internal("no cluster found in the context"),
                r#""message":"Internal error occurred: no cluster found in the context","reason":"InternalError","details":{"causes":[{"message":"no cluster found in the context"}]},"code":500}"#,
            ),
            (
                Status::service_unavailable("not yet", 1),
                r#""message":"not yet","reason":"ServiceUnavailable","details":{"retryAfterSeconds":1},"code":503}"#,
            ),
        ];
        for (status, rest) in table {
            let expected = format!(
                "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",{rest}\n"
            );
            assert_eq!(status.to_json(), expected.as_bytes(), "{status}");
        }
    }

    #[test]
    fn a_continue_token_stands_in_the_metadata() {
        let json = Status::expired("too old").with_continue("abc").to_json();
        assert!(
            json.starts_with(br#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"abc"},"#),
            "{json:?}"
        );
    }

    #[test]
    fn a_finished_deletion_is_a_success() {
        let details = StatusDetails {
            name: "a".into(),
            kind: "configmaps".into(),
            uid: "u".into(),
            ..Default::default()
        };
        let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"a","kind":"configmaps","uid":"u"}}"#;
        assert_eq!(Status::success_json(&details), format!("{expected}\n").as_bytes());
    }

    #[test]
    fn names_are_quoted_as_go_does() {
        for (name, expected) in
            [("a'b", r#""a'b""#), ("a\"\\", r#""a\"\\""#), ("\n\u{1}\u{85}ü", r#""\n\x01\u0085ü""#)]
        {
            assert_eq!(quoted(name), expected);
        }
    }

    #[test]
    fn retry_after_is_a_header_too() {
        let response = Status::service_unavailable("not yet", 3).to_response();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[RETRY_AFTER]),
            (503, &HeaderValue::from(3))
        );
        assert!(!Status::unauthorized().to_response().headers().contains_key(RETRY_AFTER));
    }
}
