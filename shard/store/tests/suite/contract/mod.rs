//! The contract of every backend, through the trait. The crate of another backend includes this folder in its own suite,
//! beside a module `backend` with `on_every_backend` and `runtime`.

pub(crate) mod backup;
mod commits;
mod compaction;
mod feed;
pub(crate) mod model;
mod reads;
pub(crate) mod subject;
