//! Kubeconfig files: read, resolved into an endpoint and credentials, edited, written.
//!
//! `kube::config::Kubeconfig` is not used, because this crate must not depend on k8s-openapi
//! (`tests/tests/tidy` enforces it).
//!
//! One file at a time; files are never merged. The YAML tree is the only copy of the content, so that an edit keeps
//! every field that this client does not use.

mod edit;
mod resolved;

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::credentials::Impersonation;
use crate::endpoint::{Endpoint, EndpointError};

/// A kubeconfig file.
#[derive(Clone)]
pub struct Kubeconfig {
    tree: Map<String, Value>,
    /// Base of relative paths in the file.
    directory: PathBuf,
}

/// A context: a cluster and a user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// Name of the cluster entry.
    pub cluster: String,
    /// Name of the user entry.
    pub user: String,
    /// Default namespace.
    pub namespace: Option<String>,
}

/// A cluster: its URL and trusted authorities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Base URL.
    pub server: String,
    /// PEM certificates to trust.
    pub certificate_authority: Option<KeyMaterial>,
    /// Name to expect in the server's certificate instead of the URL's host.
    pub tls_server_name: Option<String>,
    /// `insecure-skip-tls-verify`.
    pub insecure_skip_tls_verify: bool,
    /// Proxy to the cluster. Not supported: credentials for such a cluster are an error.
    pub proxy_url: Option<String>,
}

/// A user: its credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// PEM certificate chain.
    pub client_certificate: Option<KeyMaterial>,
    /// PEM key.
    pub client_key: Option<KeyMaterial>,
    /// Bearer token; a file wins over an inline one, as in kubectl.
    pub token: Option<KeyMaterial>,
    /// The impersonated user.
    pub impersonation: Option<Impersonation>,
    /// A feature of the entry that this client does not support; its credentials are an error.
    pub unsupported: Option<&'static str>,
}

/// Bytes that are inline or in a file of their own; `Debug` shows no content.
#[derive(Clone, PartialEq, Eq)]
pub enum KeyMaterial {
    /// The content.
    Inline(Vec<u8>),
    /// The path of a file with the content.
    File(PathBuf),
}

/// A context with everything it names.
#[derive(Debug, Clone)]
pub struct ResolvedContext {
    /// Name of the context.
    pub name: String,
    /// The server.
    pub endpoint: Endpoint,
    /// Name of the cluster entry.
    pub cluster_name: String,
    /// The cluster entry.
    pub cluster: Cluster,
    /// The user entry.
    pub user: User,
    /// Default namespace.
    pub namespace: Option<String>,
}

/// A kubeconfig that cannot be used. Never quotes values of user entries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// The file could not be read or written.
    #[error("cannot access kubeconfig {}: {source}", path.display())]
    Access {
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Not YAML, or not a mapping.
    #[error("{} is not a kubeconfig: {reason}", path.display())]
    Parse {
        /// Its path.
        path: PathBuf,
        /// Position and reason.
        reason: String,
    },
    /// No context was requested and the file has no current one.
    #[error("the kubeconfig has no current-context")]
    NoCurrentContext,
    /// An entry that something refers to is missing.
    #[error("the kubeconfig has no {section} named {name:?}")]
    Missing {
        /// `context`, `cluster` or `user`.
        section: &'static str,
        /// The name.
        name: String,
    },
    /// A field has a wrong type or form.
    #[error("kubeconfig: {section} {name:?}: {field} must be {expected}")]
    Field {
        /// `context`, `cluster` or `user`.
        section: &'static str,
        /// Name of the entry.
        name: String,
        /// The field.
        field: &'static str,
        /// The expected form.
        expected: &'static str,
    },
    /// The cluster's server is not a URL.
    #[error("kubeconfig: cluster {name:?}: {source}")]
    Server {
        /// Name of the cluster entry.
        name: String,
        /// The fault.
        source: EndpointError,
    },
    /// The tree could not be written as YAML.
    #[error("cannot write the kubeconfig as YAML: {0}")]
    Write(String),
}

/// The file kubectl would use: the first of `$KUBECONFIG` that exists (or the first), else `~/.kube/config`.
pub fn default_kubeconfig_path() -> Option<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        let paths: Vec<_> =
            std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
        return paths.iter().find(|path| path.exists()).or(paths.first()).cloned();
    }
    std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"))
}

