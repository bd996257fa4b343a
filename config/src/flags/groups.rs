//! Flags that shard and cache server share, by subject.

use super::flag::Kind::{
    Address, Duration, Level, Levels, List, Number, Numbers, Repeated, Size, Switch, Text,
};
use super::flag::Support::{Ignored, NoEffect, Refused, Supported};
use super::flag::{Flag, flag};

/// The listener and its certificates.
pub(super) const LISTENER: &[Flag] = &[
    flag("bind-address", Address, Supported, "IP address to listen on [default: all]"),
    flag("secure-port", Number, Supported, "Port to listen on [default: 6443]"),
    flag("cert-dir", Text, Supported, "Folder of a self-signed certificate [default: --root-directory]"),
    flag("tls-cert-file", Text, Supported, "Serving certificate"),
    flag("tls-private-key-file", Text, Supported, "Private key of the serving certificate"),
    flag("tls-sni-cert-key", Repeated, Supported, "Further certificates: cert,key or cert,key:name,name"),
    flag("tls-min-version", Text, Supported, "VersionTLS12 or VersionTLS13; older ones mean VersionTLS12"),
    flag("tls-cipher-suites", List, Supported, "Cipher suites for TLS 1.2"),
    flag("tls-curve-preferences", Numbers, Ignored, "Key exchange groups"),
    flag("disable-http2-serving", Switch, Supported, "Offer HTTP/1.1 only"),
    flag("http2-max-streams-per-connection", Number, Supported, "Streams per HTTP/2 connection"),
    flag("permit-port-sharing", Switch, Ignored, "SO_REUSEPORT"),
    flag("permit-address-sharing", Switch, NoEffect, "SO_REUSEADDR, which is always set"),
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
    flag("etcd-servers", List, Supported, "Only `embedded`: shards cannot use etcd yet"),
    flag("etcd-servers-overrides", List, Refused, "objects are kept in one embedded store; etcd comes later"),
    flag("etcd-prefix", Text, Ignored, "Prefix of keys in etcd"),
    flag("etcd-cafile", Text, Ignored, "Authorities of etcd's certificates"),
    flag("etcd-certfile", Text, Ignored, "Client certificate for etcd"),
    flag("etcd-keyfile", Text, Ignored, "Private key for etcd"),
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

/// Format and verbosity of logs.
pub(super) const LOGS: &[Flag] = &[
    flag("v", Level, Supported, "Verbosity: 0 to 3 is info, 4 and 5 debug, more trace"),
    flag("vmodule", Levels, Ignored, "Verbosity by source file of kcp"),
    flag("logging-format", Text, Supported, "text or json"),
    flag("log-flush-frequency", Duration, NoEffect, "No effect: logs are not buffered"),
    flag("log-text-split-stream", Switch, Ignored, "Separate stream for errors"),
    flag("log-text-info-buffer-size", Size, NoEffect, "No effect: logs are not buffered"),
    flag("log-json-split-stream", Switch, Ignored, "Separate stream for errors"),
    flag("log-json-info-buffer-size", Size, NoEffect, "No effect: logs are not buffered"),
];
