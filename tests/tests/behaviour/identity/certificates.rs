//! Certificate signing requests: created by a user, approved by an approver, signed by a signer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_certs::Client as Role;
use fairlead_client::{Client, WriteOptions};
use http::Method;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::Shard;
use crate::wire::{RawResponse, send};

const REQUESTS: &str = "/clusters/root/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(name: &str, signer: &str, organization: &str) -> Value {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::OrganizationName, organization);
    parameters.distinguished_name.push(DnType::CommonName, "ann");
    let key = KeyPair::generate().unwrap();
    let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"],
            "username": "forged", "expirationSeconds": 3600,
        },
    })
}

async fn as_user(shard: &Shard, user: &str, method: Method, path: &str, body: &Value) -> RawResponse {
    let headers = [
        ("content-type", "application/json"),
        ("x-remote-user", user),
        ("x-remote-group", "staff"),
        ("x-remote-group", "system:authenticated"),
    ];
    let credentials = shard.pki.credentials(&Role::FrontProxy).unwrap();
    send(&shard.url(), &credentials, method, path, &headers, body.to_string()).await
}

async fn grant(client: &Client, user: &str, rules: Value) {
    let rbac = "/clusters/root/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": user},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
    });
    let options = WriteOptions::default();
    let _: Value = client.create(&format!("{rbac}/clusterroles"), &role, &options).await.unwrap();
    let _: Value = client.create(&format!("{rbac}/clusterrolebindings"), &binding, &options).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_approved_and_signed_by_those_who_may() {
    let shard = Shard::start(json!({})).await;
    let master = shard.client(&Role::ShardAdmin);
    let all = json!({
        "apiGroups": ["certificates.k8s.io"], "verbs": ["*"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"],
    });
    let access = json!({"nonResourceURLs": ["/"], "verbs": ["access"]});
    let signers = |verb: &str| {
        json!({
            "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
            "resourceNames": ["example.com/*"], "verbs": [verb],
        })
    };
    grant(&master, "ann", json!([all, access])).await;
    grant(&master, "approver", json!([all, access, signers("approve")])).await;
    grant(&master, "signer", json!([all, access, signers("sign")])).await;

    // The server sets the user; the status cannot be created.
    let mut wanted = request("one", "example.com/signer", "team");
    wanted["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
    let made = as_user(&shard, "ann", Method::POST, REQUESTS, &wanted).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let made = made.json();
    assert_eq!(made["spec"]["username"], "ann");
    assert_eq!(made["spec"]["groups"], json!(["staff", "system:authenticated"]));
    assert_eq!(made["status"], json!({}));

    let masters = request("two", "kubernetes.io/kube-apiserver-client", "system:masters");
    let refused = as_user(&shard, "ann", Method::POST, REQUESTS, &masters).await;
    let expected =
        "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert!(refused.code == 403 && refused.text.contains(expected), "{}", refused.text);
    let mut broken = request("three", "example.com", "team");
    broken["spec"]["request"] = "eA==".into();
    let invalid = as_user(&shard, "ann", Method::POST, REQUESTS, &broken).await;
    assert_eq!(invalid.code, 422, "{}", invalid.text);

    let mut approved = made.clone();
    approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Because"}]});
    let approval = format!("{REQUESTS}/one/approval");
    let refused = as_user(&shard, "signer", Method::PUT, &approval, &approved).await;
    let expected = "user not permitted to approve requests with signerName \\\"example.com/signer\\\"";
    assert!(refused.code == 403 && refused.text.contains(expected), "{}", refused.text);
    let approved = as_user(&shard, "approver", Method::PUT, &approval, &approved).await;
    assert_eq!(approved.code, 200, "{}", approved.text);
    let approved = approved.json();
    assert!(approved["status"]["conditions"][0]["lastUpdateTime"].is_string(), "{approved}");

    let mut signed = approved.clone();
    let certificate = rcgen::generate_simple_self_signed(vec!["ann".to_owned()]).unwrap().cert.pem();
    signed["status"]["certificate"] = STANDARD.encode(&certificate).into();
    let status = format!("{REQUESTS}/one/status");
    let refused = as_user(&shard, "approver", Method::PUT, &status, &signed).await;
    assert!(refused.code == 403 && refused.text.contains("user not permitted to sign"), "{}", refused.text);
    let signed = as_user(&shard, "signer", Method::PUT, &status, &signed).await;
    assert_eq!(signed.code, 200, "{}", signed.text);

    let found: Value = master
        .get_json(&format!("{REQUESTS}?fieldSelector=spec.signerName%3Dexample.com/signer"))
        .await
        .unwrap();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    let none: Value =
        master.get_json(&format!("{REQUESTS}?fieldSelector=spec.signerName%3Dother")).await.unwrap();
    assert!(none["items"].as_array().unwrap().is_empty());
    let table = shard.pki.credentials(&Role::ShardAdmin).unwrap();
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = send(&shard.url(), &table, Method::GET, REQUESTS, &accept, "").await.json();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(
        (&cells[2], &cells[3], &cells[4], &cells[5]),
        (&json!("example.com/signer"), &json!("ann"), &json!("60m"), &json!("Approved,Issued"),)
    );
}
