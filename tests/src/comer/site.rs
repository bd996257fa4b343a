//! Everything started, with the commands that the pattern's README has.

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

/// How long an answer may pause at the CDN. CloudFlare's limit is 100 s; the edge's `watchKeepAlive` is made shorter alike.
pub const READ_LIMIT: Duration = Duration::from_secs(2);

/// The edge's name.
const EDGE: &str = "api.comer.example.com";

/// The running pattern. Dropped, all of it ends.
pub struct Comer {
    directory: PathBuf,
    servers: Vec<Server>,
    cdn: Cdn,
    processes: Vec<Process>,
}

impl Comer {
    /// Makes certificates, writes the pattern's files, lets `fairlead config lint` look at them, and starts everything;
    /// returns when all is ready. The directory should be empty.
    ///
    /// # Errors
    /// What could not be made or started.
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
            let asked = match server.name {
                // It takes nobody else.
                "edge" => client(&self.at_the_cdn(), self.trust(&self.public_authority())?)?,
                // It has no such path.
                "issuer" => continue,
                "internal" => client(&self.internal(), admin.clone())?,
                _ => client(&format!("https://127.0.0.1:{}", server.port), trust.clone())?,
            };
            if let Some(process) = self.processes.get_mut(place) {
                process.until(|| ready(&asked)).await?;
            }
        }
        Ok(())
    }

    /// Signs in at the issuer.
    ///
    /// # Errors
    /// [`ComerError::SignIn`] tells at which step.
    pub async fn sign_in(&self, user: &str) -> Result<String, ComerError> {
        let authorities = self.layout().serving_ca();
        let trust = self.trust(&authorities)?;
        sign_in(&self.url("issuer"), &authorities, &trust, &self.home("login"), user).await
    }

    /// Where the CDN is.
    pub fn at_the_cdn(&self) -> String {
        format!("https://{}", self.cdn.address())
    }

    /// Where the edge gateway itself is.
    pub fn around_the_cdn(&self) -> String {
        self.url("edge")
    }

    /// Where the internal gateway is.
    pub fn internal(&self) -> String {
        self.url("internal")
    }

    /// The authority that the CDN's clients believe.
    pub fn public_authority(&self) -> PathBuf {
        self.directory.join("cdn/public-ca.crt")
    }

    /// The certificate that the CDN shows its origin.
    pub fn origin_pull(&self) -> PathBuf {
        self.directory.join("cdn/origin-pull.crt")
    }

    /// The certificates of the installation.
    pub fn layout(&self) -> Layout {
        Layout::new(self.directory.join("pki"))
    }

    /// A home for somebody.
    pub fn home(&self, name: &str) -> PathBuf {
        self.directory.join("home").join(name)
    }

    /// Where it lies.
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

/// Starts the CDN, with the certificates that are its own.
async fn cdn(directory: &Path, origin: SocketAddr) -> Result<Cdn, ComerError> {
    let folder = directory.join("cdn");
    let public = Authority::new("the CDN's authority")?;
    // A group that would count, if the certificate did.
    let zone = Authority::new("origin pulls of our zone")?;
    let pull = zone.client("origin-pull", "system:masters")?;
    write(&folder.join("public-ca.crt"), &public.pem)?;
    write(&folder.join("origin-pull-ca.crt"), &zone.pem)?;
    write(&folder.join("networks"), "# Those of this CDN.\n127.0.0.0/8\n")?;
    write_pair(&folder.join("origin-pull"), &pull)?;
    let authorities = Layout::new(directory.join("pki")).serving_ca();
    let towards_origin = Credentials::new(TrustRoots::Pem(read(&authorities)?))?
        .with_certificate(pull.certificate.as_bytes(), pull.key.as_bytes())?;
    let options = CdnOptions {
        public: public.server(&["127.0.0.1", EDGE])?.server_config()?,
        origin,
        towards_origin: (**towards_origin.tls_config()).clone(),
        origin_name: ServerName::try_from(EDGE).map_err(|error| ComerError::Missing(error.to_string()))?,
        asks_by_name: true,
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
