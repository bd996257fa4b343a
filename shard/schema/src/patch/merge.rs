//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Applies `patch` to `target`: objects are merged field by field, `null` deletes a field, everything else replaces.
///
/// The result is never deeper than the deeper of the two. Costs one pass over the patch.
pub fn apply_merge_patch(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, change) in patch {
        if change.is_null() {
            fields.remove(&name);
        } else {
            apply_merge_patch(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cases_of_the_rfc() {
        // RFC 7386, appendix A.
        let table = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (mut target, patch, expected) in table {
            let shown = patch.to_string();
            apply_merge_patch(&mut target, patch);
            assert_eq!(target, expected, "{shown}");
        }
    }

    #[test]
    fn agrees_with_the_json_patch_crate() {
        let mut ours = json!({"a": {"x": 1, "y": [1, {"z": 2}]}, "b": "t", "c": null});
        let mut theirs = ours.clone();
        let patch = json!({"a": {"x": null, "y": {"n": {"m": null}}}, "b": {"k": 1}, "d": [null]});
        json_patch::merge(&mut theirs, &patch);
        apply_merge_patch(&mut ours, patch);
        assert_eq!(ours, theirs);
    }
}
