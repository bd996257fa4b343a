//! HTTP/1.1 connections to one server, for servers without HTTP/2.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::upstream::transport::UpstreamTransport;
use crate::upstream::worker::WorkerId;

/// Maximum number of idle connections.
const MAX_IDLE: usize = 32;

/// Idle connections.
#[derive(Default)]
pub(super) struct IdleConnections(Mutex<Vec<IdleConnection>>);

struct IdleConnection {
    sender: SendRequest<RequestBody>,
    group_key: u64,
    worker: Option<WorkerId>,
    since: Instant,
}

/// A connection for one request at a time.
pub(crate) struct Lease {
    pub(crate) sender: SendRequest<RequestBody>,
    /// True if it has served a request before: the server may have closed it meanwhile.
    pub(crate) reused: bool,
    group_key: u64,
    /// The worker that reads and writes it.
    worker: Option<WorkerId>,
    idle: Arc<IdleConnections>,
}

/// The body of a request: its frames come from a channel, and it fails if the channel closes before the end was sent.
#[derive(Debug)]
pub(crate) enum RequestBody {
    Empty,
    Streamed { parts: mpsc::Receiver<BodyPart>, length: Option<u64> },
}

#[derive(Debug)]
pub(crate) enum BodyPart {
    Frame(Frame<Bytes>),
    End,
}

/// The client disconnected before the end of its request.
#[derive(Debug, thiserror::Error)]
#[error("the request is incomplete")]
pub(crate) struct IncompleteBody;

impl IdleConnections {
    /// The most recently used connection that is still open; of this worker, if there is one.
    pub(super) fn take(self: &Arc<Self>, group_key: u64, idle_timeout: Duration) -> Option<Lease> {
        let mut kept = self.0.lock();
        kept.retain(|kept| {
            kept.group_key == group_key && kept.since.elapsed() < idle_timeout && kept.sender.is_ready()
        });
        let here = WorkerId::current();
        let near = kept.iter().rposition(|kept| kept.worker == here);
        let place = near.or(kept.len().checked_sub(1))?;
        let IdleConnection { sender, worker, .. } = kept.remove(place);
        Some(Lease { sender, reused: true, group_key, worker, idle: Arc::clone(self) })
    }

    /// True if there is no idle connection that the server has not closed.
    pub(super) fn is_empty(&self) -> bool {
        !self.0.lock().iter().any(|kept| kept.sender.is_ready())
    }

    /// Starts HTTP/1.1 on a new connection.
    pub(super) async fn begin(
        self: &Arc<Self>,
        transport: UpstreamTransport,
        group_key: u64,
    ) -> hyper::Result<Lease> {
        let (sender, connection) = http1::handshake(TokioIo::new(transport)).await?;
        tokio::spawn(connection);
        Ok(Lease { sender, reused: false, group_key, worker: WorkerId::current(), idle: Arc::clone(self) })
    }
}

impl Lease {
    /// Returns the connection after a complete response; it is used again once it is ready.
    pub(crate) fn release(self) {
        let Self { mut sender, group_key, worker, idle, .. } = self;
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                let mut kept = idle.0.lock();
                if kept.len() < MAX_IDLE {
                    kept.push(IdleConnection { sender, group_key, worker, since: Instant::now() });
                }
            }
        });
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = IncompleteBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncompleteBody>>> {
        let this = self.get_mut();
        let part = match this {
            Self::Empty => return Poll::Ready(None),
            Self::Streamed { parts, .. } => ready!(parts.poll_recv(context)),
        };
        Poll::Ready(match part {
            Some(BodyPart::Frame(frame)) => Some(Ok(frame)),
            Some(BodyPart::End) => {
                *this = Self::Empty;
                None
            }
            None => Some(Err(IncompleteBody)),
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed { length: Some(length), .. } => SizeHint::with_exact(*length),
            Self::Streamed { length: None, .. } => SizeHint::default(),
        }
    }
}
