//! Certificates for one test, in the layout of `fairlead certs init`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fairlead_certs::{
    CertificateFiles, Client as Role, Inventory, Kubeconfig, Layout, Plan, Renewal, Server, ShardName,
};
use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, TrustRoots};

use super::HarnessError;

/// An installation's PKI in a directory of the test.
pub struct Pki {
    layout: Layout,
    plan: Plan,
}

impl Pki {
    /// Issues everything for these shards.
    pub fn new(directory: &Path, shards: &[&str]) -> Result<Self, HarnessError> {
        let inventory = Inventory::parse(shards, ["localhost"])?;
        let pki = Self { layout: Layout::new(directory), plan: Plan::for_inventory(&inventory) };
        pki.issue(Renewal::default())?;
        Ok(pki)
    }

    /// Issues the certificates that are due; see [`Renewal`] for how to rotate all.
    pub fn issue(&self, renewal: Renewal) -> Result<(), HarnessError> {
        self.plan.apply(&self.layout, SystemTime::now(), renewal)?;
        Ok(())
    }

    /// The layout of the files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Certificate and key of a shard's listener.
    pub fn shard(&self, name: &str) -> Result<CertificateFiles, HarnessError> {
        let name: ShardName = name.parse()?;
        Ok(self.layout.serving_cert(&Server::Shard(name)))
    }

    /// Credentials of a role, with trust in the servers of the installation.
    pub fn credentials(&self, role: &Role) -> Result<Credentials, HarnessError> {
        let files = self.layout.client_cert(role);
        let trust = Credentials::new(TrustRoots::Pem(read(&self.layout.serving_ca())?))?;
        Ok(trust.with_certificate(&read(&files.certificate)?, &read(&files.key)?)?)
    }

    /// Trust in the servers of the installation, without an identity.
    pub fn anonymous(&self) -> Result<Credentials, HarnessError> {
        Ok(Credentials::new(TrustRoots::Pem(read(&self.layout.serving_ca())?))?)
    }

    /// A client of the server at a port of the loopback interface.
    pub fn client(&self, port: u16, credentials: Credentials) -> Result<Client, HarnessError> {
        let url = format!("https://localhost:{port}");
        let endpoint = Endpoint::parse(&url).map_err(|error| HarnessError::System {
            what: "parsing the URL of a server".to_owned(),
            source: std::io::Error::other(error),
        })?;
        Ok(Client::new(endpoint, credentials, ClientOptions::default()))
    }

    /// Writes the kubeconfig of `kcp-admin` for the gateway at a port of the loopback interface, and returns its path.
    pub fn admin_kubeconfig(&self, port: u16) -> Result<PathBuf, HarnessError> {
        let path = self.layout.directory().join("admin.kubeconfig");
        Kubeconfig::admin(&self.layout, &format!("https://localhost:{port}"))?.write(&path)?;
        Ok(path)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, HarnessError> {
    std::fs::read(path).map_err(HarnessError::system(format!("reading {}", path.display())))
}
