//! `fairlead gateway explain`: dry run of a request.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use fairlead_client::{KeyMaterial, Kubeconfig, Request};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::address::GatewayAddress;
use super::admin_client::AdminClientError;
use crate::output::{Format, escape_control_characters, print};

/// Endpoint of the gateway.
const PATH: &str = "/services/fairlead/v1/explain";

/// Explain step by step how a request would be authenticated and routed. The request is not forwarded and not counted.
/// Credentials are checked as usual, which may send requests to webhooks, issuers and shards.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainCommand {
    /// A workspace (root:org), a path (/clusters/root:org/api/v1/pods?watch=1), or a whole URL
    #[arg(value_name = "PATH")]
    target: String,
    /// File with the credential of the request: a certificate (PEM), a token, or a kubeconfig; - for standard input
    #[arg(long = "as", value_name = "FILE")]
    credential: Option<PathBuf>,
    /// Listener of the request; by default the one of this connection
    #[arg(short, long)]
    listener: Option<String>,
    /// Method of the request
    #[arg(short = 'X', long, default_value = "GET")]
    method: String,
    /// Header of the request, such as "Impersonate-User: bob"
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Host of the request; by default that of the URL, or one of the listener
    #[arg(long)]
    host: Option<String>,
    /// Server name in the TLS handshake
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Source address of the connection; by default that of this one
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<IpAddr>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    gateway: GatewayAddress,
}

/// The parts of the response that are printed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    request: RequestSummary,
    steps: Vec<Step>,
    user: Option<User>,
    forward: Option<Destination>,
    response: Option<Response>,
}

#[derive(Debug, Deserialize)]
struct RequestSummary {
    method: String,
    url: String,
    listener: String,
    class: String,
    client: String,
}

