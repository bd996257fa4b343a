//! Flags that several programs share, by subject.

use super::flag::Kind::{
    Address, Duration, Float, Level, Levels, List, Number, Numbers, Pair, Repeated, Size, Switch, Text,
};
use super::flag::Support::{Ignored, NoEffect, Refused, Supported};
use super::flag::{Flag, flag};

/// The address of the listener of a server whose port is 6443 in kcp, and its limit of streams.
pub(super) const LISTENER: &[Flag] = &[
    flag("bind-address", Address, Supported, "IP address to listen on [default: all]"),
    flag("secure-port", Number, Supported, "Port to listen on [default: 6443]"),
    flag("cert-dir", Text, Supported, "Folder of a self-signed certificate [default: --root-directory]"),
    flag("http2-max-streams-per-connection", Number, Supported, "Streams per HTTP/2 connection"),
];

/// The certificates, protocols and socket of a listener.
pub const TLS: &[Flag] = &[
    flag("tls-cert-file", Text, Supported, "Serving certificate"),
    flag("tls-private-key-file", Text, Supported, "Private key of the serving certificate"),
    flag("tls-sni-cert-key", Repeated, Supported, "Further certificates: cert,key or cert,key:name,name"),
    flag("tls-min-version", Text, Supported, "VersionTLS12 or VersionTLS13; older ones mean VersionTLS12"),
    flag("tls-cipher-suites", List, Supported, "Cipher suites for TLS 1.2"),
    flag("tls-curve-preferences", Numbers, Ignored, "Key exchange groups"),
    flag("disable-http2-serving", Switch, Supported, "Offer HTTP/1.1 only"),
    flag("permit-port-sharing", Switch, Ignored, "SO_REUSEPORT"),
    flag("permit-address-sharing", Switch, NoEffect, "SO_REUSEADDR, which is always set"),
];

/// The authorities of client certificates, and of proxies with identity headers.
pub const TRUST: &[Flag] = &[
    flag("client-ca-file", Text, Supported, "Authorities of client certificates"),
    flag("requestheader-client-ca-file", Text, Supported, "Authorities of proxies with identity headers"),
    flag("requestheader-allowed-names", List, Supported, "Common names of those proxies; empty means any"),
    flag("requestheader-username-headers", List, Supported, "Headers with the user's name"),
    flag("requestheader-uid-headers", List, Supported, "Headers with the user's UID"),
    flag("requestheader-group-headers", List, Supported, "Headers with the user's groups"),
    flag("requestheader-extra-headers-prefix", List, Supported, "Prefixes of headers with extra attributes"),
];

/// The issuers of tokens other than those of service accounts, and the webhook that reviews tokens.
pub const TOKENS: &[Flag] = &[
    flag("token-auth-file", Text, Supported, "CSV file of static tokens"),
    flag("oidc-issuer-url", Text, Supported, "URL of an OpenID Connect issuer"),
    flag("oidc-client-id", Text, Supported, "Audience of the issuer's tokens"),
    flag("oidc-ca-file", Text, Supported, "Authorities of the issuer's certificate"),
    flag("oidc-username-claim", Text, Supported, "Claim with the user's name [default: sub]"),
    flag("oidc-username-prefix", Text, Supported, "Prefix of user names"),
    flag("oidc-groups-claim", Text, Supported, "Claim with the user's groups"),
    flag("oidc-groups-prefix", Text, Supported, "Prefix of groups"),
    flag("oidc-signing-algs", List, Supported, "Accepted algorithms [default: RS256]"),
    flag("oidc-required-claim", Pair, Supported, "Claims that tokens must have, as key=value"),
    flag("authentication-config", Text, Supported, "File with an AuthenticationConfiguration"),
    flag("authentication-token-webhook-config-file", Text, Supported, "Kubeconfig of a token webhook"),
    flag("authentication-token-webhook-version", Text, Supported, "v1beta1 or v1 [default: v1beta1]"),
    flag("authentication-token-webhook-cache-ttl", Duration, Supported, "Lifetime of results [default: 2m]"),
];

