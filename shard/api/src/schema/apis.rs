//! `apis.kcp.io`: exports, bindings, schemas, endpoint slices, conversions.

use serde_json::json;

use super::build::{Schema, any_object, atomic_list, boolean, integer, list, map_list, object, string};
use super::fragments::{
    VERSION_PATTERN, binding_reference, binding_status, claim_fields, claim_selector, conditions, endpoints,
    export_reference, export_status, identity, kind, maximal_permission_policy,
};
use super::{Column, ResourceDefinition, Version, apis_v1alpha1};

const GROUP: &str = "apis.kcp.io";

pub(super) fn resources() -> Vec<ResourceDefinition> {
    vec![
        ResourceDefinition {
            versions: vec![
                apis_v1alpha1::api_binding().columns(binding_columns()),
                Version::new("v1alpha2", api_binding()).with_status().columns(binding_columns()),
            ],
            ..resource("APIBinding", "apibindings", "apibinding")
        },
        ResourceDefinition {
            versions: vec![Version::new("v1alpha1", api_conversion()).columns(vec![Column::age()])],
            ..resource("APIConversion", "apiconversions", "apiconversion")
        },
        ResourceDefinition {
            versions: vec![Version::new("v1alpha1", api_export_endpoint_slice()).with_status().columns(
                vec![
                    Column::text("Export", ".spec.export.name"),
                    Column::text("Partition", ".spec.partition"),
                    Column::age(),
                ],
            )],
            ..resource("APIExportEndpointSlice", "apiexportendpointslices", "apiexportendpointslice")
        },
        ResourceDefinition {
            versions: vec![
                apis_v1alpha1::api_export().columns(vec![
                    Column::age(),
                    Column::text(
                        "Ready",
                        r#".status.conditions[?(@.type=="VirtualWorkspaceURLsReady")].status"#,
                    ),
                ]),
                Version::new("v1alpha2", api_export()).with_status().columns(vec![Column::age()]),
            ],
            ..resource("APIExport", "apiexports", "apiexport")
        },
        ResourceDefinition {
            versions: vec![Version::new("v1alpha1", api_resource_schema()).columns(vec![Column::age()])],
            ..resource("APIResourceSchema", "apiresourceschemas", "apiresourceschema")
        },
    ]
}

fn resource(kind: &'static str, plural: &'static str, singular: &'static str) -> ResourceDefinition {
    ResourceDefinition::cluster_scoped(GROUP, [kind, plural, singular])
}

