//! The digest of a store's content, by which a copy is compared with its source.

use std::fmt;
use std::ops::ControlFlow;

use sha2::{Digest as _, Sha256};

use super::{BLOCK_BYTES, HASH_BYTES};
use crate::error::ReadError;
use crate::record::{Range, Revision};
use crate::store::Store;

/// Equal for two stores that have the same records, modified in the same order. The revisions themselves may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentDigest {
    /// Number of records.
    pub records: u64,
    /// SHA-256 of all keys and values, in the order of the keys.
    pub content: [u8; HASH_BYTES],
    /// SHA-256 of all keys, in the order of their last modification. Keys of one commit are in their own order.
    pub order: [u8; HASH_BYTES],
}

impl ContentDigest {
    /// The digest of a store at a revision, which must not be compacted meanwhile. Reads everything once; needs some 50 bytes of
    /// memory for each record, besides its key.
    ///
    /// # Errors
    /// As for [`Store::scan`].
    pub fn of(store: &dyn Store, at: Revision) -> Result<Self, ReadError> {
        let mut content = Sha256::new();
        let mut modified = Vec::new();
        let mut rest = Range::all();
        loop {
            let (mut bytes, mut is_over) = (0, true);
            store.scan(&rest, Some(at), &mut |record| {
                for part in [record.key, record.value] {
                    content.update((part.len() as u64).to_le_bytes());
                    content.update(part);
                }
                modified.push((record.modified, record.key.to_vec()));
                bytes += record.key.len() + record.value.len();
                // A scan holds pages of the store.
                if bytes < BLOCK_BYTES {
                    return ControlFlow::Continue(());
                }
                is_over = false;
                ControlFlow::Break(())
            })?;
            match modified.last() {
                Some((_, key)) if !is_over => rest = rest.after(key),
                _ => break,
            }
        }
        modified.sort_unstable();
        let mut order = Sha256::new();
        for (_, key) in &modified {
            order.update((key.len() as u64).to_le_bytes());
            order.update(key);
        }
        let records = modified.len() as u64;
        Ok(Self { records, content: content.finalize().into(), order: order.finalize().into() })
    }
}

/// `12 records with SHA-256 0f9d…`.
impl fmt::Display for ContentDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} records with SHA-256 ", self.records)?;
        self.content.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}
