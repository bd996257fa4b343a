//! The limit of a listener's open connections, which can be changed at run time.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A semaphore of adjustable size, with one permit for each connection.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    free: Arc<Semaphore>,
    /// Number of all permits, free or not.
    size: Mutex<usize>,
}

impl ConnectionLimit {
    pub(crate) fn new(size: usize) -> Self {
        let size = size.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(size)), size: Mutex::new(size) }
    }

    /// Waits for a free permit.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// A permit, if one is free.
    pub(super) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Changes the number of permits. If more are in use, those that are released first are removed.
    pub(crate) fn resize(&self, size: usize) {
        let size = size.min(Semaphore::MAX_PERMITS);
        let mut current = self.size.lock();
        if size > *current {
            self.free.add_permits(size - *current);
        } else if size < *current {
            let left = *current - size - self.free.forget_permits(*current - size);
            if let Ok(left @ 1..) = u32::try_from(left) {
                let free = Arc::clone(&self.free);
                tokio::spawn(async move {
                    if let Ok(given_back) = free.acquire_many(left).await {
                        given_back.forget();
                    }
                });
            }
        }
        *current = size;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn the_limit_is_the_last_configured_one() {
        let slots = ConnectionLimit::new(2);
        let (one, two) = (slots.acquire().await.unwrap(), slots.acquire().await.unwrap());
        assert!(slots.try_acquire().is_none());
        slots.resize(3);
        let three = slots.try_acquire().unwrap();
        assert!(slots.try_acquire().is_none());
        slots.resize(1);
        tokio::task::yield_now().await;
        drop((one, two));
        tokio::task::yield_now().await;
        assert!(slots.try_acquire().is_none(), "the third is the only one now");
        drop(three);
        assert!(slots.try_acquire().is_some());
    }
}
