//! The replicated resources: where they are stored, and which of their objects are replicated.

use fairlead_api::annotation;
use fairlead_apiserver::object::{ObjectBytes, ObjectMetaRef};
use fairlead_apiserver::registry::is_built_in;
use fairlead_names::Origin;

use crate::global::CacheResource;
use crate::index::Identities;

/// Group, version, resource, and selection of objects. All resources are cluster-scoped.
const RESOURCES: [(&str, &str, &str, Selection); 18] = [
    (ADMISSION, "v1", "mutatingadmissionpolicies", Selection::OfPublisher),
    (ADMISSION, "v1", "mutatingadmissionpolicybindings", Selection::OfPublisher),
    (ADMISSION, "v1", "mutatingwebhookconfigurations", Selection::OfPublisher),
    (ADMISSION, "v1", "validatingadmissionpolicies", Selection::OfPublisher),
    (ADMISSION, "v1", "validatingadmissionpolicybindings", Selection::OfPublisher),
    (ADMISSION, "v1", "validatingwebhookconfigurations", Selection::OfPublisher),
    ("apis.kcp.io", "v1alpha1", "apiconversions", Selection::All),
    ("apis.kcp.io", "v1alpha1", "apiexportendpointslices", Selection::All),
    ("apis.kcp.io", "v1alpha2", "apiexports", Selection::All),
    ("apis.kcp.io", "v1alpha1", "apiresourceschemas", Selection::All),
    ("cache.kcp.io", "v1alpha1", "clustercachedresourceendpointslices", Selection::All),
    ("cache.kcp.io", "v1alpha1", "clustercachedresources", Selection::All),
    ("core.kcp.io", "v1alpha1", "logicalclusters", Selection::Marked),
    ("core.kcp.io", "v1alpha1", "shards", Selection::All),
    ("migration.kcp.io", "v1alpha1", "logicalclustermigrations", Selection::All),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", Selection::Marked),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", Selection::Marked),
    ("tenancy.kcp.io", "v1alpha1", "workspacetypes", Selection::All),
];

const ADMISSION: &str = "admissionregistration.k8s.io";

/// A replicated resource.
pub(super) struct Source {
    pub(super) resource: CacheResource,
    pub(super) origin: Origin,
    selection: Selection,
}

/// Selection of the objects of a resource that are replicated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Selection {
    All,
    /// Objects with a reason in their annotation.
    Marked,
    /// Objects of logical clusters that publish APIs. Webhooks and policies review the objects of an API on all shards, and those of
    /// other logical clusters only their own.
    OfPublisher,
}

/// The sources of a shard with these identities. A resource of an export with an unknown identity is omitted: it can
/// have no objects.
pub(super) fn sources(identities: &Identities) -> Vec<Source> {
    let source = |(group, version, resource, selection)| {
        let is_system =
            fairlead_api::system_resources().any(|own| own.group == group && own.plural == resource);
        let origin = match fairlead_api::root_export_of(group, resource) {
            _ if is_system => Origin::Custom,
            Some(export) => Origin::Identity(identities.get(export)?.clone()),
            None if is_built_in(group, resource) => Origin::BuiltIn,
            None => return None,
        };
        Some(Source { resource: CacheResource::new(group, version, resource), origin, selection })
    };
    RESOURCES.into_iter().filter_map(source).collect()
}

impl Source {
    /// Whether objects of a logical cluster are replicated: not those of system logical clusters, which every shard
    /// has.
    pub(super) fn covers(cluster: &str) -> bool {
        !cluster.starts_with("system:")
    }

    /// Whether objects are replicated only from logical clusters that publish APIs.
    pub(super) fn is_of_publishers(&self) -> bool {
        self.selection == Selection::OfPublisher
    }

    /// Whether an object is replicated, if its logical cluster is covered and, where that counts, publishes APIs.
    pub(super) fn selects(&self, object: ObjectBytes<'_>) -> bool {
        match self.selection {
            Selection::All | Selection::OfPublisher => true,
            Selection::Marked => ObjectMetaRef::parse(object).is_ok_and(|meta| {
                meta.annotation(annotation::REPLICATE).is_some_and(|reasons| !reasons.is_empty())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use fairlead_apiserver::object::encode;
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_read_where_the_shard_stores_them() {
        let identities: Identities = [("shards.core.kcp.io", "abc")]
            .map(|(export, hash)| (export.to_owned(), hash.into()))
            .into_iter()
            .collect();
        let origins: Vec<(String, Origin)> = sources(&identities)
            .into_iter()
            .map(|source| (source.resource.name.to_string(), source.origin))
            .collect();
        for (name, origin) in [
            ("shards.core.kcp.io", Origin::Identity("abc".into())),
            ("apiexports.apis.kcp.io", Origin::Custom),
            ("logicalclusters.core.kcp.io", Origin::Custom),
            ("clusterroles.rbac.authorization.k8s.io", Origin::BuiltIn),
        ] {
            assert!(origins.contains(&(name.to_owned(), origin)), "{name}: {origins:?}");
        }
        assert!(!origins.iter().any(|(name, _)| name == "workspacetypes.tenancy.kcp.io"), "identity unknown");
    }

    #[test]
    fn some_resources_are_replicated_only_if_marked() {
        let sources = sources(&Identities::default());
        let find =
            |plural: &str| sources.iter().find(|source| *source.resource.name.resource == *plural).unwrap();
        for (plural, reasons, selection) in [
            ("apiexports", None, true),
            ("logicalclusters", None, false),
            ("logicalclusters", Some(""), false),
            ("logicalclusters", Some("tenancy.kcp.io"), true),
            ("clusterroles", None, false),
            ("clusterrolebindings", Some("apis.kcp.io,core.kcp.io"), true),
        ] {
            let mut object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}});
            if let Some(reasons) = reasons {
                object["metadata"]["annotations"] = json!({annotation::REPLICATE: reasons});
            }
            let object = encode(&object, 0).unwrap();
            assert_eq!(find(plural).selects(object.as_object()), selection, "{plural} {reasons:?}");
        }
        assert!(Source::covers("root") && !Source::covers("system:admin"));
    }
}
