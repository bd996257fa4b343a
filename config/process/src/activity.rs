//! Activity of a connection, and its idle timeouts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use fairlead_config::ConnectionLimits;
use tokio::time::Instant;

/// Request counts and times of a connection, from which its idle timeouts follow. Costs a few atomic operations per request.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    /// Milliseconds from `began` to the end of the last request.
    last_end: AtomicU64,
    open: AtomicU32,
    had_request: AtomicBool,
}

/// Reason for which an idle connection is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IdleReason {
    /// The first request did not arrive in time.
    NoFirstRequest,
    /// No request was open for too long.
    NoOpenRequest,
}

impl Activity {
    /// The activity of a new connection.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            last_end: AtomicU64::new(0),
            open: AtomicU32::new(0),
            had_request: AtomicBool::new(false),
        }
    }

    /// Whether there was a request.
    pub fn has_had_a_request(&self) -> bool {
        self.had_request.load(Ordering::Relaxed)
    }

    /// Time without an open request; zero while one is open.
    pub fn idle_for(&self) -> Duration {
        if self.open.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.began.elapsed().saturating_sub(Duration::from_millis(self.last_end.load(Ordering::Relaxed)))
    }

    /// Returns when the connection was idle for too long. A client that sends its headers slowly has no open request and counts
    /// as idle.
    pub async fn idle(&self, limits: &ConnectionLimits) -> IdleReason {
        tokio::time::sleep(limits.header_read_timeout.get()).await;
        if !self.has_had_a_request() {
            return IdleReason::NoFirstRequest;
        }
        self.unused_for(limits.idle_timeout.get()).await;
        IdleReason::NoOpenRequest
    }

    /// Returns when no request has been open for `limit`.
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

/// Guard that counts a request of a connection as open until it is dropped.
#[derive(Debug)]
pub struct OpenRequest<C: AsRef<Activity>>(Arc<C>);

impl<C: AsRef<Activity>> OpenRequest<C> {
    /// Counts one more open request of this connection.
    #[must_use]
    pub fn of(connection: &Arc<C>) -> Self {
        let activity = connection.as_ref().as_ref();
        activity.had_request.store(true, Ordering::Relaxed);
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
        assert_eq!(Activity::begin().idle(&limits).await, IdleReason::NoFirstRequest);
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
        assert_eq!(idle, Some(IdleReason::NoOpenRequest));
        let at = began.elapsed();
        assert!(at >= Duration::from_secs(390) && at < Duration::from_secs(391), "{at:?}");
    }
}
