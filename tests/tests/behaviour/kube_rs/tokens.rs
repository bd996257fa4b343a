//! Tokens of service accounts: requested, used, reviewed and withdrawn.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_client::{Client, DeleteOptions, WriteOptions};
use http::Method;
use serde_json::{Value, json};

use crate::installation::{Installation, until, until_object};
use crate::wire::{RawResponse, send};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn request_token(client: &Client, spec: Value) -> String {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": spec});
    let path = format!("{ACCOUNTS}/bot/token");
    let issued: Value = client.create(&path, &request, &WriteOptions::default()).await.unwrap();
    issued["status"]["token"].as_str().unwrap().to_owned()
}

/// Asks the shard who the user of a token is.
async fn whoami(installation: &Installation, path: &str, token: &str) -> RawResponse {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let authorization = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", &*authorization)];
    let path = format!("{path}/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let shard = installation.server("root").url;
    send(&shard, &installation.anonymous(), Method::POST, &path, &headers, review.to_string()).await
}

async fn review(client: &Client, token: &str, audiences: Value) -> Value {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": audiences},
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let reviewed: Value = client.create(path, &review, &WriteOptions::default()).await.unwrap();
    reviewed["status"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_its_service_account_until_the_account_is_deleted() {
    let installation = Installation::start(1).await;
    let path = installation.workspace("root", "shop", "root").await;
    let shop = installation.admin(&path);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    let _: Value = shop.create(ACCOUNTS, &account, &WriteOptions::default()).await.unwrap();
    let cluster: Value = shop.get_json("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").await.unwrap();
    let here =
        format!("/clusters/{}", cluster["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap());

    let token = request_token(&shop, json!({"expirationSeconds": 600})).await;
    let known = whoami(&installation, &here, &token).await;
    assert_eq!(known.code, 201, "{}", known.text);
    assert_eq!(known.json()["status"]["userInfo"]["username"], "system:serviceaccount:default:bot");
    let forged = format!("{}x", &token[..token.len() - 1]);
    assert_eq!(whoami(&installation, &here, &forged).await.code, 401);

    // A token for another audience is not accepted here, but can be reviewed for it.
    let foreign = request_token(&shop, json!({"audiences": ["vault"]})).await;
    assert_eq!(whoami(&installation, &here, &foreign).await.code, 401);
    for (token, audiences, expected) in [
        (&token, json!([]), Some(json!(["https://kcp.default.svc"]))),
        (&token, json!(["vault"]), None),
        (&foreign, json!(["vault", "other"]), Some(json!(["vault"]))),
        (&foreign, json!([]), None),
        (&forged, json!([]), None),
    ] {
        let status = review(&shop, token, audiences.clone()).await;
        assert_eq!(status["authenticated"] == true, expected.is_some(), "{audiences}: {status}");
        match expected {
            Some(expected) => {
                assert_eq!(status["audiences"], expected);
                assert_eq!(status["user"]["username"], "system:serviceaccount:default:bot");
            }
            None => assert_eq!(status["error"], "invalid bearer token"),
        }
    }

    shop.delete(&format!("{ACCOUNTS}/bot"), &DeleteOptions::default()).await.unwrap();
    until("the token is rejected", || async {
        match whoami(&installation, &here, &token).await.code {
            401 => Ok(()),
            code => Err(code),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_issuer_publishes_the_keys_of_its_tokens() {
    let installation = Installation::start(1).await;
    let root = installation.admin("/clusters/root");
    let configuration: Value = root.get_json("/.well-known/openid-configuration").await.unwrap();
    assert_eq!(configuration["issuer"], "https://kcp.default.svc");
    assert!(configuration["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"));
    let keys: Value = root.get_json("/openid/v1/jwks").await.unwrap();
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1, "{keys}");
    assert_eq!(keys["keys"][0]["use"], "sig");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_of_an_account_contains_a_token_until_it_is_deleted() {
    let installation = Installation::start(1).await;
    let path = installation.workspace("root", "shop", "root").await;
    let shop = installation.admin(&path);
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |account: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "default-token", "annotations": {"kubernetes.io/service-account.name": account}},
        })
    };
    let _: Value = shop.create(secrets, &secret("default"), &WriteOptions::default()).await.unwrap();
    let made =
        until_object(&shop, secrets, "default-token", |secret| secret["data"]["token"].is_string()).await;
    let decoded = |field: &str| {
        let bytes = STANDARD.decode(made["data"][field].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(decoded("namespace"), "default");
    assert!(decoded("ca.crt").starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(made["metadata"]["annotations"]["kubernetes.io/service-account.uid"].is_string(), "{made}");

    // A client in a pod knows host and port only; its token names the logical cluster.
    let token = decoded("token");
    let known = whoami(&installation, "", &token).await;
    assert_eq!(known.code, 201, "{}", known.text);
    assert_eq!(known.json()["status"]["userInfo"]["username"], "system:serviceaccount:default:default");
    shop.delete(&format!("{secrets}/default-token"), &DeleteOptions::default()).await.unwrap();
    until("the token is rejected", || async {
        match whoami(&installation, "", &token).await.code {
            401 => Ok(()),
            code => Err(code),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_verifies_tokens_of_logical_clusters_on_other_shards() {
    let installation = Installation::start(2).await;
    let path = installation.workspace("root", "far", "shard-1").await;
    let far = installation.admin(&path);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    let _: Value = far.create(ACCOUNTS, &account, &WriteOptions::default()).await.unwrap();
    let token = request_token(&far, json!({"expirationSeconds": 600})).await;
    // The account is authenticated in root, to which all authenticated users have access.
    let known = whoami(&installation, "/clusters/root", &token).await;
    assert_eq!(known.code, 201, "{}", known.text);
    far.delete(&format!("{ACCOUNTS}/bot"), &DeleteOptions::default()).await.unwrap();
    until("the token is rejected", || async {
        match whoami(&installation, "/clusters/root", &token).await.code {
            401 => Ok(()),
            code => Err(code),
        }
    })
    .await;
}
