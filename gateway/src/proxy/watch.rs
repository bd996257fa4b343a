//! Watches end when their credential expires or the process drains: cleanly, not by a broken connection.
//!
//! pingora's loop has no hook that could end a silent response. What it does is wait for the client to go away;
//! so the client's session is wrapped in one that reports the end of the watch at that place, as an error of its own
//! kind, and the failure path then writes a proper end.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use http::HeaderMap;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::proxy::Session;
use pingora::{Error, ErrorType, Result};

use crate::ending::Ending;

/// The kind of the error that means "the watch is over", and nothing else.
pub(super) const WATCH_IS_OVER: ErrorType = ErrorType::Custom("WatchIsOver");

/// Makes the session of a watch report its end.
pub(super) fn end_by(session: &mut Session, ending: Ending) {
    // After a watch the connection is not used for another request; HTTP/2 does not care.
    session.set_keepalive(None);
    let nothing: Box<dyn CustomSession> = Box::new(());
    let placeholder = Box::new(ServerSession::new_custom(nothing));
    let inner = std::mem::replace(&mut session.downstream_session, placeholder);
    let wrapped: Box<dyn CustomSession> = Box::new(WatchSession { inner, ending });
    *session.downstream_session = ServerSession::new_custom(wrapped);
}

struct WatchSession {
    inner: Box<ServerSession>,
    ending: Ending,
}

/// All but [`CustomSession::read_body_or_idle`] is the inner session's.
#[async_trait]
impl CustomSession for WatchSession {
    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        tokio::select! {
            read = self.inner.read_body_or_idle(no_body_expected) => read,
            () = self.ending.reached() => Error::e_explain(WATCH_IS_OVER, "the credential has expired or the process ends"),
        }
    }

    fn req_header(&self) -> &RequestHeader {
        self.inner.req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.inner.req_header_mut()
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        self.inner.read_request_body().await
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        self.inner.drain_request_body().await
    }

    async fn write_response_header(&mut self, head: Box<ResponseHeader>, _end: bool) -> Result<()> {
        self.inner.write_response_header(head).await
    }

    async fn write_response_header_ref(&mut self, head: &ResponseHeader, _end: bool) -> Result<()> {
        self.inner.write_response_header_ref(head).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.inner.write_response_body(data, end).await
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.inner.write_response_trailers(trailers).await
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        self.inner.response_duplex_vec(tasks).await
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_read_timeout(timeout);
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        self.inner.get_read_timeout()
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_write_timeout(timeout);
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.inner.get_write_timeout()
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_total_drain_timeout(timeout);
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.inner.get_total_drain_timeout()
    }

    fn request_summary(&self) -> String {
        self.inner.request_summary()
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.inner.response_written()
    }

    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.inner.shutdown().await;
    }

    fn is_body_done(&mut self) -> bool {
        self.inner.is_body_done()
    }

    async fn finish(&mut self) -> Result<()> {
        self.inner.finish_body().await
    }

    fn is_body_empty(&mut self) -> bool {
        self.inner.is_body_empty()
    }

    fn body_bytes_sent(&self) -> usize {
        self.inner.body_bytes_sent()
    }

    fn body_bytes_read(&self) -> usize {
        self.inner.body_bytes_read()
    }

    fn digest(&self) -> Option<&Digest> {
        self.inner.digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner.digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.inner.client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.inner.server_addr()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        self.inner.to_h1_raw()
    }

    fn enable_retry_buffering(&mut self) {
        self.inner.enable_retry_buffering();
    }

    fn retry_buffer_truncated(&self) -> bool {
        self.inner.retry_buffer_truncated()
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        self.inner.get_retry_buffer()
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(
        &mut self,
    ) -> Option<Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>> {
        None
    }

    fn restore_custom_message_reader(
        &mut self,
        _reader: Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>,
    ) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
