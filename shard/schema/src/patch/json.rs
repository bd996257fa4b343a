//! JSON patch (RFC 6902) within the limits of Kubernetes.

use json_patch::jsonptr::Pointer;
use json_patch::{Patch, PatchErrorKind, PatchOperation};
use serde_json::Value;
use thiserror::Error;

use crate::decode::{MAX_DEPTH, depth_of};

/// Maximum number of operations in a patch, as in Kubernetes.
pub const MAX_JSON_PATCH_OPERATIONS: usize = 10_000;

/// Maximum number of values in what all `move` and `copy` operations of a patch move, so that its work is bounded.
const MAX_MOVED_VALUES: usize = 10_000_000;

/// Errors of a JSON patch; the client is always at fault. Only [`JsonPatchError::TestFailed`] can succeed on a retry,
/// against another version of the object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonPatchError {
    /// The patch is not a list of operations: 400.
    #[error("error decoding patch: {0}")]
    Malformed(String),
    /// Too many operations: 413.
    #[error("The allowed maximum operations in a JSON patch is {MAX_JSON_PATCH_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// `copy` operations would make the object grow beyond the limit: 413.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {size}, exceeding the limit {limit}"
    )]
    CopyTooLarge {
        /// Bytes of JSON copied so far, this operation included.
        size: usize,
        /// The caller's limit.
        limit: usize,
    },
    /// `move` and `copy` operations would take too much work: 413.
    #[error("Unable to complete the patch, its operations move more than {MAX_MOVED_VALUES} values")]
    MoveTooLarge,
    /// The object would be nested deeper than allowed: 422.
    #[error("the patched object would be nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A `test` operation did not hold: 422.
    #[error("testing value {path} failed: test failed")]
    TestFailed {
        /// The JSON pointer of the test.
        path: String,
    },
    /// An operation is none of RFC 6902, or has no `path`, `from` or `value`: 422.
    #[error("{0}")]
    InvalidOperation(String),
    /// An operation names a value that does not exist: 422.
    #[error("operation {index} at {path}: {message}")]
    Inapplicable {
        /// The index of the operation, from 0.
        index: usize,
        /// The operation's JSON pointer.
        path: String,
        /// The error of the operation.
        message: String,
    },
}

/// A parsed JSON patch.
#[derive(Clone, Debug)]
pub struct JsonPatch {
    operations: Vec<PatchOperation>,
}

impl JsonPatch {
    /// Parses a patch from its JSON.
    pub fn parse(patch: Value) -> Result<Self, JsonPatchError> {
        let Value::Array(operations) = &patch else {
            return Err(mismatch(&patch, "value", "[]handlers.jsonPatchOp"));
        };
        for operation in operations {
            let Value::Object(fields) = operation else {
                return Err(mismatch(operation, "value", "handlers.jsonPatchOp"));
            };
            for field in ["op", "path", "from"] {
                if let Some(value) = fields.get(field).filter(|value| !value.is_string() && !value.is_null())
                {
                    return Err(mismatch(value, &format!("struct field jsonPatchOp.{field}"), "string"));
                }
            }
        }
        if operations.len() > MAX_JSON_PATCH_OPERATIONS {
            return Err(JsonPatchError::TooManyOperations(operations.len()));
        }
        let patch: Patch = serde_json::from_value(patch)
            .map_err(|error| JsonPatchError::InvalidOperation(error.to_string()))?;
        Ok(Self { operations: patch.0 })
    }

    /// Whether an operation concerns a field, something below it or something above it.
    pub fn refers_to(&self, field: &[&str]) -> bool {
        let concerns =
            |pointer: &Pointer| pointer.tokens().zip(field).all(|(token, name)| token.decoded() == *name);
        self.operations.iter().any(|operation| {
            let from = match operation {
                PatchOperation::Move(moved) => Some(&moved.from),
                PatchOperation::Copy(copied) => Some(&copied.from),
                _ => None,
            };
            concerns(operation.path()) || from.is_some_and(|from| concerns(from))
        })
    }

