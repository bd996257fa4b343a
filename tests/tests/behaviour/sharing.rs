//! APIs that a workspace publishes, bound on another shard, through the gateway.

use fairlead_certs::Client as Role;
use fairlead_client::{Client, DeleteOptions, PatchType, WriteOptions};
use http::Method;
use serde_json::{Value, json};

use crate::installation::{Installation, WORKSPACES, until, until_gone, until_object};
use crate::wire::{RawResponse, send};

const SCHEMAS: &str = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas";
const CONVERSIONS: &str = "/apis/apis.kcp.io/v1alpha1/apiconversions";
const SLICES: &str = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices";
const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
pub const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ANCHORS: &str = "/apis/harbour.example.com/v1/namespaces/default/anchors";

/// Publishes Anchors as the export `harbour` of a workspace. Returns the identity.
pub async fn publish(installation: &Installation, provider: &str, versions: Value, claims: Value) -> String {
    publish_in(&installation.admin(provider), versions, claims).await
}

/// [`publish`] in the workspace of a client.
pub async fn publish_in(admin: &Client, versions: Value, claims: Value) -> String {
    let schema = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": { "name": "v1.anchors.harbour.example.com" },
        "spec": {
            "group": "harbour.example.com", "scope": "Namespaced",
            "names": { "plural": "anchors", "singular": "anchor", "kind": "Anchor", "listKind": "AnchorList" },
            "versions": versions, "conversion": { "strategy": "None" },
        },
    });
    let resource = json!({
        "group": "harbour.example.com", "name": "anchors", "schema": "v1.anchors.harbour.example.com",
        "storage": { "crd": {} },
    });
    let export = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": { "name": "harbour" },
        "spec": { "resources": [resource], "permissionClaims": claims },
    });
    create(admin, SCHEMAS, &schema).await;
    create(admin, EXPORTS, &export).await;
    let known = |export: &Value| export["status"]["identityHash"].is_string();
    let export = until_object(admin, EXPORTS, "harbour", known).await;
    export["status"]["identityHash"].as_str().unwrap().to_owned()
}

/// One version without a schema.
pub fn one_version() -> Value {
    let mut version =
        version("v1", true, json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
    version["subresources"] = json!({ "status": {} });
    json!([version])
}

/// Binds the export of `root:harbour` in a workspace, with decisions about claims.
pub async fn bind(installation: &Installation, consumer: &str, claims: Value) {
    bind_in(&installation.admin(consumer), "root:harbour", claims).await;
}

/// [`bind`] in the workspace of a client, with the path of the export's workspace.
pub async fn bind_in(admin: &Client, provider: &str, claims: Value) {
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": "harbour" },
        "spec": {
            "reference": { "export": { "path": provider, "name": "harbour" } },
            "permissionClaims": claims,
        },
    });
    // Refused until the copy of the export has reached the shard of the binding.
    until("a binding is created", || async {
        admin.create::<Value>(BINDINGS, &binding, &WriteOptions::default()).await
    })
    .await;
    until_object(admin, BINDINGS, "harbour", |binding| binding["status"]["phase"] == "Bound").await;
}

