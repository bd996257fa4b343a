//! The `clientConfig` of admission and conversion webhooks.

use serde_json::Value;

use crate::field::{FieldError, FieldPath};

/// Adds the errors of a client configuration. A reference to a service is valid, although a logical cluster has no
/// services: its calls fail.
pub(crate) fn validate_client_config(config: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (url, service) = (config["url"].as_str(), &config["service"]);
    match (url, service.is_null()) {
        (Some(url), true) => validate_url(url, &path.child("url"), errors),
        (None, false) => {
            let path = path.child("service");
            for field in ["name", "namespace"] {
                if service[field].as_str().is_none_or(str::is_empty) {
                    errors.push(FieldError::required(path.child(field), ""));
                }
            }
            let port = &service["port"];
            if !(1..=65535).contains(&port.as_i64().unwrap_or(443)) {
                let detail = "port is not valid: must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(path.child("port"), port, detail));
            }
        }
        _ => {
            let detail = "exactly one of url or service is required";
            errors.push(FieldError::required(path.clone(), detail));
        }
    }
}

fn validate_url(url: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut refuse = |value: &str, detail: &str| {
        errors.push(FieldError::invalid_str(path.clone(), value, detail));
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        refuse(scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        refuse(host, &format!("host must be specified{FORM}"));
    }
    if !user.is_empty() {
        refuse(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        refuse(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        refuse(query, "query parameters are not permitted in the URL");
    }
}
