//! Filters for the groups of authenticated users.

use crate::Identity;
use std::sync::Arc;

/// Drops groups from identities. A gateway uses it so that a certificate or token with all rights inside the installation
/// does not have them from outside.
///
/// A pattern is an exact name, or a prefix followed by `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFilter {
    pass_on: Vec<Pattern>,
    drop: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exact(String),
    Prefix(String),
}

impl GroupFilter {
    /// The groups for clients inside an installation; kcp's front proxy drops them by default.
    pub const PRIVILEGED: [&str; 4] = [
        "system:masters",
        "system:kcp:logical-cluster-admin",
        "system:kcp:initializer:*",
        "system:kcp:terminator:*",
    ];

    /// Drops the [privileged](Self::PRIVILEGED) groups and passes on all others.
    #[must_use]
    pub fn privileged() -> Self {
        Self::new([] as [&str; 0], Self::PRIVILEGED)
    }

    /// Passes groups that match `pass_on` (all if that is empty) and do not match `drop`. A non-empty `pass_on` has to
    /// contain `system:authenticated` to pass it.
    #[must_use]
    pub fn new<P: AsRef<str>, D: AsRef<str>>(
        pass_on: impl IntoIterator<Item = P>,
        drop: impl IntoIterator<Item = D>,
    ) -> Self {
        Self {
            pass_on: pass_on.into_iter().map(|pattern| Pattern::parse(pattern.as_ref())).collect(),
            drop: drop.into_iter().map(|pattern| Pattern::parse(pattern.as_ref())).collect(),
        }
    }

    /// The filter of the flags `--authentication-pass-on-groups` and `--authentication-drop-groups`. Values are lists with
    /// commas. Quotes around a whole list, which kcp's operator writes, are ignored.
    #[must_use]
    pub fn from_flags<P: AsRef<str>, D: AsRef<str>>(pass_on: &[P], drop: &[D]) -> Self {
        Self::new(
            pass_on.iter().flat_map(|value| split_list(value.as_ref())),
            drop.iter().flat_map(|value| split_list(value.as_ref())),
        )
    }

    /// Whether the group passes the filter.
    #[must_use]
    pub fn passes(&self, group: &str) -> bool {
        let matches = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(group));
        (self.pass_on.is_empty() || matches(&self.pass_on)) && !matches(&self.drop)
    }

    /// The identity with the groups that pass, sorted and unique. Allocates only if the groups change.
    pub(crate) fn apply(&self, identity: Arc<Identity>) -> Arc<Identity> {
        let groups = &identity.user().groups;
        let in_order = groups.windows(2).all(|pair| pair[0] < pair[1]);
        if in_order && groups.iter().all(|group| self.passes(group)) {
            return identity;
        }
        let mut passed: Vec<String> = groups.iter().filter(|group| self.passes(group)).cloned().collect();
        passed.sort_unstable();
        passed.dedup();
        Arc::new(identity.with_groups(passed))
    }
}

/// The elements of a list with commas, without quotes.
fn split_list(value: &str) -> impl Iterator<Item = &str> {
    let is_quote_or_space = |char: char| char.is_whitespace() || char == '"' || char == '\'';
    value
        .split(',')
        .map(move |element| element.trim_matches(is_quote_or_space))
        .filter(|element| !element.is_empty())
}

impl Pattern {
    fn parse(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exact(text.to_owned()),
        }
    }

    fn matches(&self, group: &str) -> bool {
        match self {
            Self::Exact(name) => name == group,
            Self::Prefix(prefix) => group.starts_with(prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AuthenticationMethod, UserInfo};

    fn filtered(filter: &GroupFilter, groups: &[&str]) -> Vec<String> {
        let user =
            UserInfo { groups: groups.iter().map(ToString::to_string).collect(), ..UserInfo::default() };
        filter
            .apply(Arc::new(Identity::new(user, AuthenticationMethod::TokenFile, None)))
            .user()
            .groups
            .clone()
    }

    #[test]
    fn groups_are_filtered_and_sorted() {
        let privileged = GroupFilter::privileged();
        let listed = GroupFilter::new(
            ["team-*", "system:authenticated", "system:masters"],
            ["team-x", "system:masters"],
        );
        let cases: [(&GroupFilter, &[&str], &[&str]); 6] = [
            (&privileged, &["system:masters"], &[]),
            (
                &privileged,
                &[
                    "z",
                    "system:kcp:initializer:root:x",
                    "a",
                    "z",
                    "system:kcp:terminator:t",
                    "system:kcp:admin",
                ],
                &["a", "system:kcp:admin", "z"],
            ),
            (
                &privileged,
                &["system:kcp:logical-cluster-admin", "system:kcp:external-logical-cluster-admin"],
                &["system:kcp:external-logical-cluster-admin"],
            ),
            (
                &privileged,
                &["System:Masters", "system:masters2", "system:kcp:initializer"],
                &["System:Masters", "system:kcp:initializer", "system:masters2"],
            ),
            (&listed, &["team-a", "team-x", "other", "system:masters"], &["team-a"]),
            (&GroupFilter::default(), &["b", "a", "b"], &["a", "b"]),
        ];
        for (filter, groups, expected) in cases {
            assert_eq!(filtered(filter, groups), expected, "{groups:?}");
        }
    }

    #[test]
    fn quotes_in_lists_of_flags_are_ignored() {
        let expected = GroupFilter::new([] as [&str; 0], ["system:masters", "team-*"]);
        let cases: [&[&str]; 5] = [
            &["system:masters", "team-*"],
            &["system:masters,team-*"],
            &["\"system:masters,team-*\""],
            &[" 'system:masters' , \"team-*\",,"],
            &["system:masters", "", "\"team-*\""],
        ];
        for drop in cases {
            assert_eq!(GroupFilter::from_flags(&[] as &[&str], drop), expected, "{drop:?}");
        }
        assert_eq!(GroupFilter::from_flags(&["", "\"\""], &[""]), GroupFilter::default());
    }

    #[test]
    fn an_unchanged_identity_is_shared() {
        let user = UserInfo { groups: vec!["a".to_owned(), "b".to_owned()], ..UserInfo::default() };
        let identity = Arc::new(Identity::new(user, AuthenticationMethod::ClientCertificate, None));
        assert!(Arc::ptr_eq(&GroupFilter::privileged().apply(Arc::clone(&identity)), &identity));
    }
}