impl Kubeconfig {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, KubeconfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| KubeconfigError::Access { path: path.to_owned(), source })?;
        Self::parse_at(&text, path)
    }

    /// Reads YAML or JSON; relative paths in it start from the working directory.
    pub fn parse(text: &str) -> Result<Self, KubeconfigError> {
        Self::parse_at(text, Path::new("kubeconfig"))
    }

    /// An empty file, to be filled with the setters.
    pub fn empty() -> Self {
        let mut tree = Map::new();
        tree.insert("apiVersion".to_owned(), json!("v1"));
        tree.insert("kind".to_owned(), json!("Config"));
        Self { tree, directory: PathBuf::new() }
    }

    /// The configuration of a pod: the server from its environment, the token of its service account and the authorities from
    /// files, which rotate. `None` outside of a pod.
    pub fn in_cluster() -> Option<Self> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let folder = Path::new("/var/run/secrets/kubernetes.io/serviceaccount");
        let name = "in-cluster";
        let mut kubeconfig = Self::empty();
        let cluster = Cluster {
            server: format!("https://{host}:{port}"),
            certificate_authority: Some(KeyMaterial::File(folder.join("ca.crt"))),
            ..Cluster::default()
        };
        let user = User { token: Some(KeyMaterial::File(folder.join("token"))), ..User::default() };
        let context = Context { cluster: name.to_owned(), user: name.to_owned(), namespace: None };
        kubeconfig.set_cluster(name, &cluster);
        kubeconfig.set_user(name, &user);
        kubeconfig.set_context(name, &context);
        kubeconfig.set_current_context(name);
        Some(kubeconfig)
    }

    /// The current context with everything it names, or that of the given name.
    pub fn resolve(&self, context: Option<&str>) -> Result<ResolvedContext, KubeconfigError> {
        self.resolve_with(context, |name, cluster| {
            Endpoint::parse(&cluster.server)
                .map_err(|source| KubeconfigError::Server { name: name.to_owned(), source })
        })
    }

    /// The current context for a server whose URL comes from elsewhere. The URL of the cluster entry is ignored:
    /// kcp leaves it empty where credentials are for many servers.
    pub fn resolve_at(&self, server: &Endpoint) -> Result<ResolvedContext, KubeconfigError> {
        self.resolve_with(None, |_, _| Ok(server.clone()))
    }

    fn resolve_with(
        &self,
        context: Option<&str>,
        server: impl FnOnce(&str, &Cluster) -> Result<Endpoint, KubeconfigError>,
    ) -> Result<ResolvedContext, KubeconfigError> {
        let name = match context {
            Some(name) => name,
            None => self.current_context().ok_or(KubeconfigError::NoCurrentContext)?,
        };
        let context = self.context(name)?;
        let cluster = self.cluster(&context.cluster)?;
        let endpoint = server(&context.cluster, &cluster)?;
        // Like kubectl: a context without a user is anonymous, one with an unknown user is an error.
        let user = if context.user.is_empty() { User::default() } else { self.user(&context.user)? };
        Ok(ResolvedContext {
            name: name.to_owned(),
            endpoint,
            cluster_name: context.cluster,
            cluster,
            user,
            namespace: context.namespace,
        })
    }

    /// `current-context`, if set.
    pub fn current_context(&self) -> Option<&str> {
        self.tree.get("current-context").and_then(Value::as_str).filter(|name| !name.is_empty())
    }

    /// Names of all contexts, in the order of the file.
    pub fn context_names(&self) -> impl Iterator<Item = &str> {
        let entries = self.tree.get("contexts").and_then(Value::as_array).into_iter().flatten();
        entries.filter_map(|entry| entry.get("name")?.as_str())
    }

    /// The context of that name.
    pub fn context(&self, name: &str) -> Result<Context, KubeconfigError> {
        let entry = self.entry("contexts", "context", name)?;
        Ok(Context {
            cluster: entry.string("cluster")?.unwrap_or_default().to_owned(),
            user: entry.string("user")?.unwrap_or_default().to_owned(),
            namespace: entry.string("namespace")?.map(str::to_owned),
        })
    }

    /// The cluster of that name.
    pub fn cluster(&self, name: &str) -> Result<Cluster, KubeconfigError> {
        let entry = self.entry("clusters", "cluster", name)?;
        Ok(Cluster {
            server: entry.string("server")?.unwrap_or_default().to_owned(),
            certificate_authority: entry.material("certificate-authority", "certificate-authority-data")?,
            tls_server_name: entry.string("tls-server-name")?.map(str::to_owned),
            insecure_skip_tls_verify: match entry.fields.get("insecure-skip-tls-verify") {
                None | Some(Value::Null) => false,
                Some(Value::Bool(skip)) => *skip,
                Some(_) => return Err(entry.error("insecure-skip-tls-verify", "true or false")),
            },
            proxy_url: entry.string("proxy-url")?.map(str::to_owned),
        })
    }

    /// The user of that name.
    pub fn user(&self, name: &str) -> Result<User, KubeconfigError> {
        let entry = self.entry("users", "user", name)?;
        let present = |field: &str| entry.fields.get(field).is_some_and(|value| !value.is_null());
        let unsupported = [
            ("exec", "a user with an exec credential plugin"),
            ("auth-provider", "a user with an auth-provider"),
            ("username", "a user with a password"),
            ("as-uid", "impersonation of a UID"),
            ("as-user-extra", "impersonation with extra fields"),
        ];
        let token_file = entry.string("tokenFile")?.map(|path| KeyMaterial::File(entry.directory.join(path)));
        let token = entry.string("token")?.map(|token| KeyMaterial::Inline(token.as_bytes().to_vec()));
        Ok(User {
            client_certificate: entry.material("client-certificate", "client-certificate-data")?,
            client_key: entry.material("client-key", "client-key-data")?,
            token: token_file.or(token),
            impersonation: match entry.string("as")? {
                None => None,
                Some(user) => {
                    Some(Impersonation { user: user.to_owned(), groups: entry.strings("as-groups")? })
                }
            },
            unsupported: unsupported
                .into_iter()
                .find(|(field, _)| present(field))
                .map(|(_, feature)| feature),
        })
    }

    fn parse_at(text: &str, path: &Path) -> Result<Self, KubeconfigError> {
        let refuse = |reason: String| KubeconfigError::Parse { path: path.to_owned(), reason };
        let tree: Value = serde_saphyr::from_str(text).map_err(|error| {
            // Only the position is reported: the message may quote the text, which contains keys.
            let place = error
                .location()
                .map_or(String::new(), |at| format!(" at line {}, column {}", at.line(), at.column()));
            refuse(format!("it is not valid YAML{place}"))
        })?;
        let directory = path.parent().map(Path::to_owned).unwrap_or_default();
        match tree {
            Value::Object(tree) => Ok(Self { tree, directory }),
            Value::Null => Ok(Self { directory, ..Self::empty() }),
            _ => Err(refuse("it is not a mapping".to_owned())),
        }
    }

    fn entry<'a>(
        &'a self,
        list: &str,
        section: &'static str,
        name: &str,
    ) -> Result<Entry<'a>, KubeconfigError> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let entries = self.tree.get(list).and_then(Value::as_array).into_iter().flatten();
        let found = entries
            .into_iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))
            .ok_or_else(|| KubeconfigError::Missing { section, name: name.to_owned() })?;
        let fields = match found.get(section) {
            None | Some(Value::Null) => &EMPTY,
            Some(Value::Object(fields)) => fields,
            Some(_) => {
                return Err(KubeconfigError::Field {
                    section,
                    name: name.to_owned(),
                    field: section,
                    expected: "a mapping",
                });
            }
        };
        Ok(Entry { section, name: name.to_owned(), fields, directory: &self.directory })
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig").field("current_context", &self.current_context()).finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// A named entry, with methods that read its fields.
struct Entry<'a> {
    section: &'static str,
    name: String,
    fields: &'a Map<String, Value>,
    directory: &'a Path,
}

impl<'a> Entry<'a> {
    /// An empty string counts as absent, as in Go.
    fn string(&self, field: &'static str) -> Result<Option<&'a str>, KubeconfigError> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.error(field, "a string")),
        }
    }

    fn strings(&self, field: &'static str) -> Result<Vec<String>, KubeconfigError> {
        let wrong = || self.error(field, "a list of strings");
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// Inline data wins over a file, as in kubectl.
    fn material(
        &self,
        file: &'static str,
        data: &'static str,
    ) -> Result<Option<KeyMaterial>, KubeconfigError> {
        if let Some(text) = self.string(data)? {
            let text: String = text.split_whitespace().collect();
            let content = STANDARD.decode(text).map_err(|_| self.error(data, "base64"))?;
            return Ok(Some(KeyMaterial::Inline(content)));
        }
        Ok(self.string(file)?.map(|path| KeyMaterial::File(self.directory.join(path))))
    }

    fn error(&self, field: &'static str, expected: &'static str) -> KubeconfigError {
        KubeconfigError::Field { section: self.section, name: self.name.clone(), field, expected }
    }
}
