//! Every setting of every process, typed, with defaults, lint rules and kcp flag names.
//!
//! One YAML file per process, read strictly. A setting is declared once: its type, key, default and documentation,
//! which names the flag of the kcp program that it replaces. This crate does not know how settings are used; it looks
//! at files only to lint them and never into them.

mod access_log;
mod authentication;
mod cache;
mod check;
mod defaults;
mod door;
mod gateway;
mod issuer;
mod lint;
mod load;
mod outline;
mod pick;
mod quota;
mod selector;
mod setting;
mod shard;
mod shared;
mod state;
mod tracing;
mod units;
mod values;

pub use access_log::{AccessLogConfig, AccessLogTarget, AlwaysLogged};
pub use authentication::{
    AuthenticationConfig, OidcConfig, RequestHeaderConfig, ReviewVersion, ServiceAccountConfig, WebhookConfig,
};
pub use cache::CacheConfig;
pub use check::Checker;
pub use defaults::defaults_yaml;
pub use door::{
    DoorConfig, DoorTlsConfig, NamedCertificateConfig, PeersConfig, RefusedConfig, SocketConfig,
    UpgradeProtocol,
};
pub use gateway::{
    GatewayConfig, IndexConfig, PathsConfig, ShardUpstreamConfig, UpgradeConfig, UpstreamConfig,
};
pub use issuer::IssuerConfig;
pub use lint::lint;
pub use load::{ConfigError, Finding, ProcessConfig, ProcessKind, UnknownProcess, finding, load};
pub use pick::{PickConfig, PickPolicy, PickShardConfig};
pub use quota::{
    BreakerConfig, ConcurrencyConfig, ConcurrencyPolicy, DoorQuotasConfig, QuotaConfig, SlowClientsConfig,
};
pub use selector::ShardSelector;
pub use setting::{Entry, Meaning, Setting};
pub use shard::{ShardConfig, ShardPickConfig};
pub use shared::{ConnectionLimits, DrainConfig, LogConfig, ServingConfig, StoreConfig, TrustConfig};
pub use state::{ProcessPhase, ProcessState};
pub use tracing::{CollectorUrl, TraceContextPolicy, TracingConfig};
pub use units::{ByteSize, Fraction, Timespan, UnitError};
pub use values::{
    Battery, HttpsUrl, InputFile, KcpBehaviour, LogFormat, OwnPath, SecretFile, ServicesPolicy, ShardName,
    TlsVersion, TokenPolicy,
};
