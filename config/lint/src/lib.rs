//! Lint of a configuration without starting the process: of its settings, the files that they name, and the relations
//! between these files.
//!
//! This crate knows the meaning of settings for trust: which authorities authenticate users, which authenticate transport only,
//! and which certificates are presented to clients and servers. It starts no process, opens no connection, and shows no secret.

mod bundles;
mod certificate;
mod issuers;
mod kubeconfigs;
mod linter;
mod listeners;
mod pairs;
mod servers;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fairlead_config::{
    CacheConfig, Checker, Finding, GatewayConfig, IssuerConfig, ProcessKind, ShardConfig,
    VirtualWorkspacesConfig, lint_configuration,
};
use linter::FileLinter;

/// All findings of a configuration and its files, in the order of its lines.
pub fn lint(kind: ProcessKind, file: &Path) -> Vec<Finding> {
    lint_at(kind, file, SystemTime::now())
}

/// All findings at the time `now`, on which the expiry of certificates depends.
pub fn lint_at(kind: ProcessKind, file: &Path, now: SystemTime) -> Vec<Finding> {
    let check_files = |checker: &mut Checker, inspect: &dyn Fn(&mut FileLinter<'_>)| {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut linter = FileLinter::new(i64::try_from(now).unwrap_or(i64::MAX), checker);
        inspect(&mut linter);
        linter.compare_files();
    };
    match kind {
        ProcessKind::Gateway => lint_configuration::<GatewayConfig>(file, |config, checker| {
            check_files(checker, &|linter| listeners::inspect(config, linter));
        }),
        ProcessKind::Shard => lint_configuration::<ShardConfig>(file, |config, checker| {
            check_files(checker, &|linter| servers::inspect_shard(config, linter));
        }),
        ProcessKind::Cache => lint_configuration::<CacheConfig>(file, |config, checker| {
            check_files(checker, &|linter| servers::inspect_cache(config, linter));
        }),
        ProcessKind::Issuer => lint_configuration::<IssuerConfig>(file, |config, checker| {
            check_files(checker, &|linter| servers::inspect_issuer(config, linter));
        }),
        ProcessKind::VirtualWorkspaces => {
            lint_configuration::<VirtualWorkspacesConfig>(file, |config, checker| {
                check_files(checker, &|linter| servers::inspect_virtual_workspaces(config, linter));
            })
        }
    }
}
