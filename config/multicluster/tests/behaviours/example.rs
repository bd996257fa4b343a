//! The program `examples/anchors.rs`, as a process.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::Installation;

struct Program {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
    _kubeconfig: tempfile::NamedTempFile,
}

impl Program {
    fn start(installation: &Installation) -> Self {
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&kubeconfig, kubeconfig_of(&installation.provider_url())).unwrap();
        let mut child = Command::new(path())
            .arg("anchors")
            .env("KUBECONFIG", kubeconfig.path())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, output, _kubeconfig: kubeconfig }
    }

    /// The next lines, in any order.
    async fn expect(&mut self, expected: &[&str]) {
        let mut lines = Vec::new();
        for _ in expected {
            lines.push(self.output.next_line().await.unwrap().expect("the program runs"));
        }
        lines.sort();
        assert_eq!(lines, expected);
    }
}

/// Cargo builds examples with the tests of a package, unless only one test is selected by `--test`.
fn path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let program = profile.join("examples/anchors");
    assert!(
        program.is_file(),
        "{} is missing: cargo build -p fairlead-multicluster --examples",
        program.display()
    );
    program
}

fn kubeconfig_of(url: &str) -> String {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "provider",
        "clusters": [{ "name": "provider", "cluster": { "server": url } }],
        "users": [{ "name": "provider", "user": { "token": "secret" } }],
        "contexts": [{ "name": "provider", "context": { "cluster": "provider", "user": "provider" } }],
    });
    kubeconfig.to_string()
}

#[tokio::test]
async fn the_example_reports_on_the_objects_of_all_shards() {
    let mut installation = Installation::start().await;
    let anchor = |weight: u32| json!({ "spec": { "weight": weight } });
    installation.first.with(|anchors| anchors.apply("a", "bow", anchor(9)));
    installation.second.with(|anchors| anchors.apply("b", "bow", anchor(2)));
    let mut program = Program::start(&installation);
    program.expect(&["a|default/bow: Holding", "b|default/bow: Dragging"]).await;
    for (server, cluster, phase) in
        [(&installation.first, "a", "Holding"), (&installation.second, "b", "Dragging")]
    {
        let object = server.with(|anchors| anchors.object(cluster, "bow"));
        assert_eq!(object["status"], json!({ "phase": phase }));
    }

    installation.first.stop().await;
    installation.first.with(|anchors| {
        anchors.apply("a", "stern", anchor(1));
        anchors.delete("a", "bow");
    });
    installation.first.resume().await;
    program.expect(&["a|default/bow is gone", "a|default/stern: Dragging"]).await;

    let process = rustix::process::Pid::from_raw(program.child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    assert!(program.child.wait().await.unwrap().success());
}
