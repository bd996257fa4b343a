//! What must hold for every request path.

use http::uri::PathAndQuery;

use crate::request::path::{ClusterPaths, RequestPath, cluster_path, cluster_within};
use crate::request::path_error::PathError;

/// Reads a path; whatever goes on is canonical, and a redirect leads to what is not redirected again.
///
/// # Panics
/// If that does not hold.
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
            // First what is written, then what is encoded.
            if let Err(PathError::Unclean(next)) = parse(&location) {
                let again = parse(&next);
                assert!(!matches!(again, Err(PathError::Unclean(_))), "redirected without end: {next:?}");
            }
        }
        // What a token claims to be its cluster is read like what a client writes.
        Ok(RequestPath::Other(other)) => {
            let _ = cluster_within(other.raw);
            let led = cluster_path(raw, other.raw);
            assert!(
                !matches!(parse(&led), Err(PathError::Unclean(_) | PathError::Malformed(_))),
                "unclean: {led:?}"
            );
        }
        _ => {}
    }
}