    /// The value that an operation compares with a field, or stores in it.
    pub fn operand(&self, field: &[&str]) -> Option<&Value> {
        let is_field = |pointer: &Pointer| {
            pointer.tokens().count() == field.len()
                && pointer.tokens().zip(field).all(|(token, name)| token.decoded() == *name)
        };
        self.operations.iter().find_map(|operation| match operation {
            PatchOperation::Add(add) if is_field(&add.path) => Some(&add.value),
            PatchOperation::Replace(replace) if is_field(&replace.path) => Some(&replace.value),
            PatchOperation::Test(test) if is_field(&test.path) => Some(&test.value),
            _ => None,
        })
    }

    /// Applies all operations. After an error, `object` is partly patched and must be discarded.
    ///
    /// `max_copied` limits the JSON bytes that `copy` operations add in total; Kubernetes uses the limit of request
    /// bodies.
    pub fn apply(&self, object: &mut Value, max_copied: usize) -> Result<(), JsonPatchError> {
        let mut growth = Growth { copied: 0, max_copied, moved_values: 0 };
        for (index, operation) in self.operations.iter().enumerate() {
            growth.check(object, operation)?;
            if tests_absent_for_null(object, operation) {
                continue;
            }
            json_patch::patch_unsafe(object, std::slice::from_ref(operation)).map_err(|error| {
                let path = error.path.to_string();
                match error.kind {
                    PatchErrorKind::TestFailed => JsonPatchError::TestFailed { path },
                    kind => JsonPatchError::Inapplicable { index, path, message: kind.to_string() },
                }
            })?;
        }
        Ok(())
    }
}

/// The error of Go's decoder for a value of another type.
fn mismatch(value: &Value, target: &str, expected: &str) -> JsonPatchError {
    let found = crate::decode::go_type_of(value);
    JsonPatchError::Malformed(format!("json: cannot unmarshal {found} into Go {target} of type {expected}"))
}

/// The growth of the object by the operations so far.
struct Growth {
    /// Bytes of JSON.
    copied: usize,
    max_copied: usize,
    moved_values: usize,
}

impl Growth {
    fn check(&mut self, object: &Value, operation: &PatchOperation) -> Result<(), JsonPatchError> {
        let (path, depth) = match operation {
            PatchOperation::Add(add) => (&add.path, depth_of(&add.value)),
            PatchOperation::Replace(replace) => (&replace.path, depth_of(&replace.value)),
            PatchOperation::Move(moved) => (&moved.path, self.depth_at(object, &moved.from)?),
            PatchOperation::Copy(copy) => {
                if let Ok(source) = copy.from.resolve(object) {
                    self.copied = self.copied.saturating_add(source.to_string().len());
                }
                if self.copied > self.max_copied {
                    return Err(JsonPatchError::CopyTooLarge { size: self.copied, limit: self.max_copied });
                }
                (&copy.path, self.depth_at(object, &copy.from)?)
            }
            PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
        };
        if path.count() + depth > MAX_DEPTH { Err(JsonPatchError::TooDeep) } else { Ok(()) }
    }

    /// The depth of a value in the object, which is visited as a whole.
    fn depth_at(&mut self, object: &Value, from: &Pointer) -> Result<usize, JsonPatchError> {
        let Ok(source) = from.resolve(object) else { return Ok(0) };
        let depth = self.visit(source);
        if self.moved_values > MAX_MOVED_VALUES { Err(JsonPatchError::MoveTooLarge) } else { Ok(depth) }
    }

    fn visit(&mut self, value: &Value) -> usize {
        self.moved_values += 1;
        match value {
            Value::Array(items) => 1 + items.iter().map(|item| self.visit(item)).max().unwrap_or(0),
            Value::Object(fields) => 1 + fields.values().map(|field| self.visit(field)).max().unwrap_or(0),
            _ => 0,
        }
    }
}

