//! The kubeconfigs of an installation: one per pair of client and server.

use std::path::{Path, PathBuf};

use fairlead_certs::{Client, Error, Kubeconfig, Layout};

/// URLs of the servers.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// URL of the gateway, for users.
    pub gateway: String,
    /// URLs for requests between servers; `None` writes only the kubeconfig of the administrator.
    pub inner: Option<InternalAddresses>,
}

/// URLs for requests between servers.
#[derive(Clone, Debug)]
pub(crate) struct InternalAddresses {
    /// URL of the root shard.
    pub root_shard: String,
    /// URL of the cache server.
    pub cache: String,
}

/// The folder with the kubeconfigs of servers. File names are those of kcp where it has one.
#[derive(Clone, Debug)]
pub(crate) struct KubeconfigFolder(PathBuf);

impl KubeconfigFolder {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The root shard as `shard-admin`: for the gateway's index and for the other shards.
    pub(crate) fn root_shard(&self) -> PathBuf {
        self.0.join("root-shard.kubeconfig")
    }

    /// Every shard as `shard-admin`. Its server is the root shard; readers replace it.
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

    /// The gateway as `external-logical-cluster-admin`, for shards: objects of logical clusters on other shards.
    pub(crate) fn external_logical_cluster_admin(&self) -> PathBuf {
        self.0.join("external-logical-cluster-admin.kubeconfig")
    }

    /// Writes the kubeconfigs that the addresses allow; `admin` is the path of the administrator's one. Returns their paths.
    pub(crate) fn write(
        &self,
        layout: &Layout,
        addresses: &Addresses,
        admin: &Path,
    ) -> Result<Vec<PathBuf>, Error> {
        let mut all = vec![(admin.to_owned(), Kubeconfig::admin(layout, &addresses.gateway)?)];
        if let Some(InternalAddresses { root_shard, cache }) = &addresses.inner {
            let shard_admin = single(layout, root_shard, "base", "shard-base", &Client::ShardAdmin)?;
            let creator = single(layout, root_shard, "base", "base", &Client::LogicalClusterAdmin)?;
            let cache = single(layout, cache, "cache", "cache", &Client::Cache)?;
            let context = "external-logical-cluster-admin";
            let external = &Client::ExternalLogicalClusterAdmin;
            let external = single(layout, &addresses.gateway, "base", context, external)?;
            all.push((self.root_shard(), shard_admin.clone()));
            all.push((self.shards(), shard_admin));
            all.push((self.logical_cluster_admin(), creator));
            all.push((self.external_logical_cluster_admin(), external));
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
