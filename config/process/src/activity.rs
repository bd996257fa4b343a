//! What happens on a connection, and when too little does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use fairlead_config::ConnectionLimits;
use tokio::time::Instant;

/// The requests of a connection, as far as its end depends on them. Some atomic operations for each.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    /// Milliseconds from `began` to the end of the last request.
    last_end: AtomicU64,
    open: AtomicU32,
    asked: AtomicBool,
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Idle {
    /// Its first request did not come in time.
    Mute,
    /// No request was open for too long.
    Unused,
}

impl Activity {
    /// Of a connection that begins.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            last_end: AtomicU64::new(0),
            open: AtomicU32::new(0),
            asked: AtomicBool::new(false),
        }
    }

    /// Whether there ever was a request.
    pub fn has_had_a_request(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// For how long no request has been open; zero while one is.
    pub fn idle_for(&self) -> Duration {
        if self.open.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.began.elapsed().saturating_sub(Duration::from_millis(self.last_end.load(Ordering::Relaxed)))
    }

    /// Returns when the connection has done nothing for too long. A client that sends its headers drop by drop has no request
    /// open and counts as idle.
    pub async fn idle(&self, limits: &ConnectionLimits) -> Idle {
        tokio::time::sleep(limits.header_read_timeout.get()).await;
        if !self.has_had_a_request() {
            return Idle::Mute;
        }
        self.unused_for(limits.idle_timeout.get()).await;
        Idle::Unused
    }

    /// Returns when no request has been open for so long.
    pub(crate) async fn unused_for(&self, limit: Duration) {
        loop {
            let left = limit.saturating_sub(self.idle_for());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

/// An open request of a connection, until this is dropped.
#[derive(Debug)]
pub struct OpenRequest<C: AsRef<Activity>>(Arc<C>);

impl<C: AsRef<Activity>> OpenRequest<C> {
    /// A request of this connection begins.
    #[must_use]
    pub fn of(connection: &Arc<C>) -> Self {
        let activity = connection.as_ref().as_ref();
        activity.asked.store(true, Ordering::Relaxed);
        activity.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    /// The connection.
    pub fn connection(&self) -> &C {
        &self.0
    }
}

impl<C: AsRef<Activity>> Drop for OpenRequest<C> {
    fn drop(&mut self) {
        let activity = self.connection().as_ref();
        let now = u64::try_from(activity.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        activity.last_end.store(now, Ordering::Relaxed);
        activity.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Connection(Activity);

    impl AsRef<Activity> for Connection {
        fn as_ref(&self) -> &Activity {
            &self.0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_between_requests_and_before_the_first() {
        let limits = ConnectionLimits {
            header_read_timeout: fairlead_config::Timespan::from_secs(5),
            idle_timeout: fairlead_config::Timespan::from_secs(60),
            ..ConnectionLimits::default()
        };
        let began = Instant::now();
        assert_eq!(Activity::begin().idle(&limits).await, Idle::Mute);
        assert_eq!(began.elapsed(), Duration::from_secs(5));

        let connection = Arc::new(Connection(Activity::begin()));
        let began = Instant::now();
        let (one, two) = (OpenRequest::of(&connection), OpenRequest::of(&connection));
        let requests = async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            drop(one);
            tokio::time::sleep(Duration::from_secs(300)).await;
            drop(two);
            std::future::pending::<()>().await;
        };
        let idle = tokio::select! {
            idle = connection.0.idle(&limits) => Some(idle),
            () = requests => None,
        };
        assert_eq!(idle, Some(Idle::Unused));
        let at = began.elapsed();
        assert!(at >= Duration::from_secs(390) && at < Duration::from_secs(391), "{at:?}");
    }
}
