//! Arbitrary texts as tokens: no panic, and no forged token is accepted.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use fairlead_authn::{
    LookupPolicy, ServiceAccountSettings, ServiceAccountTokens, SharedKeys, Verdict, VerificationKeys,
    unverified_cluster_claim,
};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use serde_json::json;

use super::{
    NOW, ask,
    signing::{Signer, pem},
};

/// An authenticator, and a token that it accepts.
static TARGET: LazyLock<(ServiceAccountTokens, String)> = LazyLock::new(|| {
    let signer = Signer::elliptic_curve("P-256", "");
    let keys = VerificationKeys::from_pem(pem("PUBLIC KEY", &signer.public_der()).as_bytes()).unwrap();
    let settings = ServiceAccountSettings::default();
    let authenticator = ServiceAccountTokens::new(SharedKeys::new(keys), settings, LookupPolicy::Nothing);
    let token = signer.sign(&json!({
        "iss": "https://kcp.default.svc", "exp": NOW + 600,
        "kubernetes.io": {
            "clusterName": "abc", "namespace": "default",
            "serviceaccount": { "name": "robot", "uid": "u" },
        },
    }));
    (authenticator, token)
});

fn is_accepted(token: &str) -> bool {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::try_from(format!("Bearer {token}")) {
        headers.insert("authorization", value);
    }
    // The result does not matter; the call must return.
    let _ = unverified_cluster_claim(&headers);
    let verdict = ask(&TARGET.0, token).now_or_never().expect("no I/O");
    matches!(verdict, Verdict::Accepted(_))
}

/// A text that is JSON or resembles it.
fn nearly_json() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[\\[{\"}\\],:0-9a-z. -]{0,60}",
        Just("[".repeat(100_000)),
        Just(format!("{{\"iss\":{}", "{\"a\":".repeat(10_000))),
        any::<(u8, i64)>().prop_map(|(kind, number)| {
            let claim = ["exp", "nbf", "iss", "aud", "kubernetes.io"][usize::from(kind) % 5];
            json!({ "iss": "https://kcp.default.svc", claim: number }).to_string()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_arbitrary_text_is_accepted(text in any::<String>()) {
        prop_assert!(!is_accepted(&text));
    }

    #[test]
    fn no_arbitrary_three_parts_are_accepted(
        header in nearly_json(),
        payload in nearly_json(),
        signature in any::<Vec<u8>>(),
    ) {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let good = r#"{"alg":"ES256"}"#;
        for header in [header.as_str(), good] {
            let token =
                format!("{}.{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()), encode(&signature));
            prop_assert!(!is_accepted(&token));
        }
    }

    #[test]
    fn a_valid_token_with_one_change_is_refused(position in any::<prop::sample::Index>(), change in "[ -~]") {
        let good = &TARGET.1;
        let position = position.index(good.len());
        let changed = format!("{}{change}{}", &good[..position], &good[position + 1..]);
        prop_assert_eq!(is_accepted(&changed), changed == *good);
        let inserted = format!("{}{change}{}", &good[..position], &good[position..]);
        prop_assert!(!is_accepted(&inserted));
        prop_assert!(!is_accepted(&good[..position]));
    }
}
