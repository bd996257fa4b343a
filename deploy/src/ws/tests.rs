#![allow(clippy::unwrap_used, reason = "tests")]
//! `ws` against a server with a table of responses: its requests and its output.

use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::test_server::{CommandOutput, Server, failed, printed, record, status};

impl Server {
    /// Adds a workspace to which the user has access.
    fn open_workspace(&self, path: &str, kind: &str) {
        self.respond(&format!("GET /clusters/{path}/api"), 200, json!({ "versions": ["v1"] }));
        self.respond(&format!("GET /clusters/{path}/apis"), 200, json!({ "groups": [] }));
        let bindings = format!("GET /clusters/{path}/apis/apis.kcp.io/v1alpha2/apibindings");
        self.respond(&bindings, 200, json!({ "items": [] }));
        if let Some((parent, name)) = path.rsplit_once(':') {
            self.respond(&object(parent, name), 200, self.workspace(path, kind, "Ready"));
        }
    }

    fn workspace(&self, path: &str, kind: &str, phase: &str) -> Value {
        let name = path.rsplit(':').next().unwrap();
        let (kind_path, kind_name) = kind.rsplit_once(':').unwrap();
        json!({
            "metadata": { "name": name },
            "spec": {
                "type": { "path": kind_path, "name": kind_name },
                "URL": format!("{}/clusters/{path}", self.url),
            },
            "status": { "phase": phase },
        })
    }

    async fn run(&self, arguments: &[&str]) -> CommandOutput {
        #[derive(Parser)]
        struct CommandLine {
            #[command(flatten)]
            ws: WsCommand,
        }
        let kubeconfig = self.kubeconfig();
        let given = ["ws", "--kubeconfig", kubeconfig.to_str().unwrap()];
        let line = CommandLine::try_parse_from(given.iter().chain(arguments)).unwrap();
        record(async |output| line.ws.execute(output).await).await
    }
}

fn object(parent: &str, name: &str) -> String {
    format!("GET /clusters/{parent}/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}")
}

#[tokio::test]
async fn entering_checks_access_and_saves_the_current_workspace() {
    let server = Server::with_current("root").await;
    server.open_workspace("root:org", "root:organization");
    let here = printed("Current workspace is 'root:org' (type root:organization).\n");
    assert_eq!(server.run(&["org"]).await, here);
    assert_eq!(
        server.requests(),
        [
            "GET /clusters/root:org/api",
            "GET /clusters/root:org/apis",
            &object("root", "org"),
            "GET /clusters/root:org/apis/apis.kcp.io/v1alpha2/apibindings",
        ]
    );
    assert_eq!(server.run(&["."]).await, printed("Current workspace is 'root:org'.\n"));
    assert_eq!(server.run(&["current"]).await, printed("Current workspace is 'root:org'.\n"));
    assert_eq!(server.run(&[".", "--short"]).await, printed("root:org\n"));
    assert!(server.requests().is_empty(), "no request is needed");

    server.open_workspace("root", "");
    assert_eq!(server.run(&[".."]).await, printed("Current workspace is 'root' (type root).\n"));
    assert!(!server.requests().iter().any(|request| request.contains("/workspaces/")), "root has no parent");
    assert_eq!(server.run(&["-"]).await, printed("Current workspace is 'root:org'.\n"));
    assert_eq!(server.run(&[":"]).await, printed("Current workspace is 'root'.\n"));
    assert_eq!(server.run(&["use", ":root:org"]).await, here);
}

#[tokio::test]
async fn a_former_absolute_path_works_with_a_warning() {
    let server = Server::with_current("root:org").await;
    server.open_workspace("root", "");
    let CommandOutput { out, err, failure } = server.run(&["root"]).await;
    assert_eq!((out.as_str(), failure), ("Current workspace is 'root' (type root).\n", None));
    assert!(err.starts_with("Note: Using 'root:'") && err.ends_with(".\n"), "{err}");
}

#[tokio::test]
async fn each_refusal_has_its_message_and_changes_nothing() {
    let server = Server::with_current("root").await;
    server.respond(&object("root", "nope"), 404, status(404, "NotFound", "not found"));
    assert_eq!(server.run(&["nope"]).await, failed("workspace \"root:nope\" not found"));
    assert_eq!(server.run(&["secret"]).await, failed("access to workspace \"root:secret\" denied"));
    for part in ["api", "apis"] {
        server.respond(&format!("GET /clusters/root:empty/{part}"), 200, json!({}));
    }
    assert_eq!(server.run(&["empty"]).await, failed("access to workspace \"root:empty\" denied"));
    assert_eq!(server.run(&[".."]).await, failed("cannot go up from root"));
    assert_eq!(server.run(&["-"]).await, failed("no previous workspace found in kubeconfig"));
    server.respond("GET /clusters/root:sick/api", 500, status(500, "InternalError", "out of order"));
    assert_eq!(server.run(&["sick"]).await, failed("out of order"));
    assert_eq!(server.run(&["."]).await, printed("Current workspace is 'root'.\n"));
}

#[tokio::test]
async fn the_home_is_requested_in_root() {
    let server = Server::with_current("root:org").await;
    let home = "GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/~";
    let url = format!("{}/clusters/1abc", server.url);
    server.respond(home, 429, status(429, "TooManyRequests", "creating the home workspace"));
    server.respond(home, 200, json!({ "spec": { "URL": url } }));
    server.open_workspace("1abc", "");
    server.open_workspace("1abc:kid", "root:universal");
    let CommandOutput { out, err, failure } = server.run(&[]).await;
    assert_eq!((out.as_str(), failure), ("Current workspace is '1abc'.\n", None));
    assert!(err.contains("'cd' semantics"), "{err}");
    assert_eq!(server.requests()[..2], [home, home]);
    assert_eq!(
        server.run(&["~:kid"]).await,
        printed("Current workspace is '1abc:kid' (type root:universal).\n")
    );
}

