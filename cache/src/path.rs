//! The scope of a path: `[/services/cache]/shards/<shard or *>/clusters/<cluster or *>/…`.

use fairlead_apiserver::request::RequestPath;
use fairlead_apiserver::{Scope, ScopeSelector, ScopedPath};
use fairlead_names::ClusterReference;
use fairlead_process::{Status, StatusReason};

/// Maximum length of a shard name.
const MAX_SHARD_NAME_LENGTH: usize = 61;

/// Splits a path into its scope and the rest. Endpoints of the whole process have no scope.
///
/// # Errors
/// 400 for a path without or with a malformed scope, 501 for the process's metrics in a scope.
pub(crate) fn locate(path: RequestPath<'_>) -> Result<ScopedPath<'_>, Status> {
    let path = match path.segments() {
        [services, cache, ..] if services == "services" && cache == "cache" => path.skip(2),
        _ => path,
    };
    let ends_in_slash = path.text().ends_with('/');
    let segments: Vec<&str> = path.segments().iter().map(|segment| &**segment).collect();
    let (shard, cluster, scope_length) = match segments.as_slice() {
        ["metrics" | "livez" | "readyz" | "healthz", ..] => return Ok(ScopedPath { scopes: None, path }),
        ["shards", shard, "clusters", cluster, ..] => (*shard, Some(*cluster), 4),
        ["shards", shard, _, ..] => (*shard, None, 2),
        ["shards", shard] if ends_in_slash => (*shard, None, 2),
        ["shards"] if !ends_in_slash => return Err(Status::bad_request("a shard name is required")),
        ["shards", rest @ ..] => {
            let rest = rest.first().copied().unwrap_or_default();
            return Err(Status::bad_request(format!("unable to parse shard: no `/` found in path {rest}")));
        }
        _ => return Err(Status::bad_request("a shard name is required")),
    };
    let shard = parse_shard(shard)?;
    let scopes = cluster.map(parse_cluster).transpose()?.map(|cluster| select(shard, cluster));
    if segments.get(scope_length) == Some(&"metrics") {
        let message = "shard-level endpoint not available at shard or workspace scope";
        return Err(Status::new(501, StatusReason::Unknown, message));
    }
    Ok(ScopedPath { scopes, path: path.skip(scope_length) })
}

/// Parses a shard name; `None` for all shards.
fn parse_shard(text: &str) -> Result<Option<&str>, Status> {
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b':');
    match text {
        "*" => Ok(None),
        name if name.len() <= MAX_SHARD_NAME_LENGTH && name.bytes().all(is_allowed) => Ok(Some(name)),
        _ => Err(Status::bad_request(format!("invalid shard: {text:?} does not match the regex"))),
    }
}

/// Parses the name of a logical cluster; `None` for all of them.
fn parse_cluster(text: &str) -> Result<Option<&str>, Status> {
    match ClusterReference::parse(text) {
        Ok(ClusterReference::Wildcard) => Ok(None),
        // Workspace paths, and abbreviated paths that expand to a name, have a meaning on a shard only.
        Ok(ClusterReference::Name(name)) if name.as_str() == text => Ok(Some(text)),
        Ok(ClusterReference::Name(_) | ClusterReference::Path(_)) => {
            Err(Status::bad_request(format!("invalid cluster: {text:?} is not a logical cluster name")))
        }
        Err(error) => Err(Status::bad_request(error.to_string())),
    }
}

fn select(shard: Option<&str>, cluster: Option<&str>) -> ScopeSelector {
    match (shard, cluster) {
        (Some(shard), Some(cluster)) => ScopeSelector::One(Scope::new(&format!("{shard}/{cluster}"))),
        (shard, cluster) => {
            ScopeSelector::Every { below: shard.unwrap_or_default().into(), last: cluster.map(Into::into) }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn located(path: &str) -> Result<(String, String), (u16, String)> {
        let located =
            locate(RequestPath::parse(path).unwrap()).map_err(|status| (status.code, status.message))?;
        let scopes = match located.scopes {
            None => "none".to_owned(),
            Some(ScopeSelector::One(scope)) => scope.to_string(),
            Some(ScopeSelector::Every { below, last }) => {
                let or_all =
                    |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("*").to_owned();
                format!("{} {}", or_all(Some(&below)), or_all(last.as_deref()))
            }
        };
        Ok((scopes, located.path.text()))
    }

    #[test]
    fn paths_name_a_shard_and_a_cluster() {
        for (path, scopes, rest) in [
            ("/shards/root/clusters/root/apis/g/v1/x", "root/root", "/apis/g/v1/x"),
            ("/services/cache/shards/root/clusters/root/apis", "root/root", "/apis"),
            ("/services/cache/shards/*/clusters/*/apis", "* *", "/apis"),
            ("/shards/%2A/clusters/%2A/apis", "* *", "/apis"),
            ("/shards/s-1/clusters/*/apis", "s-1 *", "/apis"),
            ("/shards/*/clusters/root/apis", "* root", "/apis"),
            (
                "/shards/system:cache:server/clusters/system:system-crds/apis",
                "system:cache:server/system:system-crds",
                "/apis",
            ),
            ("/shards/root/clusters/root/", "root/root", "/"),
            ("/shards/root/", "none", "/"),
            ("/shards/root/apis", "none", "/apis"),
            ("/metrics", "none", "/metrics"),
            ("/readyz/store", "none", "/readyz/store"),
        ] {
            assert_eq!(located(path), Ok((scopes.to_owned(), rest.to_owned())), "{path}");
        }
    }

    #[test]
    fn other_paths_are_refused_as_kcp_does() {
        let long = format!("/shards/{}/clusters/root/apis", "s".repeat(62));
        for (path, code, message) in [
            ("/", 400, "a shard name is required"),
            ("/apis", 400, "a shard name is required"),
            ("/version", 400, "a shard name is required"),
            ("/clusters/root/apis", 400, "a shard name is required"),
            ("/services/cache", 400, "a shard name is required"),
            ("/shards", 400, "a shard name is required"),
            ("/shards/", 400, "unable to parse shard: no `/` found in path "),
            ("/shards/root", 400, "unable to parse shard: no `/` found in path root"),
            ("/shards/ROOT/clusters/root/apis", 400, "invalid shard: \"ROOT\" does not match the regex"),
            (&long, 400, "does not match the regex"),
            ("/shards/root/clusters/ROOT/apis", 400, "invalid cluster: \"ROOT\" does not match the regex"),
            (
                "/shards/root/clusters/root:org/x",
                400,
                "invalid cluster: \"root:org\" is not a logical cluster name",
            ),
            ("/shards/root/clusters/user:bob/x", 400, "is not a logical cluster name"),
            ("/shards/root/clusters/root/metrics", 501, "shard-level endpoint not available"),
            ("/services/cache/shards/root/metrics", 501, "shard-level endpoint not available"),
        ] {
            let (found, text) = located(path).unwrap_err();
            assert!(found == code && text.contains(message), "{path}: {found} {text}");
        }
    }
}
