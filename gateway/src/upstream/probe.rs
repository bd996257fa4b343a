//! How an ejected address comes back: it is asked, and it answers.
//!
//! Only those are asked that are ejected: whoever is in use shows by every request how he is doing, and whether a server is
//! there is asked by pings on every connection.

use std::net::SocketAddr;
use std::sync::Weak;

use http::{Method, Request, StatusCode, Uri};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::streams::Established;
use super::{Upstream, UpstreamError, UpstreamOptions, random_share};

/// Probes come up to this part later, so that gateways do not all ask at once.
const LATER: f64 = 0.2;

/// Ends when the address is in use again, or the server is no more.
pub(super) async fn bring_back(upstream: Weak<Upstream>, address: SocketAddr, until: Instant) {
    sleep_until(until).await;
    loop {
        let pause = {
            let Some(upstream) = upstream.upgrade() else { return };
            // It has shown itself to be back, and may have been ejected anew: then somebody else waits for it.
            if upstream.addresses.ejected_until(address) != Some(until) {
                return;
            }
            let options = **upstream.options.load();
            let answers = match options.health.probe {
                None => true,
                Some(_) => upstream.probe(address, options).await,
            };
            if answers {
                tracing::info!(server = %upstream.name, %address, "an address is used again");
                return upstream.addresses.put_back(address, &options.health);
            }
            options.health.probe.unwrap_or(options.connect_timeout)
        };
        sleep(pause.mul_f64(1.0 + LATER * random_share())).await;
    }
}

impl Upstream {
    /// Whether the address answers as somebody who is ready does.
    async fn probe(&self, address: SocketAddr, options: UpstreamOptions) -> bool {
        let asked = timeout(options.connect_timeout, self.ask_whether_ready(address)).await;
        let why = match asked {
            Ok(Ok(code)) if !code.is_server_error() => return true,
            Ok(Ok(code)) => format!("it answers {code}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        tracing::debug!(server = %self.name, %address, why, "an ejected address is not back");
        false
    }

    /// Where nothing but HTTP/1.1 is spoken, it is enough that a connection can be opened.
    async fn ask_whether_ready(&self, address: SocketAddr) -> Result<StatusCode, UpstreamError> {
        let credential = &self.credential.load();
        let wire = self.wire(address, credential, &credential.stream_tls).await?;
        if !wire.speaks_http2() {
            return Ok(StatusCode::OK);
        }
        let target = Uri::builder().scheme("https").authority(self.authority()).path_and_query("/readyz");
        let mut question = Request::new(());
        *question.method_mut() = Method::GET;
        *question.uri_mut() = target.build().map_err(std::io::Error::other)?;
        Ok(Established::over(wire).await?.ask(question).await?)
    }
}
