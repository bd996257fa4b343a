//! The front proxy: finds the shard, authenticates, forwards.