#[tokio::test]
async fn a_workspace_is_created_and_waited_for() {
    let server = Server::with_current("root").await;
    let collection = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";
    let made = server.workspace("root:a", "root:team", "");
    server.respond(&format!("POST {collection}"), 201, made.clone());
    server.respond(&object("root", "a"), 404, status(404, "NotFound", "not yet"));
    server.respond(&object("root", "a"), 200, made);
    server.open_workspace("root:a", "root:team");
    let arguments = ["create", "a", "--type", "root:Team", "--location-selector", "name=root", "--enter"];
    assert_eq!(
        server.run(&arguments).await,
        printed(
            "Workspace \"a\" (type root:team) created. Waiting for it to be ready...\n\
             Workspace \"a\" (type root:team) is ready to use.\n\
             Current workspace is 'root:a' (type root:team).\n"
        )
    );
    let requests = server.requests();
    let (request, body) = requests[0].split_once(" {").unwrap();
    assert_eq!(request, format!("POST {collection}"));
    let body: Value = serde_json::from_str(&format!("{{{body}")).unwrap();
    let expected = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": { "name": "a" },
        "spec": {
            "type": { "name": "team", "path": "root" },
            "location": { "selector": { "matchLabels": { "name": "root" } } },
        },
    });
    assert_eq!(body, expected);
    assert_eq!(requests[1..4], [object("root", "a"), object("root", "a"), object("root", "a")]);
}

#[tokio::test]
async fn a_workspace_that_exists_is_refused_or_accepted() {
    let server = Server::with_current("root").await;
    let refusal = status(409, "AlreadyExists", "workspaces.tenancy.kcp.io \"a\" already exists");
    server.respond("POST /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces", 409, refusal);
    server.open_workspace("root:a", "root:team");
    let refused = failed("workspaces.tenancy.kcp.io \"a\" already exists");
    assert_eq!(server.run(&["create", "a"]).await, refused);
    let spec = server.requests()[0].rsplit_once("\"spec\":").unwrap().1.to_owned();
    assert_eq!(spec, "{}}", "nothing is requested for that was not wished");
    assert_eq!(
        server.run(&["create", "a", "--ignore-existing"]).await,
        printed(
            "Workspace \"a\" (type root:team) already exists.\n\
             Workspace \"a\" (type root:team) is ready to use.\n"
        )
    );
}

#[tokio::test]
async fn a_tree_is_read_workspace_by_workspace() {
    let server = Server::with_current("root").await;
    let list = |path: &str, items: &[Value]| {
        let request = format!("GET /clusters/{path}/apis/tenancy.kcp.io/v1alpha1/workspaces");
        server.respond(&request, 200, json!({ "items": items }));
    };
    let mut dying = server.workspace("root:dying", "root:team", "Deleting");
    dying["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut mounted = server.workspace("root:mount", "root:team", "Ready");
    mounted["spec"]["mount"] = json!({ "ref": {} });
    list(
        "root",
        &[
            server.workspace("root:a", "root:team", "Ready"),
            dying,
            mounted,
            server.workspace("root:z", "root:team", "Ready"),
        ],
    );
    list("root:a", &[server.workspace("root:a:b", "root:team", "Initializing")]);
    list("root:a:b", &[]);
    for path in ["root", "root:a"] {
        let request = format!("GET /clusters/{path}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster");
        server.respond(&request, 200, json!({ "status": { "phase": "Ready" } }));
    }
    assert_eq!(
        server.run(&["tree"]).await,
        printed(".\n└── root\n    ├── a\n    │   └── b\n    ├── mount [m]\n    └── z [?]\n\n")
    );
    assert_eq!(server.requests().len(), 4);
    assert_eq!(
        server.run(&["tree", "-f"]).await,
        printed(
            ".\n└── root\n    ├── root:a\n    │   └── root:a:b\n    ├── root:mount [m]\n    └── root:z [?]\n\n"
        )
    );
    assert_eq!(
        server.run(&["tree", "--wide"]).await,
        printed(
            ".\n\
             └── root           ws=-             lc=Ready\n    \
                 ├── a          ws=Ready         lc=Ready\n    \
                 │   └── b      ws=Initializing  lc=-\n    \
                 ├── mount [m]\n    \
                 └── z [?]      ws=Ready         lc=-\n"
        )
    );
}

#[tokio::test]
async fn a_workspace_can_be_saved_as_a_context() {
    let server = Server::with_current("root:a").await;
    let created = printed("Created context \"mine\" and switched to it.\n");
    assert_eq!(server.run(&["create-context", "mine"]).await, created);
    let refused = failed("context \"mine\" already exists in kubeconfig, use --overwrite to update it");
    assert_eq!(server.run(&["create-context", "mine"]).await, refused);
    assert_eq!(server.run(&["create-context", "mine", "--overwrite"]).await, created);
    assert_eq!(
        server.run(&["tree", "--context", "nobody"]).await.failure.unwrap(),
        "the kubeconfig has no context named \"nobody\""
    );
    assert!(server.requests().is_empty());
}
