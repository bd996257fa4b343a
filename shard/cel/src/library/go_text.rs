//! Texts in the form of Go.

/// A text as a literal of Go, which escapes all characters that cannot be seen.
pub(crate) fn quoted_for_go(text: &str) -> String {
    quoted(text, |output, character| match character {
        ' '..='~' => output.push(character),
        other if other.is_ascii() => output.push_str(&format!("\\x{:02x}", u32::from(other))),
        other if other.escape_debug().next() != Some('\\') => output.push(other),
        other if u32::from(other) < 0x1_0000 => output.push_str(&format!("\\u{:04x}", u32::from(other))),
        other => output.push_str(&format!("\\U{:08x}", u32::from(other))),
    })
}

/// A text in quotation marks, with the short escapes of Go, which CEL has, too. `push` appends every other character.
pub(crate) fn quoted(text: &str, push: impl Fn(&mut String, char)) -> String {
    let mut output = String::with_capacity(text.len() + 2);
    output.push('"');
    for character in text.chars() {
        match character {
            '\u{07}' => output.push_str("\\a"),
            '\u{08}' => output.push_str("\\b"),
            '\u{0C}' => output.push_str("\\f"),
            '\n' => output.push_str("\\n"),
            '\r' => output.push_str("\\r"),
            '\t' => output.push_str("\\t"),
            '\u{0B}' => output.push_str("\\v"),
            '\\' => output.push_str("\\\\"),
            '"' => output.push_str("\\\""),
            other => push(&mut output, other),
        }
    }
    output.push('"');
    output
}
