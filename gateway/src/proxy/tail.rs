//! An answer without an end: lines of the access log, as they happen.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use tokio::time::timeout;

use super::client::Client;
use super::context::Context;
use super::{CLIENT_LEFT, DataPlane, answer_itself, date};
use crate::answer::Answer;
use crate::ending::Ending;
use crate::identity::Sender;
use crate::tail::{Filter, Lines, TooMany};

/// Answers somebody who may read; returns the code that he got.
pub(super) async fn stream<C: Client>(
    plane: &DataPlane,
    client: &mut C,
    context: &Context,
    head: &Parts,
) -> u16 {
    let core = &*plane.core;
    let lines = match Filter::of_query(head.uri.query().unwrap_or_default()) {
        Ok(filter) => core.tail.read(core.with_cluster(filter).await),
        Err(bad) => {
            let answer = Answer::bad_request(bad.to_string());
            return answer_itself(core, client, context, &head.method, answer).await;
        }
    };
    let mut lines = match lines {
        Ok(lines) => lines,
        Err(error @ TooMany) => {
            let answer = Answer::unavailable(&error.to_string(), "busy");
            return answer_itself(core, client, context, &head.method, answer).await;
        }
    };
    let sender = context.seen.with(|noted| noted.identity.clone()).map_or(Sender::PassedOn, Sender::Known);
    let ending = Ending::new(core.drain(context.connection()), &sender, plane.number());
    tokio::select! {
        () = ending.reached() => {}
        sent = send(plane, client, &mut lines) => {
            if sent.is_none() {
                client.abort();
                return CLIENT_LEFT;
            }
        }
    }
    // Between two lines, unless a write was broken off; then the client sees it.
    if client.end(None).await.is_err() {
        client.abort();
    }
    StatusCode::OK.as_u16()
}

/// Sends lines for as long as somebody takes them.
async fn send<C: Client>(plane: &DataPlane, client: &mut C, lines: &mut Lines) -> Option<()> {
    let (mut begin, ()) = Response::new(()).into_parts();
    begin.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    begin.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    begin.headers.insert(http::header::DATE, date::now());
    client.begin(begin, false).ok()?;
    client.flush().await.ok()?;
    loop {
        let next: Bytes = tokio::select! {
            biased;
            () = client.left() => return None,
            next = lines.next() => next,
        };
        let untaken = plane.core.slow_clients.load().answer.get();
        let written = async {
            client.write(next, false).await?;
            client.flush().await
        };
        timeout(untaken, written).await.ok()?.ok()?;
    }
}
