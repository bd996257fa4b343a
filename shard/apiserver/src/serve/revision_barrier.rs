//! Read your writes across replicas of a store: a request waits until this replica has passed the revision that the gateway has
//! seen in responses of any replica.
//!
//! A gateway sends `x-fairlead-revision` with each request to a shard that has several addresses. Only to such a request this
//! server responds with the same header, so other proxies and clients see nothing of it. The wait ends when the hub has passed
//! the revision: then the view, lists, watches and all indexes contain it.
//!
//! Cost: without the header one look-up in the request's header map. With it, on a replica that is current, one read lock of
//! the hub's progress, one of the view, and one header of the response.

use std::sync::Arc;
use std::time::Duration;

use fairlead_process::Status;
use fairlead_store::{Revision, Store};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::hub::Hub;
use crate::response::{Response, failure};

/// Of a request: the lowest revision at which it may be served. Of a response: the revision of the replica that served it.
const REVISION: HeaderName = HeaderName::from_static("x-fairlead-revision");
/// Of a response: nothing was executed, for this reason, so that any request may be sent to another replica.
const REFUSED: HeaderName = HeaderName::from_static("x-fairlead-refused");
/// The replica has not passed the revision in time.
const BEHIND: HeaderValue = HeaderValue::from_static("behind");

/// How long a request waits. Replicas follow each other within milliseconds, so a replica that is later than this has lost its
/// connection.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// Makes requests of a gateway wait for the revision that it has seen.
#[derive(Clone)]
pub struct RevisionBarrier {
    store: Arc<dyn Store>,
    hub: Hub,
}

impl RevisionBarrier {
    /// A barrier of a store that other processes write to as well, and of the hub that follows it.
    pub fn new(store: Arc<dyn Store>, hub: Hub) -> Self {
        Self { store, hub }
    }

    /// Takes the revision off a request. A malformed one counts as none: only a gateway sends it.
    pub(super) fn take_requested(headers: &mut HeaderMap) -> Option<Revision> {
        let value = headers.remove(REVISION)?;
        value.to_str().ok()?.parse().ok().map(Revision)
    }

    /// Waits until this replica has passed a revision.
    ///
    /// # Errors
    /// 503 after [`MAX_WAIT`], or when the hub has ended; nothing was executed.
    pub(super) async fn wait(&self, requested: Revision) -> Result<(), Box<Response>> {
        if self.hub.revision() >= requested {
            return Ok(());
        }
        if let Ok(Ok(())) = tokio::time::timeout(MAX_WAIT, self.hub.wait(requested)).await {
            return Ok(());
        }
        let current = self.hub.revision();
        let message = format!(
            "this replica of the shard is at revision {current}, and the client has seen {requested}"
        );
        let mut refusal = failure(&Status::service_unavailable(message, 1));
        refusal.headers_mut().insert(REFUSED, BEHIND);
        refusal.headers_mut().insert(REVISION, current.0.into());
        Err(Box::new(refusal))
    }

    /// Notes the revision that the client may have seen.
    pub(super) fn stamp(&self, response: &mut Response) {
        response.headers_mut().insert(REVISION, self.store.revision().0.into());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_names::KeyCodec;
    use fairlead_store::{MemoryStore, Mutation};
    use http::StatusCode;

    use super::*;
    use crate::hub::HubOptions;
    use crate::response::content;

    fn barrier() -> (Arc<dyn Store>, RevisionBarrier) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let codec = KeyCodec::new("/registry", 1, |_, _| true);
        let hub = Hub::new(store.clone(), codec, HubOptions::default());
        (store.clone(), RevisionBarrier::new(store, hub))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_its_revision_and_not_for_ever() {
        let (store, barrier) = barrier();
        assert!(barrier.wait(Revision(0)).await.is_ok());
        let refusal = barrier.wait(Revision(1)).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::SERVICE_UNAVAILABLE);
        for (name, value) in
            [("retry-after", "1"), ("x-fairlead-refused", "behind"), ("x-fairlead-revision", "0")]
        {
            assert_eq!(refusal.headers()[name], value, "{name}");
        }

        let hub = barrier.hub.clone();
        let running = tokio::spawn(async move { hub.run().await });
        let waiting = barrier.wait(Revision(1));
        let writing = store.commit(vec![Mutation::put("/registry/a", "1")]);
        let (waited, written) = tokio::join!(waiting, writing);
        assert!(waited.is_ok());
        let mut response = content(StatusCode::OK, "text/plain", "");
        barrier.stamp(&mut response);
        assert_eq!(response.headers()[REVISION], written.unwrap().0.to_string());
        running.abort();
    }

    #[test]
    fn a_revision_is_taken_off_the_request() {
        for (value, expected) in
            [("7", Some(Revision(7))), ("0", Some(Revision(0))), ("x", None), ("-1", None)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(REVISION, HeaderValue::from_static(value));
            assert_eq!(RevisionBarrier::take_requested(&mut headers), expected, "{value}");
            assert!(headers.is_empty());
        }
        assert_eq!(RevisionBarrier::take_requested(&mut HeaderMap::new()), None);
    }
}
