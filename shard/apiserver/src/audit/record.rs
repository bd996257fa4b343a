//! The record of one request: its event, and the stages at which it is sent.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use fairlead_authn::UserInfo;
use fairlead_process::{ConnectionInfo, Status};
use fairlead_schema::decode_yaml;
use http::HeaderMap;
use http::header::USER_AGENT;
use http::request::Parts;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::AuditLog;
use super::event::{
    Event, Level, ObjectReference, RecordedObject, ResponseStatus, Stage, User, remove_managed_fields,
};
use super::policy::Treatment;
use crate::host::Action;

/// Largest user agent that is recorded.
const MAX_USER_AGENT: usize = 1024;
/// Addresses that are recorded at most: a client can name any number of them in X-Forwarded-For.
const MAX_ADDRESSES: usize = 32;
/// Bytes of a response that are recorded at most. A larger response is left out, so that a list does not occupy memory of its size.
pub(crate) const MAX_RESPONSE_OBJECT: usize = 4 << 20;
/// Annotation of an event whose objects are left out.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The record of a request. When it is dropped before its last stage, the request was aborted, which is recorded, too.
pub(crate) struct AuditRecord {
    log: Arc<AuditLog>,
    treatment: Treatment,
    is_long_running: bool,
    state: Mutex<State>,
}

struct State {
    event: Event,
    is_complete: bool,
}

/// The facts about a request that its record begins with.
pub(crate) struct RequestFacts<'r> {
    pub(crate) parts: &'r Parts,
    pub(crate) audit_id: &'r str,
    /// The path without the scope, with the query.
    pub(crate) uri: String,
    pub(crate) user: Option<&'r UserInfo>,
    pub(crate) action: &'r Action<'r>,
    pub(crate) received: Timestamp,
}

impl AuditRecord {
    pub(super) fn new(log: Arc<AuditLog>, treatment: Treatment, facts: &RequestFacts<'_>) -> Self {
        let (verb, object_ref) = match *facts.action {
            Action::NonResource { verb, .. } => (verb, None),
            Action::Resource { verb, group, version, resource, subresource, namespace, name } => {
                let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
                let reference = ObjectReference {
                    resource: resource.to_owned(),
                    namespace: text(namespace),
                    name: text(name),
                    api_group: group.to_owned(),
                    api_version: version.to_owned(),
                    subresource: text(subresource),
                    ..ObjectReference::default()
                };
                (verb, Some(reference))
            }
        };
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: treatment.level,
            audit_id: facts.audit_id.to_owned(),
            stage: Stage::RequestReceived,
            request_uri: facts.uri.clone(),
            verb: verb.to_owned(),
            user: facts.user.map(User::of).unwrap_or_default(),
            impersonated_user: None,
            source_ips: source_addresses(facts.parts),
            user_agent: user_agent(&facts.parts.headers),
            object_ref,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: facts.received,
            stage_timestamp: facts.received,
            annotations: Default::default(),
        };
        let is_long_running = verb == "watch";
        Self { log, treatment, is_long_running, state: Mutex::new(State { event, is_complete: false }) }
    }

    /// Records that the request was received.
    ///
    /// # Errors
    /// 500 if the event cannot be stored and the log is strict: the request must not be carried out then.
    pub(crate) async fn received(&self) -> Result<(), Status> {
        if self.send(Stage::RequestReceived).await {
            return Ok(());
        }
        self.log.metrics.rejected.inc();
        Err(Status::internal("failed to store audit event"))
    }

    /// Adds an annotation. The first value of a key stays, as in Kubernetes.
    pub(crate) fn annotate(&self, key: &str, value: impl Into<String>) {
        self.state.lock().event.annotations.entry(key.to_owned()).or_insert_with(|| value.into());
    }

    /// Adds annotations.
    pub(crate) fn annotate_all(&self, annotations: impl IntoIterator<Item = (String, String)>) {
        for (key, value) in annotations {
            self.annotate(&key, value);
        }
    }

    /// Records the user that the client impersonates.
    pub(crate) fn impersonated(&self, user: &UserInfo) {
        self.state.lock().event.impersonated_user = Some(User::of(user));
    }

    /// Records the object of a create, update or delete, and completes the reference to it.
    pub(crate) fn request_object(&self, object: &Value) {
        let mut state = self.state.lock();
        if let Some(reference) = &mut state.event.object_ref {
            for (own, field) in [
                (&mut reference.namespace, "namespace"),
                (&mut reference.name, "name"),
                (&mut reference.uid, "uid"),
                (&mut reference.resource_version, "resourceVersion"),
            ] {
                if own.is_empty() {
                    *own = object["metadata"][field].as_str().unwrap_or_default().to_owned();
                }
            }
        }
        if self.treatment.level >= Level::Request {
            state.event.request_object = Some(self.recorded(object.clone()));
        }
    }

    /// Records the body of a patch, unless it is neither JSON nor YAML.
    pub(crate) fn request_patch(&self, patch: &[u8]) {
        if self.treatment.level < Level::Request {
            return;
        }
        let json = serde_json::from_slice::<Value>(patch).ok();
        let object = json.or_else(|| decode_yaml(patch, patch.len()).ok().map(|decoded| decoded.value));
        self.state.lock().event.request_object = object.as_ref().map(RecordedObject::of);
    }

    /// Whether the body of the response is recorded.
    pub(crate) fn records_response(&self) -> bool {
        self.treatment.level >= Level::RequestResponse
    }

    /// Records the code of a response.
    pub(crate) fn response_code(&self, code: u16) {
        self.state.lock().event.response_status = Some(ResponseStatus::of_code(code));
    }

    /// Records the refusal of a credential: its method instead of a status, because the user is unknown.
    pub(crate) fn failed_authentication(&self, headers: &HeaderMap, has_certificate: bool) {
        let mut methods = Vec::new();
        let authorization = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match authorization
            .and_then(|value| value.trim().split(' ').next())
            .map(str::to_ascii_lowercase)
            .as_deref()
        {
            Some("basic") => methods.push("basic"),
            Some("bearer") => methods.push("bearer"),
            _ => {}
        }
        if has_certificate {
            methods.push("x509");
        }
        let message = match methods.as_slice() {
            [] => "Authentication failed, no credentials provided".to_owned(),
            methods => format!("Authentication failed, attempted: {}", methods.join(", ")),
        };
        self.state.lock().event.response_status =
            Some(ResponseStatus { message: Some(message), ..ResponseStatus::of_code(401) });
    }

    /// Records a whole response that is JSON: the fields of a `Status`, and the object if the policy says so.
    pub(crate) fn response_object(&self, code: u16, object: Value) {
        let status =
            ResponseStatus::of_object(code, &object).unwrap_or_else(|| ResponseStatus::of_code(code));
        let object = self.records_response().then(|| self.recorded(object));
        let mut state = self.state.lock();
        state.event.response_status = Some(status);
        state.event.response_object = object;
    }

    /// Records that the object of a response is left out because it is too large.
    pub(crate) fn response_is_too_large(&self) {
        self.annotate(TRUNCATED, "true");
    }

    /// Records that the headers of a response have been sent whose body is endless.
    pub(crate) async fn started(&self) {
        if self.is_long_running {
            self.send(Stage::ResponseStarted).await;
        }
    }

    /// Records the failure of an authentication, which has no later stage.
    pub(crate) async fn started_and_over(&self) {
        self.state.lock().is_complete = true;
        self.send(Stage::ResponseStarted).await;
    }

    /// Records that the response is complete.
    pub(crate) async fn complete(&self) {
        self.state.lock().is_complete = true;
        self.send(Stage::ResponseComplete).await;
    }

    /// [`complete`](Self::complete) from a place that cannot wait: the event is queued.
    pub(crate) fn complete_later(&self) {
        self.state.lock().is_complete = true;
        if let Some(event) = self.at(Stage::ResponseComplete) {
            self.log.queue(&event);
        }
    }

    fn recorded(&self, mut object: Value) -> RecordedObject {
        if self.treatment.omit_managed_fields {
            remove_managed_fields(&mut object);
        }
        RecordedObject::of(&object)
    }

    async fn send(&self, stage: Stage) -> bool {
        let Some(event) = self.at(stage) else { return true };
        self.log.send(&event).await
    }

    /// The event at a stage, unless the policy leaves it out.
    fn at(&self, stage: Stage) -> Option<Event> {
        if self.treatment.omit_stages.contains(&stage) {
            return None;
        }
        let mut state = self.state.lock();
        state.event.stage = stage;
        // The first event has the time at which the request was received, as in Kubernetes.
        if stage != Stage::RequestReceived {
            state.event.stage_timestamp = Timestamp::now();
        }
        Some(state.event.clone())
    }
}

