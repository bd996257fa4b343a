#![allow(clippy::unwrap_used, reason = "tests")]
//! `bind` and `claims` against a server with a table of responses: their requests and their output.

use clap::{Parser, Subcommand};
use serde_json::{Value, json};

use super::*;
use crate::test_server::{CommandOutput, Server, failed, printed, record, status};

const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";

#[derive(Parser)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Bind(BindCommand),
    Claims(ClaimsCommand),
}

async fn run(server: &Server, arguments: &[&str]) -> CommandOutput {
    let kubeconfig = server.kubeconfig();
    let given = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let line = CommandLine::try_parse_from(["fairlead"].iter().chain(arguments).chain(&given)).unwrap();
    match line.verb {
        Verb::Bind(bind) => record(async |output| bind.execute(output).await).await,
        Verb::Claims(claims) => record(async |output| claims.execute(output).await).await,
    }
}

/// The body of a logged request.
fn body(request: &str) -> Value {
    serde_json::from_str(&request[request.find(" {").unwrap()..]).unwrap()
}

fn bound(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "status": { "phase": "Bound" } })
}

#[tokio::test]
async fn an_export_is_bound_and_waited_for() {
    let server = Server::with_current("root:team").await;
    let collection = format!("/clusters/root:team{BINDINGS}");
    let binding = json!({ "metadata": { "name": "ships" }, "status": { "phase": "Binding" } });
    server.respond(&format!("POST {collection}"), 201, json!({ "metadata": { "name": "ships" } }));
    server.respond(&format!("GET {collection}/ships"), 200, binding);
    server.respond(&format!("GET {collection}/ships"), 200, bound("ships"));
    let done = "apibinding ships created. Waiting to successfully bind ...\nships created and bound.\n";
    assert_eq!(run(&server, &["bind", "apiexport", "root:org:ships"]).await, printed(done));
    let requests = server.requests();
    let expected = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": "ships" },
        "spec": { "reference": { "export": { "path": "root:org", "name": "ships" } } },
    });
    assert_eq!(body(&requests[0]), expected);
    assert_eq!(requests[1..], [format!("GET {collection}/ships"), format!("GET {collection}/ships")]);
}

#[tokio::test]
async fn claims_are_part_of_the_new_binding() {
    let server = Server::with_current("root").await;
    let collection = "/clusters/root:here/apis/apis.kcp.io/v1alpha2/apibindings";
    server.respond(&format!("POST {collection}"), 201, bound("mine"));
    let claim = |group: &str, resource: &str, state: &str| {
        json!({
            "group": group, "resource": resource, "verbs": ["*"], "selector": { "matchAll": true }, "state": state,
        })
    };
    let arguments = [
        "bind",
        "apiexport",
        "a:ships",
        "--name=mine",
        "-w=here",
        "--accept-permission-claim=secrets.core,things.x.io",
        "--reject-permission-claim",
        "configmaps.core",
    ];
    let done = "apibinding mine created. Waiting to successfully bind ...\nmine created and bound.\n";
    assert_eq!(run(&server, &arguments).await, printed(done));
    let claims = json!([
        claim("", "secrets", "Accepted"),
        claim("x.io", "things", "Accepted"),
        claim("", "configmaps", "Rejected"),
    ]);
    assert_eq!(body(&server.requests()[0])["spec"]["permissionClaims"], claims);

    let export = json!({ "spec": { "permissionClaims": [
        { "group": "x.io", "resource": "things", "verbs": ["get", "list"], "identityHash": "h" },
    ] } });
    server.respond("GET /clusters/a/apis/apis.kcp.io/v1alpha2/apiexports/ships", 200, export);
    for (flag, state) in
        [("--accept-all-permission-claims", "Accepted"), ("--reject-all-permission-claims", "Rejected")]
    {
        assert_eq!(
            run(&server, &["bind", "apiexport", "a:ships", "--name=mine", "-w=here", flag]).await,
            printed(done)
        );
        let claims = json!([{
            "group": "x.io", "resource": "things", "verbs": ["get", "list"], "identityHash": "h",
            "selector": { "matchAll": true }, "state": state,
        }]);
        assert_eq!(body(&server.requests()[1])["spec"]["permissionClaims"], claims);
    }
}

