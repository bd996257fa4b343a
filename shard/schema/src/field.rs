//! Field errors: the path of a field, the kind of the error and its text.
//!
//! Texts follow `k8s.io/apimachinery/pkg/util/validation/field`, because clients and end-to-end tests match them.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize as _;
use serde_json::Value;

/// Maximum number of findings that are collected about one object. Without it, a request body of a few megabytes could
/// cause a response of hundreds of megabytes.
pub(crate) const MAX_FINDINGS: usize = 1000;

/// A path to a field as Kubernetes prints it: `spec.containers[0].name`, `metadata.annotations[a/b]`.
///
/// The root prints as `<nil>`, as in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(String);

impl FieldPath {
    /// The object itself.
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// A path that is already in Kubernetes' notation, for example `metadata.name`.
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// The field `name` below this path.
    pub fn child(&self, name: &str) -> Self {
        let mut path = String::with_capacity(self.0.len() + name.len() + 1);
        path.push_str(&self.0);
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        Self(path)
    }

    /// The element `index` of the list at this path.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The entry `key` of the map at this path.
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// The path as text; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the object itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

impl From<&str> for FieldPath {
    fn from(path: &str) -> Self {
        Self(path.to_owned())
    }
}

/// The kind of a field error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// A referenced object does not exist.
    NotFound,
    /// The field is missing.
    Required,
    /// A value that must be unique appears twice.
    Duplicate,
    /// The value breaks a rule.
    Invalid,
    /// The value is not in an enumeration.
    NotSupported,
    /// The field may not be set, or not to this value.
    Forbidden,
    /// A string is too long.
    TooLong,
    /// A list or map has too many entries.
    TooMany,
    /// The value has the wrong JSON type or format.
    TypeInvalid,
    /// The check itself failed.
    Internal,
}

impl FieldErrorKind {
    /// The `reason` of a cause in a `Status`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// A violated rule. Always a client error; a retry with the same object does not help.
///
/// `Display` is `path: message`, as in the message of a `Status`. [`FieldError::message`] alone is the message of its
/// cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    /// The kind of the error.
    pub kind: FieldErrorKind,
    /// The path of the field.
    pub path: FieldPath,
    /// The text without the path: `Invalid value: "abc": must be …`.
    pub message: String,
}

/// Maximum number of enumeration values that an error lists.
const MAX_LISTED_VALUES: usize = 100;

/// Maximum number of bytes of a value, and of a detail, that an error quotes.
const MAX_QUOTED_BYTES: usize = 8 << 10;

impl FieldError {
    /// `Required value[: detail]`.
    pub fn required(path: FieldPath, detail: &str) -> Self {
        Self::without_value(FieldErrorKind::Required, path, detail)
    }

    /// `Forbidden: detail`.
    pub fn forbidden(path: FieldPath, detail: &str) -> Self {
        Self::without_value(FieldErrorKind::Forbidden, path, detail)
    }

    /// `Invalid value: <value>: detail`.
    pub fn invalid(path: FieldPath, value: &Value, detail: &str) -> Self {
        Self::with_value(FieldErrorKind::Invalid, path, &go_value(value), detail)
    }

    /// [`FieldError::invalid`] for a string.
    pub fn invalid_str(path: FieldPath, value: &str, detail: &str) -> Self {
        Self::with_value(FieldErrorKind::Invalid, path, &go_quote(value), detail)
    }

    /// `Invalid value: detail`, for a value that would be too large to quote.
    pub(crate) fn invalid_without_value(path: FieldPath, detail: &str) -> Self {
        Self::without_value(FieldErrorKind::Invalid, path, detail)
    }

    /// [`FieldError::invalid`] for a value that is in the form of the message already.
    pub fn invalid_quoted(path: FieldPath, value: &str, detail: &str) -> Self {
        Self::with_value(FieldErrorKind::Invalid, path, value, detail)
    }

    /// `Duplicate value`, for a value that would be too large to quote.
    pub(crate) fn duplicate_without_value(path: FieldPath) -> Self {
        Self::without_value(FieldErrorKind::Duplicate, path, "")
    }

