//! Bounded retries that honour `Retry-After`.

use std::future::Future;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::error::ClientError;

/// Number and delays of retries.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    /// Maximum number of attempts, including the first.
    pub attempts: usize,
    /// Delay before the second attempt; doubles for each further one.
    pub initial: Duration,
    /// Longest delay. If the server asks for a longer one, there is no retry.
    pub longest: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 5, initial: Duration::from_millis(100), longest: Duration::from_secs(5) }
    }
}

/// Repeats `operation` while its error is retryable. Only for operations that may safely happen twice: after a lost
/// connection the first attempt may have taken effect.
pub async fn retry<T, F, O>(policy: &RetryPolicy, mut operation: O) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
    O: FnMut() -> F,
{
    let mut backoff = Backoff::new(policy.initial, policy.longest);
    let mut attempts_left = policy.attempts;
    loop {
        attempts_left = attempts_left.saturating_sub(1);
        let error = match operation().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let requested = error.retry_after().unwrap_or_default();
        if attempts_left == 0 || !error.is_retryable() || requested > policy.longest {
            return Err(error);
        }
        tokio::time::sleep(backoff.next_delay().max(requested)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::error::KubeStatus;

    const QUICK: RetryPolicy =
        RetryPolicy { attempts: 5, initial: Duration::from_millis(1), longest: Duration::from_millis(50) };

    fn status(code: u16, retry_after: Option<Duration>) -> ClientError {
        ClientError::Status(Box::new(KubeStatus { code, retry_after, ..KubeStatus::default() }))
    }

    async fn tries(error: ClientError) -> usize {
        let tries = Cell::new(0);
        let outcome: Result<(), _> = retry(&QUICK, || {
            tries.set(tries.get() + 1);
            let error = error.clone();
            async move { Err(error) }
        })
        .await;
        assert!(outcome.is_err());
        tries.get()
    }

    #[tokio::test]
    async fn only_retryable_errors_are_retried_a_limited_number_of_times() {
        for (error, expected) in [
            (status(503, None), 5),
            (status(429, Some(QUICK.longest)), 5),
            // Not worth the wait.
            (status(429, Some(Duration::from_secs(3600))), 1),
            (status(404, None), 1),
        ] {
            assert_eq!(tries(error.clone()).await, expected, "{error}");
        }
    }

    #[tokio::test]
    async fn a_success_ends_the_retries() {
        let tries = Cell::new(0);
        let outcome = retry(&QUICK, || {
            tries.set(tries.get() + 1);
            let result = if tries.get() < 3 { Err(status(503, None)) } else { Ok(tries.get()) };
            async move { result }
        });
        assert_eq!(outcome.await.unwrap(), 3);
    }
}
