//! Reviews: their status is computed by the authorizer or the authenticators; they are not stored.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use async_trait::async_trait;
use fairlead_apiserver::registry::{
    ListCursor, OpenWatch, Registry, StoredObject, Target, WatchEnd, WriteResult,
};
use fairlead_apiserver::request::{ListOptions, RequestFlags, WriteOptions};
use fairlead_apiserver::{Action, Attributes, Decision, RequestedSelectors, ScopeSelector};
use fairlead_authn::UserInfo;
use fairlead_process::{Reloadable, Status, StatusCause};
use fairlead_store::Revision;
use serde::Deserialize;
use serde_json::{Value, json};

use super::rbac_chain::ReviewDepth;
use super::{Authenticators, Authorizer, is_in};
use crate::workspace_authentication::WorkspaceAuthenticators;
use crate::writes::now;

/// The flag of requests with kcp's header of deep reviews.
pub(super) const DEEP_REVIEW: RequestFlags = RequestFlags(1);

/// The registry of the review kinds.
#[derive(Default)]
pub(crate) struct Reviews {
    authorizer: OnceLock<Arc<Authorizer>>,
    tokens: OnceLock<TokenReviewer>,
}

/// The authenticators that review tokens, and the audiences of this server.
pub(crate) struct TokenReviewer {
    pub(crate) authenticators: Arc<Reloadable<Authenticators>>,
    /// Issuers of workspace types; `None` if there may be none.
    pub(crate) workspaces: Option<Arc<WorkspaceAuthenticators>>,
    pub(crate) audiences: Vec<String>,
}

impl Reviews {
    /// A registry without an authorizer; it responds with 503 until [`set_authorizer`](Self::set_authorizer) is
    /// called. The authorizer depends on the definitions, and the definitions on this registry.
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the authorizer.
    pub(crate) fn set_authorizer(&self, authorizer: Arc<Authorizer>) {
        // The authorizer is set once, at start.
        let _ = self.authorizer.set(authorizer);
    }

    /// Sets the authenticators. They depend on the store, as the registry of stored objects does.
    pub(crate) fn set_token_reviewer(&self, reviewer: TokenReviewer) {
        // The reviewer is set once, at start.
        let _ = self.tokens.set(reviewer);
    }

    async fn review(&self, target: &Target, mut review: Value) -> Result<Value, Status> {
        let starting = || Status::service_unavailable("the server is starting", 1);
        let authorizer = self.authorizer.get().ok_or_else(starting)?;
        let caller = target.identity.user();
        let status = match &*target.resource.kind {
            "SelfSubjectReview" => {
                review["metadata"]["creationTimestamp"] = now().into();
                json!({"userInfo": caller})
            }
            "SelfSubjectRulesReview" => rules_status(authorizer, target, &review)?,
            "SelfSubjectAccessReview" => access_status(authorizer, target, caller, &review).await?,
            "SubjectAccessReview" | "LocalSubjectAccessReview" => {
                let spec: SubjectAttributes = parse(&review["spec"])?;
                let user =
                    UserInfo { name: spec.user, uid: spec.uid, groups: spec.groups, extra: spec.extra };
                access_status(authorizer, target, &user, &review).await?
            }
            "TokenReview" => self.tokens.get().ok_or_else(starting)?.review(target, &review["spec"]).await?,
            other => {
                return Err(Status::new(
                    501,
                    fairlead_process::StatusReason::Unknown,
                    format!("{other} is not supported yet"),
                ));
            }
        };
        review["status"] = status;
        Ok(review)
    }
}

impl TokenReviewer {
    /// The status of a TokenReview.
    async fn review(&self, target: &Target, spec: &Value) -> Result<Value, Status> {
        let token = spec["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            return Err(Status::bad_request("token is required for TokenReview in authentication"));
        }
        let requested: Vec<String> = parse(&spec["audiences"]).unwrap_or_default();
        let audiences = if requested.is_empty() { &self.audiences } else { &requested };
        let authenticators = self.authenticators.load();
        let now = SystemTime::now();
        let rejection = match authenticators.chain.review_token(token, audiences, &self.audiences, now).await
        {
            Ok(reviewed) => {
                let user = reviewed.identity.user();
                return Ok(json!({"authenticated": true, "user": user, "audiences": reviewed.audiences}));
            }
            Err(rejection) => rejection,
        };
        let shared: Vec<&String> =
            audiences.iter().filter(|audience| self.audiences.contains(audience)).collect();
        if let Some(workspaces) = &self.workspaces
            && let Some(scope) = target.scopes.one()
            && !shared.is_empty()
            && let Some(workspace) = workspaces.of(scope.as_str()).await
            && let Ok(identity) = workspace.review(token, scope.as_str(), now).await
        {
            return Ok(json!({"authenticated": true, "user": identity.user(), "audiences": shared}));
        }
        tracing::debug!(%rejection, "a reviewed token was rejected");
        Ok(json!({"user": {}, "error": "invalid bearer token"}))
    }
}

