//! Requests and answers over the pool of one endpoint.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, StatusCode};
use http_body_util::Full;

use crate::body::{Place, ResponseBody};
use crate::connection::{SendFailure, send_http1, send_http2};
use crate::credentials::{Credentials, CredentialsError, UnverifiedTls};
use crate::endpoint::Endpoint;
use crate::error::{ClientError, KubeStatus};
use crate::kubeconfig::ResolvedContext;
use crate::names::Names;
use crate::pool::{Lease, Pool};

/// A client of one server. Clones, also those with other path prefixes, share its connections and credentials.
#[derive(Clone)]
pub struct Client {
    pool: Arc<Pool>,
    endpoint: Endpoint,
}

/// Time-outs and sizes of a [`Client`].
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Limit for TCP, TLS and HTTP handshakes together.
    pub connect_timeout: Duration,
    /// Limit for a whole request; for streams, until the head of the answer.
    pub request_timeout: Duration,
    /// How often an HTTP/2 connection is asked whether it is alive.
    pub ping_interval: Duration,
    /// How long it may take to answer.
    pub ping_timeout: Duration,
    /// Most connections, of whichever protocol, that are kept.
    pub max_connections: usize,
    /// How many requests and streams a connection carries before another one is opened.
    pub streams_per_connection: usize,
    /// Largest buffered answer in bytes.
    pub max_response_bytes: usize,
    /// Largest single watch event in bytes.
    pub max_event_bytes: usize,
    /// The `User-Agent` header; servers derive the default field manager from what precedes its slash.
    pub user_agent: HeaderValue,
    /// What tells the server's addresses.
    pub names: Names,
}

/// A request below the client's path prefix.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Begins with a slash; percent-encoded.
    pub path_and_query: String,
    /// Headers, in place of the client's own where both are set.
    pub headers: HeaderMap,
    /// Body; empty for none.
    pub body: Bytes,
}

/// A complete answer, with a status below 400 but for [`Client::answer`].
#[derive(Debug, Clone)]
pub struct Response {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// The head of an answer with a status below 400, its body still to come.
pub struct StreamingResponse {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: ResponseBody,
}

impl Client {
    /// A client with credentials of its own; see [`Client::set_credentials`].
    pub fn new(endpoint: Endpoint, credentials: Credentials, options: ClientOptions) -> Self {
        Self::with_credentials(endpoint, Arc::new(ArcSwap::from_pointee(credentials)), options)
    }

    /// A client whose credentials somebody else replaces: new connections use the new ones, old connections finish
    /// what they carry.
    pub fn with_credentials(
        endpoint: Endpoint,
        credentials: Arc<ArcSwap<Credentials>>,
        options: ClientOptions,
    ) -> Self {
        Self { pool: Pool::new(endpoint.clone(), credentials, options), endpoint }
    }

    /// A client for a context of a kubeconfig. Reads the files that it names.
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

    /// Where requests go.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Time-outs and sizes.
    pub fn options(&self) -> &ClientOptions {
        self.pool.options()
    }

    /// Replaces the credentials of this client and all that share them, if they differ; tells whether they did.
    pub fn set_credentials(&self, credentials: Credentials) -> bool {
        let changed = **self.pool.credentials().load() != credentials;
        if changed {
            self.pool.credentials().store(Arc::new(credentials));
        }
        changed
    }

    /// GET, whole answer.
    pub async fn get(&self, path_and_query: &str) -> Result<Response, ClientError> {
        self.request(Request::new(Method::GET, path_and_query)).await
    }

    /// Sends a request and reads the whole answer. A status of 400 or more is [`ClientError::Status`].
    pub async fn request(&self, request: Request) -> Result<Response, ClientError> {
        let what = self.describe(&request);
        let max = self.options().max_response_bytes;
        self.within_limit(&what.clone(), async {
            let StreamingResponse { status, headers, body } =
                refuse_errors(self.exchange(request, what).await?).await?;
            Ok(Response { status, headers, body: body.collect(max).await? })
        })
        .await
    }

    /// Like [`Client::request`], for servers that are no Kubernetes: an answer is an answer, whatever its status.
    pub async fn answer(&self, request: Request) -> Result<Response, ClientError> {
        let what = self.describe(&request);
        let max = self.options().max_response_bytes;
        self.within_limit(&what.clone(), async {
            let StreamingResponse { status, headers, body } = self.exchange(request, what).await?;
            Ok(Response { status, headers, body: body.collect(max).await? })
        })
        .await
    }

