//! Issuers of JWTs, working and failing, and the identities of their tokens.

use std::{path::Path, sync::Arc, time::Duration};

use fairlead_authn::{
    Algorithm, AuthenticationConfiguration, JwtAuthenticator, JwtSettings, KeyFetchSettings, OidcFlags,
    Verdict,
};
use serde_json::{Value, json};

use super::{
    NOW, accepted, ask, ask_at, at,
    server::{Reply, Server},
    signing::{Signer, hmac_with_public_key, pem, unsigned},
    summary,
};

const DISCOVERY: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/keys?of=all";

/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(3600);

/// Settings without periodic fetches; unknown keys are fetched at once.
fn immediate() -> KeyFetchSettings {
    KeyFetchSettings {
        refresh_interval: NEVER,
        retry_interval: Duration::ZERO,
        first_retry_interval: NEVER,
        max_wait: NEVER,
        response_timeout: NEVER,
    }
}

/// Serves a discovery document and these keys.
pub(crate) fn serve(server: &Server, keys: &[&Signer]) {
    let document = json!({ "issuer": server.url(), "jwks_uri": format!("{}{KEYS}", server.url()) });
    let keys = json!({ "keys": keys.iter().map(|signer| signer.jwk()).collect::<Vec<_>>() });
    server.answer(move |path, _| match path {
        DISCOVERY => Reply::Json(document.to_string()),
        KEYS => Reply::Json(keys.to_string()),
        _ => Reply::Status(404),
    });
}

pub(crate) fn claims(server: &Server) -> Value {
    json!({
        "iss": server.url(), "aud": "client", "sub": "ann", "exp": NOW + 600, "iat": NOW,
        "email": "ann@example.com", "groups": ["team", "other"], "jti": "t-1",
    })
}

fn flags(server: &Server) -> OidcFlags {
    OidcFlags {
        issuer_url: server.url(),
        client_id: "client".to_owned(),
        certificate_authority: Some(server.certificate_authority.clone()),
        groups_claim: "groups".to_owned(),
        ..OidcFlags::default()
    }
}

fn with_flags(server: &Server, change: impl FnOnce(&mut OidcFlags)) -> JwtAuthenticator {
    let mut flags = flags(server);
    change(&mut flags);
    JwtAuthenticator::with_key_settings([JwtSettings::from_flags(&flags).unwrap()], &immediate())
}

fn by_flags(server: &Server) -> JwtAuthenticator {
    with_flags(server, |_| {})
}

/// An element of a configuration file for this server, with changes.
pub(crate) fn element(server: &Server, changes: &Value) -> Value {
    let mut element = json!({
        "issuer": {
            "url": server.url(), "audiences": ["client"],
            "certificateAuthority": server.certificate_authority,
        },
        "claimMappings": { "username": { "claim": "sub", "prefix": "oidc:" } },
    });
    for (key, value) in changes.as_object().unwrap() {
        match (element.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more.clone()),
            _ => element[key] = value.clone(),
        }
    }
    element
}

fn by_file(server: &Server, changes: &Value) -> JwtAuthenticator {
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [element(server, changes)],
    });
    let configuration =
        AuthenticationConfiguration::parse(&file.to_string(), Path::new("authn.yaml"), &[]).unwrap();
    JwtAuthenticator::with_key_settings(configuration.issuers, &immediate())
}

fn with(mut claims: Value, changes: &Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(key)),
            value => claims[key] = value.clone(),
        }
    }
    claims
}

