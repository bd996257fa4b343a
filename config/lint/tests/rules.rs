//! Each rule finds the mistake that it is about, where it stands; a good configuration has nothing to complain about.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fairlead_config::ProcessKind;
use fairlead_lint::lint_at;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose as For, IsCa, Issuer, KeyPair,
};

const DAY: Duration = Duration::from_secs(86_400);

/// A configuration without findings, of which each case changes something: an edge listener and an internal one.
const GATEWAY: &str = r#"listeners:
- name: internal
  serving: {address: "10.0.0.5:6443", certificate: internal.crt, privateKey: internal.key}
  hosts: [api-internal.example.com]
  clientCA: clients.crt
  authentication:
    requestHeader: {clientCA: proxies.crt, allowedNames: [kcp-mounts-proxy]}
- name: edge
  serving: {address: "[::]:8443", certificate: edge.crt, privateKey: edge.key}
  hosts: [api.example.com, "*.apps.example.com"]
  tls: {transportClientCA: pulls.crt, serverNames: [{certificate: apps.crt, privateKey: apps.key}]}
  peers: {allow: ranges, clientAddressHeader: CF-Connecting-IP}
  authentication:
    oidc: {issuerURL: "https://login.example.com", clientID: a, usernamePrefix: "oidc:", groupsClaim: groups, groupsPrefix: "oidc:"}
  tokens: refuse
  upstreamIdentity: {certificate: sender-edge.crt, privateKey: sender-edge.key}
upstream: {certificate: sender.crt, privateKey: sender.key, serverCA: servers.crt}
index: {rootShardKubeconfig: root.kubeconfig, shardsKubeconfig: shards.kubeconfig}
"#;

const SHARD: &str = r#"name: root
serving: {address: "10.0.0.7:6443", certificate: internal.crt, privateKey: internal.key}
shardBaseURL: https://api-internal.example.com:6443
trust: {clientCA: clients.crt, requestHeaderCA: proxies.crt, requestHeaderAllowedNames: [kcp-front-proxy]}
cacheKubeconfig: root.kubeconfig
"#;

const VIRTUAL_WORKSPACES: &str = r#"serving: {address: "10.0.0.9:6443", certificate: internal.crt, privateKey: internal.key}
trust: {clientCA: clients.crt, requestHeaderCA: proxies.crt, requestHeaderAllowedNames: [kcp-front-proxy]}
kubeconfig: root.kubeconfig
"#;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    key: String,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        Self::of(name, KeyPair::generate().unwrap(), 3650)
    }

    /// An authority that is valid for so many days.
    fn of(name: &str, key: KeyPair, days: u32) -> Self {
        let mut params = valid(CertificateParams::default(), days);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let serialized = key.serialize_pem();
        Self { issuer: Issuer::new(params, key), key: serialized, pem }
    }

    /// The certificate of the same authority with another end.
    fn renewed(&self, name: &str, days: u32) -> Self {
        Self::of(name, KeyPair::from_pem(&self.key).unwrap(), days)
    }

    fn issue(&self, name: &str, hosts: &[&str], usage: For, days: u32) -> (String, String) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = valid(CertificateParams::new(hosts).unwrap(), days);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn valid(mut params: CertificateParams, days: u32) -> CertificateParams {
    params.not_before = (start() - DAY).into();
    params.not_after = (start() + DAY * days).into();
    params
}

/// When everything here is in force.
fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + DAY * 20_000
}

/// A folder with a good configuration and its files.
struct Site {
    folder: tempfile::TempDir,
    servers: Authority,
    clients: Authority,
    proxies: Authority,
    pulls: Authority,
}

impl Site {
    fn new() -> Self {
        let site = Self {
            folder: tempfile::tempdir().unwrap(),
            servers: Authority::new("servers"),
            clients: Authority::new("clients"),
            proxies: Authority::new("proxies"),
            pulls: Authority::new("pulls"),
        };
        for (name, authority) in [
            ("servers", &site.servers),
            ("clients", &site.clients),
            ("proxies", &site.proxies),
            ("pulls", &site.pulls),
        ] {
            site.write(&format!("{name}.crt"), &authority.pem);
        }
        site.server("internal", &["api-internal.example.com"], 365);
        site.server("edge", &["api.example.com"], 365);
        site.server("apps", &["*.apps.example.com"], 365);
        site.sender("sender", "kcp-front-proxy");
        site.sender("sender-edge", "kcp-front-proxy-edge");
        site.put("admin", site.clients.issue("admin", &[], For::ClientAuth, 365));
        site.write("ranges", "# provider\n192.0.2.0/24\n");
        for name in ["root", "shards"] {
            site.kubeconfig(name, "certificate-authority: servers.crt", "https://localhost:1");
        }
        site
    }

    fn server(&self, file: &str, hosts: &[&str], days: u32) {
        self.put(file, self.servers.issue(file, hosts, For::ServerAuth, days));
    }

    fn sender(&self, file: &str, name: &str) {
        self.put(file, self.proxies.issue(name, &[], For::ClientAuth, 365));
    }

    fn put(&self, file: &str, (certificate, key): (String, String)) {
        self.write(&format!("{file}.crt"), &certificate);
        self.write(&format!("{file}.key"), &key);
    }

