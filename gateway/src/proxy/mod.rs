//! The data plane: asks the core what happens to a request, and carries bytes.
//!
//! A door hands over accepted connections, as pingora's `ServerApp` has it. From there on both protocols are spoken
//! here, and every request takes one straight pass ([`exchange`]) whichever protocol its client and its server speak.

mod backend;
mod boundary;
mod client;
mod context;
mod date;
mod exchange;
mod failure;
mod forward;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod host;
mod http1;
mod http2;
mod keep_alive;
mod record;
pub(crate) mod rehearsal;
mod spare;
mod tail;
mod tunnel;
mod upload;

use std::future::ready;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, response};
use pingora::apps::ServerApp;
use pingora::protocols::{ALPN, Stream};
use pingora::server::ShutdownWatch;
use tokio::time::timeout;

use crate::answer::{AUDIT_ID, Answer};
use crate::core::{Asked, Core, Decision, Forward, Question};
use crate::listener::{Connection, connection_of};
use crate::local::MAX_QUESTION_BYTES;
use crate::peers::Unclear;
use crate::request::RequestClass;
use client::{BodyError, Client, Left};
use context::Context;
use exchange::{Exchange, drain};

/// The status of requests whose client left before there was an answer, in metrics only.
const CLIENT_LEFT: u16 = 499;

/// The gateway as its doors see it.
pub(crate) struct DataPlane {
    core: Arc<Core>,
    /// Counts exchanges without an end of their own.
    endless: AtomicU64,
}

impl DataPlane {
    /// A data plane for this core.
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, endless: AtomicU64::new(0) }
    }

    /// Another number for every exchange without an end.
    fn number(&self) -> u64 {
        self.endless.fetch_add(1, Ordering::Relaxed)
    }
}

impl ServerApp for DataPlane {
    /// Written out, because as one future every idle connection would have room for a request over HTTP/1.
    fn process_new<'s, 'w, 'f>(
        self: &'s Arc<Self>,
        stream: Stream,
        shutdown: &'w ShutdownWatch,
    ) -> Pin<Box<dyn Future<Output = Option<Stream>> + Send + 'f>>
    where
        's: 'f,
        'w: 'f,
        Self: 'f,
    {
        let Some(connection) = connection_of(&stream) else { return Box::pin(ready(None)) };
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            Box::pin(http2::serve_connection(self, connection, stream, shutdown).map(|()| None))
        } else {
            Box::pin(http1::serve_connection(self, connection, stream, shutdown).map(|()| None))
        }
    }
}

/// What is left to do after a request.
enum After {
    /// Nothing: it was answered, or its client has left.
    Answered,
    /// The connection is to become a tunnel.
    Upgrade(Box<Upgrade>),
}

/// An upgrade request that may go to a server.
struct Upgrade {
    forward: Forward,
    head: Parts,
    context: Context,
}

/// Serves one request. `fault` is what is wrong with its host.
async fn serve<C: Client>(
    plane: &DataPlane,
    connection: &Arc<Connection>,
    client: &mut C,
    head: &mut Parts,
    fault: Option<host::Fault>,
) -> After {
    let core = &*plane.core;
    let class =
        RequestClass::of(&head.method, head.uri.path(), head.uri.query(), head.version, &head.headers);
    let peer = connection.peer.ip();
    let said = connection.said.client_of(peer, &mut head.headers);
    let address = said.unwrap_or(peer);
    let mut context = Context::begin(class, address, connection.begin_request(), core.metrics.open(class));
    if class == RequestClass::Watch {
        context.keep_alive = connection.door.policy.load().answers.keep_alive;
    }
    record::arrived(core, &mut context, head);
    let refused = refusal(&said, fault, &head.method);
    let decision = match refused {
        Some(answer) => Decision::Answer(answer.into_wanted_form(&head.headers, head.uri.query())),
        None => {
            let Parts { method, uri, headers, .. } = &*head;
            let seen = &context.seen;
            let (sender, steps) = (None, None);
            core.decide(&Asked { method, uri, headers, class, address, connection, sender, seen, steps })
                .await
        }
    };
    if !matches!(decision, Decision::Forward(_)) {
        // Nobody asks again, and the client may take its time.
        head.headers = HeaderMap::new();
    }
    let code = match decision {
        Decision::Answer(answer) => answer_itself(core, client, &context, &head.method, answer).await,
        Decision::Ask(Question::Tail) => {
            // Boxed, because it is rare and large.
            let streaming = Box::pin(async {
                drain(client).await;
                tail::stream(plane, client, &context, head).await
            });
            streaming.await
        }
        Decision::Ask(question) => {
            let asker = &context;
            // Boxed, because it is rare and large.
            let answer = Box::pin(answer_question(core, client, question, asker, head)).await;
            answer_itself(core, client, &context, &head.method, answer).await
        }
        Decision::Forward(forward) if class == RequestClass::Upgrade => {
            let (empty, ()) = Request::new(()).into_parts();
            let head = std::mem::replace(head, empty);
            return After::Upgrade(Box::new(Upgrade { forward, head, context }));
        }
        // Where it is, because the task of an open watch would keep both places.
        Decision::Forward(ref forward) => {
            record::begun(core, &mut context);
            let mut exchange = Exchange::new(plane, client, &mut context, forward, head);
            let code = exchange.run().await;
            record::ended(core, &context, &head.method, code, Some(forward));
            return After::Answered;
        }
    };
    record::ended(core, &context, &head.method, code, None);
    After::Answered
}

