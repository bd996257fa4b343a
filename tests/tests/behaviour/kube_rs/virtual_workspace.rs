//! The example of a virtual workspace of one's own, behind the gateway.

use fairlead_certs::{CertificateFiles, Client as Role, Kubeconfig, Server};
use fairlead_client::{ClientError, Request, Response};
use fairlead_tests::harness::{Process, Program, binary, free_port};
use futures_util::TryStreamExt;
use http::{HeaderName, HeaderValue, Method};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::client;
use crate::installation::{Installation, client as client_of, code, within};

/// The group whose members may read, that of kcp-admin.
const READERS: &str = "system:kcp:admin";
const LABEL: &str = "example.com/public";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_example_shows_only_labelled_objects_behind_the_gateway() {
    let mut installation = Installation::start(1).await;
    let shop = installation.workspace("root", "shop", "root").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&installation, &shop).await);
    for (name, label) in [("shown", Some("true")), ("other", Some("false")), ("plain", None)] {
        maps.create(&PostParams::default(), &config_map(name, label)).await.unwrap();
    }
    let cluster = maps.get("shown").await.unwrap().annotations()["kcp.io/cluster"].clone();
    let example = Example::start(&mut installation, &shop).await;
    // The gateway has been restarted: a client of its own.
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&installation, &shop).await);
    let prefix = format!("/services/labelled/clusters/{cluster}");
    let viewer = client(&installation, &prefix).await;

    let resources = viewer.list_core_api_resources("v1").await.unwrap().resources;
    let shown = resources.iter().map(|resource| (&*resource.name, resource.verbs.join(",")));
    assert_eq!(shown.collect::<Vec<_>>(), [("configmaps", "get,list,watch".to_owned())]);

    let view: Api<ConfigMap> = Api::default_namespaced(viewer.clone());
    assert_eq!(names(&view).await, ["shown"]);
    let everywhere = client(&installation, "/services/labelled/clusters/*").await;
    assert_eq!(names(&Api::all(everywhere)).await, ["shown"]);
    assert_eq!(
        names(&Api::all(client(&installation, "/services/labelled/clusters/root").await)).await,
        [""; 0]
    );
    let original = maps.get("shown").await.unwrap();
    let copy = view.get("shown").await.unwrap();
    assert_eq!((copy.uid(), &copy.data, copy.labels()), (original.uid(), &original.data, original.labels()));
    for hidden in ["plain", "other", "missing"] {
        assert!(view.get_opt(hidden).await.unwrap().is_none(), "{hidden}");
    }
    let refused = view.delete("shown", &DeleteParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 405), "{refused:?}");

    an_object_enters_and_leaves_a_watch_with_its_label(&maps, &view).await;
    the_identity_is_that_of_the_gateway(&installation, &example, &prefix).await;
}

async fn an_object_enters_and_leaves_a_watch_with_its_label(maps: &Api<ConfigMap>, view: &Api<ConfigMap>) {
    let listed = view.list(&ListParams::default()).await.unwrap();
    let revision = listed.metadata.resource_version.unwrap();
    let events = view.watch(&WatchParams::default(), &revision).await.unwrap();
    let mut events = std::pin::pin!(events);
    let label = |value: Value| json!({ "metadata": { "labels": { LABEL: value } } });
    for (name, patch, expected) in [
        ("plain", label(json!("true")), "ADDED plain"),
        ("plain", json!({ "data": { "colour": "red" } }), "MODIFIED plain"),
        // No event: the object was and is no part of the view.
        ("other", json!({ "data": { "colour": "red" } }), ""),
        ("shown", label(Value::Null), "DELETED shown"),
        ("plain", label(json!("false")), "DELETED plain"),
        ("shown", label(json!("true")), "ADDED shown"),
    ] {
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        if !expected.is_empty() {
            let event = within(expected, events.try_next()).await.unwrap().unwrap();
            assert_eq!(described(&event), expected);
        }
    }
    maps.delete("shown", &DeleteParams::default()).await.unwrap();
    let event = within("the deletion", events.try_next()).await.unwrap().unwrap();
    assert_eq!(described(&event), "DELETED shown");
}

