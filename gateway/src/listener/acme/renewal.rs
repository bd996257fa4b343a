//! The schedule of certificate orders: immediately without a certificate, after two thirds of its lifetime, when the
//! authority advises it (RFC 9773), and again after a failure, with growing pauses.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlead_client::Backoff;

use fairlead_process::Shutdown;
use instant_acme::{Account, CertificateIdentifier};

use crate::listener::acme::order::OrderRequest;
use crate::listener::acme::state::StoredCertificate;
use crate::listener::acme::{Acme, AcmeError, directory, order};

/// Maximum interval of checking the file, which another gateway may have replaced.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// Time limit for a complete order.
const MAX_ORDER: Duration = Duration::from_secs(300);
/// Maximum pause between two attempts, as a multiple of the minimum.
const MAX_BACKOFF_FACTOR: u32 = 100;
/// Fraction of a certificate's lifetime after which it is renewed even if the authority advises a later time.
const MAX_RENEWAL_AGE: f64 = 0.9;

/// The authority's renewal information for a certificate.
struct RenewalAdvice {
    /// The certificate in DER.
    certificate: Vec<u8>,
    renew_at: SystemTime,
    /// Time of the next query to the authority.
    next_query: SystemTime,
}

/// Renews a listener's certificate until the process drains.
pub(super) async fn run(acme: Acme, wanted: OrderRequest, shutdown: Shutdown) {
    let first = acme.config.retry_after.get();
    let mut backoff = Backoff::new(first, first.saturating_mul(MAX_BACKOFF_FACTOR));
    let mut task = RenewalTask { acme, wanted, advice: None, renewed: None, jitter: fastrand::f64() };
    loop {
        let outcome = tokio::select! {
            outcome = task.check() => outcome,
            () = shutdown.draining() => return,
        };
        let pause = match outcome {
            Ok(next) => {
                backoff.reset();
                next
            }
            Err(error) => {
                let (listener, pause) = (&task.wanted.listener, backoff.next_delay());
                tracing::warn!(%listener, %error, again_in = ?pause, "the certificate order failed; the last certificate stays");
                pause
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.draining() => return,
        }
    }
}

struct RenewalTask {
    acme: Acme,
    wanted: OrderRequest,
    advice: Option<RenewalAdvice>,
    /// Time of this gateway's last renewal. For [`CHECK_INTERVAL`] after it, advice to renew at once is ignored.
    renewed: Option<SystemTime>,
    /// A random number from 0 to 1, which spreads the renewals of listeners.
    jitter: f64,
}

impl RenewalTask {
    /// Renews the certificate if it is due. Returns the time until the next check.
    async fn check(&mut self) -> Result<Duration, AcmeError> {
        let file = self.acme.folder.certificate(&self.wanted.listener);
        let order_lock = std::sync::Arc::clone(&self.acme.order_lock);
        let _ordering = order_lock.lock().await;
        let wait = self.time_until_due(&file).await;
        if !wait.is_zero() {
            return Ok(wait);
        }
        let lock = match self.acme.folder.lock() {
            // Another gateway orders. The listener reloads the file by itself.
            Ok(None) => return Ok(self.acme.config.retry_after.get()),
            Ok(Some(lock)) => Ok(lock),
            Err(error) => Err(error),
        };
        // The other gateway may have completed its order meanwhile.
        if lock.is_ok() && !self.time_until_due(&file).await.is_zero() {
            return Ok(Duration::ZERO);
        }
        // Held until the order is complete.
        let outcome = match lock {
            Ok(_lock) => self.renew(&file).await,
            Err(error) => Err(error),
        };
        let (metrics, listener) = (&self.acme.metrics, self.wanted.listener.as_str());
        let result = if outcome.is_ok() { "success" } else { "failure" };
        metrics.attempts.with_label_values(&[listener, result]).inc();
        metrics.last_attempt.with_label_values(&[listener]).set(seconds(SystemTime::now()));
        outcome?;
        tracing::info!(%listener, names = ?self.wanted.names, "the listener has a new certificate");
        self.renewed = Some(SystemTime::now());
        self.acme.trigger.fire();
        Ok(Duration::ZERO)
    }

    /// Time until the certificate is due, at most until the next check.
    async fn time_until_due(&mut self, file: &Path) -> Duration {
        let current = StoredCertificate::read(file);
        let not_after = current
            .as_ref()
            .filter(|current| !current.is_provisional)
            .map_or(UNIX_EPOCH, |current| current.not_after);
        self.acme.metrics.not_after.with_label_values(&[&self.wanted.listener]).set(seconds(not_after));
        let Some(current) = current else { return Duration::ZERO };
        let mut due = current.due(&self.wanted.names, self.jitter);
        let now = SystemTime::now();
        if due > now
            && let Some(advised) = self.advised(&current, now).await
        {
            let earliest = self.renewed.map(|renewed| renewed + CHECK_INTERVAL);
            // Never later than the certificate is due without advice.
            due =
                earliest.filter(|earliest| advised < *earliest).map_or(advised, |earliest| due.min(earliest));
        }
        due.duration_since(now).unwrap_or_default().min(CHECK_INTERVAL)
    }

    /// The renewal time that the authority advises, if any.
    async fn advised(&mut self, current: &StoredCertificate, now: SystemTime) -> Option<SystemTime> {
        let is_current = self
            .advice
            .as_ref()
            .is_some_and(|advice| advice.certificate == current.leaf.as_ref() && advice.next_query > now);
        if !is_current {
            let lifetime = current.not_after.duration_since(current.not_before).unwrap_or_default();
            let latest = current.not_before + lifetime.mul_f64(MAX_RENEWAL_AGE);
            // If the authority does not respond, it is queried again later.
            let unknown = (current.due(&self.wanted.names, self.jitter), now + CHECK_INTERVAL * 6);
            let (renew_at, next_query) = self.query_renewal_info(current).await.unwrap_or(unknown);
            self.advice = Some(RenewalAdvice {
                certificate: current.leaf.to_vec(),
                renew_at: renew_at.min(latest),
                next_query,
            });
        }
        self.advice.as_ref().map(|advice| advice.renew_at)
    }

    async fn query_renewal_info(&self, current: &StoredCertificate) -> Option<(SystemTime, SystemTime)> {
        let identifier = CertificateIdentifier::try_from(&current.leaf).ok()?;
        // Only with an existing account; an order creates one.
        let account = self.account().await.ok()?;
        let (info, pause) = account.renewal_info(&identifier).await.ok()?;
        let window = info.suggested_window;
        let (begin, end) = (SystemTime::from(window.start), SystemTime::from(window.end));
        let length = end.duration_since(begin).unwrap_or_default();
        let pause = pause.clamp(Duration::from_secs(60), Duration::from_secs(86_400));
        Some((begin + length.mul_f64(self.jitter), SystemTime::now() + pause))
    }

    async fn renew(&self, file: &Path) -> Result<(), AcmeError> {
        let renewing = async {
            let account = self.account().await?;
            let current = StoredCertificate::read(file).filter(|current| !current.is_provisional);
            let replaced =
                current.as_ref().and_then(|current| CertificateIdentifier::try_from(&current.leaf).ok());
            let challenge_responses = &self.acme.challenge_responses;
            let ordered = match replaced {
                // Some authorities do not accept `replaces`, or not twice.
                Some(replaced) => {
                    match order::order(&account, &self.wanted, Some(replaced), challenge_responses).await {
                        Err(AcmeError::Authority(_)) => {
                            order::order(&account, &self.wanted, None, challenge_responses).await
                        }
                        other => other,
                    }
                }
                None => order::order(&account, &self.wanted, None, challenge_responses).await,
            };
            fairlead_certs::write_secret(file, &ordered?)?;
            Ok(())
        };
        tokio::time::timeout(MAX_ORDER, renewing).await.map_err(|_| AcmeError::Slow)?
    }

    async fn account(&self) -> Result<Account, AcmeError> {
        directory::account(&self.acme.config, &self.acme.folder, &self.acme.names).await
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
