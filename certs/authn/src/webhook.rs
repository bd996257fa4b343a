//! Authentication of tokens by a webhook (`TokenReview` of `authentication.k8s.io`).

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fairlead_client::{
    Client, ClientError, ClientOptions, CredentialsError, Kubeconfig, KubeconfigError, Request, UnverifiedTls,
};
use futures_util::FutureExt;
use http::Method as HttpMethod;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    AuthenticationMethod, Authenticator, BearerToken, CredentialKind, Identity, Reason, RequestCredentials,
    TokenError, UserInfo, Verdict, VerdictFuture, single_flight::SingleFlight, ttl_cache::TtlCache,
};

const CACHE_SIZE: usize = 16_384;

/// A rejected token is reviewed again after this time. Kubernetes uses the time for accepted tokens, which locks out
/// clients whose token was created recently.
const REJECTION_TTL: Duration = Duration::from_secs(10);

/// Limit for the size of a response.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Accepts the tokens that a webhook accepts.
///
/// Reviews are cached, and concurrent requests with the same token share one, so a token costs one review in two minutes.
/// A failing webhook is called up to five times within the deadline.
pub struct TokenWebhook {
    client: Client,
    settings: WebhookSettings,
    cache: TtlCache<Option<Arc<Identity>>>,
    in_flight: SingleFlight<Result<Option<Arc<Identity>>, Arc<str>>>,
}

/// Settings for calls to a webhook.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// The version of TokenReview (`--authentication-token-webhook-version`).
    pub version: ReviewVersion,
    /// Lifetime of accepted tokens in the cache (`--authentication-token-webhook-cache-ttl`).
    pub cache_ttl: Duration,
    /// Accepted audiences, of which a token must have one; empty for no check.
    pub audiences: Vec<String>,
    /// Limit for all attempts together.
    pub deadline: Duration,
    /// Delay before the second attempt; each further delay is 1.5 times as long.
    pub first_retry_delay: Duration,
}

/// A version of `TokenReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of Kubernetes say it")]
pub enum ReviewVersion {
    V1,
    V1beta1,
}

/// The name of a version that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a version of TokenReview, expected v1 or v1beta1")]
pub struct UnknownReviewVersion(String);

/// A kubeconfig of a webhook that cannot be used; its author has to correct it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// The file cannot be read.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// Its certificates or credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            version: ReviewVersion::V1beta1,
            cache_ttl: Duration::from_secs(120),
            audiences: Vec::new(),
            deadline: Duration::from_secs(10),
            first_retry_delay: Duration::from_millis(500),
        }
    }
}

impl TokenWebhook {
    /// The webhook that is the server of a kubeconfig file's current context.
    pub fn from_kubeconfig(path: &Path, settings: WebhookSettings) -> Result<Self, WebhookError> {
        let context = Kubeconfig::load(path)?.resolve(None)?;
        let options = ClientOptions {
            request_timeout: settings.deadline,
            max_response_bytes: MAX_RESPONSE_BYTES,
            ..ClientOptions::default()
        };
        let client = Client::from_context(&context, UnverifiedTls::Refuse, options)?;
        Ok(Self::new(client, settings))
    }

    /// The TokenReviews of an API server. `client` has the path of a logical cluster, or none, and a credential that may create them.
    pub fn of_api_server(client: &Client, settings: WebhookSettings) -> Self {
        let prefix = client.endpoint().prefix();
        let path = format!("{prefix}/apis/{}/tokenreviews", settings.version.api_version());
        Self::new(client.with_prefix(&path), settings)
    }

    /// The webhook at the URL of `client`.
    fn new(client: Client, settings: WebhookSettings) -> Self {
        Self { client, settings, cache: TtlCache::with_capacity(CACHE_SIZE), in_flight: SingleFlight::new() }
    }

    async fn review_uncached(&self, token: &BearerToken<'_>, now: SystemTime) -> Verdict {
        let call = || {
            let (client, settings) = (self.client.clone(), self.settings.clone());
            let token = token.as_str().to_owned();
            async move { review_with_retries(&client, &settings, &token).await }.boxed()
        };
        match self.in_flight.join(*token.digest(), call).await {
            Ok(identity) => {
                let ttl = if identity.is_some() { self.settings.cache_ttl } else { REJECTION_TTL };
                self.cache.insert(*token.digest(), identity.clone(), now, ttl, None);
                verdict(identity)
            }
            Err(problem) => Verdict::Declined(Reason::Unavailable(problem)),
        }
    }
}

impl Authenticator for TokenWebhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn credential_kind(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        let Some(token) = request.token else {
            return VerdictFuture::Ready(Verdict::NoOpinion);
        };
        match self.cache.get(token.digest(), request.now) {
            Some(identity) => VerdictFuture::Ready(verdict(identity)),
            None => VerdictFuture::Pending(Box::pin(self.review_uncached(token, request.now))),
        }
    }
}

