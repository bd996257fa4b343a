//! The body of a response, which occupies its connection until it is read or dropped.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::error::ClientError;
use crate::pool::{Exclusive, InFlight};

/// A response body as it arrives. Dropping it cancels the rest of the response.
pub struct ResponseBody {
    incoming: Incoming,
    usage: Option<ConnectionUse>,
    /// Name of the request, for errors.
    subject: Arc<str>,
}

/// The use of a connection by one response.
pub(crate) enum ConnectionUse {
    /// A stream of a multiplexed connection, counted until dropped.
    Shared { in_flight: InFlight },
    /// A connection that is returned to the pool after the last byte.
    Exclusive(Exclusive),
    /// A connection that is closed after the last byte, because the body of the request may not have ended.
    Single { _connection: Exclusive },
}

impl ResponseBody {
    pub(crate) fn new(incoming: Incoming, usage: ConnectionUse, subject: Arc<str>) -> Self {
        Self { incoming, usage: Some(usage), subject }
    }

    /// The next chunk as the server sent it; `None` at the end of the body. Cancel-safe.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, ClientError>> {
        loop {
            match self.incoming.frame().await {
                None => {
                    if let Some(ConnectionUse::Exclusive(connection)) = self.usage.take() {
                        connection.return_to_pool();
                    }
                    return None;
                }
                Some(Ok(frame)) => {
                    // A Kubernetes client needs no trailers.
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Some(Err(error)) => {
                    self.usage = None;
                    return Some(Err(ClientError::Closed {
                        subject: self.subject.clone(),
                        source: Arc::new(error),
                    }));
                }
            }
        }
    }

    /// The whole body, if it is not larger than `limit` bytes. Copies nothing if it arrives in one chunk.
    pub async fn collect(mut self, limit: usize) -> Result<Bytes, ClientError> {
        let too_large = |subject: &Arc<str>| ClientError::TooLarge { subject: subject.clone(), limit };
        let Some(first) = self.chunk().await.transpose()? else {
            return Ok(Bytes::new());
        };
        if first.len() > limit {
            return Err(too_large(&self.subject));
        }
        let Some(second) = self.chunk().await.transpose()? else {
            return Ok(first);
        };
        let mut whole = BytesMut::with_capacity(first.len() + second.len());
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(chunk) = next {
            if whole.len() + chunk.len() > limit {
                return Err(too_large(&self.subject));
            }
            whole.extend_from_slice(&chunk);
            next = self.chunk().await.transpose()?;
        }
        Ok(whole.freeze())
    }

    pub(crate) fn subject(&self) -> &Arc<str> {
        &self.subject
    }
}
