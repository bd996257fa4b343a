//! The entry points of the fuzz targets: what clients and webhooks send before anything else has checked it.

use fairlead_schema::builtin::builtin_kinds;
use fairlead_schema::{decode_json, decode_protobuf, decode_yaml, depth_of};
use serde_json::Value;

use crate::dynamic_admission::admission_response;
use crate::registry::{Continuation, conversion_response};
use crate::request::{FieldSelector, LabelSelector, ListOptions, Query};

/// The largest body, as of requests.
const MAX_BODY: usize = 3 << 20;

/// A body as JSON and as YAML, for each built-in kind. Decoding is bounded, and what JSON accepts is one tree in both forms.
pub fn body(bytes: &[u8]) {
    let json = decode_json(bytes, MAX_BODY).ok();
    let yaml = decode_yaml(bytes, MAX_BODY).ok();
    for decoded in [&json, &yaml].into_iter().flatten() {
        assert!(depth_of(&decoded.value) <= fairlead_schema::MAX_DEPTH);
        normalize(&decoded.value);
    }
}

/// A protobuf body, as each built-in kind.
pub fn protobuf(bytes: &[u8]) {
    for kind in builtin_kinds() {
        if let Ok(object) = decode_protobuf(bytes, &kind.api_version(), kind.kind) {
            normalize(&object);
        }
    }
}

/// A label selector, a field selector, and the query of a list. A selector that parses selects without a panic.
pub fn selector(text: &str) {
    if let Ok(labels) = LabelSelector::parse(text) {
        let _ = labels.selects(|_| None);
        let _ = labels.selects(|_| Some("value"));
    }
    if let Ok(fields) = FieldSelector::parse(text) {
        let _ = fields.selects(|_| String::new());
    }
    let query = Query::parse(text);
    for watch in [false, true] {
        let _ = ListOptions::parse(&query, watch);
    }
}

/// A continue token. One that parses cannot leave the list, and is the same when it is written again.
pub fn continuation(token: &str) {
    let Some(page) = Continuation::parse(token) else { return };
    let prefix = "/registry/core/configmaps/c/";
    let start = page.start_key(prefix);
    assert!(start.starts_with(prefix) && !start[prefix.len()..].split('/').any(|part| part == ".."));
    assert_eq!(Continuation::parse(&page.token()), Some(page));
}

/// The response of an admission webhook, or of a conversion webhook.
pub fn webhook(body: &[u8]) {
    admission_response(body);
    conversion_response(body);
}

fn normalize(object: &Value) {
    for kind in builtin_kinds() {
        let mut object = object.clone();
        if kind.normalize(&mut object).is_err() {
            continue;
        }
        let semantics = kind.semantics();
        semantics.prepare_create(&mut object);
        semantics.default(&mut object);
        let _ = semantics.validate(&object);
        let _ = kind.table_cells(&object, jiff::Timestamp::UNIX_EPOCH);
    }
}

#[cfg(test)]
mod tests {
    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let folder = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let entries = std::fs::read_dir(folder).unwrap();
        let found: Vec<_> = entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        assert!(!found.is_empty(), "{name}");
        found
    }

    #[test]
    fn found_input_neither_panics_nor_leaves_its_bounds() {
        corpus("body").iter().for_each(|input| super::body(input));
        corpus("protobuf").iter().for_each(|input| super::protobuf(input));
        corpus("webhook").iter().for_each(|input| super::webhook(input));
        corpus("selector").iter().for_each(|input| super::selector(&String::from_utf8_lossy(input)));
        corpus("continuation").iter().for_each(|input| super::continuation(&String::from_utf8_lossy(input)));
    }
}
