//! Parts of the repository that do not follow a rule yet.

/// A rule that can have exceptions while the repository is changed to follow it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Names and words ([`crate::words`]).
    Words,
    /// Sentences of comments ([`crate::comments`]).
    Comments,
    /// Import circles and layers ([`crate::modules`]).
    Modules,
    /// Paths out of the repository ([`crate::outside_paths`]).
    OutsidePaths,
    /// C libraries for compression ([`crate::compression`]).
    Compression,
    /// Length and links of documents ([`crate::documents`]).
    Documents,
}

/// Rules and the prefixes of the faults that are not reported: of paths, or of crates for rules about crates.
pub const PENDING: &[(Rule, &[&str])] = &[
    (Rule::Words, &["gateway/", "shard/", "certs/", "config/", "cache/"]),
    (Rule::Words, &["tests/tests/behaviour/admin/"]),
    (Rule::Comments, &["gateway/", "shard/", "certs/", "config/", "cache/", "Cargo.toml"]),
    (Rule::Modules, &["gateway/", "shard/", "certs/authn/", "config/client/", "config/process/"]),
    (Rule::OutsidePaths, &[]),
    (Rule::Compression, &[]),
    (Rule::Documents, &[]),
];

/// Whether a fault, which begins with a path or a crate, is not reported yet.
pub fn is_pending(rule: Rule, fault: &str) -> bool {
    let prefixes = PENDING.iter().filter(|(pending, _)| *pending == rule).flat_map(|(_, prefixes)| *prefixes);
    prefixes.into_iter().any(|prefix| fault.starts_with(prefix))
}
