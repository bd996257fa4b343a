//! What is compared: our gateway, what else forwards HTTP, and the backend without anything before it.

mod config;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlead_certs::{Client, Server};
use fairlead_tests::harness::{Pki, Process, Program, binary, free_port};

use crate::error::BenchError;
use crate::tls;
use crate::usage::Tree;
use crate::wire::{Ask, Connection, Protocol, Seen};

/// One of those that are compared, in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Kind {
    Gateway,
    /// The gateway with access log and traces, of which one request in a hundred has one.
    Observed,
    /// The gateway with quotas of each kind and turns at shards, none of which refuses anything.
    Limited,
    /// The gateway with all of that.
    Appliance,
    Hyper,
    Haproxy,
    Nginx,
    Kcp,
    Direct,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Gateway,
        Self::Observed,
        Self::Limited,
        Self::Appliance,
        Self::Hyper,
        Self::Haproxy,
        Self::Nginx,
        Self::Kcp,
        Self::Direct,
    ];
    /// Those that take part unless others are named.
    pub(crate) const USUAL: [Self; 7] =
        [Self::Gateway, Self::Appliance, Self::Hyper, Self::Haproxy, Self::Nginx, Self::Kcp, Self::Direct];

    /// What the table calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Observed => "gateway+log",
            Self::Limited => "gateway+limits",
            Self::Appliance => "gateway+all",
            Self::Hyper => "hyper",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Kcp => "kcp-front-proxy",
            Self::Direct => "direct",
        }
    }

    fn is_foreign(self) -> bool {
        matches!(self, Self::Haproxy | Self::Nginx | Self::Kcp)
    }

    /// How it comes onto this machine if it is not there.
    fn hint(self) -> &'static str {
        match self {
            Self::Haproxy => "apt-get install haproxy",
            Self::Nginx => "apt-get install nginx",
            Self::Kcp => "name the program in $KCP_FRONT_PROXY",
            Self::Gateway | Self::Observed | Self::Limited | Self::Appliance | Self::Hyper | Self::Direct => {
                "cargo build --release"
            }
        }
    }
}

/// One that runs.
pub(crate) struct Contestant {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) tree: Tree,
    process: Process,
}

/// The backend and everything before it.
pub(crate) struct Field {
    pub(crate) contestants: Vec<Contestant>,
    /// The backend itself.
    pub(crate) backend: SocketAddr,
    /// Those that are not installed, each with what helps.
    pub(crate) missing: Vec<String>,
}

/// Where everything is that a field is made of.
pub(crate) struct Ground {
    directory: tempfile::TempDir,
    pub(crate) pki: Pki,
}

/// On which cores processes run, as `taskset -c` wants them; anywhere if that is not said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cores {
    pub(crate) proxy: Option<String>,
    pub(crate) backend: Option<String>,
}

impl Ground {
    pub(crate) fn new() -> Result<Self, BenchError> {
        let directory = tempfile::tempdir().map_err(BenchError::system("making a directory"))?;
        let pki = Pki::new(&directory.path().join("pki"), &["root"])?;
        Ok(Self { directory, pki })
    }

    /// The certificate of the user who asks.
    pub(crate) fn user_tls(&self, protocol: Protocol) -> Result<Arc<rustls::ClientConfig>, BenchError> {
        let layout = self.pki.layout();
        tls::client(&layout.serving_ca(), Some(&layout.client_cert(&Client::Admin)), protocol.alpn())
    }

    /// No certificate: what counts is the token.
    pub(crate) fn anonymous_tls(&self, protocol: Protocol) -> Result<Arc<rustls::ClientConfig>, BenchError> {
        tls::client(&self.pki.layout().serving_ca(), None, protocol.alpn())
    }

    /// Starts the backend, then those of these kinds that are installed, and waits until each answers.
    pub(crate) async fn field(&self, kinds: &[Kind], cores: &Cores) -> Result<Field, BenchError> {
        let port = free_port()?;
        let backend = program(Kind::Direct, this_program()?, self.directory.path(), cores.backend.as_deref());
        let backend =
            backend.args(["backend", "--port", &port.to_string(), "--pki"]).args([self.layout_path()]);
        let backend = self.ready(Kind::Direct, port, backend.start()?).await?;
        let mut field = Field { contestants: Vec::new(), backend: backend.address, missing: Vec::new() };
        for kind in kinds.iter().copied().filter(|kind| *kind != Kind::Direct) {
            match self.start(kind, port, cores).await {
                Ok(Some(contestant)) => field.contestants.push(contestant),
                Ok(None) => field.missing.push(format!("{}: {}", kind.name(), kind.hint())),
                // What others cannot do is no reason to measure nothing.
                Err(error) if kind.is_foreign() => {
                    eprintln!("{}: {error}", kind.name());
                    field.missing.push(format!("{}: it did not start", kind.name()));
                }
                Err(error) => return Err(error),
            }
        }
        field.contestants.push(backend);
        Ok(field)
    }

