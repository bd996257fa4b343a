//! The kind CertificateSigningRequest. There is no signer in the server: signers are clients.
//!
//! The spec never changes. `/approval` changes the conditions `Approved` and `Denied`, `/status` the certificate and all
//! other conditions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Semantics, list, text};
use crate::certificate_request::{CertificateRequest, check_certificates};
use crate::field::{FieldError, FieldPath};
use crate::names::NameRule;

/// Signer of requests of the version `v1beta1` that named none.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const MIN_EXPIRATION_SECONDS: i64 = 600;

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
/// Conditions that are either true or absent, and that stay.
const FINAL_CONDITIONS: [&str; 3] = [APPROVED, DENIED, "Failed"];

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The kind CertificateSigningRequest.
#[derive(Debug)]
pub(crate) struct CertificateSigningRequest;

impl Semantics for CertificateSigningRequest {
    /// The user of the request is set by admission, which knows it.
    fn prepare_create(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            for field in ["username", "uid", "groups", "extra"] {
                spec.remove(field);
            }
        }
        object["status"] = json!({});
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        for field in ["spec", "status"] {
            object[field] = old[field].clone();
        }
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        object["spec"] = old["spec"].clone();
        for kind in [APPROVED, DENIED] {
            keep_conditions(object, old, kind);
        }
        set_times(object, old);
    }

    fn prepare_subresource_update(&self, name: &str, object: &mut Value, old: &Value) {
        if name != "approval" {
            return self.prepare_status_update(object, old);
        }
        set_times(object, old);
        let conditions = object["status"]["conditions"].take();
        self.prepare_update(object, old);
        if let Some(status) = object["status"].as_object_mut() {
            match conditions {
                Value::Array(_) => _ = status.insert("conditions".to_owned(), conditions),
                _ => _ = status.remove("conditions"),
            }
        } else if conditions.is_array() {
            object["status"] = json!({"conditions": conditions});
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate(object, None)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validate_change(object, old, Change::Main)
    }

    fn validate_subresource_update(&self, name: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        validate_change(object, old, if name == "approval" { Change::Approval } else { Change::Status })
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Main,
    Status,
    Approval,
}

fn conditions(object: &Value) -> &[Value] {
    list(&object["status"], "conditions")
}

fn of_kind<'a>(object: &'a Value, kind: &str) -> Vec<&'a Value> {
    conditions(object).iter().filter(|condition| text(condition, "type") == kind).collect()
}

/// Restores the conditions of a kind, unless their number has changed, which validation refuses.
fn keep_conditions(object: &mut Value, old: &Value, kind: &str) {
    let before = of_kind(old, kind);
    if before.len() != of_kind(object, kind).len() {
        return;
    }
    let new = object["status"]["conditions"].as_array_mut().map(|conditions| conditions.iter_mut());
    let new = new.into_iter().flatten().filter(|condition| text(condition, "type") == kind);
    for (condition, before) in new.zip(before) {
        *condition = before.clone();
    }
}

/// Sets missing times of conditions. A condition that keeps its status keeps the time of its transition.
fn set_times(object: &mut Value, old: &Value) {
    let now = json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if !condition.is_object() {
            continue;
        }
        if text(condition, "lastUpdateTime").is_empty() {
            condition["lastUpdateTime"] = now.clone();
        }
        if text(condition, "lastTransitionTime").is_empty() {
            let same = conditions(old).iter().find(|before| {
                before["type"] == condition["type"]
                    && before["status"] == condition["status"]
                    && !text(before, "lastTransitionTime").is_empty()
            });
            condition["lastTransitionTime"] =
                same.map_or_else(|| now.clone(), |same| same["lastTransitionTime"].clone());
        }
    }
}