fn verdict(identity: Option<Arc<Identity>>) -> Verdict {
    match identity {
        Some(identity) => Verdict::Accepted(identity),
        None => Verdict::Declined(TokenError::RejectedByWebhook.into()),
    }
}

async fn review_with_retries(
    client: &Client,
    settings: &WebhookSettings,
    token: &str,
) -> Result<Option<Arc<Identity>>, Arc<str>> {
    const TRIES: u32 = 5;
    let deadline = Instant::now() + settings.deadline;
    let mut pause = settings.first_retry_delay;
    let mut tries = 0;
    loop {
        tries += 1;
        let problem = match timeout_at(deadline, review(client, settings, token)).await {
            Ok(Ok(identity)) => return Ok(identity),
            Ok(Err(problem)) => problem,
            Err(_) => return Err("the webhook has not responded in time".into()),
        };
        let retry = problem.is_retryable && tries < TRIES && Instant::now() + pause < deadline;
        if !retry {
            return Err(problem.text);
        }
        sleep(pause).await;
        pause = pause * 3 / 2;
    }
}

/// The failure of one attempt.
struct ReviewError {
    is_retryable: bool,
    text: Arc<str>,
}

impl From<ClientError> for ReviewError {
    fn from(error: ClientError) -> Self {
        // Even 500 is retried, because a review has no side effects.
        let has_failed = error.status().is_some_and(|status| status.code >= 500);
        Self { is_retryable: has_failed || error.is_retryable(), text: error.to_string().into() }
    }
}

async fn review(
    client: &Client,
    settings: &WebhookSettings,
    token: &str,
) -> Result<Option<Arc<Identity>>, ReviewError> {
    let malformed =
        || ReviewError { is_retryable: false, text: "the webhook's response is not a TokenReview".into() };
    let review = Review {
        api_version: settings.version.api_version(),
        kind: "TokenReview",
        spec: ReviewSpec { token, audiences: &settings.audiences },
    };
    let body = serde_json::to_vec(&review).map_err(|_| malformed())?;
    // The server's URL is the URL of the webhook, without a slash at its end.
    let path = if client.endpoint().prefix().is_empty() { "/" } else { "" };
    let request = Request::new(HttpMethod::POST, path).with_body("application/json", body);
    let response = client.request(request).await?;
    let response: ReviewResponse = serde_json::from_slice(&response.body).map_err(|_| malformed())?;
    if response.kind != "TokenReview" || response.api_version != settings.version.api_version() {
        return Err(malformed());
    }
    Ok(response.status.accepted_for(&settings.audiences).map(Arc::new))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: ReviewSpec<'a>,
}

#[derive(Serialize)]
struct ReviewSpec<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    audiences: &'a [String],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse {
    api_version: String,
    kind: String,
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    authenticated: bool,
    user: Option<ReviewUser>,
    audiences: Option<Vec<String>>,
}

/// The user of a review. Webhooks may write `null` for empty fields.
#[derive(Deserialize)]
struct ReviewUser {
    username: Option<String>,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl ReviewStatus {
    /// The identity if the token is accepted. A webhook without support for audiences returns none.
    fn accepted_for(self, wanted: &[String]) -> Option<Identity> {
        let theirs = self.audiences.unwrap_or_default();
        let for_us = wanted.is_empty() || theirs.is_empty() || wanted.iter().any(|one| theirs.contains(one));
        if !self.authenticated || !for_us {
            return None;
        }
        let ReviewUser { username, uid, groups, extra } = self.user?;
        let user = UserInfo {
            name: username.filter(|name| !name.is_empty())?,
            uid: uid.filter(|uid| !uid.is_empty()),
            groups: groups.unwrap_or_default(),
            extra: extra
                .unwrap_or_default()
                .into_iter()
                .map(|(key, values)| (key.to_lowercase(), values.unwrap_or_default()))
                .collect(),
        };
        Some(Identity::new(user, AuthenticationMethod::Webhook, None))
    }
}

impl ReviewVersion {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authentication.k8s.io/v1",
            Self::V1beta1 => "authentication.k8s.io/v1beta1",
        }
    }
}

impl FromStr for ReviewVersion {
    type Err = UnknownReviewVersion;

    fn from_str(name: &str) -> Result<Self, UnknownReviewVersion> {
        match name {
            "v1" => Ok(Self::V1),
            "v1beta1" => Ok(Self::V1beta1),
            other => Err(UnknownReviewVersion(other.to_owned())),
        }
    }
}

impl fmt::Debug for TokenWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenWebhook").field("client", &self.client).finish_non_exhaustive()
    }
}
