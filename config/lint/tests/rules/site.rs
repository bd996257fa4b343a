//! A folder with a good configuration and its files, and the check of a change to it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fairlead_config::ProcessKind;
use fairlead_lint::lint_at;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose as For, IsCa, Issuer, KeyPair,
};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A configuration without findings, of which each case changes something: an edge listener and an internal one.
pub(crate) const GATEWAY: &str = r#"listeners:
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

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    key: String,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        Self::of(name, KeyPair::generate().unwrap(), 3650)
    }

    /// An authority that is valid for so many days.
    pub(crate) fn of(name: &str, key: KeyPair, days: u32) -> Self {
        let mut params = valid(CertificateParams::default(), days);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let serialized = key.serialize_pem();
        Self { issuer: Issuer::new(params, key), key: serialized, pem }
    }

    /// The certificate of the same authority with another end.
    pub(crate) fn renewed(&self, name: &str, days: u32) -> Self {
        Self::of(name, KeyPair::from_pem(&self.key).unwrap(), days)
    }

    pub(crate) fn issue(&self, name: &str, hosts: &[&str], usage: For, days: u32) -> (String, String) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = valid(CertificateParams::new(hosts).unwrap(), days);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

pub(crate) fn valid(mut params: CertificateParams, days: u32) -> CertificateParams {
    params.not_before = (start() - DAY).into();
    params.not_after = (start() + DAY * days).into();
    params
}

/// When everything here is in force.
pub(crate) fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + DAY * 20_000
}

/// A folder with a good configuration and its files.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) servers: Authority,
    pub(crate) clients: Authority,
    pub(crate) proxies: Authority,
    pub(crate) pulls: Authority,
}

impl Site {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn server(&self, file: &str, hosts: &[&str], days: u32) {
        self.put(file, self.servers.issue(file, hosts, For::ServerAuth, days));
    }

    pub(crate) fn sender(&self, file: &str, name: &str) {
        self.put(file, self.proxies.issue(name, &[], For::ClientAuth, 365));
    }

    pub(crate) fn put(&self, file: &str, (certificate, key): (String, String)) {
        self.write(&format!("{file}.crt"), &certificate);
        self.write(&format!("{file}.key"), &key);
    }

    pub(crate) fn kubeconfig(&self, name: &str, cluster: &str, server: &str) {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: s, user: u}}}}]\n\
             clusters: [{{name: s, cluster: {{server: \"{server}\", {cluster}}}}}]\n\
             users: [{{name: u, user: {{client-certificate: admin.crt, client-key: admin.key}}}}]\n"
        );
        self.write(&format!("{name}.kubeconfig"), &text);
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        let mode = if Path::new(name).extension().is_some_and(|kind| kind == "crt") { 0o644 } else { 0o600 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// The findings, one per line, `file:line: key: message`, without columns.
    pub(crate) fn lint(&self, kind: ProcessKind, text: &str, now: SystemTime) -> Vec<String> {
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
pub(crate) type Case = (&'static str, fn(&Site, &str) -> String, &'static [&'static str]);

/// The text with something else in a place.
pub(crate) fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} in {text}");
    text.replacen(from, to, 1)
}

pub(crate) fn check(kind: ProcessKind, good: &str, cases: &[Case]) {
    for (situation, change, expected) in cases {
        let site = Site::new();
        let text = change(&site, good);
        let found = site.lint(kind, &text, start());
        let is_expected = found.len() == expected.len()
            && expected.iter().all(|expected| found.iter().any(|line| line.starts_with(expected)));
        assert!(is_expected, "{situation}:\nfound {found:#?}\nexpected {expected:#?}");
    }
}