    fn kubeconfig(&self, name: &str, cluster: &str, server: &str) {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: s, user: u}}}}]\n\
             clusters: [{{name: s, cluster: {{server: \"{server}\", {cluster}}}}}]\n\
             users: [{{name: u, user: {{client-certificate: admin.crt, client-key: admin.key}}}}]\n"
        );
        self.write(&format!("{name}.kubeconfig"), &text);
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        let mode = if Path::new(name).extension().is_some_and(|kind| kind == "crt") { 0o644 } else { 0o600 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// The findings, one per line, `file:line: key: message`, without columns.
    fn lint(&self, kind: ProcessKind, text: &str, now: SystemTime) -> Vec<String> {
        self.write("f.yaml", text);
        let findings = lint_at(kind, &self.folder.path().join("f.yaml"), now);
        let folder = format!("{}/", self.folder.path().display());
        let line = |finding: fairlead_config::Finding| {
            assert!(finding.hint.is_some(), "{finding} has no hint");
            let line = finding.place.map_or(0, |(line, _)| line);
            format!("{line}: {}: {}", finding.key.unwrap(), finding.message).replace(&folder, "")
        };
        findings.into_iter().map(line).collect()
    }
}

/// Name of a mistake, the change that causes it, and the beginnings of the expected findings.
type Case = (&'static str, fn(&Site, &str) -> String, &'static [&'static str]);

/// The text with something else in a place.
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} in {text}");
    text.replacen(from, to, 1)
}

const CASES_OF_GATEWAYS: &[Case] = &[
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
    (
        "an issuer without prefixes",
        |_, text| {
            with(
                text,
                "usernamePrefix: \"oidc:\", groupsClaim: groups, groupsPrefix: \"oidc:\"",
                "usernameClaim: email, groupsClaim: groups",
            )
        },
        &[
            "14: listeners[1].authentication.oidc.usernamePrefix: the issuer can assert any user name",
            "14: listeners[1].authentication.oidc.groupsPrefix: the issuer can assert any group",
        ],
    ),
    (
        "tokens that may make operators",
        |_, text| {
            with(
                text,
                "groupsPrefix: \"oidc:\"}",
                "groupsPrefix: \"oidc:\"}\n    privilegedTokenGroups: true",
            )
        },
        &["15: listeners[1].authentication.privilegedTokenGroups: tokens can assert system:kcp:admin"],
    ),
    (
        "an issuer that says that it wants none",
        |_, text| with(text, "usernamePrefix: \"oidc:\"", "usernamePrefix: \"-\""),
        &["14: listeners[1].authentication.oidc.usernamePrefix: the issuer can assert any user name"],
    ),
    ("an issuer whose URL is the prefix", |_, text| with(text, "usernamePrefix: \"oidc:\", ", ""), &[]),
    (
        "an issuer with a prefix that is Kubernetes'",
        |_, text| with(text, "groupsPrefix: \"oidc:\"", "groupsPrefix: \"system:\""),
        &["14: listeners[1].authentication.oidc.groupsPrefix: names that begin with system: are reserved"],
    ),
    (
        "issuers of a file without prefixes",
        |site, text| {
            let jwt = |username: &str, groups: &str| {
                format!(
                    "- issuer: {{url: \"https://a.example\", audiences: [a]}}\n  claimMappings:\n    username: {username}\n    \
                     groups: {groups}\n"
                )
            };
            let issuers = [
                jwt("{claim: sub, prefix: \"a:\"}", "{claim: groups, prefix: \"a:\"}"),
                jwt("{claim: sub, prefix: \"\"}", "{claim: groups, prefix: \"\"}"),
                jwt("{claim: sub, prefix: \"system:\"}", "{expression: claims.roles}"),
            ];
            let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n";
            site.write("issuers.yaml", &format!("{head}{}", issuers.concat()));
            with(
                text,
                "    oidc: {issuerURL: \"https://login.example.com\", clientID: a, usernamePrefix: \"oidc:\", groupsClaim: groups, \
                 groupsPrefix: \"oidc:\"}\n",
                "    configuration: issuers.yaml\n",
            )
        },
        &[
            "14: listeners[1].authentication.configuration: issuers.yaml: jwt[1].claimMappings.username.prefix: the issuer can assert any user",
            "14: listeners[1].authentication.configuration: issuers.yaml: jwt[1].claimMappings.groups.prefix: the issuer can assert",
            "14: listeners[1].authentication.configuration: issuers.yaml: jwt[2].claimMappings.username.prefix: names that begin with system:",
        ],
    ),
    (
        "names that are refused only to those who are known",
        |_, text| {
            with(
                text,
                "  clientCA: clients.crt\n",
                "  clientCA: clients.crt\n  deny: {groups: [\"system:masters\"]}\n",
            )
        },
        &["6: listeners[0].deny: tokens pass through to shards without authentication here"],
    ),
    (
        "the same where no tokens pass",
        |_, text| {
            with(text, "  tokens: refuse\n", "  tokens: refuse\n  deny: {groups: [\"system:masters\"]}\n")
        },
        &[],
    ),
    (
        "the same with a token method",
        |_, text| with(text, "  tokens: refuse\n", "  deny: {groups: [\"system:masters\"]}\n"),
        &[],
    ),
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
    (
        "an identity of a listener beside a mapping file",
        |site, text| {
            site.write("mapping", "[]");
            format!("{text}paths: {{mappingFile: mapping}}\n")
        },
        &["16: listeners[1].upstreamIdentity: the mapping file sets"],
    ),
];

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
fn each_fault_of_a_gateway_is_reported_at_its_position() {
    check(ProcessKind::Gateway, GATEWAY, CASES_OF_GATEWAYS);
}

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

fn check(kind: ProcessKind, good: &str, cases: &[Case]) {
    for (situation, change, expected) in cases {
        let site = Site::new();
        let text = change(&site, good);
        let found = site.lint(kind, &text, start());
        let is_expected = found.len() == expected.len()
            && expected.iter().all(|expected| found.iter().any(|line| line.starts_with(expected)));
        assert!(is_expected, "{situation}:\nfound {found:#?}\nexpected {expected:#?}");
    }
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
