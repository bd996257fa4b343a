//! HTML forms, found, filled and sent as by a browser. The parser understands only the pages of this repository.

use fairlead_client::{Request, Response};
use http::Method;
use http::header::{COOKIE, HeaderValue, InvalidHeaderValue, ORIGIN, SET_COOKIE};
use regex::Regex;

/// A form and the browser's state for it.
#[derive(Debug, Clone)]
pub struct Form {
    /// Scheme and host of the page.
    pub origin: String,
    /// The path to which the form is sent.
    pub action: String,
    /// The cookie that the page set, without attributes.
    pub cookie: String,
    /// Names and values of the fields. Hidden fields are filled in.
    pub fields: Vec<(String, String)>,
}

impl Form {
    /// Finds the form of a page. `None` if the page has no form.
    pub fn on(origin: &str, page: &Response) -> Option<Self> {
        let text = String::from_utf8_lossy(&page.body);
        let hidden = Regex::new("type=\"hidden\" name=\"([^\"]*)\" value=\"([^\"]*)\"").ok()?;
        let action = Regex::new("method=\"post\" action=\"([^\"]*)\"").ok()?;
        let fields = hidden.captures_iter(&text).map(|found| (found[1].to_owned(), unescaped(&found[2])));
        let cookie = page.headers.get(SET_COOKIE).and_then(|cookie| cookie.to_str().ok());
        Some(Self {
            origin: origin.to_owned(),
            action: action.captures(&text)?[1].to_owned(),
            cookie: cookie.unwrap_or_default().split(';').next().unwrap_or_default().to_owned(),
            fields: fields.collect(),
        })
    }

    /// The request that sends the form.
    ///
    /// # Errors
    /// If origin or cookie are invalid as header values.
    pub fn request(&self) -> Result<Request, InvalidHeaderValue> {
        Ok(Request::new(Method::POST, &self.action)
            .with_body("application/x-www-form-urlencoded", encoded(&self.fields))
            .with_header(ORIGIN, HeaderValue::from_str(&self.origin)?)
            .with_header(COOKIE, HeaderValue::from_str(&self.cookie)?))
    }
}

/// Splits a URL into its origin and its path. `None` if it has no path.
pub fn split_address(address: &str) -> Option<(String, String)> {
    let (scheme, rest) = address.split_once("://")?;
    let (authority, path) = rest.split_once('/')?;
    Some((format!("{scheme}://{authority}"), format!("/{path}")))
}

/// Encodes fields as the body of a form.
pub fn encoded(fields: &[(String, String)]) -> String {
    let encode = |text: &str| {
        text.bytes().fold(String::new(), |mut all, byte| {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => all.push(char::from(byte)),
                byte => all.push_str(&format!("%{byte:02X}")),
            }
            all
        })
    };
    let pairs = fields.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn unescaped(text: &str) -> String {
    [("&quot;", "\""), ("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
