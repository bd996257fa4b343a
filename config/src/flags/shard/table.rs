//! The flags of `kcp start`.

use crate::flags::flag::Kind::{Duration, Float, Gates, List, Number, Pair, Repeated, Switch, Text};
use crate::flags::flag::Support::{Ignored, NoEffect, Refused, Supported};
use crate::flags::flag::{Flag, flag};
use crate::flags::{FlagSet, groups};

/// All flags: those of the recorded version, and its hidden ones.
pub(super) const FLAGS: FlagSet = FlagSet {
    program: "fairlead-shard start",
    about: "Runs a shard with the flags of `kcp start`.",
    groups: &[
        SHARD,
        groups::LISTENER,
        groups::TLS,
        groups::STORE,
        AUTHENTICATION,
        groups::TRUST,
        groups::TOKENS,
        SERVICE_ACCOUNTS,
        AUTHORIZATION,
        &groups::AUDIT,
        groups::LOGS,
        OPERATION,
        CONTROLLERS,
    ],
};

/// The shard itself and its peers.
const SHARD: &[Flag] = &[
    flag("root-directory", Text, Supported, "Folder of the shard's files [default: .kcp]"),
    flag("shard-name", Text, Supported, "Name of this shard; `root` is the root shard [default: root]"),
    flag(
        "replica-name",
        Text,
        Supported,
        "Name of this replica of the shard on etcd [default: host and process]",
    ),
    flag("shard-base-url", Text, Supported, "URL for other shards [default: the address]"),
    flag("shard-external-url", Text, Supported, "URL for users [default: --shard-base-url]"),
    flag("shard-virtual-workspace-url", Text, Supported, "URL of virtual workspaces"),
    flag("shard-virtual-workspace-ca-file", Text, Ignored, "Authorities of that server's certificate"),
    flag("shard-client-cert-file", Text, Ignored, "Client certificate for virtual workspaces"),
    flag("shard-client-key-file", Text, Ignored, "Private key of that certificate"),
    flag("mount-proxy-client-cert-file", Text, Ignored, "Client certificate for mounts"),
    flag("mount-proxy-client-key-file", Text, Ignored, "Private key of that certificate"),
    flag("shard-kubeconfig-file", Text, Ignored, "Kubeconfig of other shards"),
    flag("root-shard-kubeconfig-file", Text, Supported, "Kubeconfig of the root shard, context shard-base"),
    flag("root-identities-file", Text, Refused, "identities of exports cannot be set yet"),
    flag("cache-kubeconfig", Text, Supported, "Kubeconfig of the cache server [default: embedded]"),
    flag("logical-cluster-admin-kubeconfig", Text, Supported, "Credentials for other shards"),
    flag("external-logical-cluster-admin-kubeconfig", Text, Supported, "Credentials for the external URL"),
    flag(
        "batteries-included",
        List,
        Supported,
        "Optional content: admin, user, workspace-types, metrics-viewer",
    ),
    flag("feature-gates", Gates, Supported, "Gates as Name=true; unknown ones are accepted"),
    flag("enable-home-workspaces", Switch, Supported, "Home workspaces [default: true]"),
    flag("home-workspaces-home-creator-groups", List, Supported, "Groups that may create theirs"),
    flag("logical-cluster-total-object-limit", Number, Supported, "Objects per workspace; 0 means no limit"),
    flag("logical-cluster-object-count-scan-interval", Duration, Supported, "Interval of counting"),
    flag("event-ttl", Duration, Supported, "Time after which events are deleted [default: 1h]"),
    flag("conversion-cel-transformation-timeout", Duration, NoEffect, "No effect"),
    flag(
        "run-virtual-workspaces",
        Switch,
        Supported,
        "If false, only fairlead-virtual-workspaces reaches the virtual workspaces here",
    ),
    flag("external-hostname", Text, NoEffect, "No effect"),
    flag("experimental-bind-free-port", Switch, Refused, "give --secure-port a port"),
    flag("miniproxy-mapping-file", Text, Refused, "shards have no path mappings; use fairlead-gateway"),
];

const AUTHENTICATION: &[Flag] = &[
    flag("kubeconfig-path", Text, Supported, "Kubeconfig of administrators, which the shard writes"),
    flag("authentication-admin-token-path", Text, Supported, "Hash of shard-admin's token"),
    flag("anonymous-auth", Switch, Supported, "Requests without a credential [default: true]"),
    flag("enable-bootstrap-token-auth", Switch, Ignored, "Bootstrap tokens"),
];