#[tokio::test]
async fn flags_map_claims_to_a_user() {
    let server = Server::start().await;
    let signer = Signer::rsa(0, "k1");
    serve(&server, &[&signer]);
    let token = signer.sign(&claims(&server));
    type Change = fn(&mut OidcFlags);
    let url = server.url();
    let cases: [(Change, String); 6] = [
        (|_| {}, format!("{url}#ann: team other")),
        (|flags| flags.username_prefix = "-".to_owned(), "ann: team other".to_owned()),
        (|flags| flags.username_prefix = "oidc:".to_owned(), "oidc:ann: team other".to_owned()),
        (|flags| flags.username_claim = "email".to_owned(), "ann@example.com: team other".to_owned()),
        (|flags| flags.groups_prefix = "g:".to_owned(), format!("{url}#ann: g:team g:other")),
        (|flags| flags.groups_claim = String::new(), format!("{url}#ann: ")),
    ];
    for (change, expected) in cases {
        let authenticator = with_flags(&server, change);
        assert_eq!(summary(&ask(&authenticator, &token).await), expected);
    }
    let identity = accepted(ask(&by_flags(&server), &token).await);
    assert_eq!(identity.expires(), Some(at(NOW + 600)));
    let id = &identity.user().extra["authentication.kubernetes.io/credential-id"];
    assert_eq!(id, &["JTI=t-1"]);
}

#[tokio::test]
async fn tokens_with_invalid_claims_are_not_accepted() {
    let server = Server::start().await;
    let signer = Signer::rsa(0, "k1");
    serve(&server, &[&signer]);
    let strict = with_flags(&server, |flags| {
        flags.username_claim = "email".to_owned();
        flags.required_claims = [("hd".to_owned(), "example.com".to_owned())].into();
    });
    let good = with(claims(&server), &json!({ "hd": "example.com" }));
    let cases = [
        (json!({}), "ann@example.com: team other"),
        (json!({ "aud": ["x", "client"], "email_verified": true }), "ann@example.com: team other"),
        (json!({ "groups": "only" }), "ann@example.com: only"),
        (json!({ "groups": null }), "ann@example.com: "),
        (json!({ "nbf": NOW + 60 }), "ann@example.com: team other"),
        (json!({ "iat": NOW + 600 }), "ann@example.com: team other"),
        (json!({ "iss": "https://other.example.com" }), "no opinion"),
        (json!({ "aud": "other" }), "the token's audiences do not include this server"),
        (json!({ "aud": null }), "the token's audiences do not include this server"),
        (json!({ "exp": NOW }), "the token has expired"),
        (json!({ "exp": null }), "claim \"exp\" is missing"),
        (json!({ "nbf": NOW + 61 }), "the token is not valid yet"),
        (json!({ "email": null }), "claim \"email\" is missing"),
        (json!({ "email": 7 }), "claim \"email\" is not a string"),
        (json!({ "email": "" }), "a rule of the configuration is not satisfied: the user name is empty"),
        (json!({ "email_verified": false }), "claim \"email_verified\" is not true"),
        (json!({ "email_verified": "true" }), "claim \"email_verified\" is not true"),
        (json!({ "groups": 7 }), "claim \"groups\" is neither a string nor a list of strings"),
        (json!({ "groups": ["a", 7] }), "claim \"groups\" is neither a string nor a list of strings"),
        (
            json!({ "groups": null, "_claim_names": { "groups": "src1" } }),
            "claim \"groups\" is a distributed claim, which is not supported",
        ),
        (json!({ "hd": "example.org" }), "claim \"hd\" does not have the required value"),
        (json!({ "hd": null }), "claim \"hd\" is missing"),
    ];
    for (changes, expected) in cases {
        let verdict = ask(&strict, &signer.sign(&with(good.clone(), &changes))).await;
        assert_eq!(summary(&verdict), expected, "{changes}");
    }
}