/// The answer to a request that means nothing here.
fn refusal(said: &Result<IpAddr, Unclear>, fault: Option<host::Fault>, method: &Method) -> Option<Answer> {
    match (said, fault) {
        (Err(unclear), _) => Some(Answer::bad_request(unclear.to_string())),
        (_, Some(fault)) => Some(Answer::bad_request(fault)),
        _ if *method == Method::CONNECT => {
            Some(Answer::status(&fairlead_process::Status::unknown_method(), "method"))
        }
        _ => None,
    }
}

/// Answers without a shard; returns the code.
async fn answer_itself<C: Client>(
    core: &Core,
    client: &mut C,
    context: &Context,
    method: &Method,
    answer: Answer,
) -> u16 {
    let (head, body) = own_head(core, context, answer);
    let code = head.status.as_u16();
    let bodiless = *method == Method::HEAD || body.is_empty();
    let written = async {
        client.begin(head, bodiless)?;
        if !bodiless {
            client.write(body, true).await?;
        }
        client.flush().await
    };
    let untaken = core.slow_clients.load().answer.get();
    match timeout(untaken, written).await.unwrap_or(Err(Left)) {
        Ok(()) => drain(client).await,
        Err(Left) => tracing::debug!("the client left before it could be told"),
    }
    code
}

/// The head and the body of an answer of the gateway itself.
fn own_head(core: &Core, context: &Context, answer: Answer) -> (response::Parts, Bytes) {
    let Answer { response, why, .. } = answer;
    let (mut head, body) = (*response).into_parts();
    context.seen.answered(why, body.len());
    core.metrics.answered(head.status.as_u16(), why);
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    let id = uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text);
    // A UUID is always a value.
    if let Ok(id) = HeaderValue::from_str(id) {
        head.headers.insert(AUDIT_ID, id);
        record::answered(context, &head.headers);
    }
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    head.headers.insert(header::DATE, date::now());
    (head, body)
}

/// Reads a question and answers it.
async fn answer_question<C: Client>(
    core: &Core,
    client: &mut C,
    question: Question,
    context: &Context,
    head: &Parts,
) -> Answer {
    let body = match read_body(client).await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    match question {
        Question::Pick => core.pick_shard(&body),
        Question::Tail => Answer::not_found(),
        Question::Explain => core.explain(context.connection(), context.client, head, &body).await,
    }
}

async fn read_body<C: Client>(client: &mut C) -> Result<BytesMut, Answer> {
    let mut body = BytesMut::new();
    loop {
        match client.read().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > MAX_QUESTION_BYTES => {
                let status = fairlead_process::Status::request_entity_too_large(MAX_QUESTION_BYTES as u64);
                return Err(Answer::status(&status, "body_too_large"));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(BodyError::Malformed(why)) => return Err(Answer::bad_request(why)),
            // Nobody reads it.
            Err(BodyError::Left(_)) => return Err(Answer::bad_request("the request was broken off")),
        }
    }
}
