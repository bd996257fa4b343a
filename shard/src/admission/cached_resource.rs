//! Validation of ClusterCachedResources: cluster-scoped resources of workspaces only, and one for each resource.

use fairlead_apiserver::registry::is_built_in;
use fairlead_apiserver::{AdmissionRequest, ScopeSelector};
use fairlead_names::ResourceName;
use fairlead_process::Status;
use serde_json::Value;

use super::{ShardAdmission, forbidden};
use crate::names::{CLUSTER_CACHED_RESOURCES, CUSTOM};

impl ShardAdmission {
    /// Validates a new ClusterCachedResource. A resource that does not exist yet is accepted; the controller reports it.
    pub(super) fn validate_cached_resource(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
    ) -> Result<(), Status> {
        let text = |field: &str| object["spec"][field].as_str().unwrap_or_default();
        let name = ResourceName::new(text("group"), text("resource"));
        let catalog = self.authorizer()?.definitions().catalog(write.scope)?;
        let served = catalog.resources.iter().find(|served| served.name == name);
        let is_namespaced = served.is_some_and(|served| served.namespaced);
        let one = ScopeSelector::One(write.scope.clone());
        let mut is_published = false;
        self.objects.for_each(&CLUSTER_CACHED_RESOURCES, &CUSTOM, &one, &mut |listed| {
            let other: Value = serde_json::from_slice(listed.object.json()).unwrap_or_default();
            is_published |= is_duplicate(object, write.name, &other);
        })?;
        check(object, write.scope.as_str(), is_namespaced, is_published)
            .map_err(|message| forbidden(write, message))
    }
}

/// The refusal of a ClusterCachedResource of a logical cluster, in the form of Go's field errors.
fn check(object: &Value, cluster: &str, is_namespaced: bool, is_published: bool) -> Result<(), String> {
    let text = |field: &str| object["spec"][field].as_str().unwrap_or_default();
    let (group, resource) = (text("group"), text("resource"));
    let invalid = |value: String, detail: String| Err(format!("spec: Invalid value: {value:?}: {detail}"));
    if is_built_in(group, resource)
        || fairlead_api::system_resources().any(|own| own.group == group && own.plural == resource)
    {
        // kcp accepts these, and publishes no object. (Deliberate difference.)
        let value = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        return invalid(
            value,
            "Resource referenced in ClusterCachedResource must not be a built-in API".to_owned(),
        );
    }
    if is_namespaced {
        let value = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        return invalid(
            value,
            "Resource referenced in ClusterCachedResource must be cluster-scoped".to_owned(),
        );
    }
    if is_published {
        let detail =
            format!("ClusterCachedResource with this GVR already exists in the {cluster:?} workspace");
        return invalid(format!("{group}.{}.{resource}", text("version")), detail);
    }
    Ok(())
}

/// Whether another ClusterCachedResource publishes the same resource. The same object again is refused as one that exists.
fn is_duplicate(object: &Value, name: &str, other: &Value) -> bool {
    let text = |object: &Value, field: &str| object["spec"][field].as_str().unwrap_or_default().to_owned();
    other["metadata"]["name"] != name
        && ["group", "version", "resource"].into_iter().all(|field| text(object, field) == text(other, field))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cached(name: &str, group: &str, version: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"group": group, "version": version, "resource": "things"}})
    }

    #[test]
    fn namespaced_and_published_resources_are_refused() {
        for (group, is_namespaced, is_published, expected) in [
            ("g.io", false, false, None),
            (
                "g.io",
                true,
                true,
                Some(
                    "spec: Invalid value: \"things.g.io\": Resource referenced in ClusterCachedResource must be \
                     cluster-scoped",
                ),
            ),
            (
                "",
                true,
                false,
                Some(
                    "spec: Invalid value: \"things\": Resource referenced in ClusterCachedResource must be cluster-scoped",
                ),
            ),
            (
                "g.io",
                false,
                true,
                Some(
                    "spec: Invalid value: \"g.io.v1.things\": ClusterCachedResource with this GVR already exists in \
                     the \"abc\" workspace",
                ),
            ),
        ] {
            let refusal = check(&cached("a", group, "v1"), "abc", is_namespaced, is_published).err();
            assert_eq!(refusal.as_deref(), expected);
        }
    }

    #[test]
    fn built_in_resources_and_those_of_kcp_are_refused() {
        for (group, resource, is_refused) in [
            ("", "namespaces", true),
            ("rbac.authorization.k8s.io", "clusterroles", true),
            ("core.kcp.io", "logicalclusters", true),
            ("g.io", "namespaces", false),
        ] {
            let object = json!({"spec": {"group": group, "version": "v1", "resource": resource}});
            let refusal = check(&object, "abc", false, false).err();
            let names_it =
                refusal.as_ref().is_some_and(|refusal| refusal.contains("must not be a built-in API"));
            assert_eq!(names_it, is_refused, "{resource}.{group}: {refusal:?}");
        }
    }

    #[test]
    fn one_cached_resource_publishes_a_version_of_a_resource() {
        let object = cached("a", "g.io", "v1");
        for (other, expected) in [
            (cached("b", "g.io", "v1"), true),
            (cached("a", "g.io", "v1"), false),
            (cached("b", "g.io", "v2"), false),
            (cached("b", "h.io", "v1"), false),
            (json!({"metadata": {"name": "b"}, "spec": {"resource": "things"}}), false),
        ] {
            assert_eq!(is_duplicate(&object, "a", &other), expected, "{other}");
        }
    }
}
