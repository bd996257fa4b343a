//! Shards and programs of virtual workspaces.

use fairlead_config::ProcessKind;

use crate::site::{Case, check, with};

/// A configuration of a shard without findings.
pub(crate) const SHARD: &str = r#"name: root
serving: {address: "10.0.0.7:6443", certificate: internal.crt, privateKey: internal.key}
shardBaseURL: https://api-internal.example.com:6443
trust: {clientCA: clients.crt, requestHeaderCA: proxies.crt, requestHeaderAllowedNames: [kcp-front-proxy]}
cacheKubeconfig: root.kubeconfig
"#;

/// A configuration of virtual workspaces without findings.
const VIRTUAL_WORKSPACES: &str = r#"serving: {address: "10.0.0.9:6443", certificate: internal.crt, privateKey: internal.key}
trust: {clientCA: clients.crt, requestHeaderCA: proxies.crt, requestHeaderAllowedNames: [kcp-front-proxy]}
kubeconfig: root.kubeconfig
"#;

const CASES_OF_SHARDS: &[Case] = &[
    ("nothing", |_, text| text.to_owned(), &[]),
    (
        "a public shard that believes headers",
        |_, text| with(text, "10.0.0.7", "0.0.0.0"),
        &["2: serving.address: this shard can be reached at 0.0.0.0 from any address, and trusts"],
    ),
    (
        "the same at an address of its own",
        |_, text| with(text, "10.0.0.7:", "203.0.113.7:"),
        &["2: serving.address: this shard can be reached at 203.0.113.7 from any address"],
    ),
    (
        "the same where only some may connect",
        |_, text| format!("{}peers: {{allow: ranges}}\n", with(text, "10.0.0.7", "0.0.0.0")),
        &[],
    ),
    (
        "the same without headers",
        |_, text| {
            with(
                &with(text, "10.0.0.7", "0.0.0.0"),
                ", requestHeaderCA: proxies.crt, requestHeaderAllowedNames: [kcp-front-proxy]",
                "",
            )
        },
        &[],
    ),
    (
        "proxies of any name",
        |_, text| with(text, "[kcp-front-proxy]", "[]"),
        &["4: trust.requestHeaderAllowedNames: any certificate of requestHeaderCA"],
    ),
    (
        "proxies signed by the authority of users",
        |_, text| with(text, "proxies.crt", "clients.crt"),
        &["4: trust.requestHeaderCA: authority \"clients\" also authenticates users (trust.clientCA)"],
    ),
    (
        "a base URL that the certificate is not for",
        |_, text| with(text, "https://api-internal.", "https://root."),
        &[
            "3: shardBaseURL: the serving certificate is not for \"root.example.com\", but for api-internal.example.com",
        ],
    ),
];

#[test]
fn each_fault_of_a_shard_is_reported_at_its_position() {
    check(ProcessKind::Shard, SHARD, CASES_OF_SHARDS);
}

#[test]
fn each_fault_of_virtual_workspaces_is_reported_at_its_position() {
    let cases: &[Case] = &[
        ("nothing", |_, text| text.to_owned(), &[]),
        (
            "a public server that believes headers",
            |_, text| with(text, "10.0.0.9", "0.0.0.0"),
            &["1: serving.address: this server can be reached at 0.0.0.0 from any address, and trusts"],
        ),
        (
            "proxies of any name",
            |_, text| with(text, "[kcp-front-proxy]", "[]"),
            &["2: trust.requestHeaderAllowedNames: any certificate of requestHeaderCA"],
        ),
        (
            "a kubeconfig that does not exist",
            |_, text| with(text, "root.kubeconfig", "other.kubeconfig"),
            &["3: kubeconfig: "],
        ),
    ];
    check(ProcessKind::VirtualWorkspaces, VIRTUAL_WORKSPACES, cases);
}
