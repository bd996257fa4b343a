//! kcp-front-proxy's command line, turned into the gateway's configuration.
//!
//! All flags of kcp-front-proxy are accepted. Valid flags without effect in Fairlead are named in one warning. A value that
//! is invalid in kcp is refused, whether or not the flag has an effect here.

mod table;
mod values;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use clap::error::ErrorKind;
use fairlead_config::{
    AuthenticationConfig, ConnectionLimits, DrainConfig, GatewayConfig, IndexConfig, InputFile, KcpBehaviour,
    ListenerConfig, ListenerTlsConfig, LogConfig, LogFormat, NamedCertificateConfig, OidcConfig, PathsConfig,
    RequestHeaderConfig, ReviewVersion, SecretFile, ServiceAccountConfig, ServingConfig, Timespan,
    TlsVersion, WebhookConfig,
};
use fairlead_process::FatalError;

use crate::policy::cors::{Cors, InvalidOrigin};
use table::{FLAGS, Kind, Support};

/// A parsed command line.
#[derive(Debug)]
pub struct FrontProxyFlags {
    /// The equivalent configuration.
    pub config: GatewayConfig,
    /// The certificate and key to create at the start if they do not exist, because none were named.
    pub self_signed: Option<(PathBuf, PathBuf)>,
    /// One sentence each: the flags without effect, and flags with another effect than in kcp.
    pub warnings: Vec<String>,
}

/// The command line is invalid; the operator must change it.
#[derive(Debug, thiserror::Error)]
pub enum FlagError {
    /// The flag does not exist, or its value is missing.
    #[error("{0}")]
    Usage(String),
    /// The value does not have the flag's type.
    #[error("--{flag}: {value:?} is no {wanted}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// The expected type.
        wanted: &'static str,
    },
    /// An expression for origins is invalid.
    #[error("--cors-allowed-origins: {0}")]
    Origin(#[source] InvalidOrigin),
    /// An earlier name of a flag.
    #[error("--{0} is now --{1}")]
    Renamed(&'static str, &'static str),
    /// A flag is combined with a configuration file.
    #[error("--{0} beside --config: settings come from flags or from a file, not from both")]
    Mixed(&'static str),
    /// A configuration file with an empty name.
    #[error("--config names no file")]
    NoFile,
    /// A required flag is missing.
    #[error("--{0} is required")]
    Missing(&'static str),
    /// A certificate without its key, or a key without its certificate.
    #[error("--{0} needs --{1}")]
    Alone(&'static str, &'static str),
}

impl FatalError for FlagError {
    fn hint(&self) -> Option<String> {
        Some("`fairlead-gateway --help` lists all flags".to_owned())
    }
}

/// The result of parsing a command line.
#[derive(Debug)]
pub enum Parsed {
    /// The flags.
    Flags(Box<FrontProxyFlags>),
    /// No flags: a configuration file to check.
    Check(PathBuf),
    /// No flags: a configuration file.
    File(PathBuf),
    /// Help or the version was requested: the text to print.
    Text(String),
}

impl FrontProxyFlags {
    /// Parses the arguments that follow the program's name. Relative paths start from the working directory.
    ///
    /// # Errors
    /// [`FlagError`] names the flag.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Parsed, FlagError> {
        let name = std::iter::once("fairlead-gateway".to_owned());
        let arguments: Vec<_> = name.chain(arguments.into_iter().map(table::normalise)).collect();
        if let Some((old, new)) = table::renamed(&arguments) {
            return Err(FlagError::Renamed(old, new));
        }
        let matches = match table::command().try_get_matches_from(arguments) {
            Ok(matches) => matches,
            Err(shown) if matches!(shown.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
                return Ok(Parsed::Text(shown.to_string()));
            }
            Err(error) => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                return Err(FlagError::Usage(first.trim_start_matches("error: ").to_owned()));
            }
        };
        if let Some(file) = matches.get_one::<String>("check") {
            let file = PathBuf::from(file);
            return ParsedFlags(matches).only_file(file).map(Parsed::Check);
        }
        let file = matches.get_many::<String>("config").and_then(Iterator::last);
        let file = file.map(PathBuf::from);
        let given = ParsedFlags(matches);
        match file {
            None => given.flags().map(|flags| Parsed::Flags(Box::new(flags))),
            Some(file) => given.only_file(file).map(Parsed::File),
        }
    }
}

/// The parsed flags.
struct ParsedFlags(ArgMatches);

/// TLS versions that Go supports and that are insecure.
const OLDER_VERSIONS: [&str; 2] = ["VersionTLS10", "VersionTLS11"];

