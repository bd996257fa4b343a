//! Which web pages may use the API (CORS). Off unless origins are configured.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use regex::{Regex, RegexSet};

use crate::request::response::LocalResponse;

/// The origins that may.
#[derive(Clone, Debug)]
pub(crate) struct Cors {
    allowed: RegexSet,
}

/// An origin that may; what its browser has to be told with every answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AllowedOrigin(HeaderValue);

const METHODS: HeaderValue = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE, PATCH");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
);

impl Cors {
    /// Expressions over the `Origin` header; as in Kubernetes they match anywhere in it unless they are anchored.
    ///
    /// # Errors
    /// [`BadOrigin`] for the first that is none.
    pub(crate) fn new(origins: &[String]) -> Result<Self, BadOrigin> {
        match RegexSet::new(origins) {
            Ok(allowed) => Ok(Self { allowed }),
            Err(error) => Err(BadOrigin::among(origins, error)),
        }
    }

    /// The origin of a request, if it may. Costs nothing where CORS is off.
    pub(crate) fn judge(&self, headers: &HeaderMap) -> Option<AllowedOrigin> {
        if self.allowed.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        self.allowed.is_match(origin.to_str().ok()?).then(|| AllowedOrigin(origin.clone()))
    }
}

/// An expression for origins is none; whoever wrote it has to mend it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{expression:?} is no regular expression: {reason}")]
pub struct BadOrigin {
    expression: String,
    reason: String,
}

impl BadOrigin {
    /// The first that cannot be used alone; all of them, if they only are too many.
    fn among(origins: &[String], together: regex::Error) -> Self {
        let alone = origins.iter().find_map(|origin| Some((origin.clone(), Regex::new(origin).err()?)));
        let (expression, error) = alone.unwrap_or_else(|| (origins.join(","), together));
        // A drawing of the place comes first, on lines of its own.
        let text = error.to_string();
        let reason = text.lines().next_back().unwrap_or_default();
        Self { expression, reason: reason.trim_start_matches("error: ").to_owned() }
    }
}

impl AllowedOrigin {
    /// What is added to the head of every answer, in place of what a shard says about it.
    pub(crate) fn fields(&self) -> [(HeaderName, HeaderValue); 5] {
        [
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone()),
            (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Date")),
            (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true")),
        ]
    }

    /// The gateway's own answer to this origin.
    pub(crate) fn decorate(&self, mut answer: LocalResponse) -> LocalResponse {
        answer.response.headers_mut().extend(self.fields());
        answer
    }

    /// What a browser asks before it asks in earnest is answered here.
    pub(crate) fn preflight(&self, method: &Method) -> Option<LocalResponse> {
        (*method == Method::OPTIONS).then(|| {
            let mut response = Response::new(bytes::Bytes::new());
            *response.status_mut() = StatusCode::NO_CONTENT;
            self.decorate(LocalResponse::new(response, "preflight"))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn origins_are_matched_as_kubernetes_does() {
        let cors =
            Cors::new(&["^https://[a-z]+\\.example\\.com$".to_owned(), "//console:".to_owned()]).unwrap();
        for (origin, allowed) in [
            ("https://app.example.com", true),
            ("https://app.example.com.evil", false),
            ("http://console:8080", true),
            ("null", false),
        ] {
            let headers = [(header::ORIGIN, HeaderValue::from_static(origin))].into_iter().collect();
            assert_eq!(cors.judge(&headers).is_some(), allowed, "{origin}");
        }
        assert_eq!(cors.judge(&HeaderMap::new()), None);
        let error = Cors::new(&["fine".to_owned(), "[".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, r#""[" is no regular expression: unclosed character class"#);
    }
}
