//! Cross-origin requests (CORS): the origins whose web pages may use the API. Off unless origins are configured.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use regex::{Regex, RegexSet};

use crate::request::response::LocalResponse;

/// The allowed origins.
#[derive(Clone, Debug)]
pub(crate) struct Cors {
    allowed: RegexSet,
}

/// An allowed origin, which every response to its pages names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AllowedOrigin(HeaderValue);

const METHODS: HeaderValue = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE, PATCH");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
);

impl Cors {
    /// Regular expressions over the `Origin` header; as in Kubernetes they match anywhere in it unless they are anchored.
    ///
    /// # Errors
    /// [`InvalidOrigin`] for the first invalid one.
    pub(crate) fn new(origins: &[String]) -> Result<Self, InvalidOrigin> {
        match RegexSet::new(origins) {
            Ok(allowed) => Ok(Self { allowed }),
            Err(error) => Err(InvalidOrigin::among(origins, error)),
        }
    }

    /// The origin of a request, if it is allowed. Costs nothing where CORS is off.
    pub(crate) fn evaluate(&self, headers: &HeaderMap) -> Option<AllowedOrigin> {
        if self.allowed.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        self.allowed.is_match(origin.to_str().ok()?).then(|| AllowedOrigin(origin.clone()))
    }
}

/// An invalid expression in the settings.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{expression:?} is not a regular expression: {reason}")]
pub struct InvalidOrigin {
    expression: String,
    reason: String,
}

impl InvalidOrigin {
    /// The first expression that is invalid by itself; all of them, if they are only too many together.
    fn among(origins: &[String], together: regex::Error) -> Self {
        let alone = origins.iter().find_map(|origin| Some((origin.clone(), Regex::new(origin).err()?)));
        let (expression, error) = alone.unwrap_or_else(|| (origins.join(","), together));
        // The message begins with a drawing of the position over several lines.
        let text = error.to_string();
        let reason = text.lines().next_back().unwrap_or_default();
        Self { expression, reason: reason.trim_start_matches("error: ").to_owned() }
    }
}

impl AllowedOrigin {
    /// Headers that are added to every response, in place of the shard's.
    pub(crate) fn fields(&self) -> [(HeaderName, HeaderValue); 5] {
        [
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone()),
            (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Date")),
            (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true")),
        ]
    }

    /// A response of the gateway's own, with these headers.
    pub(crate) fn decorate(&self, mut response: LocalResponse) -> LocalResponse {
        response.response.headers_mut().extend(self.fields());
        response
    }

    /// The response to a preflight request.
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
            assert_eq!(cors.evaluate(&headers).is_some(), allowed, "{origin}");
        }
        assert_eq!(cors.evaluate(&HeaderMap::new()), None);
        let error = Cors::new(&["fine".to_owned(), "[".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, r#""[" is not a regular expression: unclosed character class"#);
    }
}
