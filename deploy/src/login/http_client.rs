//! HTTP for `oauth2`, over `fairlead-client`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use fairlead_client::{Client, ClientError, ClientOptions, Credentials, Endpoint, EndpointError, Request};
use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse};

/// Maximum size of a response.
const MAX_RESPONSE_SIZE: usize = 1 << 20;

/// Sends requests to an issuer, whose endpoints may be on several hosts. It follows no redirects.
pub(super) struct IssuerHttpClient {
    credentials: Credentials,
    clients: RefCell<BTreeMap<String, Client>>,
}

/// Errors of a request to an issuer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("{0} does not use https, so secrets could be read in transit")]
    Insecure(String),
    #[error(transparent)]
    Address(#[from] EndpointError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the response is malformed: {0}")]
    Response(#[from] http::Error),
}

impl IssuerHttpClient {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self { credentials, clients: RefCell::default() }
    }

    fn client(&self, request: &HttpRequest) -> Result<Client, HttpError> {
        let uri = request.uri();
        let origin = format!(
            "{}://{}",
            uri.scheme_str().unwrap_or_default(),
            uri.authority().map_or("", http::uri::Authority::as_str)
        );
        if uri.scheme_str() != Some("https") {
            return Err(HttpError::Insecure(origin));
        }
        if let Some(client) = self.clients.borrow().get(&origin) {
            return Ok(client.clone());
        }
        let options = ClientOptions {
            request_timeout: Duration::from_secs(15),
            max_connections: 1,
            max_response_bytes: MAX_RESPONSE_SIZE,
            ..ClientOptions::default()
        };
        let client = Client::new(Endpoint::parse(&origin)?, self.credentials.clone(), options);
        self.clients.borrow_mut().insert(origin, client.clone());
        Ok(client)
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let client = self.client(&request)?;
        let (head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let request =
            Request { method: head.method, path_and_query: path, headers: head.headers, body: body.into() };
        let received = client.request_any_status(request).await?;
        let mut response = HttpResponse::new(received.body.to_vec());
        *response.status_mut() = received.status;
        *response.headers_mut() = received.headers;
        Ok(response)
    }
}

impl<'c> AsyncHttpClient<'c> for IssuerHttpClient {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}
