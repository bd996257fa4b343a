//! How requests to an issuer are sent: over the client that everything else here uses.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use fairlead_client::{Client, ClientError, ClientOptions, Credentials, Endpoint, EndpointError, Request};
use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse};

/// No answer of an issuer is as large as this.
const LARGEST_ANSWER: usize = 1 << 20;

/// Sends requests to an issuer, whose endpoints may be on several hosts. Follows no redirects.
pub(super) struct Http {
    credentials: Credentials,
    clients: RefCell<BTreeMap<String, Client>>,
}

/// A request to an issuer has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("{0} is not reached over https, so anybody on the way could read what is secret")]
    Insecure(String),
    #[error(transparent)]
    Address(#[from] EndpointError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the answer makes no sense: {0}")]
    Answer(#[from] http::Error),
}

impl Http {
    pub(super) fn trusting(credentials: Credentials) -> Self {
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
            max_response_bytes: LARGEST_ANSWER,
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
        let answer = client.answer(request).await?;
        let mut response = HttpResponse::new(answer.body.to_vec());
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}
