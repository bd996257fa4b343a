//! Probes of ejected addresses, which end an ejection when they succeed.
//!
//! Only addresses without other requests are probed: requests show the state of an address in use, and pings that of a
//! connection. Tenants add backends, so the cost of a backend that is gone must shrink: the pauses grow, and probing ends
//! when no requests for it come any more.

use std::net::SocketAddr;
use std::sync::Weak;
use std::time::Duration;

use http::{Method, Request, StatusCode, Uri};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::upstream::server::UNUSED_AFTER;
use crate::upstream::streams::Established;
use crate::upstream::{Fault, Upstream, UpstreamError, UpstreamOptions, random_share};

/// Probes are delayed at random by up to this fraction, so that several gateways do not probe at the same time.
const PROBE_JITTER: f64 = 0.2;
/// Size of the flow-control window for the response of a probe.
const WINDOW: u32 = 64 << 10;

/// Probes an ejected address until it is healthy, or until there were no requests for its server for a long time.
pub(super) async fn probe_until_healthy(upstream: Weak<Upstream>, address: SocketAddr, until: Instant) {
    sleep_until(until).await;
    let (mut failed, mut known_at) = (0, Instant::now());
    loop {
        let pause = {
            let Some(upstream) = upstream.upgrade() else { return };
            // The ejection has ended. If the address has been ejected again since, another task probes it.
            if upstream.addresses.ejected_until(address) != Some(until) {
                return;
            }
            let options = **upstream.options.load();
            // One look-up may omit the address, and the next may contain it.
            let is_known = upstream.addresses.contains(address);
            if is_known {
                known_at = Instant::now();
            }
            let is_over = known_at.elapsed() >= UNUSED_AFTER || upstream.is_quiet();
            let Some(probe) = options.health.probe.filter(|_| !is_over) else {
                // The next request tests the address; if it fails there, the address is ejected for longer.
                return upstream.addresses.end_ejection(address, &options.health);
            };
            if is_known && upstream.depends_on_probes() {
                if upstream.probe(address, options).await {
                    tracing::info!(server = %upstream.name, %address, "an ejected address is used again");
                    return upstream.addresses.end_ejection(address, &options.health);
                }
                failed += 1;
            }
            pause_after(failed, probe, options.health.max_ejection)
        };
        sleep(pause.mul_f64(1.0 + PROBE_JITTER * random_share())).await;
    }
}

/// Pause after so many failed probes.
fn pause_after(failed: u32, probe: Duration, longest: Duration) -> Duration {
    let factor = 2_u32.saturating_pow(failed.saturating_sub(1).min(30));
    probe.saturating_mul(factor).min(longest.max(probe))
}

impl Upstream {
    /// Counts a failure of an address. An ejected address is probed until it is back.
    pub(super) fn record_address_failure(&self, address: SocketAddr, fault: Fault) {
        let options = self.options.load().health;
        let Some(until) = self.addresses.failed(address, fault, &options) else { return };
        let excludes_ejected = self.addresses.excludes_ejected();
        tracing::warn!(server = %self.name, %address, ?fault, excludes_ejected, "an address is ejected");
        self.metrics.ejected();
        if excludes_ejected && let Some(server) = self.this.upgrade() {
            let listener_variants = server.listener_variants.load();
            std::iter::once(&server)
                .chain(listener_variants.iter())
                .for_each(|one| one.connections.retire_address(address));
        }
        tokio::spawn(probe_until_healthy(Weak::clone(&self.this), address, until));
    }

    /// True if only a probe can show that an address is healthy. While ejected addresses are not skipped, a request shows it; but
    /// a failing shard gets no new workspaces, so it may get no requests.
    fn depends_on_probes(&self) -> bool {
        self.is_shard || self.addresses.excludes_ejected()
    }

    /// True if the address responds like a ready server.
    async fn probe(&self, address: SocketAddr, options: UpstreamOptions) -> bool {
        let outcome = timeout(options.connect_timeout, self.request_readiness(address)).await;
        let reason = match outcome {
            Ok(Ok(code)) if !code.is_server_error() => return true,
            Ok(Ok(code)) => format!("the response is {code}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "there is no response".to_owned(),
        };
        tracing::debug!(server = %self.name, %address, reason, "the probe of an ejected address failed");
        false
    }

    /// Requests `/readyz`. For a server without HTTP/2, an open connection is enough.
    async fn request_readiness(&self, address: SocketAddr) -> Result<StatusCode, UpstreamError> {
        let credential = &self.credential.load();
        let transport = self.open_transport(address, credential, &credential.stream_tls).await?;
        if !transport.is_http2() {
            return Ok(StatusCode::OK);
        }
        let target = Uri::builder().scheme("https").authority(self.authority()).path_and_query("/readyz");
        let mut request = Request::new(());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = target.build().map_err(std::io::Error::other)?;
        Ok(Established::over(transport, WINDOW).await?.send_single(request).await?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn pauses_between_failed_probes_grow() {
        let (probe, longest) = (Duration::from_secs(2), Duration::from_secs(300));
        for (failed, expected) in [(0, 2), (1, 2), (2, 4), (3, 8), (8, 256), (9, 300), (1000, 300)] {
            assert_eq!(pause_after(failed, probe, longest).as_secs(), expected, "{failed}");
        }
        assert_eq!(pause_after(5, longest, probe), longest);
    }
}
