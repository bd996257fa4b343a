//! The v1alpha1 schemas of APIExport and APIBinding, served beside v1alpha2 and never stored.

use super::Version;
use super::build::{Schema, boolean, list, map_list, object, set, string};
use super::fragments::{
    GROUP_PATTERN, RESOURCE_PATTERN, binding_reference, binding_status, export_status, identity, kind,
    maximal_permission_policy,
};

pub(super) fn api_export() -> Version {
    let schema = kind([
        (
            "spec",
            object([
                ("identity", identity()),
                ("latestResourceSchemas", set(string()).about("Names of the exported APIResourceSchemas.")),
                ("maximalPermissionPolicy", maximal_permission_policy()),
                (
                    "permissionClaims",
                    map_list(["group", "resource"], claim(group().default("".into())).required(["resource"])),
                ),
            ]),
        ),
        ("status", export_status()),
    ]);
    Version::new("v1alpha1", schema).with_status().not_stored()
}

pub(super) fn api_binding() -> Version {
    let schema = kind([
        (
            "spec",
            object([
                (
                    "permissionClaims",
                    list(
                        claim(group())
                            .field("state", string().one_of(["Accepted", "Rejected"]))
                            .required(["resource", "state"]),
                    ),
                ),
                ("reference", binding_reference().exactly_one_of(["export"])),
            ])
            .required(["reference"]),
        ),
        (
            "status",
            binding_status(
                list(claim(group()).required(["resource"])),
                list(claim(group()).required(["resource"])),
            ),
        ),
    ])
    .required(["spec"]);
    Version::new("v1alpha1", schema).with_status().not_stored()
}

fn group() -> Schema {
    string().pattern(GROUP_PATTERN)
}

fn claim(group: Schema) -> Schema {
    object([
        ("all", boolean().about("All objects; excludes resourceSelector.")),
        ("group", group),
        ("identityHash", string()),
        ("resource", string().pattern(RESOURCE_PATTERN)),
        (
            "resourceSelector",
            list(
                object([
                    (
                        "name",
                        string().min_length(1).max_length(253).pattern("^([a-z0-9][-a-z0-9_.]*)?[a-z0-9]$"),
                    ),
                    ("namespace", string().not_empty()),
                ])
                .rule("has(self.__namespace__) || has(self.name)", "at least one field must be set"),
            ),
        ),
    ])
    .rule(
        "(has(self.all) && self.all) != (has(self.resourceSelector) && size(self.resourceSelector) > 0)",
        r#"either "all" or "resourceSelector" must be set"#,
    )
}
