//! Asks a webhook about tokens (`TokenReview` of `authentication.k8s.io`).

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
    Answer, Authenticator, BearerToken, CredentialKind, Identity, Method, Presented, Reason, TokenFault,
    UserInfo, Verdict, flights::Flights, remembered::Remembered,
};

const REMEMBER: usize = 16_384;

/// A token that is refused is asked about again after this long. Kubernetes waits as long as for one that is
/// accepted, which locks out those whose token was created a moment ago.
const REMEMBER_REFUSED: Duration = Duration::from_secs(10);

/// Whose answer is longer is no webhook.
const LARGEST_ANSWER: usize = 1 << 20;

/// Accepts whoever a webhook accepts.
///
/// Answers are remembered and those who show the same token at the same time ask once, so a token costs one
/// question in two minutes. A webhook that cannot be reached is asked up to five times within the deadline.
pub struct TokenWebhook {
    client: Client,
    settings: WebhookSettings,
    known: Remembered<Option<Arc<Identity>>>,
    asking: Flights<Result<Option<Arc<Identity>>, Arc<str>>>,
}

/// How a webhook is asked.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// `--authentication-token-webhook-version`.
    pub version: ReviewVersion,
    /// How long a success is remembered (`--authentication-token-webhook-cache-ttl`).
    pub remember: Duration,
    /// For whom a token must be meant, one of these; empty if that does not matter.
    pub audiences: Vec<String>,
    /// Limit for all tries together.
    pub deadline: Duration,
    /// Before the second try; half as long again before each one after it.
    pub first_pause: Duration,
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

/// A webhook that cannot be asked. The author of its kubeconfig is to blame.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// The file cannot be read.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// What it says about trust or identity cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            version: ReviewVersion::V1beta1,
            remember: Duration::from_secs(120),
            audiences: Vec::new(),
            deadline: Duration::from_secs(10),
            first_pause: Duration::from_millis(500),
        }
    }
}

impl TokenWebhook {
    /// The webhook that is the server of a kubeconfig file's current context.
    pub fn from_kubeconfig(path: &Path, settings: WebhookSettings) -> Result<Self, WebhookError> {
        let context = Kubeconfig::load(path)?.resolve(None)?;
        let options = ClientOptions {
            request_timeout: settings.deadline,
            max_response_bytes: LARGEST_ANSWER,
            ..ClientOptions::default()
        };
        let client = Client::from_context(&context, UnverifiedTls::Refuse, options)?;
        Ok(Self { client, settings, known: Remembered::with_capacity(REMEMBER), asking: Flights::new() })
    }

    async fn judge(&self, token: &BearerToken<'_>, now: SystemTime) -> Verdict {
        let ask = || {
            let (client, settings) = (self.client.clone(), self.settings.clone());
            let token = token.as_str().to_owned();
            async move { ask_patiently(&client, &settings, &token).await }.boxed()
        };
        match self.asking.join(*token.digest(), ask).await {
            Ok(answer) => {
                let remember = if answer.is_some() { self.settings.remember } else { REMEMBER_REFUSED };
                self.known.put(*token.digest(), answer.clone(), now, remember, None);
                verdict(answer)
            }
            Err(problem) => Verdict::Declined(Reason::Unavailable(problem)),
        }
    }
}

impl Authenticator for TokenWebhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn judges(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    fn authenticate<'a>(&'a self, request: &Presented<'a>) -> Answer<'a> {
        let Some(token) = request.token else {
            return Answer::Ready(Verdict::NoOpinion);
        };
        match self.known.get(token.digest(), request.now) {
            Some(answer) => Answer::Ready(verdict(answer)),
            None => Answer::Pending(Box::pin(self.judge(token, request.now))),
        }
    }
}

fn verdict(answer: Option<Arc<Identity>>) -> Verdict {
    match answer {
        Some(identity) => Verdict::Accepted(identity),
        None => Verdict::Declined(TokenFault::Refused.into()),
    }
}

async fn ask_patiently(
    client: &Client,
    settings: &WebhookSettings,
    token: &str,
) -> Result<Option<Arc<Identity>>, Arc<str>> {
    const TRIES: u32 = 5;
    let deadline = Instant::now() + settings.deadline;
    let mut pause = settings.first_pause;
    let mut tries = 0;
    loop {
        tries += 1;
        let problem = match timeout_at(deadline, ask(client, settings, token)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(problem)) => problem,
            Err(_) => return Err("the webhook has not answered in time".into()),
        };
        let worthwhile = problem.may_pass && tries < TRIES && Instant::now() + pause < deadline;
        if !worthwhile {
            return Err(problem.text);
        }
        sleep(pause).await;
        pause = pause * 3 / 2;
    }
}

/// What went wrong with one try.
struct Problem {
    may_pass: bool,
    text: Arc<str>,
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        // A plain 500 is worth another try, too: asking changes nothing there.
        let has_failed = error.status().is_some_and(|status| status.code >= 500);
        Self { may_pass: has_failed || error.is_retryable(), text: error.to_string().into() }
    }
}

async fn ask(
    client: &Client,
    settings: &WebhookSettings,
    token: &str,
) -> Result<Option<Arc<Identity>>, Problem> {
    let malformed = || Problem { may_pass: false, text: "the webhook's answer is no TokenReview".into() };
    let review = Review {
        api_version: settings.version.api_version(),
        kind: "TokenReview",
        spec: ReviewSpec { token, audiences: &settings.audiences },
    };
    let body = serde_json::to_vec(&review).map_err(|_| malformed())?;
    // The server's URL is the webhook's, and has no slash at its end.
    let path = if client.endpoint().prefix().is_empty() { "/" } else { "" };
    let request = Request::new(HttpMethod::POST, path).with_body("application/json", body);
    let response = client.request(request).await?;
    let answer: ReviewAnswer = serde_json::from_slice(&response.body).map_err(|_| malformed())?;
    if answer.kind != "TokenReview" || answer.api_version != settings.version.api_version() {
        return Err(malformed());
    }
    Ok(answer.status.accepted_for(&settings.audiences).map(Arc::new))
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
struct ReviewAnswer {
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

/// Written by others, who may say `null` for what is empty.
#[derive(Deserialize)]
struct ReviewUser {
    username: Option<String>,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl ReviewStatus {
    /// Whom it accepts. A webhook that does not know audiences says nothing of them.
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
        Some(Identity::new(user, Method::BearerToken, None))
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
