#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use fairlead_process::Reloadable;

use super::*;

fn issuer(max_seconds: Option<u64>) -> TokenIssuer {
    TokenIssuer {
        issuers: vec!["https://kcp.default.svc".to_owned()],
        audiences: vec!["https://kcp.default.svc".to_owned()],
        max_seconds,
        keys_url: "https://localhost/openid/v1/jwks".to_owned(),
        signer: None,
        keys: Arc::new(Reloadable::new(Default::default())),
    }
}

fn account() -> Value {
    json!({"metadata": {"name": "bot", "namespace": "default", "uid": "u-1"}})
}

fn subject(account: &Value) -> TokenSubject<'_> {
    TokenSubject { cluster: "abc", namespace: "default", account, now: Timestamp::UNIX_EPOCH }
}

#[test]
fn requests_are_completed_and_checked() {
    let account = account();
    for (request, max, expected) in [
        (json!({}), None, Ok(3600)),
        (json!({"spec": {"expirationSeconds": 600}}), None, Ok(600)),
        (json!({"spec": {"expirationSeconds": 7200}}), Some(1800), Ok(1800)),
        (
            json!({"spec": {"expirationSeconds": 599}}),
            None,
            Err((
                422,
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not \
                 specify a duration less than 10 minutes",
            )),
        ),
        (
            json!({"spec": {"expirationSeconds": 1_u64 << 33}}),
            None,
            Err((
                422,
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 8589934592: \
                 may not specify a duration larger than 2^32 seconds",
            )),
        ),
        (
            json!({"metadata": {"name": "other"}}),
            None,
            Err((
                422,
                "TokenRequest.authentication.k8s.io \"bot\" is invalid: metadata.name: Invalid value: \"other\": must \
                 match the service account name if specified",
            )),
        ),
        (
            json!({"metadata": {"uid": "u-2"}}),
            None,
            Err((
                409,
                "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"bot\": the UID in the token \
                 request (u-2) does not match the UID of the service account (u-1)",
            )),
        ),
    ] {
        let mut with_defaults = request.clone();
        set_defaults(&mut with_defaults);
        let made = TokenRequest::new(with_defaults, &subject(&account), &issuer(max));
        let outcome =
            made.map(|made| made.limited(max).seconds).map_err(|status| (status.code, status.message));
        let expected = expected.map_err(|(code, message): (u16, &str)| (code, message.to_owned()));
        assert_eq!(outcome, expected, "{request}");
    }
}

#[test]
fn the_claims_are_those_of_a_bound_token() {
    let account = account();
    let subject = subject(&account);
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "name": "s"});
    let mut request = json!({"spec": {"audiences": ["a"], "boundObjectRef": secret}});
    set_defaults(&mut request);
    let request = TokenRequest::new(request, &subject, &issuer(None)).unwrap();
    assert_eq!(request.bound_secret().unwrap(), Some(BoundSecret { name: "s", uid: "" }));
    let secret = json!({"metadata": {"name": "s", "uid": "u-3"}});
    let claims = request.claims(&subject, &issuer(None), Some(&secret), "id");
    assert_eq!(
        claims,
        json!({
            "aud": ["a"], "exp": 3600, "iat": 0, "nbf": 0, "jti": "id", "iss": "https://kcp.default.svc",
            "sub": "system:serviceaccount:default:bot",
            "kubernetes.io": {
                "clusterName": "abc", "namespace": "default",
                "serviceaccount": {"name": "bot", "uid": "u-1"}, "secret": {"name": "s", "uid": "u-3"},
            },
        })
    );
    let response = request.issued("token".to_owned(), Timestamp::UNIX_EPOCH);
    let status = json!({"token": "token", "expirationTimestamp": "1970-01-01T01:00:00Z"});
    assert_eq!(response["status"], status);
    assert_eq!(response["metadata"]["uid"], "u-1");
}

#[test]
fn tokens_are_bound_to_secrets_only() {
    let account = account();
    for (reference, code) in [
        (json!({"kind": "Pod", "apiVersion": "v1", "name": "p"}), 400),
        (json!({"kind": "Node", "apiVersion": "v1", "name": "n"}), 404),
        (json!({"kind": "ConfigMap", "apiVersion": "v1", "name": "c"}), 400),
        (json!({"kind": "Secret", "apiVersion": "apps/v1", "name": "c"}), 400),
    ] {
        let mut request = json!({"spec": {"boundObjectRef": reference}});
        set_defaults(&mut request);
        let request = TokenRequest::new(request, &subject(&account), &issuer(None)).unwrap();
        assert_eq!(request.bound_secret().unwrap_err().code, code, "{reference}");
    }
}
