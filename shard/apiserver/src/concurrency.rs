//! Limits of concurrent requests, and their shares between scopes. The module must not know requests or responses.
//!
//! A request holds a permit while the server works on it. While a webhook of a tenant reviews or converts, the request gives
//! its permit up and counts as waiting, so webhooks that do not respond take no permits from other scopes.
//!
//! The share of a scope shrinks with the free permits, as in the dynamic thresholds of switch buffers (Choudhury and Hahne,
//! 1998): a request is accepted while its scope has fewer than `share × free`. One busy scope can have most of the permits, and
//! gets no new ones while others are short of them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntGauge;
use rustc_hash::FxHashMap;

tokio::task_local! {
    /// The permit of the request that the task serves. It is ambient, because the webhooks are called from all layers:
    /// authorization, conversion, admission.
    static PERMIT: Arc<ConcurrencyPermit>;
}

/// The limits of a server. Watches have none of these.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Reads at the same time.
    pub read_only: usize,
    /// Writes at the same time.
    pub mutating: usize,
    /// Time of a request; its own `timeout` may be shorter.
    pub duration: Duration,
}

impl Default for RequestLimits {
    /// The limits of Kubernetes, which kcp has, too.
    fn default() -> Self {
        Self { read_only: 400, mutating: 200, duration: Duration::from_secs(60) }
    }
}

impl RequestLimits {
    /// Requests that wait for webhooks at the same time. Each has its objects in memory.
    fn waiting(&self) -> usize {
        self.mutating * 2
    }

    fn of(&self, activity: Activity) -> usize {
        match activity {
            Activity::ReadOnly => self.read_only,
            Activity::Mutating => self.mutating,
            Activity::Waiting => self.waiting(),
        }
    }
}

/// What a request does at the moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Activity {
    /// A read that the server works on.
    ReadOnly = 0,
    /// A write that the server works on.
    Mutating = 1,
    /// A request that waits for a webhook.
    Waiting = 2,
}

impl Activity {
    /// The share of the free permits that one scope may have, as numerator and denominator: at most three quarters of all for
    /// work, a third for waits.
    fn share(self) -> (usize, usize) {
        match self {
            Self::ReadOnly | Self::Mutating => (3, 1),
            Self::Waiting => (1, 2),
        }
    }
}

/// Whether the limits hold for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exemption {
    /// They hold.
    None,
    /// They do not: the request is of a super-user of the server.
    Exempt,
}

/// Counts the requests of all scopes.
pub(crate) struct ConcurrencyLimiter {
    usage: Mutex<Usage>,
    gauges: [IntGauge; 3],
}

/// The permit of a request. Dropping it gives it back.
pub(crate) struct ConcurrencyPermit {
    limiter: Arc<ConcurrencyLimiter>,
    scope: Option<Box<str>>,
    activity: Activity,
    limits: RequestLimits,
    exemption: Exemption,
    /// Calls of webhooks that have not ended.
    calls: Mutex<usize>,
}

/// The scope, or all scopes together, have too many requests that wait for webhooks.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("too many requests of this logical cluster wait for its webhooks, please try again later")]
pub(crate) struct TooManyWaiting;

impl ConcurrencyLimiter {
    /// `gauges` show the requests of each activity.
    pub(crate) fn new(gauges: [IntGauge; 3]) -> Arc<Self> {
        Arc::new(Self { usage: Mutex::default(), gauges })
    }

    /// Gives a permit to a request, or `None` if its scope has its share. Costs a lock and an entry of a map.
    pub(crate) fn enter(
        self: &Arc<Self>,
        activity: Activity,
        scope: Option<&str>,
        limits: RequestLimits,
        exemption: Exemption,
    ) -> Option<ConcurrencyPermit> {
        let limit = (exemption == Exemption::None).then(|| limits.of(activity));
        self.begin(activity, scope, limit).then(|| ConcurrencyPermit {
            limiter: Arc::clone(self),
            scope: scope.map(Into::into),
            activity,
            limits,
            exemption,
            calls: Mutex::default(),
        })
    }

    fn begin(&self, activity: Activity, scope: Option<&str>, limit: Option<usize>) -> bool {
        let is_counted = self.usage.lock().begin(activity, scope, limit);
        if is_counted {
            self.gauges[activity as usize].inc();
        }
        is_counted
    }

    fn end(&self, activity: Activity, scope: Option<&str>) {
        self.usage.lock().end(activity, scope);
        self.gauges[activity as usize].dec();
    }
}

/// Serves a request that has a permit; one without needs none.
pub(crate) async fn with_permit<F: Future>(permit: Option<ConcurrencyPermit>, request: F) -> F::Output {
    match permit {
        Some(permit) => PERMIT.scope(Arc::new(permit), request).await,
        None => request.await,
    }
}

/// Waits for a webhook without the permit of the request. Work that is done for no request has no permit and no limit here.
///
/// # Errors
/// [`TooManyWaiting`], before the webhook is called.
pub(crate) async fn without_permit<F: Future>(call: F) -> Result<F::Output, TooManyWaiting> {
    let Ok(permit) = PERMIT.try_with(Arc::clone) else { return Ok(call.await) };
    let _suspension = permit.suspend()?;
    Ok(call.await)
}