/// The store. Its file takes the place of kcp's embedded etcd.
pub(super) const STORE: &[Flag] = &[
    flag("embedded-etcd-directory", Text, Supported, "Folder of the store [default: etcd-server]"),
    flag("embedded-etcd-client-port", Text, Ignored, "Port of kcp's etcd"),
    flag("embedded-etcd-peer-port", Text, Ignored, "Port of kcp's etcd"),
    flag("embedded-etcd-listen-metrics-urls", List, Ignored, "Addresses of etcd's metrics"),
    flag("embedded-etcd-wal-size-bytes", Number, Ignored, "Size of etcd's log files"),
    flag("embedded-etcd-quota-backend-bytes", Number, Ignored, "Limit of etcd's size"),
    flag("embedded-etcd-force-new-cluster", Switch, Ignored, "Recovery of etcd"),
    flag(
        "etcd-servers",
        List,
        Supported,
        "URLs of an etcd that stores the objects; without them, or with `embedded`, a file does",
    ),
    flag("etcd-servers-overrides", List, Refused, "all objects of a server are kept in one store"),
    flag(
        "etcd-prefix",
        Text,
        Supported,
        "Prefix of keys in etcd [default: /registry, of a cache server /cache]",
    ),
    flag("etcd-cafile", Text, Supported, "Authorities of etcd's certificates"),
    flag("etcd-certfile", Text, Supported, "Client certificate for etcd"),
    flag("etcd-keyfile", Text, Supported, "Private key for etcd"),
    flag("etcd-compaction-interval", Duration, Supported, "Interval of compaction; 0 means never"),
    flag("etcd-count-metric-poll-period", Duration, Ignored, "Interval of a metric"),
    flag("etcd-db-metric-poll-interval", Duration, Ignored, "Interval of a metric"),
    flag("etcd-healthcheck-timeout", Duration, Ignored, "Time limit of etcd's health check"),
    flag("etcd-readycheck-timeout", Duration, Ignored, "Time limit of etcd's readiness check"),
    flag("lease-reuse-duration-seconds", Number, Ignored, "Reuse of etcd's leases"),
    flag("storage-backend", Text, Ignored, "Version of etcd"),
    flag("storage-media-type", Text, Ignored, "Form of stored objects, which is always JSON"),
    flag("watch-cache", Switch, Ignored, "Watches never read the store"),
    flag("watch-cache-sizes", List, Ignored, "Sizes of watch caches"),
    flag("encryption-provider-config", Text, Refused, "objects are not encrypted at rest yet"),
    flag("encryption-provider-config-automatic-reload", Switch, Ignored, "Reload of this file"),
];

/// The audit log.
pub(super) const AUDIT: [Flag; 31] = [
    flag("audit-policy-file", Text, Supported, "Policy of the audit log"),
    flag("audit-log-path", Text, Supported, "Audit log; - is standard output"),
    flag("audit-log-format", Text, Supported, "json or legacy [default: json]"),
    flag("audit-log-mode", Text, Supported, "batch, blocking or blocking-strict [default: blocking]"),
    flag("audit-log-maxage", Number, Supported, "Days for which rotated files are kept"),
    flag("audit-log-maxbackup", Number, Supported, "Number of rotated files"),
    flag("audit-log-maxsize", Number, Supported, "MiB at which the file is rotated"),
    flag("audit-log-compress", Switch, Supported, "Compression of rotated files"),
    flag("audit-log-version", Text, Supported, "Only audit.k8s.io/v1"),
    flag("audit-log-batch-buffer-size", Number, Supported, "Events that wait"),
    flag("audit-log-batch-max-size", Number, Supported, "Events of a batch"),
    flag("audit-log-batch-max-wait", Duration, Supported, "Time for a batch"),
    flag("audit-log-batch-throttle-enable", Switch, Supported, "Limit of batches"),
    flag("audit-log-batch-throttle-qps", Float, Supported, "Batches per second"),
    flag("audit-log-batch-throttle-burst", Number, Supported, "Batches in a burst"),
    flag("audit-log-truncate-enabled", Switch, Supported, "Limits of events"),
    flag("audit-log-truncate-max-batch-size", Number, Supported, "Bytes of a batch"),
    flag("audit-log-truncate-max-event-size", Number, Supported, "Bytes of an event"),
    flag("audit-webhook-config-file", Text, Supported, "Kubeconfig of an audit webhook"),
    flag("audit-webhook-mode", Text, Supported, "batch, blocking or blocking-strict [default: batch]"),
    flag("audit-webhook-initial-backoff", Duration, Supported, "Pause before a repetition"),
    flag("audit-webhook-version", Text, Supported, "Only audit.k8s.io/v1"),
    flag("audit-webhook-batch-buffer-size", Number, Supported, "Events that wait"),
    flag("audit-webhook-batch-max-size", Number, Supported, "Events of a batch"),
    flag("audit-webhook-batch-max-wait", Duration, Supported, "Time for a batch"),
    flag("audit-webhook-batch-throttle-enable", Switch, Supported, "Limit of batches"),
    flag("audit-webhook-batch-throttle-qps", Float, Supported, "Batches per second"),
    flag("audit-webhook-batch-throttle-burst", Number, Supported, "Batches in a burst"),
    flag("audit-webhook-truncate-enabled", Switch, Supported, "Limits of events"),
    flag("audit-webhook-truncate-max-batch-size", Number, Supported, "Bytes of a batch"),
    flag("audit-webhook-truncate-max-event-size", Number, Supported, "Bytes of an event"),
];

/// Format and verbosity of logs.
pub const LOGS: &[Flag] = &[
    flag("v", Level, Supported, "Verbosity: 0 to 3 is info, 4 and 5 debug, more trace"),
    flag("vmodule", Levels, Ignored, "Verbosity by source file of kcp"),
    flag("logging-format", Text, Supported, "text or json"),
    flag("log-flush-frequency", Duration, NoEffect, "No effect: logs are not buffered"),
    flag("log-text-split-stream", Switch, Ignored, "Separate stream for errors"),
    flag("log-text-info-buffer-size", Size, NoEffect, "No effect: logs are not buffered"),
    flag("log-json-split-stream", Switch, Ignored, "Separate stream for errors"),
    flag("log-json-info-buffer-size", Size, NoEffect, "No effect: logs are not buffered"),
];
