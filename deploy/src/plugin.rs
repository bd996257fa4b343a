//! The kubectl plugins that this program implements, selected by the name of the program.

use std::path::Path;

use clap::{Args, Subcommand};

use crate::crd::CrdCommand;
use crate::sharing::{BindCommand, ClaimsCommand};
use crate::ws::WsCommand;

/// A kubectl plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plugin {
    /// `kubectl kcp`.
    Kcp,
    /// `kubectl ws`, `kubectl workspace`.
    Workspace,
    /// `kubectl create workspace`.
    CreateWorkspace,
}

impl Plugin {
    /// The plugin with the file name of the program.
    pub(crate) fn from_program_name(program: &Path) -> Option<Self> {
        match program.file_name()?.to_str()? {
            "kubectl-kcp" => Some(Self::Kcp),
            "kubectl-ws" | "kubectl-workspace" | "kubectl-workspaces" => Some(Self::Workspace),
            "kubectl-create-workspace" | "kubectl-create_workspace" => Some(Self::CreateWorkspace),
            _ => None,
        }
    }

    /// Arguments that replace the name of the program.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kcp => &["fairlead", "kcp"],
            Self::Workspace => &["fairlead", "ws"],
            Self::CreateWorkspace => &["fairlead", "ws", "create"],
        }
    }
}

/// The commands of kcp's `kubectl kcp`
#[derive(Debug, Args)]
pub(crate) struct KcpCommand {
    #[command(subcommand)]
    pub verb: KcpVerb,
}

/// A command of `kubectl kcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum KcpVerb {
    /// Enter, create and list workspaces
    #[command(name = "workspace", visible_aliases = ["ws", "workspaces"])]
    Workspace(WsCommand),
    /// Bind the API of another workspace
    Bind(BindCommand),
    /// Show, accept and reject permission claims
    Claims(ClaimsCommand),
    /// Convert CRDs to APIResourceSchemas
    Crd(CrdCommand),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_selected_by_the_name_of_the_program() {
        for (program, plugin) in [
            ("/usr/bin/kubectl-ws", Some(Plugin::Workspace)),
            ("kubectl-workspace", Some(Plugin::Workspace)),
            ("kubectl-create-workspace", Some(Plugin::CreateWorkspace)),
            ("bin/kubectl-kcp", Some(Plugin::Kcp)),
            ("fairlead", None),
            ("", None),
        ] {
            assert_eq!(Plugin::from_program_name(Path::new(program)), plugin, "{program}");
        }
    }
}
