//! Isolation while claims, objects and exports change.

use std::collections::VecDeque;
use std::sync::Arc;

use fairlead_apiserver::Response;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::installation::{CONSUMER, Installation, MASTER, PROVIDER, roles};

const VIEW: &str = "/services/apiexport/<provider>/widgets/clusters";
const MAPS: &str = "api/v1/namespaces/shared/configmaps";
const BINDINGS: &str = "apis/apis.kcp.io/v1alpha2/apibindings";
const EXPORTS: &str = "apis/apis.kcp.io/v1alpha2/apiexports";
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");

/// Sends a merge patch.
async fn merge(installation: &Installation, user: &str, path: &str, patch: &Value) -> (u16, Value) {
    read(installation.open(user, "PATCH", path, &[MERGE], patch).await).await
}

async fn read(response: Response) -> (u16, Value) {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// The events of a watch.
pub(super) struct Events {
    response: Response,
    pending: VecDeque<Value>,
}

impl Events {
    /// Opens a watch of config maps in the view, from now on.
    async fn open(installation: &Installation, cluster: &str) -> Self {
        let path = format!("{VIEW}/{cluster}/api/v1/configmaps");
        let latest = installation.send(MASTER, "GET", &path, &Value::Null).await.json();
        let revision = latest["metadata"]["resourceVersion"].as_str().unwrap();
        Self::of(installation, PROVIDER, &format!("{path}?watch=1&resourceVersion={revision}")).await
    }

    /// Opens a watch.
    pub(super) async fn of(installation: &Installation, user: &str, path: &str) -> Self {
        let response = installation.open(user, "GET", path, &[], &Value::Null).await;
        assert_eq!(response.status(), 200, "{path}");
        Self { response, pending: VecDeque::new() }
    }

    /// Waits for the end of the watch. Returns whether it came without another event.
    pub(super) async fn end(&mut self) -> bool {
        self.pending.is_empty() && self.response.body_mut().frame().await.is_none()
    }

    pub(super) async fn next(&mut self) -> Value {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            let frame = self.response.body_mut().frame().await.unwrap().unwrap();
            let text = std::str::from_utf8(frame.data_ref().unwrap()).unwrap().to_owned();
            self.pending.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
            self.pending.retain(|event| event["type"] != "BOOKMARK");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_the_provider_ends_for_an_object_with_its_claim() {
    let installation = Installation::start().await;
    let mut watches =
        [Events::open(&installation, "*").await, Events::open(&installation, "<selected>").await];
    let red = format!("/clusters/<selected>/{MAPS}/red");
    // The object leaves the claim with the change that makes it confidential.
    let hidden = json!({"metadata": {"labels": {"team": "blue"}}, "data": {"key": "confidential"}});
    assert_eq!(merge(&installation, CONSUMER, &red, &hidden).await.0, 200);
    assert_eq!(merge(&installation, CONSUMER, &red, &json!({"data": {"key": "more"}})).await.0, 200);
    let shown = json!({"metadata": {"labels": {"team": "red"}}, "data": {"key": "public"}});
    assert_eq!(merge(&installation, CONSUMER, &red, &shown).await.0, 200);
    for watch in &mut watches {
        let (gone, back) = (watch.next().await, watch.next().await);
        assert_eq!(gone["type"], "DELETED", "{gone}");
        assert_eq!(gone["object"]["data"], Value::Null, "{gone}");
        assert_eq!(back["type"], "ADDED", "{back}");
        assert_eq!(back["object"]["data"]["key"], "public", "{back}");
    }

    let mut watch = Events::open(&installation, "*").await;
    let binding = format!("/clusters/<accepted>/{BINDINGS}/widgets");
    let rejected = json!({"spec": {"permissionClaims": []}});
    assert_eq!(merge(&installation, CONSUMER, &binding, &rejected).await.0, 200);
    let own = format!("{VIEW}/<accepted>/{MAPS}/red");
    let refused = installation.send(PROVIDER, "GET", &own, &Value::Null).await;
    assert_eq!(refused.code, 403, "at once: {}", refused.text);
    installation
        .until(&binding, |found| {
            found["status"]["appliedPermissionClaims"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
    let mut gone = 0;
    while gone < 2 {
        let event = watch.next().await;
        assert_eq!(event["type"], "DELETED", "{event}");
        gone += usize::from(event["object"]["metadata"]["namespace"] == "shared");
    }
    let all = installation.send(PROVIDER, "GET", &format!("{VIEW}/*/api/v1/configmaps"), &Value::Null).await;
    assert!(!all.text.contains(&installation.resolved("\"<accepted>\"")), "{}", all.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_not_refused_because_a_claim_changes_at_the_same_time() {
    let installation = Arc::new(Installation::start().await);
    let binding = format!("/clusters/<accepted>/{BINDINGS}/widgets");
    let claims =
        installation.send(MASTER, "GET", &binding, &Value::Null).await.json()["spec"]["permissionClaims"]
            .clone();
    let writing = tokio::spawn({
        let installation = installation.clone();
        async move {
            for index in 0..600 {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("written-{index}")},
                });
                installation.create(&format!("/clusters/<accepted>/{MAPS}"), map).await;
            }
        }
    });
    while !writing.is_finished() {
        for claims in [&json!([]), &claims] {
            let patch = json!({"spec": {"permissionClaims": claims}});
            assert_eq!(merge(&installation, CONSUMER, &binding, &patch).await.0, 200);
        }
    }
    writing.await.unwrap();
    // The objects that were written with the labels of other claims get those of the last ones.
    installation
        .until(&format!("{VIEW}/<accepted>/{MAPS}"), |found| {
            found["items"].as_array().is_some_and(|maps| maps.len() > 600)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_of_a_built_in_resource_shows_none_of_its_objects() {
    let installation = Installation::start().await;
    let apis = "/clusters/<other>/apis/apis.kcp.io";
    let schema = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": {"name": "v1.secrets.core"},
        "spec": {
            "group": "", "scope": "Namespaced",
            "names": {"plural": "secrets", "singular": "secret", "kind": "Secret", "listKind": "SecretList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }],
        },
    });
    installation.create(&format!("{apis}/v1alpha1/apiresourceschemas"), schema).await;
    let resources =
        json!([{"group": "", "name": "secrets", "schema": "v1.secrets.core", "storage": {"crd": {}}}]);
    let export = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "shadow"},
        "spec": {"resources": resources},
    });
    installation.create(&format!("{apis}/v1alpha2/apiexports"), export).await;
    let path = format!("{apis}/v1alpha2/apiexports/shadow");
    installation.until(&path, |found| found["status"]["identityHash"].is_string()).await;
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "shadow"},
        "spec": {"reference": {"export": {"path": "root:other", "name": "shadow"}}},
    });
    installation.create(&format!("/clusters/<unbound>/{BINDINGS}"), binding).await;
    let bound = format!("/clusters/<unbound>/{BINDINGS}/shadow");
    installation.until(&bound, |found| found["status"]["boundResources"][0]["resource"] == "secrets").await;
    let view = "/services/apiexport/<other>/shadow/clusters";
    let secrets = "api/v1/namespaces/shared/secrets";
    for user in [MASTER, "publisher"] {
        for path in [format!("{view}/<unbound>/{secrets}"), format!("{view}/*/api/v1/secrets")] {
            let found = installation.send(user, "GET", &path, &Value::Null).await;
            assert!(!found.text.contains("\"plain\""), "{user} {path}: {} {}", found.code, found.text);
        }
        let found =
            installation.send(user, "GET", &format!("{view}/<unbound>/{secrets}/plain"), &Value::Null).await;
        assert!(!found.code.is_success(), "{user}: {}", found.text);
    }
    // The bound resource of this name permits nothing once the export claims it instead.
    let claims = json!([{"group": "", "resource": "secrets", "verbs": ["*"]}]);
    let given_up = json!({"spec": {"resources": [], "permissionClaims": claims}});
    let (code, changed) = merge(&installation, MASTER, &path, &given_up).await;
    assert_eq!(code, 200, "{changed}");
    installation.until(&bound, |found| found["status"]["exportPermissionClaims"].is_array()).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "forced"}});
    let created =
        installation.send("publisher", "POST", &format!("{view}/<unbound>/{secrets}"), &secret).await;
    assert_eq!(created.code, 403, "{}", created.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_obtains_an_identity_a_claim_or_a_binding_by_forged_fields() {
    let installation = Installation::start().await;
    let export = format!("/clusters/<provider>/{EXPORTS}/widgets");
    let hash = installation.send(MASTER, "GET", &export, &Value::Null).await.json()["status"]["identityHash"]
        .clone();
    let forged = json!({"status": {"identityHash": "<gadgets>"}});
    assert_eq!(merge(&installation, "publisher", &format!("{export}/status"), &forged).await.0, 403);
    let (code, kept) = merge(&installation, "publisher", &export, &forged).await;
    assert_eq!((code, &kept["status"]["identityHash"]), (200, &hash));

    let label = |name: &str| format!("claimed.internal.apis.kcp.io/{name}");
    let red = format!("/clusters/<rejected>/{MAPS}/red");
    let accepted =
        installation.send(MASTER, "GET", &format!("/clusters/<accepted>/{MAPS}/red"), &Value::Null).await;
    let labels = accepted.json()["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), 2, "{labels}");
    for user in [CONSUMER, MASTER] {
        let (code, changed) =
            merge(&installation, user, &red, &json!({"metadata": {"labels": labels}})).await;
        assert_eq!((code, &changed["metadata"]["labels"]), (200, &json!({"team": "red"})), "{user}");
    }
    let binding = format!("/clusters/<rejected>/{BINDINGS}/gadgets");
    let before =
        installation.send(MASTER, "GET", &binding, &Value::Null).await.json()["metadata"]["labels"].clone();
    let foreign = json!({"metadata": {"labels": {"internal.apis.kcp.io/export": "x", (label("x")): "y"}}});
    merge(&installation, CONSUMER, &binding, &foreign).await;
    let after =
        installation.send(MASTER, "GET", &binding, &Value::Null).await.json()["metadata"]["labels"].clone();
    assert_eq!(after, before);
    let (code, _) =
        merge(&installation, CONSUMER, &format!("{binding}/status"), &json!({"status": {}})).await;
    assert_eq!(code, 403);

    // Binding needs the permission of the export's workspace, which no impersonation gives.
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "mine"},
        "spec": {"reference": {"export": {"path": "root:provider", "name": "widgets"}}},
    });
    let warrant = r#"{"user":"anyone","groups":["system:kcp:admin"]}"#;
    let (name, own) = (("impersonate-user", "anyone"), ("impersonate-user", "stranger"));
    // This user may bind the export, and the client may do everything in its own workspace.
    let publisher = r#"{"user":"publisher"}"#;
    let groups = r#"{"user":"publisher","groups":["system:authenticated"]}"#;
    for headers in [
        &[][..],
        &[name],
        &[name, ("impersonate-group", "system:kcp:admin")],
        &[own, ("impersonate-extra-authorization.kcp.io%2fwarrant", warrant)],
        &[own, ("impersonate-extra-authorization.kcp.io%2fwarrant", publisher)],
        &[own, ("impersonate-extra-authorization.kcp.io%2fwarrant", groups)],
        &[
            ("impersonate-user", "system:serviceaccount:default:controller"),
            ("impersonate-extra-authentication.kcp.io%2fcluster-name", "<provider>"),
        ],
    ] {
        let path = format!("/clusters/<unbound>/{BINDINGS}");
        let created = installation.open("stranger", "POST", &path, headers, &binding).await;
        let (code, status) = read(created).await;
        assert_eq!(code, 403, "{headers:?} {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_outside_a_claim_answer_no_question() {
    let installation = Installation::start().await;
    let plain = format!("{VIEW}/<selected>/{MAPS}/plain");
    let patch = "application/json-patch+json";
    let test = json!([{"op": "test", "path": "/metadata/name", "value": "other"}]);
    let apply =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}, "data": {"a": "b"}});
    let mut replaced = apply.clone();
    replaced["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let preconditions = json!({"preconditions": {"uid": "x", "resourceVersion": "1"}});
    for (method, path, kind, body) in [
        ("GET", plain.clone(), "application/json", &Value::Null),
        ("PATCH", plain.clone(), patch, &test),
        ("PATCH", format!("{plain}?fieldManager=x&force=true"), "application/apply-patch+yaml", &apply),
        ("PUT", plain.clone(), "application/json", &replaced),
        ("DELETE", plain.clone(), "application/json", &preconditions),
    ] {
        let response = installation.open(PROVIDER, method, &path, &[("content-type", kind)], body).await;
        let (code, status) = read(response).await;
        assert_eq!(code, 404, "{method} {kind}: {status}");
        assert_eq!(status["message"], "configmaps \"plain\" not found", "{method} {kind}");
    }
    // A page of one list does not continue another one.
    let secrets = "/clusters/<selected>/api/v1/namespaces/shared/secrets?limit=1";
    let page = installation.send(CONSUMER, "GET", secrets, &Value::Null).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    for path in [
        format!("{VIEW}/<selected>/{MAPS}?continue={token}"),
        format!("{VIEW}/*/api/v1/configmaps?continue={token}"),
    ] {
        let found = installation.send(PROVIDER, "GET", &path, &Value::Null).await;
        assert!(!found.text.contains("\"plain\"") || path.contains('*'), "{path}: {}", found.text);
        assert!(!found.text.contains("Secret"), "{path}: {}", found.text);
    }
    // The labels of a claim stay on what the provider writes.
    let selected = format!("{VIEW}/<selected>/{MAPS}");
    let (code, kept) = merge(
        &installation,
        PROVIDER,
        &format!("{selected}/red"),
        &json!({"metadata": {"labels": {"team": null}}}),
    )
    .await;
    assert_eq!((code, &kept["metadata"]["labels"]["team"]), (200, &"red".into()));
    let (code, refused) = merge(
        &installation,
        PROVIDER,
        &format!("{selected}/red"),
        &json!({"metadata": {"labels": {"team": "x"}}}),
    )
    .await;
    assert_eq!(code, 403, "{refused}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    let created = installation.send(PROVIDER, "POST", &selected, &map).await;
    assert_eq!((created.code.as_u16(), &created.json()["metadata"]["labels"]["team"]), (201, &"red".into()));
    let nowhere = format!("{VIEW}/<accepted>/api/v1/namespaces/absent/configmaps");
    assert_eq!(installation.send(PROVIDER, "POST", &nowhere, &map).await.code, 404);
    // What selects nothing of the claim deletes nothing.
    for query in ["labelSelector=team!%3Dred", "labelSelector=!team", "fieldSelector=metadata.name%3Dplain"] {
        let deleted =
            installation.send(PROVIDER, "DELETE", &format!("{selected}?{query}"), &Value::Null).await;
        assert_eq!(deleted.code, 200, "{query}");
    }
    let direct = format!("/clusters/<selected>/{MAPS}");
    assert_eq!(installation.send(PROVIDER, "DELETE", &selected, &Value::Null).await.code, 200);
    for (name, code) in [("plain", 200), ("red", 404), ("made", 404)] {
        let found = installation.send(CONSUMER, "GET", &format!("{direct}/{name}"), &Value::Null).await;
        assert_eq!(found.code, code, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_creates_an_object_only_with_the_permission_to_create() {
    let installation = Installation::start().await;
    let role = |name: &str, verbs: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs},
                {"nonResourceURLs": ["/"], "verbs": ["access"]},
            ],
        })
    };
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}, "spec": {}});
    let path = "/clusters/<unbound>/apis/coordination.k8s.io/v1/namespaces/shared/leases/x";
    for (name, verbs, code) in [("updates", json!(["update"]), 403), ("creates", json!(["create"]), 201)] {
        installation.create(&roles("unbound"), role(name, verbs)).await;
        let updater = json!({"kind": "User", "name": "updater"});
        installation.bind_role("unbound", name, name, &updater).await;
        let put = installation.send("updater", "PUT", path, &lease).await;
        assert_eq!(put.code, code, "{name}: {}", put.text);
    }
}