async fn the_identity_is_that_of_the_gateway(installation: &Installation, example: &Example, prefix: &str) {
    let list = format!("{prefix}/api/v1/configmaps");
    let through_gateway = |role: &Role| client_of(&installation.gateway(), installation.credentials(role));
    let direct = |credentials| client_of(&example.url, credentials);
    let forged = [("x-remote-user", "mallory"), ("x-remote-group", READERS)];
    let anonymous = || installation.anonymous();
    let of = |role: &Role| installation.credentials(role);
    let cases = [
        ("a member of the group", through_gateway(&Role::Admin), &[][..], 200),
        ("another user", through_gateway(&Role::ExternalLogicalClusterAdmin), &[], 403),
        ("forged headers at the gateway", through_gateway(&Role::ExternalLogicalClusterAdmin), &forged, 403),
        ("no credential", direct(anonymous()), &[], 401),
        ("forged headers without a certificate", direct(anonymous()), &forged, 401),
        ("a user's certificate", direct(of(&Role::Admin)), &[], 401),
        ("a user's certificate with forged headers", direct(of(&Role::Admin)), &forged, 401),
        ("a gateway's certificate without headers", direct(of(&Role::FrontProxy)), &[], 401),
        ("a gateway's certificate with headers", direct(of(&Role::FrontProxy)), &forged, 200),
        ("another gateway's certificate", direct(of(&Role::FrontProxyEdge)), &forged, 401),
    ];
    for (case, client, headers, expected) in cases {
        let mut request = Request::new(Method::GET, &*list);
        for (name, value) in headers {
            request = request.with_header(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let response: Result<Response, ClientError> = client.request(request).await;
        assert_eq!(code(&response), expected, "{case}: {response:?}");
    }
}

/// The running example.
struct Example {
    url: String,
    _process: Process,
}

impl Example {
    /// Starts the example for the config maps of a workspace, and maps its path in the gateway.
    async fn start(installation: &mut Installation, workspace: &str) -> Self {
        let (layout, folder) = (installation.layout(), installation.scratch("example"));
        let port = free_port().unwrap();
        let serving_ca = std::fs::read_to_string(layout.serving_ca()).unwrap();
        Kubeconfig::builder()
            .cluster("workspace", &format!("{}{workspace}", installation.gateway()), &serving_ca)
            .client(&layout, &Role::Admin)
            .unwrap()
            .context("workspace", "workspace", &Role::Admin.user_name())
            .current("workspace")
            .build()
            .unwrap()
            .write(&folder.join("workspace.kubeconfig"))
            .unwrap();
        let CertificateFiles { certificate, key } = layout.serving_cert(&Server::Gateway);
        let config = json!({
            "serving": {
                "address": format!("127.0.0.1:{port}"), "certificate": certificate, "privateKey": key,
            },
            "trust": { "requestHeaderCA": layout.requestheader_ca() },
            "kubeconfig": "workspace.kubeconfig",
        });
        std::fs::write(folder.join("labelled.yaml"), config.to_string()).unwrap();
        let program = Program::at(binary("examples/labelled").unwrap(), "labelled", &folder);
        let label = format!("{LABEL}=true");
        let arguments = ["labelled.yaml", "v1", "configmaps", &label, READERS];
        let mut process = program.args(arguments).start().unwrap();
        let url = format!("https://127.0.0.1:{port}");
        process.until_ready(&client_of(&url, installation.anonymous())).await.unwrap();
        installation.map_path("/services/labelled/", &url).await;
        Self { url, _process: process }
    }
}

async fn names(view: &Api<ConfigMap>) -> Vec<String> {
    view.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
}

fn described(event: &WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Added(map) => format!("ADDED {}", map.name_any()),
        WatchEvent::Modified(map) => format!("MODIFIED {}", map.name_any()),
        WatchEvent::Deleted(map) => format!("DELETED {}", map.name_any()),
        other => format!("{other:?}"),
    }
}

fn config_map(name: &str, label: Option<&str>) -> ConfigMap {
    let labels = label.map(|value| json!({ LABEL: value }));
    let map = json!({ "metadata": { "name": name, "labels": labels }, "data": { "colour": "blue" } });
    serde_json::from_value(map).unwrap()
}
