//! The TokenRequest API: what is requested, checked against the account, and the claims of the token.

use fairlead_process::{GroupResource, Status, StatusCause};
use fairlead_schema::{FieldError, FieldPath};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::TokenIssuer;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// Validity of a token that requests none.
const DEFAULT_SECONDS: u64 = 60 * 60;
const MIN_SECONDS: u64 = 10 * 60;
const MAX_SECONDS: u64 = 1 << 32;

/// Sets the fields of an incomplete request that admission sees.
pub(super) fn set_defaults(request: &mut Value) {
    let seconds = &mut request["spec"]["expirationSeconds"];
    if seconds.is_null() {
        *seconds = DEFAULT_SECONDS.into();
    }
}

/// A service account and the time of the request.
pub(super) struct TokenSubject<'s> {
    pub(super) cluster: &'s str,
    pub(super) namespace: &'s str,
    /// The stored ServiceAccount.
    pub(super) account: &'s Value,
    pub(super) now: Timestamp,
}

/// The object that a token is bound to.
#[derive(Debug, PartialEq)]
pub(super) struct BoundSecret<'r> {
    pub(super) name: &'r str,
    /// The UID that it must have; empty for any.
    pub(super) uid: &'r str,
}

/// A request whose fields are complete and valid.
#[derive(Debug)]
pub(super) struct TokenRequest {
    /// The response without its token.
    pub(super) response: Value,
    seconds: u64,
}

impl TokenRequest {
    /// Completes and checks a request.
    ///
    /// # Errors
    /// 409 for another UID than the account's, 422 for invalid fields.
    pub(super) fn new(
        mut request: Value,
        subject: &TokenSubject<'_>,
        issuer: &TokenIssuer,
    ) -> Result<Self, Status> {
        let account = &subject.account["metadata"];
        let name = account["name"].as_str().unwrap_or_default();
        let metadata = &mut request["metadata"];
        for (field, own, kind) in [("name", name, "name"), ("namespace", subject.namespace, "namespace")] {
            let given = metadata[field].as_str().unwrap_or_default();
            if !given.is_empty() && given != own {
                let detail = format!("must match the service account {kind} if specified");
                let path = FieldPath::new("metadata").child(field);
                return Err(invalid(name, &FieldError::invalid(path, &given.into(), &detail)));
            }
            metadata[field] = own.into();
        }
        let (given, own) =
            (metadata["uid"].as_str().unwrap_or_default(), account["uid"].as_str().unwrap_or_default());
        if !given.is_empty() && given != own {
            let reason = format!(
                "the UID in the token request ({given}) does not match the UID of the service account ({own})"
            );
            return Err(Status::conflict(GroupResource::new(GROUP, KIND), name, reason));
        }
        metadata["uid"] = own.into();
        metadata["creationTimestamp"] = fairlead_api::format_time(subject.now).into();
        let spec = &mut request["spec"];
        if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
            spec["audiences"] = json!(issuer.audiences);
        }
        let seconds = spec["expirationSeconds"].as_i64().unwrap_or_default();
        let bounds = [
            (seconds < MIN_SECONDS as i64, "may not specify a duration less than 10 minutes"),
            (seconds > MAX_SECONDS as i64, "may not specify a duration larger than 2^32 seconds"),
        ];
        if let Some((_, detail)) = bounds.into_iter().find(|(is_outside, _)| *is_outside) {
            let path = FieldPath::new("spec").child("expirationSeconds");
            return Err(invalid("", &FieldError::invalid(path, &seconds.into(), detail)));
        }
        let seconds = u64::try_from(seconds).unwrap_or(DEFAULT_SECONDS);
        if let Some(fields) = request.as_object_mut() {
            fields.remove("status");
        }
        Ok(Self { response: request, seconds })
    }

    /// The request with the validity that the issuer permits.
    pub(super) fn limited(mut self, max_seconds: Option<u64>) -> Self {
        self.seconds = max_seconds.map_or(self.seconds, |max| self.seconds.min(max));
        self.response["spec"]["expirationSeconds"] = self.seconds.into();
        self
    }

    /// The secret that the token is bound to.
    ///
    /// # Errors
    /// 400 for another kind of object: there are no pods and nodes.
    pub(super) fn bound_secret(&self) -> Result<Option<BoundSecret<'_>>, Status> {
        let reference = &self.response["spec"]["boundObjectRef"];
        if !reference.is_object() {
            return Ok(None);
        }
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        match (api_version, kind) {
            ("" | "v1", "Secret") => Ok(Some(BoundSecret { name: text("name"), uid: text("uid") })),
            ("" | "v1", "Pod") => {
                Err(Status::bad_request("spec.BoundObjectRef.Kind equal to Pod is invalid"))
            }
            ("" | "v1", "Node") => Err(Status::not_found(GroupResource::new("", "nodes"), text("name"))),
            _ => {
                let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
                Err(Status::bad_request(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}"
                )))
            }
        }
    }

    /// The claims of the token: those of a bound token of Kubernetes, and the logical cluster.
    pub(super) fn claims(
        &self,
        subject: &TokenSubject<'_>,
        issuer: &TokenIssuer,
        secret: Option<&Value>,
        id: &str,
    ) -> Value {
        let reference =
            |object: &Value| json!({"name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
        let mut private = json!({
            "clusterName": subject.cluster,
            "namespace": subject.namespace,
            "serviceaccount": reference(subject.account),
        });
        if let Some(secret) = secret {
            private["secret"] = reference(secret);
        }
        let name = subject.account["metadata"]["name"].as_str().unwrap_or_default();
        let now = subject.now.as_second();
        json!({
            "aud": self.response["spec"]["audiences"],
            "exp": now + i64::try_from(self.seconds).unwrap_or(i64::MAX),
            "iat": now,
            "iss": issuer.name(),
            "jti": id,
            "kubernetes.io": private,
            "nbf": now,
            "sub": format!("system:serviceaccount:{}:{name}", subject.namespace),
        })
    }

    /// The response with the token.
    pub(super) fn issued(mut self, token: String, now: Timestamp) -> Value {
        let seconds = i64::try_from(self.seconds).unwrap_or(i64::MAX);
        let end = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        self.response["status"] =
            json!({"token": token, "expirationTimestamp": fairlead_api::format_time(end)});
        self.response
    }
}

fn invalid(name: &str, error: &FieldError) -> Status {
    let cause = StatusCause::field(error.reason(), error.path.as_str(), error.message.clone());
    Status::invalid(GROUP, KIND, name, vec![cause])
}

#[cfg(test)]
mod tests;
