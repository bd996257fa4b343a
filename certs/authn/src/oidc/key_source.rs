//! The keys of an issuer, found by discovery (OpenID Connect Discovery 1.0) and kept fresh.
//!
//! One task per issuer asks: at once, then every five minutes, and soon again after a failure or when a token
//! names a key that is not known; very soon to begin with, because an issuer may be starting together with us. Requests never ask themselves; at most they wait a moment for the task. The
//! last good keys stay until there are better ones.

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
    Reason, TokenFault, VerificationKeys,
    jwt::{CompactToken, KeyChoice, Unverified},
};

/// How patient a source of keys is.
#[derive(Clone, Debug)]
pub struct KeyPatience {
    /// Between two looks at the keys while all is well.
    pub refresh: Duration,
    /// Between two looks otherwise: after a failure, and for tokens with keys that are not known. This is what
    /// somebody who sends made-up tokens can make us ask.
    pub again: Duration,
    /// After the first failure, while there have never been keys; it doubles with each until it is [`KeyPatience::again`].
    /// Requests wait that long for the first keys.
    pub first: Duration,
    /// The longest that a request waits for keys.
    pub wait: Duration,
    /// Limit for each of the two questions to an issuer.
    pub answer: Duration,
}

impl Default for KeyPatience {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(300),
            again: Duration::from_secs(10),
            first: Duration::from_millis(100),
            wait: Duration::from_secs(5),
            answer: Duration::from_secs(10),
        }
    }
}

/// The discovery document is looked at anew after this long, or when its keys cannot be had.
const REDISCOVER: Duration = Duration::from_secs(3600);

/// No issuer's documents are as large as this.
const LARGEST_ANSWER: usize = 1 << 20;

/// Keys of one issuer. Its task starts with the first question and ends when this is dropped.
pub(crate) struct KeySource {
    issuer: Issuer,
    patience: KeyPatience,
    state: Arc<watch::Sender<State>>,
    wanted: Arc<Notify>,
    task: OnceLock<Task>,
}

/// Where and whom to ask.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Issuer {
    pub(crate) url: Arc<str>,
    pub(crate) discovery_url: Arc<str>,
    pub(crate) roots: TrustRoots,
}

/// What the task has found so far.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) keys: Option<Arc<VerificationKeys>>,
    /// Why the last look has failed.
    pub(crate) problem: Option<Arc<str>>,
    looks: u64,
    last_look: Option<Instant>,
    outlook: Outlook,
}

/// When there may be first keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outlook {
    /// With the next look, which comes soon.
    #[default]
    Soon,
    /// Nobody knows.
    Open,
}

struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl KeySource {
    pub(crate) fn new(issuer: Issuer, patience: KeyPatience) -> Self {
        Self {
            issuer,
            patience,
            state: Arc::new(watch::Sender::default()),
            wanted: Arc::default(),
            task: OnceLock::new(),
        }
    }

    /// Starts looking for keys, if that has not happened yet. Does nothing outside a runtime.
    pub(crate) fn start(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        self.task.get_or_init(|| {
            let looking = look_for_ever(
                self.issuer.clone(),
                self.patience.clone(),
                Arc::clone(&self.state),
                Arc::clone(&self.wanted),
            );
            Task(runtime.spawn(looking).abort_handle())
        });
    }

    pub(crate) fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Checks the signature of a token that says to be of this issuer.
    pub(crate) async fn verify(&self, token: &CompactToken<'_>) -> Result<(), Reason> {
        self.start();
        let mut state = self.state();
        if !state.is_settled() {
            state = self.state_when(State::is_settled).await;
        }
        let unverified = match state.verify(token) {
            Some(Ok(())) => return Ok(()),
            Some(Err(unverified)) => unverified,
            None => return Err(state.unavailable()),
        };
        // The issuer may have new keys. Not everybody who makes up a token may ask for them, though.
        if state.last_look.is_some_and(|last| last.elapsed() < self.patience.again) {
            return Err(fault(unverified));
        }
        self.wanted.notify_one();
        let looks = state.looks;
        let state = self.state_when(|state| state.looks > looks).await;
        match state.verify(token) {
            Some(Ok(())) => Ok(()),
            Some(Err(unverified)) => Err(fault(unverified)),
            None => Err(state.unavailable()),
        }
    }

    /// Waits until the state is as wanted, or for as long as patience lasts.
    async fn state_when(&self, wanted: impl Fn(&State) -> bool) -> State {
        let mut state = self.state.subscribe();
        // Neither too late nor never is a failure here: the state says what there is.
        let _ = timeout(self.patience.wait, state.wait_for(|state| wanted(state))).await;
        self.state()
    }
}

