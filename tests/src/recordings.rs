//! Recordings of a running kcp, reduced to the facts that tests compare.
//!
//! The reduced data lies in `tests/data/kcp` and is a part of the repository; `tests/data/README.md` describes it.
//! [`Recordings`] reads it, [`reduce`] makes it from a folder of full recordings.

mod error;
mod format;
mod reduce;

pub use error::RecordingError;
pub use format::{Body, Document, Exchange, Recordings, Response, Watch};
pub use reduce::{Reduced, mask_description, reduce};
