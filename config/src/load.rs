//! Strict loading of a configuration file, with the position of every fault.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::DeserializeOwned;

use crate::check::{Checker, Fault};
use crate::key_positions::KeyPositions;
use crate::regular_file::{read_configuration, read_regular_file};
use crate::renamed::{self, new_name};
use crate::setting::Setting;

/// All settings of one kind of process.
pub trait ProcessConfig: Setting + Default + DeserializeOwned {
    /// The process of these settings.
    const KIND: ProcessKind;

    /// Checks for values that cannot work, without reading other files.
    fn check(&self, checker: &mut Checker);

    /// Keys of files that are not read, because another setting replaces them.
    fn unread(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A kind of process with a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// [`GatewayConfig`](crate::GatewayConfig).
    Gateway,
    /// [`ShardConfig`](crate::ShardConfig).
    Shard,
    /// [`CacheConfig`](crate::CacheConfig).
    Cache,
    /// [`IssuerConfig`](crate::IssuerConfig).
    Issuer,
    /// [`VirtualWorkspacesConfig`](crate::VirtualWorkspacesConfig).
    VirtualWorkspaces,
}

impl ProcessKind {
    /// All kinds of processes.
    pub const ALL: [Self; 5] =
        [Self::Gateway, Self::Shard, Self::Cache, Self::Issuer, Self::VirtualWorkspaces];

    /// The name on command lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Shard => "shard",
            Self::Cache => "cache",
            Self::Issuer => "issuer",
            Self::VirtualWorkspaces => "virtual-workspaces",
        }
    }
}

impl fmt::Display for ProcessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ProcessKind {
    type Err = UnknownProcess;

    fn from_str(name: &str) -> Result<Self, UnknownProcess> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(|| UnknownProcess(name.to_owned()))
    }
}

/// A name that is not a kind of process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no process {0:?}; there are gateway, shard, cache, issuer and virtual-workspaces")]
pub struct UnknownProcess(String);

/// A configuration cannot be used; the operator has to change it.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {file} cannot be read")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The first fault in the file.
    #[error("{0}")]
    Faulty(Finding),
}

impl ConfigError {
    /// Advice for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unreadable { .. } => {
                Some("`fairlead config defaults <process>` prints a complete one".to_owned())
            }
            Self::Faulty(finding) => finding.hint.clone(),
        }
    }
}

/// A fault in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The configuration file.
    pub file: PathBuf,
    /// Line and column in the file, from 1; `None` if the subject is not in the file.
    pub place: Option<(u64, u64)>,
    /// The key with its path, such as `listeners[1].name`, if the subject is a key.
    pub key: Option<String>,
    /// One sentence.
    pub message: String,
    /// Advice for the operator.
    pub hint: Option<String>,
}

