//! Cleaning of paths, and their canonical percent-encoding.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use crate::request::path_error::PathError;

/// Characters that a canonical path percent-encodes: all that RFC 3986 does not allow in a path, and `%` itself.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The set for a path whose escapes stay as they are.
pub(super) const ENCODED_EXCEPT_PERCENT: &AsciiSet = &ENCODED.remove(b'%');

pub(super) fn encode(decoded: &[u8]) -> String {
    percent_encode(decoded, ENCODED).to_string()
}

pub(super) fn decode(raw: &str) -> Cow<'_, [u8]> {
    percent_decode_str(raw).into()
}

/// Whether `raw` is its own canonical encoding.
pub(super) fn is_plain(raw: &str) -> bool {
    raw.bytes().all(|byte| {
        byte.is_ascii_graphic()
            && !matches!(
                byte,
                b'"' | b'#'
                    | b'%'
                    | b'<'
                    | b'>'
                    | b'?'
                    | b'['
                    | b'\\'
                    | b']'
                    | b'^'
                    | b'`'
                    | b'{'
                    | b'|'
                    | b'}'
            )
    })
}

/// Refuses control characters, encoded or not, and invalid percent-encoding.
pub(super) fn check_bytes(raw: &str) -> Result<(), PathError> {
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        let value = if byte == b'%' {
            let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
            match (digit(bytes.next()), digit(bytes.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err(PathError::Malformed("invalid percent-encoding")),
            }
        } else {
            byte
        };
        if value.is_ascii_control() {
            return Err(PathError::Malformed("control character"));
        }
    }
    Ok(())
}

pub(super) fn is_clean(path: &str) -> bool {
    is_clean_bytes(path.as_bytes())
}

/// Whether no segment but the last is empty and none is `.` or `..`.
pub(super) fn is_clean_bytes(path: &[u8]) -> bool {
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            b"" if segments.peek().is_some() => return false,
            b"." | b".." => return false,
            _ => {}
        }
    }
    true
}

/// The shortest equivalent of a rooted path; a trailing slash stays (the rule of Go's `ServeMux`).
pub(super) fn clean(path: &[u8]) -> Vec<u8> {
    let mut stack: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                stack.pop();
            }
            _ => stack.push(segment),
        }
    }
    let mut cleaned = Vec::with_capacity(path.len());
    for segment in &stack {
        cleaned.push(b'/');
        cleaned.extend_from_slice(segment);
    }
    if stack.is_empty() || path.ends_with(b"/") {
        cleaned.push(b'/');
    }
    cleaned
}
