//! Tokens of CEL.

use super::source::{Issues, Source};

/// The kind of a token. Operators and keywords are their own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Identifier,
    /// An identifier in backquotes.
    Quoted,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    /// An operator, a bracket, or one of `in`, `true`, `false` and `null`.
    Symbol,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind,
    pub(super) text: &'s str,
    pub(super) offset: usize,
}

/// Longest first.
const SYMBOLS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "[", "]", "{", "}", "(", ")", "<", ">", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%", "=",
];

/// Splits a source into tokens; the last one is [`Kind::End`]. Unknown characters are reported and skipped.
pub(super) fn tokens<'s>(source: &Source<'s>, issues: &mut Issues) -> Vec<Token<'s>> {
    let text = source.text();
    let mut tokens = Vec::new();
    let mut offset = 0;
    while let Some(rest) = text.get(offset..).filter(|rest| !rest.is_empty()) {
        let bytes = rest.as_bytes();
        let first = bytes[0];
        if matches!(first, b' ' | b'\t' | b'\r' | b'\n' | 0x0C) {
            offset += 1;
            continue;
        }
        if rest.starts_with("//") {
            offset += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let (kind, length) = match first {
            b'0'..=b'9' => number(bytes),
            b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => (Kind::Float, fraction(bytes)),
            b'`' => match quoted(bytes) {
                Some(length) => (Kind::Quoted, length),
                None => (Kind::End, 0),
            },
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'"' | b'\'' => match text_literal(rest) {
                TextLiteral::Complete(kind, length) => (kind, length),
                TextLiteral::Unterminated(length) => {
                    let shown = &rest[..length];
                    issues.report(
                        source.position(offset),
                        format!("Syntax error: token recognition error at: '{}'", visible(shown)),
                    );
                    offset += length;
                    continue;
                }
                TextLiteral::None => word(rest),
            },
            _ => symbol(rest),
        };
        if length == 0 {
            let character = rest.chars().next().unwrap_or(' ');
            issues.report(
                source.position(offset),
                format!("Syntax error: token recognition error at: '{character}'"),
            );
            offset += character.len_utf8();
            continue;
        }
        tokens.push(Token { kind, text: &rest[..length], offset });
        offset += length;
    }
    tokens.push(Token { kind: Kind::End, text: "<EOF>", offset: text.len() });
    tokens
}

fn visible(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

fn symbol(rest: &str) -> (Kind, usize) {
    let found = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
    // A single `=` is no token, but is in the list so that it cannot be taken for a part of another one.
    (Kind::Symbol, found.filter(|symbol| **symbol != "=").map_or(0, |symbol| symbol.len()))
}

fn word(rest: &str) -> (Kind, usize) {
    let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let kind = match &rest[..length] {
        "in" | "true" | "false" | "null" => Kind::Symbol,
        _ => Kind::Identifier,
    };
    (kind, length)
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The length of an exponent, or 0.
fn exponent(bytes: &[u8]) -> usize {
    if !matches!(bytes.first(), Some(b'e' | b'E')) {
        return 0;
    }
    let sign = usize::from(matches!(bytes.get(1), Some(b'+' | b'-')));
    match digits(bytes.get(1 + sign..).unwrap_or_default()) {
        0 => 0,
        count => 1 + sign + count,
    }
}

/// The length of a number that begins with its point.
fn fraction(bytes: &[u8]) -> usize {
    let point = 1 + digits(bytes.get(1..).unwrap_or_default());
    point + exponent(bytes.get(point..).unwrap_or_default())
}

fn number(bytes: &[u8]) -> (Kind, usize) {
    let unsigned = |length: usize| match bytes.get(length) {
        Some(b'u' | b'U') => (Kind::Uint, length + 1),
        _ => (Kind::Int, length),
    };
    if bytes.starts_with(b"0x") {
        let count = bytes[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if count > 0 {
            return unsigned(2 + count);
        }
    }
    let integer = digits(bytes);
    let behind = bytes.get(integer..).unwrap_or_default();
    if behind.first() == Some(&b'.') && behind.get(1).is_some_and(u8::is_ascii_digit) {
        return (Kind::Float, integer + fraction(behind));
    }
    match exponent(behind) {
        0 => unsigned(integer),
        length => (Kind::Float, integer + length),
    }
}

/// The length of an identifier in backquotes.
fn quoted(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().skip(1).position(|byte| *byte == b'`')?;
    let is_valid =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b' ');
    (end > 0 && bytes[1..=end].iter().all(is_valid)).then_some(end + 2)
}

enum TextLiteral {
    Complete(Kind, usize),
    Unterminated(usize),
    None,
}

/// A string or byte literal with its prefix (`b`, `r`, `br`).
fn text_literal(rest: &str) -> TextLiteral {
    let bytes = rest.as_bytes();
    let is_bytes = matches!(bytes[0], b'b' | b'B');
    let mut at = usize::from(is_bytes);
    let is_raw = matches!(bytes.get(at), Some(b'r' | b'R'));
    at += usize::from(is_raw);
    let quote = match bytes.get(at) {
        Some(quote @ (b'"' | b'\'')) => *quote,
        _ => return TextLiteral::None,
    };
    let kind = if is_bytes { Kind::Bytes } else { Kind::String };
    let triple = [quote; 3];
    if bytes[at..].starts_with(&triple)
        && let Some(length) = end_of_text(&bytes[at + 3..], &triple, is_raw, true)
    {
        return TextLiteral::Complete(kind, at + 3 + length);
    }
    match end_of_text(&bytes[at + 1..], &[quote], is_raw, false) {
        Some(length) => TextLiteral::Complete(kind, at + 1 + length),
        None => {
            let end = rest.find(['\n', '\r']).unwrap_or(rest.len());
            TextLiteral::Unterminated(end.max(at + 1))
        }
    }
}

/// The length of an escape sequence behind its backslash, or `None` if there is no such sequence.
fn escape_length(bytes: &[u8]) -> Option<usize> {
    let are_all = |count: usize, is_digit: fn(&u8) -> bool| {
        bytes.get(1..=count).is_some_and(|digits| digits.iter().all(is_digit)).then_some(count + 1)
    };
    match bytes.first()? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'`' | b'\\' | b'?' => Some(1),
        b'x' | b'X' => are_all(2, u8::is_ascii_hexdigit),
        b'u' => are_all(4, u8::is_ascii_hexdigit),
        b'U' => are_all(8, u8::is_ascii_hexdigit),
        b'0'..=b'3' => are_all(2, |digit| (b'0'..=b'7').contains(digit)),
        _ => None,
    }
}

/// The length up to and with the closing quotes.
fn end_of_text(bytes: &[u8], quotes: &[u8], is_raw: bool, has_lines: bool) -> Option<usize> {
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if bytes[at..].starts_with(quotes) {
            return Some(at + quotes.len());
        }
        match byte {
            b'\n' | b'\r' if !has_lines => return None,
            b'\\' if !is_raw => at += escape_length(&bytes[at + 1..])? + 1,
            _ => at += 1,
        }
    }
    None
}
