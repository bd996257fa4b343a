//! `fairlead gateway explain`, `tail` and `top` before a running installation.

use std::process::Stdio;

use fairlead_tests::harness::binary;
use http::StatusCode;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::installation::{Installation, within};

fn text(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// `fairlead gateway <arguments>` with standard output to be read.
fn gateway(installation: &Installation, arguments: &[&str]) -> Child {
    let mut command = Command::new(binary("fairlead").unwrap());
    command.arg("gateway").args(arguments).arg("--dir").arg(installation.directory());
    command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_tail_and_top_work_at_the_terminal() {
    let mut installation = Installation::start(1).await;
    installation.workspace("root", "fleet", "root").await;
    let run = async |arguments: &[&str]| {
        let all = ["gateway"].iter().chain(arguments).copied().chain(["--dir", "site"]);
        installation.fairlead(all.map(str::to_owned).collect::<Vec<_>>()).await
    };

    let admin = installation.admin_kubeconfig().display().to_string();
    let output = text(&run(&["explain", "root:fleet", "--as", &admin]).await);
    for words in [
        "workspace fleet leads to logical cluster",
        "User kcp-admin, authenticated by certificate",
        "Forwarded to root: https://",
    ] {
        assert!(output.contains(words), "{words}: {output}");
    }
    let output = text(&run(&["explain", "/clusters/root:nope/api", "-o", "json"]).await);
    let output: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(output["response"]["code"], 403);
    let by_kubeconfig = installation.fairlead(["gateway", "explain", "root", "--kubeconfig", &admin]).await;
    assert!(text(&by_kubeconfig).contains("Forwarded to root"));
    // $KUBECONFIG, which is set here, applies if no other kubeconfig is given.
    let by_environment = installation.fairlead(["gateway", "explain", "root"]).await;
    assert!(text(&by_environment).contains("Forwarded to root"));
    let refused = run(&["explain", "root", "--listener", "nowhere"]).await;
    let says = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && says.contains("there is no listener \"nowhere\""), "{says}");

    let output = text(&run(&["top", "--once"]).await);
    for word in ["requests/s", "STAGE", "LISTENER", "internal", "edge", "SHARD", "root", "WORKSPACE"] {
        assert!(output.contains(word), "{word}: {output}");
    }
    assert!(!output.contains('\x1b'), "no escape sequences without a terminal: {output}");

    // A limit of zero lines is invalid.
    let none = run(&["tail", "--count", "0"]).await;
    let says = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(!none.status.success() && says.contains("0 is not in 1.."), "{says}");

    // Only matching lines are printed, in order. The tail ends with the gateway.
    let mut tail =
        gateway(&installation, &["tail", "--workspace", "root:fleet", "--status", "404", "-o", "json"]);
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let client = installation.admin("/clusters");
    let first = async {
        // The start of the tail is not announced: requests are repeated until a line arrives.
        loop {
            tokio::select! {
                line = lines.next_line() => return line.unwrap().unwrap(),
                () = async {
                    let _ = client.get("/root:fleet/api/v1/nothing").await;
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                } => {}
            }
        }
    };
    let first: Value = serde_json::from_str(&within("a line", first).await).unwrap();
    assert_eq!(
        (&first["code"], &first["path"]),
        (&404.into(), &"/clusters/root:fleet/api/v1/nothing".into()),
        "{first}"
    );
    let _ = client.get("/root/api/v1/nothing").await;
    let _ = client.get("/root:fleet/api/v1/configmaps").await;
    assert_eq!(
        crate::installation::code(&client.get("/root:fleet/api/v1/last").await),
        StatusCode::NOT_FOUND.as_u16()
    );
    let last = async {
        loop {
            let line: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
            assert_eq!(line["code"], 404, "{line}");
            assert_eq!(line["workspace"], "root:fleet", "{line}");
            if line["path"] == "/clusters/root:fleet/api/v1/last" {
                return;
            }
        }
    };
    within("the last line", last).await;
    installation.stop().await;
    let rest = within("the end of the tail", async { lines.next_line().await }).await;
    assert_eq!(rest.unwrap(), None);
    let status = within("the end of the command", tail.wait()).await.unwrap();
    assert!(status.success(), "{status}");
}
