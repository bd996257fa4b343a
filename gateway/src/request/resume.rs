//! Detects watches and paginated lists that resume from a resourceVersion of another shard. Revisions of two shards
//! are unrelated, so such a request gets 410 Expired, upon which clients list again.

use crate::request::RequestClass;

/// Whether a request resumes from an earlier one: a watch from a revision, a list from a page or at one
/// exact revision. Reads the query only.
pub(crate) fn resumes_from_revision(class: RequestClass, query: Option<&str>) -> bool {
    let Some(query) = query else {
        return false;
    };
    let has = |name: &str, test: fn(&str) -> bool| {
        form_urlencoded::parse(query.as_bytes()).any(|(key, value)| key == name && test(&value))
    };
    let from_revision = has("resourceVersion", |version| !matches!(version, "" | "0"));
    match class {
        RequestClass::Watch => from_revision,
        RequestClass::Read => {
            has("continue", |token| !token.is_empty())
                || (from_revision && has("resourceVersionMatch", |value| value == "Exact"))
        }
        RequestClass::Write | RequestClass::Upgrade => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resuming_requests_are_detected() {
        use RequestClass::{Read, Upgrade, Watch, Write};
        for (class, query, expected) in [
            (Watch, "watch=1&resourceVersion=7", true),
            (Watch, "resourceVersion=7&watch=true&allowWatchBookmarks=true", true),
            (Watch, "watch=1&resource%56ersion=%37", true),
            (Read, "continue=+", true),
            (
                Watch,
                "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7",
                true,
            ),
            (Watch, "watch=1", false),
            (Watch, "watch=1&resourceVersion=", false),
            (Watch, "watch=1&resourceVersion=0", false),
            (Watch, "follow=true", false),
            (Read, "limit=500&continue=abc", true),
            (Read, "limit=500&continue=", false),
            (Read, "resourceVersion=7&resourceVersionMatch=Exact", true),
            (Read, "resourceVersion=7&resourceVersionMatch=NotOlderThan", false),
            (Read, "resourceVersion=7", false),
            (Write, "resourceVersion=7&continue=abc", false),
            (Upgrade, "watch=1&resourceVersion=7", false),
        ] {
            assert_eq!(resumes_from_revision(class, Some(query)), expected, "{class:?} {query}");
        }
        assert!(!resumes_from_revision(Watch, None));
    }
}