#[tokio::test]
async fn forged_tokens_are_not_accepted() {
    let server = Server::start().await;
    let (signer, stranger) = (Signer::rsa(0, "k1"), Signer::rsa(1, "k1"));
    let unnamed = Signer::rsa(0, "");
    serve(&server, &[&signer]);
    let authenticator = by_flags(&server);
    let claims = claims(&server);
    let good = signer.sign(&claims);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let none = unsigned(&json!({ "alg": "none" }), &claims);
    let key = &signer.public_der();
    let cases = [
        ("none", format!("{none}.{signature}")),
        ("none, unsigned", format!("{none}.")),
        ("unsigned", format!("{signed}.")),
        ("another key of that name", stranger.sign(&claims)),
        ("HS256 with the public key", hmac_with_public_key(key, &claims)),
        (
            "HS256 with the public key as text",
            hmac_with_public_key(pem("PUBLIC KEY", key).as_bytes(), &claims),
        ),
        ("HS256 with the key set's modulus", {
            hmac_with_public_key(signer.jwk()["n"].as_str().unwrap().as_bytes(), &claims)
        }),
        ("an algorithm that is not allowed", signer.sign_as("PS256", &claims)),
        ("a key in the header", {
            let header = json!({ "alg": "RS256", "jwk": stranger.jwk() });
            stranger.sign_with(&header, &claims)
        }),
        ("a key set in the header", {
            let header = json!({ "alg": "RS256", "kid": "k2", "jku": "https://evil.example.com/keys" });
            stranger.sign_with(&header, &claims)
        }),
        ("extensions", {
            signer.sign_with(&json!({ "alg": "RS256", "kid": "k1", "crit": ["b64"], "b64": false }), &claims)
        }),
    ];
    accepted(ask(&authenticator, &good).await);
    accepted(ask(&authenticator, &unnamed.sign(&claims)).await);
    for (name, token) in cases {
        let verdict = ask(&authenticator, &token).await;
        assert!(!matches!(verdict, Verdict::Accepted(_)), "{name}");
    }
}

#[tokio::test]
async fn a_file_accepts_all_algorithms_and_flags_the_configured_ones() {
    let server = Server::start().await;
    let rsa = Signer::rsa(0, "r");
    let curves = ["P-256", "P-384", "P-521"].map(|curve| Signer::elliptic_curve(curve, curve));
    let signers: Vec<_> = [&rsa].into_iter().chain(&curves).collect();
    serve(&server, &signers);
    let file = by_file(&server, &json!({}));
    let flags = with_flags(&server, |flags| flags.signing_algorithms = vec![Algorithm::Es384]);
    for signer in signers {
        let token = signer.sign(&claims(&server));
        accepted(ask(&file, &token).await);
        let expected = signer.id.as_deref() == Some("P-384");
        assert_eq!(matches!(ask(&flags, &token).await, Verdict::Accepted(_)), expected, "{:?}", signer.id);
    }
}

#[tokio::test]
async fn keys_are_rotated_without_a_pause() {
    let server = Server::start().await;
    let (old, new) = (Signer::elliptic_curve("P-256", "old"), Signer::elliptic_curve("P-256", "new"));
    serve(&server, &[&old]);
    let authenticator = by_file(&server, &json!({}));
    let (old_token, new_token) = (old.sign(&claims(&server)), new.sign(&claims(&server)));
    accepted(ask(&authenticator, &old_token).await);
    let verdict = ask(&authenticator, &new_token).await;
    assert_eq!(summary(&verdict), "the token's key is not known");
    serve(&server, &[&old, &new]);
    accepted(ask(&authenticator, &new_token).await);
    accepted(ask(&authenticator, &old_token).await);
    serve(&server, &[&new]);
    // A token with an unknown key causes a fetch, and the old key is removed.
    ask(&authenticator, &Signer::elliptic_curve("P-256", "other").sign(&claims(&server))).await;
    let verdict = ask(&authenticator, &old_token).await;
    assert_eq!(summary(&verdict), "the token's key is not known");
    assert_eq!(server.count(DISCOVERY), 1, "keys alone are looked at again");
}

#[tokio::test]
async fn made_up_tokens_do_not_cause_repeated_fetches() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    serve(&server, &[&signer]);
    let key_settings = KeyFetchSettings { retry_interval: NEVER, ..immediate() };
    let settings =
        JwtSettings::from_flags(&OidcFlags { signing_algorithms: vec![Algorithm::Es256], ..flags(&server) });
    let authenticator = JwtAuthenticator::with_key_settings([settings.unwrap()], &key_settings);
    accepted(ask(&authenticator, &signer.sign(&claims(&server))).await);
    for number in 0..20 {
        let made_up = Signer::elliptic_curve("P-256", &format!("made-up-{number}"));
        let verdict = ask(&authenticator, &made_up.sign(&claims(&server))).await;
        assert_eq!(summary(&verdict), "the token's key is not known");
    }
    assert_eq!(server.count(KEYS), 1);
}

