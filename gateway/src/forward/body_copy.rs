//! The copy of a request body, which is sent again when a server has refused the request. Its size is limited, and so is that of all
//! copies together: clients whose uploads stall would otherwise hold memory for nothing.
//!
//! Cost: a reference count for each request; for a body one copy of the bytes, and an atomic addition each time that the copy's
//! room doubles.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of one body: most objects are smaller. As much as the window of one stream.
const MAX_BODY: usize = 64 << 10;
/// Bytes of all copies of a gateway. A write is copied for some milliseconds, so this is enough for hundreds of writes at once.
const MAX_ALL: usize = 1 << 20;

/// The bytes that the copies of a gateway have together.
#[derive(Debug, Default)]
pub(crate) struct BodyCopies(AtomicUsize);

impl BodyCopies {
    /// Reserves room; false if there is none.
    fn reserve(&self, bytes: usize) -> bool {
        let more = |used: usize| Some(used + bytes).filter(|used| *used <= MAX_ALL);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The part of one body that was read from the client. It is a copy, because a reference to a frame of one byte would keep the whole
/// buffer that the frame was received in.
pub(crate) struct BodyCopy {
    all: Arc<BodyCopies>,
    /// `None` if something is missing: trailers were read, or more than fits.
    bytes: Option<Vec<u8>>,
}

impl BodyCopy {
    /// The copy of a body of which nothing was read.
    pub(crate) fn new(all: Arc<BodyCopies>) -> Self {
        Self { all, bytes: Some(Vec::new()) }
    }

    /// Everything that was read, if it is here.
    pub(crate) fn complete(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }

    /// Adds what was read next. The copy becomes incomplete if there is no room for it.
    pub(crate) fn add(&mut self, part: &[u8]) {
        let Some(bytes) = &mut self.bytes else { return };
        let (length, room) = (bytes.len() + part.len(), bytes.capacity());
        if length > room {
            let more = length.max(2 * room).min(MAX_BODY);
            if length > MAX_BODY || !self.all.reserve(more - room) {
                return self.drop_bytes();
            }
            bytes.reserve_exact(more - bytes.len());
            // `Vec` may take more than was asked for.
            self.all.0.fetch_add(bytes.capacity() - more, Ordering::Relaxed);
        }
        bytes.extend_from_slice(part);
    }

    /// Makes the copy incomplete and frees its memory.
    pub(crate) fn drop_bytes(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.all.release(bytes.capacity());
        }
    }
}

impl Drop for BodyCopy {
    fn drop(&mut self) {
        self.drop_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(all: &BodyCopies) -> usize {
        all.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_copy_is_complete_up_to_its_limit() {
        let all = Arc::new(BodyCopies::default());
        let mut copy = BodyCopy::new(Arc::clone(&all));
        assert_eq!(copy.complete(), Some(&b""[..]));
        let body: Vec<u8> = (0..MAX_BODY).map(|index| index as u8).collect();
        for part in body.chunks(1000) {
            copy.add(part);
        }
        assert_eq!(copy.complete(), Some(&body[..]));
        assert!(used(&all) >= MAX_BODY);
        copy.add(b"x");
        assert_eq!((copy.complete(), used(&all)), (None, 0));
        copy.add(b"x");
        assert_eq!((copy.complete(), used(&all)), (None, 0), "the part before it is missing");
    }

    #[test]
    fn all_copies_together_have_a_limit() {
        let all = Arc::new(BodyCopies::default());
        let body = vec![0; MAX_BODY];
        let mut copies: Vec<BodyCopy> = (0..2 * MAX_ALL / MAX_BODY)
            .map(|_| {
                let mut copy = BodyCopy::new(Arc::clone(&all));
                copy.add(&body);
                copy
            })
            .collect();
        let complete = copies.iter().filter(|copy| copy.complete().is_some()).count();
        assert_eq!((complete, used(&all)), (MAX_ALL / MAX_BODY, MAX_ALL));
        copies.clear();
        assert_eq!(used(&all), 0);
        let mut copy = BodyCopy::new(Arc::clone(&all));
        copy.add(&body);
        assert!(copy.complete().is_some(), "there is room again");
    }
}
