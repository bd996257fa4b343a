//! Values of number, string and byte literals.

/// The reason why a literal has no value, in the words of cel-go.
pub(super) type LiteralError = &'static str;

const BROKEN: LiteralError = "unable to unescape string";
const BROKEN_OCTAL: LiteralError = "unable to unescape octal sequence in string";
const NO_CODE_POINT: LiteralError = "invalid unicode code point";

/// An integer with its sign.
pub(super) fn int(text: &str, is_negative: bool) -> Option<i64> {
    let sign = if is_negative { "-" } else { "" };
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(&format!("{sign}{digits}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

/// An unsigned integer with its suffix.
pub(super) fn uint(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(['u', 'U']);
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A number with a point or exponent. Numbers beyond the range are errors.
pub(super) fn double(text: &str, is_negative: bool) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(if is_negative { -value } else { value })
}

/// The text between the quotes, and whether it is raw.
fn content(text: &str) -> (&str, bool) {
    let is_raw = text.starts_with(['r', 'R']);
    let text = text.trim_start_matches(['r', 'R']);
    for quotes in ["\"\"\"", "'''"] {
        if text.len() >= 6
            && let Some(inner) = text.strip_prefix(quotes).and_then(|rest| rest.strip_suffix(quotes))
        {
            return (inner, is_raw);
        }
    }
    (text.get(1..text.len().saturating_sub(1)).unwrap_or(""), is_raw)
}

/// A string literal.
pub(super) fn string(text: &str) -> Result<String, LiteralError> {
    let (content, is_raw) = content(text);
    if is_raw || !content.contains('\\') {
        return Ok(content.to_owned());
    }
    let mut output = String::with_capacity(content.len());
    let mut rest = content;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        if character != '\\' {
            output.push(character);
            continue;
        }
        let (value, length) = escape(rest, false)?;
        output.push(char::from_u32(value).ok_or(NO_CODE_POINT)?);
        rest = &rest[length..];
    }
    Ok(output)
}

/// A byte literal with its prefix.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, LiteralError> {
    let (content, is_raw) = content(text.get(1..).unwrap_or(""));
    if is_raw || !content.contains('\\') {
        return Ok(content.as_bytes().to_vec());
    }
    let mut output = Vec::with_capacity(content.len());
    let mut rest = content;
    while let Some(character) = rest.chars().next() {
        let length = character.len_utf8();
        if character != '\\' {
            output.extend_from_slice(&rest.as_bytes()[..length]);
            rest = &rest[length..];
            continue;
        }
        let (value, escaped) = escape(&rest[1..], true)?;
        output.push(u8::try_from(value).map_err(|_| BROKEN)?);
        rest = &rest[1 + escaped..];
    }
    Ok(output)
}

/// The value of an escape sequence behind its backslash, and its length.
fn escape(rest: &str, is_bytes: bool) -> Result<(u32, usize), LiteralError> {
    let bytes = rest.as_bytes();
    let simple = |character: char| Ok((u32::from(character), 1));
    let hexadecimal = |digits: usize| {
        let value = rest.get(1..=digits).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value = value.and_then(|text| u32::from_str_radix(text, 16).ok()).ok_or(BROKEN)?;
        Ok((value, 1 + digits))
    };
    match bytes.first() {
        Some(b'a') => simple('\u{07}'),
        Some(b'b') => simple('\u{08}'),
        Some(b'f') => simple('\u{0C}'),
        Some(b'n') => simple('\n'),
        Some(b'r') => simple('\r'),
        Some(b't') => simple('\t'),
        Some(b'v') => simple('\u{0B}'),
        Some(character @ (b'\\' | b'\'' | b'"' | b'`' | b'?')) => simple(char::from(*character)),
        Some(b'x' | b'X') => hexadecimal(2),
        Some(b'u') if !is_bytes => hexadecimal(4),
        Some(b'U') if !is_bytes => hexadecimal(8),
        Some(b'0'..=b'3') => {
            let digits = rest.get(..3).filter(|text| text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)));
            let value = digits.and_then(|text| u32::from_str_radix(text, 8).ok()).ok_or(BROKEN_OCTAL)?;
            Ok((value, 3))
        }
        _ => Err(BROKEN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_have_values() {
        let strings = [
            (r#""a\n\x41\u00e9\U0001F600\101""#, Ok("a\nAé😀A")),
            (r#"r'a\n'"#, Ok(r"a\n")),
            ("'''a'b\n'''", Ok("a'b\n")),
            (r#"'\?\`'"#, Ok("?`")),
            (r#"'\ud800'"#, Err(NO_CODE_POINT)),
            (r#"'\q'"#, Err(BROKEN)),
            (r#"'\18'"#, Err(BROKEN_OCTAL)),
        ];
        for (text, expected) in strings {
            assert_eq!(string(text).as_deref(), expected.as_deref(), "{text}");
        }
        assert_eq!(bytes(r#"b'\xff\377é'"#).unwrap(), [0xff, 0xff, 0xc3, 0xa9]);
        assert!(bytes(r#"b'\u0041'"#).is_err());
        assert_eq!(int("9223372036854775808", true), Some(i64::MIN));
        assert_eq!(int("9223372036854775808", false), None);
        assert_eq!(int("0xff", true), Some(-255));
        assert_eq!(uint("0xFFu"), Some(255));
        assert_eq!(double("1e400", false), None);
    }
}
