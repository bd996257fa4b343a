//! Dependencies between crates: direct ones by a table, and crates that must not be reached at all.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::workspace::{members, metadata};

/// Each crate with the crates of this workspace that it may depend on; ARCHITECTURE.md has the reasons. Tests of a crate
/// may depend on others.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("fairlead-names", &[]),
    ("fairlead-cel", &[]),
    ("fairlead-store", &[]),
    ("fairlead-store-etcd", &["store"]),
    ("fairlead-schema", &["cel"]),
    ("fairlead-config", &["names"]),
    ("fairlead-client", &["names"]),
    ("fairlead-multicluster", &[]),
    ("fairlead-certs", &[]),
    ("fairlead-lint", &["config", "client"]),
    ("fairlead-process", &["config"]),
    ("fairlead-server-store", &["store", "store-etcd", "config", "process"]),
    ("fairlead-authn", &["cel", "client"]),
    ("fairlead-api", &["names"]),
    ("fairlead-apiserver", &["names", "store", "schema", "cel", "client", "authn", "process"]),
    ("fairlead-virtual", &["names", "store", "config", "client", "process", "authn", "api", "apiserver"]),
    (
        "fairlead-shard",
        &[
            "names",
            "store",
            "server-store",
            "schema",
            "config",
            "client",
            "certs",
            "process",
            "authn",
            "api",
            "apiserver",
            "cache",
            "virtual",
        ],
    ),
    (
        "fairlead-cache",
        &[
            "names",
            "store",
            "server-store",
            "schema",
            "config",
            "certs",
            "process",
            "authn",
            "api",
            "apiserver",
        ],
    ),
    ("fairlead-gateway", &["names", "cel", "config", "client", "certs", "process", "authn"]),
    ("fairlead-issuer", &["config", "process"]),
    ("fairlead", &["names", "store", "store-etcd", "config", "client", "certs", "lint"]),
    ("fairlead-tests", &["names", "config", "client", "certs", "api"]),
    ("fairlead-bench", &["certs", "tests", "store", "store-etcd"]),
];

/// Crates that must not be reached through any dependencies.
const FORBIDDEN_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("fairlead-gateway", &["fairlead-store", "fairlead-schema", "fairlead-apiserver", "k8s-openapi", "redb"]),
    ("fairlead-process", &["k8s-openapi", "redb"]),
    ("fairlead-client", &["k8s-openapi", "fairlead-process"]),
    // The issuer is independent of the system that it issues tokens for.
    ("fairlead-issuer", &["fairlead-client", "fairlead-certs", "fairlead-authn", "k8s-openapi", "oauth2"]),
    ("fairlead-gateway", &["fairlead-issuer", "jsonwebtoken", "oauth2"]),
    (
        "fairlead",
        &[
            "fairlead-process",
            "fairlead-shard",
            "fairlead-gateway",
            "fairlead-cache",
            "fairlead-issuer",
            "k8s-openapi",
            "reqwest",
        ],
    ),
];

#[test]
fn crates_depend_only_on_allowed_crates() {
    assert_eq!(forbidden_edges(&metadata()), [""; 0]);
}

#[test]
fn crates_do_not_reach_forbidden_crates() {
    assert_eq!(forbidden_reach(&metadata()), [""; 0]);
}

/// Dependencies between crates of the workspace that are not in the table, and crates that are not in it.
fn forbidden_edges(metadata: &Value) -> Vec<String> {
    let table: BTreeMap<_, _> = ALLOWED_DEPENDENCIES.iter().copied().collect();
    let mut faults = Vec::new();
    for package in members(metadata) {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = table.get(name) else {
            faults.push(format!("{name} is not in the table of crates"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().unwrap();
        let ours = dependencies
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str()?.strip_prefix("fairlead-"));
        for dependency in ours.filter(|dependency| !allowed.contains(dependency)) {
            faults.push(format!("{name} must not depend on fairlead-{dependency}"));
        }
    }
    faults
}

/// Chains of dependencies to forbidden crates.
fn forbidden_reach(metadata: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for (from, banned) in FORBIDDEN_DEPENDENCIES {
        let chains = chains(metadata, from);
        faults
            .extend(banned.iter().filter_map(|banned| Some(format!("forbidden: {}", chains.get(*banned)?))));
    }
    faults
}

/// The crates that a crate depends on, directly or not, each with a chain of dependencies to it. Dependencies of tests do
/// not count.
pub fn chains(metadata: &Value, from: &str) -> BTreeMap<String, String> {
    let name_of: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package["name"].as_str().unwrap()))
        .collect();
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let from = name_of[node["id"].as_str().unwrap()];
        for dependency in node["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"] != "dev") {
                edges.entry(from).or_default().insert(name_of[dependency["pkg"].as_str().unwrap()]);
            }
        }
    }
    let mut chains = BTreeMap::from([(from.to_owned(), from.to_owned())]);
    let mut open = vec![from];
    while let Some(here) = open.pop() {
        for next in edges.get(here).into_iter().flatten() {
            if !chains.contains_key(*next) {
                chains.insert((*next).to_owned(), format!("{} -> {next}", chains[here]));
                open.push(next);
            }
        }
    }
    chains
}

#[test]
fn a_dependency_that_is_not_allowed_is_found() {
    let package =
        |name: &str, dependencies: Value| json!({ "id": name, "name": name, "dependencies": dependencies });
    let metadata = json!({
        "workspace_members": ["fairlead-gateway", "fairlead-new"],
        "packages": [
            package("fairlead-gateway", json!([
                { "name": "fairlead-names", "kind": null },
                { "name": "fairlead-store", "kind": null },
                { "name": "fairlead-api", "kind": "build" },
                { "name": "fairlead-shard", "kind": "dev" },
                { "name": "serde", "kind": null },
            ])),
            package("fairlead-new", json!([])),
            package("another", json!([{ "name": "fairlead-shard", "kind": null }])),
        ],
    });
    assert_eq!(
        forbidden_edges(&metadata),
        [
            "fairlead-gateway must not depend on fairlead-store",
            "fairlead-gateway must not depend on fairlead-api",
            "fairlead-new is not in the table of crates",
        ]
    );
}

#[test]
fn an_indirect_dependency_is_found() {
    let normal = json!([{ "kind": null }]);
    let dev = json!([{ "kind": "dev" }]);
    let names = ["fairlead-gateway", "middle", "k8s-openapi", "redb"];
    let metadata = json!({
        "packages": names.map(|name| json!({ "id": format!("{name} 1"), "name": name })),
        "resolve": { "nodes": [
            { "id": "fairlead-gateway 1", "deps": [
                { "pkg": "middle 1", "dep_kinds": normal },
                { "pkg": "redb 1", "dep_kinds": dev },
            ] },
            { "id": "middle 1", "deps": [{ "pkg": "k8s-openapi 1", "dep_kinds": normal }] },
            { "id": "k8s-openapi 1", "deps": [] },
            { "id": "redb 1", "deps": [] },
        ] },
    });
    assert_eq!(forbidden_reach(&metadata), ["forbidden: fairlead-gateway -> middle -> k8s-openapi"]);
}
