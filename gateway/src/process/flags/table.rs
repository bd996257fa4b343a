//! The flags of kcp-front-proxy.

use clap::{Arg, ArgAction, Command};
use fairlead_config::flags::{FlagSet, Kind, Support, flag};

use Kind::{
    Address, Duration, Gates, Level, Levels, List, Number, Numbers, Pair, Repeated, Size, Switch, Text,
};
use Support::{Ignored, NoEffect, Supported};

/// All flags: those of the recorded version, those announced since, and one of Fairlead's own.
pub(super) const FLAGS: FlagSet = FlagSet {
    program: "fairlead-gateway",
    about: "The front proxy with kcp-front-proxy's flags, or with --config and nothing else.",
    groups: &[&[
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
        flag(
            "shards-kubeconfig",
            Text,
            Supported,
            "Kubeconfig with the credentials for every shard (required)",
        ),
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
        flag("client-ca-file", Text, Supported, "CA certificates for client certificates"),
        flag(
            "requestheader-client-ca-file",
            Text,
            Supported,
            "CA certificates of proxies whose identity headers are trusted",
        ),
        flag("requestheader-allowed-names", List, Supported, "Common names of those proxies"),
        flag("requestheader-username-headers", List, Supported, "Headers with the user's name"),
        flag("requestheader-uid-headers", List, Supported, "Headers with the user's UID"),
        flag("requestheader-group-headers", List, Supported, "Headers with the user's groups"),
        flag(
            "requestheader-extra-headers-prefix",
            List,
            Supported,
            "Prefixes of headers with extra attributes",
        ),
        flag("service-account-key-file", Repeated, Supported, "Keys of service-account tokens"),
        flag("service-account-issuer", Repeated, Supported, "Issuers of service-account tokens"),
        flag(
            "service-account-lookup",
            Switch,
            Supported,
            "Whether the account must still exist [default: true]",
        ),
        flag("api-audiences", List, Supported, "Audiences of service-account tokens"),
        flag("service-account-jwks-uri", Text, NoEffect, "No effect"),
        flag("service-account-max-token-expiration", Duration, NoEffect, "No effect"),
        flag("service-account-extend-token-expiration", Switch, NoEffect, "No effect"),
        flag("service-account-signing-endpoint", Text, NoEffect, "No effect"),
        flag("oidc-issuer-url", Text, Supported, "URL of an OpenID Connect issuer"),
        flag("oidc-client-id", Text, Supported, "Audience of the issuer's tokens"),
        flag("oidc-ca-file", Text, Supported, "CA certificates for the issuer's serving certificate"),
        flag("oidc-username-claim", Text, Supported, "Claim with the user's name [default: sub]"),
        flag("oidc-username-prefix", Text, Supported, "Prefix added to user names"),
        flag("oidc-groups-claim", Text, Supported, "Claim with the user's groups"),
        flag("oidc-groups-prefix", Text, Supported, "Prefix added to groups"),
        flag("oidc-signing-algs", List, Supported, "Accepted algorithms [default: RS256]"),
        flag("oidc-required-claim", Pair, Supported, "Claims that tokens must have, as key=value"),
        flag("authentication-config", Text, Supported, "File with an AuthenticationConfiguration"),
        flag("token-auth-file", Text, Supported, "CSV file with static tokens"),
        flag(
            "authentication-token-webhook-config-file",
            Text,
            Supported,
            "Kubeconfig of a service that reviews tokens",
        ),
        flag(
            "authentication-token-webhook-version",
            Text,
            Supported,
            "Version of TokenReview [default: v1beta1]",
        ),
        flag(
            "authentication-token-webhook-cache-ttl",
            Duration,
            Supported,
            "Lifetime of cached responses of the webhook [default: 2m]",
        ),
        flag(
            "bind-address",
            Address,
            Supported,
            "IP address to listen on [default: 0.0.0.0, all of both families]",
        ),
        flag("secure-port", Number, Supported, "Port to listen on [default: 443]"),
        flag("tls-cert-file", Text, Supported, "Serving certificate"),
        flag("tls-private-key-file", Text, Supported, "Private key of the serving certificate"),
        flag("tls-sni-cert-key", Repeated, Supported, "Further certificates: cert,key or cert,key:name,name"),
        flag(
            "tls-min-version",
            Text,
            Supported,
            "VersionTLS12 or VersionTLS13; older ones are accepted and mean VersionTLS12, the oldest spoken",
        ),
        flag("tls-cipher-suites", List, Supported, "Cipher suites for TLS 1.2"),
        flag("tls-curve-preferences", Numbers, Ignored, "Key exchange groups"),
        flag("disable-http2-serving", Switch, Supported, "Offer HTTP/1.1 only"),
        flag(
            "http2-max-streams-per-connection",
            Number,
            Supported,
            "Streams per HTTP/2 connection [default: 100]",
        ),
        flag("permit-port-sharing", Switch, Ignored, "SO_REUSEPORT"),
        flag("permit-address-sharing", Switch, NoEffect, "SO_REUSEADDR, which is always set"),
        flag("v", Level, Supported, "Verbosity: 0 to 3 is info, 4 and 5 debug, more trace"),
        flag("vmodule", Levels, Ignored, "Verbosity by source file of kcp"),
        flag("logging-format", Text, Supported, "text or json"),
        flag("log-flush-frequency", Duration, NoEffect, "No effect: logs are not buffered"),
        flag("log-text-split-stream", Switch, Ignored, "Separate stream for errors"),
        flag("log-text-info-buffer-size", Size, NoEffect, "No effect: logs are not buffered"),
        flag("log-json-split-stream", Switch, Ignored, "Separate stream for errors"),
        flag("log-json-info-buffer-size", Size, NoEffect, "No effect: logs are not buffered"),
        flag(
            "feature-gates",
            Gates,
            Supported,
            "Gates as Name=true; WorkspaceAuthentication counts, others are accepted",
        ),
    ]],
};

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