impl State {
    fn verify(&self, token: &CompactToken<'_>) -> Option<Result<(), Unverified>> {
        Some(self.keys.as_ref()?.verify(token, KeyChoice::ByName))
    }

    /// Whether there is nothing to wait for.
    fn is_settled(&self) -> bool {
        self.keys.is_some() || self.outlook == Outlook::Open
    }

    fn unavailable(&self) -> Reason {
        let problem = self.problem.as_deref().unwrap_or("the issuer has not answered yet");
        Reason::Unavailable(format!("no keys of the issuer: {problem}").into())
    }
}

fn fault(unverified: Unverified) -> Reason {
    Reason::InvalidToken(match unverified {
        Unverified::NoSuchKey => TokenFault::UnknownKey,
        Unverified::WrongSignature => TokenFault::Signature,
    })
}

async fn look_for_ever(
    issuer: Issuer,
    patience: KeyPatience,
    state: Arc<watch::Sender<State>>,
    wanted: Arc<Notify>,
) {
    let mut discovered: Option<(Uri, Instant)> = None;
    let mut next = patience.first;
    loop {
        let found = look(&issuer, &patience, &mut discovered).await;
        if found.is_ok() {
            next = patience.again;
        }
        let failing = next.min(patience.again);
        next = failing.saturating_mul(2);
        let pause = if found.is_ok() { patience.refresh } else { failing };
        state.send_modify(|state| {
            state.looks += 1;
            state.last_look = Some(Instant::now());
            state.outlook = if failing < patience.again { Outlook::Soon } else { Outlook::Open };
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
        // A wish from before this look is fulfilled.
        let _ = wanted.notified().now_or_never();
        tokio::select! {
            () = sleep(pause) => {}
            () = wanted.notified() => {}
        }
    }
}

async fn look(
    issuer: &Issuer,
    patience: &KeyPatience,
    discovered: &mut Option<(Uri, Instant)>,
) -> Result<VerificationKeys, String> {
    let known = discovered.take().filter(|(_, since)| since.elapsed() < REDISCOVER);
    let (uri, since) = match known {
        Some(known) => known,
        None => (discover(issuer, patience).await?, Instant::now()),
    };
    let text = get(&uri, &issuer.roots, patience).await?;
    let keys = VerificationKeys::from_jwks(&text).map_err(|error| format!("{uri}: {error}"))?;
    if keys.is_empty() {
        return Err(format!("{uri}: it has no key for signatures that can be used"));
    }
    *discovered = Some((uri, since));
    Ok(keys)
}

/// Where the keys are.
async fn discover(issuer: &Issuer, patience: &KeyPatience) -> Result<Uri, String> {
    #[derive(Deserialize)]
    struct Document {
        issuer: String,
        jwks_uri: String,
    }
    let url = &issuer.discovery_url;
    let uri = url.parse().map_err(|_| format!("{url} is not a URL"))?;
    let text = get(&uri, &issuer.roots, patience).await?;
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

/// GET over a connection of its own: minutes pass until the next one.
async fn get(uri: &Uri, roots: &TrustRoots, patience: &KeyPatience) -> Result<Vec<u8>, String> {
    let authority = uri.authority().ok_or_else(|| format!("{uri} has no host"))?;
    let endpoint = Endpoint::parse(&format!("https://{authority}")).map_err(|error| error.to_string())?;
    let credentials = Credentials::new(roots.clone()).map_err(|error| error.to_string())?;
    let options = ClientOptions {
        connect_timeout: patience.answer,
        request_timeout: patience.answer,
        max_response_bytes: LARGEST_ANSWER,
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
        status => Err(format!("{uri}: it answers {status}")),
    }
}
