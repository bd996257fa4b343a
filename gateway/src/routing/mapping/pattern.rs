//! Path patterns: prefixes in which a segment may be a placeholder for a logical cluster.
//!
//! They match as Go's `ServeMux` does: segment by segment, each decoded separately; the more specific of two patterns wins.
//! Two patterns that overlap without one being more specific make kcp's proxy panic at every request. The gateway refuses
//! such a file when it reads it.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode_str;

/// The path of a mapping, parsed. `/a/{cluster}/` matches `/a/x` and everything below it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Pattern {
    segments: Vec<Segment>,
    /// Whether the path is `/clusters/`. `/a/` and `/a` are the same pattern, but only `/clusters/` with the slash is special.
    is_clusters: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Segment {
    Literal(String),
    /// `{cluster}`.
    Cluster,
    /// Another placeholder: legal, but its value is not used.
    Any,
}

/// The result of matching a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PatternMatch<'p> {
    /// The decoded segment at the position of `{cluster}`.
    pub(crate) cluster: Option<Cow<'p, str>>,
    /// The path after the pattern, still percent-encoded: empty, or beginning with a slash.
    pub(crate) rest: &'p str,
}

/// The path of a mapping cannot be used; the operator has to change it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum PatternError {
    /// The path is not absolute.
    #[error("the path {0:?} does not begin with a slash")]
    Relative(String),
    /// A segment would never match, because request paths are cleaned first.
    #[error("the path {0:?} is not clean")]
    Unclean(String),
    /// Braces in the middle of a segment, or an empty placeholder name.
    #[error("the segment {0:?} is neither a name nor a placeholder such as {{cluster}}")]
    Placeholder(String),
    /// `{cluster}` occurs twice.
    #[error("the path {0:?} has {{cluster}} twice")]
    DuplicateCluster(String),
}

impl Pattern {
    /// Parses the path of a mapping.
    ///
    /// # Errors
    /// [`PatternError`] names the fault.
    pub(crate) fn parse(path: &str) -> Result<Self, PatternError> {
        let Some(below) = path.strip_prefix('/') else {
            return Err(PatternError::Relative(path.to_owned()));
        };
        let below = below.strip_suffix('/').unwrap_or(below);
        let mut segments = Vec::new();
        for segment in below.split('/').filter(|_| !below.is_empty()) {
            // A dot written as `%2e` counts too: cleaning removes it from request paths.
            if matches!(&*percent_decode_str(segment).decode_utf8_lossy(), "" | "." | "..") {
                return Err(PatternError::Unclean(path.to_owned()));
            }
            segments.push(Segment::parse(segment)?);
        }
        if segments.iter().filter(|segment| **segment == Segment::Cluster).count() > 1 {
            return Err(PatternError::DuplicateCluster(path.to_owned()));
        }
        Ok(Self { segments, is_clusters: path == "/clusters/" })
    }

    /// Whether the pattern is exactly `/clusters/`, where the index determines the shard.
    pub(crate) fn is_clusters(&self) -> bool {
        self.is_clusters
    }

    /// Whether the pattern is `/`, which matches every path.
    pub(crate) fn is_root(&self) -> bool {
        self.segments.is_empty()
    }