    /// Sends a request and returns as soon as the answer begins. Only the beginning is limited in time.
    pub async fn stream(&self, request: Request) -> Result<StreamingResponse, ClientError> {
        let what = self.describe(&request);
        self.within_limit(&what.clone(), async { refuse_errors(self.exchange(request, what).await?).await })
            .await
    }

    async fn within_limit<T>(
        &self,
        what: &Arc<str>,
        operation: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let after = self.options().request_timeout;
        let timeout = |_| Err(ClientError::Timeout { what: what.clone(), after });
        tokio::time::timeout(after, operation).await.unwrap_or_else(timeout)
    }

    async fn exchange(&self, request: Request, what: Arc<str>) -> Result<StreamingResponse, ClientError> {
        let mut attempts = Attempts { left: 3, broken_reads_left: usize::from(request.method.is_safe()) };
        loop {
            let lease = self.pool.lease().await?;
            match self.exchange_once(&request, lease, &what).await? {
                Ok(response) => return Ok(response),
                Err(failure) if attempts.allow(&failure) => {}
                Err(failure) => {
                    return Err(ClientError::Closed { what, source: failure.error });
                }
            }
        }
    }

    async fn exchange_once(
        &self,
        request: &Request,
        lease: Lease,
        what: &Arc<str>,
    ) -> Result<Result<StreamingResponse, SendFailure>, ClientError> {
        let wire = self.wire_request(request, what)?;
        let (answer, place) = match lease {
            Lease::Http2 { mut sender, in_flight } => {
                (send_http2(&mut sender, wire).await, Place::Shared { _in_flight: in_flight })
            }
            Lease::Http1(mut connection) => {
                (send_http1(&mut connection.sender, wire).await, Place::Exclusive(connection))
            }
        };
        Ok(answer.map(|answer| {
            let (head, body) = answer.into_parts();
            let body = ResponseBody::new(body, place, what.clone());
            StreamingResponse { status: head.status, headers: head.headers, body }
        }))
    }

    fn wire_request(
        &self,
        request: &Request,
        what: &Arc<str>,
    ) -> Result<http::Request<Full<Bytes>>, ClientError> {
        let refuse =
            |error: http::Error| ClientError::Request { what: what.clone(), source: Arc::new(error) };
        let mut wire = http::Request::builder()
            .method(request.method.clone())
            .uri(self.endpoint.uri(&request.path_and_query).map_err(refuse)?)
            .body(Full::new(request.body.clone()))
            .map_err(refuse)?;
        let credentials = self.pool.credentials().load();
        let headers = wire.headers_mut();
        *headers = request.headers.clone();
        headers.entry(USER_AGENT).or_insert_with(|| self.options().user_agent.clone());
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        for name in credentials.headers().keys().filter(|name| !request.headers.contains_key(*name)) {
            for value in credentials.headers().get_all(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        Ok(wire)
    }

    /// Names a request in errors, without its query: that may be long.
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

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(5),
            max_connections: 4,
            streams_per_connection: 100,
            max_response_bytes: 256 << 20,
            max_event_bytes: 16 << 20,
            user_agent: HeaderValue::from_static(concat!("fairlead/", env!("CARGO_PKG_VERSION"))),
            names: Names::of_the_system(),
        }
    }
}

/// Which failures are worth another connection: what never left this process, and one read that was cut off because
/// its pooled connection was just closing.
struct Attempts {
    left: usize,
    broken_reads_left: usize,
}

impl Attempts {
    fn allow(&mut self, failure: &SendFailure) -> bool {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return false;
        }
        if !failure.unsent {
            let allowed = self.broken_reads_left > 0;
            self.broken_reads_left = 0;
            return allowed;
        }
        true
    }
}

async fn refuse_errors(response: StreamingResponse) -> Result<StreamingResponse, ClientError> {
    // An error text is small, or it is not worth reading.
    const LARGEST_ERROR: usize = 1 << 20;
    if response.status.as_u16() < 400 {
        return Ok(response);
    }
    let body = response.body.collect(LARGEST_ERROR).await.unwrap_or_default();
    Err(ClientError::Status(Box::new(KubeStatus::from_answer(response.status, &response.headers, &body))))
}
