//! Listeners of a gateway: their peers, names, authorities and identities.

use fairlead_config::ProcessKind;

use crate::site::{Authority, Case, GATEWAY, check, with};

const CASES: &[Case] = &[
    ("nothing", |_, text| text.to_owned(), &[]),
    (
        "an edge with client certificates as identity",
        |_, text| with(text, "  tokens: refuse\n", "  clientCA: clients.crt\n"),
        &["11: listeners[1].tls.transportClientCA: the transport certificate of a peer"],
    ),
    (
        "a client address header behind a load balancer",
        |_, text| {
            with(
                &with(text, "transportClientCA: pulls.crt, ", ""),
                "clientAddressHeader: CF-Connecting-IP",
                "clientAddressHeader: CF-Connecting-IP, proxyProtocol: true",
            )
        },
        &["12: listeners[1].peers.clientAddressHeader: clients behind the load balancer could forge"],
    ),
    (
        "an edge by its header with client certificates as identity",
        |_, text| {
            with(
                &with(text, "transportClientCA: pulls.crt, ", ""),
                "  tokens: refuse\n",
                "  clientCA: clients.crt\n",
            )
        },
        &["15: listeners[1].clientCA: peers that pass client addresses terminate the TLS"],
    ),
    (
        "an edge that takes everybody",
        |_, text| with(&with(text, "allow: ranges, ", ""), "{transport", "{transport"),
        &["12: listeners[1].peers.allow: clients that know the address of this listener can bypass"],
    ),
    (
        "an edge with an empty list",
        |site, text| {
            site.write("ranges", "# none\n");
            text.to_owned()
        },
        &["12: listeners[1].peers.allow: ranges has no network"],
    ),
    (
        "an edge whose list has a fault",
        |site, text| {
            site.write("ranges", "192.0.2.0/24\n192.0.2.0/33\n");
            text.to_owned()
        },
        &["12: listeners[1].peers.allow: ranges:2: \"192.0.2.0/33\" is not a network"],
    ),
    (
        "an edge whose list contains every address",
        |site, text| {
            site.write("ranges", "0.0.0.0/0\n");
            text.to_owned()
        },
        &["12: listeners[1].peers.allow: ranges contains every address"],
    ),
    (
        "an edge without names",
        |_, text| with(text, "  hosts: [api.example.com, \"*.apps.example.com\"]\n", ""),
        &["8: listeners[1].hosts: other customers of the provider can point"],
    ),
    (
        "origin pulls signed by the authority of users",
        |site, text| {
            site.write("pulls.crt", &site.clients.pem);
            text.to_owned()
        },
        &[
            "11: listeners[1].tls.transportClientCA: authority \"clients\" also authenticates users (listeners[0].clientCA)",
        ],
    ),
    (
        "origin pulls signed by the authority of users, under another certificate",
        |site, text| {
            site.write("pulls.crt", &site.clients.renewed("cdn", 900).pem);
            text.to_owned()
        },
        &[
            "11: listeners[1].tls.transportClientCA: authority \"cdn\" also authenticates users (listeners[0].clientCA)",
        ],
    ),
    (
        "origin pulls signed by the authority of proxies, among others",
        |site, text| {
            site.write("pulls.crt", &format!("{}{}", site.pulls.pem, site.proxies.pem));
            text.to_owned()
        },
        &["11: listeners[1].tls.transportClientCA: authority \"proxies\" also authenticates front proxies \
           (listeners[0].authentication.requestHeader.clientCA)"],
    ),
    (
        "proxies signed by the authority of users",
        |_, text| with(text, "clientCA: proxies.crt", "clientCA: clients.crt"),
        &[
            "7: listeners[0].authentication.requestHeader.clientCA: authority \"clients\" also authenticates users",
        ],
    ),
    (
        "CloudFlare's certificate for all its customers",
        |site, text| {
            site.write("pulls.crt", &Authority::new("origin-pull.cloudflare.net").pem);
            text.to_owned()
        },
        &["11: listeners[1].tls.transportClientCA: every customer of CloudFlare can send requests"],
    ),
    (
        "CloudFlare's certificate as an identity",
        |site, text| {
            site.write("clients.crt", &Authority::new("origin-pull.cloudflare.net").pem);
            text.to_owned()
        },
        &[
            "5: listeners[0].clientCA: \"origin-pull.cloudflare.net\" is shared by all customers of CloudFlare",
        ],
    ),
    (
        "proxies of any name",
        |_, text| with(text, ", allowedNames: [kcp-mounts-proxy]", ""),
        &["7: listeners[0].authentication.requestHeader.allowedNames: any certificate of"],
    ),
    (
        "two listeners that shards cannot tell apart",
        |_, text| {
            with(
                text,
                "  upstreamIdentity: {certificate: sender-edge.crt, privateKey: sender-edge.key}\n",
                "",
            )
        },
        &[
            "8: listeners[1].upstreamIdentity: shards see \"kcp-front-proxy\" for the requests of listener \"edge\" and of \
           listener \"internal\"",
        ],
    ),
    (
        "two listeners with two certificates of one name",
        |site, text| {
            site.sender("sender-edge", "kcp-front-proxy");
            text.to_owned()
        },
        &["16: listeners[1].upstreamIdentity: shards see \"kcp-front-proxy\" for"],
    ),
    (
        "a public name that no certificate has",
        |_, text| with(text, "hosts: [api.example.com,", "hosts: [www.example.com, api.example.com,"),
        &[
            "10: listeners[1].hosts[0]: clients that ask for \"www.example.com\" get a certificate for api.example.com",
        ],
    ),
    (
        "a wildcard that no certificate has",
        |_, text| with(text, ", serverNames: [{certificate: apps.crt, privateKey: apps.key}]", ""),
        &[
            "10: listeners[1].hosts[1]: clients that ask for \"*.apps.example.com\" get a certificate for api.example.com",
        ],
    ),
    (
        "a certificate that is shown for names that it has not",
        |_, text| with(text, "privateKey: apps.key}", "privateKey: apps.key, names: [api.example.com]}"),
        &[
            "11: listeners[1].tls.serverNames[0].names: the certificate is not for \"api.example.com\"",
            "10: listeners[1].hosts[0]: clients that ask for \"api.example.com\" get a certificate for *.apps.example.com",
            "10: listeners[1].hosts[1]: clients that ask for \"*.apps.example.com\" get a certificate for api.example.com",
        ],
    ),
    (
        "an identity of a listener beside a mapping file",
        |site, text| {
            site.write("mapping", "[]");
            format!("{text}paths: {{mappingFile: mapping}}\n")
        },
        &["16: listeners[1].upstreamIdentity: the mapping file sets"],
    ),
];

#[test]
fn each_fault_of_a_listener_is_reported_at_its_position() {
    check(ProcessKind::Gateway, GATEWAY, CASES);
}
