//! Starts all servers of the pattern, with the commands of its README.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fairlead_certs::{Client as Role, Layout};
use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, TrustRoots};
use rustls_pki_types::ServerName;
use tokio::process::Command;

use super::ComerError;
use super::certificates::{Authority, Leaf};
use super::files::{self, Server};
use super::sign_in::sign_in;
use crate::cdn::{Cdn, CdnOptions};
use crate::harness::{HarnessError, Process, Program, binary, ready};

/// Time that a response may pause at the CDN. CloudFlare's limit is 100 s; the edge's `watchKeepAlive` is shortened in
/// proportion.
pub const READ_LIMIT: Duration = Duration::from_secs(2);

/// The public host name of the edge.
const EDGE: &str = "api.comer.example.com";

/// The running pattern. Dropping it stops all of it.
pub struct Comer {
    directory: PathBuf,
    servers: Vec<Server>,
    cdn: Cdn,
    processes: Vec<Process>,
}

impl Comer {
    /// Creates certificates, writes the pattern's files, checks them with `fairlead config lint`, and starts everything.
    /// Returns when all servers are ready. The directory should be empty.
    ///
    /// # Errors
    /// If a file cannot be written or a server does not start.
    pub async fn start(directory: &Path) -> Result<Self, ComerError> {
        for folder in ["cdn", "data", "logs", "home"] {
            let folder = directory.join(folder);
            fs::create_dir_all(&folder).map_err(ComerError::file(folder))?;
        }
        let servers = files::servers()?;
        let port = |name: &str| {
            let found = servers.iter().find(|server| server.name == name);
            found.map(|server| server.port).ok_or_else(|| ComerError::Missing(format!("no server {name}")))
        };
        let url = |name: &str| Ok::<_, ComerError>(format!("https://127.0.0.1:{}", port(name)?));
        fairlead(directory, &format!(
            "certs init --dir pki --shards root,alpha --host {EDGE},api-internal.comer.example.com --gateway-url {} \
             --root-shard-url {} --cache-url {}",
            url("internal")?, url("root")?, url("cache")?
        ))
        .await?;
        let cdn = cdn(directory, SocketAddr::from((Ipv4Addr::LOCALHOST, port("edge")?))).await?;
        write(&directory.join("users.yaml"), files::USERS)?;
        write(&directory.join("rights.yaml"), files::RIGHTS)?;
        for server in &servers {
            let text = files::configuration(
                server,
                &servers,
                &format!("https://{}", cdn.address()),
                &url("issuer")?,
            )?;
            let file = format!("{}.yaml", server.name);
            write(&directory.join(&file), &text)?;
            fairlead(directory, &format!("config lint {} {file}", server.kind)).await?;
        }
        let mut comer = Self { directory: directory.to_owned(), servers, cdn, processes: Vec::new() };
        comer.start_servers().await?;
        Ok(comer)
    }

    async fn start_servers(&mut self) -> Result<(), ComerError> {
        let layout = self.layout();
        for server in &self.servers {
            let file = format!("{}.yaml", server.name);
            let program =
                Program::new(server.program, &self.directory)?.named(&format!("logs/{}", server.name));
            self.processes.push(program.args(["--config".to_owned(), file]).start()?);
        }
        let trust = self.trust(&layout.serving_ca())?;
        let admin = self.certificate(trust.clone(), &layout.client_cert(&Role::Admin).certificate)?;
        for (place, server) in self.servers.iter().enumerate() {
            let probed = match server.name {
                // The edge accepts connections from the CDN only.
                "edge" => client(&self.cdn_url(), self.trust(&self.public_authority())?)?,
                // The issuer has no readiness endpoint.
                "issuer" => continue,
                "internal" => client(&self.internal_url(), admin.clone())?,
                _ => client(&format!("https://127.0.0.1:{}", server.port), trust.clone())?,
            };
            if let Some(process) = self.processes.get_mut(place) {
                process.until(|| ready(&probed)).await?;
            }
        }
        Ok(())
    }

    /// Signs in at the issuer.
    ///
    /// # Errors
    /// [`ComerError::SignIn`] names the failed step.
    pub async fn sign_in(&self, user: &str) -> Result<String, ComerError> {
        let authorities = self.layout().serving_ca();
        let trust = self.trust(&authorities)?;
        sign_in(&self.url("issuer"), &authorities, &trust, &self.home("login"), user).await
    }

