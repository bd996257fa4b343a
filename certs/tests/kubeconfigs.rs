//! Kubeconfigs as written to files.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "tests")]

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, sync::LazyLock, time::SystemTime};

use base64::{Engine, engine::general_purpose::STANDARD};
use fairlead_certs::{Client, Error, Inventory, Kubeconfig, Layout, Plan, Renewal, WriteOutcome};
use serde_json::{Value, json};

static PKI: LazyLock<(tempfile::TempDir, Layout)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::new(directory.path().join("pki"));
    let plan = Plan::for_inventory(&Inventory::parse(["root"], [] as [&str; 0]).unwrap());
    plan.apply(&layout, SystemTime::now(), Renewal::WhenDue).unwrap();
    (directory, layout)
});

fn layout() -> &'static Layout {
    &PKI.1
}

struct Place {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.kubeconfig");
        Self { _directory: directory, path }
    }

    fn read(&self) -> Value {
        serde_saphyr::from_str(&fs::read_to_string(&self.path).unwrap()).unwrap()
    }
}

/// Names, servers and users, as `context (current) -> cluster server, user`.
fn summary(document: &Value) -> Vec<String> {
    let find = |list: &str, name: &Value| {
        document[list].as_array().unwrap().iter().find(|entry| &entry["name"] == name).unwrap().clone()
    };
    let contexts = document["contexts"].as_array().unwrap();
    contexts
        .iter()
        .map(|entry| {
            let context = &entry["context"];
            let server = &find("clusters", &context["cluster"])["cluster"]["server"];
            find("users", &context["user"]);
            let current = if document["current-context"] == entry["name"] { " (current)" } else { "" };
            format!(
                "{}{current} -> {} as {}",
                entry["name"].as_str().unwrap(),
                server.as_str().unwrap(),
                context["user"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn the_kubeconfig_of_the_admin_leads_to_root_through_the_gateway() {
    let place = Place::new();
    let kubeconfig = Kubeconfig::admin(layout(), "https://127.0.0.1:6443/").unwrap();
    assert_eq!(kubeconfig.write(&place.path).unwrap(), WriteOutcome::Created);
    let document = place.read();
    assert_eq!(
        summary(&document),
        [
            "root (current) -> https://127.0.0.1:6443/clusters/root as kcp-admin",
            "base -> https://127.0.0.1:6443 as kcp-admin"
        ]
    );
    assert_eq!((&document["apiVersion"], &document["kind"]), (&json!("v1"), &json!("Config")));
    assert_eq!(fs::metadata(&place.path).unwrap().permissions().mode() & 0o777, 0o600);

    let decode =
        |value: &Value| String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap();
    let user = &document["users"][0]["user"];
    let files = layout().client_cert(&Client::Admin);
    assert_eq!(decode(&user["client-certificate-data"]), fs::read_to_string(files.certificate).unwrap());
    assert_eq!(decode(&user["client-key-data"]), fs::read_to_string(files.key).unwrap());
    let authority = decode(&document["clusters"][0]["cluster"]["certificate-authority-data"]);
    assert_eq!(authority, fs::read_to_string(layout().serving_ca()).unwrap());
}

#[test]
fn without_client_certificates_a_plugin_supplies_the_token() {
    let place = Place::new();
    let kubeconfig = Kubeconfig::with_credential_plugin(
        layout(),
        "https://edge:8443/",
        "/x/fairlead",
        &["login", "--issuer=i"],
    );
    kubeconfig.unwrap().write(&place.path).unwrap();
    let document = place.read();
    assert_eq!(
        summary(&document),
        ["root (current) -> https://edge:8443/clusters/root as oidc", "base -> https://edge:8443 as oidc"]
    );
    let user = &document["users"][0]["user"];
    assert_eq!(user["exec"]["command"], "/x/fairlead");
    assert_eq!(user["exec"]["args"], json!(["login", "--issuer=i"]));
    assert_eq!(user["exec"]["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(user.as_object().unwrap().len(), 1, "no key: {user}");
}

#[test]
fn the_kubeconfig_of_a_shard_has_kcps_contexts() {
    let place = Place::new();
    Kubeconfig::shard_admin(layout(), "https://localhost:6444").unwrap().write(&place.path).unwrap();
    assert_eq!(
        summary(&place.read()),
        [
            "root (current) -> https://localhost:6444/clusters/root as kcp-admin",
            "base -> https://localhost:6444 as kcp-admin",
            "shard-base -> https://localhost:6444 as shard-admin",
            "system:admin -> https://localhost:6444/clusters/system:admin as shard-admin",
        ]
    );
}

#[test]
fn writing_again_changes_only_a_new_address() {
    let place = Place::new();
    let write = |url: &str| Kubeconfig::admin(layout(), url).unwrap().write(&place.path).unwrap();
    write("https://127.0.0.1:6443");
    let before = fs::read(&place.path).unwrap();
    assert_eq!(write("https://127.0.0.1:6443"), WriteOutcome::Unchanged);
    assert_eq!(fs::read(&place.path).unwrap(), before);
    assert_eq!(write("https://127.0.0.1:7443"), WriteOutcome::Updated);
    assert!(summary(&place.read())[0].contains(":7443/clusters/root"));
}

#[test]
fn entries_of_others_are_kept() {
    let place = Place::new();
    let theirs = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "workspace.kcp.io/current",
        "extensions": [{"name": "x"}],
        "clusters": [
            {"name": "root", "cluster": {"server": "https://old"}},
            {"name": "workspace.kcp.io/current", "cluster": {"server": "https://h/clusters/root:team"}},
        ],
        "users": null,
        "contexts": [
            {"name": "workspace.kcp.io/current",
             "context": {"cluster": "workspace.kcp.io/current", "user": "kcp-admin"}},
        ],
    });
    fs::write(&place.path, serde_json::to_string(&theirs).unwrap()).unwrap();
    let kubeconfig = Kubeconfig::admin(layout(), "https://127.0.0.1:6443").unwrap();
    assert_eq!(kubeconfig.write(&place.path).unwrap(), WriteOutcome::Updated);
    let document = place.read();
    assert_eq!(
        summary(&document),
        [
            "workspace.kcp.io/current (current) -> https://h/clusters/root:team as kcp-admin",
            "root -> https://127.0.0.1:6443/clusters/root as kcp-admin",
            "base -> https://127.0.0.1:6443 as kcp-admin"
        ]
    );
    assert_eq!(document["extensions"], theirs["extensions"]);
    assert_eq!(kubeconfig.write(&place.path).unwrap(), WriteOutcome::Unchanged);
}

#[test]
fn an_invalid_current_context_is_replaced() {
    let place = Place::new();
    fs::write(&place.path, "current-context: gone\n").unwrap();
    Kubeconfig::admin(layout(), "https://h:1").unwrap().write(&place.path).unwrap();
    assert_eq!(place.read()["current-context"], "root");
}

#[test]
fn a_file_that_is_no_kubeconfig_is_not_overwritten() {
    for text in ["- a\n", "a: [", "clusters: 7\n", "plain words"] {
        let place = Place::new();
        fs::write(&place.path, text).unwrap();
        let error = Kubeconfig::admin(layout(), "https://h:1").unwrap().write(&place.path).unwrap_err();
        assert!(matches!(error, Error::Kubeconfig { .. }), "{error}");
        assert_eq!(fs::read_to_string(&place.path).unwrap(), text);
    }
}

#[test]
fn a_symbolic_link_is_followed() {
    let place = Place::new();
    let link = place.path.with_file_name("link");
    fs::write(&place.path, "").unwrap();
    std::os::unix::fs::symlink(&place.path, &link).unwrap();
    Kubeconfig::admin(layout(), "https://h:1").unwrap().write(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(place.read()["current-context"], "root");
}

#[test]
fn references_to_missing_entries_are_refused() {
    let cases = [
        Kubeconfig::builder().current("root"),
        Kubeconfig::builder().cluster("a", "https://h", "").context("root", "a", "nobody").current("root"),
        Kubeconfig::builder().user("u", "", "").context("root", "nowhere", "u").current("root"),
    ];
    let problems = cases.map(|builder| builder.build().unwrap_err().to_string());
    assert_eq!(
        problems,
        [
            "kubeconfig (new): there is no context \"root\"",
            "kubeconfig (new): there is no user \"nobody\"",
            "kubeconfig (new): there is no cluster \"nowhere\"",
        ]
    );
}

#[test]
fn debug_output_shows_no_key() {
    let kubeconfig = Kubeconfig::admin(layout(), "https://h:1").unwrap();
    let key = STANDARD.encode(fs::read(layout().client_cert(&Client::Admin).key).unwrap());
    assert!(kubeconfig.to_yaml().unwrap().contains(&key));
    assert!(!format!("{kubeconfig:?}").contains(&key[60..120]));
}

#[test]
fn the_text_is_plain_yaml() {
    let text = Kubeconfig::builder()
        .cluster("system:admin", "https://h:1/clusters/system:admin", "ca")
        .user("on", "certificate", "key")
        .context("1", "system:admin", "on")
        .current("1")
        .build()
        .unwrap()
        .to_yaml()
        .unwrap();
    assert_eq!(
        text,
        "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: Y2E=
    server: https://h:1/clusters/system:admin
  name: system:admin
contexts:
- context:
    cluster: system:admin
    user: \"on\"
  name: \"1\"
current-context: \"1\"
kind: Config
preferences: {}
users:
- name: \"on\"
  user:
    client-certificate-data: Y2VydGlmaWNhdGU=
    client-key-data: a2V5
"
    );
}
