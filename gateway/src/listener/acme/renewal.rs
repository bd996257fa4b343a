//! The schedule of certificate orders: immediately without a certificate, after two thirds of its lifetime, when the
//! authority advises it (RFC 9773), and again after a failure, with growing pauses.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlead_client::Backoff;

use fairlead_process::Shutdown;
use instant_acme::{Account, CertificateIdentifier};

use crate::listener::acme::order::OrderRequest;
use crate::listener::acme::state::AuthorityLock;
use crate::listener::acme::{Acme, AcmeError, directory, order};

/// Interval of checking the time and the file, which another gateway may have replaced.
const LOOK: Duration = Duration::from_secs(3600);
/// Time limit for an order as a whole.
const MAX_ORDER: Duration = Duration::from_secs(300);
/// Maximum pause between two attempts, as a multiple of the minimum.
const MOST: u32 = 100;
/// Part of a certificate's lifetime after which it is renewed even if the authority advises a later time.
const LATEST: f64 = 0.9;

/// The authority's renewal information for a certificate.
struct Advice {
    about: Vec<u8>,
    at: SystemTime,
    /// Time of the next query.
    again: SystemTime,
}

/// Renews a listener's certificate until the process drains.
pub(super) async fn keep(acme: Acme, wanted: OrderRequest, shutdown: Shutdown) {
    let first = acme.config.retry_after.get();
    let mut backoff = Backoff::new(first, first.saturating_mul(MOST));
    let mut keeper = RenewalTask { acme, wanted, advice: None, renewed: None, lot: fastrand::f64() };
    loop {
        let outcome = tokio::select! {
            outcome = keeper.look() => outcome,
            () = shutdown.draining() => return,
        };
        let pause = match outcome {
            Ok(next) => {
                backoff.reset();
                next
            }
            Err(error) => {
                let (listener, pause) = (&keeper.wanted.listener, backoff.next_delay());
                tracing::warn!(%listener, %error, again_in = ?pause, "no certificate could be ordered; the last one stays");
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
    advice: Option<Advice>,
    /// Time of this gateway's last renewal: an authority that advises immediate renewal each time is ignored for a while.
    renewed: Option<SystemTime>,
    /// A random number from 0 to 1, which spreads the renewals of listeners.
    lot: f64,
}

impl RenewalTask {
    /// Renews the certificate if it is due. Returns the time until the next check.
    async fn look(&mut self) -> Result<Duration, AcmeError> {
        let file = self.acme.folder.certificate(&self.wanted.listener);
        let turn = std::sync::Arc::clone(&self.acme.turn);
        let _turn = turn.lock().await;
        let wait = self.wait(&file).await;
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
        if lock.is_ok() && !self.wait(&file).await.is_zero() {
            return Ok(Duration::ZERO);
        }
        // Held until the order is complete.
        let outcome = match lock {
            Ok(_held) => self.renew(&file).await,
            Err(error) => Err(error),
        };
        let (metrics, listener) = (&self.acme.metrics, self.wanted.listener.as_str());
        let result = if outcome.is_ok() { "success" } else { "failure" };
        metrics.attempts.with_label_values(&[listener, result]).inc();
        metrics.last_attempt.with_label_values(&[listener]).set(seconds(SystemTime::now()));
        outcome?;
        tracing::info!(%listener, names = ?self.wanted.names, "a new certificate");
        self.renewed = Some(SystemTime::now());
        self.acme.trigger.fire();
        Ok(Duration::ZERO)
    }

    /// Time until the certificate is due, at most until the next check.
    async fn wait(&mut self, file: &Path) -> Duration {
        let held = AuthorityLock::read(file);
        let ends = held.as_ref().filter(|held| !held.is_provisional).map_or(UNIX_EPOCH, |held| held.ends);
        self.acme.metrics.ends.with_label_values(&[&self.wanted.listener]).set(seconds(ends));
        let Some(held) = held else { return Duration::ZERO };
        let mut due = held.due(&self.wanted.names, self.lot);
        let now = SystemTime::now();
        if due > now
            && let Some(advised) = self.advised(&held, now).await
        {
            let obeyed = self.renewed.map(|renewed| renewed + LOOK);
            // Never later than it is due anyway.
            due = obeyed.filter(|obeyed| advised < *obeyed).map_or(advised, |obeyed| due.min(obeyed));
        }
        due.duration_since(now).unwrap_or_default().min(LOOK)
    }

    /// The renewal time that the authority advises, if any.
    async fn advised(&mut self, held: &AuthorityLock, now: SystemTime) -> Option<SystemTime> {
        let is_asked = self
            .advice
            .as_ref()
            .is_some_and(|advice| advice.about == held.leaf.as_ref() && advice.again > now);
        if !is_asked {
            let life = held.ends.duration_since(held.begins).unwrap_or_default();
            let latest = held.begins + life.mul_f64(LATEST);
            // If the authority does not respond, it is queried again later.
            let unknown = (held.due(&self.wanted.names, self.lot), now + LOOK * 6);
            let (at, again) = self.ask(held).await.unwrap_or(unknown);
            self.advice = Some(Advice { about: held.leaf.to_vec(), at: at.min(latest), again });
        }
        self.advice.as_ref().map(|advice| advice.at)
    }

    async fn ask(&self, held: &AuthorityLock) -> Option<(SystemTime, SystemTime)> {
        let identifier = CertificateIdentifier::try_from(&held.leaf).ok()?;
        // Only with an existing account; an order creates one.
        let account = self.account().await.ok()?;
        let (info, pause) = account.renewal_info(&identifier).await.ok()?;
        let window = info.suggested_window;
        let (begin, end) = (SystemTime::from(window.start), SystemTime::from(window.end));
        let length = end.duration_since(begin).unwrap_or_default();
        let pause = pause.clamp(Duration::from_secs(60), Duration::from_secs(86_400));
        Some((begin + length.mul_f64(self.lot), SystemTime::now() + pause))
    }

    async fn renew(&self, file: &Path) -> Result<(), AcmeError> {
        let renewing = async {
            let account = self.account().await?;
            let held = AuthorityLock::read(file).filter(|held| !held.is_provisional);
            let replaced = held.as_ref().and_then(|held| CertificateIdentifier::try_from(&held.leaf).ok());
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
