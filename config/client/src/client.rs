//! Requests and responses over the connection pool of one endpoint.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, StatusCode};
use http_body::Body;
use http_body_util::Full;

use crate::body::{ConnectionUse, ResponseBody};
use crate::connection::{SendFailure, send_http1, send_http2};
use crate::credentials::{Credentials, CredentialsError, UnverifiedTls};
use crate::endpoint::Endpoint;
use crate::error::{ClientError, KubeStatus};
use crate::kubeconfig::ResolvedContext;
use crate::options::ClientOptions;
use crate::pool::{Lease, Pool};
use crate::request_body::{RequestBody, StreamedBody, streamed};

/// A client of one server. Clones, also those with other path prefixes, share its connections and credentials.
#[derive(Clone)]
pub struct Client {
    pool: Arc<Pool>,
    endpoint: Endpoint,
}

/// A request below the client's path prefix.
#[derive(Debug, Clone)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path and query: percent-encoded, beginning with a slash.
    pub path_and_query: String,
    /// Header fields; they replace the client's own of the same name.
    pub headers: HeaderMap,
    /// Request body; empty for none.
    pub body: Bytes,
}

/// A complete response. Its status is below 400, except from [`Client::request_any_status`].
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub status: StatusCode,
    /// Header fields.
    pub headers: HeaderMap,
    /// Response body.
    pub body: Bytes,
}

/// The headers of a response; the body follows. Its status is below 400, except from [`Client::stream_any_status`].
pub struct StreamingResponse {
    /// Status code.
    pub status: StatusCode,
    /// Header fields.
    pub headers: HeaderMap,
    /// Response body.
    pub body: ResponseBody,
}

impl Client {
    /// A client with credentials of its own; see [`Client::set_credentials`].
    pub fn new(endpoint: Endpoint, credentials: Credentials, options: ClientOptions) -> Self {
        Self::with_credentials(endpoint, Arc::new(ArcSwap::from_pointee(credentials)), options)
    }

    /// A client with shared credentials that its owner may replace: new connections use the new ones, old connections finish
    /// their requests.
    pub fn with_credentials(
        endpoint: Endpoint,
        credentials: Arc<ArcSwap<Credentials>>,
        options: ClientOptions,
    ) -> Self {
        Self { pool: Pool::new(endpoint.clone(), credentials, options), endpoint }
    }

    /// A client for a context of a kubeconfig. Reads the files that the context names.
    pub fn from_context(
        context: &ResolvedContext,
        unverified: UnverifiedTls,
        options: ClientOptions,
    ) -> Result<Self, CredentialsError> {
        Ok(Self::new(context.endpoint.clone(), context.credentials(unverified)?, options))
    }

    /// The same connections under another path prefix, e.g. `/clusters/root`.
    pub fn with_prefix(&self, prefix: &str) -> Self {
        Self { pool: self.pool.clone(), endpoint: self.endpoint.with_prefix(prefix) }
    }

    /// The server and path prefix of requests.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Time-outs and sizes.
    pub fn options(&self) -> &ClientOptions {
        self.pool.options()
    }

    /// Replaces the credentials of this client and its clones. Returns whether they differ from the previous ones.
    pub fn set_credentials(&self, credentials: Credentials) -> bool {
        let changed = **self.pool.credentials().load() != credentials;
        if changed {
            self.pool.credentials().store(Arc::new(credentials));
        }
        changed
    }

    /// Sends a GET request and reads the whole response.
    pub async fn get(&self, path_and_query: &str) -> Result<Response, ClientError> {
        self.request(Request::new(Method::GET, path_and_query)).await
    }

    /// Sends a request and reads the whole response. A status of 400 or more is [`ClientError::Status`].
    pub async fn request(&self, request: Request) -> Result<Response, ClientError> {
        let subject = self.describe(&request);
        let max = self.options().max_response_bytes;
        self.within_limit(&subject.clone(), async {
            let StreamingResponse { status, headers, body } =
                refuse_errors(self.exchange(request, None, subject).await?).await?;
            Ok(Response { status, headers, body: body.collect(max).await? })
        })
        .await
    }

    /// Like [`Client::request`], for servers other than Kubernetes: every status is a success.
    pub async fn request_any_status(&self, request: Request) -> Result<Response, ClientError> {
        let subject = self.describe(&request);
        let max = self.options().max_response_bytes;
        self.within_limit(&subject.clone(), async {
            let StreamingResponse { status, headers, body } = self.exchange(request, None, subject).await?;
            Ok(Response { status, headers, body: body.collect(max).await? })
        })
        .await
    }

    /// Sends a request and returns with the response headers. The request timeout applies until then.
    pub async fn stream(&self, request: Request) -> Result<StreamingResponse, ClientError> {
        let subject = self.describe(&request);
        self.within_limit(&subject.clone(), async {
            refuse_errors(self.exchange(request, None, subject).await?).await
        })
        .await
    }

    /// Like [`Client::stream`], for proxies: every status is a success.
    pub async fn stream_any_status(&self, request: Request) -> Result<StreamingResponse, ClientError> {
        let subject = self.describe(&request);
        self.within_limit(&subject.clone(), self.exchange(request, None, subject)).await
    }