/// The whole table of identities, verbs and claims is tested in the shard; here are the ways through the gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_opens_on_other_shards_what_claims_and_rights_permit() {
    let installation = Installation::start(2).await;
    let provider = installation.workspace("root", "harbour", "root").await;
    let secrets = json!({ "group": "", "resource": "secrets", "verbs": ["*"] });
    let identity = publish(&installation, &provider, one_version(), json!([secrets])).await;
    let consumer = installation.workspace("root", "fleet", "shard-1").await;
    let unbound = installation.workspace("root", "yard", "shard-1").await;
    let decided = |state: &str| {
        let claim = json!({ "group": "", "resource": "secrets", "verbs": ["*"], "state": state,
                            "selector": { "matchAll": true } });
        json!([claim])
    };
    bind(&installation, &consumer, decided("Accepted")).await;
    grant(&installation, &provider, "apiexports/content", "controller").await;
    for path in [&consumer, &unbound] {
        grant(&installation, path, "*", "owner").await;
    }
    let admin = installation.admin(&consumer);
    let anchor =
        json!({ "apiVersion": "harbour.example.com/v1", "kind": "Anchor", "metadata": { "name": "bow" } });
    create(&admin, ANCHORS, &anchor).await;
    for (collection, kind) in [("secrets", "Secret"), ("configmaps", "ConfigMap")] {
        let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "paint" } });
        create(&admin, &format!("/api/v1/namespaces/default/{collection}"), &object).await;
    }
    let slice = until_object(&installation.admin(&provider), SLICES, "harbour", |slice| {
        slice["status"]["endpoints"].as_array().is_some_and(|all| !all.is_empty())
    })
    .await;
    let url = slice["status"]["endpoints"][0]["url"].as_str().unwrap().to_owned();
    let view = &url[url.find("/services").unwrap()..];
    let [consumer_cluster, unbound_cluster] =
        [logical_cluster(&installation, &consumer).await, logical_cluster(&installation, &unbound).await];
    let wildcard = "/clusters/*/apis/harbour.example.com/v1/anchors";
    let in_view = |cluster: &str, rest: &str| format!("{view}/clusters/{cluster}{rest}");
    let secret = "/api/v1/namespaces/default/secrets/paint";
    let config_map = "/api/v1/namespaces/default/configmaps/paint";
    let of_consumer = |rest: &str| in_view(&consumer_cluster, rest);
    let mut differences = Vec::new();
    for (user, method, path, code) in [
        ("controller", Method::GET, in_view("*", "/apis/harbour.example.com/v1/anchors"), 200),
        ("controller", Method::GET, of_consumer(&format!("{ANCHORS}/bow")), 200),
        ("controller", Method::GET, of_consumer(secret), 200),
        ("controller", Method::GET, of_consumer(config_map), 403),
        ("controller", Method::GET, of_consumer("/api/v1/configmaps?watch=1"), 403),
        ("controller", Method::GET, of_consumer(BINDINGS), 200),
        ("controller", Method::DELETE, of_consumer(config_map), 403),
        ("controller", Method::GET, in_view(&unbound_cluster, secret), 403),
        ("controller", Method::GET, in_view(&unbound_cluster, ANCHORS), 403),
        ("owner", Method::GET, in_view("*", "/apis/harbour.example.com/v1/anchors"), 403),
        ("owner", Method::GET, of_consumer(secret), 403),
        ("nobody", Method::GET, of_consumer(&format!("{ANCHORS}/bow")), 403),
        ("controller", Method::GET, format!("{consumer}{ANCHORS}/bow"), 403),
        ("controller", Method::GET, format!("{consumer}{secret}"), 403),
        ("controller", Method::GET, format!("{wildcard}:{identity}"), 403),
        ("owner", Method::GET, format!("{consumer}{ANCHORS}/bow"), 200),
        ("owner", Method::GET, format!("{provider}{EXPORTS}/harbour"), 403),
        ("owner", Method::GET, format!("{provider}/api/v1/secrets"), 403),
        ("owner", Method::GET, format!("{wildcard}:{identity}"), 403),
        ("nobody", Method::GET, format!("{consumer}{ANCHORS}"), 403),
        ("nobody", Method::GET, format!("{wildcard}:{}", "0".repeat(64)), 403),
    ] {
        let response = send_as(&installation, user, method.clone(), &path, "").await;
        if response.code != code {
            differences.push(format!("{method} {path} as {user}: {} instead of {code}", response.code));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": "harbour" },
        "spec": { "reference": { "export": { "path": "root:harbour", "name": "harbour" } } },
    });
    let path = format!("{unbound}{BINDINGS}");
    let refused = send_as(&installation, "owner", Method::POST, &path, &binding.to_string()).await;
    assert_eq!(refused.code, 403, "a binding without the verb bind: {}", refused.text);
    // A claim that is withdrawn closes what it opened.
    let withdrawn = json!({ "spec": { "permissionClaims": decided("Rejected") } });
    let options = WriteOptions::default();
    let path = format!("{BINDINGS}/harbour");
    let _: Value = admin.patch(&path, PatchType::Merge, &withdrawn, &options).await.unwrap();
    until("the secret is hidden", || async {
        let response = send_as(&installation, "controller", Method::GET, &of_consumer(secret), "").await;
        if matches!(response.code, 403 | 404) { Ok(()) } else { Err(response) }
    })
    .await;
    let own = of_consumer(&format!("{ANCHORS}/bow"));
    let response = send_as(&installation, "controller", Method::GET, &own, "").await;
    assert_eq!(response.code, 200, "its own API stays: {}", response.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_made_again_under_its_path_has_its_consumers_again() {
    let installation = Installation::start(2).await;
    let claim = json!({ "group": "", "resource": "configmaps", "verbs": ["*"] });
    let provider = installation.workspace("root", "harbour", "root").await;
    publish(&installation, &provider, one_version(), json!([claim])).await;
    let mut consumers = Vec::new();
    for (name, shard) in [("near", "root"), ("far", "shard-1")] {
        let path = installation.workspace("root", name, shard).await;
        let accepted = json!({ "group": "", "resource": "configmaps", "verbs": ["*"], "state": "Accepted",
                               "selector": { "matchAll": true } });
        bind(&installation, &path, json!([accepted])).await;
        let admin = installation.admin(&path);
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "paint" } });
        create(&admin, CONFIG_MAPS, &object).await;
        let labelled = |object: &Value| object["metadata"]["labels"].is_object();
        let labels = until_object(&admin, CONFIG_MAPS, "paint", labelled).await["metadata"]["labels"].clone();
        consumers.push((admin, labels));
    }
    let root = installation.admin("/clusters/root");
    let first = logical_cluster(&installation, &provider).await;
    root.delete(&format!("{WORKSPACES}/harbour"), &DeleteOptions::default()).await.unwrap();
    until_gone(&root, WORKSPACES, "harbour").await;
    for (consumer, _) in &consumers {
        until_object(consumer, BINDINGS, "harbour", |binding| !is_valid(binding)).await;
    }
    let provider = installation.workspace("root", "harbour", "shard-1").await;
    publish(&installation, &provider, one_version(), json!([claim])).await;
    let second = logical_cluster(&installation, &provider).await;
    assert_ne!(first, second);
    for (consumer, labels) in &consumers {
        let again =
            |binding: &Value| is_valid(binding) && binding["status"]["apiExportClusterName"] == *second;
        until_object(consumer, BINDINGS, "harbour", again).await;
        let relabelled = |object: &Value| {
            object["metadata"]["labels"].is_object() && object["metadata"]["labels"] != *labels
        };
        until_object(consumer, CONFIG_MAPS, "paint", relabelled).await;
    }
    // The endpoint slice finds consumers by the label of their bindings: one on each shard.
    let has_both = |slice: &Value| slice["status"]["endpoints"].as_array().is_some_and(|all| all.len() == 2);
    until_object(&installation.admin(&provider), SLICES, "harbour", has_both).await;
}

