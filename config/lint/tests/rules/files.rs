//! Kubeconfigs, and files that are none.

use fairlead_config::ProcessKind;

use crate::site::{Case, GATEWAY, check, with};

const CASES: &[Case] = &[
    (
        "devices and FIFOs in place of files",
        |site, text| {
            let fifo = site.folder.path().join("fifo.crt");
            assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
            let text = with(text, "clientCA: clients.crt", "clientCA: /dev/zero");
            let text = with(&text, "serverCA: servers.crt", "serverCA: fifo.crt");
            let text = with(&text, "allow: ranges", "allow: fifo.crt");
            with(&text, "rootShardKubeconfig: root.kubeconfig", "rootShardKubeconfig: /dev/zero")
        },
        &[
            "5: listeners[0].clientCA: /dev/zero is not a file",
            "12: listeners[1].peers.allow: fifo.crt is not a file",
            "17: upstream.serverCA: fifo.crt is not a file",
            "18: index.rootShardKubeconfig: /dev/zero is not a file",
        ],
    ),
    (
        "devices and FIFOs in kubeconfigs",
        |site, text| {
            let fifo = site.folder.path().join("fifo.crt");
            assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
            site.kubeconfig("root", "certificate-authority: fifo.crt", "https://localhost:1");
            let user = site.read("shards.kubeconfig");
            site.write("shards.kubeconfig", &with(&user, "client-key: admin.key", "client-key: /dev/zero"));
            text.to_owned()
        },
        &[
            "18: index.rootShardKubeconfig: root.kubeconfig: fifo.crt is not a regular file, or is too large",
            "18: index.shardsKubeconfig: shards.kubeconfig: /dev/zero is not a regular file, or is too large",
        ],
    ),
    (
        "a kubeconfig with a key that is no key by its size",
        |site, text| {
            let file = std::fs::File::create(site.folder.path().join("large.key")).unwrap();
            file.set_len(17 << 20).unwrap();
            site.write("root.kubeconfig", &with(&site.read("root.kubeconfig"), "admin.key", "large.key"));
            text.to_owned()
        },
        &["18: index.rootShardKubeconfig: root.kubeconfig: large.key is not a regular file, or is too large"],
    ),
    (
        "a kubeconfig that verifies nothing",
        |site, text| {
            site.kubeconfig("root", "insecure-skip-tls-verify: true", "https://localhost:1");
            text.to_owned()
        },
        &["18: index.rootShardKubeconfig: root.kubeconfig disables the verification of the server"],
    ),
    (
        "a kubeconfig without TLS",
        |site, text| {
            site.kubeconfig("root", "certificate-authority: servers.crt", "http://localhost:1");
            text.to_owned()
        },
        &["18: index.rootShardKubeconfig: root.kubeconfig names a server without TLS"],
    ),
    (
        "a kubeconfig of which only the user counts",
        |site, text| {
            site.kubeconfig("shards", "certificate-authority: servers.crt", "");
            text.to_owned()
        },
        &[],
    ),
    (
        "a kubeconfig with what does not fit",
        |site, text| {
            site.write("admin.key", &site.read("edge.key"));
            text.to_owned()
        },
        &[
            "18: index.rootShardKubeconfig: root.kubeconfig: ",
            "18: index.shardsKubeconfig: shards.kubeconfig: ",
        ],
    ),
];

#[test]
fn each_fault_of_a_file_is_reported_at_its_position() {
    check(ProcessKind::Gateway, GATEWAY, CASES);
}