impl fmt::Display for Finding {
    /// `file:line:column: key: message`, without the hint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Reads a configuration. Relative paths in it are relative to its folder.
pub fn load<T: ProcessConfig>(file: &Path) -> Result<T, ConfigError> {
    let text = read_configuration(file)
        .map_err(|source| ConfigError::Unreadable { file: file.to_owned(), source })?;
    let (mut config, findings) = parse::<T>(&text, file).map_err(ConfigError::Faulty)?;
    if let Some(first) = findings.into_iter().next() {
        return Err(ConfigError::Faulty(first));
    }
    config.resolve_paths(file.parent().unwrap_or(Path::new("")));
    Ok(config)
}

/// A finding that the process reports about a setting, with its position in the file.
pub fn finding(file: &Path, key: &str, message: String, hint: Option<String>) -> Finding {
    // The file may be gone, or have been a FIFO; then there is no position.
    let text = read_regular_file(file).and_then(|text| String::from_utf8(text).ok()).unwrap_or_default();
    locate(Fault { key: key.to_owned(), message, hint }, &KeyPositions::of(&text), file)
}

/// The settings in `text`, and findings about values that cannot work. Paths are not resolved.
pub(crate) fn parse<T: ProcessConfig>(text: &str, file: &Path) -> Result<(T, Vec<Finding>), Finding> {
    let config: T = serde_saphyr::from_str(text).map_err(|error| malformed(error.without_snippet(), file))?;
    let mut checker = Checker::default();
    config.check(&mut checker);
    let positions = KeyPositions::of(text);
    let findings = checker.into_faults().into_iter().map(|fault| locate(fault, &positions, file)).collect();
    Ok((config, findings))
}

pub(crate) fn locate(fault: Fault, positions: &KeyPositions, file: &Path) -> Finding {
    Finding {
        file: file.to_owned(),
        place: positions.place(&fault.key),
        key: Some(fault.key),
        message: fault.message,
        hint: fault.hint,
    }
}

fn malformed(error: &serde_saphyr::Error, file: &Path) -> Finding {
    use serde_saphyr::Error as Yaml;
    let place = error.location().map(|location| (location.line(), location.column()));
    let (message, hint) = match error {
        Yaml::SerdeUnknownField { field, expected, .. }
            if let Some(name) = new_name(renamed::KEYS, field, expected) =>
        {
            (format!("the key {field:?} is now {name:?}"), Some(format!("write {name:?}")))
        }
        Yaml::SerdeUnknownField { field, expected, .. } => {
            let hint = match nearest(field, expected) {
                Some(key) => format!("did you mean {key:?}?"),
                None => format!("there are: {}", expected.join(", ")),
            };
            (format!("there is no key {field:?} here"), Some(hint))
        }
        Yaml::SerdeUnknownVariant { variant, expected, .. }
            if let Some(name) = new_name(renamed::VALUES, variant, expected) =>
        {
            (format!("the value {variant:?} is now {name:?}"), Some(format!("write {name:?}")))
        }
        Yaml::SerdeUnknownVariant { variant, expected, .. } => {
            let hint = format!("one of: {}", expected.join(", "));
            (format!("{variant:?} is not a possible value"), Some(hint))
        }
        Yaml::DuplicateMappingKey { key: Some(key), .. } => {
            (format!("the key {key:?} is here twice"), Some("remove one".to_owned()))
        }
        Yaml::NullIntoString { .. } => {
            ("the value is missing".to_owned(), Some("remove the key to get its default".to_owned()))
        }
        other => {
            let text = other.to_string();
            let end = text.rfind(" at line ").unwrap_or(text.len());
            match &text[..end] {
                text if text.starts_with("invalid u") => ("a whole number is expected here".to_owned(), None),
                "invalid socket address syntax" => {
                    let hint = "an IP address and a port, such as 127.0.0.1:6443 or [::]:6443";
                    ("this is not an address to listen on".to_owned(), Some(hint.to_owned()))
                }
                text => (text.to_owned(), None),
            }
        }
    };
    Finding { file: file.to_owned(), place, key: None, message, hint }
}

/// The candidate closest to a word, if it is close enough.
fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let bare = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
    let word = bare(word);
    let scored = candidates.iter().map(|candidate| (distance(&word, &bare(candidate)), *candidate));
    let (distance, candidate) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + word.len() / 4).then_some(candidate)
}

