//! Tokens of service accounts, and their revocation when their objects are deleted.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex},
};

use fairlead_authn::{
    FoundObject, Identity, LookupError, LookupPolicy, ObjectReference, ReferencedKind, ServiceAccountKeys,
    ServiceAccountLookup, ServiceAccountSettings, ServiceAccountTokens, SharedKeys, Verdict,
    VerificationKeys,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    NOW, accepted, ask, ask_at, at,
    signing::{Signer, hmac_with_public_key, pem, unsigned},
    summary,
};

fn keys(pem: &str) -> SharedKeys {
    SharedKeys::new(VerificationKeys::from_pem(pem.as_bytes()).unwrap())
}

fn authenticator(signer: &Signer, lookup_policy: LookupPolicy) -> ServiceAccountTokens {
    let keys = keys(&pem("PUBLIC KEY", &signer.public_der()));
    ServiceAccountTokens::new(keys, ServiceAccountSettings::default(), lookup_policy)
}

fn bound() -> Value {
    json!({
        "iss": "https://kcp.default.svc",
        "aud": ["https://kcp.default.svc"],
        "sub": "system:serviceaccount:default:robot",
        "exp": NOW + 3600, "iat": NOW, "nbf": NOW,
        "jti": "5f1d",
        "kubernetes.io": {
            "clusterName": "2vhzq",
            "namespace": "default",
            "serviceaccount": { "name": "robot", "uid": "u-1" },
            "pod": { "name": "web", "uid": "u-2" },
            "node": { "name": "n1", "uid": "u-3" },
        },
    })
}

fn legacy() -> Value {
    json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "robot-token",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": "u-1",
        "kubernetes.io/serviceaccount/clusterName": "2vhzq",
    })
}

/// `value` with the members of `changes`; `null` removes a member.
fn with(mut value: Value, changes: Value) -> Value {
    for (key, change) in changes.as_object().unwrap() {
        match (change, value.get_mut(key)) {
            (Value::Null, _) => drop(value.as_object_mut().unwrap().remove(key)),
            (Value::Object(_), Some(inner)) if inner.is_object() => {
                *inner = with(inner.take(), change.clone())
            }
            _ => value[key] = change.clone(),
        }
    }
    value
}

#[tokio::test]
async fn bound_and_legacy_tokens_are_the_same_user() {
    let signer = Signer::rsa(0, "");
    let authenticator = authenticator(&signer, LookupPolicy::Nothing);
    let expected =
        "system:serviceaccount:default:robot: system:serviceaccounts system:serviceaccounts:default";

    let identity = accepted(ask(&authenticator, &signer.sign(&bound())).await);
    assert_eq!(summary(&Verdict::Accepted(identity.clone())), expected);
    assert_eq!(identity.user().uid.as_deref(), Some("u-1"));
    assert_eq!(identity.expires(), Some(at(NOW + 3660)));
    let extra = |key: &str| identity.user().extra.get(key).map(|values| values.join(","));
    assert_eq!(extra("authentication.kcp.io/cluster-name").as_deref(), Some("2vhzq"));
    assert_eq!(extra("authentication.kcp.io/scopes").as_deref(), Some("cluster:2vhzq"));
    assert_eq!(extra("authentication.kubernetes.io/credential-id").as_deref(), Some("JTI=5f1d"));
    assert_eq!(extra("authentication.kubernetes.io/pod-name").as_deref(), Some("web"));
    assert_eq!(extra("authentication.kubernetes.io/pod-uid").as_deref(), Some("u-2"));
    assert_eq!(extra("authentication.kubernetes.io/node-name").as_deref(), Some("n1"));
    assert_eq!(extra("authentication.kubernetes.io/node-uid").as_deref(), Some("u-3"));

    let identity = accepted(ask(&authenticator, &signer.sign(&legacy())).await);
    assert_eq!(summary(&Verdict::Accepted(identity.clone())), expected);
    assert_eq!(identity.expires(), None);
}

