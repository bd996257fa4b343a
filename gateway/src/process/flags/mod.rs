//! kcp-front-proxy's command line, turned into the gateway's configuration.
//!
//! All flags of kcp-front-proxy are accepted. Valid flags without effect in Fairlead are named in one warning. A value that
//! is invalid in kcp is refused, whether or not the flag has an effect here.

mod table;

use std::path::{Path, PathBuf};

use fairlead_config::flags::{self, GivenFlags, ParsedLine, SelfSignedFiles, values};
use fairlead_config::{
    AuthenticationConfig, ConnectionLimits, DrainConfig, GatewayConfig, IndexConfig, InputFile, KcpBehaviour,
    ListenerConfig, ListenerTlsConfig, PathsConfig, RequestHeaderConfig, SecretFile, ServerTlsConfig,
    ServiceAccountConfig, ServingConfig, Timespan,
};
use fairlead_process::FatalError;

use crate::policy::cors::{Cors, InvalidOrigin};
use table::FLAGS;

/// A parsed command line.
#[derive(Debug)]
pub struct FrontProxyFlags {
    /// The equivalent configuration.
    pub config: GatewayConfig,
    /// The certificate and key to create at the start if they do not exist, because none were named.
    pub self_signed: Option<SelfSignedFiles>,
    /// One sentence each: the flags without effect, and flags with another effect than in kcp.
    pub warnings: Vec<String>,
}

