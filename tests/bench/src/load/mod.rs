//! Loads, each with what it measures on the client's side. All of them run on the caller's thread.

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
use crate::wire::Seen;

/// The stream whose answer is complete, if that is what was seen. Every answer must be a success.
fn ended(event: Seen) -> Result<Option<u32>, BenchError> {
    match event {
        Seen::End { stream } => Ok(Some(stream)),
        Seen::Head { is_success: true, .. } | Seen::Data { .. } => Ok(None),
        Seen::Head { .. } => Err(BenchError::answer("an answer is not 200")),
        Seen::Reset { .. } => Err(BenchError::answer("a request was reset")),
    }
}