#[tokio::test]
async fn first_requests_wait_for_one_fetch_of_keys() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    serve(&server, &[&signer]);
    let authenticator = Arc::new(by_file(&server, &json!({})));
    let token = signer.sign(&claims(&server));
    let asking = (0..50).map(|_| ask(&*authenticator, &token));
    for verdict in futures_util::future::join_all(asking).await {
        accepted(verdict);
    }
    assert_eq!((server.count(DISCOVERY), server.count(KEYS)), (1, 1));
}

#[tokio::test]
async fn without_keys_no_token_is_accepted_and_a_retry_may_help() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    let url = server.url();
    let token = signer.sign(&claims(&server));
    let document = |issuer: &str, keys: &str| json!({ "issuer": issuer, "jwks_uri": keys }).to_string();
    let good = document(&url, &format!("{url}{KEYS}"));
    let cases: Vec<(&str, Reply, Reply)> = vec![
        ("500", Reply::Status(500), Reply::Status(500)),
        ("302", Reply::Redirect("https://evil.example.com".to_owned()), Reply::Status(500)),
        ("is not a discovery document", Reply::Json("{}".to_owned()), Reply::Status(500)),
        ("is of another issuer", Reply::Json(document("https://evil", &url)), Reply::Status(500)),
        ("not an https URL", Reply::Json(document(&url, "http://localhost/keys")), Reply::Status(500)),
        ("jwks_uri is not a URL", Reply::Json(document(&url, "file:///etc/passwd")), Reply::Status(500)),
        ("502", Reply::Json(good.clone()), Reply::Status(502)),
        ("is not a JSON Web Key Set", Reply::Json(good.clone()), Reply::Json("[]".to_owned())),
        ("has no key for signatures", Reply::Json(good.clone()), Reply::Json("{\"keys\":[]}".to_owned())),
        ("is larger than", Reply::Json(good.clone()), Reply::Json("x".repeat(2 << 20))),
    ];
    for (expected, discovery, keys) in cases {
        server.answer(move |path, _| {
            let reply = if path == DISCOVERY { &discovery } else { &keys };
            match reply {
                Reply::Status(status) => Reply::Status(*status),
                Reply::Json(text) => Reply::Json(text.clone()),
                Reply::Redirect(to) => Reply::Redirect(to.clone()),
                Reply::Silence => Reply::Silence,
            }
        });
        let key_settings = KeyFetchSettings { retry_interval: NEVER, ..immediate() };
        let settings = JwtSettings::from_value(&element(&server, &json!({}))).unwrap();
        let authenticator = JwtAuthenticator::with_key_settings([settings], &key_settings);
        match ask(&authenticator, &token).await {
            Verdict::Declined(reason) => {
                assert!(reason.is_retryable(), "{reason}");
                assert!(reason.to_string().contains(expected), "{reason} instead of {expected}");
            }
            other => panic!("{other:?}"),
        }
        let status: Vec<_> = authenticator.status().collect();
        assert_eq!((status[0].issuer.as_str(), status[0].keys), (url.as_str(), 0));
        assert!(status[0].problem.is_some());
    }
}

