//! Decodes JSON and YAML request bodies into a tree and records duplicate fields.

use std::fmt::Write as _;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use thiserror::Error;

use crate::field::MAX_FINDINGS;

/// Deepest nesting of an object that is accepted anywhere in the server, patches included.
///
/// The limit bounds the stack of recursive functions. It also keeps stored objects readable by `serde_json`, whose own
/// limit is 128.
pub const MAX_DEPTH: usize = 120;

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedBody {
    /// The tree. A field that was given more than once has its last value.
    pub value: Value,
    /// Paths of fields that were given more than once, in order of appearance: `spec.ports[0].name`. At most 1,000.
    pub duplicate_fields: Vec<String>,
}

/// Reasons for which a body cannot be read. The client is at fault; a retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The body is larger than the caller allows.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The body is nested deeper than [`MAX_DEPTH`], or YAML aliases expand beyond the budget.
    #[error("the body is too complex: {message}")]
    TooComplex {
        /// The limit that was exceeded.
        message: String,
    },
    /// The body is not JSON.
    #[error("json parse error: {message} at line {line} column {column}")]
    Json {
        /// The line, counted from 1.
        line: usize,
        /// The column, counted from 1; 0 if the line is empty.
        column: usize,
        /// The parser's message without the position.
        message: String,
    },
    /// The body is not YAML, or YAML that has no JSON form.
    #[error("yaml parse error: {message}")]
    Yaml {
        /// The parser's message, with the position if there is one.
        message: String,
    },
}

/// Reads a JSON body of at most `max_bytes`.
///
/// Integers stay integers (`i64`, else `u64`). Numbers that are written with a fraction or an exponent are `f64`, even if
/// they are whole: Go refuses them for the integers of built-in kinds. [`whole_numbers_to_integers`] is for other fields.
pub fn decode_json(body: &[u8], max_bytes: usize) -> Result<DecodedBody, DecodeError> {
    check_size(body, max_bytes)?;
    let mut state = DecodeState::default();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let result = TreeSeed { state: &mut state, depth: 0 }.deserialize(&mut deserializer);
    match result.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(value) => Ok(DecodedBody { value, duplicate_fields: state.duplicate_fields }),
        Err(error) if state.is_too_deep || error.to_string().starts_with("recursion limit exceeded") => {
            Err(too_deep())
        }
        Err(error) => Err(DecodeError::Json {
            line: error.line(),
            column: error.column(),
            message: strip_position(&error.to_string()),
        }),
    }
}

/// Reads a YAML body of at most `max_bytes`, which must be one document. Anchors and aliases are expanded within a
/// budget.
///
/// Scalars follow YAML 1.1 as Kubernetes' decoder does: `yes` and `on` are booleans, `010` is eight, `1.0` is one.
pub fn decode_yaml(body: &[u8], max_bytes: usize) -> Result<DecodedBody, DecodeError> {
    check_size(body, max_bytes)?;
    let text = std::str::from_utf8(body).map_err(|error| DecodeError::Yaml { message: error.to_string() })?;
    let text = without_empty_end(text);
    let mut state = DecodeState::default();
    let result =
        serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |deserializer| {
            TreeSeed { state: &mut state, depth: 0 }.deserialize(deserializer)
        });
    match result {
        Ok(mut value) => {
            whole_numbers_to_integers(&mut value);
            Ok(DecodedBody { value, duplicate_fields: state.duplicate_fields })
        }
        Err(_) if state.is_too_deep => Err(too_deep()),
        Err(error) => {
            let message = error.to_string();
            if message.starts_with("budget breached: Documents") {
                Err(DecodeError::Yaml { message: "the body has more than one document".to_owned() })
            } else if is_beyond_budget(&error, &message) {
                Err(DecodeError::TooComplex { message })
            } else {
                Err(DecodeError::Yaml { message })
            }
        }
    }
}

/// The type of a value in the errors of Go's decoder.
pub fn go_type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Turns whole numbers that are `f64` into integers, as Go's encoder writes them.
pub fn whole_numbers_to_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            // Beyond 2^53 an `f64` no longer holds every integer; the number stays as the client wrote it.
            if let Some(float) = number.as_f64().filter(|_| number.is_f64())
                && float.fract() == 0.0
                && float.abs() <= 9_007_199_254_740_992.0
            {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers_to_integers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers_to_integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Whether a body looks like JSON rather than YAML: its first character that is not white space is `{`.
pub fn looks_like_json(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

/// The messages of strict decoding, one per field, duplicates first: `duplicate field "a"`, `unknown field "b"`.
///
/// They are the warnings of `fieldValidation=Warn`.
pub fn strict_findings(duplicate_fields: &[String], unknown_fields: &[String]) -> Vec<String> {
    let duplicates = duplicate_fields.iter().map(|path| format!("duplicate field \"{path}\""));
    let unknown = unknown_fields.iter().map(|path| format!("unknown field \"{path}\""));
    duplicates.chain(unknown).collect()
}

/// The error of `fieldValidation=Strict`: `strict decoding error: duplicate field "a", unknown field "b"`.
/// `None` if there are no findings.
pub fn strict_error(duplicate_fields: &[String], unknown_fields: &[String]) -> Option<String> {
    let findings = strict_findings(duplicate_fields, unknown_fields);
    (!findings.is_empty()).then(|| format!("strict decoding error: {}", findings.join(", ")))
}

/// The number of containers that are nested in each other; 0 for a scalar.
pub fn depth_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth_of).max().unwrap_or(0),
        _ => 0,
    }
}