const SERVICE_ACCOUNTS: &[Flag] = &[
    flag("service-account-issuer", Repeated, Supported, "Issuers of tokens; the first one issues"),
    flag("service-account-key-file", Repeated, Supported, "Keys that verify tokens"),
    flag("service-account-private-key-file", Text, Supported, "Private key [default: sa.key]"),
    flag("service-account-signing-key-file", Text, Supported, "Private key that signs tokens"),
    flag("service-account-lookup", Switch, Supported, "Accounts of tokens must exist [default: true]"),
    flag("service-account-max-token-expiration", Duration, Supported, "Longest validity of a token"),
    flag("service-account-jwks-uri", Text, Supported, "URL of the keys in the issuer's document"),
    flag("service-account-extend-token-expiration", Switch, Ignored, "Longer validity of pods' tokens"),
    flag("service-account-signing-endpoint", Text, Refused, "tokens are signed with a key file only"),
    flag("api-audiences", List, Supported, "Audiences of tokens [default: the issuers]"),
    flag("root-ca-file", Text, Supported, "Content of ConfigMaps kube-root-ca.crt"),
    flag("concurrent-serviceaccount-token-syncs", Number, Ignored, "Workers of a controller of kcp"),
];

const AUTHORIZATION: &[Flag] = &[
    flag("authorization-order", List, Supported, "AlwaysAllowGroups,AlwaysAllowPaths,RBAC,Webhook"),
    flag("authorization-always-allow-paths", List, Supported, "Paths that everybody may read"),
    flag("authorization-webhook-config-file", Text, Supported, "Kubeconfig of an authorization webhook"),
    flag("authorization-webhook-version", Text, Supported, "v1beta1 or v1 [default: v1beta1]"),
    flag("authorization-webhook-cache-authorized-ttl", Duration, Supported, "Lifetime of permissions"),
    flag("authorization-webhook-cache-unauthorized-ttl", Duration, Supported, "Lifetime of denials"),
];

const OPERATION: &[Flag] = &[
    flag("shutdown-delay-duration", Duration, Supported, "Time between the end of readiness and the drain"),
    flag("shutdown-watch-termination-grace-period", Duration, Supported, "Time in which watches end"),
    flag("shutdown-send-retry-after", Switch, Ignored, "Retry-After in the drain"),
    flag("livez-grace-period", Duration, Ignored, "Time in which liveness does not wait for the start"),
    flag("goaway-chance", Float, Ignored, "Share of requests whose connection is closed"),
    flag("max-connection-bytes-per-sec", Number, Ignored, "Limit of a connection"),
    flag("cors-allowed-origins", List, Ignored, "Origins of browsers, which the gateway has"),
    flag("strict-transport-security-directives", List, Ignored, "HSTS"),
    flag("proxy-client-cert-file", Text, Ignored, "Client certificate for webhooks"),
    flag("proxy-client-key-file", Text, Ignored, "Private key of that certificate"),
    flag("tracing-config-file", Text, Ignored, "Traces"),
    flag("profiling", Switch, Ignored, "Profiles of Go"),
    flag("profiler-address", Text, Ignored, "Profiles of Go"),
    flag("contention-profiling", Switch, Ignored, "Profiles of Go"),
    flag("debug-socket-path", Text, Ignored, "Profiles of Go"),
    flag("enable-logs-handler", Switch, Ignored, "Logs of the machine"),
    flag("allow-metric-labels", Pair, Ignored, "Values of metrics' labels"),
    flag("allow-metric-labels-manifest", Text, Ignored, "Values of metrics' labels"),
    flag("disabled-metrics", List, Ignored, "Metrics to leave out"),
    flag("show-hidden-metrics-for-version", Text, Ignored, "Older metrics"),
    flag("emulated-version", List, Ignored, "Emulation of an older version"),
    flag("storage-initialization-timeout", Duration, Ignored, "Time for the store to open"),
];

const CONTROLLERS: &[Flag] = &[
    flag("run-controllers", Switch, Supported, "Only true: controllers run in the shard"),
    flag("unsupported-run-individual-controllers", List, Refused, "all controllers run in the shard"),
    flag("enable-leader-election", Switch, Ignored, "One process has one store"),
    flag("leader-election-name", Text, Ignored, "Name of a lease"),
    flag("leader-election-namespace", Text, Ignored, "Namespace of a lease"),
    flag("coordinated-leadership-lease-duration", Duration, Ignored, "Leases of Kubernetes' servers"),
    flag("coordinated-leadership-renew-deadline", Duration, Ignored, "Leases of Kubernetes' servers"),
    flag("coordinated-leadership-retry-period", Duration, Ignored, "Leases of Kubernetes' servers"),
];
