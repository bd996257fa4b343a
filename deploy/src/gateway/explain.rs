//! `fairlead gateway explain`: what would become of a request, and why.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use fairlead_client::{Kubeconfig, Material, Request};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::AskError;
use super::reach::Reach;
use crate::output::{Format, harmless, print};

/// Where the gateway explains.
const PATH: &str = "/services/fairlead/v1/explain";

/// Tell how a request would be routed, who it would be, and why, step by step. The request itself is not sent, and nothing
/// is counted; who judges the credential is asked as usual (for service accounts, shards).
#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainCommand {
    /// A workspace (root:org), a path (/clusters/root:org/api/v1/pods?watch=1), or a whole URL
    #[arg(value_name = "PATH")]
    about: String,
    /// File with the credential of whoever would ask: a certificate (PEM), a token, or a kubeconfig; - for standard input
    #[arg(long = "as", value_name = "FILE")]
    credential: Option<PathBuf>,
    /// The listener that the request would come to; by default the one that is asked
    #[arg(short, long)]
    listener: Option<String>,
    #[arg(short = 'X', long, default_value = "GET")]
    method: String,
    /// A header of the request, as "Impersonate-User: bob"
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The host that is asked for; by default the URL's, or one that the listener has
    #[arg(long)]
    host: Option<String>,
    /// The name that the client gives in the TLS handshake
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Where the connection would come from; by default here
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<IpAddr>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

/// What the gateway says, as far as it is shown to people.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    request: Asked,
    steps: Vec<Step>,
    user: Option<User>,
    forward: Option<Destination>,
    answer: Option<Answer>,
}

#[derive(Debug, Deserialize)]
struct Asked {
    method: String,
    url: String,
    listener: String,
    class: String,
    client: String,
}

#[derive(Debug, Deserialize)]
struct Step {
    at: String,
    outcome: String,
    says: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct User {
    name: String,
    groups: Vec<String>,
    by: String,
    dropped_groups: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Destination {
    url: String,
    server: String,
    headers: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    code: u16,
    why: String,
    message: Option<String>,
    location: Option<String>,
}

impl ExplainCommand {
    pub(super) async fn run(&self) -> Result<(), AskError> {
        let body = self.question()?.to_string();
        let request = Request::new(Method::POST, PATH).with_body("application/json", body);
        let answer = self.reach.client()?.request(request).await?.body;
        match self.output {
            Format::Text => print(text(&serde_json::from_slice(&answer)?)),
            Format::Json => {
                let answer: Value = serde_json::from_slice(&answer)?;
                print(format_args!("{}\n", serde_json::to_string_pretty(&answer)?));
            }
        }
        Ok(())
    }

    fn question(&self) -> Result<Value, AskError> {
        let (path, host) = target(&self.about);
        let mut question = json!({"path": path, "method": self.method, "headers": self.headers()?});
        let mut say = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                question[key] = value.into();
            }
        };
        say("listener", self.listener.clone());
        say("host", self.host.clone().or(host));
        say("serverName", self.server_name.clone());
        say("peer", self.peer.map(|peer| peer.to_string()));
        match self.credential.as_deref().map(credential).transpose()? {
            Some(Credential::Certificate(pem)) => say("certificate", Some(pem)),
            Some(Credential::Token(token)) => say("token", Some(token)),
            None => {}
        }
        Ok(question)
    }

    fn headers(&self) -> Result<BTreeMap<&str, &str>, AskError> {
        let parsed = self.headers.iter().map(|text| {
            let (name, value) = text.split_once(':').ok_or_else(|| AskError::Header(text.clone()))?;
            Ok((name.trim(), value.trim()))
        });
        parsed.collect()
    }
}

/// The path that is meant, and the host if it says one.
fn target(about: &str) -> (String, Option<String>) {
    if let Some((_, rest)) = about.split_once("://") {
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/" } else { path };
        return (path.to_owned(), Some(host.to_owned()));
    }
    if about.starts_with('/') { (about.to_owned(), None) } else { (format!("/clusters/{about}"), None) }
}

/// What somebody would show.
#[derive(Debug, PartialEq)]
enum Credential {
    Certificate(String),
    Token(String),
}

fn credential(file: &Path) -> Result<Credential, AskError> {
    let read = |source| AskError::Read { file: file.to_owned(), source };
    let text = if file == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(read)?;
        text
    } else {
        std::fs::read_to_string(file).map_err(read)?
    };
    if let Some(credential) = in_text(&text) {
        return Ok(credential);
    }
    let user = Kubeconfig::load(file)?.resolve(None)?.user;
    let content = |material: Option<Material>| match material {
        Some(Material::Inline(bytes)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Some(Material::File(file)) => match std::fs::read_to_string(&file) {
            Ok(text) => Ok(Some(text)),
            Err(source) => Err(AskError::Read { file, source }),
        },
        None => Ok(None),
    };
    if let Some(pem) = content(user.client_certificate)? {
        return Ok(Credential::Certificate(pem));
    }
    let token = content(user.token)?.map(|token| Credential::Token(token.trim().to_owned()));
    token.ok_or_else(|| AskError::NoCredential(file.to_owned()))
}

