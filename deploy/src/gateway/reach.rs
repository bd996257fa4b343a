//! Where the gateway is, and as whom it is asked.

use std::path::{Path, PathBuf};

use clap::Args;
use fairlead_certs::Client as Identity;
use fairlead_client::{Client, ClientOptions, Kubeconfig, UnverifiedTls, default_kubeconfig_path};

use super::ask::AskError;
use crate::command::default_directory;
use crate::site::Site;
use crate::up::client;

/// Which gateway.
#[derive(Clone, Debug, Args)]
pub(super) struct Reach {
    /// Where an installation of `fairlead up` is kept, whose gateway is asked; without it and $KUBECONFIG, .fairlead
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    dir: Option<PathBuf>,
    /// An operator's kubeconfig, in place of $KUBECONFIG
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
}

/// What is asked where.
#[derive(Debug, PartialEq)]
enum Place {
    Installation(PathBuf),
    Kubeconfig(PathBuf),
}

impl Reach {
    /// A client of the gateway, at no workspace.
    pub(super) fn client(&self) -> Result<Client, AskError> {
        let is_set = std::env::var_os("KUBECONFIG").is_some_and(|list| !list.is_empty());
        // Whoever names a context means a kubeconfig.
        let by_environment = if is_set || self.context.is_some() { default_kubeconfig_path() } else { None };
        match self.place(by_environment) {
            Place::Kubeconfig(file) => self.client_by(&file),
            Place::Installation(directory) => {
                let site = Site::at(&directory)?;
                let running = site.occupant()?.is_some();
                let record = site.read_record().filter(|_| running);
                let record = record.ok_or_else(|| AskError::NotRunning(site.directory().to_owned()))?;
                Ok(client(&record.gateway, &Identity::Admin, &site.certificates())?)
            }
        }
    }

    fn client_by(&self, file: &Path) -> Result<Client, AskError> {
        let context = Kubeconfig::load(file)?.resolve(self.context.as_deref())?;
        let client = Client::from_context(&context, UnverifiedTls::Allow, ClientOptions::default());
        let client = client.map_err(|source| AskError::OfKubeconfig { file: file.to_owned(), source })?;
        Ok(client.with_prefix(""))
    }

    /// What is said counts before what the environment says.
    fn place(&self, by_environment: Option<PathBuf>) -> Place {
        let installation = || self.dir.clone().map(Place::Installation);
        let named = self.kubeconfig.clone().map(Place::Kubeconfig).or_else(installation);
        named
            .or_else(|| by_environment.map(Place::Kubeconfig))
            .unwrap_or_else(|| Place::Installation(default_directory().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_counts_before_the_environment_and_that_before_what_is_usual() {
        let (file, folder) =
            (|| Place::Kubeconfig("file".into()), |name: &str| Place::Installation(name.into()));
        let variable = || Some(PathBuf::from("variable"));
        for (kubeconfig, dir, environment, expected) in [
            (Some("file"), None, variable(), file()),
            (Some("file"), None, None, file()),
            (None, Some("folder"), variable(), folder("folder")),
            (None, None, variable(), Place::Kubeconfig("variable".into())),
            (None, None, None, folder(".fairlead")),
        ] {
            let reach = Reach {
                dir: dir.map(PathBuf::from),
                kubeconfig: kubeconfig.map(PathBuf::from),
                context: None,
            };
            assert_eq!(reach.place(environment), expected, "{reach:?}");
        }
    }
}
