//! The files of the workspace, and what cargo says about its crates.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// A Rust source file.
#[derive(Debug)]
pub struct SourceFile {
    /// Path from the root of the workspace, with slashes.
    pub path: String,
    pub text: String,
    /// Only tests, benchmarks and examples are made of it.
    pub is_test: bool,
}

/// All Rust sources of the workspace.
pub fn sources() -> &'static [SourceFile] {
    static SOURCES: LazyLock<Vec<SourceFile>> = LazyLock::new(|| {
        let read = |path: String| {
            let text = std::fs::read_to_string(workspace().join(&path)).unwrap();
            (path, text)
        };
        let texts: Vec<(String, String)> =
            files().iter().filter(|path| path.ends_with(".rs")).cloned().map(read).collect();
        assert!(texts.len() > 50, "the sources were not found");
        let of_tests: BTreeSet<PathBuf> =
            texts.iter().flat_map(|(path, text)| modules_of_tests(Path::new(path), text)).collect();
        let sources = texts.into_iter().map(|(path, text)| {
            let is_test = is_test(Path::new(&path)) || of_tests.contains(Path::new(&path));
            SourceFile { path, text, is_test }
        });
        sources.collect()
    });
    &SOURCES
}

/// The paths of all files of the workspace, from its root, except those that are built.
pub fn files() -> &'static [String] {
    static FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let root = workspace();
        let (mut files, mut folders) = (Vec::new(), vec![root.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                let is_hidden = name.starts_with('.') && name != ".ci";
                if path.is_dir() && !is_hidden && name != "target" {
                    folders.push(path);
                } else if path.is_file() && !is_hidden {
                    let path = path.strip_prefix(&root).unwrap().components();
                    let path: Vec<_> = path.map(|part| part.as_os_str().to_str().unwrap()).collect();
                    files.push(path.join("/"));
                }
            }
        }
        files.sort();
        files
    });
    &FILES
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The members of the workspace in cargo's metadata.
pub fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    let members = &metadata["workspace_members"];
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().filter(|package| members.as_array().unwrap().contains(&package["id"]))
}

/// The output of `cargo metadata`.
pub fn metadata() -> Value {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &host()])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The platform of the build. Crates for other platforms may not be downloaded.
fn host() -> String {
    let output =
        Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into())).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// Whether only tests, benchmarks and examples are made of a file, judged by its path.
pub fn is_test(path: &Path) -> bool {
    let is_folder = |name: &str| path.components().any(|component| component.as_os_str() == name);
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    ["tests", "benches", "examples"].into_iter().any(is_folder) || stem == "tests" || stem.ends_with("_tests")
}

/// The files of modules that a file declares for its tests only.
pub fn modules_of_tests(path: &Path, text: &str) -> Vec<PathBuf> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let names = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").filter_map(|pair| {
        let (_, name) = pair[1].strip_suffix(';')?.split_once("mod ")?;
        Some(name)
    });
    let folder = path.parent().unwrap();
    let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("mod" | "lib" | "main") | None => folder.to_owned(),
        Some(stem) => folder.join(stem),
    };
    names.flat_map(|name| [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")]).collect()
}

#[test]
fn files_of_modules_for_tests_are_tests() {
    let text =
        "mod a;\n\n#[cfg(test)]\nmod b;\n    #[cfg(test)]\n    pub(crate) mod c;\n#[cfg(test)]\nmod d {\n";
    let files = ["x/src/b.rs", "x/src/b/mod.rs", "x/src/c.rs", "x/src/c/mod.rs"].map(PathBuf::from);
    assert_eq!(modules_of_tests(Path::new("x/src/lib.rs"), text), files);
    let files = modules_of_tests(Path::new("x/src/y.rs"), text);
    assert_eq!(files[0], Path::new("x/src/y/b.rs"));
    for path in ["a/tests/b.rs", "a/src/tests.rs", "a/src/b/property_tests.rs", "a/benches/b.rs"] {
        assert!(is_test(Path::new(path)), "{path}");
    }
    assert!(!is_test(Path::new("a/src/b.rs")));
}