/// Levenshtein distance: number of letters to add, remove or change.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use expect_test::{Expect, expect};

    use super::*;
    use crate::{CacheConfig, GatewayConfig, ShardConfig, defaults_yaml};

    /// All findings of a text, one per line, with their hints.
    fn findings<T: ProcessConfig>(text: &str) -> String {
        let findings = match parse::<T>(text, Path::new("f.yaml")) {
            Ok((_, findings)) => findings,
            Err(finding) => vec![finding],
        };
        let line = |f: &Finding| format!("{f} ({})\n", f.hint.as_deref().unwrap_or("no hint"));
        findings.iter().map(line).collect()
    }

    fn check<T: ProcessConfig>(text: &str, expected: Expect) {
        expected.assert_eq(&findings::<T>(text));
    }

    #[test]
    fn omitted_settings_have_their_default() {
        for text in ["", "# nothing\n", "serving:\n  certificate: a.crt\n"] {
            assert_eq!(findings::<CacheConfig>(text), "", "{text:?}");
        }
        let (config, _) = parse::<CacheConfig>("serving:\n  certificate: a.crt\n", Path::new("f")).unwrap();
        let default = CacheConfig::default();
        assert_eq!(config.serving.certificate.to_str(), Some("a.crt"));
        assert_eq!(config.serving.private_key, default.serving.private_key);
        assert_eq!(config.store, default.store);
    }

    #[test]
    fn faults_in_the_text_have_a_position_and_a_hint() {
        check::<CacheConfig>(
            "serving:\n  adress: 0.0.0.0:1\n",
            expect![[r#"
                f.yaml:2:3: there is no key "adress" here (did you mean "address"?)
            "#]],
        );
        check::<CacheConfig>(
            "client-ca: x\n",
            expect![[r#"
                f.yaml:1:1: there is no key "client-ca" here (did you mean "clientCA"?)
            "#]],
        );
        check::<CacheConfig>(
            "cheese: x\n",
            expect![[r#"
                f.yaml:1:1: there is no key "cheese" here (there are: replicaName, serving, tls, clientCA, alwaysAllowPaths, peers, store, syntheticDelay, limits, slowClients, drain, log)
            "#]],
        );
        check::<CacheConfig>(
            "clientCA: a\nclientCA: b\n",
            expect![[r#"
                f.yaml:2:1: the key "clientCA" is here twice (remove one)
            "#]],
        );
        check::<CacheConfig>(
            "drain:\n  window: 10\n",
            expect![[r#"
                f.yaml:2:11: "10" is not a duration such as "250ms", "30s", "1m30s" or "2h" (no hint)
            "#]],
        );
        check::<CacheConfig>(
            "serving: {address: localhost}\n",
            expect![[r#"
                f.yaml:1:20: this is not an address to listen on (an IP address and a port, such as 127.0.0.1:6443 or [::]:6443)
            "#]],
        );
        check::<CacheConfig>(
            "clientCA:\n",
            expect![[r#"
                f.yaml:1:9: the value is missing (remove the key to get its default)
            "#]],
        );
        check::<CacheConfig>(
            "log:\n  format: xml\n",
            expect![[r#"
                f.yaml:2:11: "xml" is not a possible value (one of: text, json)
            "#]],
        );
        check::<ShardConfig>(
            "externalURL: http://kcp.example.com\n",
            expect![[r#"
                f.yaml:1:14: "http://kcp.example.com" is not an https URL such as "https://kcp.example.com:6443" (no hint)
            "#]],
        );
        check::<ShardConfig>(
            "name: Root\n",
            expect![[r#"
                f.yaml:1:7: "Root" is not a shard name: lower-case letters, digits and '-', at most 63 (no hint)
            "#]],
        );
        check::<GatewayConfig>(
            "index:\n  shardSelector: \"a in (\"\n",
            expect![[r#"
                f.yaml:2:18: "a in (" is not a term of a label selector such as "region in (eu,us),!retired" (no hint)
            "#]],
        );
        check::<ShardConfig>(
            "limits:\n  maxConnections: many\n",
            expect![[r#"
                f.yaml:2:19: a whole number is expected here (no hint)
            "#]],
        );
    }

    #[test]
    fn values_that_cannot_work_are_found_with_their_position() {
        check::<ShardConfig>(
            "name: beta\nrootShardKubeconfig: r\n",
            expect![[r#"
                f.yaml: cacheKubeconfig: shard beta is not the root shard and has no cache server (set cacheKubeconfig, or name the shard "root")
            "#]],
        );
        check::<ShardConfig>(
            "limits:\n  maxStreamsPerConnection: 5000\n  maxHeaderFields: 513\n  idleTimeout: 0s\nstore:\n  cacheSize: 1KiB\n",
            expect![[r#"
                f.yaml:6:14: store.cacheSize: 1KiB is too little (use at least 1MiB)
                f.yaml:2:28: limits.maxStreamsPerConnection: more than 1000 streams per connection are too many (use at most 1000)
                f.yaml:3:20: limits.maxHeaderFields: over HTTP/1.1, 512 fields at most are read (use at most 512)
                f.yaml:4:16: limits.idleTimeout: 0s is too little (use at least 1ms)
            "#]],
        );
        check::<ShardConfig>(
            "store:\n  etcd:\n    endpoints: []\n    prefix: /one\n    ca: ca.crt\n",
            expect![[r#"
                f.yaml:4:13: store.etcd.prefix: it has no effect without endpoints: objects would be stored in a file (set store.etcd.endpoints, or remove the setting)
            "#]],
        );
        for prefix in ["one", "/one/", "/one//two", "/one/../two", "/one\\ntwo"] {
            let text = format!("store: {{etcd: {{endpoints: [\"http://e:2379\"], prefix: \"{prefix}\"}}}}\n");
            let found = findings::<ShardConfig>(&text);
            assert!(found.contains("names between slashes"), "{prefix}: {found}");
        }
        check::<CacheConfig>(
            "peers: {proxyProtocol: true}\n",
            expect![[r#"
                f.yaml:1:24: peers.proxyProtocol: any client could forge its address (set peers.allow to the networks of the load balancers)
            "#]],
        );
        check::<ShardConfig>("peers: {allow: balancers, proxyProtocol: true}\n", expect![""]);
        check::<GatewayConfig>(
            "listeners: []\n",
            expect![[r#"
                f.yaml:1:12: listeners: there is no listener (add one with at least an address and a certificate)
            "#]],
        );
        check::<GatewayConfig>(
            "listeners:\n\
             - name: a\n  serving: {address: 127.0.0.1:6443}\n\
             - name: a\n  serving: {address: 0.0.0.0:6443}\n\
             - name: b\n  serving: {address: 127.0.0.1:0}\n  placementEndpoint: true\n\
             - name: c\n  serving: {address: 127.0.0.1:0}\n",
            expect![[r#"
                f.yaml:4:9: listeners[1].name: listener "a" has the name of listeners[0] (give each listener its own name)
                f.yaml:5:22: listeners[1].serving.address: address 0.0.0.0:6443 is also listened on by listeners[0] (give each listener its own port)
                f.yaml:8:22: listeners[2].placementEndpoint: placementEndpoint needs client certificates, but clientCA is not set (set clientCA to the bundle that signs shards' certificates)
            "#]],
        );
    }

    #[test]
    fn a_contradictory_listener_is_found() {
        for (listener, expected) in [
            ("tls: {transportClientCA: o}, clientCA: c", "tls.transportClientCA: the transport certificate"),
            (
                "tls: {transportClientCA: o}, authentication: {requestHeader: {clientCA: c}}",
                "tls.transportClientCA: the transport certificate",
            ),
            ("tls: {transportClientCA: o}, peers: {clientAddressHeader: CF-Connecting-IP}", ""),
            ("adminPage: true", "adminPage: adminPage needs client certificates"),
            ("adminPage: true, clientCA: c", ""),
            (
                "peers: {clientAddressHeader: CF-Connecting-IP}",
                "peers.clientAddressHeader: any client could forge",
            ),
            ("peers: {allow: r, clientAddressHeader: CF-Connecting-IP}", ""),
            (
                "peers: {allow: r, clientAddressHeader: \"a b\"}",
                "peers.clientAddressHeader: \"a b\" is not a header name",
            ),
            (
                "peers: {allow: r, clientAddressHeader: CF-Connecting-IP, proxyProtocol: true}",
                "peers.clientAddressHeader: clients behind the load balancer",
            ),
            (
                "socket: {path: s}, peers: {clientAddressHeader: CF-Connecting-IP, proxyProtocol: true}",
                "peers.clientAddressHeader: clients behind the load balancer",
            ),
            (
                "tls: {transportClientCA: o}, \
                 peers: {allow: r, clientAddressHeader: CF-Connecting-IP, proxyProtocol: true}",
                "",
            ),
            ("peers: {proxyProtocol: true}", "peers.proxyProtocol: any client could forge"),
            ("peers: {allow: r, proxyProtocol: true}", ""),
            (
                "socket: {path: s}, quotas: {perAddress: {connections: 9}}",
                "quotas.perAddress: without client addresses",
            ),
            ("socket: {path: s}, quotas: {perAddress: {connections: 9}}, peers: {proxyProtocol: true}", ""),
            (
                "authenticateBeforeRouting: true",
                "authenticateBeforeRouting: authenticateBeforeRouting is set, but",
            ),
            ("authenticateBeforeRouting: true, clientCA: c", ""),
            (
                "authenticateBeforeRouting: true, clientCA: c, authentication: {workspaces: true}",
                "authenticateBeforeRouting: issuers of a workspace",
            ),
            ("hosts: [a.example.com, \"*.example.com\", \"2001:db8::1\"]", ""),
            ("hosts: [\"https://a\"]", "hosts[0]: \"https://a\" is not a host name"),
            ("hosts: [\"*\"]", "hosts[0]: \"*\" is not a host name"),
            ("deny: {users: [\"system:*\", root], groups: [\"*\"]}", ""),
            ("deny: {users: [\"*:admin\"]}", "deny.users: \"*:admin\" is not a valid pattern"),
            ("deny: {groups: [\"\"]}", "deny.groups: \"\" is not a valid pattern"),
            ("watchKeepAlive: 1ms", "watchKeepAlive: 1ms is too little"),
            ("upgrades: [websocket, spdy]", ""),
        ] {
            let found = findings::<GatewayConfig>(&format!("listeners: [{{{listener}}}]\n"));
            let message = found.split_once("listeners[0].").map_or("", |(_, message)| message);
            assert!(
                message.starts_with(expected) && found.is_empty() == expected.is_empty(),
                "{listener}: {found}"
            );
        }
    }

    #[test]
    fn invalid_settings_of_access_log_and_tracing_are_found() {
        for (text, expected) in [
            ("accessLog: {to: file, file: a.log, sample: 0.01, always: [errors, slow, localResponses]}", ""),
            ("accessLog: {to: syslog}", "is not a possible value"),
            ("accessLog: {sample: 2}", "a share such as 0.01"),
            ("accessLog: {always: [sometimes]}", "is not a possible value"),
            ("accessLog: {maxSize: 1KiB}", "accessLog.maxSize: 1KiB is too little"),
            ("accessLog: {buffer: 1KiB}", "accessLog.buffer: 1KiB is too little"),
            ("accessLog: {maxFiles: 2000}", "accessLog.maxFiles: more than 1000 files"),
            ("tracing: {sample: 0.01, otlpEndpoint: \"http://localhost:4318\"}", ""),
            ("tracing: {otlpEndpoint: \"localhost:4318\"}", "is not the URL of a collector"),
            ("tracing: {queue: 1}", "tracing.queue: 1 is too little"),
            ("tracing: {interval: 0s}", "tracing.interval: 0s is too little"),
            ("tracing: {serviceName: \"\"}", "tracing.serviceName: the service name is empty"),
            ("listeners: [{traceContext: restart}]", ""),
            ("listeners: [{traceContext: trust}]", "is not a possible value"),
        ] {
            let found = findings::<GatewayConfig>(&format!("{text}\n"));
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{text}: {found}");
        }
    }

    #[test]
    fn a_listener_that_cannot_obtain_a_certificate_is_found() {
        let listener = "hosts: [a.example], tls: {acme: {}}";
        let acme = "directoryURL: \"https://a/dir\", termsAgreed: true";
        for (listener, acme, expected) in [
            (listener, acme, ""),
            (
                "hosts: [a.example], tls: {acme: {challenge: http-01}}",
                "directoryURL: \"https://a/dir\", termsAgreed: true, httpAddress: \"[::]:80\"",
                "",
            ),
            (listener, "termsAgreed: true", "acme.directoryURL: listeners use ACME"),
            (listener, "directoryURL: \"https://a/dir\"", "acme.termsAgreed: the authority issues"),
            (listener, "directoryURL: \"http://a/dir\"", "\"http://a/dir\" is not an https URL"),
            (
                "hosts: [a.example], tls: {acme: {challenge: http-01}}",
                acme,
                "acme.httpAddress: a listener uses http-01",
            ),
            (
                "hosts: [a.example], tls: {acme: {challenge: dns-01}}",
                acme,
                "\"dns-01\" is not a possible value",
            ),
            ("tls: {acme: {}}", acme, "listeners[0].tls.acme: the names for the certificate"),
            (
                "hosts: [\"*.a.example\"], tls: {acme: {}}",
                acme,
                "listeners[0].tls.acme: tls-alpn-01 cannot validate",
            ),
            ("hosts: [192.0.2.1], tls: {acme: {}}", acme, "listeners[0].tls.acme.challenge: IP addresses"),
            (
                "hosts: [a.example], tls: {acme: {}, transportClientCA: o}",
                acme,
                "listeners[0].tls.acme.challenge: the authority connects",
            ),
            (
                "hosts: [a.example], tls: {acme: {}}, peers: {allow: o}",
                acme,
                "listeners[0].tls.acme.challenge: the authority connects",
            ),
            ("name: a", "contact: [ops]", "acme.contact: \"ops\" is not a URL"),
            ("name: a", "externalAccount: {keyFile: a}", "acme.externalAccount.keyID: the key has no ID"),
        ] {
            let found =
                findings::<GatewayConfig>(&format!("listeners: [{{{listener}}}]\nacme: {{{acme}}}\n"));
            assert!(
                found.contains(expected)
                    && found.is_empty() == expected.is_empty()
                    && found.lines().count() < 2,
                "{listener} {acme}: {found}"
            );
        }
    }

    #[test]
    fn with_a_mapping_file_the_credential_of_a_shard_has_to_be_complete() {
        let config = |shard: &str, mapping: &str| {
            format!("upstream: {{shards: [{{name: a, {shard}}}]}}\npaths: {{{mapping}}}\n")
        };
        for (shard, mapping) in [
            ("serverName: x", ""),
            ("kubeconfig: k", "mappingFile: m"),
            ("serverName: x, serverCA: ca, certificate: c, privateKey: k", "mappingFile: m"),
        ] {
            assert_eq!(findings::<GatewayConfig>(&config(shard, mapping)), "", "{shard}");
        }
        check::<GatewayConfig>(
            &config("serverName: x", "mappingFile: m"),
            expect![[r#"
                f.yaml:1:21: upstream.shards[0].certificate: the mapping file has the credential for all other shards, and does not complete a partial one (set certificate, privateKey and serverCA)
            "#]],
        );
    }

    #[test]
    fn the_printed_defaults_are_the_defaults() {
        fn check<T: ProcessConfig + PartialEq + fmt::Debug>() {
            let text = defaults_yaml(T::KIND);
            let (config, findings) =
                parse::<T>(&text, Path::new("f")).unwrap_or_else(|f| panic!("{f}\n{text}"));
            assert_eq!((config, findings), (T::default(), Vec::new()), "{text}");
        }
        check::<GatewayConfig>();
        check::<ShardConfig>();
        check::<CacheConfig>();
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shard.yaml");
        std::fs::write(&file, "tokenFile: tokens.csv\nserving: {certificate: /etc/tls.crt}\n").unwrap();
        let config: ShardConfig = load(&file).unwrap();
        assert_eq!(config.token_file.unwrap().to_path_buf(), dir.path().join("tokens.csv"));
        assert_eq!(config.serving.certificate.to_str(), Some("/etc/tls.crt"));
        assert_eq!(config.store.path.to_path_buf(), dir.path().join("store.redb"), "defaults too");
        let error = load::<ShardConfig>(&dir.path().join("none.yaml")).unwrap_err();
        assert!(error.to_string().ends_with("none.yaml cannot be read") && error.hint().is_some());
    }

    #[test]
    fn processes_have_names() {
        for kind in ProcessKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert_eq!(
            "proxy".parse::<ProcessKind>().unwrap_err().to_string(),
            "there is no process \"proxy\"; there are gateway, shard, cache, issuer and virtual-workspaces"
        );
    }
}
