//! The contestants: the gateway, other HTTP proxies, and the backend without a proxy.

mod config;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlead_certs::{Client, Server};
use fairlead_tests::harness::{Pki, Process, Program, binary, free_port};

use crate::error::BenchError;
use crate::tls;
use crate::usage::Tree;
use crate::wire::{Connection, Protocol, RequestSpec, ResponseEvent};

/// A contestant, in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Kind {
    Gateway,
    /// The gateway with access log, and with traces for one request in a hundred.
    Observed,
    /// The gateway with quotas of each kind and queueing before shards; no limit is reached.
    Limited,
    /// The gateway with log, traces, quotas and queueing.
    Appliance,
    Hyper,
    Haproxy,
    Nginx,
    /// Stock pingora: the package `tests/bench/pingora`.
    Pingora,
    Kcp,
    Direct,
}

impl Kind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Gateway,
        Self::Observed,
        Self::Limited,
        Self::Appliance,
        Self::Hyper,
        Self::Haproxy,
        Self::Nginx,
        Self::Pingora,
        Self::Kcp,
        Self::Direct,
    ];
    /// The contestants that take part by default.
    pub(crate) const USUAL: [Self; 8] = [
        Self::Gateway,
        Self::Appliance,
        Self::Hyper,
        Self::Haproxy,
        Self::Nginx,
        Self::Pingora,
        Self::Kcp,
        Self::Direct,
    ];

    /// The name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Observed => "gateway+log",
            Self::Limited => "gateway+limits",
            Self::Appliance => "gateway+all",
            Self::Hyper => "hyper",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Pingora => "pingora",
            Self::Kcp => "kcp-front-proxy",
            Self::Direct => "direct",
        }
    }

    fn is_foreign(self) -> bool {
        matches!(self, Self::Haproxy | Self::Nginx | Self::Pingora | Self::Kcp)
    }

    /// The command that installs it.
    fn hint(self) -> &'static str {
        match self {
            Self::Haproxy => "apt-get install haproxy",
            Self::Nginx => "apt-get install nginx",
            Self::Pingora => "make bench-gateway builds it",
            Self::Kcp => "name the program in $KCP_FRONT_PROXY",
            Self::Gateway | Self::Observed | Self::Limited | Self::Appliance | Self::Hyper | Self::Direct => {
                "cargo build --release"
            }
        }
    }
}

/// A running contestant.
pub(crate) struct Contestant {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) tree: Tree,
    process: Process,
}

/// The backend and all running contestants.
pub(crate) struct Contestants {
    pub(crate) running: Vec<Contestant>,
    /// The address of the backend.
    pub(crate) backend: SocketAddr,
    /// The contestants that are not installed, each with the command that installs it.
    pub(crate) missing: Vec<String>,
}

/// Files and certificates of the contestants.
pub(crate) struct Environment {
    directory: tempfile::TempDir,
    pub(crate) pki: Pki,
}

/// The cores for the processes, in the format of `taskset -c`. `None` means all cores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cores {
    pub(crate) proxy: Option<String>,
    pub(crate) backend: Option<String>,
}

impl Environment {
    pub(crate) fn new() -> Result<Self, BenchError> {
        let directory = tempfile::tempdir().map_err(BenchError::system("making a directory"))?;
        let pki = Pki::new(&directory.path().join("pki"), &["root"])?;
        Ok(Self { directory, pki })
    }

    /// TLS with the client certificate of the user.
    pub(crate) fn user_tls(&self, protocol: Protocol) -> Result<Arc<rustls::ClientConfig>, BenchError> {
        let layout = self.pki.layout();
        tls::client(&layout.serving_ca(), Some(&layout.client_cert(&Client::Admin)), protocol.alpn())
    }

    /// TLS without a client certificate, for requests with tokens.
    pub(crate) fn anonymous_tls(&self, protocol: Protocol) -> Result<Arc<rustls::ClientConfig>, BenchError> {
        tls::client(&self.pki.layout().serving_ca(), None, protocol.alpn())
    }

    /// Starts the backend and the installed contestants of these kinds, and waits until each responds.
    pub(crate) async fn start_all(&self, kinds: &[Kind], cores: &Cores) -> Result<Contestants, BenchError> {
        let port = free_port()?;
        let backend = program(Kind::Direct, this_program()?, self.directory.path(), cores.backend.as_deref());
        let backend =
            backend.args(["backend", "--port", &port.to_string(), "--pki"]).args([self.layout_path()]);
        let backend = self.ready(Kind::Direct, port, backend.start()?).await?;
        let mut contestants =
            Contestants { running: Vec::new(), backend: backend.address, missing: Vec::new() };
        for kind in kinds.iter().copied().filter(|kind| *kind != Kind::Direct) {
            match self.start(kind, port, cores).await {
                Ok(Some(contestant)) => contestants.running.push(contestant),
                Ok(None) => contestants.missing.push(format!("{}: {}", kind.name(), kind.hint())),
                // A failure of another proxy does not stop the measurement.
                Err(error) if kind.is_foreign() => {
                    eprintln!("{}: {error}", kind.name());
                    contestants.missing.push(format!("{}: it did not start", kind.name()));
                }
                Err(error) => return Err(error),
            }
        }
        contestants.running.push(backend);
        Ok(contestants)
    }

