//! Who can do what at which door, asked with kubectl.

use std::fmt;
use std::path::{Path, PathBuf};

use fairlead_certs::Client as Role;
use serde_json::{Value, json};

use super::{Comer, ComerError};
use crate::harness::{Kubectl, Output};

/// One identity at one door.
#[derive(Debug, Clone)]
pub struct Row {
    /// Who asks.
    pub who: &'static str,
    /// Where.
    pub door: &'static str,
    /// What came of each of [`DEEDS`].
    pub found: Vec<Finding>,
    /// What should have.
    pub expected: Vec<Finding>,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It worked, and this is what matters of what was printed.
    Done(String),
    /// The door or a shard refused with this code.
    Refused(u16),
    /// There was no connection.
    NoConnection,
    /// Anything else.
    Odd(String),
}

/// The commands, by what the table calls them.
pub const DEEDS: [&str; 4] = ["is", "lists workspaces", "makes one", "acts as a developer"];

/// Names of doors.
const CDN: &str = "edge, through the CDN";
const AROUND: &str = "edge, around the CDN";
const INTERNAL: &str = "internal";

/// Everybody at every door.
///
/// # Errors
/// If kubectl is missing or the surroundings fail; what doors say is in the rows.
pub async fn matrix(comer: &Comer) -> Result<Vec<Row>, ComerError> {
    let layout = comer.layout();
    let admin = Shown::Certificate(layout.client_cert(&Role::Admin).certificate);
    let internal = At { server: comer.internal(), authority: layout.serving_ca() };
    let administrator = kubectl(comer, "administrator", &internal, &admin)?;
    administrator.ok(&format!("apply -f {}", comer.directory().join("rights.yaml").display())).await?;

    let developer = comer.sign_in("developer").await?;
    let stranger = forged(&developer);
    let identities = [
        ("somebody with a password", Shown::Password),
        ("administrator (certificate)", admin),
        ("developer (token)", Shown::Token(developer)),
        ("visitor (token)", Shown::Token(comer.sign_in("visitor").await?)),
        ("forged token", Shown::Token(stranger)),
        ("the CDN's own certificate", Shown::Certificate(comer.origin_pull())),
    ];
    let doors = [
        (CDN, At { server: comer.at_the_cdn(), authority: comer.public_authority() }),
        (AROUND, At { server: comer.around_the_cdn(), authority: layout.serving_ca() }),
        (INTERNAL, internal),
    ];
    let mut rows = Vec::new();
    for (who, shown) in &identities {
        for (door, at) in &doors {
            let name = format!("{}-{}", label(who), label(door));
            let kubectl = kubectl(comer, &name, at, shown)?;
            rows.push(Row {
                who,
                door,
                found: deeds(comer, &kubectl, &name).await?,
                expected: expected(who, door).to_vec(),
            });
        }
    }
    Ok(rows)
}

/// What the pattern promises.
fn expected(who: &str, door: &str) -> [Finding; 4] {
    let all = |finding: Finding| std::array::from_fn(|_| finding.clone());
    let done = |text: &str| Finding::Done(text.to_owned());
    let refused = Finding::Refused;
    match (who, door) {
        // By its own certificate it gets a connection, and by its name for the door no answer: nobody asks like that.
        ("the CDN's own certificate", AROUND) => all(refused(421)),
        (_, AROUND) => all(Finding::NoConnection),
        // The door would let administrators act as others; shards do not know impersonation yet.
        ("administrator (certificate)", INTERNAL) => {
            [done("kcp-admin"), done("yes"), done("yes"), refused(403)]
        }
        ("developer (token)", CDN) => [done("oidc:developer"), done("yes"), done("yes"), refused(403)],
        // As in kcp, whoever is somebody may read what is in root.
        ("visitor (token)", CDN) => [done("oidc:visitor"), done("yes"), refused(403), refused(403)],
        // Whoever wants to be somebody else is refused whoever it is.
        (_, CDN) => [refused(401), refused(401), refused(401), refused(403)],
        _ => all(refused(401)),
    }
}

/// Does everything that a row is about.
async fn deeds(comer: &Comer, kubectl: &Kubectl, name: &str) -> Result<Vec<Finding>, ComerError> {
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
        found.push(Finding::of(&output, line.starts_with("auth")));
    }
    Ok(found)
}

impl Finding {
    /// Reads it off what kubectl has said.
    fn of(output: &Output, is_answer: bool) -> Self {
        if output.status.success() {
            let text = if is_answer { output.stdout.trim() } else { "yes" };
            return Self::Done(text.to_owned());
        }
        let said = &output.stderr;
        let says = |parts: &[&str]| parts.iter().any(|part| said.contains(part));
        match said {
            _ if said.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| word == "421")
                || says(&["a host that is not served here"]) =>
            {
                Self::Refused(421)
            }
            _ if says(&[
                "Unauthorized",
                "You must be logged in",
                "asked for the client to provide credentials",
            ]) =>
            {
                Self::Refused(401)
            }
            _ if says(&["Forbidden", "forbidden"]) => Self::Refused(403),
            _ if says(&[
                "tls: ",
                "EOF",
                "connection reset",
                "connection refused",
                "remote error",
                "broken pipe",
            ]) =>
            {
                Self::NoConnection
            }
            other => Self::Odd(other.lines().last().unwrap_or_default().to_owned()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(text) => formatter.pad(text),
            Self::Refused(code) => formatter.pad(&code.to_string()),
            Self::NoConnection => formatter.pad("no connection"),
            Self::Odd(text) => formatter.pad(text),
        }
    }
}

/// What somebody has to show.
pub(super) enum Shown {
    /// Without anything kubectl would ask for one.
    Password,
    Token(String),
    /// The key lies beside it.
    Certificate(PathBuf),
}

/// How a door is reached.
pub(super) struct At {
    pub server: String,
    pub authority: PathBuf,
}

pub(super) fn kubectl(comer: &Comer, name: &str, at: &At, shown: &Shown) -> Result<Kubectl, ComerError> {
    let home = comer.home(name);
    let path = home.join("kubeconfig");
    write(&path, &kubeconfig(at, shown))?;
    Ok(Kubectl::any(&path, &home)?)
}

/// For the workspace root.
fn kubeconfig(at: &At, shown: &Shown) -> Value {
    let user = match shown {
        Shown::Password => json!({ "username": "kcp-admin", "password": "swordfish" }),
        Shown::Token(token) => json!({ "token": token }),
        Shown::Certificate(file) => {
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
        "users": [{ "name": "somebody", "user": user }],
        "contexts": [{ "name": "root", "context": { "cluster": "root", "user": "somebody" } }],
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

/// The same claims with a signature that nobody has made.
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
