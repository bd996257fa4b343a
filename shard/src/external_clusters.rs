//! Logical clusters of other shards, reached through the gateway by a credential of the group
//! `system:kcp:external-logical-cluster-admin`.

use std::path::Path;

use bytes::Bytes;
use fairlead_client::{
    Client, ClientError, ClientOptions, CredentialsError, Kubeconfig, KubeconfigError, UnverifiedTls,
};

/// The context of the kubeconfig; its current context if it has none of this name.
const CONTEXT: &str = "external-logical-cluster-admin";

/// A client of all logical clusters.
pub(crate) struct ExternalClusters(Client);

/// The kubeconfig cannot be used; the operator has to correct it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExternalClustersError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl ExternalClusters {
    /// The server and the credential of a kubeconfig.
    pub(crate) fn new(kubeconfig: &Path) -> Result<Self, ExternalClustersError> {
        let kubeconfig = Kubeconfig::load(kubeconfig)?;
        let context = kubeconfig.resolve(Some(CONTEXT)).or_else(|_| kubeconfig.resolve(None))?;
        Ok(Self(Client::from_context(&context, UnverifiedTls::Refuse, ClientOptions::default())?))
    }

    /// The object at a path of a logical cluster, as JSON; `None` if it does not exist.
    pub(crate) async fn get(&self, cluster: &str, path: &str) -> Result<Option<Bytes>, ClientError> {
        match self.0.get(&format!("/clusters/{cluster}{path}")).await {
            Ok(response) => Ok(Some(response.body)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