fn is_valid(binding: &Value) -> bool {
    let conditions = binding["status"]["conditions"].as_array().into_iter().flatten();
    let mut valid = conditions.filter(|condition| condition["type"] == "APIExportValid");
    valid.any(|condition| condition["status"] == "True")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_a_provider_convert_objects_on_other_shards() {
    let installation = Installation::start(2).await;
    let provider = installation.workspace("root", "harbour", "root").await;
    let text = |field: &str| {
        let spec = json!({ "type": "object", "properties": { field: { "type": "string" } } });
        json!({ "type": "object", "properties": { "spec": spec } })
    };
    let versions = json!([version("v1", true, text("load")), version("v2", false, text("burden"))]);
    let rules = |transformation: &str| {
        let to_second =
            json!([{ "field": "spec.load", "destination": "spec.burden", "transformation": transformation }]);
        let to_first = json!([{ "field": "spec.burden", "destination": "spec.load" }]);
        json!({ "conversions": [
            { "from": "v1", "to": "v2", "rules": to_second },
            { "from": "v2", "to": "v1", "rules": to_first },
        ] })
    };
    let conversion = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
        "metadata": { "name": "v1.anchors.harbour.example.com" }, "spec": rules("'at first ' + self"),
    });
    let owner = installation.admin(&provider);
    publish(&installation, &provider, versions, json!([])).await;
    create(&owner, CONVERSIONS, &conversion).await;
    let consumer = installation.workspace("root", "fleet", "shard-1").await;
    bind(&installation, &consumer, json!([])).await;
    let admin = installation.admin(&consumer);
    let anchor = json!({
        "apiVersion": "harbour.example.com/v1", "kind": "Anchor", "metadata": { "name": "bow" },
        "spec": { "load": "heavy" },
    });
    create(&admin, ANCHORS, &anchor).await;
    let second = ANCHORS.replace("/v1/", "/v2/");
    let burden = |wanted: &'static str| {
        let (admin, path) = (&admin, format!("{second}/bow"));
        until(wanted, move || {
            let path = path.clone();
            async move {
                let read: Value = admin.get_json(&path).await.map_err(|error| error.to_string())?;
                if read["spec"] == json!({ "burden": wanted }) { Ok(()) } else { Err(read.to_string()) }
            }
        })
    };
    burden("at first heavy").await;
    let changed = json!({ "spec": rules("'later ' + self") });
    let path = format!("{CONVERSIONS}/v1.anchors.harbour.example.com");
    let _: Value = owner.patch(&path, PatchType::Merge, &changed, &WriteOptions::default()).await.unwrap();
    burden("later heavy").await;
    let anchor = json!({
        "apiVersion": "harbour.example.com/v2", "kind": "Anchor", "metadata": { "name": "stern" },
        "spec": { "burden": "light" },
    });
    create(&admin, &second, &anchor).await;
    let read: Value = admin.get_json(&format!("{ANCHORS}/stern")).await.unwrap();
    assert_eq!(read["spec"], json!({ "load": "light" }));
}