/// The patch library of Kubernetes treats an absent field as null in `test`.
fn tests_absent_for_null(object: &Value, operation: &PatchOperation) -> bool {
    match operation {
        PatchOperation::Test(test) => test.value.is_null() && test.path.resolve(object).is_err(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn apply(object: &mut Value, patch: Value) -> Result<(), JsonPatchError> {
        JsonPatch::parse(patch)?.apply(object, 100)
    }

    #[test]
    fn operations_are_applied() {
        let table = [
            (json!([{"op": "add", "path": "/a", "value": 1}]), json!({"a": 1, "l": [1, 2], "m~/x": 3})),
            (json!([{"op": "add", "path": "/l/-", "value": 3}]), json!({"l": [1, 2, 3], "m~/x": 3})),
            (json!([{"op": "remove", "path": "/m~0~1x"}]), json!({"l": [1, 2]})),
            (json!([{"op": "replace", "path": "/l/0", "value": 9}]), json!({"l": [9, 2], "m~/x": 3})),
            (json!([{"op": "move", "from": "/l", "path": "/k"}]), json!({"k": [1, 2], "m~/x": 3})),
            (
                json!([{"op": "copy", "from": "/l", "path": "/k"}]),
                json!({"k": [1, 2], "l": [1, 2], "m~/x": 3}),
            ),
            (json!([{"op": "test", "path": "/l/1", "value": 2}]), json!({"l": [1, 2], "m~/x": 3})),
            (json!([{"op": "test", "path": "/absent", "value": null}]), json!({"l": [1, 2], "m~/x": 3})),
        ];
        for (patch, expected) in table {
            let mut object = json!({"l": [1, 2], "m~/x": 3});
            let shown = patch.to_string();
            apply(&mut object, patch).unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!(object, expected, "{shown}");
        }
    }

    #[test]
    fn the_work_of_moves_is_bounded() {
        let mut object = json!({"x": vec![0; 20_000]});
        let there_and_back = |times: usize| {
            let moves = (0..times).map(|number| match number % 2 {
                0 => json!({"op": "move", "from": "/x", "path": "/z"}),
                _ => json!({"op": "move", "from": "/z", "path": "/x"}),
            });
            Value::Array(moves.collect())
        };
        assert_eq!(apply(&mut object, there_and_back(400)), Ok(()));
        assert_eq!(apply(&mut object, there_and_back(600)), Err(JsonPatchError::MoveTooLarge));
    }

    #[test]
    fn failures_are_typed() {
        let mut object = json!({"a": 1});
        assert_eq!(
            apply(&mut object, json!([{"op": "test", "path": "/a", "value": 2}])),
            Err(JsonPatchError::TestFailed { path: "/a".to_owned() })
        );
        for patch in [
            json!([{"op": "remove", "path": "/zz"}]),
            json!([{"op": "replace", "path": "/zz", "value": 1}]),
            json!([{"op": "add", "path": "/zz/y", "value": 1}]),
            json!([{"op": "copy", "from": "/zz", "path": "/y"}]),
            json!([{"op": "test", "path": "/zz", "value": 1}]),
        ] {
            let error = apply(&mut object, patch.clone());
            let refused =
                matches!(error, Err(JsonPatchError::Inapplicable { .. } | JsonPatchError::TestFailed { .. }));
            assert!(refused, "{patch}: {error:?}");
        }
        for (patch, expected) in [
            (json!({"op": "x"}), "object into Go value of type []handlers.jsonPatchOp"),
            (json!(["x"]), "string into Go value of type handlers.jsonPatchOp"),
            (json!([{"op": 1}]), "number into Go struct field jsonPatchOp.op of type string"),
        ] {
            let expected = JsonPatchError::Malformed(format!("json: cannot unmarshal {expected}"));
            assert_eq!(apply(&mut object, patch), Err(expected));
        }
        for patch in [json!([{"op": "x", "path": "/a"}]), json!([{"op": "add", "path": "a"}])] {
            assert!(matches!(apply(&mut object, patch), Err(JsonPatchError::InvalidOperation(_))));
        }
    }

    #[test]
    fn growth_is_bounded() {
        let many: Vec<Value> = (0..10_001).map(|_| json!({"op": "test", "path": "/a", "value": 1})).collect();
        assert_eq!(
            apply(&mut json!({"a": 1}), Value::Array(many)),
            Err(JsonPatchError::TooManyOperations(10_001))
        );

        let copies: Vec<Value> =
            (0..10).map(|index| json!({"op": "copy", "from": "", "path": format!("/c{index}")})).collect();
        let error = apply(&mut json!({"a": "0123456789"}), Value::Array(copies));
        assert!(matches!(error, Err(JsonPatchError::CopyTooLarge { limit: 100, .. })), "{error:?}");

        let mut path = String::new();
        let mut deeper = Vec::new();
        for _ in 0..=MAX_DEPTH {
            path.push_str("/a");
            deeper.push(json!({"op": "add", "path": path, "value": {}}));
        }
        assert_eq!(apply(&mut json!({}), Value::Array(deeper)), Err(JsonPatchError::TooDeep));
    }
}
