//! The kcp API groups as Rust types and their schemas.
