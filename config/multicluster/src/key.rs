//! The identity of an object over all logical clusters.

use std::fmt;

use kube::Resource;

/// The annotation that names the logical cluster of an object in reads over several of them.
const CLUSTER_ANNOTATION: &str = "kcp.io/cluster";

/// Logical cluster, namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Name of the logical cluster.
    pub cluster: String,
    /// Namespace; `None` for objects without one.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object that a virtual workspace has served; `None` without an annotation of its logical cluster.
    pub fn of<K: Resource>(object: &K) -> Option<Self> {
        let metadata = object.meta();
        Some(Self {
            cluster: metadata.annotations.as_ref()?.get(CLUSTER_ANNOTATION)?.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone()?,
        })
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}|", self.cluster)?;
        if let Some(namespace) = &self.namespace {
            write!(formatter, "{namespace}/")?;
        }
        formatter.write_str(&self.name)
    }
}
