//! Authorization by a webhook: a SubjectAccessReview of `authorization.k8s.io` for every effective user.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fairlead_apiserver::request::{FieldSelector, LabelSelector, Operator};
use fairlead_apiserver::{Action, Attributes, Authorization, Decision, RequestedSelectors, Scope};
use fairlead_authn::{SingleFlight, TtlCache, UserInfo};
use fairlead_client::{
    Client, ClientError, ClientOptions, CredentialsError, Kubeconfig, KubeconfigError, Request, UnverifiedTls,
};
use fairlead_config::{AuthorizationWebhookConfig, ReviewVersion};
use futures_util::FutureExt as _;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep, timeout_at};

use super::effective::effective_users;

const NAME: &str = "Webhook";

/// Extras by which the webhook learns the logical cluster. The second one is deprecated.
const CLUSTER_EXTRAS: [&str; 2] =
    ["authorization.kcp.io/cluster-name", "authorization.kubernetes.io/cluster-name"];

const CACHE_SIZE: usize = 8_192;
/// As in Kubernetes: longer attributes are reviewed each time, so that a client cannot fill memory with its cache entries.
const MAX_CACHED_LENGTH: usize = 10_000;
/// Limit for all attempts of one review together.
const DEADLINE: Duration = Duration::from_secs(30);
const MAX_ATTEMPTS: u32 = 5;
/// Delay before the second attempt; each further one is 1.5 times as long.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// A webhook that reviews access. Reviews are cached, and concurrent requests with the same attributes share one.
pub(crate) struct AccessWebhook {
    client: Client,
    version: ReviewVersion,
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
    cache: TtlCache<Arc<ReviewStatus>>,
    in_flight: SingleFlight<Result<Arc<ReviewStatus>, Arc<str>>>,
}

/// The kubeconfig of the webhook cannot be used; the operator has to correct it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessWebhookError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// `SubjectAccessReviewStatus`.
#[derive(Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
struct ReviewStatus {
    allowed: bool,
    denied: bool,
    reason: String,
}

impl AccessWebhook {
    /// The webhook that is the server of the kubeconfig's current context.
    pub(crate) fn new(config: &AuthorizationWebhookConfig) -> Result<Self, AccessWebhookError> {
        let path: &Path = &config.kubeconfig;
        let context = Kubeconfig::load(path)?.resolve(None)?;
        let options = ClientOptions {
            request_timeout: DEADLINE,
            max_response_bytes: MAX_RESPONSE_BYTES,
            ..ClientOptions::default()
        };
        Ok(Self {
            client: Client::from_context(&context, UnverifiedTls::Refuse, options)?,
            version: config.version,
            authorized_ttl: config.authorized_ttl.get(),
            unauthorized_ttl: config.unauthorized_ttl.get(),
            cache: TtlCache::with_capacity(CACHE_SIZE),
            in_flight: SingleFlight::new(),
        })
    }

    /// The webhook's opinion on the action for the first effective user on which it has one. A webhook that fails has
    /// none, as in Kubernetes.
    pub(crate) async fn authorize(&self, attributes: &Attributes<'_>) -> Authorization {
        let cluster = attributes.scopes.map(|scopes| scopes.one().map_or("*", Scope::as_str));
        let users = effective_users(attributes.user, cluster.unwrap_or_default());
        let mut undecided = Authorization::no_opinion(NAME, "");
        for user in &users {
            let spec = review_spec(user, cluster, &attributes.action, attributes.selectors);
            let authorization = match self.review(spec).await {
                Ok(status) => authorization(&status),
                Err(problem) => {
                    tracing::warn!(%problem, "the authorization webhook cannot be called");
                    continue;
                }
            };
            match authorization.decision {
                Decision::Allow | Decision::Deny(_) => return authorization,
                Decision::NoOpinion => undecided = authorization,
            }
        }
        undecided
    }

    async fn review(&self, spec: Value) -> Result<Arc<ReviewStatus>, Arc<str>> {
        let is_cacheable = attributes_length(&spec) <= MAX_CACHED_LENGTH;
        let key: [u8; 32] = Sha256::digest(spec.to_string()).into();
        if let Some(known) = self.cache.get(&key, SystemTime::now()).filter(|_| is_cacheable) {
            return Ok(known);
        }
        let call = || {
            let (client, version) = (self.client.clone(), self.version);
            async move { review_with_retries(&client, version, &spec).await.map(Arc::new) }.boxed()
        };
        let status = self.in_flight.join(key, call).await?;
        if is_cacheable {
            let ttl = if status.allowed { self.authorized_ttl } else { self.unauthorized_ttl };
            self.cache.insert(key, status.clone(), SystemTime::now(), ttl, None);
        }
        Ok(status)
    }
}

