//! The cache server: objects of all shards under `/shards/…/clusters/…`.