/// The command line is invalid; the operator must change it.
#[derive(Debug, thiserror::Error)]
pub enum FlagError {
    /// The flags that kcp's programs share.
    #[error(transparent)]
    Flags(#[from] flags::FlagError),
    /// An expression for origins is invalid.
    #[error("--cors-allowed-origins: {0}")]
    Origin(#[source] InvalidOrigin),
    /// An earlier name of a flag.
    #[error("--{0} is now --{1}")]
    Renamed(&'static str, &'static str),
    /// A configuration file with an empty name.
    #[error("--config names no file")]
    NoFile,
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
        let arguments: Vec<_> = arguments.into_iter().collect();
        if let Some((old, new)) = table::renamed(&arguments) {
            return Err(FlagError::Renamed(old, new));
        }
        let given = match FLAGS.parse(table::command(), arguments)? {
            ParsedLine::Text(text) => return Ok(Parsed::Text(text)),
            ParsedLine::Flags(given) => given,
        };
        if let Some(file) = given.argument("check").map(PathBuf::from) {
            return ParsedFlags(given).only_file(file).map(Parsed::Check);
        }
        let file = given.argument("config").map(PathBuf::from);
        let given = ParsedFlags(given);
        match file {
            None => given.flags().map(|flags| Parsed::Flags(Box::new(flags))),
            Some(file) => given.only_file(file).map(Parsed::File),
        }
    }
}

/// The parsed flags.
struct ParsedFlags(GivenFlags);

/// Delay between the end of readiness and the drain, for load balancers; the flags have no setting for it.
const DELAY: Timespan = Timespan::from_secs(3);

impl ParsedFlags {
    fn flags(&self) -> Result<FrontProxyFlags, FlagError> {
        let given = &self.0;
        given.check_values()?;
        let missing = flags::FlagError::Missing;
        let mapping_file = given.text("mapping-file").ok_or(missing("mapping-file"))?;
        let shards = given.text("shards-kubeconfig").ok_or(missing("shards-kubeconfig"))?;
        let (serving, self_signed) = self.serving()?;
        let kcp_compatibility = self.kcp_compatibility()?;
        let listener = ListenerConfig {
            name: "secure".to_owned(),
            serving,
            client_ca: given.text("client-ca-file").map(InputFile::from),
            authentication: AuthenticationConfig {
                workspaces: given.gate("WorkspaceAuthentication"),
                ..self.authentication(&kcp_compatibility)?
            },
            tls: self.tls()?,
            ..ListenerConfig::default()
        };
        let delay =
            if kcp_compatibility.contains(&KcpBehaviour::Drain) { Timespan::from_secs(0) } else { DELAY };
        let config = GatewayConfig {
            listeners: vec![listener],
            index: IndexConfig {
                root_shard_kubeconfig: SecretFile::from(given.text("root-kubeconfig").unwrap_or_default()),
                shards_kubeconfig: SecretFile::from(shards),
                shard_peer_kubeconfigs: given
                    .repeated("shard-peer-kubeconfig")
                    .map(SecretFile::from)
                    .collect(),
                snapshot: given
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
            limits: given.connection_limits(ConnectionLimits {
                max_streams_per_connection: 100,
                ..ConnectionLimits::default()
            }),
            drain: DrainConfig { delay, window: Timespan::from_secs(60) },
            log: given.log("fairlead_gateway")?,
            ..GatewayConfig::default()
        };
        Ok(FrontProxyFlags { config, self_signed, warnings: self.warnings() })
    }

    fn only_file(&self, file: PathBuf) -> Result<PathBuf, FlagError> {
        if let Some(flag) = self.0.first() {
            return Err(flags::FlagError::Mixed(flag).into());
        }
        if file.as_os_str().is_empty() { Err(FlagError::NoFile) } else { Ok(file) }
    }

    fn origins(&self) -> Result<Vec<String>, FlagError> {
        let origins = self.0.list("cors-allowed-origins");
        Cors::new(&origins).map_err(FlagError::Origin)?;
        Ok(origins)
    }

    fn kcp_compatibility(&self) -> Result<Vec<KcpBehaviour>, FlagError> {
        let flag = "kcp-compatibility";
        let known = |name: &String| {
            let behaviour = serde_json::from_value(name.as_str().into());
            behaviour.map_err(|_| flags::FlagError::value(flag, name, "behaviour such as unreachable").into())
        };
        self.0.list(flag).iter().map(known).collect()
    }

    /// The listener, and the files of a self-signed certificate.
    fn serving(&self) -> Result<(ServingConfig, Option<SelfSignedFiles>), FlagError> {
        let directory = Path::new(self.0.text("root-directory").unwrap_or(".kcp"));
        let directory = match self.0.text("cert-dir") {
            Some(below) => directory.join(below),
            None => directory.to_owned(),
        };
        Ok(self.0.serving(443, &directory)?)
    }

    fn tls(&self) -> Result<ListenerTlsConfig, FlagError> {
        let ServerTlsConfig { minimum_version, cipher_suites, http2, server_names } = self.0.tls()?;
        Ok(ListenerTlsConfig {
            minimum_version,
            cipher_suites,
            http2,
            server_names,
            acme: None,
            transport_client_ca: None,
        })
    }

    fn authentication(&self, kcp_compatibility: &[KcpBehaviour]) -> Result<AuthenticationConfig, FlagError> {
        let default = AuthenticationConfig::default();
        let groups = |flag| {
            let values = self.0.list(flag);
            if kcp_compatibility.contains(&KcpBehaviour::QuotedGroups) {
                values
            } else {
                values::groups(values)
            }
        };
        let drop_groups = if self.0.is_given("authentication-drop-groups") {
            groups("authentication-drop-groups")
        } else {
            default.drop_groups
        };
        Ok(AuthenticationConfig {
            request_header: RequestHeaderConfig {
                client_ca: self.0.text("requestheader-client-ca-file").map(InputFile::from),
                allowed_names: self.0.list("requestheader-allowed-names"),
                username_headers: self.0.list("requestheader-username-headers"),
                uid_headers: self.0.list("requestheader-uid-headers"),
                group_headers: self.0.list("requestheader-group-headers"),
                extra_header_prefixes: self.0.list("requestheader-extra-headers-prefix"),
            },
            token_file: self.0.text("token-auth-file").map(SecretFile::from),
            service_accounts: self.service_accounts(),
            oidc: self.0.oidc()?,
            configuration: self.0.text("authentication-config").map(InputFile::from),
            webhook: self.0.token_webhook()?,
            workspaces: false,
            pass_on_groups: groups("authentication-pass-on-groups"),
            drop_groups,
            // kcp-front-proxy trusts its token file and issuers with every group that it does not drop.
            privileged_token_groups: true,
        })
    }

    fn service_accounts(&self) -> ServiceAccountConfig {
        let issuers: Vec<String> = self.0.repeated("service-account-issuer").map(str::to_owned).collect();
        let default = ServiceAccountConfig::default();
        ServiceAccountConfig {
            key_files: self.0.repeated("service-account-key-file").map(InputFile::from).collect(),
            issuers: if issuers.is_empty() { default.issuers } else { issuers },
            audiences: self.0.list("api-audiences"),
            lookup: self.0.switch("service-account-lookup", true),
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.0.without_effect().into_iter().chain(self.0.older_tls_version()).collect()
    }
}

#[cfg(test)]
mod tests;
