//! A watch that never ends: resumes from the last revision, and lists again where the server has forgotten it.

use std::fmt::Debug;

use futures_util::stream::{BoxStream, StreamExt, unfold};
use http::StatusCode;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

pub(crate) type Watch<K> = BoxStream<'static, Result<Event<K>, Error>>;

/// Lists and watches. After an error, the stream pauses with back-off from 0.8 s to 30 s.
pub(crate) fn watch<K>(api: Api<K>, config: Config) -> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = unfold(None, move |current: Option<Watch<K>>| {
        let mut current = current.unwrap_or_else(|| watcher(api.clone(), config.clone()).boxed());
        async move {
            let event = current.next().await?;
            let is_over = event.as_ref().is_err_and(is_expired);
            Some((event, (!is_over).then_some(current)))
        }
    });
    events.default_backoff().boxed()
}

/// Whether the server refuses to resume from the revision of the watch.
///
/// kube-rs lists again when an event of the watch says so, but repeats a request that was itself refused with 410 for ever.
/// Gateways refuse requests in that form after a logical cluster has moved.
fn is_expired(error: &Error) -> bool {
    matches!(error, Error::WatchStartFailed(kube::Error::Api(status)) if status.code == StatusCode::GONE)
}
