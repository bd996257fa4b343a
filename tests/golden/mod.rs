//! The recordings of a running kcp, replayed against ours.
//!
//! The recordings lie beside the repository and are not a part of it; who has none skips these tests. What differs
//! is either listed in [`differences`], with a reason, or a failure; what is listed and no longer differs is a
//! failure, too.

mod answer;
mod compare;
pub mod differences;
mod installation;
mod normal;
mod observed;
mod places;
mod recording;
mod replay;
mod watches;
mod wire;

pub use installation::Installation;
pub use normal::Side;
pub use observed::Observer;
pub use places::{compare_discovery, compare_objects};
pub use recording::Recordings;
pub use replay::{Sides, replay};
