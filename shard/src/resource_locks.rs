//! Resource locks: which binding or CRD of a logical cluster owns a resource.
//!
//! They are an annotation of the LogicalCluster, in kcp's format, so every change of an owner is a write of the
//! LogicalCluster: two owners of one resource cannot be committed at the same time.

use std::collections::BTreeMap;

use fairlead_api::annotation;
use fairlead_names::ResourceName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Owners of the resources of a logical cluster, by `<resource>.<group>`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ResourceLocks(pub(crate) BTreeMap<String, ResourceLock>);

/// The owner of a resource.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct ResourceLock {
    /// The name of the APIBinding; `None` if a CRD owns the resource.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub(crate) binding: Option<String>,
    /// Whether a CRD owns it.
    #[serde(rename = "c", default, skip_serializing_if = "core::ops::Not::not")]
    pub(crate) is_crd: bool,
    /// Fields that only Go shards write, such as the expiry of a CRD's lock.
    #[serde(flatten)]
    pub(crate) others: BTreeMap<String, Value>,
}

impl ResourceLocks {
    /// The locks of a LogicalCluster. Malformed text yields no locks.
    pub(crate) fn of(logical_cluster: &Value) -> Self {
        let text = logical_cluster["metadata"]["annotations"][annotation::RESOURCE_BINDINGS].as_str();
        Self::parse(text.unwrap_or("{}"))
    }

    pub(crate) fn parse(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    pub(crate) fn to_json(&self) -> String {
        // A map of strings to JSON always serializes.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// Writes the locks to a LogicalCluster.
    pub(crate) fn set(&self, logical_cluster: &mut Value) {
        logical_cluster["metadata"]["annotations"][annotation::RESOURCE_BINDINGS] = self.to_json().into();
    }

    /// The resources of a group that bindings own, with the names of the bindings.
    pub(crate) fn bound_in<'l>(
        &'l self,
        group: &'l str,
    ) -> impl Iterator<Item = (ResourceName, &'l str)> + 'l {
        let bound = self.0.iter().filter_map(|(name, lock)| Some((name, lock.binding.as_deref()?)));
        let names = bound.map(|(name, binding)| (name.split_once('.').unwrap_or((name, "")), binding));
        names
            .filter(move |((_, own), _)| *own == group)
            .map(|((resource, group), binding)| (ResourceName::new(group, resource), binding))
    }

    /// Records a CRD as the owner of a resource.
    pub(crate) fn lock_for_crd(&mut self, crd: &str) {
        self.0.insert(crd.to_owned(), ResourceLock { is_crd: true, ..ResourceLock::default() });
    }

    /// Removes the lock of a CRD. Returns whether there was one.
    pub(crate) fn unlock_crd(&mut self, crd: &str) -> bool {
        let is_locked = self.0.get(crd).is_some_and(|lock| lock.is_crd);
        if is_locked {
            self.0.remove(crd);
        }
        is_locked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_keep_the_fields_of_go_shards() {
        let text = r#"{"as.g":{"n":"b"},"crds.g":{"c":true,"e":"2026-01-01T00:00:00Z"},"us.h":{"n":"b"}}"#;
        let mut locks = ResourceLocks::parse(text);
        assert_eq!(locks.to_json(), text);
        assert_eq!(locks.bound_in("g").collect::<Vec<_>>(), [(ResourceName::new("g", "as"), "b")]);
        assert!(!locks.unlock_crd("as.g"), "a binding's lock stays");
        assert!(locks.unlock_crd("crds.g"));
        locks.lock_for_crd("ds.g");
        assert_eq!(locks.to_json(), r#"{"as.g":{"n":"b"},"ds.g":{"c":true},"us.h":{"n":"b"}}"#);
    }

    #[test]
    fn malformed_text_yields_no_locks() {
        assert_eq!(ResourceLocks::parse("nonsense"), ResourceLocks::default());
    }
}
