//! JSON as Go's encoder prints it: floats in its form, and characters of HTML as escapes.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// One line of JSON, with a line break at its end.
pub(crate) fn to_json_line(value: &impl Serialize) -> Result<String, String> {
    let mut bytes = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, GoFormatter))
        .map_err(|error| error.to_string())?;
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if value == 0.0 || (1e-6..1e21).contains(&size) {
            return write!(writer, "{value}");
        }
        let text = format!("{value:e}");
        let sign = if text.contains("e-") { "" } else { "+" };
        writer.write_all(text.replace('e', &format!("e{sign}")).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let is_escaped = |c: char| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
        let mut rest = fragment;
        while let Some(at) = rest.find(is_escaped) {
            let (before, from) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            let mut characters = from.chars();
            if let Some(character) = characters.next() {
                write!(writer, "\\u{:04x}", u32::from(character))?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_and_text_have_the_form_of_go() {
        let value = json!([0.5, 1e-7, 1e25, 1e20, 0.0, 7, "a < b && c > d \u{2028} \"é\""]);
        let expected = "[0.5,1e-7,1e+25,100000000000000000000,0,7,\
                        \"a \\u003c b \\u0026\\u0026 c \\u003e d \\u2028 \\\"é\\\"\"]\n";
        assert_eq!(to_json_line(&value).unwrap(), expected);
    }
}
