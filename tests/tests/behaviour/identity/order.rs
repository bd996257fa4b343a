//! The order of authorizers, and the webhook among them.

use fairlead_certs::Client as Role;
use fairlead_client::{Client, ClientError};
use http::Method;
use serde_json::{Value, json};

use super::Shard;
use super::webhook::Webhook;
use crate::installation::code;
use crate::wire::send;

const CONFIG_MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";

async fn shard_with(order: Option<&[&str]>, status: Value) -> (Shard, Webhook, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let webhook = Webhook::start(folder.path(), status).await;
    let mut authorization = json!({"webhook": {"kubeconfig": webhook.kubeconfig, "version": "v1"}});
    if let Some(order) = order {
        authorization["order"] = json!(order);
    }
    (Shard::start(json!({"authorization": authorization})).await, webhook, folder)
}

fn message(result: Result<fairlead_client::Response, ClientError>) -> String {
    result.unwrap_err().to_string()
}

async fn list(client: &Client, query: &str) -> Result<fairlead_client::Response, ClientError> {
    client.get(&format!("{CONFIG_MAPS}{query}")).await
}

async fn anonymous(shard: &Shard, path: &str) -> u16 {
    send(&shard.url(), &shard.pki.anonymous().unwrap(), Method::GET, path, &[], "").await.code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_before_rbac_decides() {
    let order = ["AlwaysAllowGroups", "AlwaysAllowPaths", "Webhook", "RBAC"];
    let (shard, webhook, _folder) = shard_with(Some(&order), json!({"allowed": true})).await;
    let admin = shard.client(&Role::Admin);
    webhook.take_reviews();

    // The gateway's certificate has no rights; the webhook gives it some.
    let nobody = shard.client(&Role::ExternalLogicalClusterAdmin);
    assert_eq!(code(&list(&nobody, "?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx").await), 200);
    let reviews = webhook.take_reviews();
    assert_eq!(reviews.len(), 1, "{reviews:?}");
    assert_eq!(reviews[0]["apiVersion"], "authorization.k8s.io/v1");
    let spec = &reviews[0]["spec"];
    assert_eq!(spec["user"], "external-logical-cluster-admin");
    assert_eq!(spec["extra"]["authorization.kcp.io/cluster-name"], json!(["root"]));
    let expected = json!({
        "namespace": "default", "verb": "list", "version": "v1", "resource": "configmaps", "name": "x",
        "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
        "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
    });
    assert_eq!(spec["resourceAttributes"], expected);

    // Results are cached, so another request shows the new verdict.
    assert_eq!(code(&list(&nobody, "?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx").await), 200);
    assert_eq!(webhook.take_reviews().len(), 0);
    webhook.set_status(json!({"allowed": false, "denied": true, "reason": "not on Sundays"}));
    let refusal = message(list(&admin, "").await);
    assert!(refusal.contains("not on Sundays"), "{refusal}");
    // Members of system:masters never reach it, and neither do probes.
    assert_eq!(code(&list(&shard.client(&Role::ShardAdmin), "").await), 200);
    assert_eq!(anonymous(&shard, "/healthz").await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_before_everything_decides_about_probes_too() {
    let order = ["Webhook", "AlwaysAllowGroups", "AlwaysAllowPaths", "RBAC"];
    let (shard, webhook, _folder) = shard_with(Some(&order), json!({"allowed": true})).await;
    assert_eq!(anonymous(&shard, "/livez").await, 200);
    webhook.set_status(json!({"allowed": false, "denied": true}));
    assert_eq!(anonymous(&shard, "/readyz").await, 403);
    assert_eq!(code(&list(&shard.client(&Role::Admin), "").await), 403);
    assert_eq!(code(&list(&shard.client(&Role::ShardAdmin), "").await), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_a_webhook_only_adds_to_rbac() {
    let (shard, webhook, _folder) = shard_with(None, json!({"allowed": false, "denied": true})).await;
    let admin = shard.client(&Role::Admin);
    webhook.take_reviews();
    assert_eq!(code(&list(&admin, "").await), 200);
    assert_eq!(anonymous(&shard, "/healthz").await, 200);
    assert_eq!(webhook.take_reviews().len(), 0);

    // What RBAC does not permit, the webhook may; one that responds with nonsense has no opinion.
    webhook.set_status(Value::Null);
    let nobody = shard.client(&Role::ExternalLogicalClusterAdmin);
    let refusal = message(list(&nobody, "").await);
    assert!(refusal.contains("access denied"), "{refusal}");
    webhook.set_status(json!({"allowed": true}));
    assert_eq!(code(&list(&nobody, "").await), 200);

    // Its verdict counts in reviews, and what a user may do is not completely known.
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"},
    });
    let path = "/clusters/root/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let reviewed: Value = admin.create(path, &review, &Default::default()).await.unwrap();
    assert_eq!(reviewed["status"]["incomplete"], true);
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "ann", "resourceAttributes": {"verb": "get", "resource": "secrets"}},
    });
    let path = "/clusters/root/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let reviewed: Value = admin.create(path, &review, &Default::default()).await.unwrap();
    assert_eq!(reviewed["status"]["allowed"], true, "{reviewed}");
}
