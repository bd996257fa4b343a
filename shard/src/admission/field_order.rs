//! JSON in the order of the fields of kcp's types, for values that messages quote.

use serde_json::Value;

/// Maximum size of a quoted value.
const MAX_BYTES: usize = 8 << 10;

/// The value as Go's encoder of JSON writes it: listed fields in the order of the list, then the others by name. `verbatim`
/// is a field whose value has no type, so that its own fields are ordered by name.
pub(super) fn json_in_order(value: &Value, order: &[&str], verbatim: &str) -> String {
    let mut text = String::new();
    write(value, order, verbatim, &mut text);
    if text.len() > MAX_BYTES {
        let end = (0..=MAX_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn write(value: &Value, order: &[&str], verbatim: &str, text: &mut String) {
    if text.len() > MAX_BYTES {
        return;
    }
    match value {
        Value::Object(fields) => {
            let place = |name: &str| order.iter().position(|known| *known == name).unwrap_or(order.len());
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| place(name));
            text.push('{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                let order = if name == verbatim { &[] } else { order };
                write(value, order, verbatim, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(item, order, verbatim, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn listed_fields_come_first() {
        let value =
            json!({"a": 1, "b": [{"z": "<", "y": 2, "b": {}}], "schema": {"b": 1, "a": 2}, "y": null});
        let text = json_in_order(&value, &["y", "b"], "schema");
        let expected = r#"{"y":null,"b":[{"y":2,"b":{},"z":"\u003c"}],"a":1,"schema":{"a":2,"b":1}}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn a_large_value_is_cut() {
        let text = json_in_order(&json!(vec!["ä".repeat(100); 1_000]), &[], "");
        assert!(text.len() <= MAX_BYTES + 4 && text.ends_with('…'), "{}", text.len());
    }
}
