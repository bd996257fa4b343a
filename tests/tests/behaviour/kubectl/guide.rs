//! The commands of the guides for operators run one after the other, and print the documented output.

use std::path::Path;

use fairlead_tests::harness::{free_port, is_left_out, tool};
use regex::Regex;

use super::readme::{bash_as_in_a_clone, kubectl_path};
use super::versions;
use crate::edge::User;
use crate::installation::{Installation, until_object, within};

/// A block of commands, and the lines of its documented output.
struct Block {
    line: usize,
    commands: String,
    shown: Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_gateways_guide_work() {
    commands_print_what_is_documented("docs/gateway.md").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_shards_guide_work() {
    commands_print_what_is_documented("docs/shard.md").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_guide_to_sharing_work() {
    commands_print_what_is_documented("docs/sharing-apis.md").await;
}

async fn commands_print_what_is_documented(path: &str) {
    let installation = Installation::start(2).await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    until_object(&installation.admin("/clusters/root"), bindings, "development-user", |_| true).await;
    let Some(kubectl) = versions(&installation).pop() else { return };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let guide = std::fs::read_to_string(repository.join(path)).unwrap();
    let mut blocks = blocks(&guide);
    let needs_etcd = |block: &Block| block.commands.lines().any(|line| line.starts_with("etcd "));
    if blocks.iter().any(needs_etcd) && is_left_out("etcd") {
        blocks.retain(|block| !needs_etcd(block));
    }
    assert!(blocks.len() > 5, "{}", blocks.len());
    // After an upgrade the gateway is no child of the shell.
    let end = "jobs -p | xargs -r kill; sed -n 's/.*\"pid\":\\([0-9]*\\).*/\\1/p' guide/gateway.state | xargs -r kill";
    let mut script = format!("exec 2>&1\nset -euo pipefail\ntrap '{}' ERR\n", end.replace('\'', "'\\''"));
    for block in &blocks {
        script.push_str(&format!("echo '### {}'\n{}", block.line, block.commands));
    }
    // The ports of the guide may be in use here.
    for port in ["9443", "9444", "9445", "9446"] {
        script = script.replace(port, &free_port().unwrap().to_string());
    }
    // A user signs in at the issuer beforehand, as the guide requires.
    let token = User::new(&installation, "reader").login("--device", "developer").await;
    let mut bash = bash_as_in_a_clone(&installation, &kubectl_path(&kubectl), &script);
    bash.env("TOKEN", token);
    if blocks.iter().any(needs_etcd) {
        let etcd = installation.directory().with_file_name("clone").join("bin/etcd");
        std::os::unix::fs::symlink(tool("etcd").unwrap(), etcd).unwrap();
    }
    let output = within("the guide", bash.output()).await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}");
    let mut rest = printed.as_str();
    for block in &blocks {
        let (_, after) = rest.split_once(&format!("### {}\n", block.line)).unwrap();
        let of_block = after.split("\n### ").next().unwrap();
        expect_in_order(path, block, of_block);
        rest = after;
    }
}

/// Each documented line must be in the output, in order. `…` matches any text.
fn expect_in_order(path: &str, block: &Block, output: &str) {
    let mut lines = output.lines();
    for shown in &block.shown {
        let words = shown.split_whitespace().map(|word| regex::escape(word).replace('…', ".*"));
        let pattern = Regex::new(&format!("^\\s*{}\\s*$", words.collect::<Vec<_>>().join("\\s+"))).unwrap();
        assert!(lines.any(|line| pattern.is_match(line)), "{path}:{}: no {shown:?} in\n{output}", block.line);
    }
}

/// The blocks marked `sh` are commands. A block marked `text` right after one is its output.
fn blocks(guide: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = guide.lines().enumerate().peekable();
    let mut is_next = false;
    while let Some((number, line)) = lines.next() {
        let kind = line.strip_prefix("```");
        let mut body = || {
            let lines = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        match kind {
            Some("sh") => {
                let commands = body().join("\n") + "\n";
                blocks.push(Block { line: number + 1, commands, shown: Vec::new() });
                is_next = true;
                continue;
            }
            Some("text") if is_next => {
                if let Some(block) = blocks.last_mut() {
                    block.shown = body().into_iter().filter(|line| !line.trim().is_empty()).collect();
                }
            }
            Some(_) => drop(body()),
            None if line.trim().is_empty() => continue,
            None => {}
        }
        is_next = false;
    }
    blocks
}