/// Checks an object. What the stored object already has is tolerated.
fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    let mut errors = Vec::new();
    let encoded = text(spec, "request");
    let request = STANDARD.decode(encoded).unwrap_or_default();
    if let Err(error) = CertificateRequest::parse(&request) {
        errors.push(FieldError::invalid_str(path.child("request"), encoded, &error.to_string()));
    }
    let usages = list(spec, "usages");
    if usages.is_empty() {
        errors.push(FieldError::required(path.child("usages"), ""));
    }
    if old.is_none() {
        for (index, usage) in usages.iter().enumerate() {
            if !usage.as_str().is_some_and(|usage| USAGES.contains(&usage)) {
                errors.push(FieldError::not_supported(path.child("usages").index(index), usage, &USAGES));
            }
        }
        for (index, usage) in usages.iter().enumerate() {
            if usages[..index].contains(usage) {
                errors.push(FieldError::duplicate(path.child("usages").index(index), usage));
            }
        }
    }
    validate_signer(&path.child("signerName"), text(spec, "signerName"), &mut errors);
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|&own| own < MIN_EXPIRATION_SECONDS) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(path.child("expirationSeconds"), &seconds.into(), detail));
    }
    validate_conditions(object, old, &mut errors);
    let certificate = text(&object["status"], "certificate");
    if !certificate.is_empty() && old.is_none_or(|old| text(&old["status"], "certificate") != certificate) {
        let pem = STANDARD.decode(certificate).unwrap_or_default();
        if let Err(error) = check_certificates(&pem) {
            let path = FieldPath::new("status").child("certificate");
            errors.push(FieldError::invalid_str(path, "<certificate data>", &error.to_string()));
        }
    }
    errors
}

fn validate_signer(path: &FieldPath, signer: &str, errors: &mut Vec<FieldError>) {
    let mut invalid = |value: &str, detail: &str| {
        errors.push(FieldError::invalid_str(path.clone(), value, detail));
    };
    if signer == LEGACY_SIGNER {
        return invalid(signer, "the legacy signerName is not allowed via this API version");
    }
    if signer.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
        return;
    }
    let Some((domain, name)) = signer.split_once('/').filter(|(_, name)| !name.contains('/')) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return invalid(signer, detail);
    };
    for label in domain.split('.') {
        for finding in NameRule::Dns1123Label.check_name(label) {
            invalid(domain, &format!("validating label {label:?}: {finding}"));
        }
    }
    if !domain.contains('.') {
        invalid(domain, "should be a domain with at least two segments separated by dots");
    }
    for label in name.split('.') {
        for finding in NameRule::Dns1123Subdomain.check_name(label) {
            invalid(name, &format!("validating label {label:?}: {finding}"));
        }
    }
    for (part, max) in [(domain, 253), (name, 253 + 63 + 1)] {
        if part.len() > max {
            errors.push(FieldError::too_long(path.clone(), max));
        }
    }
}

fn validate_conditions(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("status").child("conditions");
    let had_both =
        old.is_some_and(|old| [APPROVED, DENIED].iter().all(|kind| !of_kind(old, kind).is_empty()));
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in conditions(object).iter().enumerate() {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        let own = path.index(index);
        if kind.is_empty() {
            errors.push(FieldError::required(own.child("type"), ""));
        }
        let allowed: &[&str] =
            if FINAL_CONDITIONS.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.push(FieldError::required(own.child("status"), ""));
        } else if !allowed.contains(&status) {
            errors.push(FieldError::not_supported(own.child("status"), &status.into(), allowed));
        }
        let excluded = match kind {
            APPROVED => DENIED,
            DENIED => APPROVED,
            _ => "",
        };
        if !had_both && !excluded.is_empty() && seen.contains(&excluded) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid_str(path.clone(), kind, detail));
        }
        if seen.contains(&kind) {
            errors.push(FieldError::duplicate(own.child("type"), &kind.into()));
        }
        seen.push(kind);
    }
}

