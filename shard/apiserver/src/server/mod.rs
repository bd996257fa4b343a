//! The stages of a request: path, scope, identity, permission, resource, registry, response.

mod audited;
mod body;
mod body_type;
mod exchange;
mod impersonation;
mod limits;
mod open_api;
mod read;
mod target;
mod write;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use fairlead_authn::{Identity, UserInfo};
use fairlead_names::Origin;
use fairlead_process::{ConnectionInfo, Status};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use serde_json::json;

use crate::audit::{AuditLog, AuditRecord, RequestFacts};
use crate::concurrency::{ConcurrencyLimiter, RequestLimits, with_permit};
use crate::discovery::{Discovery, Document};
use crate::host::{
    Action, Attributes, Decision, DiscoveryForms, Host, IdentityAssumption, InterceptedRequest,
    RequestedSelectors, ScopedPath,
};
use crate::metrics::{AuthorizationResult, RequestMetrics, RequestSeries};
use crate::object::ScopeAnnotations;
use crate::registry::Catalog;
use crate::request::{
    AuditAnnotations, Form, NegotiationError, Query, RequestKind, RequestPath, ResourcePath, ResponseFormat,
};
use crate::resource::Verb;
use crate::response::{self, FinishContext, Response};
use crate::scope::ScopeSelector;

use exchange::Exchange;
use impersonation::impersonate;

pub(crate) use open_api::OpenApi;

pub use body::ByteBody;

/// A Kubernetes API server over a host. Share it with an `Arc`.
pub struct ApiServer<H> {
    host: H,
    annotations: ScopeAnnotations,
    discovery: Arc<Discovery>,
    open_api: Arc<OpenApi>,
    metrics: RequestMetrics,
    audit: Option<Arc<AuditLog>>,
    limits: RequestLimits,
    concurrency: Arc<ConcurrencyLimiter>,
}

impl<H> ApiServer<H> {
    /// A server of another host in the same process. It shares caches, metrics, audit log and limits with this one, so it is cheap
    /// enough for one request.
    pub fn with_host<G>(&self, host: G) -> ApiServer<G> {
        ApiServer {
            host,
            annotations: self.annotations,
            discovery: Arc::clone(&self.discovery),
            open_api: Arc::clone(&self.open_api),
            metrics: self.metrics.clone(),
            audit: self.audit.clone(),
            limits: self.limits,
            concurrency: Arc::clone(&self.concurrency),
        }
    }
}

impl<H: Host> ApiServer<H> {
    /// Serves the scopes of `host`. `address` is the server address in discovery documents.
    pub fn new(
        host: H,
        annotations: ScopeAnnotations,
        address: impl Into<String>,
        metrics: RequestMetrics,
    ) -> Self {
        let open_api = Arc::new(OpenApi::new(host.document_paths()));
        Self {
            host,
            annotations,
            discovery: Arc::new(Discovery::new(address)),
            open_api,
            concurrency: metrics.concurrency(),
            metrics,
            audit: None,
            limits: RequestLimits::default(),
        }
    }

    /// Records requests in an audit log.
    #[must_use]
    pub fn with_audit(mut self, audit: AuditLog) -> Self {
        self.audit = Some(Arc::new(audit));
        self
    }

