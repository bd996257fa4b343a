//! `fairlead certs`: the certificates of an installation that is run by other means than `up`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use fairlead_certs::{Error, Inventory, InventoryError, Layout, Plan, Renewal};

use crate::kubeconfigs::{Addresses, Folder, InnerAddresses};
use crate::output::print;

/// Issue what is missing, renew what is near its end, write kubeconfigs.
#[derive(Debug, Args)]
pub(crate) struct CertsInit {
    /// Where the certificates go
    #[arg(long, default_value = ".fairlead/pki", value_name = "DIR")]
    dir: PathBuf,
    /// Names of the shards
    #[arg(long, value_delimiter = ',', default_value = "root", value_name = "NAME,..")]
    shards: Vec<String>,
    /// Names and addresses of the servers besides localhost
    #[arg(long = "host", value_delimiter = ',', value_name = "HOST,..")]
    hosts: Vec<String>,
    /// Where people reach the gateway, for admin.kubeconfig
    #[arg(long, default_value = "https://localhost:6443", value_name = "URL")]
    gateway_url: String,
    /// Where servers reach the root shard, for their kubeconfigs
    #[arg(long, requires = "cache_url", value_name = "URL")]
    root_shard_url: Option<String>,
    /// Where shards reach the cache server, for their kubeconfigs
    #[arg(long, requires = "root_shard_url", value_name = "URL")]
    cache_url: Option<String>,
    /// Renew all certificates now, however long they are still valid; authorities stay
    #[arg(long)]
    renew: bool,
}

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum CertsError {
    /// A name on the command line.
    Inventory(#[from] InventoryError),
    /// The directory.
    Directory(#[from] Error),
}

impl CertsInit {
    /// Makes the directory as it should be and prints a table of it.
    pub(crate) fn run(&self) -> Result<(), CertsError> {
        let inventory = Inventory::parse(&self.shards, &self.hosts)?;
        let layout = Layout::new(&self.dir);
        let renewal = if self.renew { Renewal::EveryLeaf } else { Renewal::WhenDue };
        let report = Plan::for_inventory(&inventory).apply(&layout, SystemTime::now(), renewal)?;
        print(report);
        if self.dir.parent().is_some_and(|site| site.join("state.json").exists()) {
            print(
                "`fairlead up` runs here: its kubeconfigs embed certificates, and are renewed when it starts again.\n",
            );
            return Ok(());
        }
        let inner = self.root_shard_url.clone().zip(self.cache_url.clone());
        let addresses = Addresses {
            gateway: self.gateway_url.clone(),
            inner: inner.map(|(root_shard, cache)| InnerAddresses { root_shard, cache }),
        };
        let folder = self.dir.join("kubeconfigs");
        let admin = folder.join("admin.kubeconfig");
        for path in Folder::new(folder).write(&layout, &addresses, &admin)? {
            print(format_args!("Kubeconfig: {}\n", path.display()));
        }
        Ok(())
    }
}
