//! `cache.kcp.io`: resources whose objects the cache server provides to other shards.

use super::build::{any_object, integer, object, string};
use super::fragments::{
    GROUP_PATTERN, RESOURCE_PATTERN, conditions, endpoints, export_reference, identity, kind, label_selector,
};
use super::{Column, ResourceDefinition, Version};

pub(super) fn resources() -> Vec<ResourceDefinition> {
    vec![
        ResourceDefinition {
            schema_revision: Some("v260804-b35f3bb61"),
            versions: vec![endpoint_slice().columns(vec![
                Column::text("ClusterCachedResource", ".spec.clusterCachedResource.name"),
                Column::age(),
            ])],
            ..resource(
                "ClusterCachedResourceEndpointSlice",
                "clustercachedresourceendpointslices",
                "clustercachedresourceendpointslice",
            )
        },
        ResourceDefinition {
            schema_revision: Some("v250920-de0c8484d"),
            versions: vec![
                cached_resource().columns(vec![Column::text("Resource", ".spec.resource"), Column::age()]),
            ],
            ..resource("ClusterCachedResource", "clustercachedresources", "clustercachedresource")
        },
        ResourceDefinition {
            schema_revision: Some("v250523-2b8c1d3c5"),
            versions: vec![cached_object().columns(vec![Column::age()])],
            ..resource("CachedObject", "cachedobjects", "cachedobject")
        },
    ]
}

fn resource(kind: &'static str, plural: &'static str, singular: &'static str) -> ResourceDefinition {
    ResourceDefinition::cluster_scoped("cache.kcp.io", [kind, plural, singular])
}

fn endpoint_slice() -> Version {
    let schema = kind([
        (
            "spec",
            object([
                (
                    "clusterCachedResource",
                    export_reference()
                        .rule("self == oldSelf", "ClusterCachedResource reference must not be changed")
                        .about("The resource whose copies are served."),
                ),
                (
                    "export",
                    export_reference()
                        .rule("self == oldSelf", "APIExport reference must not be changed")
                        .about("The export whose consumers see the copies."),
                ),
                ("partition", string().about("A Partition of this workspace that narrows the shards.")),
            ])
            .required(["clusterCachedResource", "export"]),
        ),
        (
            "status",
            object([
                ("conditions", conditions()),
                ("endpoints", endpoints()),
                ("shardSelector", string().about("The partition's selector in canonical form.")),
            ]),
        ),
    ]);
    Version::new("v1alpha1", schema).with_status()
}

fn cached_resource() -> Version {
    let schema = kind([
        (
            "spec",
            object([
                ("group", string().pattern(GROUP_PATTERN)),
                ("identity", identity()),
                ("labelSelector", label_selector().about("Which objects are copied.")),
                ("resource", string().pattern(RESOURCE_PATTERN)),
                ("version", string()),
            ])
            .required(["resource"]),
        ),
        (
            "status",
            object([
                ("conditions", conditions()),
                ("identityHash", string()),
                (
                    "phase",
                    string()
                        .one_of(["Scheduling", "Initializing", "Ready", "Deleting", "Deleted"])
                        .default("Initializing".into()),
                ),
                (
                    "resourceCounts",
                    object([("cache", integer()), ("local", integer())]).required(["cache", "local"]),
                ),
            ]),
        ),
    ])
    .required(["spec"]);
    Version::new("v1alpha1", schema).with_status()
}

fn cached_object() -> Version {
    let schema =
        kind([("spec", object([("raw", any_object().preserve_unknown_fields())]).required(["raw"]))])
            .required(["spec"]);
    Version::new("v1alpha1", schema).with_status()
}
