//! `fieldPath` of a rule: a path of properties and map keys below the schema of the rule, such as `.spec['a-b']`.

use serde_json::{Map, Value};

/// The path in the form of error messages (`spec.a-b`), or `None` if the schema has no such field.
pub(super) fn normalize(path: &str, schema: &Map<String, Value>) -> Option<String> {
    let mut normalized = String::new();
    let mut schema = schema;
    let mut tokens = Tokens(path);
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next()?.to_owned(),
            "[" => {
                let quoted = tokens.next()?;
                let name = unescape(quoted.strip_prefix('\'')?.strip_suffix('\'')?)?;
                if tokens.next()? != "]" {
                    return None;
                }
                name
            }
            _ => return None,
        };
        match schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty())
        {
            Some(properties) => {
                schema = properties.get(&name)?.as_object()?;
                if !normalized.is_empty() {
                    normalized.push('.');
                }
                normalized.push_str(&name);
            }
            None => {
                schema = schema.get("additionalProperties")?.as_object()?;
                normalized.push_str(&format!("[{name}]"));
            }
        }
    }
    Some(normalized)
}

/// The parts of a path: `.`, `[`, `]`, quoted texts with their quotes, and the texts between.
struct Tokens<'p>(&'p str);

impl<'p> Iterator for Tokens<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let first = self.0.chars().next()?;
        let length = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let bytes = self.0.as_bytes();
                let end = (1..bytes.len()).find(|index| bytes[*index] == b'\'' && bytes[index - 1] != b'\\');
                end.map_or(self.0.len(), |end| end + 1)
            }
            _ => self.0.find(['.', '[', ']']).unwrap_or(self.0.len()),
        };
        let (token, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(token)
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut output = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            output.push(character);
            continue;
        }
        output.push(match characters.next()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            quote @ ('\'' | '\\') => quote,
            _ => return None,
        });
    }
    Some(output)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_name_fields_of_the_schema() {
        let schema = json!({"properties": {
            "a": {"properties": {"b-c": {"type": "string"}, "it's": {"type": "string"}}},
            "m": {"additionalProperties": {"properties": {"x": {"type": "string"}}}},
            "l": {"type": "array", "items": {"type": "string"}},
        }});
        for (path, expected) in [
            (".a", Some("a")),
            (".a.b-c", Some("a.b-c")),
            (".a['b-c']", Some("a.b-c")),
            ("['a']['it\\'s']", Some("a.it's")),
            (".m['k.1'].x", Some("m[k.1].x")),
            (".m.k", Some("m[k]")),
            ("", Some("")),
            ("a", None),
            (".", None),
            (".a[", None),
            (".a[b-c]", None),
            (".a['b-c'", None),
            (".a['b-c", None),
            (".a['\\q']", None),
            (".nope", None),
            (".l[0]", None),
            (".l['0']", None),
            (" ", None),
        ] {
            assert_eq!(normalize(path, schema.as_object().unwrap()).as_deref(), expected, "{path}");
        }
    }
}
