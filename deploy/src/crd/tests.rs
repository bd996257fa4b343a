#![allow(clippy::unwrap_used, reason = "tests")]
//! `crd snapshot`: its output and its errors.

use std::path::Path;

use clap::Parser;

use super::*;

const DEFINITION: &str = include_str!("testdata/things.yaml");

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    crd: CrdCommand,
}

fn snapshot(arguments: &[&str], input: &str) -> Result<String, String> {
    let line = CommandLine::try_parse_from(["crd", "snapshot"].iter().chain(arguments)).unwrap();
    let CrdVerb::Snapshot(snapshot) = &line.crd.verb;
    snapshot.converted(&mut input.as_bytes()).map_err(|error| error.to_string())
}

/// The expected files were printed by kcp's plugin.
#[test]
fn the_output_is_that_of_the_plugin() {
    let arguments = ["-f", "-", "--prefix", "today"];
    assert_eq!(snapshot(&arguments, DEFINITION).unwrap(), include_str!("testdata/things.expected.yaml"));
    let json = [&arguments[..], &["-o", "json"]].concat();
    assert_eq!(snapshot(&json, DEFINITION).unwrap(), include_str!("testdata/things.expected.json"));
}

#[test]
fn files_have_several_documents_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crds.yaml");
    let list =
        format!("apiVersion: v1\nkind: List\nitems:\n-{}", DEFINITION.trim_end().replace('\n', "\n  "));
    let list = list.replace("\n-apiVersion", "\n- apiVersion");
    std::fs::write(&file, format!("# comment\n---\n{DEFINITION}---\n{list}\n---\n")).unwrap();
    let once = snapshot(&["-f", "-", "--prefix=x"], DEFINITION).unwrap();
    assert_eq!(snapshot(&["-f", file.to_str().unwrap(), "--prefix=x"], "").unwrap(), once.repeat(2));
}

#[test]
fn input_that_cannot_be_converted_is_refused() {
    let replaced = |from: &str, to: &str| {
        assert!(DEFINITION.contains(from));
        DEFINITION.replace(from, to)
    };
    let webhook =
        |config: &str| replaced("{url: \"https://example.com/convert\", caBundle: \"YQ==\"}", config);
    let is_no_definition = |found: &str| {
        format!("document 1 is no CustomResourceDefinition of apiextensions.k8s.io/v1 but {found}")
    };
    for (input, message) in [
        (
            webhook("{service: {}}"),
            "error converting CRD: webhooks that refer to services are not supported, please use URL instead"
                .to_owned(),
        ),
        (webhook("{}"), "error converting CRD: webhooks URL must be set".to_owned()),
        (
            replaced("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"),
            is_no_definition("CustomResourceDefinition of apiextensions.k8s.io/v1beta1"),
        ),
        ("kind: Secret\napiVersion: v1".to_owned(), is_no_definition("Secret of v1")),
        ("text".to_owned(), is_no_definition("an object without a kind")),
        ("# nothing".to_owned(), "- has no CustomResourceDefinition".to_owned()),
        (
            replaced("served: true", "served: 7"),
            "document 1: spec.versions[0].served: invalid type: integer `7`, expected a boolean".to_owned(),
        ),
    ] {
        assert_eq!(snapshot(&["-f", "-", "--prefix=x"], &input).unwrap_err(), message, "{input}");
    }
    assert_eq!(snapshot(&["--prefix=x"], "").unwrap_err(), "--filename is required");
    assert_eq!(snapshot(&["-f", "-"], "").unwrap_err(), "--prefix is required");
    let name = snapshot(&["-f", "-", "--prefix=X_"], DEFINITION).unwrap_err();
    assert_eq!(name, "error converting CRD: \"X_.things.example.com\" is no name of an APIResourceSchema");
    assert!(!Path::new("/missing").exists());
    let missing = snapshot(&["-f", "/missing", "--prefix=x"], "").unwrap_err();
    assert!(missing.starts_with("error opening /missing: "), "{missing}");
}
