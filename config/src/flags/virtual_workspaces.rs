//! The command line of kcp's `virtual-workspaces`, turned into the settings of a server of virtual workspaces.

use std::path::Path;

use super::flag::Kind::{Address, Duration, Number, Switch, Text};
use super::flag::Support::{Ignored, NoEffect, Supported};
use super::flag::{Flag, flag};
use super::{Arguments, FlagError, FlagSet, GivenFlags, checked, groups};
use crate::shared::{ConnectionLimits, DrainConfig};
use crate::units::Timespan;
use crate::virtual_workspaces::VirtualWorkspacesConfig;

/// All flags, with the hidden and the deprecated one.
const FLAGS: FlagSet = FlagSet {
    program: "fairlead-virtual-workspaces",
    about: "Serves the virtual workspaces of a shard: with the flags of kcp's virtual-workspaces, or with --config and nothing else.",
    groups: &[
        SHARD,
        LISTENER,
        groups::TLS,
        groups::TRUST,
        AUTHENTICATION,
        AUDIT,
        DEPRECATED_AUDIT,
        groups::LOGS,
    ],
};

/// The shard behind the virtual workspaces.
const SHARD: &[Flag] = &[
    flag("kubeconfig", Text, Supported, "Kubeconfig of the shard, of a user in system:masters (required)"),
    flag("context", Text, Supported, "Context of the kubeconfig [default: its current one]"),
    flag("cache-kubeconfig", Text, Ignored, "Kubeconfig of the cache server, which the shard has"),
    flag("cache-server-kubeconfig-file", Text, Ignored, "Older name of --cache-kubeconfig"),
    flag(
        "external-logical-cluster-admin-kubeconfig",
        Text,
        Ignored,
        "Credentials for other shards, which the shard has",
    ),
    flag("shard-external-url", Text, NoEffect, "No effect"),
    flag("profiler-address", Text, Ignored, "Profiles of Go"),
];

/// The listener. Unlike that of a shard it needs a certificate that exists, and has another port.
const LISTENER: &[Flag] = &[
    flag("bind-address", Address, Supported, "IP address to listen on [default: all]"),
    flag("secure-port", Number, Supported, "Port to listen on [default: 6444]"),
    flag(
        "cert-dir",
        Text,
        Supported,
        "Folder of apiserver.crt and apiserver.key, which must exist, unless --tls-cert-file is given [default: .kcp]",
    ),
    flag("http2-max-streams-per-connection", Number, Supported, "Streams per HTTP/2 connection"),
];

const AUTHENTICATION: &[Flag] = &[
    flag(
        "authentication-kubeconfig",
        Text,
        Ignored,
        "Server that reviews tokens: always that of --kubeconfig",
    ),
    flag("authentication-token-webhook-cache-ttl", Duration, Supported, "Lifetime of reviews [default: 10s]"),
    flag("authentication-skip-lookup", Switch, NoEffect, "No effect: authorities are those of the flags"),
    flag("authentication-tolerate-lookup-failure", Switch, NoEffect, "No effect"),
];

/// The audit log. Requests are in that of the shard, with the program's user as the one who impersonates the client.
const AUDIT: &[Flag] = &ignored(groups::AUDIT);

/// The flag that kcp's program has in addition, an earlier name of another one.
const DEPRECATED_AUDIT: &[Flag] =
    &ignored([flag("audit-webhook-batch-initial-backoff", Duration, Ignored, "")]);
/// The port of kcp's program.
const PORT: u16 = 6444;

/// Time of the drain: kcp ends watches at once.
const SHORT_DRAIN: Timespan = Timespan::from_secs(2);

/// A parsed command line.
#[derive(Debug)]
pub struct VirtualWorkspacesFlags {
    /// The equivalent configuration.
    pub config: VirtualWorkspacesConfig,
    /// One sentence each: flags without effect, and flags with another effect than in kcp.
    pub warnings: Vec<String>,
}

/// The result of parsing a command line.
pub type VirtualWorkspacesArguments = Arguments<VirtualWorkspacesFlags>;

impl VirtualWorkspacesFlags {
    /// Parses the arguments that follow the program's name. Relative paths start from the working directory.
    ///
    /// # Errors
    /// [`FlagError`] names the flag.
    pub fn parse(
        version: &'static str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<VirtualWorkspacesArguments, FlagError> {
        FLAGS.arguments(version, "virtual-workspaces", arguments, flags)
    }
}

/// Flags of the audit log without an effect.
const fn ignored<const N: usize>(mut flags: [Flag; N]) -> [Flag; N] {
    let mut index = 0;
    while index < N {
        flags[index].support = Ignored;
        flags[index].help = "Audit log, which the shard has";
        index += 1;
    }
    flags
}

