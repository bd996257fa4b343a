//! The limits of a ResourceQuota.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fairlead_names::ResourceName;
use fairlead_schema::Quantity;
use serde::Deserialize;

/// The limits of a ResourceQuota.
#[derive(Debug, PartialEq)]
pub(crate) struct Quota {
    /// Whether it limits the whole logical cluster, not only its namespace.
    pub(crate) spans_cluster: bool,
    /// The limits by name.
    pub(crate) limits: Vec<Limit>,
}

/// The limit of one resource.
#[derive(Debug, PartialEq)]
pub(crate) struct Limit {
    /// The name in the quota, such as `count/configmaps`.
    pub(crate) name: Box<str>,
    /// The amount, as it was written.
    pub(crate) amount: Box<str>,
    /// The counted resource; `None` for amounts that objects would request, such as CPU.
    pub(crate) resource: Option<ResourceName>,
    maximum: f64,
}

impl Limit {
    /// Whether this number of objects is allowed.
    pub(crate) fn allows(&self, count: u64) -> bool {
        count as f64 <= self.maximum
    }
}

impl Quota {
    /// Decodes a stored ResourceQuota; `None` if it is malformed.
    pub(crate) fn decode(json: &[u8]) -> Option<Self> {
        let wire: WireQuota<'_> = serde_json::from_slice(json).ok()?;
        // A scope selects pods or volumes, which are not served. So a quota with scopes limits nothing.
        let has_scopes = !wire.spec.scopes.is_empty() || wire.spec.scope_selector.is_some();
        let limits = wire.spec.hard.into_iter().map(|(name, amount)| Limit {
            resource: counted_resource(&name).filter(|_| !has_scopes),
            maximum: Quantity::parse(&amount).map_or(0.0, |amount| amount.as_double()),
            name: name.as_ref().into(),
            amount: amount.as_ref().into(),
        });
        let spans_cluster = wire.metadata.annotations.cluster_scoped.is_some_and(|text| is_true(&text));
        Some(Self { spans_cluster, limits: limits.collect() })
    }

    /// Whether it limits objects in a namespace; `None` stands for objects without one.
    pub(crate) fn covers(&self, own_namespace: &str, namespace: Option<&str>) -> bool {
        self.spans_cluster || namespace == Some(own_namespace)
    }

    /// The limits of a resource.
    pub(crate) fn limits_of(&self, resource: &ResourceName) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(move |limit| limit.resource.as_ref() == Some(resource))
    }
}

/// The resource that a name counts: `count/<resource>.<group>`, or an older name of a resource of the core group.
fn counted_resource(name: &str) -> Option<ResourceName> {
    if let Some(counted) = name.strip_prefix("count/") {
        let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
        let is_ignored = resource == "events" && matches!(group, "" | "events.k8s.io");
        return (!is_ignored).then(|| ResourceName::new(group, resource));
    }
    let is_counted = matches!(
        name,
        "configmaps"
            | "persistentvolumeclaims"
            | "replicationcontrollers"
            | "resourcequotas"
            | "secrets"
            | "services"
    );
    is_counted.then(|| ResourceName::new("", name))
}

/// The texts that Go's `ParseBool` reads as true.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

#[derive(Deserialize)]
struct WireQuota<'a> {
    #[serde(borrow, default)]
    metadata: WireMetadata<'a>,
    #[serde(borrow, default)]
    spec: WireSpec<'a>,
}

#[derive(Default, Deserialize)]
struct WireMetadata<'a> {
    #[serde(borrow, default)]
    annotations: WireAnnotations<'a>,
}

#[derive(Default, Deserialize)]
struct WireAnnotations<'a> {
    #[serde(borrow, default, rename = "experimental.quota.kcp.io/cluster-scoped")]
    cluster_scoped: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec<'a> {
    #[serde(borrow)]
    hard: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    scopes: Vec<serde::de::IgnoredAny>,
    scope_selector: Option<serde::de::IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn quota(object: &Value) -> Quota {
        Quota::decode(object.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn names_select_a_counted_resource() {
        for (name, expected) in [
            ("count/configmaps", Some(("", "configmaps"))),
            ("count/sheriffs.wild.west", Some(("wild.west", "sheriffs"))),
            ("configmaps", Some(("", "configmaps"))),
            ("secrets", Some(("", "secrets"))),
            ("count/events", None),
            ("requests.cpu", None),
            ("pods", None),
        ] {
            let quota = quota(&json!({"spec": {"hard": {name: "1"}}}));
            let expected = expected.map(|(group, resource)| ResourceName::new(group, resource));
            assert_eq!(quota.limits[0].resource, expected, "{name}");
        }
    }

    #[test]
    fn amounts_are_quantities() {
        for (amount, count, expected) in
            [("2", 2, true), ("2", 3, false), ("1k", 1000, true), ("1Ki", 1025, false), ("0", 1, false)]
        {
            let quota = quota(&json!({"spec": {"hard": {"count/secrets": amount}}}));
            assert_eq!(quota.limits[0].allows(count), expected, "{count} of {amount}");
        }
    }

    #[test]
    fn a_quota_covers_its_namespace_or_the_logical_cluster() {
        for (annotation, own, other, without) in [
            (json!(null), true, false, false),
            (json!("true"), true, true, true),
            (json!("no"), true, false, false),
        ] {
            let quota = quota(&json!({
                "metadata": {"annotations": {"experimental.quota.kcp.io/cluster-scoped": annotation}},
            }));
            let covers = |namespace| quota.covers("a", namespace);
            assert_eq!(
                (covers(Some("a")), covers(Some("b")), covers(None)),
                (own, other, without),
                "{annotation}"
            );
        }
        let scoped = quota(&json!({"spec": {"hard": {"count/secrets": "1"}, "scopes": ["BestEffort"]}}));
        assert_eq!(scoped.limits[0].resource, None, "a scope selects no secrets");
    }
}
