//! Responses that the gateway generates itself.

use std::time::Duration;

use bytes::Bytes;
use fairlead_process::{GroupResource, Status, StatusFormat, StatusReason};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Response, StatusCode};

/// Identifies a request in the logs of all servers that process it.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A complete response, with the reason for metrics.
#[derive(Clone, Debug)]
pub(crate) struct LocalResponse {
    /// Status, headers and body.
    pub(crate) response: Box<Response<Bytes>>,
    /// The reason why the gateway responds itself, as a metric label.
    pub(crate) reason: &'static str,
    /// The Kubernetes `Status` of the body, if it is one. The client chooses its encoding.
    status: Option<Box<Status>>,
}

impl LocalResponse {
    /// A response of any kind.
    pub(crate) fn new(response: Response<Bytes>, reason: &'static str) -> Self {
        Self { response: Box::new(response), reason, status: None }
    }

    /// A Kubernetes `Status`.
    pub(crate) fn status(status: &Status, reason: &'static str) -> Self {
        let mut response = status.to_response();
        if status.code != 401 {
            response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        }
        Self { status: Some(Box::new(status.clone())), ..Self::new(response, reason) }
    }

    /// Encodes a `Status` as the `Accept` header of the request demands.
    pub(crate) fn into_accepted_format(mut self, headers: &HeaderMap, query: Option<&str>) -> Self {
        if let Some(status) = &self.status {
            let format = StatusFormat::accepted_by(headers, query);
            if format != StatusFormat::Json {
                let (parts, body) = status.to_response_as(format).into_parts();
                self.response.headers_mut().extend(parts.headers);
                *self.response.body_mut() = body;
            }
        }
        self
    }

    /// A response with a JSON body.
    pub(crate) fn json(code: StatusCode, body: Vec<u8>, reason: &'static str) -> Self {
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self::new(response, reason)
    }

    /// Adds `Cache-Control: no-store`.
    pub(crate) fn set_no_store(&mut self) {
        self.response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }

    /// 403 with kcp's message. The user name is empty because the request has not been authenticated yet. `path` is decoded.
    pub(crate) fn no_such_workspace(method: &Method, path: &str) -> Self {
        let verb = method.as_str().to_ascii_lowercase();
        let reason = format!("User \"\" cannot {verb} path {}: workspace access not permitted", quoted(path));
        Self::status(&Status::forbidden(GroupResource::default(), "", reason), "unknown_workspace")
    }

    /// 401, without `WWW-Authenticate`, as kcp.
    pub(crate) fn unauthorized() -> Self {
        Self::status(&Status::unauthorized(), "unauthorized")
    }

    /// 403 for an authenticated user.
    pub(crate) fn forbidden(user: &str, verb: &str, path: &str) -> Self {
        let reason = format!("User {} cannot {verb} path {}: access denied", quoted(user), quoted(path));
        Self::status(&Status::forbidden(GroupResource::default(), "", reason), "forbidden")
    }

    /// 503 with `Retry-After: 1`.
    pub(crate) fn unavailable(message: &str, reason: &'static str) -> Self {
        Self::status(&Status::service_unavailable(message, 1), reason)
    }

    /// 408: the body of the request was not received in time.
    pub(crate) fn request_timeout() -> Self {
        Self::status(&Status::request_timeout(), "slow_body")
    }

    /// 429 with `Retry-After`.
    pub(crate) fn too_many(message: impl Into<String>, wait: Duration, reason: &'static str) -> Self {
        // Whole seconds, at least one.
        let seconds = u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX).max(1);
        Self::status(&Status::too_many_requests(message, seconds), reason)
    }

    /// 502: the shard's response is invalid or incomplete. The reason is that of clients of Kubernetes for a 5xx without one.
    pub(crate) fn bad_gateway() -> Self {
        let message = "the shard closed the connection before it responded";
        Self::status(&Status::new(502, StatusReason::InternalError, message), "bad_gateway")
    }

    /// 504: the shard did not respond in time.
    pub(crate) fn gateway_timeout() -> Self {
        Self::status(&Status::timeout("the shard did not respond in time", 1), "gateway_timeout")
    }

    /// 400 with this message.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::status(&Status::bad_request(message), "bad_request")
    }

    /// 404 with the body of Go's `ServeMux`.
    pub(crate) fn not_found() -> Self {
        Self::plain(StatusCode::NOT_FOUND, "404 page not found\n", "unmapped")
    }

    /// Plain text, as Go's `http.Error` sends it.
    pub(crate) fn plain(code: StatusCode, text: &'static str, reason: &'static str) -> Self {
        let mut response = Response::new(Bytes::from_static(text.as_bytes()));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Self::new(response, reason)
    }

    /// 500 with the message of Kubernetes' API servers for a panic, where kcp panics.
    pub(crate) fn kcp_panic() -> Self {
        let text = "This request caused apiserver to panic. Look in the logs for details.\n";
        Self::plain(StatusCode::INTERNAL_SERVER_ERROR, text, "kcp_panic")
    }

    /// 508: mounts form a cycle.
    pub(crate) fn loop_detected() -> Self {
        let message = "the workspace is mounted, and its mounts form a cycle";
        Self::status(&Status::new(508, StatusReason::InternalError, message), "mount_loop")
    }

    /// 307 to a clean path, with the HTML page that Go adds for a GET. `location` is percent-encoded.
    pub(crate) fn redirect(method: &Method, location: &str, query: Option<&str>) -> Self {
        let target = query.map_or_else(|| location.to_owned(), |query| format!("{location}?{query}"));
        let Ok(value) = HeaderValue::from_str(&target) else {
            return Self::bad_request("the clean form of the path cannot be written in a header");
        };
        let shown =
            target.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
        let page = format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", shown.replace('\'', "&#39;"));
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let mut response = Response::new(if is_read { Bytes::from(page) } else { Bytes::new() });
        *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        let headers = response.headers_mut();
        if is_read {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        }
        headers.insert(LOCATION, value);
        Self::new(response, "redirect")
    }
}

/// The text in quotes as Go's `%q` prints it, for the characters that occur in paths and user names.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control.is_control() => out.extend(control.escape_unicode()),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_for_an_unknown_workspace_is_that_of_kcp() {
        let response = LocalResponse::no_such_workspace(&Method::GET, "/clusters/root:nope/api");
        let expected = concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#,
            r#""forbidden: User \"\" cannot get path \"/clusters/root:nope/api\": workspace access not permitted","#,
            r#""reason":"Forbidden","details":{},"code":403}"#,
            "\n"
        );
        assert_eq!(response.response.body(), expected.as_bytes());
        assert_eq!(response.response.status(), 403);
    }

    #[test]
    fn a_redirect_is_that_of_go() {
        let response = LocalResponse::redirect(&Method::GET, "/clusters/root/api", Some("a=b&c=d"));
        assert_eq!(response.response.headers()[LOCATION], "/clusters/root/api?a=b&c=d");
        let expected = "<a href=\"/clusters/root/api?a=b&amp;c=d\">Temporary Redirect</a>.\n\n";
        assert_eq!(response.response.body(), expected.as_bytes());
    }
}
