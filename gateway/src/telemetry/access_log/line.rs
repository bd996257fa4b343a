//! One line of the access log: JSON, regardless of the client's input.
//!
//! Values from clients are truncated and escaped, so that they can neither end a line nor begin another field. A
//! query is never written, because it may contain tokens; no headers are written except those named here.

use std::cell::RefCell;
use std::io::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Version;
use jiff::Timestamp;

/// Maximum length of a path, in bytes.
const MAX_PATH: usize = 1024;
/// Maximum length of a name.
const MAX_NAME: usize = 256;
/// Text at the end of a truncated value.
const TRUNCATION_MARK: &str = "…";

/// The content of a line.
pub(crate) struct Line<'l> {
    /// Time of the end of the request.
    pub(crate) time: SystemTime,
    pub(crate) audit_id: Option<&'l [u8]>,
    pub(crate) listener: &'l str,
    pub(crate) client: IpAddr,
    pub(crate) connection: u64,
    /// The request line; `None` for a malformed request.
    pub(crate) request: Option<LoggedRequest<'l>>,
    pub(crate) class: &'static str,
    pub(crate) code: u16,
    pub(crate) user: Option<&'l str>,
    pub(crate) groups: usize,
    /// The impersonated user, as requested.
    pub(crate) impersonated: Option<&'l [u8]>,
    pub(crate) cluster: Option<&'l str>,
    pub(crate) shard: Option<&'l str>,
    pub(crate) reason: Option<&'l str>,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    pub(crate) stages: &'l [(&'static str, Duration)],
    pub(crate) trace_id: Option<&'l str>,
}

/// The request line.
#[derive(Clone, Copy)]
pub(crate) struct LoggedRequest<'l> {
    pub(crate) protocol: Version,
    pub(crate) method: &'l str,
    /// The path without its query.
    pub(crate) path: &'l str,
}

