//! The processes of an installation and their addresses. Pure, but for the reservation of ports.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

use super::UpError;

/// The role of a process. The order is that of stopping: clients before their servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Gateway,
    Issuer,
    Shard,
    Cache,
    Etcd,
}

impl Role {
    /// All roles, in the order of stopping.
    pub(crate) const ALL: [Self; 5] = [Self::Gateway, Self::Issuer, Self::Shard, Self::Cache, Self::Etcd];

    /// The program of the role.
    pub(crate) fn program(&self) -> &'static str {
        match self {
            Self::Gateway => "fairlead-gateway",
            Self::Issuer => "fairlead-issuer",
            Self::Shard => "fairlead-shard",
            Self::Cache => "fairlead-cache-server",
            Self::Etcd => "etcd",
        }
    }
}

/// A process to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// `gateway`, `cache`, `issuer`, `etcd`, or the name of the shard. Its files have this name, too.
    pub name: String,
    pub role: Role,
    /// Listen address.
    pub address: SocketAddr,
}

impl Process {
    /// Base URL.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// All processes of an installation: the gateway first, then the shards with the root shard first, then the etcd, if there is one,
/// then the cache, then the issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    pub processes: Vec<Process>,
    /// Address of the gateway's listener for tokens.
    pub edge: SocketAddr,
}

/// Name of the process that is an etcd. Its data is in the folder of this name.
pub(crate) const ETCD: &str = "etcd";

/// The store of the shards of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StoreKind {
    /// A file for each shard
    File,
    /// An etcd with one member, and a prefix in it for each shard
    Etcd,
}

/// The ports that the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedPorts {
    pub gateway: u16,
    /// The listener for tokens; `None` for any.
    pub edge: Option<u16>,
    /// The etcd; `None` for any.
    pub etcd: Option<u16>,
}

/// Name of the port of the gateway's listener for tokens, among ports by process name. No process has this name.
pub(crate) const EDGE: &str = "edge";

impl Topology {
    /// One gateway with its listener for tokens, `shards` shards, a cache server and an issuer, and an etcd if the store is one.
    /// `before` has the ports of an earlier run by process name. They are used again if they are free, because
    /// stored objects may name them. The ports are reserved while [`Ports`] lives.
    pub(crate) fn plan(
        shards: u32,
        store: StoreKind,
        wanted: WantedPorts,
        before: &BTreeMap<String, u16>,
    ) -> Result<(Self, Ports), UpError> {
        let mut ports = Ports::default();
        let gateway = ports.reserve_exactly(wanted.gateway)?;
        let edge = match wanted.edge {
            Some(port) => ports.reserve_exactly(port)?,
            None => ports.reserve_preferred(before.get(EDGE))?,
        };
        let mut processes =
            vec![Process { name: "gateway".to_owned(), role: Role::Gateway, address: gateway }];
        let etcd = (store == StoreKind::Etcd).then(|| (ETCD.to_owned(), Role::Etcd));
        let inner = shard_names(shards)
            .map(|name| (name, Role::Shard))
            .chain(etcd)
            .chain([("cache".to_owned(), Role::Cache), ("issuer".to_owned(), Role::Issuer)]);
        for (name, role) in inner {
            let address = match wanted.etcd.filter(|_| role == Role::Etcd) {
                Some(port) => ports.reserve_exactly(port)?,
                None => ports.reserve_preferred(before.get(&name))?,
            };
            processes.push(Process { name, role, address });
        }
        Ok((Self { processes, edge }, ports))
    }

    pub(crate) fn gateway(&self) -> &Process {
        &self.processes[0]
    }

    pub(crate) fn root_shard(&self) -> &Process {
        &self.processes[1]
    }

    pub(crate) fn cache(&self) -> &Process {
        &self.processes[self.processes.len() - 2]
    }

    pub(crate) fn issuer(&self) -> &Process {
        &self.processes[self.processes.len() - 1]
    }

    pub(crate) fn etcd(&self) -> Option<&Process> {
        self.processes.iter().find(|process| process.role == Role::Etcd)
    }

    /// URL of the gateway's listener for tokens.
    pub(crate) fn edge_url(&self) -> String {
        format!("https://{}", self.edge)
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| process.role == Role::Shard)
    }
}

/// `root`, `shard-1`, `shard-2`, ..
pub(crate) fn shard_names(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(|index| match index {
        0 => "root".to_owned(),
        index => format!("shard-{index}"),
    })
}

/// Number of shards that serve all existing data; 0 without data.
pub(crate) fn shards_with_data(processes: &[String]) -> u32 {
    let count = |name: &String| match name.as_str() {
        "root" => Some(1),
        name => name.strip_prefix("shard-")?.parse::<u32>().ok()?.checked_add(1),
    };
    processes.iter().filter_map(count).max().unwrap_or(0)
}

/// Reserved ports of an installation. The system does not give them to a program that asks for any port, neither before the
/// processes listen nor during a restart.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    held: Vec<TcpSocket>,
}

impl Ports {
    fn reserve_exactly(&mut self, port: u16) -> Result<SocketAddr, UpError> {
        self.reserve(port).map_err(|source| refuse_port(port, source))
    }

    /// Reserves the port of an earlier run if it is free, else any.
    fn reserve_preferred(&mut self, before: Option<&u16>) -> Result<SocketAddr, UpError> {
        match before.map(|port| self.reserve(*port)) {
            Some(Ok(address)) => Ok(address),
            _ => self.reserve(0).map_err(UpError::NoFreePort),
        }
    }

