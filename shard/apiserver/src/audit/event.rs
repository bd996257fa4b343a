//! Audit events as `audit.k8s.io/v1` has them.

use std::collections::BTreeMap;

use bytes::Bytes;
use fairlead_authn::UserInfo;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The part of a request that is recorded.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Level {
    /// The request is not recorded.
    None,
    /// User, action and result, without bodies.
    Metadata,
    /// The same with the body of the request.
    Request,
    /// The same with the bodies of request and response.
    RequestResponse,
}

impl Level {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// The point in the life of a request at which an event is recorded.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Stage {
    /// Before the request is carried out.
    RequestReceived,
    /// The headers of a long response are sent; its body is not complete.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// The request ended by a fault of the program.
    Panic,
}

/// An event. Its fields are in the order of Kubernetes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: String,
    pub(super) user: User,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<User>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<RecordedObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<RecordedObject>,
    #[serde(serialize_with = "micro_time")]
    pub(super) request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micro_time")]
    pub(super) stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// A user.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct User {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub(super) fn of(user: &UserInfo) -> Self {
        Self {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

/// The object of a request.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

/// The code of the response, and the bounded fields of its `Status`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ResponseStatus {
    pub(super) metadata: EmptyObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<Value>,
    pub(super) code: u16,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct EmptyObject {}

impl ResponseStatus {
    /// A response that is no `Status`.
    pub(super) fn of_code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    /// The fields of a `Status`; `None` for another object.
    pub(super) fn of_object(code: u16, object: &Value) -> Option<Self> {
        if object["kind"] != "Status" || object["apiVersion"] != "v1" {
            return None;
        }
        let text = |field: &str| object[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Some(Self {
            metadata: EmptyObject {},
            status: text("status"),
            message: text("message"),
            reason: text("reason"),
            details: object.get("details").filter(|details| !details.is_null()).cloned(),
            code,
        })
    }
}

/// JSON that has been encoded already. Cloning shares it.
#[derive(Clone, Debug)]
pub(super) struct RecordedObject(Bytes);

impl RecordedObject {
    /// Encodes a tree.
    pub(super) fn of(value: &Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Serialize for RecordedObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let raw: &RawValue = serde_json::from_slice(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ"))
}

/// Removes `metadata.managedFields` of an object, of the items of a list and of the rows of a table.
pub(super) fn remove_managed_fields(object: &mut Value) {
    fn of_one(object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    of_one(object);
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        of_one(item);
    }
    for row in object.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(object) = row.get_mut("object") {
            of_one(object);
        }
    }
}

impl Event {
    /// The event as a line of text, the older format of Kubernetes.
    pub(super) fn legacy_line(&self) -> Bytes {
        let list = |values: &[String]| {
            let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            quoted.join(",")
        };
        let (user, groups) = match self.user.username.as_str() {
            "" => ("<none>", "<none>".to_owned()),
            name if self.user.groups.is_empty() => (name, "<none>".to_owned()),
            name => (name, list(&self.user.groups)),
        };
        let (as_user, as_groups) = match &self.impersonated_user {
            None => ("<self>", "<lookup>".to_owned()),
            Some(user) if user.groups.is_empty() => (&*user.username, "<lookup>".to_owned()),
            Some(user) => (&*user.username, list(&user.groups)),
        };
        let namespace = self.object_ref.as_ref().map(|reference| &*reference.namespace);
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or("<none>");
        let response = self
            .response_status
            .as_ref()
            .map_or_else(|| "<deferred>".to_owned(), |status| status.code.to_string());
        let ip = self.source_ips.first().map_or("<unknown>", |ip| ip);
        format!(
            "{} AUDIT: id={:?} stage=\"{:?}\" ip={ip:?} method={:?} user={user:?} groups={groups:?} as={as_user:?} \
             asgroups={as_groups:?} user-agent={:?} namespace={namespace:?} uri={:?} response=\"{response}\"",
            self.request_received_timestamp, self.audit_id, self.stage, self.verb, self.user_agent, self.request_uri
        )
        .into()
    }

    /// The event as one line of JSON, without the newline. A larger one than `max_bytes` loses its objects, and is dropped (`None`)
    /// if that does not suffice.
    pub(super) fn encode(&self, max_bytes: usize) -> Option<Bytes> {
        let encoded = serde_json::to_vec(self).ok()?;
        if encoded.len() <= max_bytes {
            return Some(encoded.into());
        }
        if self.level < Level::Request {
            return None;
        }
        let mut truncated = Self { request_object: None, response_object: None, ..self.clone() };
        truncated.annotations.insert("audit.k8s.io/truncated".to_owned(), "true".to_owned());
        serde_json::to_vec(&truncated).ok().filter(|encoded| encoded.len() <= max_bytes).map(Bytes::from)
    }
}