#[tokio::test]
async fn a_binding_that_is_not_bound_in_time_says_why() {
    let server = Server::with_current("root").await;
    let collection = "/clusters/root/apis/apis.kcp.io/v1alpha2/apibindings";
    server.respond(&format!("POST {collection}"), 201, json!({}));
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({ "type": kind, "status": status, "reason": reason, "message": message });
    let binding = json!({ "status": { "phase": "Binding", "conditions": [
        condition("Ready", "False", "APIExportNotFound", "no export"),
        condition("APIExportValid", "False", "APIExportNotFound", "no export"),
        condition("BindingUpToDate", "True", "", ""),
    ] } });
    server.respond(&format!("GET {collection}/ships"), 200, binding);
    let output = run(&server, &["bind", "apiexport", "a:ships", "--timeout=0s"]).await;
    let message = "could not bind ships within 0s: APIExportNotFound: no export";
    assert_eq!(output.failure.as_deref(), Some(message));
    assert_eq!(output.out, "apibinding ships created. Waiting to successfully bind ...\n");
}

#[tokio::test]
async fn invalid_arguments_of_bind_send_no_request() {
    let server = Server::with_current("root").await;
    let without_path = SharingError::ExportWithoutPath.to_string();
    for (arguments, message) in [
        (&[][..], "`root:ws:apiexport_object` reference to bind is required as an argument"),
        (&["ships"], without_path.as_str()),
        (&["root:T@st:ships"], without_path.as_str()),
        (
            &["a:b", "--accept-all-permission-claims", "--reject-all-permission-claims"],
            "cannot use both --accept-all-permission-claims and --reject-all-permission-claims",
        ),
        (
            &["a:b", "--reject-all-permission-claims", "--accept-permission-claim=a.b"],
            "cannot use --reject-all-permission-claims with --accept-permission-claim",
        ),
        (
            &["a:b", "--accept-permission-claim=secrets,a.b"],
            "invalid accepted permission claims: [invalid permission claim \"secrets\"]",
        ),
        (
            &["a:b", "--accept-permission-claim=a.b", "--reject-permission-claim=a.b"],
            "accepted permission claim a.b conflicts with rejected permission claim a.b",
        ),
        (&["a:b", "--timeout=soon"], "--timeout \"soon\" is no duration"),
        (&["a:b", "--workspace=..:.."], "--workspace: cannot go up from root"),
    ] {
        let arguments: Vec<_> = ["bind", "apiexport"].iter().chain(arguments).copied().collect();
        assert_eq!(run(&server, &arguments).await, failed(message), "{arguments:?}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn refusals_have_the_message_of_the_server_and_a_hint() {
    let server = Server::with_current("root").await;
    let message = "apibindings.apis.kcp.io \"ships\" is forbidden: no permission to bind to export a:ships";
    let collection = format!("/clusters/root{BINDINGS}");
    server.respond(&format!("POST {collection}"), 403, status(403, "Forbidden", message));
    let refused = failed(&format!("failed to create APIBinding: {message}"));
    assert_eq!(run(&server, &["bind", "apiexport", "a:ships"]).await, refused);
    let export = "GET /clusters/a/apis/apis.kcp.io/v1alpha2/apiexports/ships";
    server.respond(export, 404, status(404, "NotFound", "apiexports \"ships\" not found"));
    assert_eq!(
        run(&server, &["bind", "apiexport", "a:ships", "--accept-all-permission-claims"]).await,
        failed("failed to get APIExport \"ships\": apiexports \"ships\" not found")
    );
    server.respond(&format!("GET {collection}/none"), 404, status(404, "NotFound", "none not found"));
    assert_eq!(
        run(&server, &["claims", "get", "apibinding", "none"]).await,
        failed("error finding APIBinding: none not found")
    );
    assert_eq!(
        run(&server, &["claims", "accept", "none", "--resource=a"]).await,
        failed("error updating permission claim for APIBinding \"none\": none not found")
    );
    let forbidden = fairlead_client::KubeStatus { code: 403, ..Default::default() };
    assert!(
        SharingError::Create(ClientError::Status(Box::new(forbidden))).hint().unwrap().contains("`bind`")
    );
}

fn cert_manager() -> Value {
    json!({
        "metadata": { "name": "cert-manager", "resourceVersion": "7" },
        "spec": { "reference": {}, "permissionClaims": [
            { "group": "", "resource": "secrets", "verbs": ["get", "list"], "selector": { "matchAll": true }, "state": "Accepted" },
            { "group": "x.io", "resource": "things", "verbs": ["*"], "identityHash": "h", "state": "Rejected" },
        ] },
        "status": { "exportPermissionClaims": [
            { "group": "", "resource": "secrets", "verbs": ["get", "list"] },
            { "group": "x.io", "resource": "things", "verbs": ["*"], "identityHash": "h" },
            { "group": "", "resource": "events", "verbs": ["create"] },
        ] },
    })
}

#[tokio::test]
async fn claims_are_a_table_with_warnings_about_undecided_ones() {
    let server = Server::with_current("root").await;
    let collection = format!("GET /clusters/root{BINDINGS}");
    let other = json!({ "metadata": { "name": "b" }, "spec": {} });
    server.respond(&collection, 200, json!({ "items": [cert_manager(), other] }));
    server.respond(&format!("{collection}/cert-manager"), 200, cert_manager());
    let table = "APIBINDING     GROUP-RESOURCE   VERBS      STATUS\n\
                 cert-manager   secrets          get,list   Accepted\n\
                 cert-manager   things.x.io      *          Rejected\n";
    for arguments in [&["apibinding"][..], &["apibindings", "cert-manager"]] {
        let arguments: Vec<_> = ["claims", "get"].iter().chain(arguments).copied().collect();
        let CommandOutput { out, err, failure } = run(&server, &arguments).await;
        assert_eq!((out.as_str(), failure), (table, None));
        assert!(err.starts_with("Warning: claim for events exported but not specified"), "{err}");
    }
}

#[tokio::test]
async fn a_claim_is_accepted_or_rejected_again_after_a_conflict() {
    let server = Server::with_current("root").await;
    let object = format!("/clusters/root{BINDINGS}/cert-manager");
    server.respond(&format!("GET {object}"), 200, cert_manager());
    server.respond(&format!("PUT {object}"), 409, status(409, "Conflict", "changed"));
    server.respond(&format!("PUT {object}"), 200, json!({}));
    assert_eq!(
        run(&server, &["claims", "accept", "cert-manager", "--resource=things.x.io"]).await,
        printed("claim \"things.x.io\" on APIBinding \"cert-manager\" is accepted\n")
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    let mut expected = cert_manager();
    expected["spec"]["permissionClaims"][1]["state"] = json!("Accepted");
    assert_eq!(body(&requests[3]), expected, "nothing else is changed");
    assert_eq!(
        run(&server, &["claims", "reject", "cert-manager", "--identity-hash=h"]).await,
        printed("claim with identity hash \"h\" on APIBinding \"cert-manager\" is rejected\n")
    );
    assert_eq!(
        run(&server, &["claims", "reject", "cert-manager"]).await,
        failed("the claims of APIBinding \"cert-manager\" to change are not named")
    );
    assert_eq!(run(&server, &["claims", "reject"]).await, failed("error APIBinding name is missing"));
    assert_eq!(
        run(&server, &["claims", "reject", "cert-manager", "--resource=pods"]).await,
        failed("APIBinding \"cert-manager\" has no claim \"pods\", and its APIExport neither")
    );
}