    /// Matches a clean path. Does not allocate unless a segment at a placeholder is percent-encoded.
    pub(crate) fn matches<'p>(&self, path: &'p str) -> Option<PatternMatch<'p>> {
        let mut rest = path;
        let mut cluster = None;
        for segment in &self.segments {
            let below = rest.strip_prefix('/')?;
            let end = below.find('/').unwrap_or(below.len());
            let (given, after) = below.split_at(end);
            match segment {
                Segment::Literal(name) if percent_decode_str(given).eq(name.bytes()) => {}
                Segment::Literal(_) => return None,
                Segment::Cluster | Segment::Any if given.is_empty() => return None,
                Segment::Cluster => cluster = Some(percent_decode_str(given).decode_utf8_lossy()),
                Segment::Any => {}
            }
            rest = after;
        }
        Some(PatternMatch { cluster, rest })
    }

    /// Sort key: greater for the more specific of two overlapping patterns.
    pub(crate) fn specificity(&self) -> (usize, usize) {
        let literals = self.segments.iter().filter(|segment| matches!(segment, Segment::Literal(_)));
        (self.segments.len(), literals.count())
    }

    /// Whether `other` matches everything that this pattern matches.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        other.segments.len() <= self.segments.len()
            && other.segments.iter().zip(&self.segments).all(|(other, own)| match (other, own) {
                (Segment::Literal(other), Segment::Literal(own)) => other == own,
                (Segment::Literal(_), _) => false,
                (Segment::Cluster | Segment::Any, _) => true,
            })
    }

    /// Whether some path matches both patterns.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.segments.iter().zip(&other.segments).all(|(one, other)| match (one, other) {
            (Segment::Literal(one), Segment::Literal(other)) => one == other,
            _ => true,
        })
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, PatternError> {
        let invalid = || PatternError::Placeholder(text.to_owned());
        match text.strip_prefix('{').map(|rest| rest.strip_suffix('}')) {
            None if text.contains(['{', '}']) => Err(invalid()),
            None => Ok(Self::Literal(percent_decode_str(text).decode_utf8_lossy().into_owned())),
            Some(Some("cluster")) => Ok(Self::Cluster),
            Some(Some(name)) if !name.is_empty() && !name.contains(['{', '}', '.', '$']) => Ok(Self::Any),
            Some(_) => Err(invalid()),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(name) => write!(formatter, "/{name}")?,
                Segment::Cluster => formatter.write_str("/{cluster}")?,
                Segment::Any => formatter.write_str("/{…}")?,
            }
        }
        formatter.write_str("/")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_pattern_matches_its_path_and_everything_below_it() {
        for (pattern, path, expected) in [
            ("/", "/", Some((None, "/"))),
            ("/", "/any/thing", Some((None, "/any/thing"))),
            ("/services/", "/services", Some((None, ""))),
            ("/services/", "/services/", Some((None, "/"))),
            ("/services", "/services/a/b", Some((None, "/a/b"))),
            ("/services/", "/servicesx", None),
            ("/services/", "/%73ervices/a", Some((None, "/a"))),
            ("/e2e/clusters/{cluster}/", "/e2e/clusters/root:a/x", Some((Some("root:a"), "/x"))),
            ("/e2e/clusters/{cluster}/", "/e2e/clusters/root%3Aa", Some((Some("root:a"), ""))),
            ("/e2e/clusters/{cluster}/", "/e2e/clusters/", None),
            ("/e2e/clusters/{cluster}/", "/e2e/clusters", None),
            ("/a/{other}/b", "/a/x/b/c", Some((None, "/c"))),
            ("/a/{other}/b", "/a/x/c", None),
        ] {
            let found = Pattern::parse(pattern).unwrap().matches(path).map(|matched| {
                let cluster = matched.cluster.map(Cow::into_owned);
                (cluster, matched.rest)
            });
            let expected =
                expected.map(|(cluster, rest): (Option<&str>, _)| (cluster.map(str::to_owned), rest));
            assert_eq!(found, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn overlapping_patterns_are_ordered_by_specificity_or_conflict() {
        for (one, other, within, overlap) in [
            ("/a/b/", "/a/", true, true),
            ("/a/b", "/a/{cluster}/", true, true),
            ("/a/{cluster}/", "/", true, true),
            ("/a/", "/b/", false, false),
            ("/a/{cluster}/", "/{cluster}/b/", false, true),
            ("/a/{cluster}/c", "/a/b/", false, true),
            ("/a/{x}/", "/a/{cluster}/", true, true),
        ] {
            let (one, other) = (Pattern::parse(one).unwrap(), Pattern::parse(other).unwrap());
            assert_eq!((one.is_within(&other), one.overlaps(&other)), (within, overlap), "{one} {other}");
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for path in [
            "",
            "a/",
            "/a//b",
            "/a/../b",
            "/./",
            "/%2e/x/",
            "/a/.%2E",
            "/{cluster}/{cluster}",
            "/x{cluster}",
            "/{}",
            "/{a...}",
        ] {
            assert!(Pattern::parse(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn only_the_exact_path_clusters_is_special() {
        for (path, special) in [("/clusters/", true), ("/clusters", false), ("/clusters/x/", false)] {
            assert_eq!(Pattern::parse(path).unwrap().is_clusters(), special, "{path}");
        }
    }
}
