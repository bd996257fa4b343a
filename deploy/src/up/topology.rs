//! Which processes make up an installation, and where they listen. Pure but for the ports, which it asks for.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

use super::UpError;

/// What a process does; in the order in which they are stopped: nobody stops before those who need it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Gateway,
    Issuer,
    Shard,
    Cache,
}

impl Role {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Gateway, Self::Issuer, Self::Shard, Self::Cache];

    /// The program that plays the role.
    pub(crate) fn program(&self) -> &'static str {
        match self {
            Self::Gateway => "fairlead-gateway",
            Self::Issuer => "fairlead-issuer",
            Self::Shard => "fairlead-shard",
            Self::Cache => "fairlead-cache-server",
        }
    }
}

/// A process to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// `gateway`, `cache`, `issuer`, or the shard's name; also that of its files.
    pub name: String,
    pub role: Role,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Process {
    /// How others reach it.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// All processes of an installation: the gateway first, then the shards with the root shard first, then the cache, then
/// the issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    pub processes: Vec<Process>,
    /// Where the gateway's door for tokens listens.
    pub edge: SocketAddr,
}

/// What `up` calls the port of the gateway's door for tokens among those of processes, none of which has this name.
pub(crate) const EDGE: &str = "edge";

impl Topology {
    /// One gateway at `port`, with its door for tokens at `edge` if that is given; `shards` shards, a cache server and an
    /// issuer. `before` are the ports of an earlier run by process name: they are used again if they are free, because
    /// other objects may mention them. No other program is given any of them while [`Ports`] live.
    pub(crate) fn plan(
        shards: u32,
        port: u16,
        edge: Option<u16>,
        before: &BTreeMap<String, u16>,
    ) -> Result<(Self, Ports), UpError> {
        let mut ports = Ports::default();
        let gateway = ports.wanted(port)?;
        let edge = match edge {
            Some(port) => ports.wanted(port)?,
            None => ports.any(before.get(EDGE))?,
        };
        let mut processes =
            vec![Process { name: "gateway".to_owned(), role: Role::Gateway, address: gateway }];
        let inner = shard_names(shards)
            .map(|name| (name, Role::Shard))
            .chain([("cache".to_owned(), Role::Cache), ("issuer".to_owned(), Role::Issuer)]);
        for (name, role) in inner {
            let address = ports.any(before.get(&name))?;
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

    /// How people reach the gateway's door for tokens.
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

/// How many shards it takes to serve all the data that is there; 0 if there is none.
pub(crate) fn shards_with_data(processes: &[String]) -> u32 {
    let count = |name: &String| match name.as_str() {
        "root" => Some(1),
        name => name.strip_prefix("shard-")?.parse::<u32>().ok()?.checked_add(1),
    };
    processes.iter().filter_map(count).max().unwrap_or(0)
}

/// The ports of an installation, which the system gives to nobody who asks for any: not before the processes listen there, nor
/// while one of them is started again.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    held: Vec<TcpSocket>,
}

impl Ports {
    fn wanted(&mut self, port: u16) -> Result<SocketAddr, UpError> {
        self.reserve(port).map_err(|source| refuse_port(port, source))
    }

    /// The one of before if it is free.
    fn any(&mut self, before: Option<&u16>) -> Result<SocketAddr, UpError> {
        match before.map(|port| self.reserve(*port)) {
            Some(Ok(address)) => Ok(address),
            _ => self.reserve(0).map_err(UpError::NoFreePort),
        }
    }

    /// One that nobody listens at, 0 for any. Whoever may share an address (SO_REUSEADDR), as servers do, can listen there,
    /// because nobody listens here.
    fn reserve(&mut self, port: u16) -> io::Result<SocketAddr> {
        // For the same reason it could be reserved twice.
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

    #[test]
    fn an_installation_has_a_gateway_shards_and_a_cache_on_ports_of_their_own() {
        let (topology, _ports) = Topology::plan(3, 0, None, &BTreeMap::new()).unwrap();
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
    fn ports_are_kept_while_they_are_free() {
        let taken = TcpListener::bind(local(0)).unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let free_port = TcpListener::bind(local(0)).unwrap().local_addr().unwrap().port();
        let other_port = TcpListener::bind(local(0)).unwrap().local_addr().unwrap().port();
        let before = [("root", free_port), ("cache", taken_port), (EDGE, other_port)];
        let before = before.map(|(name, port)| (name.to_owned(), port)).into();
        let (topology, _ports) = Topology::plan(1, 0, None, &before).unwrap();
        assert_eq!(topology.edge.port(), other_port);
        assert_eq!(topology.root_shard().address.port(), free_port);
        assert_ne!(topology.cache().address.port(), taken_port);
        let refused = Topology::plan(1, taken_port, None, &before).unwrap_err();
        assert!(matches!(refused, UpError::PortInUse { port } if port == taken_port), "{refused}");
        let refused = Topology::plan(1, 0, Some(taken_port), &before).unwrap_err();
        assert!(matches!(refused, UpError::PortInUse { port } if port == taken_port), "{refused}");
        let (topology, _ports) = Topology::plan(1, other_port, None, &before).unwrap();
        assert_ne!(topology.edge.port(), other_port, "it is the gateway's now");
        let refused = Topology::plan(1, free_port, Some(free_port), &BTreeMap::new()).unwrap_err();
        assert!(matches!(refused, UpError::PortInUse { port } if port == free_port), "{refused}");
    }

    #[test]
    fn a_port_is_a_servers_to_listen_at_again_and_again_and_nobody_elses() {
        let (topology, ports) = Topology::plan(1, 0, None, &BTreeMap::new()).unwrap();
        let address = topology.root_shard().address;
        for _ in 0..2 {
            let server = TcpListener::bind(address).unwrap();
            assert!(Ports::default().reserve(address.port()).is_err(), "somebody listens there");
            drop(server);
        }
        // Whoever does not insist gets it only when the installation is gone.
        let somebody = || tokio::net::TcpSocket::new_v4().unwrap().bind(address);
        assert!(somebody().is_err());
        drop(ports);
        somebody().unwrap();
    }

    #[test]
    fn data_tells_how_many_shards_there_were() {
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