    /// `Invalid value: <value>: detail` with reason `FieldValueTypeInvalid`; `value` is a string.
    pub fn type_invalid_str(path: FieldPath, value: &str, detail: &str) -> Self {
        Self::with_value(FieldErrorKind::TypeInvalid, path, &go_quote(value), detail)
    }

    /// `Duplicate value: <value>`.
    pub fn duplicate(path: FieldPath, value: &Value) -> Self {
        Self::with_value(FieldErrorKind::Duplicate, path, &go_value(value), "")
    }

    /// `Not found: <value>`.
    pub fn not_found(path: FieldPath, value: &Value) -> Self {
        Self::with_value(FieldErrorKind::NotFound, path, &go_value(value), "")
    }

    /// `Unsupported value: <value>: supported values: "a", "b"`.
    pub fn not_supported<S: AsRef<str>>(path: FieldPath, value: &Value, supported: &[S]) -> Self {
        let listed = &supported[..supported.len().min(MAX_LISTED_VALUES)];
        let mut quoted: Vec<String> = listed.iter().map(|value| go_quote(value.as_ref())).collect();
        if listed.len() < supported.len() {
            quoted.push(format!("and {} more", supported.len() - listed.len()));
        }
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::with_value(FieldErrorKind::NotSupported, path, &go_value(value), &detail)
    }

    /// An invalid number in the notation of Go.
    pub(crate) fn invalid_number(path: FieldPath, number: &str, detail: &str) -> Self {
        Self::with_value(FieldErrorKind::Invalid, path, number, detail)
    }

    /// `Too long: may not be more than <max> bytes`.
    pub fn too_long(path: FieldPath, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {max} {unit}");
        Self::without_value(FieldErrorKind::TooLong, path, &detail)
    }

    /// `Too many: <actual>: must have at most <max> items`.
    pub fn too_many(path: FieldPath, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {items}");
        Self::with_value(FieldErrorKind::TooMany, path, &actual.to_string(), &detail)
    }

    /// `Internal error: detail`.
    pub fn internal(path: FieldPath, detail: &str) -> Self {
        Self::without_value(FieldErrorKind::Internal, path, detail)
    }

    /// The `reason` of a cause in a `Status`.
    pub const fn reason(&self) -> &'static str {
        self.kind.reason()
    }

    fn without_value(kind: FieldErrorKind, path: FieldPath, detail: &str) -> Self {
        let mut message = kind.text().to_owned();
        append_detail(&mut message, detail);
        Self { kind, path, message }
    }

    fn with_value(kind: FieldErrorKind, path: FieldPath, value: &str, detail: &str) -> Self {
        let mut message = format!("{}: {value}", kind.text());
        append_detail(&mut message, detail);
        Self { kind, path, message }
    }
}

fn append_detail(message: &mut String, detail: &str) {
    if !detail.is_empty() {
        message.push_str(": ");
        match detail.char_indices().find(|(offset, _)| *offset >= MAX_QUOTED_BYTES) {
            Some((end, _)) => {
                message.push_str(&detail[..end]);
                message.push('…');
            }
            None => message.push_str(detail),
        }
    }
}

/// The text after `… is invalid: ` in a `Status`: one error as it is, several as `[a, b]` without duplicates.
pub fn aggregate_message(errors: &[FieldError]) -> String {
    let mut seen = HashSet::with_capacity(errors.len());
    let distinct: Vec<String> =
        errors.iter().map(ToString::to_string).filter(|text| seen.insert(text.clone())).collect();
    match distinct.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// A value as a Go field error prints it: strings quoted, numbers plain, lists and maps as JSON of Go's encoder.
pub(crate) fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_f64() {
            // Go holds larger integers as floats.
            Some(float) if !number.is_i64() => go_float(float),
            _ => number.to_string(),
        },
        Value::String(text) => go_quote(text),
        Value::Array(_) | Value::Object(_) => go_json(value),
    }
}

/// JSON as Go's encoder writes it (`<`, `>` and `&` escaped), cut after [`MAX_QUOTED_BYTES`] bytes.
pub(crate) fn go_json(value: &Value) -> String {
    let mut writer = BoundedWriter { bytes: Vec::new() };
    let mut serializer = serde_json::Serializer::with_formatter(&mut writer, GoFormatter);
    let complete = value.serialize(&mut serializer).is_ok();
    // The cut may be within a character.
    let mut text = String::from_utf8_lossy(&writer.bytes).into_owned();
    if text.contains(['<', '>', '&']) {
        text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    }
    if !complete {
        text.push('…');
    }
    text
}

