//! The keys of an issuer, found by discovery (OpenID Connect Discovery 1.0) and refreshed.
//!
//! One task per issuer fetches the keys: at the start, then every five minutes, and sooner after a failure or when a token
//! names an unknown key. The first retries follow quickly, because an issuer may be starting together with this process.
//! Requests never fetch keys themselves; they wait a bounded time for the task. The last good keys stay in use until newer
//! ones are fetched.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, Request, TrustRoots};
use futures_util::FutureExt;
use http::{HeaderValue, Method, StatusCode, Uri, header::ACCEPT};
use serde::Deserialize;
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    Reason, TokenError, VerificationKeys,
    jwt::{CompactToken, KeyChoice, VerificationError},
};

/// Intervals and limits for fetching keys.
#[derive(Clone, Debug)]
pub struct KeyFetchSettings {
    /// Interval between successful fetches.
    pub refresh_interval: Duration,
    /// Interval after a failure, and the least interval of fetches for tokens with unknown keys: the rate that a client with
    /// made-up tokens can cause.
    pub retry_interval: Duration,
    /// Interval after the first failure before the first success. It doubles with each failure up to
    /// [`KeyFetchSettings::retry_interval`]; until then requests wait for the first keys.
    pub first_retry_interval: Duration,
    /// The longest time that a request waits for keys.
    pub max_wait: Duration,
    /// Limit for each of the two requests to an issuer.
    pub response_timeout: Duration,
}

impl Default for KeyFetchSettings {
    fn default() -> Self {
        Self {
            refresh_interval: Duration::from_secs(300),
            retry_interval: Duration::from_secs(10),
            first_retry_interval: Duration::from_millis(100),
            max_wait: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        }
    }
}

/// The discovery document is fetched again after this time, or when its keys cannot be fetched.
const DISCOVERY_LIFETIME: Duration = Duration::from_secs(3600);

/// Limit for the size of an issuer's documents.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// The keys of one issuer. Its task starts at the first use and ends when this is dropped.
pub(crate) struct KeySource {
    issuer: Issuer,
    settings: KeyFetchSettings,
    state: Arc<watch::Sender<KeyState>>,
    refresh_requested: Arc<Notify>,
    task: OnceLock<Task>,
}

/// The location of an issuer's documents.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Issuer {
    pub(crate) url: Arc<str>,
    pub(crate) discovery_url: Arc<str>,
    pub(crate) roots: TrustRoots,
}

/// The last result of the task.
#[derive(Clone, Default)]
pub(crate) struct KeyState {
    pub(crate) keys: Option<Arc<VerificationKeys>>,
    /// The error of the last fetch.
    pub(crate) problem: Option<Arc<str>>,
    fetches: u64,
    last_fetch: Option<Instant>,
    first_keys: FirstKeys,
}

/// Expected time of the first keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FirstKeys {
    /// With the next fetch, which follows soon.
    #[default]
    ExpectedSoon,
    /// At an unknown time.
    Unknown,
}

struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl KeySource {
    pub(crate) fn new(issuer: Issuer, settings: KeyFetchSettings) -> Self {
        Self {
            issuer,
            settings,
            state: Arc::new(watch::Sender::default()),
            refresh_requested: Arc::default(),
            task: OnceLock::new(),
        }
    }

    /// Starts the task, if it is not running yet. Does nothing outside a runtime.
    pub(crate) fn start(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        self.task.get_or_init(|| {
            let refreshing = refresh_keys(
                self.issuer.clone(),
                self.settings.clone(),
                Arc::clone(&self.state),
                Arc::clone(&self.refresh_requested),
            );
            Task(runtime.spawn(refreshing).abort_handle())
        });
    }

    pub(crate) fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    pub(crate) fn state(&self) -> KeyState {
        self.state.borrow().clone()
    }

    /// Verifies the signature of a token that claims this issuer.
    pub(crate) async fn verify(&self, token: &CompactToken<'_>) -> Result<(), Reason> {
        self.start();
        let mut state = self.state();
        if !state.is_settled() {
            state = self.state_when(KeyState::is_settled).await;
        }
        let unverified = match state.verify(token) {
            Some(Ok(())) => return Ok(()),
            Some(Err(unverified)) => unverified,
            None => return Err(state.unavailable()),
        };
        // The issuer may have new keys. The interval limits the fetches that made-up tokens cause.
        if state.last_fetch.is_some_and(|last| last.elapsed() < self.settings.retry_interval) {
            return Err(fault(unverified));
        }
        self.refresh_requested.notify_one();
        let fetches = state.fetches;
        let state = self.state_when(|state| state.fetches > fetches).await;
        match state.verify(token) {
            Some(Ok(())) => Ok(()),
            Some(Err(unverified)) => Err(fault(unverified)),
            None => Err(state.unavailable()),
        }
    }

    /// Waits until the state fulfils a condition, at most `max_wait`.
    async fn state_when(&self, is_met: impl Fn(&KeyState) -> bool) -> KeyState {
        let mut state = self.state.subscribe();
        // A timeout is not an error here: the current state is returned.
        let _ = timeout(self.settings.max_wait, state.wait_for(|state| is_met(state))).await;
        self.state()
    }
}