fn check_size(body: &[u8], limit: usize) -> Result<(), DecodeError> {
    if body.len() > limit {
        return Err(DecodeError::TooLarge { limit });
    }
    Ok(())
}

fn too_deep() -> DecodeError {
    DecodeError::TooComplex { message: format!("nested deeper than {MAX_DEPTH} levels") }
}

/// The text without separators at its end, behind which there is no document. Blank lines at the end of a document stay, because
/// they may belong to a block scalar.
fn without_empty_end(text: &str) -> &str {
    let mut kept = text;
    loop {
        let trimmed = kept.trim_end();
        let rest = trimmed.strip_suffix("---").or_else(|| trimmed.strip_suffix("..."));
        match rest.filter(|rest| rest.ends_with('\n')) {
            Some(rest) => kept = rest,
            None => return kept,
        }
    }
}

/// Checks the text too: an error at the use of an alias wraps the budget's error, and the parser's own limit has no
/// variant.
fn is_beyond_budget(error: &serde_saphyr::Error, message: &str) -> bool {
    use serde_saphyr::Error;
    let by_text =
        ["budget breached", "recursion limit exceeded"].into_iter().any(|start| message.starts_with(start));
    by_text
        || matches!(
            error,
            Error::Budget { .. }
                | Error::AliasReplayCounterOverflow { .. }
                | Error::AliasReplayLimitExceeded { .. }
                | Error::AliasExpansionLimitExceeded { .. }
                | Error::AliasReplayStackDepthExceeded { .. }
        )
}

fn strip_position(message: &str) -> String {
    message.rfind(" at line ").map_or(message, |end| &message[..end]).to_owned()
}

fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH + 8,
            max_nodes: 250_000,
            max_events: 500_000,
            max_documents: 1,
        },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        legacy_octal_numbers: true,
        // A snippet would copy parts of the body, perhaps a secret, into the error.
        with_snippet: false,
    }
}

/// State of the decoder beside the tree.
#[derive(Default)]
struct DecodeState {
    /// The path of the current value, in one buffer that grows and shrinks: a field costs one copy of its name.
    path: String,
    duplicate_fields: Vec<String>,
    is_too_deep: bool,
}

struct TreeSeed<'w> {
    state: &'w mut DecodeState,
    depth: usize,
}

