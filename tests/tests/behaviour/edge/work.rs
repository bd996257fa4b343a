//! Access through the listener for tokens.

use fairlead_certs::Client as Role;
use fairlead_client::Request;
use http::Method;
use http::header::{HeaderName, HeaderValue};
use serde_json::json;

use super::User;
use crate::installation::{
    Installation, WORKSPACES, client, code, create_workspace, until_object, until_ready, within, workspace,
};
use crate::kubectl::versions;

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// With the authorization code and the device flow, and with every kubectl: creates a workspace and works in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_sign_in_and_work_in_workspaces() {
    let installation = Installation::start(1).await;
    until_object(&installation.admin("/clusters/root"), BINDINGS, "development-user", |_| true).await;
    for (way, options) in [("code", "--no-browser"), ("device", "--device")] {
        let user = User::new(&installation, way);
        user.login(options, "developer").await;
        for kubectl in versions(&installation) {
            let name = format!("{way}-{}", kubectl.version().replace('.', "-"));
            let kubectl = |line: &str| {
                let mut command = user.command(kubectl.command().as_std().get_program().as_ref());
                command.args(line.split_whitespace());
                let user = &user;
                async move {
                    let finished = user.run(command).await;
                    assert!(finished.success, "{finished:?}");
                    finished.stdout
                }
            };
            let manifest = installation.scratch("manifests").join(format!("{name}.yaml"));
            std::fs::write(&manifest, workspace(&name, "root").to_string()).unwrap();
            kubectl(&format!("create -f {}", manifest.display())).await;
            until_ready(&installation.admin("/clusters/root"), &name).await;
            let inside = format!("--server={}/clusters/root:{name}", installation.edge());
            kubectl(&format!("{inside} create configmap greeting --from-literal=text=ahoy")).await;
            let found = kubectl(&format!("{inside} get configmap greeting -o jsonpath={{.data.text}}")).await;
            assert_eq!(found, "ahoy");
            assert_eq!(kubectl(&format!("{inside} auth can-i * *")).await.trim(), "yes");
            assert!(kubectl("get workspaces").await.contains(&name));
            kubectl(&format!("delete workspace {name} --wait=false")).await;
        }
    }
}

/// Certificates and invalid tokens do not authenticate. Users with valid tokens have the rights of RBAC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_come_from_rbac_and_certificates_do_not_authenticate() {
    let installation = Installation::start(1).await;
    let admin = installation.admin("/clusters/root");
    let anonymous = client(&installation.edge(), installation.anonymous());
    let masters = client(&installation.edge(), installation.credentials(&Role::Admin));
    for path in ["/clusters/root/api", "/clusters/root:nowhere/api", "/api"] {
        assert_eq!(code(&anonymous.get(path).await), 401, "{path}");
        assert_eq!(code(&masters.get(path).await), 401, "{path}");
        assert_eq!(code(&installation.bearer("made.up.token", "").get(path).await), 401, "{path}");
    }
    let visitor = User::new(&installation, "visitor").login("--no-browser", "visitor").await;
    let visitor = installation.bearer(&visitor, "/clusters/root");
    create_workspace(&admin, &workspace("ours", "root")).await;
    until_ready(&admin, "ours").await;
    let create = |name: &str| {
        Request::new(Method::POST, WORKSPACES)
            .with_body("application/json", workspace(name, "root").to_string())
    };
    let refused = visitor.request(create("theirs")).await;
    assert_eq!(code(&refused), 403);
    let output = refused.unwrap_err().to_string();
    assert!(output.contains("oidc:visitor"), "{output}");
    let inside = visitor.with_prefix("/clusters/root:ours");
    assert_eq!(code(&inside.get("/api/v1/configmaps").await), 403);
    let impersonating = Request::new(Method::GET, WORKSPACES)
        .with_header(HeaderName::from_static("impersonate-user"), HeaderValue::from_static("oidc:developer"));
    assert_eq!(code(&visitor.request(impersonating).await), 403);

    // A user of the issuer can be a subject of a binding like any other user.
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": "visitors" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "development-user" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "oidc:visitor" }],
    });
    let _: serde_json::Value = admin.create(BINDINGS, &binding, &Default::default()).await.unwrap();
    assert_eq!(code(&within("a workspace", visitor.request(create("theirs"))).await), 201);
}