impl Drop for AuditRecord {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if state.is_complete {
            return;
        }
        let is_panicking = std::thread::panicking();
        if is_panicking {
            state.event.response_status = Some(ResponseStatus {
                status: Some("Failure".to_owned()),
                message: Some("APIServer panic'd".to_owned()),
                reason: Some("InternalError".to_owned()),
                ..ResponseStatus::of_code(500)
            });
        } else if state.event.response_status.is_none() {
            state.event.response_status = Some(ResponseStatus {
                status: Some("Success".to_owned()),
                message: Some("Connection closed early".to_owned()),
                ..ResponseStatus::of_code(200)
            });
        }
        let stage = if is_panicking { Stage::Panic } else { Stage::ResponseComplete };
        if let Some(event) = self.at(stage) {
            self.log.queue(&event);
        }
    }
}

/// A response body that is recorded while it is sent.
#[derive(Default)]
pub(crate) struct Capture {
    bytes: Vec<u8>,
    is_too_large: bool,
}

impl Capture {
    /// Adds a piece.
    pub(crate) fn add(&mut self, piece: &Bytes) {
        if self.bytes.len() + piece.len() > MAX_RESPONSE_OBJECT {
            self.is_too_large = true;
            self.bytes = Vec::new();
        } else if !self.is_too_large {
            self.bytes.extend_from_slice(piece);
        }
    }

    /// Records the whole body.
    pub(crate) fn record(self, record: &AuditRecord, code: u16) {
        match serde_json::from_slice(&self.bytes) {
            Ok(object) if !self.is_too_large => record.response_object(code, object),
            _ => record.response_is_too_large(),
        }
    }
}

fn user_agent(headers: &HeaderMap) -> String {
    let text =
        headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
    if text.len() <= MAX_USER_AGENT {
        return text.into_owned();
    }
    let end = (0..=MAX_USER_AGENT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}...TRUNCATED", &text[..end])
}

/// The addresses of X-Forwarded-For and X-Real-Ip, which a client can forge, and that of the connection, which it cannot.
fn source_addresses(parts: &Parts) -> Vec<String> {
    let address = |text: &str| text.trim().parse::<IpAddr>().ok();
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut found: Vec<IpAddr> =
        header("x-forwarded-for").split(',').filter_map(address).take(MAX_ADDRESSES).collect();
    if let Some(real) = address(header("x-real-ip"))
        && !found.contains(&real)
    {
        found.push(real);
    }
    let peer =
        parts.extensions.get::<ConnectionInfo>().map(|connection| connection.peer_addr().ip().to_canonical());
    if let Some(peer) = peer
        && found.last() != Some(&peer)
    {
        found.push(peer);
    }
    found.iter().map(ToString::to_string).collect()
}