/// `key=value,value` of all extras with this prefix.
fn extras(identity: &Identity, prefix: &str) -> Vec<String> {
    let ours = identity.user().extra.iter().filter(|(key, _)| key.starts_with(prefix));
    ours.map(|(key, values)| format!("{key}={}", values.join(","))).collect()
}

#[tokio::test]
async fn an_account_is_valid_in_its_own_logical_cluster_only_and_without_one_nowhere() {
    let signer = Signer::rsa(0, "");
    let authenticator = authenticator(&signer, LookupPolicy::Nothing);
    const LEGACY: &str = "kubernetes.io/serviceaccount/clusterName";
    for (claims, cluster) in [
        (bound(), "2vhzq"),
        (with(bound(), json!({ "kubernetes.io": { "clusterName": null } })), ""),
        (with(bound(), json!({ "kubernetes.io": { "clusterName": "" } })), ""),
        (legacy(), "2vhzq"),
        (with(legacy(), json!({ LEGACY: null })), ""),
    ] {
        let identity = accepted(ask(&authenticator, &signer.sign(&claims)).await);
        let expected = [
            format!("authentication.kcp.io/cluster-name={cluster}"),
            format!("authentication.kcp.io/scopes=cluster:{cluster}"),
        ];
        assert_eq!(extras(&identity, "authentication.kcp.io/"), expected, "{claims}");
    }
    let named = with(legacy(), json!({ "jti": "5f1d" }));
    let identity = accepted(ask(&authenticator, &signer.sign(&named)).await);
    assert_eq!(extras(&identity, "authentication.kubernetes.io/"), [""; 0], "those in secrets have no ID");
}

#[tokio::test]
async fn tokens_with_invalid_claims_are_not_accepted() {
    let signer = Signer::rsa(0, "");
    let authenticator = authenticator(&signer, LookupPolicy::Nothing);
    let cases = [
        (with(bound(), json!({ "iss": "https://other" })), "no opinion"),
        (with(bound(), json!({ "iss": null })), "no opinion"),
        (with(bound(), json!({ "exp": NOW - 61 })), "the token has expired"),
        (with(bound(), json!({ "nbf": NOW + 61 })), "the token is not valid yet"),
        (with(bound(), json!({ "iat": NOW + 61 })), "the token was issued in the future"),
        (with(bound(), json!({ "iat": "now" })), "claim \"iat\" is not a time"),
        (with(bound(), json!({ "aud": ["other"] })), "the token's audiences do not include this server"),
        (with(bound(), json!({ "kubernetes.io": null })), "claim \"kubernetes.io\" is missing"),
        (
            with(bound(), json!({ "kubernetes.io": { "namespace": "" } })),
            "claim \"kubernetes.io\" does not name a service account",
        ),
        (
            with(legacy(), json!({ "sub": "system:serviceaccount:default:admin" })),
            "claim \"sub\" names another service account than the other claims",
        ),
        (
            with(legacy(), json!({ "kubernetes.io/serviceaccount/secret.name": "" })),
            "claim \"kubernetes.io/serviceaccount/secret.name\" is empty",
        ),
        (
            with(legacy(), json!({ "kubernetes.io/serviceaccount/namespace": null })),
            "claim \"kubernetes.io/serviceaccount/namespace\" is missing",
        ),
    ];
    for (claims, expected) in cases {
        let verdict = ask(&authenticator, &signer.sign(&claims)).await;
        assert_eq!(summary(&verdict), expected, "{claims}");
    }
    // Within the allowed clock skew.
    for changes in [
        json!({ "exp": NOW - 59 }),
        json!({ "nbf": NOW + 59 }),
        json!({ "iat": NOW + 60 }),
        json!({ "iat": null }),
        json!({ "aud": null }),
    ] {
        accepted(ask(&authenticator, &signer.sign(&with(bound(), changes))).await);
    }
}

