//! The flags of kcp-front-proxy.

use clap::{Arg, ArgAction, Command};
use fairlead_config::flags::{Flag, FlagSet, Kind, Support, flag, groups};

use Kind::{Address, Duration, Gates, List, Number, Repeated, Switch, Text};
use Support::{Ignored, NoEffect, Supported};

/// All flags: those of the recorded version, those announced since, and one of Fairlead's own.
pub(super) const FLAGS: FlagSet = FlagSet {
    program: "fairlead-gateway",
    about: "The front proxy with kcp-front-proxy's flags, or with --config and nothing else.",
    groups: &[
        PROXY,
        groups::TRUST,
        SERVICE_ACCOUNTS,
        groups::TOKENS,
        LISTENER,
        groups::TLS,
        groups::LOGS,
        GATES,
    ],
};

/// Shards, paths and users.
const PROXY: &[Flag] = &[
    flag(
        "kcp-compatibility",
        List,
        Supported,
        "Behaviours of kcp-front-proxy to keep, by name, as kcpCompatibility of the configuration",
    ),
    flag("mapping-file", Text, Supported, "Path mapping file (required)"),
    flag(
        "root-kubeconfig",
        Text,
        Supported,
        "Kubeconfig of the root shard; the pod's own configuration without it",
    ),
    flag("shards-kubeconfig", Text, Supported, "Kubeconfig with the credentials for every shard (required)"),
    flag(
        "shard-peer-kubeconfig",
        Repeated,
        Supported,
        "Kubeconfig of any shard, through which all shards are found",
    ),
    flag(
        "root-directory",
        Text,
        Supported,
        "Where relative --cert-dir starts, and, if it is given, where index.snapshot is kept [default: .kcp]",
    ),
    flag("cert-dir", Text, Supported, "Where a self-signed certificate is kept if no other is given"),
    flag("profiler-address", Text, Ignored, "Address of kcp's profiler"),
    flag(
        "cors-allowed-origins",
        List,
        Supported,
        "Origins allowed to use the API from browsers, as regular expressions",
    ),
    flag("authentication-pass-on-groups", List, Supported, "Groups that may reach shards"),
    flag("authentication-drop-groups", List, Supported, "Groups that never reach shards"),
];

/// Tokens of service accounts, which shards issue.
const SERVICE_ACCOUNTS: &[Flag] = &[
    flag("service-account-key-file", Repeated, Supported, "Keys of service-account tokens"),
    flag("service-account-issuer", Repeated, Supported, "Issuers of service-account tokens"),
    flag("service-account-lookup", Switch, Supported, "Whether the account must still exist [default: true]"),
    flag("api-audiences", List, Supported, "Audiences of service-account tokens"),
    flag("service-account-jwks-uri", Text, NoEffect, "No effect"),
    flag("service-account-max-token-expiration", Duration, NoEffect, "No effect"),
    flag("service-account-extend-token-expiration", Switch, NoEffect, "No effect"),
    flag("service-account-signing-endpoint", Text, NoEffect, "No effect"),
];

/// The address of the listener, and its limit of streams.
const LISTENER: &[Flag] = &[
    flag(
        "bind-address",
        Address,
        Supported,
        "IP address to listen on [default: 0.0.0.0, all of both families]",
    ),
    flag("secure-port", Number, Supported, "Port to listen on [default: 443]"),
    flag(
        "http2-max-streams-per-connection",
        Number,
        Supported,
        "Streams per HTTP/2 connection [default: 100]",
    ),
];

/// Feature gates of kcp.
const GATES: &[Flag] = &[flag(
    "feature-gates",
    Gates,
    Supported,
    "Gates as Name=true; WorkspaceAuthentication counts, others are accepted",
)];

/// Fairlead's own flags whose names have changed: the earlier and the present name.
const RENAMED: [(&str, &str); 1] = [("as-kcp", "kcp-compatibility")];

/// The first argument that is an earlier name of a flag, and the present name.
pub(super) fn renamed(arguments: &[String]) -> Option<(&'static str, &'static str)> {
    let flags = arguments.iter().filter_map(|argument| argument.strip_prefix("--"));
    let mut names = flags.map(|flag| flag.split_once('=').map_or(flag, |(name, _)| name));
    names.find_map(|name| RENAMED.into_iter().find(|(old, _)| *old == name))
}

/// The command line parser for these flags.
pub(super) fn command() -> Command {
    FLAGS.command(env!("CARGO_PKG_VERSION")).arg(config()).arg(check())
}

/// The flag of the configuration file. Its value is not a file if it looks like a flag.
fn config() -> Arg {
    Arg::new("config")
        .long("config")
        .num_args(1)
        .action(ArgAction::Append)
        .value_name("FILE")
        .help("Configuration file, in place of all flags; `fairlead config defaults gateway` prints one")
}

/// The flag that checks a configuration file instead of starting.
fn check() -> Arg {
    Arg::new("check")
        .long("check")
        .num_args(1)
        .value_name("FILE")
        .conflicts_with("config")
        .help("Check this configuration as --config would load it, report its errors, and exit")
}