    /// Reserves a port that has no listener; 0 means any. The socket is bound but does not listen, so a server with
    /// SO_REUSEADDR can still listen there.
    fn reserve(&mut self, port: u16) -> io::Result<SocketAddr> {
        // SO_REUSEADDR would allow a second reservation.
        if self.held.iter().any(|held| held.local_addr().is_ok_and(|known| known == local(port))) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(local(port))?;
        let address = socket.local_addr()?;
        self.held.push(socket);
        Ok(address)
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn refuse_port(port: u16, source: io::Error) -> UpError {
    match source.kind() {
        io::ErrorKind::AddrInUse => UpError::PortInUse { port },
        _ => UpError::Port { port, source },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::TcpListener;

    use super::*;

    fn wanted(gateway: u16, edge: Option<u16>) -> WantedPorts {
        WantedPorts { gateway, edge, etcd: None }
    }

    fn plan(
        shards: u32,
        gateway: u16,
        edge: Option<u16>,
        before: &BTreeMap<String, u16>,
    ) -> Result<(Topology, Ports), UpError> {
        Topology::plan(shards, StoreKind::File, wanted(gateway, edge), before)
    }

    #[test]
    fn an_installation_has_a_gateway_shards_and_a_cache_on_ports_of_their_own() {
        let (topology, _ports) = plan(3, 0, None, &BTreeMap::new()).unwrap();
        let names: Vec<_> = topology.processes.iter().map(|process| process.name.as_str()).collect();
        assert_eq!(names, ["gateway", "root", "shard-1", "shard-2", "cache", "issuer"]);
        assert_eq!(topology.gateway().role, Role::Gateway);
        assert_eq!(topology.root_shard().name, "root");
        assert_eq!(topology.cache().role, Role::Cache);
        assert_eq!(topology.issuer().role, Role::Issuer);
        assert_eq!(topology.shards().count(), 3);
        let mut ports: Vec<_> = topology.processes.iter().map(|process| process.address.port()).collect();
        ports.push(topology.edge.port());
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 7);
    }

    #[test]
    fn an_etcd_stops_after_its_clients_and_is_at_its_port() {
        let free_port = TcpListener::bind(local(0)).unwrap().local_addr().unwrap().port();
        let ports = WantedPorts { etcd: Some(free_port), ..wanted(0, None) };
        let (topology, _ports) = Topology::plan(1, StoreKind::Etcd, ports, &BTreeMap::new()).unwrap();
        let names: Vec<_> = topology.processes.iter().map(|process| process.name.as_str()).collect();
        assert_eq!(names, ["gateway", "root", "etcd", "cache", "issuer"]);
        assert_eq!(topology.etcd().unwrap().address.port(), free_port);
        assert_eq!((&topology.cache().role, &topology.issuer().role), (&Role::Cache, &Role::Issuer));
        assert_eq!(Role::ALL.last(), Some(&Role::Etcd));
    }

    #[test]
    fn ports_are_kept_while_they_are_free() {
        let taken = TcpListener::bind(local(0)).unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let free_port = TcpListener::bind(local(0)).unwrap().local_addr().unwrap().port();
        let other_port = TcpListener::bind(local(0)).unwrap().local_addr().unwrap().port();
        let before = [("root", free_port), ("cache", taken_port), (EDGE, other_port)];
        let before = before.map(|(name, port)| (name.to_owned(), port)).into();
        let (topology, _ports) = plan(1, 0, None, &before).unwrap();
        assert_eq!(topology.edge.port(), other_port);
        assert_eq!(topology.root_shard().address.port(), free_port);
        assert_ne!(topology.cache().address.port(), taken_port);
        let refused = plan(1, taken_port, None, &before).unwrap_err();
        assert!(matches!(refused, UpError::PortInUse { port } if port == taken_port), "{refused}");
        let refused = plan(1, 0, Some(taken_port), &before).unwrap_err();
        assert!(matches!(refused, UpError::PortInUse { port } if port == taken_port), "{refused}");
        let (topology, _ports) = plan(1, other_port, None, &before).unwrap();
        assert_ne!(topology.edge.port(), other_port, "the gateway has it");
        let refused = plan(1, free_port, Some(free_port), &BTreeMap::new()).unwrap_err();
        assert!(matches!(refused, UpError::PortInUse { port } if port == free_port), "{refused}");
    }

    #[test]
    fn a_reserved_port_can_be_listened_on_repeatedly_and_is_given_to_no_other_program() {
        let (topology, ports) = plan(1, 0, None, &BTreeMap::new()).unwrap();
        let address = topology.root_shard().address;
        for _ in 0..2 {
            let server = TcpListener::bind(address).unwrap();
            assert!(Ports::default().reserve(address.port()).is_err(), "there is a listener");
            drop(server);
        }
        // A program without SO_REUSEADDR gets the port only after the reservation has ended.
        let other_program = || tokio::net::TcpSocket::new_v4().unwrap().bind(address);
        assert!(other_program().is_err());
        drop(ports);
        other_program().unwrap();
    }

    #[test]
    fn the_number_of_shards_follows_from_the_data() {
        for (names, shards) in [
            (&[] as &[&str], 0),
            (&["cache"], 0),
            (&["cache", "root"], 1),
            (&["root", "shard-3", "shard-x", "lost+found"], 4),
        ] {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(shards_with_data(&names), shards, "{names:?}");
        }
    }
}
