//! A replica of a shard: the revision header between gateway and shard.

use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::answers::{Body, empty};

const REVISION: &str = "x-fairlead-revision";
const REFUSED: &str = "x-fairlead-refused";

/// The state of a replica.
#[derive(Debug, Default)]
pub struct Replica {
    /// Its revision; `None` for a shard of kcp, which sends none.
    pub revision: Option<u64>,
    /// Refuses requests for later revisions.
    pub is_behind: bool,
    /// The revisions that requests have required, empty for requests without one.
    pub required: Vec<String>,
}

impl Replica {
    /// Notes a request; refuses it if the replica is behind.
    pub(super) fn refuse(&mut self, headers: &HeaderMap) -> Option<Response<Body>> {
        let required: Vec<_> = headers.get_all(REVISION).iter().map(HeaderValue::as_bytes).collect();
        let required = String::from_utf8(required.join(&b',')).unwrap();
        let is_later = |required: u64| required > self.revision.unwrap_or_default();
        let is_refused = self.is_behind && required.parse().is_ok_and(is_later);
        self.required.push(required);
        is_refused.then(|| {
            let mut response = self.stamp(Response::new(empty()));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().insert(REFUSED, HeaderValue::from_static("behind"));
            response
        })
    }

    /// Adds the replica's revision to a response.
    pub(super) fn stamp(&self, mut response: Response<Body>) -> Response<Body> {
        if let Some(revision) = self.revision {
            response.headers_mut().insert(REVISION, revision.into());
        }
        response
    }
}
