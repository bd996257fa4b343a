//! Loads with their client-side measurements. All of them run on the caller's thread.

mod closed;
mod handshakes;
mod paced;
mod slow;
mod watches;

pub(crate) use closed::ClosedLoad;
pub(crate) use handshakes::Handshakes;
pub(crate) use paced::PacedLoad;
pub(crate) use slow::read_slowly;
pub(crate) use watches::{WatchLoad, Watches};

use crate::error::BenchError;
use crate::wire::ResponseEvent;

/// The stream whose response is complete with this event, if any. Every response must be a success.
fn ended(event: ResponseEvent) -> Result<Option<u32>, BenchError> {
    match event {
        ResponseEvent::End { stream } => Ok(Some(stream)),
        ResponseEvent::Head { is_success: true, .. } | ResponseEvent::Data { .. } => Ok(None),
        ResponseEvent::Head { .. } => Err(BenchError::unexpected("a response is not 200")),
        ResponseEvent::Reset { .. } => Err(BenchError::unexpected("a request was reset")),
    }
}
