//! Certificates and authorities: their ends, keys and purposes.

use fairlead_config::ProcessKind;
use rcgen::{ExtendedKeyUsagePurpose as For, KeyPair};

use crate::servers::SHARD;
use crate::site::{Authority, Case, DAY, GATEWAY, Site, check, start};

const CASES: &[Case] = &[
    (
        "an authority that expires before a certificate that it signed",
        |site, text| {
            site.write("servers.crt", &site.servers.renewed("servers", 300).pem);
            text.to_owned()
        },
        &[
            "17: upstream.serverCA: authority \"servers\" expires on 2025-07-31, before \"internal\", which needs it \
             until 2025-10-04",
            "17: upstream.serverCA: authority \"servers\" expires on 2025-07-31, before \"edge\"",
            "17: upstream.serverCA: authority \"servers\" expires on 2025-07-31, before \"apps\"",
        ],
    ),
    (
        "the same with its successor beside it",
        |site, text| {
            let old = site.servers.renewed("servers", 300).pem;
            site.write("servers.crt", &format!("{old}{}", site.servers.pem));
            text.to_owned()
        },
        &[],
    ),
    (
        "an authority that has ended",
        |site, text| {
            site.write("clients.crt", &site.clients.renewed("clients", 0).pem);
            text.to_owned()
        },
        &[
            "5: listeners[0].clientCA: all authorities in clients.crt have expired, the last one on 2024-10-04",
        ],
    ),
    (
        "one that has ended among others",
        |site, text| {
            let old = Authority::of("old", KeyPair::generate().unwrap(), 0).pem;
            site.write("clients.crt", &format!("{old}{}", site.clients.pem));
            text.to_owned()
        },
        &["5: listeners[0].clientCA: authority \"old\" has expired on 2024-10-04"],
    ),
    (
        "a bundle with what is no authority",
        |site, text| {
            site.write("clients.crt", &site.read("admin.crt"));
            text.to_owned()
        },
        &["5: listeners[0].clientCA: \"admin\" in clients.crt is not an authority"],
    ),
    (
        "a bundle that is none",
        |site, text| {
            site.write("clients.crt", "hello\n");
            text.to_owned()
        },
        &["5: listeners[0].clientCA: clients.crt:1: there is no -----BEGIN … in this file"],
    ),
    (
        "a certificate that has ended",
        |site, text| {
            site.server("edge", &["api.example.com"], 0);
            text.to_owned()
        },
        &["9: listeners[1].serving.certificate: \"edge\" has expired on 2024-10-04"],
    ),
    (
        "certificates that live for days only, and have most of them ahead",
        |site, text| {
            site.server("edge", &["api.example.com"], 5);
            site.server("apps", &["*.apps.example.com"], 1);
            text.to_owned()
        },
        &[],
    ),
    (
        "a key of another certificate",
        |site, text| {
            site.write("edge.key", &site.read("apps.key"));
            text.to_owned()
        },
        &["9: listeners[1].serving.privateKey: edge.key is not the key of edge.crt"],
    ),
    (
        "a damaged key",
        |site, text| {
            site.write("edge.key", &site.read("edge.key").replacen("\nM", "\n!", 1));
            text.to_owned()
        },
        &["9: listeners[1].serving.privateKey: edge.key:2: this is not base64"],
    ),
    (
        "a client's certificate for a server, and the other way round",
        |site, text| {
            site.put("edge", site.servers.issue("edge", &["api.example.com"], For::ClientAuth, 365));
            site.put("sender", site.proxies.issue("kcp-front-proxy", &[], For::ServerAuth, 365));
            text.to_owned()
        },
        &[
            "9: listeners[1].serving.certificate: \"edge\" is not for servers",
            "17: upstream.certificate: \"kcp-front-proxy\" is not for clients",
        ],
    ),
];

#[test]
fn each_fault_of_a_certificate_is_reported_at_its_position() {
    check(ProcessKind::Gateway, GATEWAY, CASES);
}

#[test]
fn expiring_certificates_are_found_in_time() {
    let site = Site::new();
    assert_eq!(site.lint(ProcessKind::Gateway, GATEWAY, start() + DAY * 340), [""; 0]);
    let later = site.lint(ProcessKind::Gateway, GATEWAY, start() + DAY * 360);
    assert_eq!(later.len(), 7, "three of servers, two of senders, one in two kubeconfigs: {later:#?}");
    site.server("edge", &["api.example.com"], 5);
    let short = site.lint(ProcessKind::Gateway, GATEWAY, start() + DAY * 4);
    assert_eq!(short.len(), 1, "{short:#?}");
    assert!(
        short[0].contains("serving.certificate: \"edge\" expires on 2024-10-09, in 1 days"),
        "{short:#?}"
    );
    let before = site.lint(ProcessKind::Shard, SHARD, start() - DAY * 2);
    assert!(
        before.iter().any(|line| line.contains("\"internal\" is valid only from 2024-10-03")),
        "{before:#?}"
    );
}
