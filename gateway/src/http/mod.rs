//! HTTP/1.1 and HTTP/2 with clients.
//!
//! May use `pipeline`, `admin` and `forward` to serve requests, and everything below them. Must not know how connections are
//! accepted.

pub(crate) mod http1;
mod http2;
mod http2_settings;
mod serve;

use std::sync::Arc;

use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;

use crate::admin::AdminApi;
use crate::forward::Forwarder;
use crate::pipeline::RequestPipeline;
use crate::policy::connection::Connection;

/// Serves the connections of all listeners.
pub(crate) struct HttpServer {
    pipeline: Arc<RequestPipeline>,
    admin: Arc<AdminApi>,
}

impl HttpServer {
    /// A server of requests that go through this pipeline.
    pub(crate) fn new(pipeline: Arc<RequestPipeline>, admin: Arc<AdminApi>) -> Self {
        Self { pipeline, admin }
    }

    /// Serves one HTTP/1.1 connection until it ends. When its listener drains, it ends after the open request.
    pub(crate) fn serve_http1<'f>(
        self: &'f Arc<Self>,
        connection: Arc<Connection>,
        stream: Stream,
        shutdown: &'f ShutdownWatch,
    ) -> impl Future<Output = ()> + Send + 'f {
        http1::serve_connection(self, connection, stream, shutdown)
    }

    /// Serves one HTTP/2 connection until it ends. When its listener drains, the client gets a GOAWAY.
    pub(crate) fn serve_http2<'f>(
        self: &'f Arc<Self>,
        connection: Arc<Connection>,
        stream: Stream,
        shutdown: &'f ShutdownWatch,
    ) -> impl Future<Output = ()> + Send + 'f {
        http2::serve_connection(self, connection, stream, shutdown)
    }

    fn forwarder(&self) -> &Forwarder {
        &self.pipeline.forwarder
    }
}
