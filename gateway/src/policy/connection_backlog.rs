//! What was asked for on a connection, is here, and is not taken.
//!
//! A shard sends ahead on every stream, up to its window, and that waits here while the client takes nothing of it. One answer
//! may wait for as long as `slowClients.responseStallTimeout` says; hundreds of one connection would be tens of MiB (CVE-2019-9511,
//! CVE-2019-9517). So who has more than [`FREE`] waiting has to take it, at a pace at which it would be gone
//! within [`WITHIN`]; a slow line with many long lists is let alone, and so are the others on a CDN's connection. Lines stop for a
//! moment, too: only [`PATIENT`] looks in a row that find nobody keeping up are too many, unless [`MUCH`] waits.
//!
//! The other way it is the same: what a client sends ahead waits while a shard takes nothing of it, and of a connection that has
//! more than that waiting, those uploads are given up of which nothing is taken for as long.
//!
//! Cost: one addition per part of a body. The rest only happens where nothing was taken for [`LOOK`].

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Bytes that may wait for one connection whatever its client does.
const FREE: usize = 1 << 20;
/// Who takes what waits within so much time is only slow.
const WITHIN: Duration = Duration::from_secs(32);
/// From look to look.
const LOOK: Duration = Duration::from_secs(1);
/// So many looks in a row may find nobody keeping up: lines stop for a while, and shards do.
const PATIENT: u32 = 8;
/// With more bytes than that waiting, one look is enough.
const MUCH: usize = 8 * FREE;

/// Of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionBacklog {
    /// Bytes of those streams that take nothing, as of their last looks.
    waiting: AtomicUsize,
    /// Bytes taken on all streams.
    taken: AtomicU64,
}

impl ConnectionBacklog {
    /// Something was taken.
    pub(crate) fn took(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns when a stream has to be given up that takes nothing all the while: after `patience`, or as soon as too much
    /// waits on its connection. `waiting` says how many bytes do on this stream.
    pub(crate) async fn too_much(&self, patience: Duration, mut waiting: impl FnMut() -> usize) {
        let end = Instant::now() + patience;
        let mut taken = self.taken.load(Ordering::Relaxed);
        let mut behind = 0;
        let mut here = Waiting { all: &self.waiting, bytes: 0 };
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            let began = Instant::now();
            sleep(rest.min(LOOK)).await;
            let all = here.is_now(waiting());
            let before = std::mem::replace(&mut taken, self.taken.load(Ordering::Relaxed));
            let is_behind = all > FREE && !keeps_up(all, taken.wrapping_sub(before), began.elapsed());
            behind = if is_behind { behind + 1 } else { 0 };
            if behind >= PATIENT || (is_behind && all > MUCH) {
                return;
            }
        }
    }
}

/// Whether all that waits will be gone soon, at the pace of the last moments.
fn keeps_up(waiting: usize, taken: u64, during: Duration) -> bool {
    u128::from(taken) * WITHIN.as_millis() >= waiting as u128 * during.as_millis()
}

/// The part of one stream in what waits.
struct Waiting<'w> {
    all: &'w AtomicUsize,
    bytes: usize,
}

impl Waiting<'_> {
    /// So much waits now on this stream; returns how much on all.
    fn is_now(&mut self, bytes: usize) -> usize {
        let before = std::mem::replace(&mut self.bytes, bytes);
        // The sum of all streams' is never less than one of them.
        let all = self.all.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        all.wrapping_add(bytes).wrapping_sub(before)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const WINDOW: usize = 256 << 10;
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Streams with a full window each of which nothing is taken, while the connection takes so many bytes in a second, by its
    /// number. Returns how many are still there after two seconds, after ten, and at the end of all patience.
    async fn left(streams: usize, pace: impl Fn(usize) -> usize + Send + 'static) -> [usize; 3] {
        let connection = Arc::new(ConnectionBacklog::default());
        let others = Arc::clone(&connection);
        tokio::spawn(async move {
            for tenth in 0.. {
                sleep(LOOK / 10).await;
                others.took(pace(tenth / 10) / 10);
            }
        });
        let mut stalled: Vec<_> = (0..streams)
            .map(|_| {
                let connection = Arc::clone(&connection);
                tokio::spawn(async move { connection.too_much(PATIENCE, || WINDOW).await })
            })
            .collect();
        let mut counts = [0; 3];
        for (count, wait) in counts.iter_mut().zip([2 * LOOK + LOOK / 2, 8 * LOOK, PATIENCE]) {
            sleep(wait).await;
            stalled.retain(|stream| !stream.is_finished());
            *count = stalled.len();
        }
        assert_eq!(connection.waiting.load(Ordering::Relaxed), 0);
        counts
    }

    #[tokio::test(start_paused = true)]
    async fn much_may_wait_only_for_who_takes_it() {
        assert_eq!(left(1, |_| 0).await, [1, 1, 0], "one may wait for a minute");
        assert_eq!(left(4, |_| 0).await, [4, 4, 0], "so may a MiB");
        assert_eq!(left(20, |_| 0).await, [20, 4, 0], "more only for a moment");
        assert_eq!(left(250, |_| 0).await, [32, 4, 0], "and very much not even that long");
        assert_eq!(left(250, |_| 1 << 10).await, [32, 4, 0], "not for who takes a little either");
        assert_eq!(left(20, |_| 256 << 10).await, [20, 20, 0], "a slow line with twenty lists");
        assert_eq!(left(250, |_| 4 << 20).await, [250, 250, 0], "many people on one connection");
        let with_pauses = |second: usize| if second % 8 < 5 { 0 } else { 4 << 20 };
        assert_eq!(left(30, with_pauses).await, [30, 30, 0], "a line that stops now and then");
    }
}