/// A string as Go's encoder of JSON writes it, at most [`MAX_QUOTED_BYTES`] bytes.
pub(crate) fn go_json_text(text: &str) -> String {
    go_json(&Value::from(text))
}

/// Writes floats as Go does: whole ones without a fraction.
struct GoFormatter;

impl serde_json::ser::Formatter for GoFormatter {
    fn write_u64<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, value: u64) -> std::io::Result<()> {
        // Go holds larger integers as floats.
        if i64::try_from(value).is_ok() {
            write!(writer, "{value}")
        } else {
            self.write_f64(writer, value as f64)
        }
    }

    fn write_f64<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, value: f64) -> std::io::Result<()> {
        let magnitude = value.abs();
        if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
            return write!(writer, "{value}");
        }
        let text = format!("{value:e}");
        let is_large = magnitude >= 1.0;
        writer.write_all(if is_large { text.replace('e', "e+") } else { text }.as_bytes())
    }
}

/// A writer that fails after [`MAX_QUOTED_BYTES`], so that a large value costs no more than a small one.
struct BoundedWriter {
    bytes: Vec<u8>,
}

impl std::io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let remaining = MAX_QUOTED_BYTES - self.bytes.len();
        if remaining == 0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        let length = bytes.len().min(remaining);
        self.bytes.extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether Go prints a character as it is: no control, format or space character.
fn is_printable(character: char) -> bool {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{C}\p{Z}]").ok());
    let mut buffer = [0; 4];
    !PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(character.encode_utf8(&mut buffer)))
}

/// Go's `%q`, cut after [`MAX_QUOTED_BYTES`] bytes.
pub(crate) fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().min(MAX_QUOTED_BYTES) + 2);
    quoted.push('"');
    for character in text.chars() {
        if quoted.len() >= MAX_QUOTED_BYTES {
            quoted.push('…');
            break;
        }
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                let _ = write!(quoted, "\\x{:02x}", control as u32);
            }
            other if other.is_ascii() || is_printable(other) => quoted.push(other),
            other if (other as u32) < 0x1_0000 => {
                let _ = write!(quoted, "\\u{:04x}", other as u32);
            }
            other => {
                let _ = write!(quoted, "\\U{:08x}", other as u32);
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Go's `%v` of a float64: the shortest form, with an exponent below 1e-4 and from 1e21 on.
pub(crate) fn go_float(value: f64) -> String {
    let magnitude = value.abs();
    let text = format!("{value:e}");
    let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()).unwrap_or(0);
    if magnitude != 0.0 && !(-4..6).contains(&exponent) {
        return match text.split_once('e') {
            Some((mantissa, exponent)) => {
                let (sign, digits) = match exponent.strip_prefix('-') {
                    Some(digits) => ('-', digits),
                    None => ('+', exponent),
                };
                format!("{mantissa}e{sign}{digits:0>2}")
            }
            None => text,
        };
    }
    value.to_string()
}

