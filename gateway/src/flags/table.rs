//! The flags of kcp-front-proxy, as `clap` arguments with Go's manners.

use clap::{Arg, ArgAction, Command};

/// How the value of a flag is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// `--flag`, `--flag=true`, `--flag=false`; never `--flag true`.
    Switch,
    /// One value; the last one counts.
    Value,
    /// Comma-separated, may be repeated.
    List,
    /// Repeated, each as it is.
    Repeated,
}

/// What the gateway does with a flag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Use {
    /// What kcp does.
    Obeyed,
    /// Nothing, and nobody needs to be told: it has no effect in kcp's front proxy, either.
    Idle,
    /// Nothing, and its owner is told so once.
    Ignored,
}

/// One flag.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) use_: Use,
    help: &'static str,
}

const fn flag(name: &'static str, kind: Kind, use_: Use, help: &'static str) -> Flag {
    Flag { name, kind, use_, help }
}

use Kind::{List, Repeated, Switch, Value};
use Use::{Idle, Ignored, Obeyed};

/// All of them: those of the version that was recorded, those announced since, and one of our own.
pub(super) const FLAGS: &[Flag] = &[
    flag(
        "as-kcp",
        List,
        Obeyed,
        "What to do as kcp's front proxy does instead of better; by name, as asKcp of the configuration",
    ),
    flag("mapping-file", Value, Obeyed, "Path mapping file (required)"),
    flag(
        "root-kubeconfig",
        Value,
        Obeyed,
        "Kubeconfig of the root shard; the pod's own configuration without it",
    ),
    flag("shards-kubeconfig", Value, Obeyed, "Kubeconfig with the credentials for every shard (required)"),
    flag(
        "shard-peer-kubeconfig",
        Repeated,
        Obeyed,
        "Kubeconfig of any shard, through which all shards are found",
    ),
    flag("root-directory", Value, Obeyed, "Where relative --cert-dir starts [default: .kcp]"),
    flag("cert-dir", Value, Obeyed, "Where a self-signed certificate is kept if no other is given"),
    flag("profiler-address", Value, Ignored, "Address of kcp's profiler"),
    flag(
        "cors-allowed-origins",
        List,
        Obeyed,
        "Origins allowed to use the API from browsers, as regular expressions",
    ),
    flag("authentication-pass-on-groups", List, Obeyed, "Groups that may reach shards"),
    flag("authentication-drop-groups", List, Obeyed, "Groups that never reach shards"),
    flag("client-ca-file", Value, Obeyed, "Authorities of client certificates"),
    flag(
        "requestheader-client-ca-file",
        Value,
        Obeyed,
        "Authorities of proxies whose identity headers are believed",
    ),
    flag("requestheader-allowed-names", List, Obeyed, "Common names of those proxies"),
    flag("requestheader-username-headers", List, Obeyed, "Headers with the user's name"),
    flag("requestheader-uid-headers", List, Obeyed, "Headers with the user's UID"),
    flag("requestheader-group-headers", List, Obeyed, "Headers with the user's groups"),
    flag("requestheader-extra-headers-prefix", List, Obeyed, "How headers with further attributes begin"),
    flag("service-account-key-file", Repeated, Obeyed, "Keys of service-account tokens"),
    flag("service-account-issuer", Repeated, Obeyed, "Issuers of service-account tokens"),
    flag("service-account-lookup", Switch, Obeyed, "Whether the account must still exist [default: true]"),
    flag("api-audiences", List, Obeyed, "Audiences of service-account tokens"),
    flag("service-account-jwks-uri", Value, Idle, "No effect"),
    flag("service-account-max-token-expiration", Value, Idle, "No effect"),
    flag("service-account-extend-token-expiration", Switch, Idle, "No effect"),
    flag("service-account-signing-endpoint", Value, Idle, "No effect"),
    flag("oidc-issuer-url", Value, Obeyed, "URL of an OpenID Connect issuer"),
    flag("oidc-client-id", Value, Obeyed, "Audience of its tokens"),
    flag("oidc-ca-file", Value, Obeyed, "Authorities of its certificate"),
    flag("oidc-username-claim", Value, Obeyed, "Claim with the user's name [default: sub]"),
    flag("oidc-username-prefix", Value, Obeyed, "Put before user names"),
    flag("oidc-groups-claim", Value, Obeyed, "Claim with the user's groups"),
    flag("oidc-groups-prefix", Value, Obeyed, "Put before groups"),
    flag("oidc-signing-algs", List, Obeyed, "Accepted algorithms [default: RS256]"),
    flag("oidc-required-claim", List, Obeyed, "Claims that tokens must have, as key=value"),
    flag("authentication-config", Value, Obeyed, "File with an AuthenticationConfiguration"),
    flag("token-auth-file", Value, Obeyed, "CSV file with static tokens"),
    flag(
        "authentication-token-webhook-config-file",
        Value,
        Obeyed,
        "Kubeconfig of a service that reviews tokens",
    ),
    flag(
        "authentication-token-webhook-version",
        Value,
        Obeyed,
        "Version of its TokenReview [default: v1beta1]",
    ),
    flag("authentication-token-webhook-cache-ttl", Value, Obeyed, "How long its word is kept [default: 2m]"),
    flag("bind-address", Value, Obeyed, "IP address to listen on [default: 0.0.0.0, all of both families]"),
    flag("secure-port", Value, Obeyed, "Port to listen on [default: 443]"),
    flag("tls-cert-file", Value, Obeyed, "Serving certificate"),
    flag("tls-private-key-file", Value, Obeyed, "Its key"),
    flag("tls-sni-cert-key", Repeated, Obeyed, "Further certificates: cert,key or cert,key:name,name"),
    flag("tls-min-version", Value, Obeyed, "VersionTLS12 or VersionTLS13 (older ones are refused)"),
    flag("tls-cipher-suites", List, Obeyed, "Cipher suites for TLS 1.2"),
    flag("tls-curve-preferences", List, Ignored, "Key exchange groups"),
    flag("disable-http2-serving", Switch, Obeyed, "Offer HTTP/1.1 only"),
    flag("http2-max-streams-per-connection", Value, Obeyed, "Streams per HTTP/2 connection [default: 100]"),
    flag("permit-port-sharing", Switch, Ignored, "SO_REUSEPORT"),
    flag("permit-address-sharing", Switch, Idle, "SO_REUSEADDR, which is always set"),
    flag("v", Value, Obeyed, "Verbosity: 0 to 3 is info, 4 and 5 debug, more trace"),
    flag("vmodule", Value, Ignored, "Verbosity by source file of kcp"),
    flag("logging-format", Value, Obeyed, "text or json"),
    flag("log-flush-frequency", Value, Idle, "Nothing is held back"),
    flag("log-text-split-stream", Switch, Ignored, "Errors apart from the rest"),
    flag("log-text-info-buffer-size", Value, Idle, "Nothing is held back"),
    flag("log-json-split-stream", Switch, Ignored, "Errors apart from the rest"),
    flag("log-json-info-buffer-size", Value, Idle, "Nothing is held back"),
    flag(
        "feature-gates",
        List,
        Obeyed,
        "Gates as Name=true; WorkspaceAuthentication counts, others are accepted",
    ),
];

/// A command line of these flags.
pub(super) fn command() -> Command {
    let command = Command::new("fairlead-gateway")
        .about("The front proxy with kcp-front-proxy's flags. With --config <file>, settings come from there instead.")
        .version(env!("CARGO_PKG_VERSION"))
        .args_override_self(true);
    FLAGS.iter().fold(command, |command, flag| {
        let arg = Arg::new(flag.name).long(flag.name).help(flag.help);
        let arg = match flag.kind {
            Kind::Switch => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .action(ArgAction::Append)
                .value_name("true|false"),
            Kind::Value | Kind::List | Kind::Repeated => {
                arg.num_args(1).allow_hyphen_values(true).action(ArgAction::Append).value_name("VALUE")
            }
        };
        command.arg(if flag.name == "v" { arg.short('v') } else { arg })
    })
}

/// Underscores in the names of flags count as dashes, as in Kubernetes.
pub(super) fn normalise(argument: String) -> String {
    let Some(rest) = argument.strip_prefix("--") else {
        return argument;
    };
    let (name, value) = match rest.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (rest, None),
    };
    let name = name.replace('_', "-");
    match value {
        Some(value) => format!("--{name}={value}"),
        None => format!("--{name}"),
    }
}
