//! Compression is done in Rust. flate2 may compress in C: pingora-core selects its feature `zlib-ng`, and features hold for
//! the whole workspace. So programs call zlib-rs and must not depend on flate2, nor on a C library for compression.

use serde_json::{Value, json};

use crate::crates::chains;
use crate::workspace::{members, metadata};

/// Crates that compress in C, or may do so.
const C_COMPRESSION: &[&str] =
    &["cloudflare-zlib-sys", "flate2", "libz-ng-sys", "libz-sys", "lz4-sys", "zstd-sys"];

/// Crates of the workspace that may depend on these, and the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("fairlead-gateway", "pingora-core depends on flate2 in any case; the gateway compresses nothing"),
    ("fairlead-tests", "it is not shipped, and reads recordings with flate2"),
    ("fairlead-bench", "it is not shipped, and uses fairlead-tests"),
];

#[test]
fn programs_do_not_compress_in_c() {
    let faults = c_compression(&metadata());
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn c_compression(metadata: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for member in members(metadata) {
        let name = member["name"].as_str().unwrap();
        let chains = chains(metadata, name);
        let found: Vec<&String> = C_COMPRESSION.iter().filter_map(|banned| chains.get(*banned)).collect();
        let is_exception = EXCEPTIONS.iter().any(|(exception, _)| *exception == name);
        match (is_exception, found.first()) {
            (false, Some(chain)) => faults.push(format!("{name} may compress in C: {chain}")),
            (true, None) => faults.push(format!("{name} needs no exception any more")),
            _ => {}
        }
    }
    faults
}

#[test]
fn a_program_that_may_compress_in_c_is_found() {
    let names = [
        "fairlead-shard",
        "fairlead-cache",
        "fairlead-gateway",
        "fairlead-bench",
        "pingora-core",
        "flate2",
        "libz-ng-sys",
    ];
    let normal = json!([{ "kind": null }]);
    let node = |id: &str, on: &[(&str, &Value)]| {
        let dependencies: Vec<Value> =
            on.iter().map(|(name, kinds)| json!({ "pkg": name, "dep_kinds": kinds })).collect();
        json!({ "id": id, "deps": dependencies })
    };
    let dev = json!([{ "kind": "dev" }]);
    let metadata = json!({
        "workspace_members": names[..4],
        "packages": names.map(|name| json!({ "id": name, "name": name })),
        "resolve": { "nodes": [
            node("fairlead-shard", &[("flate2", &normal)]),
            node("fairlead-cache", &[("flate2", &dev)]),
            node("fairlead-gateway", &[("pingora-core", &normal)]),
            node("pingora-core", &[("flate2", &normal)]),
            node("flate2", &[("libz-ng-sys", &normal)]),
            node("libz-ng-sys", &[]),
            node("fairlead-bench", &[]),
        ] },
    });
    assert_eq!(
        c_compression(&metadata),
        [
            "fairlead-shard may compress in C: fairlead-shard -> flate2",
            "fairlead-bench needs no exception any more",
        ]
    );
}
