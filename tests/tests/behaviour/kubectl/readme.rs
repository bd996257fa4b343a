//! The commands of the README.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fairlead_tests::harness::binary;
use tokio::process::Command;

use super::versions;
use crate::edge::User;
use crate::installation::{Installation, until_object, within};

/// Runs the documented lines. Each kubectl has its own installation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ten_lines_of_the_readme_work() {
    let first = Installation::start(2).await;
    let all = versions(&first);
    let mut installations = vec![first];
    for kubectl in &all {
        let installation = match installations.pop() {
            Some(installation) => installation,
            None => Installation::start(2).await,
        };
        let mut lines =
            bash_as_in_a_clone(&installation, &kubectl_path(kubectl), &script("## Ten lines to try"));
        let output = within("the ten lines", lines.output()).await.unwrap();
        let printed = printed(output.status.success(), &output.stdout, &output.stderr);
        for part in [
            "apiexport.apis.kcp.io/ships created",
            "ships created and bound.",
            "role.rbac.authorization.k8s.io/pilot created",
            "ship.harbour.example.com/argo created",
            "argo   4         roads",
            "argo   4         quay",
            "What a ship needs of a harbour.",
            "*.*",
            "namespace \"harbour\" deleted",
        ] {
            assert!(printed.contains(part), "kubectl {}: no {part:?} in\n{printed}", kubectl.version());
        }
        let status = installation.fairlead(["status", "--dir=site", "-o=json"]).await;
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        for shard in status["gateway"]["shards"].as_array().unwrap() {
            assert_eq!(shard["workspaces"], 1, "{status:#}");
        }
    }
}

/// The same for the lines with the listener for tokens, with a user who signs in when asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lines_without_a_certificate_work() {
    let installation = Installation::start(2).await;
    let admin = installation.admin("/clusters/root");
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    until_object(&admin, bindings, "development-user", |_| true).await;
    let Some(kubectl) = versions(&installation).pop() else { return };
    let script = script("## Four lines without a certificate");
    let mut lines = bash_as_in_a_clone(&installation, &kubectl_path(&kubectl), &script);
    lines
        .env_remove("BROWSER")
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .env_remove("XDG_CACHE_HOME");
    lines.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = User::new(&installation, "reader").run_and_sign_in(lines, "developer").await;
    let printed = printed(ended.success, ended.stdout.as_bytes(), ended.stderr.as_bytes());
    for part in ["workspace.tenancy.kcp.io/pier created", "pier", "oidc:developer", "oidc:developers"] {
        assert!(printed.contains(part), "no {part:?} in\n{printed}");
    }
}

/// Bash in an environment like a clone after `make up`.
pub(super) fn bash_as_in_a_clone(installation: &Installation, kubectl: &Path, script: &str) -> Command {
    let clone = installation.scratch("clone");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    symlink(installation.directory(), clone.join(".fairlead")).unwrap();
    symlink(repository.join("deploy"), clone.join("deploy")).unwrap();
    std::fs::create_dir_all(clone.join("target")).unwrap();
    symlink(binary("fairlead").unwrap().parent().unwrap(), clone.join("target/release")).unwrap();
    std::fs::create_dir_all(clone.join("bin")).unwrap();
    symlink(kubectl, clone.join("bin/kubectl")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-c", script])
        .current_dir(&clone)
        .env("PATH", format!("{}/bin:{path}", clone.display()))
        .env("HOME", &clone)
        .stdin(Stdio::null());
    bash
}

fn printed(success: bool, stdout: &[u8], stderr: &[u8]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(success, "{}\n{}", text(stdout), text(stderr));
    text(stdout)
}

/// The lines below a heading.
fn script(title: &str) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let readme = std::fs::read_to_string(repository.join("README.md")).unwrap();
    let (_, section) = readme.split_once(title).unwrap();
    let (_, code) = section.split_once("```sh\n").unwrap();
    format!("set -e\n{}", code.split_once("```").unwrap().0)
}

pub(super) fn kubectl_path(kubectl: &fairlead_tests::harness::Kubectl) -> PathBuf {
    PathBuf::from(kubectl.command().as_std().get_program())
}
