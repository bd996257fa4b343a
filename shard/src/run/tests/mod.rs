//! Tests of a whole shard without listeners.

mod isolation;
mod leadership;
