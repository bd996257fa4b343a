//! The access matrix of the pattern: what each identity may do at each gateway, tried with kubectl.

use std::fmt;
use std::path::{Path, PathBuf};

use fairlead_certs::Client as Role;
use serde_json::{Value, json};

use super::{Comer, ComerError};
use crate::harness::{Kubectl, Output};

/// One identity at one gateway.
#[derive(Debug, Clone)]
pub struct Row {
    /// The identity.
    pub identity: &'static str,
    /// The gateway, and the way to it.
    pub gateway: &'static str,
    /// The outcome of each of [`ACTIONS`].
    pub found: Vec<Outcome>,
    /// The outcomes that the pattern documents.
    pub expected: Vec<Outcome>,
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Success, with the significant part of the output.
    Success(String),
    /// A gateway or shard rejected the request with this status code.
    Rejected(u16),
    /// There was no connection.
    NoConnection,
    /// Any other outcome, with the last line of the output.
    Other(String),
}

/// The actions, by their headings in the table.
pub const ACTIONS: [&str; 4] = ["user name", "list workspaces", "create one", "impersonate"];

/// The gateways, by their names in the table.
const CDN: &str = "edge, through the CDN";
const BYPASS: &str = "edge, bypassing the CDN";
const INTERNAL: &str = "internal";

/// Tries all actions with each identity at each gateway.
///
/// # Errors
/// If kubectl is missing or the environment fails. Rejections are outcomes in the rows.
pub async fn matrix(comer: &Comer) -> Result<Vec<Row>, ComerError> {
    let layout = comer.layout();
    let admin = Credential::Certificate(layout.client_cert(&Role::Admin).certificate);
    let internal = GatewayAddress { server: comer.internal_url(), authority: layout.serving_ca() };
    let administrator = kubectl(comer, "administrator", &internal, &admin)?;
    administrator.ok(&format!("apply -f {}", comer.directory().join("rights.yaml").display())).await?;

    let developer = comer.sign_in("developer").await?;
    let forged_token = forged(&developer);
    let identities = [
        ("password", Credential::Password),
        ("administrator (certificate)", admin),
        ("developer (token)", Credential::Token(developer)),
        ("visitor (token)", Credential::Token(comer.sign_in("visitor").await?)),
        ("forged token", Credential::Token(forged_token)),
        ("the CDN's own certificate", Credential::Certificate(comer.origin_pull_certificate())),
    ];
    let gateways = [
        (CDN, GatewayAddress { server: comer.cdn_url(), authority: comer.public_authority() }),
        (BYPASS, GatewayAddress { server: comer.edge_url(), authority: layout.serving_ca() }),
        (INTERNAL, internal),
    ];
    let mut rows = Vec::new();
    for (identity, credential) in &identities {
        for (gateway, at) in &gateways {
            let name = format!("{}-{}", label(identity), label(gateway));
            let kubectl = kubectl(comer, &name, at, credential)?;
            rows.push(Row {
                identity,
                gateway,
                found: run_actions(comer, &kubectl, &name).await?,
                expected: expected(identity, gateway).to_vec(),
            });
        }
    }
    Ok(rows)
}

/// The outcomes that the pattern documents.
fn expected(identity: &str, gateway: &str) -> [Outcome; 4] {
    let all = |finding: Outcome| std::array::from_fn(|_| finding.clone());
    let success = |text: &str| Outcome::Success(text.to_owned());
    let rejected = Outcome::Rejected;
    match (identity, gateway) {
        // The edge accepts connections with the CDN's certificate, but rejects requests for its address (421): the CDN always
        // requests the public name.
        ("the CDN's own certificate", BYPASS) => all(rejected(421)),
        (_, BYPASS) => all(Outcome::NoConnection),
        // This gateway lets clients impersonate, and the shard lets administrators.
        ("administrator (certificate)", INTERNAL) => {
            [success("kcp-admin"), success("yes"), success("yes"), success("yes")]
        }
        ("developer (token)", CDN) => {
            [success("oidc:developer"), success("yes"), success("yes"), rejected(403)]
        }
        // As in kcp, every authenticated user may read workspaces in root.
        ("visitor (token)", CDN) => [success("oidc:visitor"), success("yes"), rejected(403), rejected(403)],
        // Impersonation is rejected before authentication.
        (_, CDN) => [rejected(401), rejected(401), rejected(401), rejected(403)],
        _ => all(rejected(401)),
    }
}

