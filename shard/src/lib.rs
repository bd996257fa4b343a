//! A kcp shard: logical clusters, tenancy, API exports, their controllers.
