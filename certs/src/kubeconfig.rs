//! Kubeconfigs: built from the installation's certificates, merged into existing files.

use std::{fmt, fs, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    Client, Error, Layout,
    files::{Secrecy, create_private_folder, read_if_present, replace, sync_folder},
};

/// A kubeconfig with embedded credentials. `Debug` shows no credentials.
#[derive(Clone, PartialEq)]
pub struct Kubeconfig {
    document: Value,
}

/// The result of writing a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The file did not exist.
    Created,
    /// The file had other contents.
    Updated,
    /// The file contained all entries already and was not written.
    Unchanged,
}

impl Kubeconfig {
    /// An empty kubeconfig.
    #[must_use]
    pub fn builder() -> KubeconfigBuilder {
        KubeconfigBuilder {
            clusters: Vec::new(),
            users: Vec::new(),
            contexts: Vec::new(),
            current: String::new(),
        }
    }

    /// The kubeconfig of the operator: user `kcp-admin` through the gateway at `gateway_url` (scheme, host and port), current
    /// context `root` in the workspace root, context `base` without a workspace.
    pub fn admin(layout: &Layout, gateway_url: &str) -> Result<Self, Error> {
        let authority = read(&layout.serving_ca())?;
        Self::builder()
            .cluster("root", &cluster_url(gateway_url, "root"), &authority)
            .cluster("base", without_trailing_slash(gateway_url), &authority)
            .client(layout, &Client::Admin)?
            .context("root", "root", "kcp-admin")
            .context("base", "base", "kcp-admin")
            .current("root")
            .build()
    }

    /// The kubeconfig for a listener without client certificates: like [`Kubeconfig::admin`], but the user `oidc` gets a token
    /// from the credential plugin `command` with `arguments`.
    pub fn with_credential_plugin(
        layout: &Layout,
        gateway_url: &str,
        command: &str,
        arguments: &[&str],
    ) -> Result<Self, Error> {
        let authority = read(&layout.serving_ca())?;
        Self::builder()
            .cluster("root", &cluster_url(gateway_url, "root"), &authority)
            .cluster("base", without_trailing_slash(gateway_url), &authority)
            .plugin("oidc", command, arguments)
            .context("root", "root", "oidc")
            .context("base", "base", "oidc")
            .current("root")
            .build()
    }

    /// The kubeconfig for one shard at `shard_url`, without the gateway, with the contexts that kcp's own shards write. `root`
    /// and `base` are for `kcp-admin`; `shard-base` and `system:admin` are for `shard-admin`, which has all permissions.
    pub fn shard_admin(layout: &Layout, shard_url: &str) -> Result<Self, Error> {
        let authority = read(&layout.serving_ca())?;
        Self::builder()
            .cluster("root", &cluster_url(shard_url, "root"), &authority)
            .cluster("base", without_trailing_slash(shard_url), &authority)
            .cluster("system:admin", &cluster_url(shard_url, "system:admin"), &authority)
            .client(layout, &Client::Admin)?
            .client(layout, &Client::ShardAdmin)?
            .context("root", "root", "kcp-admin")
            .context("base", "base", "kcp-admin")
            .context("shard-base", "base", "shard-admin")
            .context("system:admin", "system:admin", "shard-admin")
            .current("root")
            .build()
    }

    /// The YAML text, credentials included.
    pub fn to_yaml(&self) -> Result<String, Error> {
        yaml(&self.document, Path::new("(new)"))
    }

    /// Writes the file with mode 0600. If it exists, the entries replace those with the same names. Other entries, other keys
    /// and a valid current context are kept, because users and `kubectl ws` write there. A symbolic link is followed.
    pub fn write(&self, path: &Path) -> Result<WriteOutcome, Error> {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let before = read_if_present(&target)?.filter(|text| !text.trim().is_empty());
        let (document, written) = match &before {
            None => (self.document.clone(), WriteOutcome::Created),
            Some(text) => {
                let existing = parse(text, path)?;
                let merged = merge(existing.clone(), &self.document, path)?;
                let written =
                    if merged == existing { WriteOutcome::Unchanged } else { WriteOutcome::Updated };
                (merged, written)
            }
        };
        if written != WriteOutcome::Unchanged {
            let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            create_private_folder(folder)?;
            replace(&target, &yaml(&document, path)?, Secrecy::Secret)?;
            sync_folder(folder)?;
        }
        Ok(written)
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("current", &self.document["current-context"])
            .finish_non_exhaustive()
    }
}

/// Collects the parts of a kubeconfig. Not `Debug`, because it holds keys.
#[allow(missing_debug_implementations, reason = "holds keys")]
pub struct KubeconfigBuilder {
    clusters: Vec<Value>,
    users: Vec<Value>,
    contexts: Vec<Value>,
    current: String,
}

impl KubeconfigBuilder {
    /// Adds a server and its PEM trust bundle.
    #[must_use]
    pub fn cluster(mut self, name: &str, server: &str, authority_pem: &str) -> Self {
        let cluster =
            json!({ "server": server, "certificate-authority-data": STANDARD.encode(authority_pem) });
        self.clusters.push(json!({ "name": name, "cluster": cluster }));
        self
    }

