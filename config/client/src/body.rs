//! The body of an answer, holding its place on the connection until it is read or dropped.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::error::ClientError;
use crate::pool::{Exclusive, InFlight};

/// An answer's body as it arrives. Dropping it cancels the rest of the answer.
pub struct ResponseBody {
    incoming: Incoming,
    place: Option<Place>,
    /// The request, for errors.
    what: Arc<str>,
}

pub(crate) enum Place {
    /// Counted until dropped.
    Shared { _in_flight: InFlight },
    /// Given back after the last byte.
    Exclusive(Exclusive),
}

impl ResponseBody {
    pub(crate) fn new(incoming: Incoming, place: Place, what: Arc<str>) -> Self {
        Self { incoming, place: Some(place), what }
    }

    /// The next piece, as the server sent it; `None` at the proper end. Safe to cancel.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, ClientError>> {
        loop {
            match self.incoming.frame().await {
                None => {
                    if let Some(Place::Exclusive(connection)) = self.place.take() {
                        connection.give_back();
                    }
                    return None;
                }
                Some(Ok(frame)) => {
                    // Trailers say nothing that a Kubernetes client needs.
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Some(Err(error)) => {
                    self.place = None;
                    return Some(Err(ClientError::Closed {
                        what: self.what.clone(),
                        source: Arc::new(error),
                    }));
                }
            }
        }
    }

    /// The whole body, if it is not larger than `limit` bytes. Copies nothing if it arrives in one piece.
    pub async fn collect(mut self, limit: usize) -> Result<Bytes, ClientError> {
        let too_large = |what: &Arc<str>| ClientError::TooLarge { what: what.clone(), limit };
        let Some(first) = self.chunk().await.transpose()? else {
            return Ok(Bytes::new());
        };
        if first.len() > limit {
            return Err(too_large(&self.what));
        }
        let Some(second) = self.chunk().await.transpose()? else {
            return Ok(first);
        };
        let mut whole = BytesMut::with_capacity(first.len() + second.len());
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(chunk) = next {
            if whole.len() + chunk.len() > limit {
                return Err(too_large(&self.what));
            }
            whole.extend_from_slice(&chunk);
            next = self.chunk().await.transpose()?;
        }
        Ok(whole.freeze())
    }

    pub(crate) fn what(&self) -> &Arc<str> {
        &self.what
    }
}
