//! `url()`: URLs with the rules of Go.

use std::collections::HashMap;
use std::fmt::Write as _;

/// A URL in its parts.
#[derive(Clone, Debug)]
pub struct Url {
    /// Scheme in lower case.
    pub scheme: String,
    /// Host with its port, without user.
    pub host: String,
    user: Option<String>,
    opaque: String,
    path: Vec<u8>,
    escaped_path: String,
    query: String,
    fragment: String,
}

/// Whether a text is an absolute URL or an absolute path.
///
/// # Errors
/// In the words of Go, if it is not.
pub(crate) fn is_request_uri(text: &str) -> Result<(), String> {
    parse(text, true).map(drop).map_err(|fault| format!("parse {}: {fault}", super::quoted_for_go(text)))
}

impl Url {
    /// Reads an absolute URL or an absolute path.
    ///
    /// # Errors
    /// In the words of Go, if the text is neither.
    pub fn new(text: &str) -> Result<Self, String> {
        is_request_uri(text)?;
        let (text_without_fragment, fragment) = text.split_once('#').unwrap_or((text, ""));
        let wrap = |fault: String| format!("parse {}: {fault}", super::quoted_for_go(text));
        let mut url = parse(text_without_fragment, false).map_err(wrap)?;
        unescape(fragment.as_bytes(), Part::Path).map_err(wrap)?;
        url.fragment = fragment.to_owned();
        Ok(url)
    }

    /// About the bytes of its text.
    pub(crate) fn size(&self) -> usize {
        self.scheme.len()
            + self.host.len()
            + self.escaped_path.len()
            + self.query.len()
            + self.fragment.len()
            + self.opaque.len()
            + self.user.as_ref().map_or(0, String::len)
    }

    /// An upper bound of the parameters of the query.
    pub(crate) fn parameters(&self) -> usize {
        self.query.bytes().filter(|byte| *byte == b'&').count() + 1
    }

    /// The host without its port and brackets.
    #[must_use]
    pub fn hostname(&self) -> &str {
        let host = self.without_port();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// The port, or an empty text.
    #[must_use]
    pub fn port(&self) -> &str {
        self.host[self.without_port().len()..].strip_prefix(':').unwrap_or("")
    }

    fn without_port(&self) -> &str {
        match self.host.rfind(':') {
            Some(colon) if is_optional_port(&self.host[colon..]) => &self.host[..colon],
            _ => &self.host,
        }
    }

    /// The path with its escape sequences.
    #[must_use]
    pub fn escaped_path(&self) -> &str {
        &self.escaped_path
    }

    /// Parameters of the query in the order of their first occurrence, each with its values.
    #[must_use]
    pub fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Ok(key), Ok(value)) =
                (unescape(key.as_bytes(), Part::Query), unescape(value.as_bytes(), Part::Query))
            else {
                continue;
            };
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let (key, value) = (text(key), text(value));
            match places.get(&key).and_then(|place| parameters.get_mut(*place)) {
                Some((_, values)) => values.push(value),
                None => {
                    places.insert(key.clone(), parameters.len());
                    parameters.push((key, vec![value]));
                }
            }
        }
        parameters
    }

    /// The whole URL; equal URLs have equal texts.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.scheme.is_empty() {
            let _ = write!(text, "{}:", self.scheme);
        }
        if self.opaque.is_empty() {
            if !self.host.is_empty()
                || self.user.is_some()
                || (!self.scheme.is_empty() && self.path.is_empty())
            {
                text.push_str("//");
            }
            if let Some(user) = &self.user {
                let _ = write!(text, "{user}@");
            }
            text.push_str(&self.host);
            text.push_str(&self.escaped_path);
        } else {
            text.push_str(&self.opaque);
        }
        if !self.query.is_empty() {
            let _ = write!(text, "?{}", self.query);
        }
        if !self.fragment.is_empty() {
            let _ = write!(text, "#{}", self.fragment);
        }
        text
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Path,
    Host,
    User,
    Query,
}

