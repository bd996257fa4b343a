//! `fairlead ws`: goes to, makes and lists workspaces on the current kubeconfig, with the requests and the words of
//! kcp's kubectl plugin.

mod claims;
mod create;
mod go;
mod remote;
mod selector;
mod session;
mod target;
#[cfg(test)]
mod tests;
mod tree;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fairlead_client::{ClientError, CredentialsError, KubeconfigError};

use create::Creation;
use selector::SelectorError;
use session::Session;
use target::{Target, TargetError};

/// Go to, make and list workspaces, as kcp's `kubectl ws` does.
#[derive(Debug, Args)]
pub(crate) struct WsCommand {
    #[command(subcommand)]
    verb: Option<WsVerb>,
    /// Where to go: a path below here, `:root:a` from the top, `..`, `-` for back, `~` for home, `.` to stay
    #[arg(value_name = "PATH", allow_hyphen_values = true)]
    path: Option<String>,
    /// Print only the path
    #[arg(long)]
    short: bool,
    /// The kubeconfig, in place of $KUBECONFIG or ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context to begin from, in place of the current one
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
}

#[derive(Debug, Subcommand)]
enum WsVerb {
    /// Go to a workspace
    Use {
        /// Where to go
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
    /// Make a workspace in the current one
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
    /// Keep the current workspace as a context of its own
    CreateContext {
        /// Name of the context; by default the workspace's path
        name: Option<String>,
        /// Replace a context of that name
        #[arg(long)]
        overwrite: bool,
    },
}

/// What a new workspace is to be like.
#[derive(Debug, Args)]
struct CreateArguments {
    /// Name of the workspace
    name: String,
    /// Its type, `name` or `path:name`; by default what the parent's type says
    #[arg(long = "type", value_name = "TYPE")]
    workspace_type: Option<String>,
    /// Go there when it is ready
    #[arg(long)]
    enter: bool,
    /// Be content with one that exists
    #[arg(long)]
    ignore_existing: bool,
    /// Labels of the shards that it may live on, such as `region=eu`
    #[arg(long, value_name = "SELECTOR")]
    location_selector: Option<String>,
}

/// Why somebody is not where he wanted to be. Shown as kcp's plugin shows errors.
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
    #[error("workspace {name:?} did not get ready in time{}", why.as_ref().map_or(String::new(), |why| format!(": {why}")))]
    NotReady { name: String, why: Option<String> },
    #[error("{0:?} is not a workspace type: use `name` or `path:name`")]
    Type(String),
    #[error("`ws {0}` takes no path before it")]
    PathBeforeVerb(&'static str),
    /// What the server said, without decoration.
    #[error("{}", .0.status().map_or_else(|| .0.to_string(), |status| status.message.clone()))]
    Server(#[from] ClientError),
    #[error("cannot prepare to run: {0}")]
    Runtime(io::Error),
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Where words go: results to standard output, remarks to standard error.
pub(crate) struct Voice<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

impl Voice<'_> {
    fn say(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush())
    }

    fn remark(&mut self, text: &str) -> io::Result<()> {
        self.err.write_all(text.as_bytes())
    }
}

impl WsCommand {
    /// Does what was asked for.
    pub(crate) fn run(&self) -> Result<(), WsError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (mut out, mut err) = (io::stdout(), io::stderr());
        let mut voice = Voice { out: &mut out, err: &mut err };
        runtime.map_err(WsError::Runtime)?.block_on(self.speak(&mut voice))
    }

    async fn speak(&self, voice: &mut Voice<'_>) -> Result<(), WsError> {
        let mut session = Session::open(self.kubeconfig.as_deref(), self.context.as_deref())?;
        if let (Some(verb), Some(_)) = (&self.verb, &self.path) {
            return Err(WsError::PathBeforeVerb(verb.word()));
        }
        match &self.verb {
            None => go_to(&mut session, self.path.as_deref(), self.short, voice).await,
            Some(WsVerb::Use { path, short }) => go_to(&mut session, Some(path), *short, voice).await,
            Some(WsVerb::Current { short }) => Ok(voice.say(&session.whereabouts(length(*short)))?),
            Some(WsVerb::Create(arguments)) => {
                create::create(&mut session, &Creation::parse(arguments)?, voice).await
            }
            Some(WsVerb::Tree { full, wide }) => {
                let style = match (full, wide) {
                    (_, true) => tree::Style::Wide,
                    (true, false) => tree::Style::Full,
                    (false, false) => tree::Style::Short,
                };
                let text = tree::tree(&session, style).await?;
                Ok(voice.say(&text)?)
            }
            Some(WsVerb::CreateContext { name, overwrite }) => {
                let name = session.keep_as_context(name.as_deref(), *overwrite)?;
                Ok(voice.say(&format!("Created context \"{name}\" and switched to it.\n"))?)
            }
        }
    }
}

async fn go_to(
    session: &mut Session,
    path: Option<&str>,
    short: bool,
    voice: &mut Voice<'_>,
) -> Result<(), WsError> {
    let home = std::env::var("HOME").ok();
    let target = Target::parse(path, home.as_deref());
    go::go(session, &target, length(short), voice).await
}

fn length(short: bool) -> session::Length {
    if short { session::Length::Short } else { session::Length::Sentence }
}

impl WsVerb {
    fn word(&self) -> &'static str {
        match self {
            Self::Use { .. } => "use",
            Self::Current { .. } => "current",
            Self::Create(_) => "create",
            Self::Tree { .. } => "tree",
            Self::CreateContext { .. } => "create-context",
        }
    }
}

/// A plugin of kubectl as which this program can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plugin {
    /// `kubectl ws`, `kubectl workspace`.
    Workspace,
    /// `kubectl create workspace`.
    CreateWorkspace,
}

impl Plugin {
    /// The plugin whose name a program's path ends with.
    pub(crate) fn called_as(program: &Path) -> Option<Self> {
        match program.file_name()?.to_str()? {
            "kubectl-ws" | "kubectl-workspace" | "kubectl-workspaces" => Some(Self::Workspace),
            "kubectl-create-workspace" | "kubectl-create_workspace" => Some(Self::CreateWorkspace),
            _ => None,
        }
    }

    /// What to put in place of the program's name.
    pub(crate) fn spelled_out(self) -> &'static [&'static str] {
        match self {
            Self::Workspace => &["fairlead", "ws"],
            Self::CreateWorkspace => &["fairlead", "ws", "create"],
        }
    }
}
