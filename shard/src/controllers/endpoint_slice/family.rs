//! The kinds of endpoint slices.

use std::sync::Arc;

use fairlead_names::ResourceName;

use super::cached_resources::CachedReferences;
use super::endpoint::SliceKind;
use super::index::SliceKey;
use crate::names::{API_EXPORT_ENDPOINT_SLICES, CLUSTER_CACHED_RESOURCE_ENDPOINT_SLICES};

/// A kind of endpoint slices, whose endpoints are where an export has consumers.
#[derive(Clone)]
pub(crate) enum SliceFamily {
    /// APIExportEndpointSlices: the virtual workspaces of an export.
    Exports,
    /// ClusterCachedResourceEndpointSlices: the virtual workspaces of the objects that a ClusterCachedResource publishes.
    CachedResources(Arc<CachedReferences>),
}

impl SliceFamily {
    pub(super) fn resource(&self) -> &'static ResourceName {
        match self {
            Self::Exports => &API_EXPORT_ENDPOINT_SLICES,
            Self::CachedResources(_) => &CLUSTER_CACHED_RESOURCE_ENDPOINT_SLICES,
        }
    }

    pub(super) fn kind(&self) -> SliceKind {
        match self {
            Self::Exports => SliceKind {
                group: "apis.kcp.io",
                version: "v1alpha1",
                kind: "APIExportEndpointSlice",
                plural: "apiexportendpointslices",
            },
            Self::CachedResources(_) => SliceKind {
                group: "cache.kcp.io",
                version: "v1alpha1",
                kind: "ClusterCachedResourceEndpointSlice",
                plural: "clustercachedresourceendpointslices",
            },
        }
    }

    /// The name of the virtual workspace.
    pub(super) fn service(&self) -> &'static str {
        match self {
            Self::Exports => "apiexport",
            Self::CachedResources(_) => "replication",
        }
    }

    /// Forgets a slice that does not exist any more.
    pub(super) fn forget(&self, key: &SliceKey) {
        if let Self::CachedResources(references) = self {
            references.forget(key);
        }
    }
}