impl Line<'_> {
    /// Appends the line with its line feed.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":\"");
        write_time(out, self.time);
        out.push(b'"');
        if let Some(id) = self.audit_id {
            text(out, "auditID", &String::from_utf8_lossy(id), MAX_NAME);
        }
        text(out, "listener", self.listener, MAX_NAME);
        key(out, "client");
        // Writing to a vector does not fail.
        let _ = write!(out, "\"{}\"", self.client);
        number(out, "connection", self.connection);
        if let Some(LoggedRequest { protocol, method, path }) = self.request {
            plain(out, "protocol", protocol_name(protocol));
            text(out, "method", method, MAX_NAME);
            text(out, "path", path, MAX_PATH);
        }
        plain(out, "class", self.class);
        number(out, "code", u64::from(self.code));
        if let Some(user) = self.user {
            text(out, "user", user, MAX_NAME);
            number(out, "groups", self.groups as u64);
        }
        if let Some(name) = self.impersonated {
            text(out, "impersonated", &String::from_utf8_lossy(name), MAX_NAME);
        }
        let workspace = self.request.and_then(|request| workspace(request.path));
        if let Some(workspace) = workspace.filter(|workspace| self.cluster != Some(workspace)) {
            text(out, "workspace", workspace, MAX_NAME);
        }
        for (key, value) in [("cluster", self.cluster), ("shard", self.shard), ("reason", self.reason)] {
            if let Some(value) = value {
                text(out, key, value, MAX_NAME);
            }
        }
        number(out, "requestBytes", self.request_bytes);
        number(out, "responseBytes", self.response_bytes);
        out.extend_from_slice(b",\"stages\":");
        for (place, (stage, took)) in self.stages.iter().enumerate() {
            out.push(if place == 0 { b'{' } else { b',' });
            out.push(b'"');
            out.extend_from_slice(stage.as_bytes());
            out.extend_from_slice(b"\":");
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            out.extend_from_slice(itoa::Buffer::new().format(micros).as_bytes());
        }
        out.extend_from_slice(if self.stages.is_empty() { b"{}" } else { b"}" });
        if let Some(id) = self.trace_id {
            plain(out, "traceID", id);
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The workspace that a path names.
pub(crate) fn workspace(path: &str) -> Option<&str> {
    let named = path.strip_prefix("/clusters/")?.split('/').next()?;
    (!named.is_empty()).then_some(named)
}

fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

fn key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    key(out, name);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes a value that needs no escapes.
fn plain(out: &mut Vec<u8>, name: &str, value: &str) {
    key(out, name);
    out.push(b'"');
    out.extend_from_slice(value.as_bytes());
    out.push(b'"');
}

/// Writes an arbitrary value.
fn text(out: &mut Vec<u8>, name: &str, value: &str, most: usize) {
    let shown = truncate(value, most);
    key(out, name);
    out.push(b'"');
    escape(out, shown);
    if shown.len() < value.len() {
        out.extend_from_slice(TRUNCATION_MARK.as_bytes());
    }
    out.push(b'"');
}

/// The first bytes of a text, at most `most`, in whole characters.
pub(crate) fn truncate(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Escapes the characters that JSON requires, and those that control terminals or the text direction.
fn escape(out: &mut Vec<u8>, value: &str) {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\');
    // Checks all bytes without branches, which the compiler vectorizes: nearly all values are plain.
    if value.bytes().fold(true, |all, byte| all & is_plain(byte)) {
        return out.extend_from_slice(value.as_bytes());
    }
    for character in value.chars() {
        match character {
            '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
            odd if odd.is_control() || is_invisible(odd) => {
                // All these characters are in the Basic Multilingual Plane.
                out.extend_from_slice(format!("\\u{:04x}", odd as u32).as_bytes());
            }
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Line separators, direction marks, and zero-width characters.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// RFC 3339 in UTC, with milliseconds.
fn write_time(out: &mut Vec<u8>, time: SystemTime) {
    thread_local! {
        /// The second that was written last, and its text.
        static WRITTEN: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    WRITTEN.with_borrow_mut(|(written, text)| {
        if *written != since.as_secs() {
            let second = i64::try_from(since.as_secs()).ok();
            let at = second.and_then(|second| Timestamp::from_second(second).ok()).unwrap_or_default();
            *text = at.strftime("%Y-%m-%dT%H:%M:%S").to_string();
            *written = since.as_secs();
        }
        out.extend_from_slice(text.as_bytes());
    });
    let millis = since.subsec_millis();
    let digit = |place: u32| b'0' + (millis / place % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
}

/// A line for a request for this path with this status code.
#[cfg(test)]
pub(crate) fn a_line(path: &str, code: u16) -> Line<'_> {
    Line {
        time: UNIX_EPOCH,
        audit_id: None,
        listener: "internal",
        client: IpAddr::from([192, 0, 2, 1]),
        connection: 7,
        request: Some(LoggedRequest { protocol: Version::HTTP_2, method: "GET", path }),
        class: "read",
        code,
        user: Some("alice"),
        groups: 1,
        impersonated: None,
        cluster: Some("0rg0000000000001"),
        shard: Some("alpha"),
        reason: None,
        request_bytes: 0,
        response_bytes: 0,
        stages: &[],
        trace_id: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const STAGES: &[(&str, Duration)] =
        &[("auth", Duration::from_micros(12)), ("total", Duration::from_millis(1))];

    fn line<'l>(path: &'l str, user: &'l str, impersonated: &'l [u8]) -> Line<'l> {
        Line {
            time: UNIX_EPOCH + Duration::from_millis(1_795_000_000_007),
            audit_id: Some(b"an-id"),
            listener: "internal",
            client: IpAddr::from([192, 0, 2, 1]),
            connection: 7,
            request: Some(LoggedRequest { protocol: Version::HTTP_2, method: "GET", path }),
            class: "read",
            code: 200,
            user: Some(user),
            groups: 3,
            impersonated: Some(impersonated),
            cluster: Some("0rg0000000000001"),
            shard: Some("alpha"),
            reason: None,
            request_bytes: 0,
            response_bytes: 1024,
            stages: STAGES,
            trace_id: None,
        }
    }

    fn written(line: &Line<'_>) -> String {
        let mut out = Vec::new();
        line.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_the_documented_format() {
        let expected = concat!(
            r#"{"time":"2026-11-18T11:06:40.007Z","auditID":"an-id","listener":"internal","client":"192.0.2.1","#,
            r#""connection":7,"protocol":"HTTP/2.0","method":"GET","path":"/clusters/root:org/api","class":"read","#,
            r#""code":200,"user":"alice","groups":3,"impersonated":"bob","workspace":"root:org","#,
            r#""cluster":"0rg0000000000001","shard":"alpha","requestBytes":0,"responseBytes":1024,"#,
            r#""stages":{"auth":12,"total":1000}}"#,
            "\n"
        );
        assert_eq!(written(&line("/clusters/root:org/api", "alice", b"bob")), expected);
    }

    #[test]
    fn client_values_are_escaped_and_truncated() {
        let long = "ä".repeat(5000);
        for (user, expected) in [
            ("a\"b\\c", r#"a\"b\\c"#.to_owned()),
            ("a\r\n{\"code\":200}", r#"a\u000d\u000a{\"code\":200}"#.to_owned()),
            ("\u{1b}[2J\u{7f}\u{85}\u{2028}\u{202e}", r"\u001b[2J\u007f\u0085\u2028\u202e".to_owned()),
            ("jürgen", "jürgen".to_owned()),
            (&long, format!("{}…", "ä".repeat(128))),
        ] {
            let text = written(&line("/", user, b"\xff\n"));
            assert!(text.contains(&format!("\"user\":\"{expected}\",")), "{user:?}: {text}");
            assert!(text.contains("\"impersonated\":\"\u{fffd}\\u000a\""), "{text}");
        }
    }

    proptest! {
        /// One line of JSON of a bounded length, with all values unless they were truncated.
        #[test]
        fn no_line_can_be_forged(path in any::<String>(), user in any::<String>(), name in any::<Vec<u8>>()) {
            let text = written(&line(&path, &user, &name));
            prop_assert_eq!(text.matches('\n').count(), 1);
            prop_assert!(text.len() < 24 << 10);
            let read: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read["code"], 200);
            if user.len() <= MAX_NAME {
                prop_assert_eq!(&read["user"], &user);
            }
            if path.len() <= MAX_PATH {
                prop_assert_eq!(&read["path"], &path);
            }
        }
    }
}