impl ConcurrencyPermit {
    /// Gives the permit up until the suspension is dropped. A request may have several suspensions: validating webhooks are
    /// called concurrently.
    fn suspend(&self) -> Result<Suspension<'_>, TooManyWaiting> {
        let mut calls = self.calls.lock();
        if *calls == 0 {
            let limit = (self.exemption == Exemption::None).then(|| self.limits.waiting());
            if !self.limiter.begin(Activity::Waiting, self.scope.as_deref(), limit) {
                return Err(TooManyWaiting);
            }
            self.limiter.end(self.activity, self.scope.as_deref());
        }
        *calls += 1;
        Ok(Suspension(self))
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.limiter.end(self.activity, self.scope.as_deref());
    }
}

struct Suspension<'p>(&'p ConcurrencyPermit);

impl Drop for Suspension<'_> {
    /// The request goes on even if all permits are taken by now: it is nearly done, and new ones are refused meanwhile.
    fn drop(&mut self) {
        let Self(permit) = self;
        let mut calls = permit.calls.lock();
        *calls -= 1;
        if *calls == 0 {
            permit.limiter.begin(permit.activity, permit.scope.as_deref(), None);
            permit.limiter.end(Activity::Waiting, permit.scope.as_deref());
        }
    }
}

/// Requests by activity.
type Counts = [usize; 3];

#[derive(Default)]
struct Usage {
    all: Counts,
    scopes: FxHashMap<Box<str>, Counts>,
}

impl Usage {
    fn begin(&mut self, activity: Activity, scope: Option<&str>, limit: Option<usize>) -> bool {
        let all = &mut self.all[activity as usize];
        let free = limit.map(|limit| limit.saturating_sub(*all));
        if free == Some(0) {
            return false;
        }
        if let Some(scope) = scope {
            let own = match self.scopes.get_mut(scope) {
                Some(counts) => counts,
                None => self.scopes.entry(scope.into()).or_default(),
            };
            let own = &mut own[activity as usize];
            let (numerator, denominator) = activity.share();
            // A scope may always have one request, even where the limit is tiny.
            if *own > 0 && free.is_some_and(|free| *own * denominator >= free * numerator) {
                return false;
            }
            *own += 1;
        }
        *all += 1;
        true
    }

    fn end(&mut self, activity: Activity, scope: Option<&str>) {
        self.all[activity as usize] -= 1;
        let Some(scope) = scope else { return };
        if let Some(counts) = self.scopes.get_mut(scope) {
            counts[activity as usize] -= 1;
            if *counts == Counts::default() {
                self.scopes.remove(scope);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RequestLimits =
        RequestLimits { read_only: 400, mutating: 200, duration: Duration::from_secs(60) };

    fn limiter() -> Arc<ConcurrencyLimiter> {
        ConcurrencyLimiter::new(["a", "b", "c"].map(|name| IntGauge::new(name, name).unwrap()))
    }

    fn fill(limiter: &Arc<ConcurrencyLimiter>, scope: &str) -> Vec<ConcurrencyPermit> {
        let enter = || limiter.enter(Activity::Mutating, Some(scope), LIMITS, Exemption::None);
        std::iter::from_fn(enter).collect()
    }

    #[test]
    fn busy_scopes_leave_permits_to_others() {
        let limiter = limiter();
        let mut busy: Vec<_> = ["a", "b", "c"].iter().map(|scope| fill(&limiter, scope)).collect();
        assert_eq!(busy[0].len(), 150, "one scope alone has three quarters");
        let next = fill(&limiter, "d");
        assert!(!next.is_empty());
        busy[0].truncate(140);
        assert!(fill(&limiter, "a").is_empty(), "the scope has more than its share");
        assert!(!fill(&limiter, "e").is_empty());
        drop((busy, next));
        assert_eq!(fill(&limiter, "f").len(), 150);
        assert!(limiter.usage.lock().scopes.is_empty());
    }

    #[test]
    fn waits_take_no_permits_and_leave_waits_to_other_scopes() {
        let limiter = limiter();
        let permits: Vec<_> = ["a", "b", "c", "d"].iter().flat_map(|scope| fill(&limiter, scope)).collect();
        let waiting: Vec<_> = permits.iter().filter_map(|permit| permit.suspend().ok()).collect();
        let working = permits.len() - waiting.len();
        assert_eq!(limiter.usage.lock().all, [0, working, waiting.len()]);
        assert!(waiting.len() > 150, "{}", waiting.len());
        let next = fill(&limiter, "e");
        assert!(next.len() > 100, "{}", next.len());
        let of_next: Vec<_> = next.iter().map_while(|permit| permit.suspend().ok()).collect();
        assert!(!of_next.is_empty() && of_next.len() < next.len(), "{} of {}", of_next.len(), next.len());
    }

    #[test]
    fn concurrent_calls_of_a_request_are_one_wait() {
        let limiter = limiter();
        let permit = limiter.enter(Activity::ReadOnly, Some("a"), LIMITS, Exemption::None).unwrap();
        let (first, second) = (permit.suspend().unwrap(), permit.suspend().unwrap());
        assert_eq!(limiter.usage.lock().all, [0, 0, 1]);
        drop(first);
        assert_eq!(limiter.usage.lock().all, [0, 0, 1]);
        drop(second);
        assert_eq!(limiter.usage.lock().all, [1, 0, 0]);
    }
}