/// The path of the current value in a recursive function, as a list on the stack. It is formatted only when an error
/// needs it.
#[derive(Clone, Copy)]
pub(crate) enum Location<'a> {
    /// The start of the recursion, at a path given by the caller.
    Base(&'a FieldPath),
    /// A field.
    Child(&'a Location<'a>, &'a str),
    /// A list element.
    Index(&'a Location<'a>, usize),
    /// An entry of a map.
    Key(&'a Location<'a>, &'a str),
}

impl Location<'_> {
    /// The whole path.
    pub(crate) fn path(&self) -> FieldPath {
        let mut text = String::new();
        self.write(&mut text);
        FieldPath(text)
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Base(base) => text.push_str(base.as_str()),
            Self::Child(parent, name) => {
                parent.write(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Self::Index(parent, index) => {
                parent.write(text);
                let _ = write!(text, "[{index}]");
            }
            Self::Key(parent, key) => {
                parent.write(text);
                let _ = write!(text, "[{key}]");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_print_as_in_kubernetes() {
        let spec = FieldPath::root().child("spec");
        assert_eq!(spec.child("containers").index(0).child("name").to_string(), "spec.containers[0].name");
        let annotations = FieldPath::new("metadata.annotations");
        assert_eq!(annotations.key("a/b").to_string(), "metadata.annotations[a/b]");
        assert_eq!(FieldPath::root().to_string(), "<nil>");
    }

    #[test]
    fn locations_print_as_paths() {
        let root = FieldPath::root();
        let start = Location::Base(&root);
        let spec = Location::Child(&start, "spec");
        let list = Location::Child(&spec, "list");
        assert_eq!(Location::Index(&list, 3).path().as_str(), "spec.list[3]");
    }

    #[test]
    fn messages_are_those_of_kubernetes() {
        let at = || FieldPath::new("spec.x");
        let table = [
            (FieldError::required(at(), ""), "spec.x: Required value", "FieldValueRequired"),
            (FieldError::required(at(), "why"), "spec.x: Required value: why", "FieldValueRequired"),
            (
                FieldError::invalid_str(at(), "a\"b\n", "must be c"),
                r#"spec.x: Invalid value: "a\"b\n": must be c"#,
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid(at(), &json!(-1), "no"),
                "spec.x: Invalid value: -1: no",
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid(at(), &json!(1e30), "no"),
                "spec.x: Invalid value: 1e+30: no",
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid(at(), &json!(2.0), "no"),
                "spec.x: Invalid value: 2: no",
                "FieldValueInvalid",
            ),
            (
                FieldError::not_supported(at(), &json!("pink"), &["red", "blue"]),
                r#"spec.x: Unsupported value: "pink": supported values: "red", "blue""#,
                "FieldValueNotSupported",
            ),
            (
                FieldError::not_supported(at(), &json!(["Some"]), &["All"]),
                r#"spec.x: Unsupported value: ["Some"]: supported values: "All""#,
                "FieldValueNotSupported",
            ),
            (
                FieldError::duplicate(at(), &json!({"name": "a<b"})),
                r#"spec.x: Duplicate value: {"name":"a\u003cb"}"#,
                "FieldValueDuplicate",
            ),
            (
                FieldError::too_long(at(), 8),
                "spec.x: Too long: may not be more than 8 bytes",
                "FieldValueTooLong",
            ),
            (
                FieldError::too_many(at(), 5, 4),
                "spec.x: Too many: 5: must have at most 4 items",
                "FieldValueTooMany",
            ),
            (FieldError::forbidden(at(), "no"), "spec.x: Forbidden: no", "FieldValueForbidden"),
            (
                FieldError::type_invalid_str(at(), "array", "bad type"),
                r#"spec.x: Invalid value: "array": bad type"#,
                "FieldValueTypeInvalid",
            ),
        ];
        for (error, text, reason) in table {
            assert_eq!(error.to_string(), text);
            assert_eq!(error.reason(), reason);
        }
    }

    #[test]
    fn large_values_are_quoted_partly() {
        let long = "ä".repeat(100_000);
        let list = Value::Array(vec![json!(long), json!(1)]);
        for error in [
            FieldError::invalid_str(FieldPath::new("x"), &long, "detail"),
            FieldError::invalid(FieldPath::new("x"), &list, "detail"),
        ] {
            assert!(error.message.len() < 10_000 && error.message.ends_with(": detail"));
        }
        let error = FieldError::invalid_str(FieldPath::new("x"), "", &long);
        assert!(error.message.len() < 10_000 && error.message.ends_with('…'));
        let many: Vec<String> = (0..1000).map(|index| index.to_string()).collect();
        let error = FieldError::not_supported(FieldPath::new("x"), &json!("y"), &many);
        assert!(error.message.ends_with("\"99\", and 900 more"), "{}", error.message);
    }

    #[test]
    fn several_errors_are_joined_without_duplicates() {
        let a = FieldError::required(FieldPath::new("a"), "");
        let b = FieldError::required(FieldPath::new("b"), "");
        assert_eq!(aggregate_message(std::slice::from_ref(&a)), "a: Required value");
        assert_eq!(aggregate_message(&[a.clone(), b, a]), "[a: Required value, b: Required value]");
    }
}