/// Runs all actions of a row.
async fn run_actions(comer: &Comer, kubectl: &Kubectl, name: &str) -> Result<Vec<Outcome>, ComerError> {
    let manifest = comer.home("manifests").join(format!("{name}.json"));
    write(&manifest, &workspace(name))?;
    let make = format!("create -f {}", manifest.display());
    let lines = [
        "auth whoami -o jsonpath={.status.userInfo.username}",
        "get workspaces",
        &make,
        "get workspaces --as=oidc:developer --as-group=oidc:developers",
    ];
    let mut found = Vec::new();
    for line in lines {
        let output = kubectl.run(line.split_whitespace()).await?;
        found.push(Outcome::of(&output, line.starts_with("auth")));
    }
    Ok(found)
}

impl Outcome {
    /// Derives the outcome from kubectl's output.
    fn of(output: &Output, prints_result: bool) -> Self {
        if output.status.success() {
            let text = if prints_result { output.stdout.trim() } else { "yes" };
            return Self::Success(text.to_owned());
        }
        let errors = &output.stderr;
        let mentions = |parts: &[&str]| parts.iter().any(|part| errors.contains(part));
        match errors {
            _ if errors.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| word == "421")
                || mentions(&["does not serve the host of the request"]) =>
            {
                Self::Rejected(421)
            }
            _ if mentions(&[
                "Unauthorized",
                "You must be logged in",
                "asked for the client to provide credentials",
            ]) =>
            {
                Self::Rejected(401)
            }
            _ if mentions(&["Forbidden", "forbidden"]) => Self::Rejected(403),
            _ if mentions(&[
                "tls: ",
                "EOF",
                "connection reset",
                "connection refused",
                "remote error",
                "broken pipe",
                "client conn could not be established",
            ]) =>
            {
                Self::NoConnection
            }
            other => Self::Other(other.lines().last().unwrap_or_default().to_owned()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success(text) => formatter.pad(text),
            Self::Rejected(code) => formatter.pad(&code.to_string()),
            Self::NoConnection => formatter.pad("no connection"),
            Self::Other(text) => formatter.pad(text),
        }
    }
}

/// The credential of an identity.
pub(super) enum Credential {
    /// A user name and password. Without any credential kubectl would ask for one.
    Password,
    Token(String),
    /// A certificate. Its key lies beside it.
    Certificate(PathBuf),
}

/// The address of a gateway.
pub(super) struct GatewayAddress {
    pub server: String,
    pub authority: PathBuf,
}

pub(super) fn kubectl(
    comer: &Comer,
    name: &str,
    at: &GatewayAddress,
    credential: &Credential,
) -> Result<Kubectl, ComerError> {
    let home = comer.home(name);
    let path = home.join("kubeconfig");
    write(&path, &kubeconfig(at, credential))?;
    Ok(Kubectl::any(&path, &home)?)
}

/// A kubeconfig for the workspace root.
fn kubeconfig(at: &GatewayAddress, credential: &Credential) -> Value {
    let user = match credential {
        Credential::Password => json!({ "username": "kcp-admin", "password": "swordfish" }),
        Credential::Token(token) => json!({ "token": token }),
        Credential::Certificate(file) => {
            json!({ "client-certificate": file, "client-key": file.with_extension("key") })
        }
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "root", "cluster": {
            "server": format!("{}/clusters/root", at.server),
            "certificate-authority": at.authority,
        }}],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{ "name": "root", "context": { "cluster": "root", "user": "user" } }],
        "current-context": "root",
    })
}

pub(super) fn workspace(name: &str) -> Value {
    json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": { "name": name },
        "spec": { "type": { "name": "universal", "path": "root" } },
    })
}

/// The same claims with an invalid signature.
fn forged(token: &str) -> String {
    let (claims, signature) = token.rsplit_once('.').unwrap_or((token, ""));
    let other = |letter: char| if letter == 'A' { 'B' } else { 'A' };
    let signature: String = signature
        .chars()
        .enumerate()
        .map(|(at, letter)| if at == 8 { other(letter) } else { letter })
        .collect();
    format!("{claims}.{signature}")
}

fn label(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

pub(super) fn write(path: &Path, content: &Value) -> Result<(), ComerError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(ComerError::file(folder))?;
    }
    std::fs::write(path, content.to_string()).map_err(ComerError::file(path))
}