async fn access_status(
    authorizer: &Authorizer,
    target: &Target,
    user: &UserInfo,
    review: &Value,
) -> Result<Value, Status> {
    let spec = &review["spec"];
    let scopes = Some(&target.scopes);
    let authorization = if spec["nonResourceAttributes"].is_object() {
        let attributes: NonResourceAttributes = parse(&spec["nonResourceAttributes"])?;
        let action = Action::NonResource { verb: &attributes.verb, path: &attributes.path };
        authorizer.review(&Attributes::new(user, scopes, action), depth_of(target, "")).decided().await
    } else {
        let attributes: ResourceAttributes = parse(&spec["resourceAttributes"])?;
        let filled = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
        let (subresource, namespace, name) =
            (filled(&attributes.subresource), filled(&attributes.namespace), filled(&attributes.name));
        let action = Action::Resource {
            verb: &attributes.verb,
            group: &attributes.group,
            version: &attributes.version,
            resource: &attributes.resource,
            subresource: subresource.as_deref(),
            namespace: namespace.as_deref(),
            name: name.as_deref(),
        };
        let fields = attributes.field_selector.text(field_term);
        let labels = attributes.label_selector.text(label_term);
        let mut attributes = Attributes::new(user, scopes, action);
        attributes.selectors = RequestedSelectors { fields: &fields, labels: &labels };
        let group = spec["resourceAttributes"]["group"].as_str().unwrap_or_default();
        authorizer.review(&attributes, depth_of(target, group)).decided().await
    };
    let mut status = json!({"allowed": authorization.is_allowed(), "reason": authorization.client_reason()});
    if matches!(authorization.decision, Decision::Deny(_)) {
        status["denied"] = true.into();
    }
    Ok(status)
}

/// The depth of a review. kcp never reviews reviews deeply.
fn depth_of(target: &Target, group: &str) -> ReviewDepth {
    let is_deep = target.flags == DEEP_REVIEW
        && &*target.resource.kind == "SubjectAccessReview"
        && is_in(target.identity.user(), fairlead_api::group::MASTERS)
        && group != "authorization.k8s.io";
    if is_deep { ReviewDepth::Deep } else { ReviewDepth::Request }
}

/// `key in (a,b)` of a requirement of a label selector; `None` for one that Kubernetes ignores.
fn label_term(requirement: &Requirement) -> Option<String> {
    let Requirement { key, operator, values } = requirement;
    let list = values.join(",");
    match &**operator {
        "In" => Some(format!("{key} in ({list})")),
        "NotIn" => Some(format!("{key} notin ({list})")),
        "Exists" => Some(key.clone()),
        "DoesNotExist" => Some(format!("!{key}")),
        _ => None,
    }
}

/// `key=value` of a requirement of a field selector; `None` for one that a field selector cannot express.
fn field_term(requirement: &Requirement) -> Option<String> {
    let Requirement { key, operator, values } = requirement;
    let [value] = values.as_slice() else { return None };
    let escaped = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
    match &**operator {
        "In" => Some(format!("{key}={escaped}")),
        "NotIn" => Some(format!("{key}!={escaped}")),
        _ => None,
    }
}

fn rules_status(authorizer: &Authorizer, target: &Target, review: &Value) -> Result<Value, Status> {
    let ScopeSelector::One(scope) = &target.scopes else {
        return Err(Status::bad_request("rules are reviewed in one logical cluster"));
    };
    let namespace = review["spec"]["namespace"].as_str().filter(|namespace| !namespace.is_empty());
    let Some(namespace) = namespace else {
        return Err(Status::bad_request("no namespace on request"));
    };
    let (mut resources, mut others) = (Vec::new(), Vec::new());
    for rule in authorizer.rules(target.identity.user(), scope.as_str(), Some(namespace))? {
        if !rule.resources.is_empty() {
            let mut value =
                json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
            if !rule.resource_names.is_empty() {
                value["resourceNames"] = json!(rule.resource_names);
            }
            resources.push(value);
        }
        if !rule.non_resource_urls.is_empty() {
            others.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": others});
    status["incomplete"] = (!authorizer.knows_all_rules()).into();
    if !authorizer.knows_all_rules() {
        status["evaluationError"] = "webhook authorizer does not support user rule resolution".into();
    }
    Ok(status)
}

fn parse<T: for<'de> Deserialize<'de>>(value: &Value) -> Result<T, Status> {
    T::deserialize(value).map_err(|error| Status::bad_request(error.to_string()))
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct SubjectAttributes {
    user: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceAttributes {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    #[serde(rename = "fieldSelector")]
    field_selector: SelectorAttributes,
    #[serde(rename = "labelSelector")]
    label_selector: SelectorAttributes,
}

/// A selector of a review: as text, or as requirements.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SelectorAttributes {
    raw_selector: String,
    requirements: Vec<Requirement>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl SelectorAttributes {
    fn text(&self, term: impl Fn(&Requirement) -> Option<String>) -> String {
        if !self.raw_selector.is_empty() {
            return self.raw_selector.clone();
        }
        self.requirements.iter().filter_map(term).collect::<Vec<_>>().join(",")
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NonResourceAttributes {
    verb: String,
    path: String,
}

#[async_trait]
impl Registry for Reviews {
    async fn create(
        &self,
        target: &Target,
        object: Value,
        _options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let errors = target.resource.strategy(&target.version).validate_create(&object);
        if !errors.is_empty() {
            let causes = errors
                .into_iter()
                .map(|error| StatusCause::field(error.reason(), error.path.as_str(), error.message.clone()))
                .collect();
            return Err(Status::invalid(&target.resource.name.group, "", "", causes));
        }
        self.review(target, object).await.map(WriteResult::NotStored)
    }

    async fn get(
        &self,
        target: &Target,
        _name: &str,
        _at_least: Option<Revision>,
    ) -> Result<StoredObject, Status> {
        Err(target.method_not_allowed())
    }

    async fn list(&self, target: &Target, _options: &ListOptions) -> Result<Box<dyn ListCursor>, Status> {
        Err(target.method_not_allowed())
    }

    async fn watch(
        &self,
        target: &Target,
        _options: &ListOptions,
        _until: WatchEnd,
    ) -> Result<OpenWatch, Status> {
        Err(target.method_not_allowed())
    }
}
