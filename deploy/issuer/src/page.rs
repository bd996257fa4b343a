//! The HTML pages, without scripts, for light and dark colour schemes.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::devices::UserCode;
use crate::form::Form;
use crate::users::{User, Users};

/// A complete HTML page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page(pub(crate) String);

/// The CSRF secret of a form (see `service`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct FormSecret<'a>(pub(crate) &'a str);

const STYLE: &str = "\
:root{color-scheme:light dark;font:1rem/1.5 system-ui,sans-serif}\
body{max-width:28rem;margin:12vh auto;padding:0 1.25rem;background:Canvas;color:CanvasText}\
h1{font-size:1.4rem;line-height:1.25}\
button,input{font:inherit;padding:.6rem .9rem;border:1px solid GrayText;border-radius:.4rem;box-sizing:border-box;width:100%}\
button{display:block;margin:.5rem 0;text-align:left;background:ButtonFace;color:ButtonText;cursor:pointer}\
button:hover,button:focus-visible{outline:2px solid Highlight}\
small{color:GrayText}\
code{font-size:1.3rem;letter-spacing:.1em}";

const NO_PASSWORDS: &str = "<p><small>This is a development issuer: there are no passwords, and it serves this \
     machine only.</small></p>";

/// The Content-Security-Policy. Pages have no scripts and images and are in no frame. Their forms go to the issuer or, by a
/// redirect, to a program on this machine.
pub(crate) fn policy() -> String {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self' http:; base-uri 'none'; frame-ancestors 'none'"
    )
}

impl Page {
    /// Selection of a user. The form repeats the parameters of `request`, which are checked again.
    pub(crate) fn choose_user(users: &Users, request: &Form, secret: FormSecret<'_>) -> Self {
        let hidden: String = request
            .iter()
            .filter(|(key, _)| !OWN_FIELDS.contains(key))
            .map(|(key, value)| hidden(key, value))
            .collect();
        let hint = request.get("login_hint");
        let body = format!(
            "<p>A program on this machine wants to act in your name.</p>\
             <form method=\"post\" action=\"/authorize\">{}{hidden}{}</form>{NO_PASSWORDS}",
            self::hidden("csrf", secret.0),
            buttons(users, hint)
        );
        Self::titled("Sign in", &body)
    }

    /// Selection of a user for a device with a code.
    pub(crate) fn choose_user_of_device(users: &Users, code: &UserCode, secret: FormSecret<'_>) -> Self {
        let shown = code.display();
        let body = format!(
            "<p>A program wants to act in your name. Go on only if it shows this code:</p>\
             <p><code>{shown}</code></p>\
             <form method=\"post\" action=\"/device\">{}{}{}</form>{NO_PASSWORDS}",
            hidden("csrf", secret.0),
            hidden("user_code", &shown),
            buttons(users, None)
        );
        Self::titled("Sign in", &body)
    }

    /// Input of a user code, with a message about the previous input.
    pub(crate) fn enter_code(notice: Option<&str>) -> Self {
        let notice =
            notice.map_or(String::new(), |notice| format!("<p role=\"alert\">{}</p>", escaped(notice)));
        let body = format!(
            "{notice}<form method=\"get\" action=\"/device\">\
             <label for=\"code\">The code that the program shows</label>\
             <input id=\"code\" name=\"user_code\" autocomplete=\"off\" autocapitalize=\"characters\" spellcheck=\"false\" \
             maxlength=\"16\" placeholder=\"BCDF-GHJK\" required autofocus>\
             <button>Continue</button></form>{NO_PASSWORDS}"
        );
        Self::titled("Sign in a program", &body)
    }

    /// A message.
    pub(crate) fn message(title: &str, sentence: &str) -> Self {
        Self::titled(title, &format!("<p>{}</p>", escaped(sentence)))
    }

    fn titled(title: &str, body: &str) -> Self {
        let title = escaped(title);
        Self(format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title} – Fairlead</title>\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>{STYLE}</style></head>\
             <body><main><h1>{title}</h1>{body}</main></body></html>\n"
        ))
    }
}

/// Fields of the form itself, which are not copied from a request.
const OWN_FIELDS: [&str; 3] = ["csrf", "user", "refuse"];

fn buttons(users: &Users, hint: Option<&str>) -> String {
    let mut text = String::new();
    for user in users.iter() {
        let focus = if hint == Some(user.name.as_str()) { " autofocus" } else { "" };
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            "<button name=\"user\" value=\"{}\"{focus}>{}{}</button>",
            escaped(&user.name),
            escaped(&user.name),
            groups(user)
        );
    }
    text + "<button name=\"refuse\" value=\"1\">Refuse</button>"
}

fn groups(user: &User) -> String {
    match user.groups.as_slice() {
        [] => String::new(),
        groups => format!(" <small>{}</small>", escaped(&groups.join(", "))),
    }
}

fn hidden(key: &str, value: &str) -> String {
    format!("<input type=\"hidden\" name=\"{}\" value=\"{}\">", escaped(key), escaped(value))
}

fn escaped(text: &str) -> String {
    let mut escaped_text = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped_text.push_str("&amp;"),
            '<' => escaped_text.push_str("&lt;"),
            '>' => escaped_text.push_str("&gt;"),
            '"' => escaped_text.push_str("&quot;"),
            '\'' => escaped_text.push_str("&#39;"),
            c => escaped_text.push(c),
        }
    }
    escaped_text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn values_are_escaped() {
        let users = Users::of("users: [{name: \"<b>'&\\\"\", groups: ['<i>']}, {name: b}]");
        let request = Form::parse("state=%22%3E%3Cscript%3E&csrf=theirs&login_hint=b&x%22=1").unwrap();
        let Page(text) = Page::choose_user(&users, &request, FormSecret("ours"));
        for part in [
            "value=\"&quot;&gt;&lt;script&gt;\"",
            "value=\"&lt;b&gt;&#39;&amp;&quot;\"",
            "&lt;i&gt;",
            "name=\"csrf\" value=\"ours\"",
            "name=\"x&quot;\"",
            "value=\"b\" autofocus",
            "no passwords",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(!text.contains("<script") && !text.contains("theirs") && !text.contains("<b>"), "{text}");
        assert!(!Page::message("a<", "b<").0.contains("b<<"));
        let Page(text) = Page::enter_code(Some("<u>"));
        assert!(text.contains("&lt;u&gt;"), "{text}");
    }

    #[test]
    fn the_policy_names_the_style_of_the_pages() {
        assert!(policy().contains("style-src 'sha256-") && !STYLE.contains("url("));
    }
}
