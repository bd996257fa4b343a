//! The provider of an API: its credentials, and the endpoint slice with the URLs of its consumers' objects.

use std::fmt;

use http::Uri;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Config};

use crate::error::Error;

/// An APIExportEndpointSlice and the credentials for it and its endpoints.
#[derive(Clone)]
pub struct Provider {
    config: Config,
    slices: Api<DynamicObject>,
    slice: String,
}

impl Provider {
    /// A provider. The URL of `config` is that of the slice's workspace; its credentials are used for the endpoints, too.
    /// Needs a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Client`] if the credentials cannot be used.
    pub fn new(config: Config, slice: impl Into<String>) -> Result<Self, Error> {
        let kind = GroupVersionKind::gvk("apis.kcp.io", "v1alpha1", "APIExportEndpointSlice");
        let client = client_at(&config, config.cluster_url.clone())?;
        let slices = Api::all_with(client, &ApiResource::from_gvk(&kind));
        Ok(Self { config, slices, slice: slice.into() })
    }

    pub(crate) fn slices(&self) -> Api<DynamicObject> {
        self.slices.clone()
    }

    pub(crate) fn slice(&self) -> &str {
        &self.slice
    }

    /// A client of an endpoint of the slice.
    pub(crate) fn endpoint_client(&self, url: &str) -> Result<Client, Error> {
        let parsed = url.parse().map_err(|source| Error::Url { url: url.to_owned(), source })?;
        client_at(&self.config, parsed)
    }
}

// Without the configuration, whose headers may have credentials.
impl fmt::Debug for Provider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.config.cluster_url;
        formatter.debug_struct("Provider").field("server", server).field("slice", &self.slice).finish()
    }
}

fn client_at(config: &Config, cluster_url: Uri) -> Result<Client, Error> {
    let url = cluster_url.to_string();
    let mut config = config.clone();
    config.cluster_url = cluster_url;
    Client::try_from(config).map_err(|source| Error::Client { url, source: Box::new(source) })
}
