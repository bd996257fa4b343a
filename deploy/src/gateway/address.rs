//! The address of a gateway, and the credentials for its admin API.

use std::path::{Path, PathBuf};

use clap::Args;
use fairlead_certs::Client as Identity;
use fairlead_client::{Client, ClientOptions, Kubeconfig, UnverifiedTls, default_kubeconfig_path};

use super::admin_client::AdminClientError;
use crate::installation::Installation;
use crate::installation::default_directory;
use crate::up::client;

/// Selects a gateway.
#[derive(Clone, Debug, Args)]
pub(super) struct GatewayAddress {
    /// Directory of an installation of `fairlead up`; the default without $KUBECONFIG is .fairlead
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    dir: Option<PathBuf>,
    /// An operator's kubeconfig, in place of $KUBECONFIG
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
}

/// The source of address and credentials.
#[derive(Debug, PartialEq)]
enum Source {
    Installation(PathBuf),
    Kubeconfig(PathBuf),
}

impl GatewayAddress {
    /// A client of the gateway, without a workspace in its path.
    pub(super) fn client(&self) -> Result<Client, AdminClientError> {
        let is_set = std::env::var_os("KUBECONFIG").is_some_and(|list| !list.is_empty());
        // `--context` implies a kubeconfig.
        let from_environment =
            if is_set || self.context.is_some() { default_kubeconfig_path() } else { None };
        match self.source(from_environment) {
            Source::Kubeconfig(file) => self.kubeconfig_client(&file),
            Source::Installation(directory) => {
                let installation = Installation::at(&directory)?;
                let running = installation.running_up()?.is_some();
                let state = installation.read_state().filter(|_| running);
                let state =
                    state.ok_or_else(|| AdminClientError::NotRunning(installation.directory().to_owned()))?;
                Ok(client(&state.gateway, &Identity::Admin, &installation.certificates())?)
            }
        }
    }

    fn kubeconfig_client(&self, file: &Path) -> Result<Client, AdminClientError> {
        let context = Kubeconfig::load(file)?.resolve(self.context.as_deref())?;
        let client = Client::from_context(&context, UnverifiedTls::Allow, ClientOptions::default());
        let client = client
            .map_err(|source| AdminClientError::KubeconfigCredentials { file: file.to_owned(), source })?;
        Ok(client.with_prefix(""))
    }

    /// Flags take precedence over the environment.
    fn source(&self, from_environment: Option<PathBuf>) -> Source {
        let installation = || self.dir.clone().map(Source::Installation);
        let named = self.kubeconfig.clone().map(Source::Kubeconfig).or_else(installation);
        named
            .or_else(|| from_environment.map(Source::Kubeconfig))
            .unwrap_or_else(|| Source::Installation(default_directory().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_take_precedence_over_the_environment_and_that_over_the_default() {
        let (file, folder) =
            (|| Source::Kubeconfig("file".into()), |name: &str| Source::Installation(name.into()));
        let variable = || Some(PathBuf::from("variable"));
        for (kubeconfig, dir, environment, expected) in [
            (Some("file"), None, variable(), file()),
            (Some("file"), None, None, file()),
            (None, Some("folder"), variable(), folder("folder")),
            (None, None, variable(), Source::Kubeconfig("variable".into())),
            (None, None, None, folder(".fairlead")),
        ] {
            let address = GatewayAddress {
                dir: dir.map(PathBuf::from),
                kubeconfig: kubeconfig.map(PathBuf::from),
                context: None,
            };
            assert_eq!(address.source(environment), expected, "{address:?}");
        }
    }
}
