//! Every setting of every process, typed, with defaults, lint rules and kcp flag names.
//!
//! One YAML file per process, read strictly. A setting is declared once: its type, key, default and documentation,
//! which names the flag of the kcp program that it replaces. This crate does not know how settings are used. It knows the form of
//! some files that settings name (PEM, lists of networks). Its lint checks that all of them exist and who can read them;
//! `fairlead-lint` checks their content.

mod access_log;
mod acme;
mod audit;
mod authentication;
mod authorization;
mod cache;
mod check;
mod defaults;
pub mod flags;
mod gateway;
mod health;
mod issuer;
mod key_positions;
mod lint;
mod listener;
mod load;
mod networks;
mod pem;
mod placement;
mod quota;
mod regular_file;
mod renamed;
mod selector;
mod setting;
mod shard;
mod shared;
mod state;
mod tracing;
mod units;
mod values;
mod virtual_workspaces;

pub use access_log::{AccessLogConfig, AccessLogTarget, AlwaysLogged};
pub use acme::{AcmeChallenge, AcmeConfig, ExternalAccountConfig, ListenerAcmeConfig};
pub use audit::{
    AuditConfig, AuditLogBatchConfig, AuditLogFormat, AuditLogPath, AuditMode, AuditTruncateConfig,
    AuditWebhookBatchConfig, AuditWebhookConfig,
};
pub use authentication::{
    AuthenticationConfig, OidcConfig, RequestHeaderConfig, ReviewVersion, ServiceAccountConfig, WebhookConfig,
};
pub use authorization::{AuthorizationConfig, AuthorizationWebhookConfig, AuthorizerKind};
pub use cache::CacheConfig;
pub use check::Checker;
pub use defaults::defaults_yaml;
pub use gateway::{
    GatewayConfig, IndexConfig, PathsConfig, ShardUpstreamConfig, UpgradeConfig, UpstreamConfig,
};
pub use health::HealthConfig;
pub use issuer::IssuerConfig;
pub use lint::lint_configuration;
pub use listener::{
    DenyConfig, ListenerConfig, ListenerTlsConfig, PeersConfig, SocketConfig, UpgradeProtocol,
    UpstreamIdentityConfig,
};
pub use load::{ConfigError, Finding, ProcessConfig, ProcessKind, UnknownProcess, finding, load};
pub use networks::{Networks, NetworksError};
pub use pem::PemFault;
pub use placement::{PlacementConfig, PlacementPolicy, ShardPlacementConfig};
pub use quota::{
    AddressQuotaConfig, CircuitBreakerConfig, ConcurrencyConfig, ConcurrencyPolicy, ListenerQuotasConfig,
    QuotaConfig,
};
pub use regular_file::{is_regular_file, read_regular_file};
pub use selector::ShardSelector;
pub use setting::{Entry, Meaning, Setting};
pub use shard::{
    AdminAccessConfig, HomeWorkspacesConfig, ObjectLimitsConfig, PlacementClientConfig,
    ShardAuthenticationConfig, ShardConfig, ShardServiceAccountsConfig,
};
pub use shared::{
    AllowedPeersConfig, ConnectionLimits, ConnectionQuotaConfig, DrainConfig, EtcdConfig, LogConfig,
    NamedCertificateConfig, ServerTlsConfig, ServingConfig, SlowClientsConfig, StoreConfig, TrustConfig,
};
pub use state::{ProcessPhase, ProcessState};
pub use tracing::{CollectorUrl, TraceContextPolicy, TracingConfig};
pub use units::{ByteSize, Fraction, Timespan, UnitError};
pub use values::{
    Battery, HttpsUrl, InputFile, KcpBehaviour, LogFormat, OwnPath, SecretFile, ServicesPolicy, ShardName,
    TlsVersion, TokenPolicy,
};
pub use virtual_workspaces::VirtualWorkspacesConfig;
