//! What the gateway answers by itself.

use std::time::Duration;

use bytes::Bytes;
use fairlead_process::{GroupResource, Status, StatusFormat, StatusReason};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Response, StatusCode};

/// Names one answer in the logs of all servers on its way.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A complete answer and the word for it in metrics.
#[derive(Clone, Debug)]
pub(crate) struct LocalResponse {
    /// Status, headers and body.
    pub(crate) response: Box<Response<Bytes>>,
    /// Why the gateway answered itself.
    pub(crate) reason: &'static str,
    /// What the body says, if it is a `Status`, whose form is for the client to choose.
    status: Option<Box<Status>>,
}

impl LocalResponse {
    /// Any response.
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

    /// The same in the form that a request asks for.
    pub(crate) fn into_wanted_form(mut self, headers: &HeaderMap, query: Option<&str>) -> Self {
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

    /// JSON.
    pub(crate) fn json(code: StatusCode, body: Vec<u8>, reason: &'static str) -> Self {
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self::new(response, reason)
    }

    /// Nobody on the way, and no browser, may keep it.
    pub(crate) fn forbid_storing(&mut self) {
        self.response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }

    /// 403 with kcp's words: the name is empty because nobody has asked yet who it is. `path` is decoded.
    pub(crate) fn no_such_workspace(method: &Method, path: &str) -> Self {
        let verb = method.as_str().to_ascii_lowercase();
        let reason = format!("User \"\" cannot {verb} path {}: workspace access not permitted", quoted(path));
        Self::status(&Status::forbidden(GroupResource::default(), "", reason), "unknown_workspace")
    }

    /// 401. No `WWW-Authenticate`, as kcp.
    pub(crate) fn unauthorized() -> Self {
        Self::status(&Status::unauthorized(), "unauthorized")
    }

    /// 403 to somebody who is known.
    pub(crate) fn forbidden(user: &str, verb: &str, path: &str) -> Self {
        let reason = format!("User {} cannot {verb} path {}: access denied", quoted(user), quoted(path));
        Self::status(&Status::forbidden(GroupResource::default(), "", reason), "forbidden")
    }

    /// 503 with `Retry-After: 1`.
    pub(crate) fn unavailable(message: &str, reason: &'static str) -> Self {
        Self::status(&Status::service_unavailable(message, 1), reason)
    }

    /// 408: the rest of the request does not come.
    pub(crate) fn request_timeout() -> Self {
        Self::status(&Status::request_timeout(), "slow_body")
    }

    /// 429: a retry helps after a moment.
    pub(crate) fn too_many(message: impl Into<String>, wait: Duration, reason: &'static str) -> Self {
        // Whole seconds, and never at once.
        let seconds = u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX).max(1);
        Self::status(&Status::too_many_requests(message, seconds), reason)
    }

    /// 502: the shard did not answer as it should.
    pub(crate) fn bad_gateway() -> Self {
        let message = "the shard broke off before it answered";
        Self::status(&Status::new(502, StatusReason::Unknown, message), "bad_gateway")
    }

    /// 504: the shard did not answer in time.
    pub(crate) fn gateway_timeout() -> Self {
        Self::status(&Status::timeout("the shard did not answer in time", 1), "gateway_timeout")
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::status(&Status::bad_request(message), "bad_request")
    }

    /// 404 as Go's mux says it.
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

    /// 500 in the words of Kubernetes' API servers for a panic, where kcp has one.
    pub(crate) fn kcp_panic() -> Self {
        let text = "This request caused apiserver to panic. Look in the logs for details.\n";
        Self::plain(StatusCode::INTERNAL_SERVER_ERROR, text, "kcp_panic")
    }

    /// 508: mounts lead to one another.
    pub(crate) fn loop_detected() -> Self {
        let message = "the workspace is mounted, and its mounts lead round in circles";
        Self::status(&Status::new(508, StatusReason::Unknown, message), "mount_loop")
    }

    /// 307 to a clean path, with the small page that Go adds for a GET. `location` is percent-encoded.
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

/// A text in quotes as Go's `%q` prints it, as far as paths and user names need it.
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
    fn an_unknown_workspace_reads_as_kcp_says_it() {
        let answer = LocalResponse::no_such_workspace(&Method::GET, "/clusters/root:nope/api");
        let expected = concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#,
            r#""forbidden: User \"\" cannot get path \"/clusters/root:nope/api\": workspace access not permitted","#,
            r#""reason":"Forbidden","details":{},"code":403}"#,
            "\n"
        );
        assert_eq!(answer.response.body(), expected.as_bytes());
        assert_eq!(answer.response.status(), 403);
    }

    #[test]
    fn a_redirect_reads_as_go_says_it() {
        let answer = LocalResponse::redirect(&Method::GET, "/clusters/root/api", Some("a=b&c=d"));
        assert_eq!(answer.response.headers()[LOCATION], "/clusters/root/api?a=b&c=d");
        let expected = "<a href=\"/clusters/root/api?a=b&amp;c=d\">Temporary Redirect</a>.\n\n";
        assert_eq!(answer.response.body(), expected.as_bytes());
    }
}