#[tokio::test]
async fn forged_tokens_are_not_accepted() {
    let (signer, stranger) = (Signer::rsa(0, ""), Signer::rsa(1, ""));
    let authenticator = authenticator(&signer, LookupPolicy::Nothing);
    let good = signer.sign(&bound());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let other = unsigned(&json!({}), &with(bound(), json!({ "sub": "x" })));
    let other = other.split_once('.').unwrap().1;
    let none = unsigned(&json!({ "alg": "none" }), &bound());
    let pem = pem("PUBLIC KEY", &signer.public_der());
    let cases = [
        ("another key", stranger.sign(&bound())),
        ("another payload", format!("{header}.{other}.{signature}")),
        ("no signature", format!("{signed}.")),
        ("two parts", signed.to_owned()),
        ("four parts", format!("{good}.{signature}")),
        ("none", format!("{none}.{signature}")),
        ("none, unsigned", format!("{none}.")),
        ("HS256 with the public key", hmac_with_public_key(&signer.public_der(), &bound())),
        ("HS256 with the public key as text", hmac_with_public_key(pem.as_bytes(), &bound())),
        ("an algorithm for another kind of key", signer.sign_with(&json!({ "alg": "ES256" }), &bound())),
        ("another way to sign", {
            let token = signer.sign_as("PS256", &bound());
            let (signed, _) = token.rsplit_once('.').unwrap();
            format!("{signed}.{signature}")
        }),
        ("extensions", signer.sign_with(&json!({ "alg": "RS256", "crit": ["exp"] }), &bound())),
        ("its own key in the header", {
            stranger.sign_with(&json!({ "alg": "RS256", "jwk": stranger.jwk() }), &bound())
        }),
        ("a reference to its own key in the header", {
            let header = json!({ "alg": "RS256", "jku": "https://evil.example.com", "x5u": "https://evil.example.com" });
            stranger.sign_with(&header, &bound())
        }),
        ("padding", format!("{header}.{payload}=.{signature}")),
        ("white space", format!("{header}.{payload}.{signature} ")),
    ];
    accepted(ask(&authenticator, &good).await);
    for (name, token) in cases {
        let verdict = ask(&authenticator, &token).await;
        assert!(!matches!(verdict, Verdict::Accepted(_)), "{name}");
    }
}

#[tokio::test]
async fn keys_are_read_in_all_forms_and_replaced_at_run_time() {
    let rsa = Signer::rsa(0, "");
    let curves = ["P-256", "P-384", "P-521"].map(|curve| Signer::elliptic_curve(curve, ""));
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let public = file(
        "public.pem",
        format!(
            "# all of them\n{}{}",
            pem("PUBLIC KEY", &rsa.public_der()),
            pem("PUBLIC KEY", &curves[0].public_der())
        ),
    );
    let private = file(
        "private.pem",
        format!(
            "{}{}",
            pem("EC PRIVATE KEY", &curves[1].private_der()),
            pem("PRIVATE KEY", &curves[2].private_der())
        ),
    );
    let keys = SharedKeys::new(ServiceAccountKeys::load([&public, &private]).unwrap());
    let authenticator =
        ServiceAccountTokens::new(keys.clone(), ServiceAccountSettings::default(), LookupPolicy::Nothing);
    for signer in [&rsa].into_iter().chain(&curves) {
        accepted(ask(&authenticator, &signer.sign(&bound())).await);
    }
    for algorithm in ["RS384", "RS512", "PS256", "PS384", "PS512"] {
        accepted(ask(&authenticator, &rsa.sign_as(algorithm, &bound())).await);
    }
    // The key ID of the signer may be unknown here.
    accepted(ask(&authenticator, &Signer::rsa(0, "whatever").sign(&bound())).await);

    keys.replace(ServiceAccountKeys::load([&private]).unwrap());
    let verdict = ask(&authenticator, &rsa.sign(&bound())).await;
    assert_eq!(summary(&verdict), "the token's key is not known");
    accepted(ask(&authenticator, &curves[1].sign(&bound())).await);
}

