//! The response on its way back, and the end of watches.

use std::future::ready;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::header::{self, HeaderMap};
use http::{Response, Uri};

use crate::forward::downstream::{DownstreamExchange, drain};
use crate::forward::exchange::{Exchange, StartedResponse, deadline_reached, elapsed};
use crate::forward::failure::Failure;
use crate::forward::keep_alive;
use crate::forward::keep_alive::KeepAlive;
use crate::forward::response_body::Download;
use crate::forward::retry_headers::RetryHeaders;
use crate::forward::upload::Upload;
use crate::forward::watch_framing::WatchFraming;
use crate::forward::{date, telemetry};
use crate::request::{is_hop_by_hop, nominated_headers};

/// Time for the rest of an event when its watch's deadline has passed.
const REST_OF_EVENT: Duration = Duration::from_secs(1);

impl<C: DownstreamExchange> Exchange<'_, C> {
    /// Sends the head of the response to the client; returns its status code and body.
    pub(super) fn start_response(
        &mut self,
        response: Response<Download>,
    ) -> Result<StartedResponse, Failure> {
        // There is no retry from here on, and a watch should keep little memory.
        (self.request.uri, self.request.headers) = (Uri::default(), HeaderMap::new());
        self.retry_headers = RetryHeaders::default();
        let (mut parts, body) = response.into_parts();
        telemetry::on_response_headers(self.context, &parts.headers);
        remove_hop_by_hop(&mut parts.headers);
        self.context.framing = WatchFraming::of(&parts.headers);
        parts.headers.entry(header::DATE).or_insert_with(date::now);
        if let Some(origin) = &self.forward.allowed_origin {
            for (name, value) in origin.fields() {
                parts.headers.insert(name, value);
            }
        }
        let (code, ended) = (parts.status.as_u16(), body.is_end());
        self.keep_alive =
            self.context.keep_alive.and_then(|pause| KeepAlive::of(&parts, pause).map(Box::new));
        if self.is_ending && code == 200 {
            self.deadline = Some(Box::pin(ready(())));
        }
        self.client.begin(parts, ended)?;
        Ok(StartedResponse { code, ended, body })
    }

    /// Relays the body to the client. By reference: async fns store their arguments beside the locals made from them.
    pub(super) async fn relay_response(
        &mut self,
        started: &mut StartedResponse,
        upload: &mut Upload,
    ) -> Result<(), Failure> {
        let StartedResponse { ended, body, .. } = started;
        let (patience, stall_timeout) = {
            let slow = self.forwarder.slow_clients.load();
            (slow.request_body_timeout.get(), slow.response_stall_timeout.get())
        };
        while !*ended {
            let at_once = body.data().now_or_never();
            let chunk = match at_once {
                Some(chunk) => chunk,
                None => {
                    // No data at the moment, so what is buffered must not wait.
                    tokio::select! {
                        biased;
                        flushed = self.client.flush() => flushed?,
                        () = deadline_reached(&mut self.deadline) => return self.abort_event(),
                        () = elapsed(Some(stall_timeout)) => return Err(Failure::SlowReader),
                    }
                    tokio::select! {
                        biased;
                        chunk = body.data() => chunk,
                        sent = upload.step(self.client, &self.context.connection().upload_backlog, patience) => {
                            self.count_sent(sent?);
                            continue;
                        }
                        () = keep_alive::due(&mut self.keep_alive) => {
                            self.write_keep_alive().await?;
                            continue;
                        }
                        () = elapsed(self.limit) => return Err(Failure::Timeout),
                        () = deadline_reached(&mut self.deadline) => {
                            self.reach_deadline()?;
                            continue;
                        }
                    }
                }
            };
            let Some(chunk) = chunk.transpose()? else {
                let mut trailers = body.trailers().await?;
                if let Some(trailers) = &mut trailers {
                    fairlead_authn::strip_identity_headers(trailers);
                }
                tokio::select! {
                    biased;
                    ended = self.client.end(trailers) => ended?,
                    () = elapsed(Some(stall_timeout)) => return Err(Failure::SlowReader),
                }
                break;
            };
            if let Some(keep_alive) = &mut self.keep_alive {
                keep_alive.restart();
            }
            // Checked here too, because a watch without pauses must not outlive its credential.
            if deadline_reached(&mut self.deadline).now_or_never().is_some() {
                self.reach_deadline()?;
            }
            let size = chunk.len();
            self.forward.count_bytes(size);
            self.context.response_bytes += size as u64;
            self.context.framing.pass(&chunk);
            // A known end goes out together with the last bytes. The end before an error looks the same, but then there is another item:
            // the error.
            *ended = body.is_end() && body.data().await.transpose()?.is_none();
            // Data that the shard has sent ahead waits here meanwhile.
            let stalled =
                self.context.connection().response_backlog.stalled(stall_timeout, || body.waiting());
            tokio::select! {
                biased;
                written = self.client.write(chunk, *ended) => written?,
                () = deadline_reached(&mut self.deadline) => return self.abort_event(),
                () = stalled => return Err(Failure::SlowReader),
            }
            self.context.connection().response_backlog.drained(size);
            body.release(size);
            if self.is_ending && self.context.framing.is_between() {
                return Err(Failure::StreamEnded);
            }
        }
        Ok(())
    }

    /// Writes a space to an idle watch.
    async fn write_keep_alive(&mut self) -> Result<(), Failure> {
        // Within an event, the space would become a part of it.
        if !self.context.framing.is_between() {
            return Ok(());
        }
        let stall_timeout = self.forwarder.slow_clients.load().response_stall_timeout.get();
        tokio::select! {
            biased;
            () = deadline_reached(&mut self.deadline) => self.abort_event(),
            written = self.client.write(keep_alive::BLANK, false) => Ok(written?),
            () = elapsed(Some(stall_timeout)) => Err(Failure::SlowReader),
        }
    }

    /// Completes the response; returns its status code.
    pub(super) async fn finish_response(&mut self, started: StartedResponse) -> Result<u16, Failure> {
        started.body.finish();
        let stall_timeout = self.forwarder.slow_clients.load().response_stall_timeout.get();
        tokio::select! {
            biased;
            flushed = self.client.flush() => flushed?,
            () = elapsed(Some(stall_timeout)) => return Err(Failure::SlowReader),
        }
        drain(self.client).await;
        Ok(started.code)
    }

    /// Called when the watch's deadline has passed. Within an event the watch continues for a moment, because the rest is most
    /// likely on its way.
    ///
    /// # Errors
    /// [`Failure::Over`], if it ends now.
    fn reach_deadline(&mut self) -> Result<(), Failure> {
        if self.context.framing.is_between() || self.is_ending {
            return Err(Failure::StreamEnded);
        }
        self.is_ending = true;
        self.deadline = Some(Box::pin(tokio::time::sleep(REST_OF_EVENT)));
        Ok(())
    }

    /// Ends a watch whose event was not completed in time.
    fn abort_event(&mut self) -> Result<(), Failure> {
        self.context.framing = WatchFraming::Lines { is_between: false };
        Err(Failure::StreamEnded)
    }
}

/// Removes hop-by-hop fields from the upstream's response.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let nominated: Vec<_> = nominated_headers(headers).collect();
        for name in nominated.into_iter().filter(|name| *name != header::CONTENT_LENGTH) {
            headers.remove(name);
        }
    }
    let unwanted = |name: &&header::HeaderName| is_hop_by_hop(name);
    // There is rarely more than one.
    while let Some(name) = headers.keys().find(unwanted).cloned() {
        headers.remove(name);
    }
}