fn parse(text: &str, is_request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7F) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && is_request {
        return Err("empty url".to_owned());
    }
    let (scheme, rest) = split_scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url {
        scheme: scheme.to_ascii_lowercase(),
        host: String::new(),
        user: None,
        opaque: String::new(),
        path: Vec::new(),
        escaped_path: String::new(),
        query: query.to_owned(),
        fragment: String::new(),
    };
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if is_request && rest != "*" {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let mut path = rest;
    if (!url.scheme.is_empty() || (!is_request && !rest.starts_with("///")))
        && let Some(authority) = rest.strip_prefix("//")
    {
        let end = authority.find('/').unwrap_or(authority.len());
        path = &authority[end..];
        (url.user, url.host) = parse_authority(&authority[..end])?;
    }
    url.path = unescape(path.as_bytes(), Part::Path)?;
    let is_valid = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !must_escape(byte, Part::Path);
    url.escaped_path = if path.bytes().all(is_valid) { path.to_owned() } else { escape(&url.path) };
    Ok(url)
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_authority(authority: &str) -> Result<(Option<String>, String), String> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return Ok((None, parse_host(authority)?));
    };
    let host = parse_host(host)?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescape(user.as_bytes(), Part::User)?;
    Ok((Some(user.to_owned()), host))
}

fn parse_host(host: &str) -> Result<String, String> {
    let invalid_port = |port: &str| format!("invalid port {} after host", super::quoted_for_go(port));
    if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        if !is_optional_port(&host[end + 1..]) {
            return Err(invalid_port(&host[end + 1..]));
        }
    } else if let Some(colon) = host.rfind(':')
        && !is_optional_port(&host[colon..])
    {
        return Err(invalid_port(&host[colon..]));
    }
    let host = unescape(host.as_bytes(), Part::Host)?;
    String::from_utf8(host).map_err(|_| "invalid host".to_owned())
}

fn is_optional_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn must_escape(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    match part {
        Part::Host => !b"!$&'()*+,;=:[]<>\"".contains(&byte),
        Part::Path => !b"$&+,/:;=@".contains(&byte),
        Part::User | Part::Query => true,
    }
}

fn escape(path: &[u8]) -> String {
    let mut text = String::new();
    for byte in path {
        if must_escape(*byte, Part::Path) {
            let _ = write!(text, "%{byte:02X}");
        } else {
            text.push(char::from(*byte));
        }
    }
    text
}

fn unescape(text: &[u8], part: Part) -> Result<Vec<u8>, String> {
    let mut output = Vec::with_capacity(text.len());
    let mut index = 0;
    while let Some(byte) = text.get(index) {
        match byte {
            b'%' => {
                let sequence = text.get(index..index + 3).unwrap_or(&text[index..]);
                let digits = sequence.get(1..).and_then(|digits| std::str::from_utf8(digits).ok());
                let is_hexadecimal =
                    |digits: &&str| digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let value =
                    digits.filter(is_hexadecimal).and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let invalid = || {
                    let shown = String::from_utf8_lossy(sequence);
                    format!("invalid URL escape {}", super::quoted_for_go(&shown))
                };
                let value = value.ok_or_else(invalid)?;
                // Hosts escape only what is not ASCII.
                if part == Part::Host && value < 0x80 && value != b'%' {
                    return Err(invalid());
                }
                output.push(value);
                index += 3;
                continue;
            }
            b'+' if part == Part::Query => output.push(b' '),
            other if part == Part::Host && *other < 0x80 && must_escape(*other, Part::Host) => {
                let shown = super::quoted_for_go(&char::from(*other).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            other => output.push(*other),
        }
        index += 1;
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_parts() {
        let url = Url::new("HTTPS://user:pw@[::1]:80/a%20b/c?k1=a&k2=b&k1=c#f").unwrap();
        assert_eq!(
            (&*url.scheme, &*url.host, url.hostname(), url.port()),
            ("https", "[::1]:80", "::1", "80")
        );
        assert_eq!(url.escaped_path(), "/a%20b/c");
        let query = [
            ("k1".to_owned(), vec!["a".to_owned(), "c".to_owned()]),
            ("k2".to_owned(), vec!["b".to_owned()]),
        ];
        assert_eq!(url.query(), query);
        let url = Url::new("/path with space").unwrap();
        assert_eq!((url.hostname(), url.escaped_path()), ("", "/path%20with%20space"));
    }

    #[test]
    fn other_texts_are_refused_in_the_words_of_go() {
        let cases = [
            ("foo", "invalid URI for request"),
            ("", "empty url"),
            (":x", "missing protocol scheme"),
            ("http://[::1", "missing ']' in host"),
            ("http://a:b/", "invalid port \":b\" after host"),
            ("http://a b/", "invalid character \" \" in host name"),
            ("http://a/%zz", "invalid URL escape \"%zz\""),
            ("http://a/\u{7f}", "net/url: invalid control character in URL"),
        ];
        for (text, fault) in cases {
            let error = Url::new(text).unwrap_err();
            assert!(error.ends_with(fault), "{text}: {error}");
        }
    }
}
