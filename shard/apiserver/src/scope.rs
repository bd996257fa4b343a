//! The scope of a request: one scope, or several.

use core::fmt;
use std::sync::Arc;

/// A full scope: the storage segments between a resource and its objects, joined by `/`.
///
/// The host chooses them (a shard: the logical cluster; the cache server: shard and logical cluster);
/// this crate only compares them. Cheap to clone.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Scope(Arc<str>);

impl Scope {
    /// A scope of segments that are already joined and known to be free of `/`, `"` and `\`.
    pub fn new(segments: &str) -> Self {
        Self(segments.into())
    }

    /// The segments joined by `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The scopes of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ScopeSelector {
    /// Exactly one.
    One(Scope),
    /// Every scope whose leading segments are these (empty: all) and, when given, whose last segment
    /// is `last`.
    Every {
        /// Leading segments joined by `/`, empty for none.
        below: Arc<str>,
        /// The last segment, when it is fixed (the cache server's `/shards/*/clusters/x`).
        last: Option<Arc<str>>,
    },
}

impl ScopeSelector {
    /// All scopes.
    pub fn all() -> Self {
        Self::Every { below: "".into(), last: None }
    }

    /// The one scope, if it is one.
    pub fn one(&self) -> Option<&Scope> {
        match self {
            Self::One(scope) => Some(scope),
            Self::Every { .. } => None,
        }
    }

    /// The leading segments that all selected scopes share: the prefix of the storage range.
    pub fn leading(&self) -> &str {
        match self {
            Self::One(scope) => scope.as_str(),
            Self::Every { below, .. } => below,
        }
    }

    /// Whether a scope is selected.
    pub fn selects(&self, scope: &str) -> bool {
        match self {
            Self::One(one) => one.as_str() == scope,
            Self::Every { below, last } => {
                let below_matches = below.is_empty()
                    || scope.strip_prefix(&**below).is_some_and(|rest| rest.starts_with('/'));
                below_matches && last.as_deref().is_none_or(|last| scope.rsplit('/').next() == Some(last))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_compare_whole_segments() {
        let every = |below: &str, last: Option<&str>| ScopeSelector::Every {
            below: below.into(),
            last: last.map(Into::into),
        };
        for (selector, scope, selected) in [
            (ScopeSelector::One(Scope::new("a")), "a", true),
            (ScopeSelector::One(Scope::new("a")), "ab", false),
            (ScopeSelector::all(), "s/a", true),
            (every("s", None), "s/a", true),
            (every("s", None), "s1/a", false),
            (every("", Some("a")), "s1/a", true),
            (every("", Some("a")), "s1/ba", false),
        ] {
            assert_eq!(selector.selects(scope), selected, "{selector:?} {scope}");
        }
    }
}
