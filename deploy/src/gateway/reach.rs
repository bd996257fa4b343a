//! Where the gateway is, and as whom it is asked.

use std::path::PathBuf;

use clap::Args;
use fairlead_certs::Client as Identity;
use fairlead_client::{Client, ClientOptions, Kubeconfig, UnverifiedTls};

use super::ask::AskError;
use crate::command::default_directory;
use crate::site::Site;
use crate::up::client;

/// Which gateway.
#[derive(Clone, Debug, Args)]
pub(super) struct Reach {
    /// Where an installation of `fairlead up` is kept, whose gateway is asked
    #[arg(long, default_value = default_directory().as_os_str(), conflicts_with = "kubeconfig")]
    dir: PathBuf,
    /// An operator's kubeconfig, for a gateway somewhere else
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, requires = "kubeconfig")]
    context: Option<String>,
}

impl Reach {
    /// A client of the gateway, at no workspace.
    pub(super) fn client(&self) -> Result<Client, AskError> {
        if let Some(file) = &self.kubeconfig {
            let context = Kubeconfig::load(file)?.resolve(self.context.as_deref())?;
            let client = Client::from_context(&context, UnverifiedTls::Allow, ClientOptions::default())?;
            return Ok(client.with_prefix(""));
        }
        let site = Site::at(&self.dir)?;
        let running = site.occupant()?.is_some();
        let record = site.read_record().filter(|_| running);
        let record = record.ok_or_else(|| AskError::NotRunning(site.directory().to_owned()))?;
        Ok(client(&record.gateway, &Identity::Admin, &site.certificates())?)
    }
}
