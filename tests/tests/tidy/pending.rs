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

/// Rules and the prefixes of the faults that do not fail the tests. A fault begins with a path. Empty when all is done.
pub const PENDING: &[(Rule, &[&str])] = &[
    (Rule::Words, &[]),
    (Rule::Comments, &[]),
    (Rule::Modules, &[]),
    (Rule::OutsidePaths, &[]),
    (Rule::Compression, &[]),
    (Rule::Documents, &[]),
];

/// The faults that are not pending. Pending ones are printed: `cargo test --test tidy -- --nocapture` shows them.
pub fn without_pending(rule: Rule, faults: Vec<String>) -> Vec<String> {
    let prefixes: Vec<&str> = PENDING
        .iter()
        .filter(|(pending, _)| *pending == rule)
        .flat_map(|(_, prefixes)| *prefixes)
        .copied()
        .collect();
    let (pending, faults): (Vec<String>, Vec<String>) =
        faults.into_iter().partition(|fault| prefixes.iter().any(|prefix| fault.starts_with(prefix)));
    pending.iter().for_each(|fault| println!("pending: {fault}"));
    faults
}
