//! Audit ids: random UUIDs, drawn in batches so that not every request costs a system call.

use std::cell::RefCell;

use http::HeaderValue;
use uuid::Builder;
use uuid::fmt::Hyphenated;

/// Ids per system call.
const BATCH: usize = 64;

struct Randomness {
    bytes: [u8; BATCH * 16],
    used: usize,
}

thread_local! {
    static RANDOMNESS: RefCell<Randomness> =
        const { RefCell::new(Randomness { bytes: [0; BATCH * 16], used: BATCH * 16 }) };
}

/// A new id. It names a request in logs and is no secret, but the next one cannot be guessed from it either.
pub(super) fn draw() -> HeaderValue {
    let random = RANDOMNESS.with_borrow_mut(Randomness::take);
    let mut text = [0; Hyphenated::LENGTH];
    let text = Builder::from_random_bytes(random).as_uuid().as_hyphenated().encode_lower(&mut text);
    // Hex digits and hyphens are always a valid value.
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

impl Randomness {
    fn take(&mut self) -> [u8; 16] {
        if self.used == self.bytes.len() {
            // Without randomness ids repeat, which harms nothing but logs.
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
        let ids: BTreeSet<String> = (0..3 * BATCH).map(|_| draw().to_str().unwrap().to_owned()).collect();
        assert_eq!(ids.len(), 3 * BATCH);
        for id in ids {
            assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 4, "{id}");
        }
    }
}