/// Delay between the end of readiness and the drain, for load balancers; the flags have no setting for it.
const DELAY: Timespan = Timespan::from_secs(3);

impl ParsedFlags {
    fn flags(&self) -> Result<FrontProxyFlags, FlagError> {
        self.check_values()?;
        let mapping_file = self.text("mapping-file").ok_or(FlagError::Missing("mapping-file"))?;
        let shards = self.text("shards-kubeconfig").ok_or(FlagError::Missing("shards-kubeconfig"))?;
        let (serving, self_signed) = self.serving()?;
        let kcp_compatibility = self.kcp_compatibility()?;
        let listener = ListenerConfig {
            name: "secure".to_owned(),
            serving,
            client_ca: self.text("client-ca-file").map(InputFile::from),
            authentication: AuthenticationConfig {
                workspaces: self.gate("WorkspaceAuthentication"),
                ..self.authentication(&kcp_compatibility)?
            },
            tls: self.tls()?,
            ..ListenerConfig::default()
        };
        let streams = self.number("http2-max-streams-per-connection").filter(|streams| *streams > 0);
        let delay =
            if kcp_compatibility.contains(&KcpBehaviour::Drain) { Timespan::from_secs(0) } else { DELAY };
        let config = GatewayConfig {
            listeners: vec![listener],
            index: IndexConfig {
                root_shard_kubeconfig: SecretFile::from(self.text("root-kubeconfig").unwrap_or_default()),
                shards_kubeconfig: SecretFile::from(shards),
                shard_peer_kubeconfigs: self
                    .repeated("shard-peer-kubeconfig")
                    .map(SecretFile::from)
                    .collect(),
                snapshot: self
                    .text("root-directory")
                    .map(|root| Path::new(root).join("index.snapshot").into()),
                ..IndexConfig::default()
            },
            paths: PathsConfig {
                mapping_file: Some(InputFile::from(mapping_file)),
                ..PathsConfig::default()
            },
            cors_allowed_origins: self.origins()?,
            kcp_compatibility,
            limits: ConnectionLimits {
                max_streams_per_connection: streams.map_or(100, |streams| streams.min(1000) as u32),
                ..ConnectionLimits::default()
            },
            drain: DrainConfig { delay, window: Timespan::from_secs(60) },
            log: self.log()?,
            ..GatewayConfig::default()
        };
        Ok(FrontProxyFlags { config, self_signed, warnings: self.warnings() })
    }

    fn only_file(&self, file: PathBuf) -> Result<PathBuf, FlagError> {
        if let Some(flag) = FLAGS.iter().find(|flag| self.is_given(flag.name)) {
            return Err(FlagError::Mixed(flag.name));
        }
        if file.as_os_str().is_empty() { Err(FlagError::NoFile) } else { Ok(file) }
    }

    /// Checks every value, as Go programs do: also those that a later value replaces, and those without effect here.
    fn check_values(&self) -> Result<(), FlagError> {
        for flag in FLAGS {
            for text in self.repeated(flag.name) {
                if let Some(wanted) = flag.kind.invalid(text) {
                    return Err(value(flag.name, text, wanted));
                }
            }
        }
        Ok(())
    }

    /// True if a feature gate is enabled; the last value counts.
    fn gate(&self, name: &str) -> bool {
        let gates = self.repeated("feature-gates").filter_map(values::gates).flatten();
        gates.filter(|(gate, _)| *gate == name).last().is_some_and(|(_, is_open)| is_open)
    }

    fn origins(&self) -> Result<Vec<String>, FlagError> {
        let origins = self.list("cors-allowed-origins");
        Cors::new(&origins).map_err(FlagError::Origin)?;
        Ok(origins)
    }

    fn kcp_compatibility(&self) -> Result<Vec<KcpBehaviour>, FlagError> {
        let flag = "kcp-compatibility";
        let known = |name: &String| {
            let behaviour = serde_json::from_value(name.as_str().into());
            behaviour.map_err(|_| value(flag, name, "behaviour such as unreachable"))
        };
        self.list(flag).iter().map(known).collect()
    }

