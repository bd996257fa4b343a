//! The protobuf form of an OpenAPI v2 document, which older Go clients read: the messages of gnostic's `openapi.v2`.
//!
//! A generic encoder writes the few messages that the document consists of. Field numbers are those of the published
//! protocol.

use serde_json::{Map, Value};

/// Encodes a document of [`open_api_v2`](super::open_api_v2).
#[must_use]
pub fn encode_open_api_v2(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    out.message(2, |info| {
        info.text(1, &document["info"]["title"]);
        info.text(2, &document["info"]["version"]);
    });
    out.message(8, |paths| {
        for (path, item) in fields(&document["paths"]) {
            paths.named(2, path, |out| path_item(out, item));
        }
    });
    out.message(9, |definitions| {
        for (name, definition) in fields(&document["definitions"]) {
            definitions.named(1, name, |out| schema(out, definition));
        }
    });
    out.0
}

fn path_item(out: &mut Message, item: &Value) {
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if item[method].is_object() {
            out.message(number, |out| operation(out, &item[method]));
        }
    }
    parameters(out, 9, &item["parameters"]);
}

fn operation(out: &mut Message, operation: &Value) {
    out.texts(1, &operation["tags"]);
    out.text(3, &operation["description"]);
    out.text(5, &operation["operationId"]);
    out.texts(6, &operation["produces"]);
    out.texts(7, &operation["consumes"]);
    parameters(out, 8, &operation["parameters"]);
    out.message(9, |responses| {
        for (code, response) in fields(&operation["responses"]) {
            // The value is a choice between a response and a reference.
            responses.named(1, code, |value| {
                value.message(1, |out| {
                    out.text(1, &response["description"]);
                    if response["schema"].is_object() {
                        out.message(2, |item| item.message(1, |out| schema(out, &response["schema"])));
                    }
                });
            });
        }
    });
    out.texts(10, &operation["schemes"]);
    out.extensions(13, operation);
}

fn parameters(out: &mut Message, number: u32, list: &Value) {
    for parameter in list.as_array().into_iter().flatten() {
        // A choice between a parameter and a reference; a parameter is one of the body or another one.
        out.message(number, |item| {
            item.message(1, |choice| match parameter["in"].as_str() {
                Some("body") => choice.message(1, |out| {
                    out.text(1, &parameter["description"]);
                    out.text(2, &parameter["name"]);
                    out.text(3, &parameter["in"]);
                    out.boolean(4, &parameter["required"]);
                    out.message(5, |out| schema(out, &parameter["schema"]));
                }),
                Some("path") => {
                    choice.message(2, |other| {
                        other.message(4, |out| simple_parameter(out, parameter, [5, 6, 19]))
                    });
                }
                _ => choice
                    .message(2, |other| other.message(3, |out| simple_parameter(out, parameter, [6, 7, 20]))),
            });
        });
    }
}

/// A parameter of the path or the query; the numbers are those of type, format and uniqueItems.
fn simple_parameter(out: &mut Message, parameter: &Value, [kind, format, unique]: [u32; 3]) {
    out.boolean(1, &parameter["required"]);
    out.text(2, &parameter["in"]);
    out.text(3, &parameter["description"]);
    out.text(4, &parameter["name"]);
    out.text(kind, &parameter["type"]);
    out.text(format, &parameter["format"]);
    out.boolean(unique, &parameter["uniqueItems"]);
}

fn schema(out: &mut Message, value: &Value) {
    out.text(1, &value["$ref"]);
    out.text(2, &value["format"]);
    out.text(4, &value["description"]);
    if let Some(default) = value.get("default") {
        out.message(5, |out| any(out, default));
    }
    out.double(7, &value["maximum"]);
    out.boolean(8, &value["exclusiveMaximum"]);
    out.double(9, &value["minimum"]);
    out.boolean(10, &value["exclusiveMinimum"]);
    out.integer(11, &value["maxLength"]);
    out.integer(12, &value["minLength"]);
    out.text(13, &value["pattern"]);
    out.integer(14, &value["maxItems"]);
    out.integer(15, &value["minItems"]);
    out.boolean(16, &value["uniqueItems"]);
    out.texts(19, &value["required"]);
    for allowed in value["enum"].as_array().into_iter().flatten() {
        out.message(20, |out| any(out, allowed));
    }
    match &value["additionalProperties"] {
        Value::Null => {}
        Value::Bool(allowed) => out.message(21, |item| item.number(2, u64::from(*allowed))),
        inner => out.message(21, |item| item.message(1, |out| schema(out, inner))),
    }
    if value["type"].is_string() {
        out.message(22, |item| item.text(1, &value["type"]));
    }
    if value["items"].is_object() {
        out.message(23, |items| items.message(1, |out| schema(out, &value["items"])));
    }
    for part in value["allOf"].as_array().into_iter().flatten() {
        out.message(24, |out| schema(out, part));
    }
    if value["properties"].is_object() {
        out.message(25, |properties| {
            for (name, property) in fields(&value["properties"]) {
                properties.named(1, name, |out| schema(out, property));
            }
        });
    }
    out.extensions(31, value);
}