    /// Replaces the limits of requests, which are those of Kubernetes by default.
    #[must_use]
    pub fn with_limits(mut self, limits: RequestLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The host.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Handles a request. A failure is a response, too.
    pub async fn handle<B: ByteBody>(&self, request: Request<B>) -> Response {
        self.handle_assuming(request, None).await
    }

    /// Handles a request under another identity than that of its client.
    pub async fn handle_as<B: ByteBody>(
        &self,
        request: Request<B>,
        assumption: &dyn IdentityAssumption,
    ) -> Response {
        self.handle_assuming(request, Some(assumption)).await
    }

    async fn handle_assuming<B: ByteBody>(
        &self,
        request: Request<B>,
        assumption: Option<&dyn IdentityAssumption>,
    ) -> Response {
        let finish_context = FinishContext::of(request.headers());
        let (parts, body) = request.into_parts();
        let mut exchange = Exchange::begin(self.audit.is_some());
        let outcome = self.respond(&parts, body, &finish_context, &mut exchange, assumption).await;
        let (mut response, refusal) = match outcome {
            Ok(response) => (response, None),
            Err(Refusal::Denied(status)) => (response::denial(&status), Some(())),
            Err(Refusal::Failed(status)) => (response::failure(&status), Some(())),
        };
        exchange.count(&self.metrics, &parts, &response);
        let mut record = exchange.record.take();
        if let Some(whole) = record.take() {
            (response, record) = Box::pin(audited::record(response, whole)).await;
        }
        if refusal.is_some() {
            let query = Query::parse(parts.uri.query().unwrap_or_default());
            response = response::encode_failure(response, &parts.headers, &query);
        }
        let response = response::finish(response, &finish_context, &exchange.warnings).await;
        match record {
            Some(record) => audited::at_end(response, record),
            None => response,
        }
    }

    async fn respond<B: ByteBody>(
        &self,
        parts: &Parts,
        body: B,
        finish_context: &FinishContext,
        exchange: &mut Exchange,
        assumption: Option<&dyn IdentityAssumption>,
    ) -> Result<Response, Refusal> {
        let path =
            RequestPath::parse(parts.uri.path()).map_err(|error| Status::bad_request(error.to_string()))?;
        let ScopedPath { scopes, path } = self.host.locate(path, &parts.headers)?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let requested = path.request(&parts.method, query.flag("watch"));
        // Only the permissions of other paths refer to them.
        let (text, verb) = match &requested {
            RequestKind::Resource(_) => Default::default(),
            RequestKind::NonResource | RequestKind::UnknownMethod => {
                (path.text(), parts.method.as_str().to_ascii_lowercase())
            }
        };
        let selected_name = match &requested {
            RequestKind::Resource(wanted) => selected_name(wanted, &query),
            RequestKind::NonResource | RequestKind::UnknownMethod => None,
        };
        let action = match &requested {
            RequestKind::Resource(wanted) => resource_action(wanted, selected_name.as_deref()),
            RequestKind::NonResource | RequestKind::UnknownMethod => {
                Action::NonResource { verb: &verb, path: &text }
            }
        };
        let authentication_began = Instant::now();
        let authenticated = self.host.authenticate(parts).await;
        self.metrics.authenticated(authenticated.is_ok(), authentication_began);
        let user = authenticated.as_ref().ok().map(|client| client.user());
        if let Some(log) = &self.audit {
            let uri = exchange::audited_uri(&path, parts);
            let (audit_id, received) = (finish_context.audit_id(), exchange.received());
            let facts = RequestFacts { parts, audit_id, uri, user, action: &action, received };
            exchange.record = log.begin(&facts);
        }
        if let Some(record) = &exchange.record {
            if let Some(scopes) = &scopes {
                record.annotate_all(self.host.audit_annotations(scopes));
            }
            if authenticated.is_err() {
                let connection = parts.extensions.get::<ConnectionInfo>();
                let has_certificate = connection.is_some_and(|connection| connection.tls().0.is_some());
                record.failed_authentication(&parts.headers, has_certificate);
                Box::pin(record.started_and_over()).await;
                exchange.record = None;
            } else {
                Box::pin(record.received()).await?;
            }
        }
        let client = authenticated?;
        let Exchange { warnings, record, series, .. } = exchange;
        let record = record.as_ref();
        let mut identity = impersonate(&self.host, &client, &parts.headers, scopes.as_ref(), &action).await?;
        if let Some(assumption) = assumption {
            let assumed = assumption.assume(&identity, scopes.as_ref(), &action).await;
            identity = assumed.map_err(|status| match status.code {
                403 => Refusal::Denied(status),
                _ => Refusal::Failed(status),
            })?;
        }
        if let Some(record) = record.filter(|_| !Arc::ptr_eq(&client, &identity)) {
            record.impersonated(identity.user());
        }
        let is_long_running =
            matches!(&requested, RequestKind::Resource(wanted) if wanted.verb == Verb::Watch);
        let scope = scopes.as_ref().and_then(ScopeSelector::one).map(|scope| scope.as_str());
        let permit = self.enter(&parts.method, is_long_running, identity.user(), scope)?;
        let audit_annotations =
            if record.is_some() { AuditAnnotations::kept() } else { AuditAnnotations::default() };
        let context = Context {
            parts,
            query: &query,
            identity: &identity,
            scopes: scopes.as_ref(),
            path: &path,
            record,
            audit_annotations: &audit_annotations,
            series,
        };
        let carried_out = self.carry_out(&context, requested.clone(), &action, body, warnings);
        let outcome = if is_long_running {
            carried_out.await
        } else {
            let limit = exchange::time_limit(&query, self.limits.duration)?;
            // Most requests are complete at the first poll, before a timer is set.
            // Boxed, because each adapter around a future moves it, and a moved future is copied whole.
            let limited = tokio::time::timeout(limit, Box::pin(carried_out));
            with_permit(permit, limited).await.unwrap_or_else(|_| {
                Err(Status::timeout("request did not complete within the allotted timeout", 0).into())
            })
        };
        if let Some(record) = record {
            record.annotate_all(audit_annotations.take());
        }
        outcome
    }

    /// Carries out a request whose user is known.
    async fn carry_out<B: ByteBody>(
        &self,
        context: &Context<'_>,
        requested: RequestKind,
        action: &Action<'_>,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Refusal> {
        let intercepted = InterceptedRequest {
            method: context.method(),
            scopes: context.scopes,
            path: context.path,
            query: context.query,
            identity: context.identity,
        };
        if let Some(response) = self.host.intercept(intercepted).await {
            return Ok(response);
        }
        if matches!(requested, RequestKind::UnknownMethod) {
            return Err(Status::unknown_method().into());
        }
        self.authorize(context, &requested, action).await?;
        match requested {
            RequestKind::Resource(wanted) => Ok(self.resource(context, wanted, body, warnings).await?),
            RequestKind::NonResource | RequestKind::UnknownMethod => Ok(self.non_resource(context).await?),
        }
    }

    /// Authorizes a request. The selectors of lists, watches and collection deletes are passed as texts, so that only
    /// an authorizer that uses them parses them.
    async fn authorize(
        &self,
        context: &Context<'_>,
        requested: &RequestKind,
        action: &Action<'_>,
    ) -> Result<(), Refusal> {
        let mut attributes = Attributes::new(context.identity.user(), context.scopes, *action);
        if let RequestKind::Resource(wanted) = requested
            && matches!(wanted.verb, Verb::List | Verb::Watch | Verb::DeleteCollection)
        {
            attributes.selectors = RequestedSelectors {
                fields: context.query.get("fieldSelector").unwrap_or_default(),
                labels: context.query.get("labelSelector").unwrap_or_default(),
            };
        }
        let began = Instant::now();
        let authorization = self.host.authorize(&attributes).decided().await;
        let result = match authorization.decision {
            Decision::Allow => AuthorizationResult::Allowed,
            Decision::Deny(_) => AuthorizationResult::Denied,
            Decision::NoOpinion => AuthorizationResult::NoOpinion,
        };
        self.metrics.authorized(result, began.elapsed());
        if let Some(record) = context.record {
            for step in self.host.authorization_steps(&attributes) {
                record.annotate_all(step.audit_annotations("request.auth.kcp.io"));
            }
            let verdict = match authorization.decision {
                Decision::Allow => "allow",
                Decision::Deny(_) | Decision::NoOpinion => "forbid",
            };
            record.annotate("authorization.k8s.io/decision", verdict);
            record.annotate("authorization.k8s.io/reason", authorization.client_reason());
        }
        if authorization.is_allowed() {
            return Ok(());
        }
        let user = context.identity.user();
        Err(Refusal::Denied(forbidden_because(user, action, authorization.client_reason())))
    }

    async fn non_resource(&self, context: &Context<'_>) -> Result<Response, Status> {
        let words: Vec<&str> = context.path.segments().iter().map(|segment| &**segment).collect();
        if let ["version"] = words.as_slice() {
            return Ok(response::content(StatusCode::OK, "application/json", self.host.version().clone()));
        }
        if words.is_empty()
            && let Some(scope) = context.scopes.and_then(ScopeSelector::one)
        {
            let paths = endpoint_list(&*self.host.catalog(scope)?, self.host.document_paths());
            let text = serde_json::to_vec_pretty(&json!({"paths": paths})).map_err(Status::internal)?;
            return Ok(response::content(StatusCode::OK, "application/json", text));
        }
        if !matches!(words.first(), Some(&"api" | &"apis" | &"openapi")) {
            let is_read = matches!(*context.method(), Method::GET | Method::HEAD);
            let document = if is_read { self.host.document(&words) } else { None };
            return Ok(document.unwrap_or_else(response::unknown_path));
        }
        if !matches!(*context.method(), Method::GET | Method::HEAD) {
            return Err(Status::unknown_method());
        }
        let is_open_api = words[0] == "openapi";
        if is_open_api && context.scopes.is_none() {
            return Ok(response::unknown_path());
        }
        let scopes =
            context.scopes.ok_or_else(|| Status::bad_request("the request names no logical cluster"))?;
        let catalog = self.host.common_catalog(scopes)?;
        if is_open_api {
            return self.open_api.respond(&words[1..], context, &catalog, self.host.discovery()).await;
        }
        let accepted = context.accepted()?;
        let forms = self.host.discovery();
        let aggregated = match (accepted.form, words.as_slice()) {
            (Form::AggregatedDiscovery(version), [_]) if forms == DiscoveryForms::All => Some(version),
            _ => None,
        };
        let document = match (words.as_slice(), aggregated) {
            ([root @ ("api" | "apis")], Some(version)) => {
                Document::Aggregated { is_core: *root == "api", version }
            }
            (["api"], None) => Document::Versions,
            (["apis"], None) => Document::Groups,
            (["apis", group], _) => Document::Group((*group).to_owned()),
            (["apis", group, version], _) => {
                Document::Resources { group: (*group).to_owned(), version: (*version).to_owned() }
            }
            (["api", _], _)
                if forms == DiscoveryForms::Unaggregated
                    && !catalog.resources.iter().any(|resource| resource.name.group.is_empty()) =>
            {
                return Ok(response::unknown_path());
            }
            (["api", version], _) => {
                Document::Resources { group: String::new(), version: (*version).to_owned() }
            }
            _ => return Ok(response::unknown_path()),
        };
        let Some(document) = self.discovery.document(&catalog, document) else {
            return Ok(response::unknown_path());
        };
        let full = match aggregated {
            Some(_) => response::content(StatusCode::OK, accepted.content_type(), document.json),
            None => {
                let form = ResponseFormat { form: Form::Object, ..accepted };
                response::encoded(form, StatusCode::OK, document.json)?
            }
        };
        Ok(response::tagged(&context.parts.headers, &document.hash, full))
    }
}

/// The parts of a request that all stages need.
pub(crate) struct Context<'r> {
    pub(crate) parts: &'r Parts,
    pub(crate) query: &'r Query<'r>,
    pub(crate) identity: &'r Arc<Identity>,
    pub(crate) scopes: Option<&'r ScopeSelector>,
    pub(crate) path: &'r RequestPath<'r>,
    /// The audit record, if the policy has one for this request.
    record: Option<&'r AuditRecord>,
    /// Kept if there is a record.
    audit_annotations: &'r AuditAnnotations,
    series: &'r OnceLock<Arc<RequestSeries>>,
}

