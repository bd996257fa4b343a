//! Requests that no honest client sends. Each is hostile in one to three respects and honest in all others, so that
//! many come far.

pub mod fields;
pub mod frames;
pub mod framing;
pub mod paths;

/// A request over HTTP/1.1 as bytes, and what its sender knows of it.
pub struct Message {
    pub bytes: Vec<u8>,
    /// Answers to it have no body.
    pub head: bool,
    /// More would have to follow, and never does.
    pub unfinished: bool,
    /// Its framing is doubtful: the answer, if there is one, may be broken off, and the connection is of no more use.
    pub doubtful: bool,
}