    /// The URL of the CDN.
    pub fn cdn_url(&self) -> String {
        format!("https://{}", self.cdn.address())
    }

    /// The URL of the edge gateway, without the CDN.
    pub fn edge_url(&self) -> String {
        self.url("edge")
    }

    /// The URL of the internal gateway.
    pub fn internal_url(&self) -> String {
        self.url("internal")
    }

    /// The authority that the CDN's clients trust.
    pub fn public_authority(&self) -> PathBuf {
        self.directory.join("cdn/public-ca.crt")
    }

    /// The client certificate of the CDN for its origin.
    pub fn origin_pull_certificate(&self) -> PathBuf {
        self.directory.join("cdn/origin-pull.crt")
    }

    /// The certificates of the installation.
    pub fn layout(&self) -> Layout {
        Layout::new(self.directory.join("pki"))
    }

    /// A home directory for a user of this name.
    pub fn home(&self, name: &str) -> PathBuf {
        self.directory.join("home").join(name)
    }

    /// The directory of the pattern.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn url(&self, name: &str) -> String {
        let port = self.servers.iter().find(|server| server.name == name).map_or(0, |server| server.port);
        format!("https://127.0.0.1:{port}")
    }

    fn trust(&self, authorities: &Path) -> Result<Credentials, ComerError> {
        Ok(Credentials::new(TrustRoots::Pem(read(authorities)?))?)
    }

    fn certificate(&self, credentials: Credentials, certificate: &Path) -> Result<Credentials, ComerError> {
        Ok(credentials.with_certificate(&read(certificate)?, &read(&certificate.with_extension("key"))?)?)
    }
}

/// Starts the CDN with certificates of its own.
async fn cdn(directory: &Path, origin: SocketAddr) -> Result<Cdn, ComerError> {
    let folder = directory.join("cdn");
    let public = Authority::new("the CDN's authority")?;
    // The group would grant all rights if the certificate counted as an identity.
    let zone = Authority::new("origin pulls of our zone")?;
    let pull = zone.client("origin-pull", "system:masters")?;
    write(&folder.join("public-ca.crt"), &public.pem)?;
    write(&folder.join("origin-pull-ca.crt"), &zone.pem)?;
    write(&folder.join("networks"), "# The networks of this CDN.\n127.0.0.0/8\n")?;
    write_pair(&folder.join("origin-pull"), &pull)?;
    let authorities = Layout::new(directory.join("pki")).serving_ca();
    let towards_origin = Credentials::new(TrustRoots::Pem(read(&authorities)?))?
        .with_certificate(pull.certificate.as_bytes(), pull.key.as_bytes())?;
    let options = CdnOptions {
        public: public.server(&["127.0.0.1", EDGE])?.server_config()?,
        origin,
        towards_origin: (**towards_origin.tls_config()).clone(),
        origin_name: ServerName::try_from(EDGE).map_err(|error| ComerError::Missing(error.to_string()))?,
        rewrites_host: true,
        idle: READ_LIMIT,
        streams: 100,
    };
    Cdn::start(options).await.map_err(|error| HarnessError::system("starting the CDN")(error).into())
}

async fn fairlead(directory: &Path, line: &str) -> Result<(), ComerError> {
    let output = Command::new(binary("fairlead")?)
        .args(line.split_whitespace())
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(HarnessError::system("running fairlead"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    Err(ComerError::Command { line: line.to_owned(), status: output.status, printed })
}

fn client(url: &str, credentials: Credentials) -> Result<Client, ComerError> {
    let endpoint = Endpoint::parse(url).map_err(|error| ComerError::Missing(error.to_string()))?;
    Ok(Client::new(endpoint, credentials, ClientOptions::default()))
}

fn write_pair(stem: &Path, leaf: &Leaf) -> Result<(), ComerError> {
    write(&stem.with_extension("crt"), &leaf.certificate)?;
    write(&stem.with_extension("key"), &leaf.key)
}

fn write(path: &Path, text: &str) -> Result<(), ComerError> {
    fs::write(path, text).map_err(ComerError::file(path))
}

fn read(path: &Path) -> Result<Vec<u8>, ComerError> {
    fs::read(path).map_err(ComerError::file(path))
}