impl KeyState {
    fn verify(&self, token: &CompactToken<'_>) -> Option<Result<(), VerificationError>> {
        Some(self.keys.as_ref()?.verify(token, KeyChoice::ByName))
    }

    /// Whether waiting for the next fetch is useless.
    fn is_settled(&self) -> bool {
        self.keys.is_some() || self.first_keys == FirstKeys::Unknown
    }

    fn unavailable(&self) -> Reason {
        let problem = self.problem.as_deref().unwrap_or("the issuer has not responded yet");
        Reason::Unavailable(format!("no keys of the issuer: {problem}").into())
    }
}

fn fault(unverified: VerificationError) -> Reason {
    Reason::InvalidToken(match unverified {
        VerificationError::NoSuchKey => TokenError::UnknownKey,
        VerificationError::WrongSignature => TokenError::Signature,
    })
}

async fn refresh_keys(
    issuer: Issuer,
    settings: KeyFetchSettings,
    state: Arc<watch::Sender<KeyState>>,
    refresh_requested: Arc<Notify>,
) {
    let mut discovered: Option<(Uri, Instant)> = None;
    let mut next = settings.first_retry_interval;
    loop {
        let found = fetch(&issuer, &settings, &mut discovered).await;
        if found.is_ok() {
            next = settings.retry_interval;
        }
        let retry_delay = next.min(settings.retry_interval);
        next = retry_delay.saturating_mul(2);
        let pause = if found.is_ok() { settings.refresh_interval } else { retry_delay };
        state.send_modify(|state| {
            state.fetches += 1;
            state.last_fetch = Some(Instant::now());
            state.first_keys = if retry_delay < settings.retry_interval {
                FirstKeys::ExpectedSoon
            } else {
                FirstKeys::Unknown
            };
            match found {
                Ok(keys) => {
                    if state.problem.take().is_some() {
                        tracing::info!(issuer = %issuer.url, keys = keys.len(), "the issuer has keys again");
                    }
                    state.keys = Some(Arc::new(keys));
                }
                Err(problem) => {
                    if state.problem.as_deref() != Some(problem.as_str()) {
                        tracing::warn!(issuer = %issuer.url, problem, "no new keys of the issuer");
                    }
                    state.problem = Some(problem.into());
                }
            }
        });
        // A request from before this fetch is fulfilled.
        let _ = refresh_requested.notified().now_or_never();
        tokio::select! {
            () = sleep(pause) => {}
            () = refresh_requested.notified() => {}
        }
    }
}

async fn fetch(
    issuer: &Issuer,
    settings: &KeyFetchSettings,
    discovered: &mut Option<(Uri, Instant)>,
) -> Result<VerificationKeys, String> {
    let known = discovered.take().filter(|(_, since)| since.elapsed() < DISCOVERY_LIFETIME);
    let (uri, since) = match known {
        Some(known) => known,
        None => (discover(issuer, settings).await?, Instant::now()),
    };
    let text = get(&uri, &issuer.roots, settings).await?;
    let keys = VerificationKeys::from_jwks(&text).map_err(|error| format!("{uri}: {error}"))?;
    if keys.is_empty() {
        return Err(format!("{uri}: it has no key for signatures that can be used"));
    }
    *discovered = Some((uri, since));
    Ok(keys)
}

/// The URL of the keys.
async fn discover(issuer: &Issuer, settings: &KeyFetchSettings) -> Result<Uri, String> {
    #[derive(Deserialize)]
    struct Document {
        issuer: String,
        jwks_uri: String,
    }
    let url = &issuer.discovery_url;
    let uri = url.parse().map_err(|_| format!("{url} is not a URL"))?;
    let text = get(&uri, &issuer.roots, settings).await?;
    let document: Document =
        serde_json::from_slice(&text).map_err(|_| format!("{url} is not a discovery document"))?;
    if document.issuer != *issuer.url {
        return Err(format!("{url} is of another issuer, {:?}", document.issuer));
    }
    let uri: Uri = document.jwks_uri.parse().map_err(|_| format!("{url}: its jwks_uri is not a URL"))?;
    if uri.scheme_str() != Some("https") {
        return Err(format!("{url}: its jwks_uri is not an https URL"));
    }
    Ok(uri)
}

/// GET over a new connection, because the next request follows minutes later.
async fn get(uri: &Uri, roots: &TrustRoots, settings: &KeyFetchSettings) -> Result<Vec<u8>, String> {
    let authority = uri.authority().ok_or_else(|| format!("{uri} has no host"))?;
    let endpoint = Endpoint::parse(&format!("https://{authority}")).map_err(|error| error.to_string())?;
    let credentials = Credentials::new(roots.clone()).map_err(|error| error.to_string())?;
    let options = ClientOptions {
        connect_timeout: settings.response_timeout,
        request_timeout: settings.response_timeout,
        max_response_bytes: MAX_RESPONSE_BYTES,
        ..ClientOptions::default()
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::new(Method::GET, path)
        .with_header(ACCEPT, HeaderValue::from_static("application/json, application/jwk-set+json, */*"));
    let response = Client::new(endpoint, credentials, options)
        .request(request)
        .await
        .map_err(|error| format!("{uri}: {error}"))?;
    match response.status {
        StatusCode::OK => Ok(response.body.to_vec()),
        status => Err(format!("{uri}: the response is {status}")),
    }
}