    async fn start(&self, kind: Kind, backend: u16, cores: &Cores) -> Result<Option<Contestant>, BenchError> {
        let path = match kind {
            Kind::Gateway | Kind::Observed | Kind::Limited | Kind::Appliance => {
                Some(binary("fairlead-gateway")?)
            }
            Kind::Hyper | Kind::Direct => Some(this_program()?),
            Kind::Haproxy => installed("haproxy"),
            Kind::Nginx => installed("nginx"),
            Kind::Pingora => std::env::current_exe().ok().map(|path| path.with_file_name("stock-pingora")),
            Kind::Kcp => std::env::var_os("KCP_FRONT_PROXY").map(PathBuf::from),
        };
        let Some(path) = path.filter(|path| path.is_file()) else { return Ok(None) };
        let directory = self.directory.path().join(kind.name());
        let made = std::fs::create_dir_all(&directory);
        made.map_err(BenchError::system("making a directory"))?;
        let port = free_port()?;
        let setup = config::Setup { directory: &directory, layout: self.pki.layout(), port, backend };
        let arguments = match kind {
            Kind::Gateway => setup.gateway(&[])?,
            Kind::Observed => setup.gateway(&[setup.observed()])?,
            Kind::Limited => setup.gateway(&[setup.limited()])?,
            Kind::Appliance => setup.gateway(&[setup.observed(), setup.limited()])?,
            Kind::Haproxy => setup.haproxy()?,
            Kind::Nginx => setup.nginx()?,
            Kind::Pingora => setup.pingora(),
            Kind::Kcp => setup.kcp_front_proxy()?,
            Kind::Hyper | Kind::Direct => setup.forwarder(),
        };
        let program = program(kind, path, &directory, cores.proxy.as_deref()).args(arguments);
        Ok(Some(self.ready(kind, port, program.start()?).await?))
    }

    /// Waits until an ordinary request gets a response.
    async fn ready(&self, kind: Kind, port: u16, mut process: Process) -> Result<Contestant, BenchError> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let tls = self.user_tls(Protocol::Http1)?;
        process.until(|| responds(address, Arc::clone(&tls))).await?;
        let tree = Tree::of(kind.name(), process.id())?;
        Ok(Contestant { kind, address, tree, process })
    }

    fn layout_path(&self) -> PathBuf {
        self.pki.layout().directory().to_owned()
    }
}

impl Contestants {
    /// Kills all contestants and waits for their end.
    pub(crate) async fn stop(self) -> Result<(), BenchError> {
        for mut contestant in self.running {
            contestant.process.kill().await?;
        }
        Ok(())
    }
}

/// A request for the object that most measurements read.
pub(crate) fn object() -> RequestSpec {
    in_workspace("/api/v1/namespaces/default/configmaps/one")
}

/// A request for a watch of the backend's events.
pub(crate) fn watch() -> RequestSpec {
    in_workspace("/api/v1/configmaps?watch=true")
}

/// A request for a list of this many bytes.
pub(crate) fn list(bytes: usize) -> RequestSpec {
    in_workspace(&format!("/api/v1/configmaps?bytes={bytes}"))
}

fn in_workspace(rest: &str) -> RequestSpec {
    RequestSpec { path: format!("/clusters/root:{}{rest}", crate::root_shard::WORKSPACE), token: None }
}

/// Server certificates of the backend and of the forwarder, which are separate processes.
pub(crate) fn server_tls(pki: &Path) -> Result<Arc<rustls::ServerConfig>, BenchError> {
    let layout = fairlead_certs::Layout::new(pki);
    let (clients, proxies) = (layout.client_ca(), layout.requestheader_ca());
    tls::server(&layout.serving_cert(&Server::Gateway), &[&clients, &proxies])
}

/// The forwarder's client certificate for the backend.
pub(crate) fn proxy_tls(pki: &Path) -> Result<Arc<rustls::ClientConfig>, BenchError> {
    let layout = fairlead_certs::Layout::new(pki);
    tls::client(&layout.serving_ca(), Some(&layout.client_cert(&Client::FrontProxy)), tls::H2)
}

async fn responds(address: SocketAddr, tls: Arc<rustls::ClientConfig>) -> Result<(), BenchError> {
    let mut connection = Connection::open(address, &tls, Protocol::Http1, &object()).await?;
    connection.send();
    connection.flush().await?;
    let mut events = Vec::new();
    while !events.iter().any(|event| matches!(event, ResponseEvent::End { .. })) {
        connection.receive(&mut events).await?;
    }
    match events.first() {
        Some(ResponseEvent::Head { is_success: true, .. }) => Ok(()),
        _ => Err(BenchError::unexpected("a response is not 200")),
    }
}

fn program(kind: Kind, path: PathBuf, directory: &Path, cores: Option<&str>) -> Program {
    let program = match cores {
        Some(cores) => Program::at("taskset".into(), kind.name(), directory).args(["-c", cores]).args([path]),
        None => Program::at(path, kind.name(), directory),
    };
    // nginx's workers outlive a killed master.
    program.killed_with_descendants()
}

fn this_program() -> Result<PathBuf, BenchError> {
    std::env::current_exe().map_err(BenchError::system("finding this program"))
}

/// Debian installs servers to folders that are not on every user's PATH.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    places.map(|place| place.join(name)).find(|path| path.is_file())
}