#[derive(Debug, Deserialize)]
struct Step {
    stage: String,
    result: String,
    message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct User {
    name: String,
    groups: Vec<String>,
    authenticated_by: String,
    dropped_groups: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Destination {
    url: String,
    server: String,
    headers: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
struct Response {
    code: u16,
    reason: String,
    message: Option<String>,
    location: Option<String>,
}

impl ExplainCommand {
    pub(super) async fn run(&self) -> Result<(), AdminClientError> {
        let body = self.request_body()?.to_string();
        let request = Request::new(Method::POST, PATH).with_body("application/json", body);
        let response = self.gateway.client()?.request(request).await?.body;
        match self.output {
            Format::Text => print(format_explanation(&serde_json::from_slice(&response)?)),
            Format::Json => {
                let response: Value = serde_json::from_slice(&response)?;
                print(format_args!("{}\n", serde_json::to_string_pretty(&response)?));
            }
        }
        Ok(())
    }

    fn request_body(&self) -> Result<Value, AdminClientError> {
        let (path, host) = target(&self.target);
        let mut request_body = json!({"path": path, "method": self.method, "headers": self.headers()?});
        let mut set = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                request_body[key] = value.into();
            }
        };
        set("listener", self.listener.clone());
        set("host", self.host.clone().or(host));
        set("serverName", self.server_name.clone());
        set("peer", self.peer.map(|peer| peer.to_string()));
        match self.credential.as_deref().map(credential).transpose()? {
            Some(Credential::Certificate(pem)) => set("certificate", Some(pem)),
            Some(Credential::Token(token)) => set("token", Some(token)),
            None => {}
        }
        Ok(request_body)
    }

    fn headers(&self) -> Result<BTreeMap<&str, &str>, AdminClientError> {
        let parsed = self.headers.iter().map(|text| {
            let (name, value) = text.split_once(':').ok_or_else(|| AdminClientError::Header(text.clone()))?;
            Ok((name.trim(), value.trim()))
        });
        parsed.collect()
    }
}

/// The path, and the host of a URL.
fn target(text: &str) -> (String, Option<String>) {
    if let Some((_, rest)) = text.split_once("://") {
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/" } else { path };
        return (path.to_owned(), Some(host.to_owned()));
    }
    if text.starts_with('/') { (text.to_owned(), None) } else { (format!("/clusters/{text}"), None) }
}

/// The credential of the request.
#[derive(Debug, PartialEq)]
enum Credential {
    Certificate(String),
    Token(String),
}

fn credential(file: &Path) -> Result<Credential, AdminClientError> {
    let read = |source| AdminClientError::Read { file: file.to_owned(), source };
    let text = if file == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(read)?;
        text
    } else {
        std::fs::read_to_string(file).map_err(read)?
    };
    if let Some(credential) = credential_in_text(&text) {
        return Ok(credential);
    }
    let user = Kubeconfig::load(file)?.resolve(None)?.user;
    let content = |material: Option<KeyMaterial>| match material {
        Some(KeyMaterial::Inline(bytes)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Some(KeyMaterial::File(file)) => match std::fs::read_to_string(&file) {
            Ok(text) => Ok(Some(text)),
            Err(source) => Err(AdminClientError::Read { file, source }),
        },
        None => Ok(None),
    };
    if let Some(pem) = content(user.client_certificate)? {
        return Ok(Credential::Certificate(pem));
    }
    let token = content(user.token)?.map(|token| Credential::Token(token.trim().to_owned()));
    token.ok_or_else(|| AdminClientError::NoCredential(file.to_owned()))
}

/// The credential in a text that is not a kubeconfig. Private keys in it are not sent.
fn credential_in_text(text: &str) -> Option<Credential> {
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

fn format_explanation(explanation: &Explanation) -> String {
    let Explanation { request, steps, user, forward, response } = explanation;
    let RequestSummary { method, url, listener, class, client } = request;
    let mut lines = vec![
        format!("{method} {url}"),
        format!("a {class} at listener {listener}, from {client}"),
        String::new(),
    ];
    let mut before = "";
    for Step { stage, result, message } in steps {
        let mark = match result.as_str() {
            "passed" => "+",
            "refused" => "x",
            _ => " ",
        };
        let shown_stage = if before == stage { "" } else { stage };
        lines.push(format!("  {shown_stage:10}  {mark} {message}"));
        before = stage;
    }
    lines.push(String::new());
    if let Some(User { name, groups, authenticated_by, dropped_groups }) = user {
        lines.push(format!(
            "User {name}, authenticated by {authenticated_by}, in groups {}",
            groups.join(", ")
        ));
        if !dropped_groups.is_empty() {
            lines.push(format!("  without the groups {}", dropped_groups.join(", ")));
        }
    }
    match (forward, response) {
        (Some(Destination { url, server, headers }), _) => {
            lines.push(format!("Forwarded to {server}: {url}"));
            lines.extend(headers.iter().map(|(name, value)| format!("  {name}: {value}")));
        }
        (None, Some(Response { code, reason, message, location })) => {
            let message = message.as_deref().map_or(String::new(), |message| format!(": {message}"));
            lines.push(format!("Response {code} ({reason}){message}"));
            lines.extend(location.iter().map(|location| format!("  location: {location}")));
        }
        (None, None) => lines.push("The connection is closed without a response".to_owned()),
    }
    lines.iter().map(|line| format!("{}\n", escape_control_characters(line).trim_end())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use expect_test::expect;

    use super::*;

    #[test]
    fn the_target_is_a_workspace_a_path_or_a_url() {
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
    fn the_kind_of_credential_is_detected_and_private_keys_are_not_sent() {
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
            assert_eq!(credential_in_text(&text), expected, "{text}");
        }
    }

    #[test]
    fn steps_are_printed_in_order_and_control_characters_are_escaped() {
        let explanation: Explanation = serde_json::from_value(json!({
            "request": {"method": "GET", "url": "https://localhost/clusters/root:org", "listener": "internal",
                "class": "read", "client": "127.0.0.1"},
            "steps": [
                {"stage": "path", "result": "passed", "message": "workspace root:org"},
                {"stage": "workspace", "result": "passed", "message": "logical cluster root is on shard root"},
                {"stage": "workspace", "result": "refused", "message": "no workspace of that name"},
                {"stage": "credential", "result": "info", "message": "token file: nothing"},
            ],
            "user": {"name": "eve\u{1b}[2J", "groups": ["a"], "authenticatedBy": "token", "droppedGroups": ["system:masters"]},
            "forward": null,
            "response": {"code": 403, "reason": "unknown_workspace", "message": "no", "statusReason": "Forbidden", "location": null},
        }))
        .unwrap();
        expect![[r#"
            GET https://localhost/clusters/root:org
            a read at listener internal, from 127.0.0.1

              path        + workspace root:org
              workspace   + logical cluster root is on shard root
                          x no workspace of that name
              credential    token file: nothing

            User eve\u{1b}[2J, authenticated by token, in groups a
              without the groups system:masters
            Response 403 (unknown_workspace): no
        "#]]
        .assert_eq(&format_explanation(&explanation));
    }
}
