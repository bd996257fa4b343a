//! `fairlead ws`: enters, creates and lists workspaces of the current kubeconfig, with the requests and messages of kcp's
//! kubectl plugin.

mod claims;
mod create;
mod enter;
mod requests;
mod selector;
mod session;
mod target;
#[cfg(test)]
mod tests;
mod tree;

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use fairlead_client::{ClientError, CredentialsError, KubeconfigError};

use crate::output::Output;
use create::Creation;
use selector::SelectorError;
use session::Session;
use target::Target;

pub(crate) use claims::Binding;
pub(crate) use session::workspace_of;
pub(crate) use target::{TargetError, resolve};

/// Enter, create and list workspaces, like kcp's `kubectl ws`
#[derive(Debug, Args)]
pub(crate) struct WsCommand {
    #[command(subcommand)]
    verb: Option<WsVerb>,
    /// Workspace to enter: a relative path, `:root:a` from the top, `..`, `-` for the previous one, `~` for home, `.`
    #[arg(value_name = "PATH", allow_hyphen_values = true)]
    path: Option<String>,
    /// Print only the path
    #[arg(long)]
    short: bool,
    /// Kubeconfig, in place of $KUBECONFIG or ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, in place of the current one
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
}

#[derive(Debug, Subcommand)]
enum WsVerb {
    /// Enter a workspace
    Use {
        /// Workspace to enter
        #[arg(value_name = "PATH", allow_hyphen_values = true)]
        path: String,
        /// Print only the path
        #[arg(long)]
        short: bool,
    },
    /// Print the current workspace
    Current {
        /// Print only the path
        #[arg(long)]
        short: bool,
    },
    /// Create a workspace in the current one
    Create(CreateArguments),
    /// Print the workspaces below the current one
    Tree {
        /// Print whole paths
        #[arg(short, long)]
        full: bool,
        /// Print phases
        #[arg(long, conflicts_with = "full")]
        wide: bool,
    },
    /// Save the current workspace as a context
    CreateContext {
        /// Name of the context; by default the workspace's path
        name: Option<String>,
        /// Replace a context of that name
        #[arg(long)]
        overwrite: bool,
    },
}

/// Arguments of `ws create`.
#[derive(Debug, Args)]
struct CreateArguments {
    /// Name of the workspace
    name: String,
    /// Type, `name` or `path:name`; by default that of the type of the parent
    #[arg(long = "type", value_name = "TYPE")]
    workspace_type: Option<String>,
    /// Enter the workspace when it is ready
    #[arg(long)]
    enter: bool,
    /// Accept an existing workspace of that name
    #[arg(long)]
    ignore_existing: bool,
    /// Label selector of its shards, such as `region=eu`
    #[arg(long, value_name = "SELECTOR")]
    location_selector: Option<String>,
}

/// Errors of `fairlead ws`, printed like those of kcp's plugin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WsError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("there is no kubeconfig: set KUBECONFIG or name one with --kubeconfig")]
    NoKubeconfig,
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Selector(#[from] SelectorError),
    #[error("current cluster URL {0:?} is not pointing to a workspace")]
    NotInWorkspace(String),
    #[error("no previous workspace found in kubeconfig")]
    NoPrevious,
    #[error("context {0:?} already exists in kubeconfig, use --overwrite to update it")]
    ContextExists(String),
    #[error("workspace {0:?} not found")]
    NotFound(String),
    #[error("access to workspace {0:?} denied")]
    Denied(String),
    #[error("workspace {name:?} did not get ready in time{}", reason.as_ref().map_or(String::new(), |reason| format!(": {reason}")))]
    NotReady { name: String, reason: Option<String> },
    #[error("{0:?} is not a workspace type: use `name` or `path:name`")]
    Type(String),
    #[error("`ws {0}` takes no path before it")]
    PathBeforeSubcommand(&'static str),
    /// The message of the server.
    #[error("{}", .0.status().map_or_else(|| .0.to_string(), |status| status.message.clone()))]
    Server(#[from] ClientError),
    #[error("the async runtime cannot be started: {0}")]
    Runtime(io::Error),
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

impl WsCommand {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), WsError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (mut out, mut err) = (io::stdout(), io::stderr());
        let mut output = Output { out: &mut out, err: &mut err };
        runtime.map_err(WsError::Runtime)?.block_on(self.execute(&mut output))
    }

    async fn execute(&self, output: &mut Output<'_>) -> Result<(), WsError> {
        let mut session = Session::open(self.kubeconfig.as_deref(), self.context.as_deref())?;
        if let (Some(verb), Some(_)) = (&self.verb, &self.path) {
            return Err(WsError::PathBeforeSubcommand(verb.name()));
        }
        match &self.verb {
            None => go_to(&mut session, self.path.as_deref(), self.short, output).await,
            Some(WsVerb::Use { path, short }) => go_to(&mut session, Some(path), *short, output).await,
            Some(WsVerb::Current { short }) => Ok(output.print(&session.location_text(path_format(*short)))?),
            Some(WsVerb::Create(arguments)) => {
                create::create(&mut session, &Creation::parse(arguments)?, output).await
            }
            Some(WsVerb::Tree { full, wide }) => {
                let style = match (full, wide) {
                    (_, true) => tree::Style::Wide,
                    (true, false) => tree::Style::Full,
                    (false, false) => tree::Style::Short,
                };
                let text = tree::tree(&session, style).await?;
                Ok(output.print(&text)?)
            }
            Some(WsVerb::CreateContext { name, overwrite }) => {
                let name = session.save_as_context(name.as_deref(), *overwrite)?;
                Ok(output.print(&format!("Created context \"{name}\" and switched to it.\n"))?)
            }
        }
    }
}

async fn go_to(
    session: &mut Session,
    path: Option<&str>,
    short: bool,
    output: &mut Output<'_>,
) -> Result<(), WsError> {
    let home = std::env::var("HOME").ok();
    let target = Target::parse(path, home.as_deref());
    enter::go(session, &target, path_format(short), output).await
}

fn path_format(short: bool) -> session::PathFormat {
    if short { session::PathFormat::Path } else { session::PathFormat::Sentence }
}

impl WsVerb {
    fn name(&self) -> &'static str {
        match self {
            Self::Use { .. } => "use",
            Self::Current { .. } => "current",
            Self::Create(_) => "create",
            Self::Tree { .. } => "tree",
            Self::CreateContext { .. } => "create-context",
        }
    }
}