fn validate_change(object: &Value, old: &Value, change: Change) -> Vec<FieldError> {
    let mut errors = validate(object, Some(old));
    let path = FieldPath::new("status").child("conditions");
    let mut forbid =
        |path: &FieldPath, detail: &str| errors.push(FieldError::forbidden(path.clone(), detail));
    for kind in FINAL_CONDITIONS {
        let (before, after) = (of_kind(old, kind), of_kind(object, kind));
        if after.len() < before.len() {
            forbid(&path, &format!("updates may not remove a condition of type {kind:?}"));
        } else if change != Change::Approval && [APPROVED, DENIED].contains(&kind) {
            if after.len() > before.len() {
                forbid(&path, &format!("updates may not add a condition of type {kind:?}"));
            } else if after != before {
                forbid(&path, &format!("updates may not modify a condition of type {kind:?}"));
            }
        }
    }
    let [before, after] = [old, object].map(|object| text(&object["status"], "certificate"));
    if before != after {
        let path = FieldPath::new("status").child("certificate");
        if change != Change::Status {
            forbid(&path, "updates may not set certificate content");
        } else if !before.is_empty() {
            forbid(&path, "updates may not modify existing certificate content");
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;
    use crate::certificate_request::tests::REQUEST;

    fn request(spec: &Value, status: &Value) -> Value {
        let mut object = json!({
            "spec": {
                "request": STANDARD.encode(REQUEST), "signerName": "example.com/signer",
                "usages": ["client auth"], "username": "ann",
            },
            "status": status,
        });
        for (field, value) in spec.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        object
    }

    #[test]
    fn requests_are_validated() {
        let ok: &[&str] = &[];
        for (spec, expected) in [
            (json!({}), ok),
            (
                json!({"request": "eA=="}),
                &[r#"spec.request: Invalid value: "eA==": PEM block type must be CERTIFICATE REQUEST"#],
            ),
            (json!({"usages": []}), &["spec.usages: Required value"]),
            (
                json!({"usages": ["client auth", "client auth"]}),
                &[r#"spec.usages[1]: Duplicate value: "client auth""#],
            ),
            (json!({"signerName": ""}), &["spec.signerName: Required value"]),
            (
                json!({"signerName": "example.com"}),
                &[
                    "spec.signerName: Invalid value: \"example.com\": must be a fully qualified domain and path of the form \
                   'example.com/signer-name'",
                ],
            ),
            (
                json!({"signerName": "local/x"}),
                &[
                    "spec.signerName: Invalid value: \"local\": should be a domain with at least two segments separated by dots",
                ],
            ),
            (
                json!({"signerName": LEGACY_SIGNER}),
                &[
                    "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via \
                   this API version",
                ],
            ),
            (
                json!({"expirationSeconds": 5}),
                &[
                    "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)",
                ],
            ),
        ] {
            assert_eq!(
                texts(&CertificateSigningRequest.validate(&request(&spec, &json!({})))),
                expected,
                "{spec}"
            );
        }
        let unknown = CertificateSigningRequest.validate(&request(&json!({"usages": ["x"]}), &json!({})));
        assert!(
            texts(&unknown)[0]
                .starts_with(r#"spec.usages[0]: Unsupported value: "x": supported values: "any""#)
        );
    }

    #[test]
    fn each_subresource_changes_its_own_fields() {
        let old = request(&json!({}), &json!({}));
        let approved = json!({"conditions": [{"type": "Approved", "status": "True"}]});
        let issued = json!({"certificate": "eA=="});
        let mut changed = request(&json!({"signerName": "other.com/x"}), &approved);
        CertificateSigningRequest.prepare_update(&mut changed, &old);
        assert_eq!(changed, old);

        let mut new = request(&json!({"signerName": "other.com/x"}), &approved);
        CertificateSigningRequest.prepare_subresource_update("approval", &mut new, &old);
        assert_eq!(new["spec"], old["spec"]);
        assert!(new["status"]["conditions"][0]["lastTransitionTime"].is_string(), "{new}");
        let errors = |name, new: &Value, old: &Value| {
            texts(&CertificateSigningRequest.validate_subresource_update(name, new, old))
        };
        assert!(errors("approval", &new, &old).is_empty());
        let forbidden = r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#;
        assert_eq!(errors("status", &new, &old), [forbidden]);
        let removed =
            r#"status.conditions: Forbidden: updates may not remove a condition of type "Approved""#;
        assert_eq!(errors("approval", &old, &new), [removed]);

        let mut both = new.clone();
        let denied = json!({"type": "Denied", "status": "True"});
        both["status"]["conditions"].as_array_mut().unwrap().push(denied);
        let exclusive = r#"status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#;
        assert_eq!(errors("approval", &both, &new), [exclusive]);

        let mut with_certificate = request(&json!({}), &issued);
        let found = errors("status", &with_certificate, &old);
        assert!(
            found[0].starts_with(r#"status.certificate: Invalid value: "<certificate data>": must contain"#)
        );
        CertificateSigningRequest.prepare_subresource_update("approval", &mut with_certificate, &old);
        assert_eq!(with_certificate["status"], json!({}));
        let mut again = new.clone();
        again["status"]["conditions"][0]["message"] = "changed".into();
        CertificateSigningRequest.prepare_status_update(&mut again, &new);
        assert_eq!(again, new, "only /approval changes an approval");
    }

    #[test]
    fn a_new_request_has_no_user_and_no_status() {
        let mut new =
            request(&json!({"groups": ["system:masters"], "uid": "1"}), &json!({"certificate": "x"}));
        CertificateSigningRequest.prepare_create(&mut new);
        assert_eq!(new["status"], json!({}));
        let spec = new["spec"].as_object().unwrap();
        assert!(["username", "uid", "groups", "extra"].iter().all(|field| !spec.contains_key(*field)));
    }
}