    /// Like [`Client::stream_any_status`], with `body` in place of the request's own. It is read as fast as the server takes it. The
    /// request is sent once, except to replace a connection to which nothing of it was written.
    pub async fn relay<B>(&self, request: Request, body: B) -> Result<StreamingResponse, ClientError>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let subject = self.describe(&request);
        let exchange = self.exchange(request, Some(streamed(body)), subject.clone());
        self.within_limit(&subject, exchange).await
    }

    async fn within_limit<T>(
        &self,
        subject: &Arc<str>,
        operation: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let after = self.options().request_timeout;
        let timeout = |_| Err(ClientError::Timeout { subject: subject.clone(), after });
        tokio::time::timeout(after, operation).await.unwrap_or_else(timeout)
    }

    /// `stream` is sent in place of the request's own body.
    async fn exchange(
        &self,
        request: Request,
        mut stream: Option<StreamedBody>,
        subject: Arc<str>,
    ) -> Result<StreamingResponse, ClientError> {
        let is_repeatable = request.method.is_safe() && stream.is_none();
        let mut attempts = Attempts { left: 3, broken_reads_left: usize::from(is_repeatable) };
        loop {
            let lease = self.pool.lease().await?;
            let body = match stream.take() {
                Some(body) => RequestBody::Streamed(body),
                None => RequestBody::Buffered(Full::new(request.body.clone())),
            };
            let is_streamed = matches!(body, RequestBody::Streamed(_));
            match self.exchange_once(&request, body, lease, &subject).await? {
                Ok((_, true)) if !is_streamed && attempts.allow_another() => {}
                Ok((response, _)) => return Ok(response),
                Err(failure) if attempts.allow(&failure) => {
                    if let Some(RequestBody::Streamed(body)) = failure.unsent {
                        stream = Some(body);
                    }
                }
                Err(failure) => {
                    return Err(ClientError::Closed { subject, source: failure.error });
                }
            }
        }
    }

    /// The response, and whether it is the refusal of a replica that is behind. Then its connection gets no further requests.
    async fn exchange_once(
        &self,
        request: &Request,
        body: RequestBody,
        lease: Lease,
        subject: &Arc<str>,
    ) -> Result<Result<(StreamingResponse, bool), SendFailure>, ClientError> {
        let is_streamed = matches!(body, RequestBody::Streamed(_));
        let wire = self.wire_request(request, body, subject)?;
        let (response, usage) = match lease {
            Lease::Http2 { mut sender, in_flight } => {
                (send_http2(&mut sender, wire).await, ConnectionUse::Shared { in_flight })
            }
            Lease::Http1(mut connection) => {
                let response = send_http1(&mut connection.sender, wire).await;
                let usage = match is_streamed {
                    true => ConnectionUse::Single { _connection: connection },
                    false => ConnectionUse::Exclusive(connection),
                };
                (response, usage)
            }
        };
        Ok(response.map(|response| {
            let (mut head, body) = response.into_parts();
            let revision = self.pool.revision();
            let is_refusal = revision.is_some_and(|revision| revision.note(head.status, &mut head.headers));
            if is_refusal && let ConnectionUse::Shared { in_flight } = &usage {
                self.pool.retire(in_flight);
            }
            let body = ResponseBody::new(body, usage, subject.clone());
            (StreamingResponse { status: head.status, headers: head.headers, body }, is_refusal)
        }))
    }

    fn wire_request(
        &self,
        request: &Request,
        body: RequestBody,
        subject: &Arc<str>,
    ) -> Result<http::Request<RequestBody>, ClientError> {
        let refuse =
            |error: http::Error| ClientError::Request { subject: subject.clone(), source: Arc::new(error) };
        let mut wire = http::Request::builder()
            .method(request.method.clone())
            .uri(self.endpoint.uri(&request.path_and_query).map_err(refuse)?)
            .body(body)
            .map_err(refuse)?;
        let credentials = self.pool.credentials().load();
        let headers = wire.headers_mut();
        *headers = request.headers.clone();
        headers.entry(USER_AGENT).or_insert_with(|| self.options().user_agent.clone());
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        if let Some(revision) = self.pool.revision() {
            revision.stamp(headers);
        }
        for name in credentials.headers().keys().filter(|name| !request.headers.contains_key(*name)) {
            for value in credentials.headers().get_all(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        Ok(wire)
    }

    /// The name of a request in errors: without the query, which may be long.
    fn describe(&self, request: &Request) -> Arc<str> {
        let path = request.path_and_query.split('?').next().unwrap_or_default();
        format!("{} {}{path}", request.method, self.endpoint).into()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint.to_string()).finish_non_exhaustive()
    }
}

impl Request {
    /// A request without headers of its own and without a body.
    pub fn new(method: Method, path_and_query: impl Into<String>) -> Self {
        Self { method, path_and_query: path_and_query.into(), headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// The same with a header.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The same with a body of the given content type.
    pub fn with_body(self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut request =
            self.with_header(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        request.body = body.into();
        request
    }
}

/// Remaining retries on another connection. Requests that were never sent or that a replica has refused are retried, and one
/// read whose pooled connection was closing.
struct Attempts {
    left: usize,
    broken_reads_left: usize,
}

impl Attempts {
    /// Whether a request of which nothing was executed may be sent again.
    fn allow_another(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    fn allow(&mut self, failure: &SendFailure) -> bool {
        if !self.allow_another() {
            return false;
        }
        if failure.unsent.is_none() {
            let allowed = self.broken_reads_left > 0;
            self.broken_reads_left = 0;
            return allowed;
        }
        true
    }
}

async fn refuse_errors(response: StreamingResponse) -> Result<StreamingResponse, ClientError> {
    // Error bodies beyond this size are not read.
    const MAX_ERROR_BODY: usize = 1 << 20;
    if response.status.as_u16() < 400 {
        return Ok(response);
    }
    let body = response.body.collect(MAX_ERROR_BODY).await.unwrap_or_default();
    Err(ClientError::Status(Box::new(KubeStatus::from_response(response.status, &response.headers, &body))))
}
