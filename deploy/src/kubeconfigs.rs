//! The kubeconfigs of an installation: who reaches whom with which certificate.

use std::path::{Path, PathBuf};

use fairlead_certs::{Client, Error, Kubeconfig, Layout};

/// Where the servers are.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// The gateway, for people.
    pub gateway: String,
    /// The servers, for each other; `None` if only people are to get a kubeconfig.
    pub inner: Option<InnerAddresses>,
}

/// How the servers reach each other.
#[derive(Clone, Debug)]
pub(crate) struct InnerAddresses {
    /// The root shard.
    pub root_shard: String,
    /// The cache server.
    pub cache: String,
}

/// The folder with the kubeconfigs of servers. File names are kcp's where it has one.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The root shard as `shard-admin`: for the gateway's index and for the other shards.
    pub(crate) fn root_shard(&self) -> PathBuf {
        self.0.join("root-shard.kubeconfig")
    }

    /// Every shard as `shard-admin`; the server in it is the root shard's, which readers replace.
    pub(crate) fn shards(&self) -> PathBuf {
        self.0.join("shards.kubeconfig")
    }

    /// The cache server, for shards.
    pub(crate) fn cache(&self) -> PathBuf {
        self.0.join("cache.kubeconfig")
    }

    /// Shards as `logical-cluster-admin`, for shards.
    pub(crate) fn logical_cluster_admin(&self) -> PathBuf {
        self.0.join("logical-cluster-admin.kubeconfig")
    }

    /// Writes all that the addresses allow; `admin` is the path of the people's one. Returns what was written.
    pub(crate) fn write(
        &self,
        layout: &Layout,
        addresses: &Addresses,
        admin: &Path,
    ) -> Result<Vec<PathBuf>, Error> {
        let mut all = vec![(admin.to_owned(), Kubeconfig::admin(layout, &addresses.gateway)?)];
        if let Some(InnerAddresses { root_shard, cache }) = &addresses.inner {
            let shard_admin = single(layout, root_shard, "base", "shard-base", &Client::ShardAdmin)?;
            let creator = single(layout, root_shard, "base", "base", &Client::LogicalClusterAdmin)?;
            let cache = single(layout, cache, "cache", "cache", &Client::Cache)?;
            all.push((self.root_shard(), shard_admin.clone()));
            all.push((self.shards(), shard_admin));
            all.push((self.logical_cluster_admin(), creator));
            all.push((self.cache(), cache));
        }
        for (path, kubeconfig) in &all {
            kubeconfig.write(path)?;
        }
        Ok(all.into_iter().map(|(path, _)| path).collect())
    }
}

/// A kubeconfig with one server, one user and one context.
fn single(
    layout: &Layout,
    url: &str,
    cluster: &str,
    context: &str,
    client: &Client,
) -> Result<Kubeconfig, Error> {
    let path = layout.serving_ca();
    let authority =
        std::fs::read_to_string(&path).map_err(|source| Error::Io { attempt: "read", path, source })?;
    Kubeconfig::builder()
        .cluster(cluster, url, &authority)
        .client(layout, client)?
        .context(context, cluster, &client.user_name())
        .current(context)
        .build()
}