fn flags(given: &GivenFlags) -> Result<VirtualWorkspacesFlags, FlagError> {
    given.check_values()?;
    let certificates = given.path("cert-dir").unwrap_or_else(|| Path::new(".kcp").to_owned());
    // As in kcp, the certificate has to exist.
    let (serving, _) = given.serving(PORT, &certificates)?;
    let default = VirtualWorkspacesConfig::default();
    let config = VirtualWorkspacesConfig {
        serving,
        tls: given.tls()?,
        trust: given.trust(),
        kubeconfig: given.path("kubeconfig").ok_or(FlagError::Missing("kubeconfig"))?.into(),
        context: given.text("context").map(str::to_owned),
        token_cache_ttl: given
            .duration("authentication-token-webhook-cache-ttl")
            .unwrap_or(default.token_cache_ttl),
        limits: given.connection_limits(ConnectionLimits::default()),
        drain: DrainConfig { window: SHORT_DRAIN, ..DrainConfig::default() },
        log: given.log("fairlead_virtual")?,
        ..default
    };
    checked(&config)?;
    let warnings = given.without_effect().into_iter().chain(given.older_tls_version()).collect();
    Ok(VirtualWorkspacesFlags { config, warnings })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;

    fn parse(arguments: &[&str]) -> Result<VirtualWorkspacesFlags, FlagError> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        match VirtualWorkspacesFlags::parse("1", arguments)? {
            VirtualWorkspacesArguments::Flags(flags) => Ok(*flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_of_kcps_launcher_is_understood() {
        let flags = parse(&[
            "--kubeconfig=/w/.kcp-virtual-workspaces-1/virtualworkspace.kubeconfig",
            "--external-logical-cluster-admin-kubeconfig=/w/.kcp-virtual-workspaces-1/admin.kubeconfig",
            "--cache-kubeconfig=/w/.kcp-cache/cache.kubeconfig",
            "--authentication-kubeconfig=/w/.kcp-1/admin.kubeconfig",
            "--client-ca-file=/w/.kcp/client-ca.crt",
            "--tls-private-key-file=/w/.kcp-virtual-workspaces-1/apiserver.key",
            "--tls-cert-file=/w/.kcp-virtual-workspaces-1/apiserver.crt",
            "--bind-address=127.0.0.1",
            "--secure-port=7445",
            "--audit-log-maxsize=1024",
            "--audit-log-mode=batch",
            "--audit-log-batch-max-wait=1s",
            "--audit-log-batch-max-size=1000",
            "--audit-log-batch-buffer-size=10000",
            "--audit-log-batch-throttle-burst=15",
            "--audit-log-batch-throttle-enable=true",
            "--audit-log-batch-throttle-qps=10",
            "--audit-policy-file=/w/.kcp-virtual-workspaces-1/audit-policy.yaml",
            "--authentication-skip-lookup",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-client-ca-file=/w/.kcp/requestheader-ca.crt",
            "--v=4",
            "--audit-log-path",
            "/w/.kcp/kcp-virtual-workspaces-1-audit.log",
        ])
        .unwrap();
        let config = flags.config;
        assert_eq!(config.serving.address.to_string(), "127.0.0.1:7445");
        assert!(config.kubeconfig.ends_with("virtualworkspace.kubeconfig"));
        assert_eq!(config.trust.request_header_allowed_names, [""; 0]);
        assert_eq!(config.trust.extra_header_prefixes, ["X-Remote-Extra-"]);
        assert_eq!(config.log.level, "info,fairlead_virtual=debug");
        assert_eq!(flags.warnings.len(), 1, "{:?}", flags.warnings);
        assert!(flags.warnings[0].contains("--cache-kubeconfig, "), "{:?}", flags.warnings);
    }

    #[test]
    fn wrong_command_lines_name_the_flag() {
        for (arguments, expected) in [
            (&[][..], "--kubeconfig is required"),
            (
                &["--kubeconfig=k", "--client-ca-file=c", "--tls-cert-file=t"],
                "--tls-cert-file needs --tls-private-key-file",
            ),
            (
                &["--kubeconfig=k", "--config=f"],
                "--kubeconfig beside --config: settings come from flags or from a file, not from both",
            ),
            (
                &["--kubeconfig=k", "--audit-log-maxsize=many"],
                "--audit-log-maxsize: \"many\" is no whole number",
            ),
        ] {
            assert_eq!(parse(arguments).unwrap_err().to_string(), expected);
        }
        let default = parse(&["--kubeconfig=k", "--client-ca-file=c"]).unwrap().config;
        assert_eq!(default.serving.address.port(), 6444);
        assert_eq!(default.serving.certificate.to_str(), Some(".kcp/apiserver.crt"));
    }

    #[test]
    fn the_help_promises_no_certificate_that_is_not_created() {
        let help = match VirtualWorkspacesFlags::parse("1", ["--help".to_owned()]).unwrap() {
            VirtualWorkspacesArguments::Text(help) => help,
            other => panic!("{other:?}"),
        };
        assert!(!help.contains("self-signed") && !help.contains("6443"), "{help}");
        assert!(help.contains("which must exist") && help.contains("[default: 6444]"), "{help}");
        let shared = groups::LISTENER.iter().map(|flag| flag.name);
        assert!(shared.eq(LISTENER.iter().map(|flag| flag.name)));
    }

    #[test]
    fn every_flag_of_the_recorded_program_is_known() {
        let recorded = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/data/kcp/flags/virtual-workspaces.tsv"
        ));
        let names: Vec<&str> = recorded.lines().filter(|name| *name != "help").collect();
        assert!(names.len() > 50, "only {} flags are recorded", names.len());
        let unknown: Vec<&str> =
            names.into_iter().filter(|name| !FLAGS.flags().any(|flag| flag.name == *name)).collect();
        assert_eq!(unknown, [""; 0]);
    }
}
