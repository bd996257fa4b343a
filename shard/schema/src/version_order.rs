//! The order of version names.

/// Kubernetes' order of version names, best first: GA before beta before alpha, higher before lower,
/// anything else last by name. Sort by it ascending.
pub fn version_priority(version: &str) -> impl Ord + use<> {
    let parsed = parse(version);
    (parsed.map_or((1, 0, 0, 0), |(rank, major, minor)| (0, rank, -major, -minor)), version.to_owned())
}

/// `v1` → (0, 1, 0), `v1beta2` → (1, 1, 2), `v2alpha1` → (2, 2, 1).
fn parse(version: &str) -> Option<(i64, i64, i64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let major = rest[..digits].parse().ok()?;
    let (rank, minor) = match &rest[digits..] {
        "" => return Some((0, major, 0)),
        stage => stage
            .strip_prefix("beta")
            .map(|minor| (1, minor))
            .or_else(|| stage.strip_prefix("alpha").map(|minor| (2, minor)))?,
    };
    Some((rank, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_best_first() {
        let mut versions =
            ["v1beta1", "foo10", "v12alpha1", "v2", "v1", "v11alpha2", "v3beta1", "v10", "foo1"];
        versions.sort_by_cached_key(|version| version_priority(version));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v3beta1", "v1beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
        );
    }
}
