//! Who gets in at the door for tokens, and what they may do.

use fairlead_certs::Client as Role;
use fairlead_client::Request;
use http::Method;
use http::header::{HeaderName, HeaderValue};
use serde_json::json;

use super::Person;
use crate::installation::{
    Installation, WORKSPACES, client, code, create_workspace, until_object, until_ready, within, workspace,
};
use crate::kubectl::versions;

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// By code and by device, with every kubectl: a workspace is made at the edge, and worked in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_sign_in_and_work() {
    let installation = Installation::start(1).await;
    until_object(&installation.admin("/clusters/root"), BINDINGS, "development-user", |_| true).await;
    for (way, options) in [("code", "--no-browser"), ("device", "--device")] {
        let person = Person::new(&installation, way);
        person.login(options, "developer").await;
        for kubectl in versions(&installation) {
            let name = format!("{way}-{}", kubectl.version().replace('.', "-"));
            let kubectl = |line: &str| {
                let mut command = person.command(kubectl.command().as_std().get_program().as_ref());
                command.args(line.split_whitespace());
                let person = &person;
                async move {
                    let ended = person.run(command).await;
                    assert!(ended.success, "{ended:?}");
                    ended.stdout
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

/// Certificates are nobody, and neither is who has no good token; who has one may do what RBAC says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_come_from_rbac_and_certificates_are_nobody() {
    let installation = Installation::start(1).await;
    let admin = installation.admin("/clusters/root");
    let anonymous = client(&installation.edge(), installation.anonymous());
    let masters = client(&installation.edge(), installation.credentials(&Role::Admin));
    for path in ["/clusters/root/api", "/clusters/root:nowhere/api", "/api"] {
        assert_eq!(code(&anonymous.get(path).await), 401, "{path}");
        assert_eq!(code(&masters.get(path).await), 401, "{path}");
        assert_eq!(code(&installation.bearer("made.up.token", "").get(path).await), 401, "{path}");
    }
    let visitor = Person::new(&installation, "visitor").login("--no-browser", "visitor").await;
    let visitor = installation.bearer(&visitor, "/clusters/root");
    create_workspace(&admin, &workspace("ours", "root")).await;
    until_ready(&admin, "ours").await;
    let create = |name: &str| {
        Request::new(Method::POST, WORKSPACES)
            .with_body("application/json", workspace(name, "root").to_string())
    };
    let refused = visitor.request(create("theirs")).await;
    assert_eq!(code(&refused), 403);
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("oidc:visitor"), "{told}");
    let inside = visitor.with_prefix("/clusters/root:ours");
    assert_eq!(code(&inside.get("/api/v1/configmaps").await), 403);
    let impersonating = Request::new(Method::GET, WORKSPACES)
        .with_header(HeaderName::from_static("impersonate-user"), HeaderValue::from_static("oidc:developer"));
    assert_eq!(code(&visitor.request(impersonating).await), 403);

    // Rights are given to a user of the issuer as to anybody else.
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
