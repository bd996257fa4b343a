//! Priorities of requests, for shards that are overloaded.

use http::Method;

use crate::request::RequestClass;
use crate::request::resource::is_collection;

/// The priority of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Priority {
    /// Leases and health checks: a failure has consequences beyond the request.
    Urgent = 0,
    /// Everything else.
    Normal = 1,
    /// Lists and deletions of collections, which cost a shard the most.
    List = 2,
}

impl Priority {
    /// All priorities, the most urgent first.
    pub(crate) const ALL: [Self; 3] = [Self::Urgent, Self::Normal, Self::List];

    /// The priority of a request for a path in a logical cluster. Reads the first few segments of the path; allocates nothing.
    /// A watch does not count as a list, although it may begin with one: most watches send few events at first.
    pub(crate) fn of(class: RequestClass, method: &Method, path: &str) -> Self {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        match segments.next() {
            Some("healthz" | "readyz" | "livez") => return Self::Urgent,
            Some("apis") if segments.next() == Some("coordination.k8s.io") => return Self::Urgent,
            Some("api" | "apis") => {}
            _ => return Self::Normal,
        }
        match *method {
            Method::GET | Method::HEAD | Method::DELETE
                if class != RequestClass::Watch && is_collection(path) =>
            {
                Self::List
            }
            _ => Self::Normal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_and_health_are_urgent_and_collections_are_not() {
        use Priority::{List, Normal, Urgent};
        for (method, path, expected) in [
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", Urgent),
            (Method::GET, "/apis/coordination.k8s.io/v1/leases", Urgent),
            (Method::GET, "/readyz", Urgent),
            (Method::GET, "/livez/ping", Urgent),
            (Method::GET, "/api/v1/configmaps", List),
            (Method::GET, "/api/v1/namespaces", List),
            (Method::GET, "/api/v1/namespaces/", List),
            (Method::GET, "/api/v1/namespaces/default", Normal),
            (Method::GET, "/api/v1/namespaces/default/status", Normal),
            (Method::GET, "/api/v1/namespaces/default/configmaps", List),
            (Method::GET, "/api/v1/namespaces/default/configmaps/a", Normal),
            (Method::GET, "/api/v1/namespaces/default/pods/a/log", Normal),
            (Method::GET, "/apis/rbac.authorization.k8s.io/v1/clusterroles", List),
            (Method::GET, "/apis/rbac.authorization.k8s.io/v1/clusterroles/a", Normal),
            (Method::DELETE, "/apis/apps/v1/namespaces/a/deployments", List),
            (Method::POST, "/apis/apps/v1/namespaces/a/deployments", Normal),
            (Method::GET, "/apis", Normal),
            (Method::GET, "/api/v1", Normal),
            (Method::GET, "/apis/apps/v1", Normal),
            (Method::GET, "/openapi/v3", Normal),
            (Method::GET, "", Normal),
            (Method::GET, "//", Normal),
        ] {
            let of = |class| Priority::of(class, &method, path);
            assert_eq!(of(RequestClass::Read), expected, "{method} {path}");
            let watched = if expected == List { Normal } else { expected };
            assert_eq!(of(RequestClass::Watch), watched, "{method} {path}");
        }
    }
}