fn authorization(status: &ReviewStatus) -> Authorization {
    let decision = match (status.denied, status.allowed) {
        (true, _) => Decision::Deny("the webhook denies it"),
        (false, true) => Decision::Allow,
        (false, false) => Decision::NoOpinion,
    };
    let reason = Cow::Owned(status.reason.clone());
    Authorization { decision, authorizer: NAME, reason, is_disclosed: true }
}

/// The length of what a client can choose.
fn attributes_length(spec: &Value) -> usize {
    let attributes = [&spec["resourceAttributes"], &spec["nonResourceAttributes"]];
    let texts = attributes.into_iter().filter_map(Value::as_object).flat_map(Map::values);
    texts.map(|value| value.as_str().map_or(0, str::len)).sum()
}

/// `SubjectAccessReviewSpec` of an action.
fn review_spec(
    user: &UserInfo,
    cluster: Option<&str>,
    action: &Action<'_>,
    selectors: RequestedSelectors<'_>,
) -> Value {
    let mut spec = Map::new();
    match *action {
        Action::Resource { verb, group, version, resource, subresource, namespace, name } => {
            let mut attributes = Map::new();
            for (field, value) in [
                ("namespace", namespace.unwrap_or_default()),
                ("verb", verb),
                ("group", group),
                ("version", version),
                ("resource", resource),
                ("subresource", subresource.unwrap_or_default()),
                ("name", name.unwrap_or_default()),
            ] {
                if !value.is_empty() {
                    attributes.insert(field.to_owned(), value.into());
                }
            }
            for (field, requirements) in [
                ("fieldSelector", field_requirements(selectors.fields)),
                ("labelSelector", label_requirements(selectors.labels)),
            ] {
                if !requirements.is_empty() {
                    attributes.insert(field.to_owned(), json!({"requirements": requirements}));
                }
            }
            spec.insert("resourceAttributes".to_owned(), attributes.into());
        }
        Action::NonResource { verb, path } => {
            spec.insert("nonResourceAttributes".to_owned(), json!({"path": path, "verb": verb}));
        }
    }
    if !user.name.is_empty() {
        spec.insert("user".to_owned(), user.name.clone().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups));
    }
    let mut extra = user.extra.clone();
    if let Some(cluster) = cluster {
        for key in CLUSTER_EXTRAS {
            extra.insert(key.to_owned(), vec![cluster.to_owned()]);
        }
    }
    if !extra.is_empty() {
        spec.insert("extra".to_owned(), json!(extra));
    }
    if let Some(uid) = &user.uid {
        spec.insert("uid".to_owned(), uid.clone().into());
    }
    spec.into()
}

fn field_requirements(text: &str) -> Vec<Value> {
    let selector = FieldSelector::parse(text).unwrap_or_default();
    let requirement = |term: &fairlead_apiserver::request::FieldTerm| {
        let operator = if term.must_equal { "In" } else { "NotIn" };
        json!({"key": term.field, "operator": operator, "values": [term.value]})
    };
    selector.terms().iter().map(requirement).collect()
}

fn label_requirements(text: &str) -> Vec<Value> {
    let selector = LabelSelector::parse(text).unwrap_or_default();
    let requirements = selector.terms().iter().filter_map(|term| {
        let operator = match term.operator {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Present => "Exists",
            Operator::Absent => "DoesNotExist",
            // The review has no such operators. Leaving a requirement out asks for more than is read.
            Operator::Above | Operator::Below => return None,
        };
        let mut requirement = json!({"key": term.key, "operator": operator});
        if !term.values.is_empty() {
            requirement["values"] = json!(term.values);
        }
        Some(requirement)
    });
    requirements.collect()
}

async fn review_with_retries(
    client: &Client,
    version: ReviewVersion,
    spec: &Value,
) -> Result<ReviewStatus, Arc<str>> {
    let deadline = Instant::now() + DEADLINE;
    let mut pause = FIRST_RETRY_DELAY;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let problem = match timeout_at(deadline, review(client, version, spec)).await {
            Ok(Ok(status)) => return Ok(status),
            Ok(Err(problem)) => problem,
            Err(_) => return Err("no response in time".into()),
        };
        let may_retry = problem.is_retryable && attempts < MAX_ATTEMPTS && Instant::now() + pause < deadline;
        if !may_retry {
            return Err(problem.text);
        }
        sleep(pause).await;
        pause = pause * 3 / 2;
    }
}

