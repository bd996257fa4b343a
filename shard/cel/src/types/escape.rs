//! Names of properties as identifiers of expressions, by the rules of Kubernetes.

/// Words that are no identifiers.
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const SEQUENCES: [(&str, &str); 4] = [("underscores", "__"), ("dot", "."), ("dash", "-"), ("slash", "/")];

/// The identifier of a property, or `None` if expressions cannot name it.
///
/// `__` becomes `__underscores__`, `.`, `-` and `/` become `__dot__`, `__dash__` and `__slash__`, and reserved words are
/// enclosed in `__`. Names that begin with a digit or contain other characters have no identifier.
#[must_use]
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut output = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("__") {
            output.push_str("__underscores__");
            rest = behind;
            continue;
        }
        match character {
            '.' => output.push_str("__dot__"),
            '-' => output.push_str("__dash__"),
            '/' => output.push_str("__slash__"),
            '_' => output.push('_'),
            _ if character.is_ascii_alphanumeric() => output.push(character),
            _ => return None,
        }
        rest = &rest[character.len_utf8()..];
    }
    Some(output)
}

/// The property that an identifier names; the inverse of [`escape`].
#[must_use]
pub fn unescape(identifier: &str) -> Option<String> {
    if identifier.is_empty() || identifier.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let mut output = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(character) = rest.chars().next() {
        let Some(content) = enclosed(rest) else {
            output.push(character);
            rest = &rest[character.len_utf8()..];
            continue;
        };
        match SEQUENCES.iter().find(|(sequence, _)| *sequence == content) {
            Some((_, replacement)) => output.push_str(replacement),
            // A reserved word is the whole name.
            None if RESERVED.contains(&content) && content.len() + 4 == identifier.len() => {
                output.push_str(content);
            }
            None => return None,
        }
        rest = &rest[content.len() + 4..];
    }
    Some(output)
}

/// The text between `__` and `__` at the beginning of a text, if it contains no underscore.
fn enclosed(text: &str) -> Option<&str> {
    let content = text.strip_prefix("__")?;
    let length = content.find('_').filter(|length| *length > 0)?;
    content[length..].starts_with("__").then_some(&content[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_names_are_escaped_and_back() {
        let cases = [
            ("name", Some("name")),
            ("namespace", Some("__namespace__")),
            ("a.b-c/d", Some("a__dot__b__dash__c__slash__d")),
            ("a__b", Some("a__underscores__b")),
            ("a___b", Some("a__underscores___b")),
            ("_", Some("_")),
            ("", None),
            ("9a", None),
            ("a b", None),
            ("é", None),
        ];
        for (name, expected) in cases {
            let escaped = escape(name);
            assert_eq!(escaped.as_deref(), expected, "{name}");
            if let Some(escaped) = escaped {
                assert_eq!(unescape(&escaped).as_deref(), Some(name), "{escaped}");
            }
        }
        assert_eq!(unescape("a__b").as_deref(), Some("a__b"));
        assert_eq!(unescape("__whatever__"), None);
    }
}
