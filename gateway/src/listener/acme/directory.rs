//! The ACME account, and the HTTP client for requests to the servers of an ACME directory.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, NameResolver, Request, TrustRoots};
use fairlead_config::AcmeConfig;
use http_body_util::{BodyExt, Full};
use instant_acme::{
    Account, AccountCredentials, BodyWrapper, BytesResponse, Error, ExternalAccountKey, HttpClient,
    NewAccount,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::listener::acme::AcmeError;
use crate::listener::acme::state::Folder;

/// Time limit for one response of the authority.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The account in the folder, or a new one, which is stored before it is used.
pub(super) async fn account(
    config: &AcmeConfig,
    folder: &Folder,
    names: &NameResolver,
) -> Result<Account, AcmeError> {
    let directory = config.directory_url.as_ref().map(ToString::to_string).unwrap_or_default();
    let file = folder.account(&directory);
    let builder = || -> Result<_, AcmeError> {
        let roots = match &config.ca_file {
            Some(file) => TrustRoots::Pem(read(file)?),
            None => TrustRoots::System,
        };
        Ok(Account::builder_with_http(Box::new(Directory::new(Credentials::new(roots)?, names))))
    };
    match std::fs::read(&file) {
        Ok(text) => {
            let known: AccountCredentials =
                serde_json::from_slice(&text).map_err(|error| AcmeError::Account(file, error))?;
            Ok(builder()?.from_credentials(known).await?)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let contact: Vec<&str> = config.contact.iter().map(String::as_str).collect();
            let wanted = NewAccount {
                contact: &contact,
                terms_of_service_agreed: config.terms_agreed,
                only_return_existing: false,
            };
            let external = external_account(config)?;
            let (account, credentials) = builder()?.create(&wanted, directory, external.as_ref()).await?;
            let text = serde_json::to_string(&credentials)
                .map_err(|error| AcmeError::Account(file.clone(), error))?;
            fairlead_certs::write_secret(&file, &text)?;
            Ok(account)
        }
        Err(error) => Err(AcmeError::Read(file, error)),
    }
}

fn external_account(config: &AcmeConfig) -> Result<Option<ExternalAccountKey>, AcmeError> {
    use base64::Engine as _;
    let Some(external) = &config.external_account else { return Ok(None) };
    let text = read(&external.key_file)?;
    // With or without padding: both forms are in use.
    let text: Vec<u8> = text.trim_ascii().iter().copied().filter(|byte| *byte != b'=').collect();
    let key = base64::prelude::BASE64_URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| AcmeError::ExternalKey(external.key_file.to_path_buf()))?;
    Ok(Some(ExternalAccountKey::new(external.key_id.clone(), &key)))
}

fn read(file: &Path) -> Result<Vec<u8>, AcmeError> {
    std::fs::read(file).map_err(|error| AcmeError::Read(file.to_owned(), error))
}

/// Clients for the servers that an ACME directory names, by origin; mostly there is one.
#[derive(Clone)]
struct Directory {
    credentials: Credentials,
    names: NameResolver,
    servers: Arc<Mutex<FxHashMap<String, Client>>>,
}

impl Directory {
    fn new(credentials: Credentials, names: &NameResolver) -> Self {
        Self { credentials, names: names.clone(), servers: Arc::default() }
    }

    fn server(&self, origin: &str) -> Result<Client, Error> {
        let mut servers = self.servers.lock();
        if let Some(known) = servers.get(origin) {
            return Ok(known.clone());
        }
        let endpoint = Endpoint::parse(origin).map_err(|error| Error::Other(Box::new(error)))?;
        if !endpoint.is_tls() {
            return Err(Error::Str("the URLs of an ACME directory must be https"));
        }
        let options = ClientOptions {
            request_timeout: REQUEST_TIMEOUT,
            resolver: self.names.clone(),
            ..ClientOptions::default()
        };
        let client = Client::new(endpoint, self.credentials.clone(), options);
        servers.insert(origin.to_owned(), client.clone());
        Ok(client)
    }

    async fn send(&self, request: http::Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (head, body) = request.into_parts();
        let authority = head.uri.authority().ok_or(Error::Str("a URL of the ACME directory has no host"))?;
        let scheme = head.uri.scheme_str().unwrap_or("https");
        let server = self.server(&format!("{scheme}://{authority}"))?;
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(never) => match never {},
        };
        let request = Request { headers: head.headers, body, ..Request::new(head.method, path) };
        let received =
            server.request_any_status(request).await.map_err(|error| Error::Other(Box::new(error)))?;
        let mut response = http::Response::new(Full::new(received.body));
        *response.status_mut() = received.status;
        *response.headers_mut() = received.headers;
        Ok(response.into())
    }
}

impl HttpClient for Directory {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let directory = self.clone();
        Box::pin(async move { directory.send(request).await })
    }
}
