//! Reads CRDs from YAML or JSON: several documents, and lists of CRDs.

use serde_json::Value;

use super::CrdError;
use super::definition::CustomResourceDefinition;

/// Nodes of a document. The largest public CRDs have some 100,000.
const MAX_NODES: usize = 5_000_000;

/// All CRDs of a file, in order. Empty documents are skipped, as are those with comments only.
pub(crate) fn definitions(text: &str) -> Result<Vec<CustomResourceDefinition>, CrdError> {
    let mut definitions = Vec::new();
    let documents = documents(text).into_iter().filter(|document| has_content(document));
    for (index, document) in documents.enumerate() {
        let number = index + 1;
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_nodes: MAX_NODES, max_events: 2 * MAX_NODES },
            // Go's decoder keeps the last of equal keys, and reads `010` as eight.
            duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
            legacy_octal_numbers: true,
            with_snippet: false,
        };
        let tree: Value = serde_saphyr::from_str_with_options(&document, options)
            .map_err(|error| CrdError::Yaml { number, reason: error.to_string() })?;
        add(tree, number, &mut definitions)?;
    }
    Ok(definitions)
}

/// Adds a CRD, or each CRD of a list.
fn add(tree: Value, number: usize, definitions: &mut Vec<CustomResourceDefinition>) -> Result<(), CrdError> {
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
            let definition = serde_path_to_error::deserialize(tree).map_err(|error| CrdError::Field {
                number,
                path: error.path().to_string(),
                reason: error.inner().to_string(),
            })?;
            definitions.push(definition);
            Ok(())
        }
        ("v1", "List") | ("apiextensions.k8s.io/v1", "CustomResourceDefinitionList") => {
            let items = tree.get("items").and_then(Value::as_array).into_iter().flatten();
            items.cloned().try_for_each(|item| add(item, number, definitions))
        }
        (_, "") => Err(CrdError::Kind { number, found: "an object without a kind".to_owned() }),
        ("", kind) => Err(CrdError::Kind { number, found: kind.to_owned() }),
        (version, kind) => Err(CrdError::Kind { number, found: format!("{kind} of {version}") }),
    }
}

/// The documents between separators: lines of `---`, which a space and a comment may follow.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        match line.strip_prefix("---").filter(|rest| rest.starts_with(char::is_whitespace) || rest.is_empty())
        {
            Some(rest) => documents.push(rest.to_owned()),
            None => {
                if let Some(document) = documents.last_mut() {
                    document.push_str(line);
                }
            }
        }
    }
    documents
}

fn has_content(document: &str) -> bool {
    document.lines().map(str::trim_start).any(|line| !line.is_empty() && !line.starts_with(['#', '%']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_separated_by_lines_of_dashes() {
        for (text, expected) in [
            ("a: 1\n", &["a: 1\n"][..]),
            ("---\na: 1\n---\nb: 1", &["a: 1\n", "b: 1"]),
            ("# first\n--- # second\na: '---'\n----\n", &[" # second\na: '---'\n----\n"]),
            ("---\n\n---\n# none\n---\n", &[]),
        ] {
            let found: Vec<_> = documents(text)
                .into_iter()
                .filter(|document| has_content(document))
                .map(|document| document.trim_start_matches('\n').to_owned())
                .collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
