//! The server and the workspace of a command: kubeconfig, context, and the flags that replace parts of them.

use std::path::PathBuf;

use clap::Args;
use fairlead_client::{
    Client, ClientOptions, CredentialsError, Endpoint, EndpointError, KeyMaterial, Kubeconfig,
    KubeconfigError, UnverifiedTls, default_kubeconfig_path,
};
use fairlead_names::WorkspacePath;

use crate::ws::{TargetError, resolve, workspace_of};

/// Flags of kubectl that select the server, the user and the workspace.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArguments {
    /// Kubeconfig, in place of $KUBECONFIG or ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, in place of the current one
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Workspace, in place of the current one: `:root:a` from the top, `a` or `..` from the current one
    #[arg(short, long, global = true, value_name = "PATH")]
    workspace: Option<String>,
    /// URL of the server
    #[arg(long, global = true, value_name = "URL")]
    server: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    user: Option<String>,
    /// Bearer token
    #[arg(long, global = true, value_name = "TOKEN")]
    token: Option<String>,
    /// File with the certificates that sign the server's certificate
    #[arg(long, global = true, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Accept any certificate of the server
    #[arg(long, global = true)]
    insecure_skip_tls_verify: bool,
    /// Name to expect in the server's certificate
    #[arg(long, global = true, value_name = "NAME")]
    tls_server_name: Option<String>,
}

/// A server and a workspace on it.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    /// Path of the server's URL before `/clusters/`.
    base: String,
    workspace: WorkspacePath,
}

/// Settings that lead to no workspace. The user has to correct them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("there is no kubeconfig")]
    NoKubeconfig,
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("--server {url:?}: {source}")]
    Server { url: String, source: EndpointError },
    #[error("current URL {0:?} does not point to workspace")]
    NotInWorkspace(String),
    #[error("--workspace: {0}")]
    Workspace(#[from] TargetError),
}

impl ConnectionError {
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoKubeconfig => Some("set KUBECONFIG or name one with --kubeconfig"),
            Self::NotInWorkspace(_) => Some("enter a workspace with `fairlead ws :root`"),
            Self::Workspace(_) => Some("an absolute path begins with a colon, such as `:root:a`"),
            _ => None,
        }
    }
}

impl ConnectionArguments {
    /// Reads the kubeconfig. Sends no request.
    pub(crate) fn open(&self) -> Result<Connection, ConnectionError> {
        let file = self.kubeconfig.clone().or_else(default_kubeconfig_path);
        let kubeconfig = Kubeconfig::load(&file.ok_or(ConnectionError::NoKubeconfig)?)?;
        let mut context = kubeconfig.resolve(self.context.as_deref())?;
        if let Some(server) = &self.server {
            context.endpoint = Endpoint::parse(server)
                .map_err(|source| ConnectionError::Server { url: server.clone(), source })?;
            context.cluster.server.clone_from(server);
        }
        if let Some(user) = &self.user {
            context.user = kubeconfig.user(user)?;
        }
        if let Some(token) = &self.token {
            context.user.token = Some(KeyMaterial::Inline(token.clone().into_bytes()));
        }
        if let Some(file) = &self.certificate_authority {
            context.cluster.certificate_authority = Some(KeyMaterial::File(file.clone()));
        }
        if self.insecure_skip_tls_verify {
            context.cluster.insecure_skip_tls_verify = true;
        }
        if let Some(name) = &self.tls_server_name {
            context.cluster.tls_server_name = Some(name.clone());
        }
        let server = &context.cluster.server;
        let (_, current) =
            workspace_of(server).ok_or_else(|| ConnectionError::NotInWorkspace(server.clone()))?;
        let workspace = match self.workspace.as_deref() {
            None => current,
            Some(path) if path.starts_with(':') => resolve(None, path)?,
            Some(path) => resolve(Some(&current), path)?,
        };
        let prefix = context.endpoint.prefix();
        let base = workspace_of(prefix).map_or(prefix, |(base, _)| base).to_owned();
        let client = Client::from_context(&context, UnverifiedTls::Allow, ClientOptions::default())?;
        Ok(Connection { client, base, workspace })
    }
}

impl Connection {
    /// The current workspace, or that of `--workspace`.
    pub(crate) fn workspace(&self) -> &WorkspacePath {
        &self.workspace
    }

    /// A client of the workspace.
    pub(crate) fn client(&self) -> Client {
        self.client_of(&self.workspace)
    }

    /// A client of another workspace on the same server.
    pub(crate) fn client_of(&self, workspace: &WorkspacePath) -> Client {
        self.client.with_prefix(&format!("{}/clusters/{workspace}", self.base))
    }
}
