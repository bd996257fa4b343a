//! Replays the recordings of a running kcp (`tests/data/kcp`) against an installation of Fairlead.
//!
//! Each difference is either listed in [`differences`], with a reason, or fails the test. A listed difference that no
//! longer occurs fails the test, too.

mod compare;
pub mod differences;
mod initial_state;
mod installation;
mod normalize;
mod raw_client;
mod replay;
mod report;
mod response;
mod watches;

pub use initial_state::{compare_discovery, compare_objects};
pub use installation::Installation;
pub use normalize::Normalizer;
pub use replay::{NamePairs, replay};
pub use report::Report;