#[tokio::test]
async fn a_recovered_issuer_is_found_without_a_token() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    server.answer(|_, _| Reply::Status(503));
    let key_settings = KeyFetchSettings { retry_interval: Duration::from_millis(1), ..immediate() };
    let settings = JwtSettings::from_value(&element(&server, &json!({}))).unwrap();
    let authenticator = JwtAuthenticator::with_key_settings([settings], &key_settings);
    authenticator.start();
    server.asked(DISCOVERY, 3).await;
    serve(&server, &[&signer]);
    server.asked(KEYS, 1).await;
    let token = signer.sign(&claims(&server));
    // The response is being sent.
    while !matches!(ask(&authenticator, &token).await, Verdict::Accepted(_)) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_wait_for_an_issuer_that_is_starting() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    server.answer(|_, _| Reply::Status(503));
    let key_settings = KeyFetchSettings {
        first_retry_interval: Duration::from_millis(1),
        retry_interval: NEVER,
        ..immediate()
    };
    let settings = JwtSettings::from_value(&element(&server, &json!({}))).unwrap();
    let authenticator = JwtAuthenticator::with_key_settings([settings], &key_settings);
    authenticator.start();
    server.asked(DISCOVERY, 2).await;
    let token = signer.sign(&claims(&server));
    let (verdict, ()) = tokio::join!(ask(&authenticator, &token), async { serve(&server, &[&signer]) });
    accepted(verdict);
}

#[tokio::test]
async fn the_last_good_keys_stay_while_an_issuer_is_down() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    serve(&server, &[&signer]);
    let authenticator = by_file(&server, &json!({}));
    let token = signer.sign(&claims(&server));
    accepted(ask(&authenticator, &token).await);
    for broken in [|_: &str, _: &[u8]| Reply::Status(500), |_: &str, _: &[u8]| Reply::Json("{}".to_owned())] {
        server.answer(broken);
        let unknown = Signer::elliptic_curve("P-256", "other").sign(&claims(&server));
        assert_eq!(summary(&ask(&authenticator, &unknown).await), "the token's key is not known");
        accepted(ask(&authenticator, &token).await);
        assert!(authenticator.status().all(|status| status.keys == 1 && status.problem.is_some()));
    }
}

#[tokio::test]
async fn keys_outlive_a_reload_of_the_settings() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    serve(&server, &[&signer]);
    let before = by_file(&server, &json!({}));
    let token = signer.sign(&claims(&server));
    accepted(ask(&before, &token).await);
    server.answer(|_, _| Reply::Status(500));
    let mappings = json!({ "claimMappings": { "username": { "claim": "sub", "prefix": "new:" } } });
    let after = by_file(&server, &mappings).with_keys_of(&before);
    drop(before);
    assert_eq!(summary(&ask(&after, &token).await), "new:ann: ");
    assert_eq!(server.count(KEYS), 1);
    // With another CA, the keys are fetched again.
    let elsewhere = json!({ "issuer": { "discoveryURL": format!("{}/other", server.url()) } });
    let other = by_file(&server, &elsewhere).with_keys_of(&after);
    assert!(summary(&ask(&other, &token).await).starts_with("cannot be verified now"));
}

#[tokio::test]
async fn a_silent_issuer_delays_requests_for_a_bounded_time() {
    let server = Server::start().await;
    server.answer(|_, _| Reply::Silence);
    let signer = Signer::elliptic_curve("P-256", "k1");
    let key_settings = KeyFetchSettings { max_wait: Duration::from_millis(20), ..immediate() };
    let settings = JwtSettings::from_value(&element(&server, &json!({}))).unwrap();
    let authenticator = JwtAuthenticator::with_key_settings([settings], &key_settings);
    let verdict = ask(&authenticator, &signer.sign(&claims(&server))).await;
    let expected = "cannot be verified now: no keys of the issuer: the issuer has not responded yet";
    assert_eq!(summary(&verdict), expected);
}

#[tokio::test]
async fn an_issuer_with_a_foreign_certificate_is_not_trusted() {
    let (server, other) = (Server::start().await, Server::start().await);
    let signer = Signer::elliptic_curve("P-256", "k1");
    serve(&server, &[&signer]);
    let changes = json!({ "issuer": { "certificateAuthority": other.certificate_authority } });
    let verdict = ask(&by_file(&server, &changes), &signer.sign(&claims(&server))).await;
    assert!(summary(&verdict).contains("TLS handshake"), "{}", summary(&verdict));
}