#[test]
fn unusable_key_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        ("nothing", String::new(), "contains no RSA or EC key"),
        ("text", "hello".to_owned(), "contains no RSA or EC key"),
        (
            "garbage",
            pem("PUBLIC KEY", b"x"),
            "its PEM block 1 (PUBLIC KEY) cannot be used: it is no certificate and no RSA or EC key",
        ),
        ("broken", "-----BEGIN PUBLIC KEY-----\n?".to_owned(), "it is not readable PEM"),
    ];
    for (name, text, expected) in cases {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        let error = ServiceAccountKeys::load([&path]).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(expected), "{name}: {error}");
    }
    let error = ServiceAccountKeys::load([directory.path().join("missing")]).unwrap_err().to_string();
    assert!(error.starts_with("cannot read "), "{error}");
}

/// Shards with the objects of a test.
#[derive(Default)]
struct Objects {
    found: Mutex<HashMap<(ReferencedKind, String), FoundObject>>,
    asked: Mutex<Vec<String>>,
    down: Mutex<bool>,
}

impl Objects {
    fn put(&self, kind: ReferencedKind, name: &str, uid: &str) {
        let object = FoundObject { uid: uid.to_owned(), deleted: None, token: None };
        self.found.lock().unwrap().insert((kind, name.to_owned()), object);
    }

    fn change(&self, kind: ReferencedKind, name: &str, change: impl FnOnce(&mut FoundObject)) {
        change(self.found.lock().unwrap().get_mut(&(kind, name.to_owned())).unwrap());
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl ServiceAccountLookup for Objects {
    fn find<'a>(
        &'a self,
        object: &'a ObjectReference,
    ) -> Pin<Box<dyn Future<Output = Result<Option<FoundObject>, LookupError>> + Send + 'a>> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(object.to_string());
            if *self.down.lock().unwrap() {
                return Err(LookupError::new(object, "connection refused"));
            }
            Ok(self.found.lock().unwrap().get(&(object.kind, object.name.clone())).cloned())
        })
    }
}

#[tokio::test]
async fn a_bound_token_is_revoked_with_its_object() {
    let signer = Signer::elliptic_curve("P-256", "");
    let token = signer.sign(&bound());
    let objects = Arc::new(Objects::default());
    let ask_later = async |seconds: u64| {
        // A new authenticator has an empty cache.
        let authenticator = authenticator(&signer, LookupPolicy::Bound(objects.clone()));
        summary(&ask_at(&authenticator, &token, at(NOW + seconds)).await)
    };
    assert_eq!(ask_later(0).await, "the token is not valid any more: its service account is gone");
    objects.put(ReferencedKind::ServiceAccount, "robot", "another");
    assert_eq!(ask_later(0).await, "the token is not valid any more: its service account is gone");
    objects.put(ReferencedKind::ServiceAccount, "robot", "u-1");
    assert_eq!(ask_later(0).await, "the token is not valid any more: its pod is gone");
    objects.put(ReferencedKind::Pod, "web", "u-2");
    assert!(ask_later(0).await.starts_with("system:serviceaccount:default:robot"), "its node may be gone");
    objects.change(ReferencedKind::Pod, "web", |pod| pod.deleted = Some(at(NOW)));
    assert!(ask_later(59).await.starts_with("system:serviceaccount:default:robot"), "it has some time left");
    assert_eq!(ask_later(60).await, "the token is not valid any more: its pod is gone");
    objects.asked();
    *objects.down.lock().unwrap() = true;
    let expected =
        "cannot be verified now: cannot look up service account default/robot of 2vhzq: connection refused";
    assert_eq!(ask_later(0).await, expected);
    assert_eq!(objects.asked(), ["service account default/robot of 2vhzq"]);
}

