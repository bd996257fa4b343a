//! The command line of kcp's `cache-server`, turned into the settings of the cache server.

use std::path::PathBuf;

use super::flag::Kind::{Duration, List, Number, Switch, Text};
use super::flag::Support::{Ignored, Supported};
use super::flag::{Flag, flag};
use super::{Arguments, FlagError, FlagSet, GivenFlags, SelfSignedFiles, checked, groups};
use crate::cache::CacheConfig;
use crate::shared::{ConnectionLimits, DrainConfig};
use crate::units::Timespan;

/// All flags of the recorded version.
const FLAGS: FlagSet = FlagSet {
    program: "fairlead-cache-server",
    about: "Serves the objects that all shards share: with the flags of kcp's cache-server, or with --config and nothing else.",
    groups: &[CACHE, groups::LISTENER, groups::TLS, groups::STORE, groups::LOGS],
};

const CACHE: &[Flag] = &[
    flag("root-directory", Text, Supported, "Folder of the server's files [default: .kcp-cache]"),
    flag("client-ca-file", Text, Supported, "Authorities of client certificates (required)"),
    flag("authorization-always-allow-paths", List, Supported, "Paths that everybody may read"),
    flag("synthetic-delay", Duration, Supported, "Pause before each request"),
    flag("replica-name", Text, Supported, "Name of this replica on etcd [default: host and process]"),
    flag("delete-collection-workers", Number, Ignored, "Workers of kcp's server"),
    flag("enable-garbage-collector", Switch, Ignored, "A cache has no garbage collector"),
];

/// Time of the drain: shards reconnect at once.
const SHORT_DRAIN: Timespan = Timespan::from_secs(2);

/// A parsed command line.
#[derive(Debug)]
pub struct CacheFlags {
    /// The equivalent configuration.
    pub config: CacheConfig,
    /// The folder of the server's files, created for the owner only.
    pub root_directory: PathBuf,
    /// The serving certificate to create at the start if it does not exist, because none was named.
    pub self_signed: Option<SelfSignedFiles>,
    /// One sentence each: flags without effect, and flags with another effect than in kcp.
    pub warnings: Vec<String>,
}

/// The result of parsing a command line.
pub type CacheArguments = Arguments<CacheFlags>;

impl CacheFlags {
    /// Parses the arguments that follow the program's name. Relative paths start from the working directory.
    ///
    /// # Errors
    /// [`FlagError`] names the flag.
    pub fn parse(
        version: &'static str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<CacheArguments, FlagError> {
        FLAGS.arguments(version, "cache", arguments, flags)
    }
}

fn flags(given: &GivenFlags) -> Result<CacheFlags, FlagError> {
    given.check_values()?;
    let root_directory = given.path("root-directory").unwrap_or_else(|| ".kcp-cache".into());
    let certificates = given.path("cert-dir").unwrap_or_else(|| root_directory.clone());
    let (serving, self_signed) = given.serving(6443, &certificates)?;
    let default = CacheConfig::default();
    let store = given.store(&root_directory)?;
    let config = CacheConfig {
        replica_name: given.text("replica-name").map(Into::into),
        serving,
        tls: given.tls()?,
        client_ca: given.path("client-ca-file").ok_or(FlagError::Missing("client-ca-file"))?.into(),
        always_allow_paths: given.list_or("authorization-always-allow-paths", default.always_allow_paths),
        store,
        synthetic_delay: given.duration("synthetic-delay").unwrap_or(default.synthetic_delay),
        limits: given.connection_limits(ConnectionLimits::default()),
        drain: DrainConfig { window: SHORT_DRAIN, ..DrainConfig::default() },
        log: given.log("fairlead_cache")?,
        ..CacheConfig::default()
    };
    checked(&config)?;
    let warnings = given.without_effect().into_iter().chain(given.older_tls_version()).collect();
    Ok(CacheFlags { config, root_directory, self_signed, warnings })
}