    async fn start(&self, kind: Kind, backend: u16, cores: &Cores) -> Result<Option<Contestant>, BenchError> {
        let path = match kind {
            Kind::Gateway | Kind::Observed | Kind::Limited | Kind::Appliance => {
                Some(binary("fairlead-gateway")?)
            }
            Kind::Hyper | Kind::Direct => Some(this_program()?),
            Kind::Haproxy => installed("haproxy"),
            Kind::Nginx => installed("nginx"),
            Kind::Kcp => std::env::var_os("KCP_FRONT_PROXY").map(PathBuf::from),
        };
        let Some(path) = path.filter(|path| path.is_file()) else { return Ok(None) };
        let directory = self.directory.path().join(kind.name());
        let made = std::fs::create_dir_all(&directory);
        made.map_err(BenchError::system("making a directory"))?;
        let port = free_port()?;
        let place = config::Place { directory: &directory, layout: self.pki.layout(), port, backend };
        let arguments = match kind {
            Kind::Gateway => place.gateway(&[])?,
            Kind::Observed => place.gateway(&[place.observed()])?,
            Kind::Limited => place.gateway(&[place.limited()])?,
            Kind::Appliance => place.gateway(&[place.observed(), place.limited()])?,
            Kind::Haproxy => place.haproxy()?,
            Kind::Nginx => place.nginx()?,
            Kind::Kcp => place.kcp_front_proxy()?,
            Kind::Hyper | Kind::Direct => place.forwarder(),
        };
        let program = program(kind, path, &directory, cores.proxy.as_deref()).args(arguments);
        Ok(Some(self.ready(kind, port, program.start()?).await?))
    }

    /// Waits until an ordinary request is answered.
    async fn ready(&self, kind: Kind, port: u16, mut process: Process) -> Result<Contestant, BenchError> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let tls = self.user_tls(Protocol::Http1)?;
        process.until(|| answers(address, Arc::clone(&tls))).await?;
        let tree = Tree::of(kind.name(), process.id())?;
        Ok(Contestant { kind, address, tree, process })
    }

    fn layout_path(&self) -> PathBuf {
        self.pki.layout().directory().to_owned()
    }
}

impl Field {
    /// Ends all of them, and waits for that.
    pub(crate) async fn stop(self) -> Result<(), BenchError> {
        for mut contestant in self.contestants {
            contestant.process.kill().await?;
        }
        Ok(())
    }
}

/// The object that is read in most measurements.
pub(crate) fn object() -> Ask {
    in_workspace("/api/v1/namespaces/default/configmaps/one")
}

/// A watch of the backend's events.
pub(crate) fn watch() -> Ask {
    in_workspace("/api/v1/configmaps?watch=true")
}

/// A list of so many bytes.
pub(crate) fn list(bytes: usize) -> Ask {
    in_workspace(&format!("/api/v1/configmaps?bytes={bytes}"))
}

fn in_workspace(rest: &str) -> Ask {
    Ask { path: format!("/clusters/root:{}{rest}", crate::root_shard::WORKSPACE), token: None }
}

/// Certificates of a backend or forwarder that runs as a process of its own.
pub(crate) fn server_tls(pki: &Path) -> Result<Arc<rustls::ServerConfig>, BenchError> {
    let layout = fairlead_certs::Layout::new(pki);
    let (clients, proxies) = (layout.client_ca(), layout.requestheader_ca());
    tls::server(&layout.serving_cert(&Server::Gateway), &[&clients, &proxies])
}

/// How a forwarder that runs as a process of its own logs in to the backend.
pub(crate) fn proxy_tls(pki: &Path) -> Result<Arc<rustls::ClientConfig>, BenchError> {
    let layout = fairlead_certs::Layout::new(pki);
    tls::client(&layout.serving_ca(), Some(&layout.client_cert(&Client::FrontProxy)), tls::H2)
}

async fn answers(address: SocketAddr, tls: Arc<rustls::ClientConfig>) -> Result<(), BenchError> {
    let mut connection = Connection::open(address, &tls, Protocol::Http1, &object()).await?;
    connection.send();
    connection.flush().await?;
    let mut seen = Vec::new();
    while !seen.iter().any(|event| matches!(event, Seen::End { .. })) {
        connection.receive(&mut seen).await?;
    }
    match seen.first() {
        Some(Seen::Head { is_success: true, .. }) => Ok(()),
        _ => Err(BenchError::answer("an answer is not 200")),
    }
}

fn program(kind: Kind, path: PathBuf, directory: &Path, cores: Option<&str>) -> Program {
    match cores {
        Some(cores) => Program::at("taskset".into(), kind.name(), directory).args(["-c", cores]).args([path]),
        None => Program::at(path, kind.name(), directory),
    }
}

fn this_program() -> Result<PathBuf, BenchError> {
    std::env::current_exe().map_err(BenchError::system("finding this program"))
}

/// Debian keeps servers where not everybody looks.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    places.map(|place| place.join(name)).find(|path| path.is_file())
}
