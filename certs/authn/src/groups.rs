//! Which groups a server believes its clients to be in.

use crate::Identity;
use std::sync::Arc;

/// Takes groups away from those who may not bring them along. A gateway uses it so that a certificate or
/// token that is all-powerful inside the installation is not so from outside.
///
/// A pattern is a whole name, or the beginning of one followed by `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFilter {
    pass_on: Vec<Pattern>,
    drop: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Whole(String),
    Prefix(String),
}

impl GroupFilter {
    /// The groups that belong to the inside of an installation; what kcp's front proxy drops by default.
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

    /// Passes on what matches `pass_on` (everything if that is empty) and does not match `drop`. Note that a
    /// non-empty `pass_on` has to name `system:authenticated` to let it through.
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

    /// The filter of the flags `--authentication-pass-on-groups` and `--authentication-drop-groups`. Values
    /// are lists with commas; those that somebody has put into quotes as a whole, as the operator of kcp
    /// does, mean the same without them.
    #[must_use]
    pub fn from_flags<P: AsRef<str>, D: AsRef<str>>(pass_on: &[P], drop: &[D]) -> Self {
        Self::new(
            pass_on.iter().flat_map(|value| listed(value.as_ref())),
            drop.iter().flat_map(|value| listed(value.as_ref())),
        )
    }

    /// Whether a group is believed.
    #[must_use]
    pub fn passes(&self, group: &str) -> bool {
        let matches = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(group));
        (self.pass_on.is_empty() || matches(&self.pass_on)) && !matches(&self.drop)
    }

    /// The identity with the groups that pass, sorted and each once. Allocates only if that is a change.
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

/// The elements of a list with commas, wherever somebody has put quotes.
fn listed(value: &str) -> impl Iterator<Item = &str> {
    let is_noise = |char: char| char.is_whitespace() || char == '"' || char == '\'';
    value.split(',').map(move |element| element.trim_matches(is_noise)).filter(|element| !element.is_empty())
}

impl Pattern {
    fn parse(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Whole(text.to_owned()),
        }
    }

    fn matches(&self, group: &str) -> bool {
        match self {
            Self::Whole(name) => name == group,
            Self::Prefix(prefix) => group.starts_with(prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Method, UserInfo};

    fn filtered(filter: &GroupFilter, groups: &[&str]) -> Vec<String> {
        let user =
            UserInfo { groups: groups.iter().map(ToString::to_string).collect(), ..UserInfo::default() };
        filter.apply(Arc::new(Identity::new(user, Method::BearerToken, None))).user().groups.clone()
    }

    #[test]
    fn groups_pass_drop_and_come_out_in_order() {
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
    fn lists_of_flags_are_read_however_they_are_quoted() {
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
    fn what_needs_no_change_is_shared() {
        let user = UserInfo { groups: vec!["a".to_owned(), "b".to_owned()], ..UserInfo::default() };
        let identity = Arc::new(Identity::new(user, Method::ClientCertificate, None));
        assert!(Arc::ptr_eq(&GroupFilter::privileged().apply(Arc::clone(&identity)), &identity));
    }
}