/// Any value, as YAML: JSON is a part of it.
fn any(out: &mut Message, value: &Value) {
    out.bytes(2, format!("{value}\n").as_bytes());
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// A message in the wire format of protobuf. Default values are omitted.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(&mut self, number: u32, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u32, values: &Value) {
        for text in values.as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn boolean(&mut self, number: u32, value: &Value) {
        if *value == Value::Bool(true) {
            self.number(number, 1);
        }
    }

    fn integer(&mut self, number: u32, value: &Value) {
        if let Some(value) = value.as_i64() {
            self.number(number, value.cast_unsigned());
        }
    }

    fn double(&mut self, number: u32, value: &Value) {
        if let Some(value) = value.as_f64() {
            self.varint(u64::from(number) << 3 | 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn number(&mut self, number: u32, value: u64) {
        self.varint(u64::from(number) << 3);
        self.varint(value);
    }

    fn message(&mut self, number: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(number, &inner.0);
    }

    /// An entry of a map: a name and a value.
    fn named(&mut self, number: u32, name: &str, fill: impl FnOnce(&mut Self)) {
        self.message(number, |entry| {
            entry.bytes(1, name.as_bytes());
            entry.message(2, fill);
        });
    }

    fn extensions(&mut self, number: u32, value: &Value) {
        for (name, extension) in fields(value).filter(|(name, _)| name.starts_with("x-")) {
            self.named(number, name, |out| any(out, extension));
        }
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.varint(u64::from(number) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protobuf::wire_fields;

    fn field(bytes: &[u8], number: u32) -> Vec<Vec<u8>> {
        let found = wire_fields(bytes).into_iter().filter(|(found, _)| *found == number);
        found.map(|(_, bytes)| bytes).collect()
    }

    fn only(bytes: &[u8], path: &[u32]) -> Vec<u8> {
        path.iter().fold(bytes.to_vec(), |bytes, number| match field(&bytes, *number).as_slice() {
            [only] => only.clone(),
            found => panic!("field {number} of {path:?}: {found:?}"),
        })
    }

    #[test]
    fn the_messages_have_the_published_numbers() {
        let document = json!({
            "swagger": "2.0",
            "info": {"title": "T", "version": "V"},
            "paths": {"/a": {"patch": {
                "operationId": "id", "consumes": ["c"], "x-k": {"kind": "K"},
                "parameters": [
                    {"name": "body", "in": "body", "required": true, "schema": {"$ref": "#/definitions/D"}},
                    {"name": "q", "in": "query", "type": "string", "uniqueItems": true},
                ],
                "responses": {"200": {"description": "OK", "schema": {"type": "string"}}},
            }}},
            "definitions": {"D": {"type": "object", "required": ["a"], "enum": ["x"], "maximum": 1.5,
                "properties": {"a": {"type": "array", "items": {"maxLength": 300}}},
                "additionalProperties": {"type": "integer"}}},
        });
        let bytes = encode_open_api_v2(&document);
        assert_eq!(only(&bytes, &[1]), b"2.0");
        assert_eq!(only(&bytes, &[2, 2]), b"V");
        assert_eq!(only(&bytes, &[8, 2, 1]), b"/a");
        let patch = only(&bytes, &[8, 2, 2, 8]);
        assert_eq!((only(&patch, &[5]), only(&patch, &[7])), (b"id".to_vec(), b"c".to_vec()));
        let parameters = field(&patch, 8);
        assert_eq!(only(&parameters[0], &[1, 1, 5, 1]), b"#/definitions/D");
        assert_eq!(only(&parameters[1], &[1, 2, 3, 4]), b"q");
        assert_eq!(only(&parameters[1], &[1, 2, 3, 20]), [1]);
        assert_eq!(only(&patch, &[9, 1, 1]), b"200");
        assert_eq!(only(&patch, &[9, 1, 2, 1, 2, 1, 22, 1]), b"string");
        assert_eq!(
            (only(&patch, &[13, 1]), only(&patch, &[13, 2, 2])),
            (b"x-k".to_vec(), b"{\"kind\":\"K\"}\n".to_vec())
        );
        let definition = only(&bytes, &[9, 1, 2]);
        assert_eq!(only(&definition, &[22, 1]), b"object");
        assert_eq!(
            (only(&definition, &[19]), only(&definition, &[20, 2])),
            (b"a".to_vec(), b"\"x\"\n".to_vec())
        );
        assert_eq!(only(&definition, &[7]), 1.5f64.to_le_bytes());
        assert_eq!(only(&definition, &[25, 1, 1]), b"a");
        assert_eq!(only(&definition, &[25, 1, 2, 23, 1, 11]), 300u64.to_le_bytes()[..2]);
        assert_eq!(only(&definition, &[21, 1, 22, 1]), b"integer");
    }
}