    /// The listener, and the paths of a self-signed certificate.
    fn serving(&self) -> Result<(ServingConfig, Option<(PathBuf, PathBuf)>), FlagError> {
        let ip = self.text("bind-address").and_then(values::address);
        let ip = ip.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        // As in Go: the unspecified address of either family means all addresses of both.
        let ip = if ip.is_unspecified() { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { ip };
        let port = self.number("secure-port").unwrap_or(443);
        let port = u16::try_from(port).map_err(|_| value("secure-port", &port.to_string(), "port"))?;
        let directory = Path::new(self.text("root-directory").unwrap_or(".kcp"));
        let directory = match self.text("cert-dir") {
            Some(below) => directory.join(below),
            None => directory.to_owned(),
        };
        let (certificate, private_key, made) =
            match (self.text("tls-cert-file"), self.text("tls-private-key-file")) {
                (Some(certificate), Some(key)) => (PathBuf::from(certificate), PathBuf::from(key), None),
                (None, None) => {
                    let pair = (directory.join("apiserver.crt"), directory.join("apiserver.key"));
                    (pair.0.clone(), pair.1.clone(), Some(pair))
                }
                (Some(_), None) => return Err(FlagError::Alone("tls-cert-file", "tls-private-key-file")),
                (None, Some(_)) => return Err(FlagError::Alone("tls-private-key-file", "tls-cert-file")),
            };
        let serving = ServingConfig {
            address: SocketAddr::new(ip, port),
            certificate: certificate.into(),
            private_key: private_key.into(),
        };
        Ok((serving, made))
    }

    fn tls(&self) -> Result<ListenerTlsConfig, FlagError> {
        let minimum_version = match self.text("tls-min-version") {
            None | Some("VersionTLS12") => TlsVersion::Tls12,
            Some(older) if OLDER_VERSIONS.contains(&older) => TlsVersion::Tls12,
            Some("VersionTLS13") => TlsVersion::Tls13,
            Some(other) => return Err(value("tls-min-version", other, "version such as VersionTLS12")),
        };
        let mut server_names = Vec::new();
        for text in self.repeated("tls-sni-cert-key") {
            let (files, names) = text.split_once(':').unwrap_or((text, ""));
            let Some((certificate, private_key)) = files.split_once(',') else {
                return Err(value("tls-sni-cert-key", text, "pair such as cert.pem,key.pem:name"));
            };
            let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
            server_names.push(NamedCertificateConfig {
                certificate: certificate.into(),
                private_key: private_key.into(),
                names: names.map(str::to_owned).collect(),
            });
        }
        Ok(ListenerTlsConfig {
            minimum_version,
            cipher_suites: self.list("tls-cipher-suites"),
            http2: !self.switch("disable-http2-serving", false),
            server_names,
            acme: None,
            transport_client_ca: None,
        })
    }

    fn authentication(&self, kcp_compatibility: &[KcpBehaviour]) -> Result<AuthenticationConfig, FlagError> {
        let default = AuthenticationConfig::default();
        let groups = |flag| {
            let values = self.list(flag);
            if kcp_compatibility.contains(&KcpBehaviour::QuotedGroups) {
                values
            } else {
                values::groups(values)
            }
        };
        let drop_groups = if self.is_given("authentication-drop-groups") {
            groups("authentication-drop-groups")
        } else {
            default.drop_groups
        };
        Ok(AuthenticationConfig {
            request_header: RequestHeaderConfig {
                client_ca: self.text("requestheader-client-ca-file").map(InputFile::from),
                allowed_names: self.list("requestheader-allowed-names"),
                username_headers: self.list("requestheader-username-headers"),
                uid_headers: self.list("requestheader-uid-headers"),
                group_headers: self.list("requestheader-group-headers"),
                extra_header_prefixes: self.list("requestheader-extra-headers-prefix"),
            },
            token_file: self.text("token-auth-file").map(SecretFile::from),
            service_accounts: self.service_accounts(),
            oidc: self.oidc()?,
            configuration: self.text("authentication-config").map(InputFile::from),
            webhook: self.webhook()?,
            workspaces: false,
            pass_on_groups: groups("authentication-pass-on-groups"),
            drop_groups,
            // kcp-front-proxy trusts its token file and issuers with every group that it does not drop.
            privileged_token_groups: true,
        })
    }

    fn service_accounts(&self) -> ServiceAccountConfig {
        let issuers: Vec<String> = self.repeated("service-account-issuer").map(str::to_owned).collect();
        let default = ServiceAccountConfig::default();
        ServiceAccountConfig {
            key_files: self.repeated("service-account-key-file").map(InputFile::from).collect(),
            issuers: if issuers.is_empty() { default.issuers } else { issuers },
            audiences: self.list("api-audiences"),
            lookup: self.switch("service-account-lookup", true),
        }
    }

    fn oidc(&self) -> Result<Option<OidcConfig>, FlagError> {
        let issuer = self.text("oidc-issuer-url");
        let client = self.text("oidc-client-id");
        let (issuer_url, client_id) = match (issuer, client) {
            (None, None) => return Ok(None),
            (Some(issuer), Some(client)) => (issuer.to_owned(), client.to_owned()),
            (Some(_), None) => return Err(FlagError::Alone("oidc-issuer-url", "oidc-client-id")),
            (None, Some(_)) => return Err(FlagError::Alone("oidc-client-id", "oidc-issuer-url")),
        };
        let text = |flag| self.text(flag).unwrap_or_default().to_owned();
        let default = OidcConfig::default();
        let algorithms = self.list("oidc-signing-algs");
        Ok(Some(OidcConfig {
            issuer_url,
            client_id,
            ca_file: self.text("oidc-ca-file").map(InputFile::from),
            username_claim: self.text("oidc-username-claim").map_or(default.username_claim, str::to_owned),
            username_prefix: text("oidc-username-prefix"),
            groups_claim: text("oidc-groups-claim"),
            groups_prefix: text("oidc-groups-prefix"),
            signing_algorithms: if algorithms.is_empty() { default.signing_algorithms } else { algorithms },
            required_claims: self.pairs("oidc-required-claim"),
        }))
    }

    fn webhook(&self) -> Result<Option<WebhookConfig>, FlagError> {
        let Some(kubeconfig) = self.text("authentication-token-webhook-config-file") else {
            return Ok(None);
        };
        let version = match self.text("authentication-token-webhook-version") {
            None | Some("v1beta1") => ReviewVersion::V1beta1,
            Some("v1") => ReviewVersion::V1,
            Some(other) => return Err(value("authentication-token-webhook-version", other, "v1beta1 or v1")),
        };
        let cache_ttl = match self.text("authentication-token-webhook-cache-ttl") {
            None => WebhookConfig::default().cache_ttl,
            Some(text) => timespan(values::duration(text).unwrap_or_default()),
        };
        Ok(Some(WebhookConfig { kubeconfig: kubeconfig.into(), version, cache_ttl }))
    }

    fn log(&self) -> Result<LogConfig, FlagError> {
        let format = match self.text("logging-format") {
            None | Some("text") => LogFormat::Text,
            Some("json") => LogFormat::Json,
            Some(other) => return Err(value("logging-format", other, "text or json")),
        };
        let level = match self.text("v").and_then(values::level).unwrap_or(2) {
            0..=3 => "info",
            4..=5 => "info,fairlead_gateway=debug",
            _ => "debug,fairlead_gateway=trace",
        };
        Ok(LogConfig { format, level: level.to_owned() })
    }

    fn warnings(&self) -> Vec<String> {
        let ignored =
            FLAGS.iter().filter(|flag| flag.support == Support::Ignored && self.is_given(flag.name));
        let names: Vec<String> = ignored.map(|flag| format!("--{}", flag.name)).collect();
        let without_effect =
            (!names.is_empty()).then(|| format!("accepted and without effect here: {}", names.join(", ")));
        let version = self.text("tls-min-version").filter(|version| OLDER_VERSIONS.contains(version));
        let too_old = version
            .map(|version| format!("--tls-min-version={version}: the oldest version spoken here is TLS 1.2"));
        without_effect.into_iter().chain(too_old).collect()
    }

    // The functions below expect checked values; values of the wrong type are skipped.

    /// The last value of a flag; `None` if it is empty.
    fn text(&self, flag: &'static str) -> Option<&str> {
        self.repeated(flag).last().filter(|value| !value.is_empty())
    }

    fn repeated(&self, flag: &'static str) -> impl Iterator<Item = &str> {
        debug_assert!(FLAGS.iter().any(|known| known.name == flag), "{flag}");
        self.0.get_many::<String>(flag).into_iter().flatten().map(String::as_str)
    }

    fn is_given(&self, flag: &'static str) -> bool {
        self.repeated(flag).next().is_some()
    }

    fn list(&self, flag: &'static str) -> Vec<String> {
        debug_assert!(FLAGS.iter().any(|known| known.name == flag && known.kind == Kind::List), "{flag}");
        self.repeated(flag).filter_map(values::list).flatten().collect()
    }

    /// One pair per occurrence, because the value may contain commas.
    fn pairs(&self, flag: &'static str) -> BTreeMap<String, String> {
        let pairs = self.repeated(flag).filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, text)| (key.trim().to_owned(), text.trim().to_owned())).collect()
    }

    fn switch(&self, flag: &'static str, default: bool) -> bool {
        self.text(flag).and_then(values::boolean).unwrap_or(default)
    }

    fn number(&self, flag: &'static str) -> Option<i64> {
        self.text(flag).and_then(values::integer)
    }
}

fn value(flag: &'static str, value: &str, wanted: &'static str) -> FlagError {
    FlagError::Value { flag, value: value.to_owned(), wanted }
}

fn timespan(duration: Duration) -> Timespan {
    Timespan::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
