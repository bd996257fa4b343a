//! `fairlead certs`: certificates of an installation that `up` does not run.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use fairlead_certs::{Error, Inventory, InventoryError, Layout, Plan, Renewal};

use crate::kubeconfigs::{Addresses, InternalAddresses, KubeconfigFolder};
use crate::output::print;

/// Issue missing certificates, renew expiring ones, write kubeconfigs
#[derive(Debug, Args)]
pub(crate) struct CertsInit {
    /// Directory of the certificates
    #[arg(long, default_value = ".fairlead/pki", value_name = "DIR")]
    dir: PathBuf,
    /// Names of the shards
    #[arg(long, value_delimiter = ',', default_value = "root", value_name = "NAME,..")]
    shards: Vec<String>,
    /// Host names and addresses of the servers besides localhost
    #[arg(long = "host", value_delimiter = ',', value_name = "HOST,..")]
    hosts: Vec<String>,
    /// URL of the gateway, for admin.kubeconfig
    #[arg(long, default_value = "https://localhost:6443", value_name = "URL")]
    gateway_url: String,
    /// URL of the root shard, for the kubeconfigs of servers
    #[arg(long, requires = "cache_url", value_name = "URL")]
    root_shard_url: Option<String>,
    /// URL of the cache server, for the kubeconfigs of shards
    #[arg(long, requires = "root_shard_url", value_name = "URL")]
    cache_url: Option<String>,
    /// Renew all certificates now; authorities stay
    #[arg(long)]
    renew: bool,
}

/// Errors of `fairlead certs`.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum CertsError {
    /// An invalid name on the command line.
    Inventory(#[from] InventoryError),
    /// A directory that cannot be used.
    Directory(#[from] Error),
}

impl CertsInit {
    /// Applies the plan to the directory and prints a table of its certificates.
    pub(crate) fn run(&self) -> Result<(), CertsError> {
        let inventory = Inventory::parse(&self.shards, &self.hosts)?;
        let layout = Layout::new(&self.dir);
        let renewal = if self.renew { Renewal::EveryLeaf } else { Renewal::WhenDue };
        let report = Plan::for_inventory(&inventory).apply(&layout, SystemTime::now(), renewal)?;
        print(report);
        if self.dir.parent().is_some_and(|installation| installation.join("state.json").exists()) {
            print(
                "`fairlead up` has an installation here: its kubeconfigs embed certificates, and are renewed at its next start.\n",
            );
            return Ok(());
        }
        let inner = self.root_shard_url.clone().zip(self.cache_url.clone());
        let addresses = Addresses {
            gateway: self.gateway_url.clone(),
            inner: inner.map(|(root_shard, cache)| InternalAddresses { root_shard, cache }),
        };
        let folder = self.dir.join("kubeconfigs");
        let admin = folder.join("admin.kubeconfig");
        for path in KubeconfigFolder::new(folder).write(&layout, &addresses, &admin)? {
            print(format_args!("Kubeconfig: {}\n", path.display()));
        }
        Ok(())
    }
}
