//! Properties of a path that can be determined without knowing the API's resources.

/// The part of a forwarded path after `/clusters/<cluster>`; the whole path if there is no such prefix.
pub(crate) fn within_cluster(path: &str) -> &str {
    in_cluster(path).unwrap_or(path)
}

/// Whether a path as clients send it may name a collection of a resource, cluster-wide or in a namespace, after any `api` or
/// `apis` segment. Logical clusters, virtual workspaces and mapped prefixes with arbitrary names may precede it. Allocates
/// nothing.
pub(super) fn is_collection_anywhere(path: &str) -> bool {
    path.match_indices("/api").any(|(at, _)| is_collection(&path[at..]))
}

/// Whether a path in a logical cluster names a collection of a resource. Reads its first few segments.
pub(super) fn is_collection(path: &str) -> bool {
    // Bytes instead of characters: a character search costs more than reading these short segments.
    let mut segments = path.as_bytes().split(|byte| *byte == b'/').filter(|segment| !segment.is_empty());
    match segments.next() {
        Some(b"api") => drop(segments.next()),
        Some(b"apis") => drop((segments.next(), segments.next())),
        _ => return false,
    }
    match (segments.next(), segments.next(), segments.next(), segments.next()) {
        (None, ..) => false,
        // The deprecated watch paths, from before the `watch` parameter.
        (Some(b"watch"), Some(_), ..) => true,
        (Some(b"namespaces"), Some(_), resource, name) => {
            name.is_none() && !matches!(resource, None | Some(b"status" | b"finalize"))
        }
        (Some(_), name, ..) => name.is_none(),
    }
}

fn in_cluster(path: &str) -> Option<&str> {
    const CLUSTERS: &str = "/clusters/";
    // The common case.
    let rest = match path.strip_prefix(CLUSTERS) {
        Some(rest) => rest,
        None => path.split_once(CLUSTERS)?.1,
    };
    memchr::memchr(b'/', rest.as_bytes()).map(|end| &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_are_recognized_after_any_prefix() {
        for (path, expected) in [
            ("/clusters/root:org/api/v1/configmaps", true),
            ("/clusters/*/apis/apps/v1/namespaces/a/deployments", true),
            ("/clusters/root/apis/x.io/v1/clusters", true),
            ("/clusters/root/api/v1/namespaces", true),
            ("/clusters/root/api/v1/namespaces/a", false),
            ("/clusters/root/api/v1/configmaps/a", false),
            ("/clusters/root/openapi/v2", false),
            ("/clusters/root/api/v1/watch/namespaces/a/pods", true),
            ("/clusters/root/apis/x.io/v1/watch/things/a", true),
            ("/clusters/root/version", false),
            ("/clusters/root", false),
            ("/services/apiexport/root/exporter/clusters/*/apis/x.io/v1/things", true),
            ("/services/apiexport/root/exporter/clusters/*/openapi/v2", false),
            ("/services/some/view/apis/x.io/v1/things", true),
            ("/services/some/view/healthz", false),
            ("/services/apiexport/root:org/clusters/clusters/*/apis/x.io/v1/things", true),
            ("/portal/api/view/apis/x.io/v1/things", true),
            ("/api/v1/pods", true),
            ("/mapped/api/v1/pods", true),
            ("/openapi/v2", false),
            ("/", false),
        ] {
            assert_eq!(is_collection_anywhere(path), expected, "{path}");
        }
    }
}