impl TreeSeed<'_> {
    fn child_depth<E: serde::de::Error>(&mut self) -> Result<usize, E> {
        if self.depth >= MAX_DEPTH {
            self.state.is_too_deep = true;
            return Err(E::custom("nested too deep"));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> DeserializeSeed<'de> for TreeSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeSeed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<Value, E> {
        Number::from_i128(value).map(Value::Number).ok_or_else(|| E::custom("integer out of range"))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Value, E> {
        Number::from_u128(value).map(Value::Number).ok_or_else(|| E::custom("integer out of range"))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let depth = self.child_depth()?;
        let mut items = Vec::new();
        let start = self.state.path.len();
        loop {
            let _ = write!(self.state.path, "[{}]", items.len());
            let next = access.next_element_seed(TreeSeed { state: self.state, depth })?;
            self.state.path.truncate(start);
            match next {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let depth = self.child_depth()?;
        let mut fields = Map::new();
        let start = self.state.path.len();
        while let Some(name) = access.next_key::<String>()? {
            if start > 0 {
                self.state.path.push('.');
            }
            self.state.path.push_str(&name);
            if fields.contains_key(&name) && self.state.duplicate_fields.len() < MAX_FINDINGS {
                self.state.duplicate_fields.push(self.state.path.clone());
            }
            let value = access.next_value_seed(TreeSeed { state: self.state, depth })?;
            self.state.path.truncate(start);
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MAX: usize = 1 << 20;

    #[test]
    fn numbers_keep_their_kind() {
        let body = br#"{"i":1,"n":-5,"f":1.0,"e":1e3,"h":1.5,"big":9007199254740993,"huge":18446744073709551615,"over":1e19}"#;
        let mut value = decode_json(body, MAX).unwrap().value;
        assert!(value["f"].is_f64() && value["e"].is_f64());
        whole_numbers_to_integers(&mut value);
        assert_eq!(value["i"].as_i64(), Some(1));
        assert_eq!(value["n"].as_i64(), Some(-5));
        assert_eq!((value["f"].as_i64(), value["e"].as_i64()), (Some(1), Some(1000)), "whole numbers");
        assert!(value["h"].is_f64() && value["over"].is_f64());
        assert_eq!(value["big"].to_string(), "9007199254740993");
        assert_eq!(value["huge"].as_u64(), Some(u64::MAX));
    }

    #[test]
    fn duplicates_are_found_with_their_path() {
        let body =
            br#"{"metadata":{"name":"a","name":"b"},"spec":{"ports":[{"x":1},{"x":1,"x":2}]},"spec":{}}"#;
        let decoded = decode_json(body, MAX).unwrap();
        assert_eq!(decoded.duplicate_fields, ["metadata.name", "spec.ports[1].x", "spec"]);
        assert_eq!(decoded.value, json!({"metadata": {"name": "b"}, "spec": {}}));
        let yaml = b"metadata:\n  name: a\n  name: b\nspec:\n  ports:\n  - x: 1\n    x: 2\n";
        let decoded = decode_yaml(yaml, MAX).unwrap();
        assert_eq!(decoded.duplicate_fields, ["metadata.name", "spec.ports[0].x"]);
        assert_eq!(decoded.value["metadata"]["name"], "b");
    }

    #[test]
    fn yaml_scalars_are_those_of_kubernetes() {
        let yaml = b"a: 1\nb: 1.5\nc: yes\nd: off\ne: 010\nf: ~\ng: 'yes'\nh: 2026-11-21\ni: 0x1F\nj: |\n  text\n1: int key\n\
            k: {x: &anchor [1, 2], y: *anchor}\n";
        assert_eq!(
            decode_yaml(yaml, MAX).unwrap().value,
            json!({
                "a": 1, "b": 1.5, "c": true, "d": false, "e": 8, "f": null, "g": "yes", "h": "2026-11-21", "i": 31,
                "j": "text\n", "1": "int key", "k": {"x": [1, 2], "y": [1, 2]},
            })
        );
    }

    #[test]
    fn a_yaml_body_is_one_document_whatever_separators_are_around_it() {
        let decode = |text: &str| decode_yaml(text.as_bytes(), 1 << 20).map(|decoded| decoded.value);
        for text in ["a: 1\n---\n", "---\na: 1\n---", "a: 1\n...\n", "a: 1\n---\n\n---\n"] {
            assert_eq!(decode(text), Ok(json!({"a": 1})), "{text:?}");
        }
        assert_eq!(decode("a: |+\n  x\n\n---\n"), Ok(json!({"a": "x\n\n"})));
        assert_eq!(decode("a: |\n  ---\n"), Ok(json!({"a": "---\n"})));
        let two = decode("a: 1\n---\nb: 2\n").unwrap_err();
        assert_eq!(two.to_string(), "yaml parse error: the body has more than one document");
    }

    #[test]
    fn json_is_valid_yaml() {
        let body = br#"{"a": [1, 2.5, "x", null, true], "b": {"c": "d"}}"#;
        assert_eq!(decode_yaml(body, MAX).unwrap().value, decode_json(body, MAX).unwrap().value);
        assert!(looks_like_json(b" \n{\"a\":1}") && !looks_like_json(b"a: 1"));
    }

    #[test]
    fn syntax_errors_have_a_position() {
        let error = decode_json(b"{\"a\":\n  b}", MAX).unwrap_err();
        let DecodeError::Json { line, message, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*line, message.as_str()), (2, "expected value"));
        for body in [&b""[..], b"{", b"{\"a\":1}x", b"{\"a\":NaN}", b"\xff"] {
            assert!(matches!(decode_json(body, MAX), Err(DecodeError::Json { .. })), "{body:?}");
        }
        for body in [&b"a: [1"[..], b"a: .nan", b"\xff", b"a: 1\n---\nb: 2"] {
            assert!(decode_yaml(body, MAX).is_err(), "{body:?}");
        }
    }

    #[test]
    fn errors_do_not_quote_the_body() {
        let error = decode_yaml(b"password: hunter2\nx: [", MAX).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn size_and_depth_are_bounded() {
        assert_eq!(decode_json(b"{\"a\": 1}", 7), Err(DecodeError::TooLarge { limit: 7 }));
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert_eq!(depth_of(&decode_json(&nested(MAX_DEPTH), MAX).unwrap().value), MAX_DEPTH);
        for depth in [MAX_DEPTH + 1, 100_000] {
            let too_deep = nested(depth);
            assert!(matches!(decode_json(&too_deep, MAX), Err(DecodeError::TooComplex { .. })), "{depth}");
            let error = decode_yaml(&too_deep, MAX);
            assert!(matches!(error, Err(DecodeError::TooComplex { .. })), "{depth}: {error:?}");
        }
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let previous = format!("*a{}", level - 1);
            let list = vec![previous; 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{list}]\n"));
        }
        let error = decode_yaml(bomb.as_bytes(), MAX);
        assert!(matches!(error, Err(DecodeError::TooComplex { .. })), "{error:?}");
    }

    #[test]
    fn strict_errors_have_their_text() {
        let duplicates = ["metadata.name".to_owned()];
        let unknown = ["bogus".to_owned()];
        assert_eq!(
            strict_error(&duplicates, &unknown).as_deref(),
            Some("strict decoding error: duplicate field \"metadata.name\", unknown field \"bogus\"")
        );
        assert_eq!(strict_error(&[], &[]), None);
    }
}