/// What the text itself is, if it is no kubeconfig. A key in it stays here.
fn in_text(text: &str) -> Option<Credential> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut certificates = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find(BEGIN)
        && let Some(length) = rest[begin..].find(END)
    {
        let end = begin + length + END.len();
        certificates.push_str(&rest[begin..end]);
        certificates.push('\n');
        rest = &rest[end..];
    }
    if !certificates.is_empty() {
        return Some(Credential::Certificate(certificates));
    }
    let word = text.trim();
    let is_token = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
    (is_token && !word.contains('{')).then(|| Credential::Token(word.to_owned()))
}

fn text(explanation: &Explanation) -> String {
    let Explanation { request, steps, user, forward, answer } = explanation;
    let Asked { method, url, listener, class, client } = request;
    let mut lines = vec![
        format!("{method} {url}"),
        format!("a {class} at listener {listener}, from {client}"),
        String::new(),
    ];
    let mut before = "";
    for Step { at, outcome, says } in steps {
        let mark = match outcome.as_str() {
            "passed" => "+",
            "refused" => "x",
            _ => " ",
        };
        let about = if before == at { "" } else { at };
        lines.push(format!("  {about:10}  {mark} {says}"));
        before = at;
    }
    lines.push(String::new());
    if let Some(User { name, groups, by, dropped_groups }) = user {
        lines.push(format!("User {name}, known by {by}, in groups {}", groups.join(", ")));
        if !dropped_groups.is_empty() {
            lines.push(format!("  without the groups {}", dropped_groups.join(", ")));
        }
    }
    match (forward, answer) {
        (Some(Destination { url, server, headers }), _) => {
            lines.push(format!("Forwarded to {server}: {url}"));
            lines.extend(headers.iter().map(|(name, value)| format!("  {name}: {value}")));
        }
        (None, Some(Answer { code, why, message, location })) => {
            let message = message.as_deref().map_or(String::new(), |message| format!(": {message}"));
            lines.push(format!("Answered with {code} ({why}){message}"));
            lines.extend(location.iter().map(|location| format!("  location: {location}")));
        }
        (None, None) => lines.push("The connection is closed without an answer".to_owned()),
    }
    lines.iter().map(|line| format!("{}\n", harmless(line).trim_end())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use expect_test::expect;

    use super::*;

    #[test]
    fn what_is_asked_about_is_a_workspace_a_path_or_a_url() {
        for (about, path, host) in [
            ("root:org", "/clusters/root:org", None),
            ("/clusters/root/api?watch=1", "/clusters/root/api?watch=1", None),
            ("https://api.example.com:6443/clusters/root", "/clusters/root", Some("api.example.com:6443")),
            ("https://api.example.com", "/", Some("api.example.com")),
        ] {
            assert_eq!(target(about), (path.to_owned(), host.map(str::to_owned)), "{about}");
        }
    }

    #[test]
    fn a_credential_is_told_from_what_it_looks_like_and_a_key_stays_here() {
        let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----\n";
        let certificate = || Some(Credential::Certificate(pem.to_owned()));
        for (text, expected) in [
            (pem.to_owned(), certificate()),
            (format!("{key}{pem}"), certificate()),
            (format!("{pem}{key}"), certificate()),
            (" a.b.c\n".to_owned(), Some(Credential::Token("a.b.c".to_owned()))),
            ("kind: Config\nusers: []\n".to_owned(), None),
            (r#"{"kind":"Config"}"#.to_owned(), None),
            (key.to_owned(), None),
        ] {
            assert_eq!(in_text(&text), expected, "{text}");
        }
    }

    #[test]
    fn it_reads_from_top_to_bottom_and_no_name_moves_the_cursor() {
        let explanation: Explanation = serde_json::from_value(json!({
            "request": {"method": "GET", "url": "https://localhost/clusters/root:org", "listener": "internal",
                "class": "read", "client": "127.0.0.1"},
            "steps": [
                {"at": "path", "outcome": "passed", "says": "workspace root:org"},
                {"at": "workspace", "outcome": "passed", "says": "logical cluster root is on shard root"},
                {"at": "workspace", "outcome": "refused", "says": "no workspace of that name"},
                {"at": "credential", "outcome": "noted", "says": "token file: nothing"},
            ],
            "user": {"name": "eve\u{1b}[2J", "groups": ["a"], "by": "token", "droppedGroups": ["system:masters"]},
            "forward": null,
            "answer": {"code": 403, "why": "unknown_workspace", "message": "no", "reason": "Forbidden", "location": null},
        }))
        .unwrap();
        expect![[r#"
            GET https://localhost/clusters/root:org
            a read at listener internal, from 127.0.0.1

              path        + workspace root:org
              workspace   + logical cluster root is on shard root
                          x no workspace of that name
              credential    token file: nothing

            User eve\u{1b}[2J, known by token, in groups a
              without the groups system:masters
            Answered with 403 (unknown_workspace): no
        "#]]
        .assert_eq(&text(&explanation));
    }
}