fn version(name: &str, storage: bool, schema: Value) -> Value {
    json!({ "name": name, "served": true, "storage": storage, "schema": schema })
}

async fn create(client: &Client, collection: &str, object: &Value) {
    client.create::<Value>(collection, object, &WriteOptions::default()).await.unwrap();
}

async fn logical_cluster(installation: &Installation, path: &str) -> String {
    let admin = installation.admin(path);
    let found: Value = admin.get_json("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").await.unwrap();
    found["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap().to_owned()
}

/// Permits a user to enter a workspace, and all verbs on resources of it: `*`, or a subresource of an APIExport.
async fn grant(installation: &Installation, path: &str, resource: &str, user: &str) {
    let admin = installation.admin(path);
    let group = if resource == "*" { "*" } else { "apis.kcp.io" };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": user },
        "rules": [
            { "apiGroups": [group], "resources": [resource], "verbs": ["*"] },
            { "nonResourceURLs": ["/"], "verbs": ["access"] },
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": user },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user },
    });
    create(&admin, &format!("{RBAC}/clusterroles"), &role).await;
    create(&admin, &format!("{RBAC}/clusterrolebindings"), &binding).await;
}

/// Sends a request as a user: to a workspace through the gateway, as a user whom the administrator impersonates; to a virtual
/// workspace as the gateway sends it to the shard.
async fn send_as(
    installation: &Installation,
    user: &str,
    method: Method,
    path: &str,
    body: &str,
) -> RawResponse {
    let (url, role, names) = if path.starts_with("/services") {
        (installation.server("shard-1").url, Role::FrontProxy, ["x-remote-user", "x-remote-group"])
    } else {
        let gateway = format!("https://127.0.0.1:{}", installation.port());
        (gateway, Role::Admin, ["impersonate-user", "impersonate-group"])
    };
    let headers =
        [("content-type", "application/json"), (names[0], user), (names[1], "system:authenticated")];
    send(&url, &installation.credentials(&role), method, path, &headers, body.to_owned()).await
}