fn binding_columns() -> Vec<Column> {
    vec![Column::age(), Column::text("Ready", r#".status.conditions[?(@.type=="Ready")].status"#)]
}

fn api_export() -> Schema {
    kind([
        (
            "spec",
            object([
                ("identity", identity()),
                ("maximalPermissionPolicy", maximal_permission_policy()),
                (
                    "permissionClaims",
                    map_list(
                        ["group", "resource"],
                        claim_fields()
                            .field("defaultSelector", claim_selector())
                            .required(["resource", "verbs"]),
                    )
                    .about("Resources of the consumer to which the provider claims access."),
                ),
                (
                    "resources",
                    map_list(["name", "group"], exported_resource()).about("The exported resources."),
                ),
            ]),
        ),
        ("status", export_status()),
    ])
}

fn exported_resource() -> Schema {
    object([
        ("group", string().about("API group.")),
        ("name", string().about("Plural name.")),
        ("schema", string().about("Name of the APIResourceSchema in this workspace.")),
        (
            "storage",
            object([
                ("crd", any_object().about("Objects are stored by the consumer's shard.")),
                (
                    "virtual",
                    object([
                        ("identityHash", string()),
                        (
                            "reference",
                            object([("apiGroup", string()), ("kind", string()), ("name", string())])
                                .required(["kind", "name"])
                                .atomic(),
                        ),
                    ])
                    .required(["identityHash", "reference"])
                    .about("Objects come from the referenced endpoint."),
                ),
            ])
            .default(json!({"crd": {}}))
            .exactly_one_of(["crd", "virtual"])
            .rule("has(self.crd) != has(self.virtual)", "Exactly one of crd or virtual must be set")
            .about("Where objects of the resource live."),
        ),
    ])
    .required(["group", "name", "schema"])
}

fn api_binding() -> Schema {
    let accepted = || {
        claim_fields().field("defaultSelector", claim_selector()).field(
            "selector",
            claim_selector().rule("self == oldSelf", "Permission claim selector is immutable"),
        )
    };
    kind([
        (
            "spec",
            object([
                (
                    "permissionClaims",
                    map_list(
                        ["group", "resource", "identityHash"],
                        accepted()
                            .field("state", string().one_of(["Accepted", "Rejected"]))
                            .required(["resource", "selector", "state", "verbs"]),
                    )
                    .about("The consumer's decisions on the export's claims."),
                ),
                ("reference", binding_reference()),
            ])
            .required(["reference"]),
        ),
        (
            "status",
            binding_status(
                map_list(
                    ["group", "resource", "identityHash"],
                    accepted().required(["resource", "selector", "verbs"]),
                ),
                list(
                    claim_fields().field("defaultSelector", claim_selector()).required(["resource", "verbs"]),
                ),
            ),
        ),
    ])
    .required(["spec"])
}

fn api_export_endpoint_slice() -> Schema {
    kind([
        (
            "spec",
            object([
                (
                    "export",
                    export_reference()
                        .rule("self == oldSelf", "APIExport reference must not be changed")
                        .about("The export that the endpoints serve."),
                ),
                ("partition", string().about("A Partition of this workspace that narrows the shards.")),
            ])
            .required(["export"]),
        ),
        (
            "status",
            object([
                ("conditions", conditions()),
                ("endpoints", endpoints()),
                ("shardSelector", string().about("The partition's selector in canonical form.")),
            ]),
        ),
    ])
}

fn api_resource_schema() -> Schema {
    kind([(
        "spec",
        object([
            ("conversion", conversion()),
            ("group", string().about("API group; empty for core.")),
            (
                "nameValidation",
                string()
                    .one_of(["DNS1123Subdomain", "PathSegmentName"])
                    .default("DNS1123Subdomain".into())
                    .about("Which names objects may have."),
            ),
            (
                "names",
                object([
                    ("categories", atomic_list(string())),
                    ("kind", string()),
                    ("listKind", string()),
                    ("plural", string()),
                    ("shortNames", atomic_list(string())),
                    ("singular", string()),
                ])
                .required(["kind", "plural"]),
            ),
            ("scope", string().one_of(["Cluster", "Namespaced"])),
            ("versions", map_list(["name"], schema_version()).min_items(1)),
        ])
        .required(["group", "names", "scope", "versions"])
        .rule(
            "size(self.versions) == 1 || (size(self.versions) > 1 && has(self.conversion))",
            "Conversion must be specified when multiple versions exist",
        ),
    )])
}

fn conversion() -> Schema {
    object([
        ("strategy", string().one_of(["None", "Webhook"])),
        (
            "webhook",
            object([
                (
                    "clientConfig",
                    object([
                        ("caBundle", string().format("byte")),
                        ("url", string().format("uri")),
                    ]),
                ),
                ("conversionReviewVersions", atomic_list(string())),
            ])
            .required(["conversionReviewVersions"]),
        ),
    ])
    .required(["strategy"])
    .rule(
        "(self.strategy == 'None' && !has(self.webhook))  || (self.strategy == 'Webhook' && has(self.webhook))",
        "Webhook must be specified if strategy=Webhook",
    )
    .about("Conversion of objects between versions.")
}

fn schema_version() -> Schema {
    object([
        (
            "additionalPrinterColumns",
            map_list(
                ["name"],
                object([
                    ("description", string()),
                    ("format", string()),
                    ("jsonPath", string()),
                    ("name", string()),
                    ("priority", integer().format("int32")),
                    ("type", string()),
                ])
                .required(["jsonPath", "name", "type"]),
            ),
        ),
        ("deprecated", boolean()),
        ("deprecationWarning", string()),
        ("name", string().not_empty().pattern(VERSION_PATTERN)),
        ("schema", any_object().atomic().preserve_unknown_fields().about("Structural OpenAPI v3 schema.")),
        ("selectableFields", atomic_list(object([("jsonPath", string())]).required(["jsonPath"]))),
        ("served", boolean().default(true.into())),
        ("storage", boolean()),
        (
            "subresources",
            object([
                (
                    "scale",
                    object([
                        ("labelSelectorPath", string()),
                        ("specReplicasPath", string()),
                        ("statusReplicasPath", string()),
                    ])
                    .required(["specReplicasPath", "statusReplicasPath"]),
                ),
                ("status", any_object()),
            ]),
        ),
    ])
    .required(["name", "schema", "served", "storage"])
}

fn api_conversion() -> Schema {
    let version = || string().not_empty().pattern(VERSION_PATTERN);
    kind([(
        "spec",
        object([(
            "conversions",
            map_list(
                ["from", "to"],
                object([
                    ("from", version()),
                    ("preserve", list(string())),
                    (
                        "rules",
                        map_list(
                            ["destination"],
                            object([
                                ("destination", string().not_empty()),
                                ("field", string().not_empty()),
                                ("transformation", string()),
                            ])
                            .required(["destination", "field"]),
                        ),
                    ),
                    ("to", version()),
                ])
                .required(["from", "rules", "to"]),
            ),
        )])
        .required(["conversions"]),
    )])
    .required(["metadata", "spec"])
}