/// The failure of one attempt.
struct AttemptError {
    is_retryable: bool,
    text: Arc<str>,
}

impl From<ClientError> for AttemptError {
    fn from(error: ClientError) -> Self {
        // Even 500 is retried, because a review has no side effects.
        let has_failed = error.status().is_some_and(|status| status.code >= 500);
        Self { is_retryable: has_failed || error.is_retryable(), text: error.to_string().into() }
    }
}

async fn review(client: &Client, version: ReviewVersion, spec: &Value) -> Result<ReviewStatus, AttemptError> {
    let malformed = || AttemptError {
        is_retryable: false,
        text: "the response of the webhook is not a SubjectAccessReview".into(),
    };
    let (api_version, spec) = match version {
        ReviewVersion::V1 => ("authorization.k8s.io/v1", spec.clone()),
        ReviewVersion::V1beta1 => ("authorization.k8s.io/v1beta1", as_v1beta1(spec)),
    };
    let review = json!({"kind": "SubjectAccessReview", "apiVersion": api_version, "spec": spec, "status": {"allowed": false}});
    // The server's URL is the URL of the webhook, without a slash at its end.
    let path = if client.endpoint().prefix().is_empty() { "/" } else { "" };
    let request = Request::new(Method::POST, path).with_body("application/json", review.to_string());
    let response = client.request(request).await?;
    let mut response: Value = serde_json::from_slice(&response.body).map_err(|_| malformed())?;
    if response["kind"] != "SubjectAccessReview" || response["apiVersion"] != api_version {
        return Err(malformed());
    }
    ReviewStatus::deserialize(response["status"].take()).map_err(|_| malformed())
}

/// In v1beta1 the groups are called `group`.
fn as_v1beta1(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut()
        && let Some(groups) = fields.remove("groups")
    {
        fields.insert("group".to_owned(), groups);
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_contain_user_action_and_logical_cluster() {
        let user = UserInfo {
            name: "ann".to_owned(),
            uid: Some("7".to_owned()),
            groups: vec!["a".to_owned()],
            extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
        };
        let list = Action::Resource {
            verb: "list",
            group: "",
            version: "v1",
            resource: "secrets",
            subresource: None,
            namespace: Some("n"),
            name: None,
        };
        let selectors =
            RequestedSelectors { fields: "type=x,metadata.name!=y", labels: "a in (b,c),!d,e,f!=g,h>1" };
        assert_eq!(
            review_spec(&user, Some("2x"), &list, selectors),
            json!({
                "user": "ann", "uid": "7", "groups": ["a"],
                "extra": {
                    "k": ["v"],
                    "authorization.kcp.io/cluster-name": ["2x"],
                    "authorization.kubernetes.io/cluster-name": ["2x"],
                },
                "resourceAttributes": {
                    "namespace": "n", "verb": "list", "version": "v1", "resource": "secrets",
                    "fieldSelector": {"requirements": [
                        {"key": "type", "operator": "In", "values": ["x"]},
                        {"key": "metadata.name", "operator": "NotIn", "values": ["y"]},
                    ]},
                    "labelSelector": {"requirements": [
                        {"key": "a", "operator": "In", "values": ["b", "c"]},
                        {"key": "d", "operator": "DoesNotExist"},
                        {"key": "e", "operator": "Exists"},
                        {"key": "f", "operator": "NotIn", "values": ["g"]},
                    ]},
                },
            })
        );
        let path = Action::NonResource { verb: "get", path: "/healthz" };
        let bare = UserInfo { groups: vec!["g".to_owned()], ..UserInfo::default() };
        let spec = review_spec(&bare, None, &path, RequestedSelectors::default());
        let expected = json!({"groups": ["g"], "nonResourceAttributes": {"path": "/healthz", "verb": "get"}});
        assert_eq!(spec, expected);
        assert_eq!(as_v1beta1(&spec)["group"], json!(["g"]));
    }

    #[test]
    fn a_denial_precedes_a_permission() {
        for (allowed, denied, expected) in [
            (true, false, Decision::Allow),
            (false, false, Decision::NoOpinion),
            (false, true, Decision::Deny("the webhook denies it")),
            (true, true, Decision::Deny("the webhook denies it")),
        ] {
            let status = ReviewStatus { allowed, denied, reason: "because".to_owned() };
            let authorization = authorization(&status);
            assert_eq!(
                (authorization.decision.clone(), authorization.client_reason()),
                (expected, "because")
            );
        }
    }
}