#[tokio::test]
async fn the_discovery_url_is_configurable() {
    let (server, inside) = (Server::start().await, Server::start().await);
    let signer = Signer::elliptic_curve("P-256", "k1");
    let document = json!({ "issuer": server.url(), "jwks_uri": format!("{}/k", inside.url()) });
    let keys = json!({ "keys": [signer.jwk()] });
    inside.answer(move |path, _| match path {
        "/discovery" => Reply::Json(document.to_string()),
        "/k" => Reply::Json(keys.to_string()),
        _ => Reply::Status(404),
    });
    let changes = json!({ "issuer": {
        "discoveryURL": format!("{}/discovery", inside.url()),
        "certificateAuthority": inside.certificate_authority,
    } });
    accepted(ask(&by_file(&server, &changes), &signer.sign(&claims(&server))).await);
    assert_eq!(server.count(DISCOVERY), 0);
}

#[tokio::test]
async fn expressions_map_users_and_rules_validate_them() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    serve(&server, &[&signer]);
    let authenticator = by_file(
        &server,
        &json!({
            "issuer": { "audiences": ["client", "more"], "audienceMatchPolicy": "MatchAny" },
            "claimMappings": {
                "username": { "expression": "'oidc:' + claims.sub" },
                "groups": { "expression": "claims.groups.map(group, 'g:' + group)" },
                "uid": { "expression": "claims.?uid.orValue('')" },
                "extra": [
                    { "key": "example.com/mail", "valueExpression": "claims.email" },
                    { "key": "example.com/none", "valueExpression": "''" },
                ],
            },
            "claimValidationRules": [
                { "claim": "email", "requiredValue": "ann@example.com" },
                { "expression": "claims.exp - claims.iat <= 600", "message": "lives too long" },
                { "expression": "!has(claims.banned)" },
            ],
            "userValidationRules": [
                { "expression": "!user.username.startsWith('system:')", "message": "reserved name" },
                { "expression": "user.groups.all(group, group != 'g:root')", "message": "no root" },
                { "expression": "'example.com/mail' in user.extra" },
            ],
        }),
    );
    let identity = accepted(ask(&authenticator, &signer.sign(&claims(&server))).await);
    let user = identity.user();
    assert_eq!((user.name.as_str(), &user.uid), ("oidc:ann", &None));
    assert_eq!(user.groups, ["g:team", "g:other"]);
    let keys: Vec<_> = user.extra.keys().map(String::as_str).collect();
    assert_eq!(keys, ["authentication.kubernetes.io/credential-id", "example.com/mail"]);
    let rule = "a rule of the configuration is not satisfied";
    let cases = [
        (json!({ "uid": "7" }), "oidc:ann: g:team g:other".to_owned()),
        (json!({ "exp": NOW + 601 }), format!("{rule}: lives too long")),
        (json!({ "banned": true }), format!("{rule}: !has(claims.banned)")),
        (json!({ "groups": ["root"] }), format!("{rule}: no root")),
        (
            json!({ "email": "bob@example.com" }),
            "claim \"email\" does not have the required value".to_owned(),
        ),
        (
            json!({ "groups": null }),
            format!("{rule}: \"claims.groups.map(group, 'g:' + group)\" cannot be evaluated for this token"),
        ),
        (
            json!({ "uid": 7 }),
            format!("{rule}: \"claims.?uid.orValue('')\" evaluates to something of a wrong type"),
        ),
    ];
    for (changes, expected) in cases {
        let verdict = ask(&authenticator, &signer.sign(&with(claims(&server), &changes))).await;
        assert_eq!(summary(&verdict), expected, "{changes}");
    }
}

#[tokio::test]
async fn a_token_is_accepted_until_it_expires() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    serve(&server, &[&signer]);
    let authenticator = fairlead_authn::TokenUnion::new().with(by_file(&server, &json!({})));
    let token = signer.sign(&with(claims(&server), &json!({ "exp": NOW + 5 })));
    accepted(ask_at(&authenticator, &token, at(NOW + 4)).await);
    let verdict = ask_at(&authenticator, &token, at(NOW + 5)).await;
    assert_eq!(summary(&verdict), "jwt: the token has expired");
}
