//! Logical-cluster names, workspace paths, identities, hashes and the storage key codec.
