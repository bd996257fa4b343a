//! What is likely to go wrong with a configuration, found without starting the process: in the settings, in the files that
//! they name, and between these files.
//!
//! This crate knows what settings mean for trust: which file says who somebody is, which only who carries requests, which
//! is shown to whom. It starts nothing, connects to nobody, and shows nothing of a secret.

mod bundles;
mod certificate;
mod doors;
mod issuers;
mod kubeconfigs;
mod pairs;
mod servers;
mod survey;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fairlead_config::{
    CacheConfig, Checker, Finding, GatewayConfig, IssuerConfig, ProcessKind, ShardConfig, examine,
};
use survey::Survey;

/// Everything that is wrong with a configuration and the files that it names, in the order of its lines.
pub fn lint(kind: ProcessKind, file: &Path) -> Vec<Finding> {
    lint_at(kind, file, SystemTime::now())
}

/// The same as it will be at another time: certificates end.
pub fn lint_at(kind: ProcessKind, file: &Path, now: SystemTime) -> Vec<Finding> {
    let survey = |checker: &mut Checker, inspect: &dyn Fn(&mut Survey<'_>)| {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut survey = Survey::new(i64::try_from(now).unwrap_or(i64::MAX), checker);
        inspect(&mut survey);
        survey.compare();
    };
    match kind {
        ProcessKind::Gateway => examine::<GatewayConfig>(file, |config, checker| {
            survey(checker, &|survey| doors::inspect(config, survey));
        }),
        ProcessKind::Shard => examine::<ShardConfig>(file, |config, checker| {
            survey(checker, &|survey| servers::inspect_shard(config, survey));
        }),
        ProcessKind::Cache => examine::<CacheConfig>(file, |config, checker| {
            survey(checker, &|survey| servers::inspect_cache(config, survey));
        }),
        ProcessKind::Issuer => examine::<IssuerConfig>(file, |config, checker| {
            survey(checker, &|survey| servers::inspect_issuer(config, survey));
        }),
    }
}
