//! Audit ids: random UUIDs. Random bytes are read in batches to save system calls.

use std::cell::RefCell;

use http::HeaderValue;
use uuid::Builder;
use uuid::fmt::Hyphenated;

/// Number of ids per system call.
const BATCH: usize = 64;

struct RandomBuffer {
    bytes: [u8; BATCH * 16],
    used: usize,
}

thread_local! {
    static RANDOM_BUFFER: RefCell<RandomBuffer> =
        const { RefCell::new(RandomBuffer { bytes: [0; BATCH * 16], used: BATCH * 16 }) };
}

/// Generates an id, which identifies a request in logs. Ids are not predictable.
pub(super) fn generate() -> HeaderValue {
    let random = RANDOM_BUFFER.with_borrow_mut(RandomBuffer::take);
    let mut text = [0; Hyphenated::LENGTH];
    let text = Builder::from_random_bytes(random).as_uuid().as_hyphenated().encode_lower(&mut text);
    // Hex digits and hyphens are always a valid value.
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

impl RandomBuffer {
    fn take(&mut self) -> [u8; 16] {
        if self.used == self.bytes.len() {
            // If the system provides no random bytes, ids repeat, which affects only logs.
            let _ = getrandom::fill(&mut self.bytes);
            self.used = 0;
        }
        let mut taken = [0; 16];
        taken.copy_from_slice(&self.bytes[self.used..self.used + 16]);
        self.used += 16;
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_uuids_and_differ_across_batches() {
        let ids: BTreeSet<String> = (0..3 * BATCH).map(|_| generate().to_str().unwrap().to_owned()).collect();
        assert_eq!(ids.len(), 3 * BATCH);
        for id in ids {
            assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 4, "{id}");
        }
    }
}