#[tokio::test]
async fn a_legacy_token_must_be_in_its_secret() {
    let signer = Signer::elliptic_curve("P-256", "");
    let token = signer.sign(&legacy());
    let objects = Arc::new(Objects::default());
    let ask_all = async |lookup_policy: LookupPolicy| {
        summary(&ask(&authenticator(&signer, lookup_policy), &token).await)
    };
    objects.put(ReferencedKind::ServiceAccount, "robot", "u-1");
    let all = || LookupPolicy::All(objects.clone());
    assert_eq!(ask_all(all()).await, "the token is not valid any more: its secret is gone");
    objects.put(ReferencedKind::Secret, "robot-token", "u-9");
    assert_eq!(ask_all(all()).await, "the token is not valid any more: its secret contains another token");
    let digest = Sha256::digest(&token).into();
    objects.change(ReferencedKind::Secret, "robot-token", |secret| secret.token = Some(digest));
    assert!(ask_all(all()).await.starts_with("system:serviceaccount:default:robot"));
    objects.change(ReferencedKind::Secret, "robot-token", |secret| secret.deleted = Some(at(NOW)));
    assert_eq!(ask_all(all()).await, "the token is not valid any more: its secret is gone");
    objects.asked();
    let bound_only = ask_all(LookupPolicy::Bound(objects.clone())).await;
    assert!(bound_only.starts_with("system:serviceaccount:default:robot"));
    assert_eq!(objects.asked(), [""; 0]);
}

#[tokio::test]
async fn look_ups_are_cached_but_failures_are_not() {
    let signer = Signer::elliptic_curve("P-256", "");
    let token = signer.sign(&with(bound(), json!({ "kubernetes.io": { "pod": null, "node": null } })));
    let objects = Arc::new(Objects::default());
    let authenticator = authenticator(&signer, LookupPolicy::Bound(objects.clone()));
    let ask_later = async |seconds: u64| {
        let verdict = ask_at(&authenticator, &token, at(NOW + seconds)).await;
        (matches!(verdict, Verdict::Accepted(_)), objects.asked().len())
    };
    *objects.down.lock().unwrap() = true;
    assert_eq!(ask_later(0).await, (false, 1));
    assert_eq!(ask_later(0).await, (false, 1));
    *objects.down.lock().unwrap() = false;
    assert_eq!(ask_later(0).await, (false, 1), "it does not exist");
    objects.put(ReferencedKind::ServiceAccount, "robot", "u-1");
    assert_eq!(ask_later(0).await, (false, 0));
    assert_eq!(ask_later(1).await, (true, 1));
    *objects.down.lock().unwrap() = true;
    assert_eq!(ask_later(10).await, (true, 0));
    assert_eq!(ask_later(11).await, (false, 1));
}

#[tokio::test]
async fn an_account_that_replaces_another_one_is_looked_up_at_once() {
    let signer = Signer::elliptic_curve("P-256", "");
    let alone = json!({ "pod": null, "node": null });
    let old = with(bound(), json!({ "kubernetes.io": alone }));
    let new = with(old.clone(), json!({ "kubernetes.io": { "serviceaccount": { "uid": "u-4" } } }));
    let objects = Arc::new(Objects::default());
    let authenticator = authenticator(&signer, LookupPolicy::Bound(objects.clone()));
    let ask_later = async |claims: &Value, seconds: u64| {
        let verdict = ask_at(&authenticator, &signer.sign(claims), at(NOW + seconds)).await;
        (matches!(verdict, Verdict::Accepted(_)), objects.asked().len())
    };
    objects.put(ReferencedKind::ServiceAccount, "robot", "u-1");
    assert_eq!(ask_later(&old, 0).await, (true, 1));
    objects.put(ReferencedKind::ServiceAccount, "robot", "u-4");
    assert_eq!(ask_later(&new, 0).await, (true, 1));
    assert_eq!(ask_later(&old, 10).await, (false, 1));
    assert_eq!(ask_later(&old, 10).await, (false, 0), "no look-up for each request with a revoked token");
}
