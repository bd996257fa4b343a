//! The JSON form of field sets, `FieldsV1`.
//!
//! A field of the JSON object is a path element: `f:<field>`, `k:<keys as JSON>`, `v:<value as JSON>`, `i:<index>`. An
//! empty object is a field in the set. A field that has others below it is in the set if its object has a field `.`.

use core::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::PathElement;
use super::order::{escape_html, json_number};
use super::set::{FieldNode, FieldSet};

impl FieldSet {
    /// Appends the set as JSON, byte for byte as Kubernetes writes it. One pass.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        self.write_object(false, out);
    }

    /// The set as JSON.
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        self.write_json(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    fn write_object(&self, is_member: bool, out: &mut Vec<u8>) {
        out.push(b'{');
        if is_member && !self.is_empty() {
            out.extend_from_slice(b"\".\":{}");
        }
        for node in self.nodes() {
            if out.last() != Some(&b'{') {
                out.push(b',');
            }
            write_element(&node.element, out);
            out.push(b':');
            node.children.write_object(node.is_member, out);
        }
        out.push(b'}');
    }
}

fn write_element(element: &PathElement, out: &mut Vec<u8>) {
    match element {
        PathElement::Field(name) => {
            out.extend_from_slice(b"\"f:");
            write_text(name, out);
            out.push(b'"');
        }
        PathElement::Index(index) => out.extend_from_slice(format!("\"i:{index}\"").as_bytes()),
        PathElement::Value(value) => {
            let mut text = String::from("v:");
            write_value(value, &mut text);
            out.push(b'"');
            write_text(&text, out);
            out.push(b'"');
        }
        PathElement::Key(keys) => {
            let mut text = String::from("k:{");
            for (index, (name, value)) in keys.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(&**name).to_string());
                text.push(':');
                write_value(value, &mut text);
            }
            text.push('}');
            out.push(b'"');
            write_text(&text, out);
            out.push(b'"');
        }
    }
}

/// The content of a JSON string.
fn write_text(text: &str, out: &mut Vec<u8>) {
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let quoted = Value::from(text).to_string();
    out.extend_from_slice(quoted.as_bytes().get(1..quoted.len() - 1).unwrap_or_default());
}

/// A value as JSON, in the notation of Go: characters of HTML are escaped.
fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) => out.push_str(&json_number(number)),
        Value::String(text) => out.push_str(&escape_html(&Value::from(&**text).to_string())),
        other => out.push_str(&other.to_string()),
    }
}

impl<'de> Deserialize<'de> for FieldSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(deserializer.deserialize_any(ParsedVisitor)?.children)
    }
}

/// A parsed object: its fields, and whether it stands for a field in the set.
struct Parsed {
    is_member: bool,
    children: FieldSet,
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ParsedVisitor)
    }
}

struct ParsedVisitor;

impl<'de> Visitor<'de> for ParsedVisitor {
    type Value = Parsed;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of field paths")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Parsed, E> {
        Ok(Parsed { is_member: true, children: FieldSet::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let (mut is_member, mut nodes) = (false, Vec::new());
        while let Some(text) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if text == "." {
                map.next_value::<IgnoredAny>()?;
                is_member = true;
                continue;
            }
            match PathElement::parse(&text).map_err(A::Error::custom)? {
                Some(element) => {
                    let below: Parsed = map.next_value()?;
                    nodes.push(FieldNode { element, is_member: below.is_member, children: below.children });
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let children: FieldSet = nodes.into_iter().collect();
        Ok(Parsed { is_member: is_member || children.is_empty(), children })
    }
}