    /// Adds a user with a client certificate and its key, both PEM.
    #[must_use]
    pub fn user(mut self, name: &str, certificate_pem: &str, key_pem: &str) -> Self {
        let user = json!({
            "client-certificate-data": STANDARD.encode(certificate_pem),
            "client-key-data": STANDARD.encode(key_pem),
        });
        self.users.push(json!({ "name": name, "user": user }));
        self
    }

    /// Adds a user with a credential plugin of client-go: `command` with `arguments`. It may be interactive, but need not.
    #[must_use]
    pub fn plugin(mut self, name: &str, command: &str, arguments: &[&str]) -> Self {
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": command,
            "args": arguments,
            "interactiveMode": "IfAvailable",
            "provideClusterInfo": false,
        });
        self.users.push(json!({ "name": name, "user": { "exec": exec } }));
        self
    }

    /// Adds a client of the installation, under its user name.
    pub fn client(self, layout: &Layout, client: &Client) -> Result<Self, Error> {
        let files = layout.client_cert(client);
        Ok(self.user(&client.user_name(), &read(&files.certificate)?, &read(&files.key)?))
    }

    /// Adds a context: a user at a cluster.
    #[must_use]
    pub fn context(mut self, name: &str, cluster: &str, user: &str) -> Self {
        self.contexts.push(json!({ "name": name, "context": { "cluster": cluster, "user": user } }));
        self
    }

    /// Sets the current context.
    #[must_use]
    pub fn current(mut self, context: &str) -> Self {
        context.clone_into(&mut self.current);
        self
    }

    /// Builds the kubeconfig; fails for references to missing entries.
    pub fn build(self) -> Result<Kubeconfig, Error> {
        for context in &self.contexts {
            let target = &context["context"];
            require(&self.clusters, "cluster", &target["cluster"])?;
            require(&self.users, "user", &target["user"])?;
        }
        require(&self.contexts, "context", &json!(self.current))?;
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "preferences": {},
            CLUSTERS: self.clusters,
            USERS: self.users,
            CONTEXTS: self.contexts,
            CURRENT: self.current,
        });
        Ok(Kubeconfig { document })
    }
}

const CLUSTERS: &str = "clusters";
const USERS: &str = "users";
const CONTEXTS: &str = "contexts";
const CURRENT: &str = "current-context";

fn require(entries: &[Value], kind: &str, name: &Value) -> Result<(), Error> {
    if named(entries, name).is_some() {
        return Ok(());
    }
    Err(invalid(Path::new("(new)"), format!("there is no {kind} {name}")))
}

fn named(entries: &[Value], name: &Value) -> Option<usize> {
    entries.iter().position(|entry| &entry["name"] == name)
}

/// The document `theirs` with the entries of `ours`.
fn merge(mut theirs: Value, ours: &Value, path: &Path) -> Result<Value, Error> {
    let Some(document) = theirs.as_object_mut() else {
        return Err(invalid(path, "is not a kubeconfig; move it away".to_owned()));
    };
    for field in ["apiVersion", "kind"] {
        document.insert(field.to_owned(), ours[field].clone());
    }
    for field in [CLUSTERS, USERS, CONTEXTS] {
        let slot = document.entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = json!([]);
        }
        let (Some(entries), Some(additions)) = (slot.as_array_mut(), ours[field].as_array()) else {
            return Err(invalid(path, format!("its {field} are not a list; repair it or move it away")));
        };
        for addition in additions {
            match named(entries, &addition["name"]) {
                Some(index) => entries[index] = addition.clone(),
                None => entries.push(addition.clone()),
            }
        }
    }
    let current_is_valid = document[CONTEXTS]
        .as_array()
        .zip(document.get(CURRENT))
        .is_some_and(|(contexts, current)| named(contexts, current).is_some());
    if !current_is_valid {
        document.insert(CURRENT.to_owned(), ours[CURRENT].clone());
    }
    Ok(theirs)
}

fn parse(text: &str, path: &Path) -> Result<Value, Error> {
    // The parser's message could quote a line with a key, so it is dropped.
    serde_saphyr::from_str(text)
        .map_err(|_| invalid(path, "is not readable YAML; repair it or move it away".to_owned()))
}

fn yaml(document: &Value, path: &Path) -> Result<String, Error> {
    serde_saphyr::to_string(document)
        .map_err(|error| invalid(path, format!("cannot be written as YAML: {error}")))
}

fn invalid(path: &Path, problem: String) -> Error {
    Error::Kubeconfig { path: path.to_owned(), problem }
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::io("read", path))
}

fn without_trailing_slash(url: &str) -> &str {
    url.trim_end_matches('/')
}

fn cluster_url(url: &str, cluster: &str) -> String {
    format!("{}/clusters/{cluster}", without_trailing_slash(url))
}