impl Context<'_> {
    fn method(&self) -> &Method {
        &self.parts.method
    }

    fn accepted(&self) -> Result<ResponseFormat, Status> {
        ResponseFormat::of(&self.parts.headers, self.query).map_err(|error| negotiation_status(&error))
    }
}

/// The paths that a client can read, as Kubernetes lists them at `/`: not those of custom resources.
fn endpoint_list(catalog: &Catalog, documents: &[&str]) -> Vec<String> {
    let fixed =
        ["/api", "/api/v1", "/apis", "/apis/", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"];
    let mut paths: BTreeSet<String> =
        fixed.into_iter().chain(documents.iter().copied()).map(str::to_owned).collect();
    let built_in = catalog.resources.iter().filter(|resource| resource.origin == Origin::BuiltIn);
    for resource in built_in.filter(|resource| !resource.name.group.is_empty()) {
        paths.insert(format!("/apis/{}", resource.name.group));
        for version in &resource.versions.served {
            paths.insert(format!("/apis/{}/{}", resource.name.group, version.name));
        }
    }
    paths.into_iter().collect()
}

/// The reason why a request is not carried out.
pub(super) enum Refusal {
    /// The authorizer denies it.
    Denied(Status),
    /// Any other reason.
    Failed(Status),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

pub(crate) fn negotiation_status(error: &NegotiationError) -> Status {
    match error {
        NegotiationError::Accept => Status::not_acceptable(&["application/json", "application/yaml"]),
        NegotiationError::ContentType { supported, .. } => {
            let supported: Vec<&str> = supported.split(", ").map(str::trim).collect();
            Status::unsupported_media_type(&supported)
        }
    }
}

/// The name in a field selector `metadata.name=<name>` of a collection request. Authorization uses it as the request's
/// name (RBAC by resourceNames), as in Kubernetes.
fn selected_name(wanted: &ResourcePath, query: &Query<'_>) -> Option<String> {
    if wanted.name.is_some() || !matches!(wanted.verb, Verb::List | Verb::Watch | Verb::DeleteCollection) {
        return None;
    }
    let selector = crate::request::FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    selector.exact("metadata.name").map(str::to_owned)
}

fn resource_action<'w>(wanted: &'w ResourcePath, selected_name: Option<&'w str>) -> Action<'w> {
    Action::Resource {
        verb: wanted.verb.as_str(),
        group: &wanted.group,
        version: &wanted.version,
        resource: &wanted.resource,
        subresource: wanted.subresource.as_deref(),
        namespace: wanted.namespace.as_deref().or_else(|| {
            // For RBAC, a Namespace object is in the namespace of its own name.
            (wanted.group.is_empty() && wanted.resource == "namespaces")
                .then_some(wanted.name.as_deref())
                .flatten()
        }),
        name: wanted.name.as_deref().or(selected_name),
    }
}

/// A 403 with the message of Kubernetes; it does not contain the reason.
pub fn forbidden(user: &UserInfo, action: &Action<'_>) -> Status {
    forbidden_because(user, action, "access denied")
}

/// A 403 with the message of Kubernetes and a reason that clients may see.
pub fn forbidden_because(user: &UserInfo, action: &Action<'_>, why: &str) -> Status {
    match *action {
        Action::Resource { verb, group, resource, subresource, namespace, name, .. } => {
            let full = subresource
                .map_or_else(|| resource.to_owned(), |subresource| format!("{resource}/{subresource}"));
            let place = match namespace {
                Some(namespace)
                    if !(group.is_empty() && resource == "namespaces" && name == Some(namespace)) =>
                {
                    format!("in the namespace {namespace:?}")
                }
                Some(_) | None => "at the cluster scope".to_owned(),
            };
            let reason = format!(
                "User {:?} cannot {verb} resource {full:?} in API group {group:?} {place}: {why}",
                user.name
            );
            Status::forbidden(
                fairlead_process::GroupResource::new(group, resource),
                name.unwrap_or_default(),
                reason,
            )
        }
        Action::NonResource { verb, path } => {
            let reason = format!("User {:?} cannot {verb} path {path:?}: {why}", user.name);
            Status::forbidden(fairlead_process::GroupResource::default(), "", reason)
        }
    }
}
