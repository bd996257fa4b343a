//! Sends the request to an upstream that speaks HTTP/1.1 only: each request has a connection to itself.

use std::task::Poll;

use futures_util::FutureExt as _;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, Version};
use tokio::sync::mpsc;

use crate::forward::downstream::DownstreamExchange;
use crate::forward::exchange::Exchange;
use crate::forward::exchange::relay_response::remove_hop_by_hop;
use crate::forward::exchange::send_request::{MAX_SENT, Next, copy};
use crate::forward::failure;
use crate::forward::failure::{Broken, Failure};
use crate::forward::response_body::Download;
use crate::forward::upload::{Sink, Upload};
use crate::upstream::{Lease, RequestBody};

impl<C: DownstreamExchange> Exchange<'_, C> {
    /// Sends the request on an HTTP/1.1 connection and waits for the head of the response.
    pub(super) async fn send_request_over_http1(
        &mut self,
        upload: &mut Upload,
    ) -> Result<Response<Download>, Failure> {
        self.restore();
        make_http1(self.request)?;
        let mut fresh = false;
        for _ in 0..MAX_SENT {
            let mut lease = self.lease(fresh).await?;
            let mut request = copy(self.request);
            let (ended, done) = self.is_ended(upload);
            let (body, sink) = body_for_http1(&request, ended);
            upload.begin_again(sink, done);
            let mut interims = interims_over_http1(&mut request);
            let mut sending = Box::pin(lease.sender.try_send_request(request.map(|()| body)).fuse());
            let mut final_response = None;
            let response_future = self.head(upload, |context| {
                // Polled first, so that every interim response from before is in the channel when the final one arrives.
                if let Poll::Ready(response_future) = sending.as_mut().poll(context) {
                    final_response = Some(response_future);
                }
                if let Poll::Ready(Some(interim)) = interims.poll_recv(context) {
                    return Poll::Ready(Ok(Next::Interim(interim)));
                }
                let Some(response_future) = final_response.take() else { return Poll::Pending };
                Poll::Ready(response_future.map(Next::Final).map_err(
                    |mut error| match error.take_message() {
                        Some(_) => Failure::Refused,
                        None => Failure::Shard(Broken::Http1(error.into_error())),
                    },
                ))
            });
            match response_future.await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err(Failure::Shard(Broken::Switched));
                }
                Ok(response) => {
                    upload.forget();
                    drop(sending);
                    let lease = Some(Box::new(lease));
                    return Ok(response.map(|body| Download::Http1 { body, trailers: None, lease }));
                }
                // The upstream may close idle connections at any time.
                Err(failure) if lease.reused && self.may_retry(&failure, upload) => fresh = true,
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Unreachable)
    }

    async fn lease(&mut self, fresh: bool) -> Result<Lease, Failure> {
        let (upstreams, upstream) = (&self.forwarder.upstreams, &self.forward.upstream);
        let lease = async {
            if fresh { upstreams.fresh_lease(upstream).await } else { upstreams.lease(upstream).await }
        };
        tokio::select! {
            biased;
            () = self.client.closed() => Err(Failure::ClientDisconnected),
            lease = lease => lease.map_err(|error| {
                failure::record_connect_failure(upstream, &error);
                Failure::Unreachable
            }),
        }
    }
}

/// Makes the request origin-form, with the authority in `Host`.
fn make_http1(request: &mut Parts) -> Result<(), Failure> {
    const INVALID: Failure = Failure::Malformed("its target is not a URI");
    let uri = std::mem::take(&mut request.uri).into_parts();
    if let Some(authority) = uri.authority {
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| INVALID)?;
        request.headers.insert(header::HOST, host);
    }
    request.uri = uri.path_and_query.ok_or(INVALID)?.into();
    request.version = Version::HTTP_11;
    Ok(())
}

/// The interim responses to a request, at most a few at a time; more are dropped.
fn interims_over_http1(request: &mut Request<()>) -> mpsc::Receiver<Response<()>> {
    const KEPT: usize = 8;
    let (sender, interims) = mpsc::channel(KEPT);
    hyper::ext::on_informational(request, move |head| {
        let mut interim = Response::new(());
        *interim.status_mut() = head.status();
        *interim.headers_mut() = head.headers().clone();
        remove_hop_by_hop(interim.headers_mut());
        let _ = sender.try_send(interim);
    });
    interims
}

fn body_for_http1(request: &Request<()>, ended: bool) -> (RequestBody, Sink) {
    if ended {
        return (RequestBody::Empty, Sink::Nowhere);
    }
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let (sink, parts) = mpsc::channel(1);
    (RequestBody::Streamed { parts, length }, Sink::Http1(sink))
}
