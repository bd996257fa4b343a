//! Names of logical clusters, workspace paths, hashes and the storage key codec.
//!
//! A leaf: it does no I/O and has no Kubernetes types. Everything here is a pure function of its
//! input (random cluster names take their bytes from the operating system). The wire depends on
//! these values bit for bit, so every hash has kcp's vectors in its tests.

mod cluster;
mod hash;
mod key;

pub use cluster::{ClusterName, ClusterReference, NameError, WorkspacePath, is_dns_label};
pub use hash::{
    base36, base36_padded, base62, default_binding_suffix, export_hash, hex_sha224, hex_sha256,
    home_cluster_name, initializer_label, sha224_base36, sha224_base62, shard_hash, terminator_label,
};
pub use key::{CUSTOM_RESOURCES, Key, KeyCodec, KeyError, Origin, ResourceName};
