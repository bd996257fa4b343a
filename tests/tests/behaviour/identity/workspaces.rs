//! Issuers that a workspace type trusts, for clients that reach the shard directly.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fairlead_certs::Client as Role;
use fairlead_client::{Client, WriteOptions};
use http::Method;
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};

use super::Shard;
use super::tls_server::TlsServer;
use crate::installation::{client, until, until_ready};
use crate::wire::{RawResponse, send};

const TENANCY: &str = "/apis/tenancy.kcp.io/v1alpha1";

/// An issuer with one key.
struct Issuer {
    server: TlsServer,
    key: KeyPair,
}

impl Issuer {
    async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        // An uncompressed point of P-256.
        let point = key.der_bytes()[1..].to_vec();
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let keys = json!({"keys": [{
            "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k",
            "x": encode(&point[..32]), "y": encode(&point[32..]),
        }]});
        let server = TlsServer::start(|url| {
            let document = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
            move |path: &str, _: &[u8]| match path {
                "/.well-known/openid-configuration" => (200, document.to_string()),
                "/keys" => (200, keys.to_string()),
                _ => (404, String::new()),
            }
        })
        .await;
        Self { server, key }
    }

    fn token(&self, user: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let claims = json!({
            "iss": self.server.url, "aud": "shop", "sub": user, "groups": ["team", "system:masters"],
            "iat": now.as_secs(), "exp": (now + Duration::from_secs(600)).as_secs(),
        });
        let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
        let signed = format!(
            "{}.{}",
            encode(json!({"alg": "ES256", "kid": "k"}).to_string()),
            encode(claims.to_string())
        );
        let signature = raw_signature(&self.key.sign(signed.as_bytes()).unwrap());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The two integers of a DER signature with 32 bytes each (RFC 7518, 3.4).
fn raw_signature(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut raw = Vec::new();
    for _ in 0..2 {
        let length = usize::from(rest[1]);
        let integer = &rest[2..2 + length];
        let integer = &integer[integer.len().saturating_sub(32)..];
        raw.extend(std::iter::repeat_n(0, 32 - integer.len()).chain(integer.iter().copied()));
        rest = &rest[2 + length..];
    }
    raw
}

async fn create(client: &Client, path: &str, object: Value) {
    let _: Value = client.create(path, &object, &WriteOptions::default()).await.unwrap();
}

async fn whoami(shard: &Shard, cluster: &str, token: &str) -> RawResponse {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let authorization = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", &*authorization)];
    let path = format!("/clusters/{cluster}/apis/authentication.k8s.io/v1/selfsubjectreviews");
    send(&shard.url(), &shard.pki.anonymous().unwrap(), Method::POST, &path, &headers, review.to_string())
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_issuer_of_a_workspace_type_authenticates_users_of_its_workspaces() {
    let issuer = Issuer::start().await;
    let shard = Shard::start(json!({"authentication": {"workspaces": true}})).await;
    let master = shard.client(&Role::ShardAdmin);
    let jwt = json!([{
        "issuer": {
            "url": issuer.server.url, "audiences": ["shop"], "audienceMatchPolicy": "MatchAny",
            "certificateAuthority": issuer.server.certificate,
        },
        "claimMappings": {
            "username": {"expression": "'oidc:' + claims.sub"},
            "groups": {"claim": "groups", "prefix": ""},
        },
    }]);
    create(
        &master,
        &format!("/clusters/root{TENANCY}/workspaceauthenticationconfigurations"),
        json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceAuthenticationConfiguration",
            "metadata": {"name": "shop"}, "spec": {"jwt": jwt},
        }),
    )
    .await;
    create(
        &master,
        &format!("/clusters/root{TENANCY}/workspacetypes"),
        json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "shop"},
            "spec": {
                "extend": {"with": [{"name": "universal", "path": "root"}]},
                "authenticationConfigurations": [{"name": "shop"}],
            },
        }),
    )
    .await;
    let root =
        client(&format!("{}/clusters/root", shard.url()), shard.pki.credentials(&Role::ShardAdmin).unwrap());
    create(
        &root,
        &format!("{TENANCY}/workspaces"),
        json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "team"},
            "spec": {"type": {"name": "shop", "path": "root"}},
        }),
    )
    .await;
    let workspace = until_ready(&root, "team").await;
    let cluster = workspace["spec"]["cluster"].as_str().unwrap();
    create(&master, "/clusters/root:team/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "ann"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "oidc:ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    }))
    .await;

    let token = issuer.token("ann");
    let known = until("the issuer is known", || async {
        let response = whoami(&shard, "root:team", &token).await;
        if response.code == 201 { Ok(response) } else { Err(response.text) }
    })
    .await;
    let user = &known.json()["status"]["userInfo"];
    assert_eq!(user["username"], "oidc:ann");
    assert_eq!(user["groups"], json!(["team", "system:authenticated"]));
    assert_eq!(user["extra"]["authentication.kcp.io/cluster-name"], json!([cluster]));
    assert_eq!(user["extra"]["authentication.kcp.io/scopes"], json!([format!("cluster:{cluster}")]));
    assert_eq!(whoami(&shard, "root", &token).await.code, 401);

    for (token, expected) in [(&token, true), (&"other".to_owned(), false)] {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let path = "/clusters/root:team/apis/authentication.k8s.io/v1/tokenreviews";
        let reviewed: Value = master.create(path, &review, &WriteOptions::default()).await.unwrap();
        assert_eq!(reviewed["status"]["authenticated"] == true, expected, "{reviewed}");
    }

    // After a change other names follow; none may be of the system.
    let path = format!("/clusters/root{TENANCY}/workspaceauthenticationconfigurations/shop");
    let mut changed: Value = master.get_json(&path).await.unwrap();
    changed["spec"]["jwt"][0]["claimMappings"]["username"]["expression"] = "'system:' + claims.sub".into();
    let _: Value = master.replace(&path, &changed, &WriteOptions::default()).await.unwrap();
    until("the token is rejected", || async {
        match whoami(&shard, "root:team", &token).await.code {
            401 => Ok(()),
            code => Err(code),
        }
    })
    .await;
}
