//! Compression is done in Rust: no dependency may switch flate2 to a C library, which features do for the whole workspace.

use crate::pending::{Rule, is_pending};
use crate::workspace::cargo;

/// Features of flate2 that select a C library.
const C_FEATURES: &[&str] = &[
    "any_c_zlib",
    "cloudflare_zlib",
    "libz-ng-sys",
    "libz-sys",
    "zlib",
    "zlib-default",
    "zlib-ng",
    "zlib-ng-compat",
];

#[test]
fn no_c_library_compresses() {
    let arguments = ["tree", "--workspace", "--locked", "-e", "no-dev", "--prefix", "none", "-f", "{p} {f}"];
    let tree = cargo(&arguments);
    assert!(tree.lines().any(|line| line.starts_with("flate2 ")), "flate2 was not found:\n{tree}");
    let mut faults = c_libraries(&tree);
    faults.retain(|fault| !is_pending(Rule::Compression, fault));
    assert!(
        faults.is_empty(),
        "{faults:?}; `cargo tree -e features,no-dev -i flate2` says which crate it is"
    );
}

/// Takes lines of the form `name version features`, where features are separated by commas.
fn c_libraries(tree: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        if matches!(name, "libz-sys" | "libz-ng-sys" | "cloudflare-zlib-sys") {
            faults.push(format!("{name} is a dependency"));
        }
        if name == "flate2" {
            let features = words.last().unwrap_or_default().split(',');
            faults.extend(
                features.filter(|f| C_FEATURES.contains(f)).map(|f| format!("flate2 has the feature {f}")),
            );
        }
    }
    faults.sort();
    faults.dedup();
    faults
}

#[test]
fn a_c_library_is_found() {
    let rust =
        "fairlead v0.1.0 (/x) \nflate2 v1.1.11 any_impl,any_zlib,zlib-rs\nzlib-rs v0.6.8 rust-allocator\n";
    assert_eq!(c_libraries(rust), [""; 0]);
    let c = "flate2 v1.1.11 any_zlib,zlib-ng,zlib-rs\nlibz-ng-sys v1.1.31 \nflate2 v1.1.11 any_zlib,zlib-ng (*)\n";
    assert_eq!(c_libraries(c), ["flate2 has the feature zlib-ng", "libz-ng-sys is a dependency"]);
}
