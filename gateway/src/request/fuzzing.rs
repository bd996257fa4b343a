//! Fuzzing target: invariants of the request path parser.

use http::uri::PathAndQuery;

use crate::request::path::{ClusterPaths, RequestPath, cluster_below_prefix, cluster_path};
use crate::request::path_error::PathError;

/// Parses a path. A forwarded path must be canonical, and a redirect must not lead to endless redirects.
///
/// # Panics
/// If an invariant does not hold.
pub fn path(input: &[u8]) {
    let Ok(raw) = std::str::from_utf8(input) else { return };
    let parse = |raw| RequestPath::parse(raw, ClusterPaths::Resolved);
    match parse(raw) {
        Ok(RequestPath::Cluster(target)) => {
            let forwarded = format!("/clusters/id{}", target.rest);
            let written = PathAndQuery::try_from(forwarded.as_str());
            assert!(
                written.is_ok_and(|written| written.query().is_none()),
                "cannot be written: {forwarded:?}"
            );
            assert!(forwarded.bytes().all(|byte| byte.is_ascii_graphic()), "not canonical: {forwarded:?}");
            let again = parse(&forwarded);
            let same = matches!(&again, Ok(RequestPath::Cluster(again)) if again.rest == target.rest);
            assert!(same, "read differently the second time: {forwarded:?}: {again:?}");
        }
        Err(PathError::Unclean(location)) => {
            let local =
                location.starts_with('/') && !location.starts_with("//") && !location.starts_with("/\\");
            assert!(local, "leads to another host: {location:?}");
            // A first redirect may clean the written path, a second one the decoded path.
            if let Err(PathError::Unclean(next)) = parse(&location) {
                let again = parse(&next);
                assert!(!matches!(again, Err(PathError::Unclean(_))), "redirected without end: {next:?}");
            }
        }
        // The logical cluster in a token's claim is parsed like one in a path.
        Ok(RequestPath::Other(other)) => {
            let _ = cluster_below_prefix(other.raw);
            let led = cluster_path(raw, other.raw);
            assert!(
                !matches!(parse(&led), Err(PathError::Unclean(_) | PathError::Malformed(_))),
                "unclean: {led:?}"
            );
        }
        _ => {}
    }
}
