//! Renamed keys and values. An old name is an error that names the new one.

/// Old and new name of each renamed key. An old name may have several new ones; the one that is allowed at the position of the
/// key applies.
pub(crate) const KEYS: &[(&str, &str)] = &[
    ("answer", "responseStallTimeout"),
    ("asKcp", "kcpCompatibility"),
    ("authenticateFirst", "authenticateBeforeRouting"),
    ("body", "requestBodyTimeout"),
    ("breaker", "circuitBreaker"),
    ("connectionAge", "maxConnectionAge"),
    ("counts", "maxCountedTime"),
    ("ejection", "ejectionTime"),
    ("least", "minLimit"),
    ("limit", "policy"),
    ("limit", "readyTimeout"),
    ("longestEjection", "maxEjectionTime"),
    ("most", "maxLimit"),
    ("noStore", "cacheControlNoStore"),
    ("patience", "queueTimeout"),
    ("pause", "openDuration"),
    ("refused", "deny"),
    ("shardPick", "placement"),
    ("shardPick", "placementEndpoint"),
    ("slow", "slowThreshold"),
    ("waiting", "maxQueued"),
];

/// Old and new name of each renamed value of an enumeration.
pub(crate) const VALUES: &[(&str, &str)] =
    &[("ownAnswers", "localResponses"), ("stamping", "identityHeadersFirst")];

/// The new name of a renamed key or value, if it is in `allowed`.
pub(crate) fn new_name(
    renamed: &[(&str, &'static str)],
    name: &str,
    allowed: &[&str],
) -> Option<&'static str> {
    let is_renamed = |(old, new): &&(&str, &'static str)| *old == name && allowed.contains(new);
    renamed.iter().find(is_renamed).map(|(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::load::{ProcessConfig, parse};
    use crate::{CacheConfig, GatewayConfig, ShardConfig};

    fn error<T: ProcessConfig>(text: &str) -> String {
        match parse::<T>(text, Path::new("f.yaml")) {
            Ok(_) => "accepted".to_owned(),
            Err(finding) => format!("{finding} ({})", finding.hint.as_deref().unwrap_or("no hint")),
        }
    }

    #[test]
    fn an_earlier_name_is_an_error_that_names_the_present_one() {
        let mut covered = BTreeSet::new();
        for (text, place, old, new) in [
            ("slowClients: {answer: 1s}", "1:15", "answer", "responseStallTimeout"),
            ("slowClients: {body: 1s}", "1:15", "body", "requestBodyTimeout"),
            ("asKcp: [retries]", "1:1", "asKcp", "kcpCompatibility"),
            (
                "listeners:\n- authenticateFirst: true",
                "2:3",
                "authenticateFirst",
                "authenticateBeforeRouting",
            ),
            ("listeners:\n- noStore: true", "2:3", "noStore", "cacheControlNoStore"),
            ("listeners:\n- refused: {}", "2:3", "refused", "deny"),
            ("listeners:\n- shardPick: true", "2:3", "shardPick", "placementEndpoint"),
            ("shardPick: {}", "1:1", "shardPick", "placement"),
            ("upgrade: {limit: 1s}", "1:11", "limit", "readyTimeout"),
            ("upstream: {breaker: {}}", "1:12", "breaker", "circuitBreaker"),
            ("upstream: {connectionAge: 1h}", "1:12", "connectionAge", "maxConnectionAge"),
            ("upstream:\n  circuitBreaker: {pause: 1s}", "2:20", "pause", "openDuration"),
            ("upstream:\n  concurrency: {limit: fixed}", "2:17", "limit", "policy"),
            ("upstream:\n  concurrency: {least: 1}", "2:17", "least", "minLimit"),
            ("upstream:\n  concurrency: {most: 1}", "2:17", "most", "maxLimit"),
            ("upstream:\n  concurrency: {waiting: 1}", "2:17", "waiting", "maxQueued"),
            ("upstream:\n  concurrency: {patience: 1s}", "2:17", "patience", "queueTimeout"),
            ("upstream:\n  concurrency: {counts: 1s}", "2:17", "counts", "maxCountedTime"),
            ("upstream:\n  health: {ejection: 1s}", "2:12", "ejection", "ejectionTime"),
            ("upstream:\n  health: {longestEjection: 1s}", "2:12", "longestEjection", "maxEjectionTime"),
            ("accessLog: {slow: 1s}", "1:13", "slow", "slowThreshold"),
        ] {
            let expected = format!("f.yaml:{place}: the key {old:?} is now {new:?} (write {new:?})");
            assert_eq!(error::<GatewayConfig>(text), expected, "{text}");
            covered.insert((old, new));
        }
        assert_eq!(covered, KEYS.iter().copied().collect(), "every renamed key is tried");
        for (text, place, old, new) in [
            ("accessLog: {always: [ownAnswers]}", "1:22", "ownAnswers", "localResponses"),
            ("kcpCompatibility: [stamping]", "1:20", "stamping", "identityHeadersFirst"),
        ] {
            let expected = format!("f.yaml:{place}: the value {old:?} is now {new:?} (write {new:?})");
            assert_eq!(error::<GatewayConfig>(text), expected, "{text}");
            assert!(VALUES.contains(&(old, new)));
        }
    }

    #[test]
    fn shards_and_cache_servers_know_the_renamed_keys_that_they_have() {
        let renamed = "f.yaml:1:1: the key \"shardPick\" is now \"placement\" (write \"placement\")";
        assert_eq!(error::<ShardConfig>("shardPick: {}"), renamed);
        let renamed =
            "f.yaml:1:15: the key \"body\" is now \"requestBodyTimeout\" (write \"requestBodyTimeout\")";
        assert_eq!(error::<CacheConfig>("slowClients: {body: 1s}"), renamed);
        let unknown = error::<CacheConfig>("shardPick: {}");
        assert!(unknown.starts_with("f.yaml:1:1: there is no key \"shardPick\" here"), "{unknown}");
    }
}
