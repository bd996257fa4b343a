//! Preparation of an installation before its processes start: checks, certificates, configuration files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use fairlead_certs::{Action, Inventory, Kubeconfig, Plan, Renewal};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::UpError;
use super::settings::{USERS, config_files, login_arguments};
use super::topology::{
    EDGE, ETCD, Ports, Role, StoreKind, Topology, WantedPorts, shard_names, shards_with_data,
};
use crate::installation::{Installation, InstallationLock, SavedState, create_private_folder, replace};
use crate::kubeconfigs::{Addresses, InternalAddresses};

/// Lower limit of open files: below it a server has no room for its own files and a few connections.
const OPEN_FILES_NEEDED: u64 = 1_024;
/// Recommended limit of open files: below it a few thousand watches are refused.
const OPEN_FILES_RECOMMENDED: u64 = 16_384;
/// Time that the servers of a killed `up` get to end.
const ORPHAN_EXIT_TIME: Duration = Duration::from_secs(3);

/// Options of the command line.
#[derive(Clone, Debug)]
pub(crate) struct UpOptions {
    /// Number of shards; `None` for the default.
    pub shards: Option<u32>,
    pub ports: WantedPorts,
    /// The store of the shards; `None` for that of the data.
    pub store: Option<StoreKind>,
    pub fresh: bool,
}

/// Whether an installation has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataState {
    /// The installation has no data.
    New,
    /// The installation has data of an earlier run.
    Existing,
}

/// An installation that can be started.
#[derive(Debug)]
pub(crate) struct PreparedInstallation {
    pub topology: Topology,
    /// Reservation of its ports.
    pub ports: Ports,
    /// The program of each role.
    pub programs: BTreeMap<&'static str, PathBuf>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
    pub data_state: DataState,
    /// Start of the preparation.
    pub started_at: Instant,
    /// Exclusive use of the directory.
    pub lock: InstallationLock,
}

impl PreparedInstallation {
    /// Checks ports, programs and limits before it changes anything; then writes certificates, kubeconfigs and configurations.
    pub(crate) fn prepare(installation: &Installation, options: &UpOptions) -> Result<Self, UpError> {
        let started_at = Instant::now();
        let mut notes: Vec<_> = raise_open_files()?.into_iter().collect();
        let existing = existing_store(installation).filter(|_| !options.fresh);
        let store = choose_store(installation, existing, options.store)?;
        let programs = programs(store)?;
        let lock = installation.lock()?;
        let before = installation.read_state();
        // Ports are checked before `--fresh` deletes data.
        let with_data = if options.fresh { 0 } else { shards_with_data(&installation.processes_with_data()) };
        let shards = options.shards.unwrap_or(with_data.max(2));
        let (topology, ports) = plan(shards, store, options.ports, before.as_ref(), &lock)?;
        if options.fresh {
            installation.clear(&lock)?;
        }
        if shards < with_data {
            notes.push(format!(
                "there is data of {with_data} shards; workspaces on shards that are not started are unavailable"
            ));
        }
        notes.extend(write_files(installation, &topology)?);
        let data_state = if with_data == 0 { DataState::New } else { DataState::Existing };
        Ok(Self { topology, ports, programs, notes, data_state, started_at, lock })
    }
}

/// The ports of an earlier run by process name.
fn earlier_ports(state: Option<&SavedState>) -> BTreeMap<String, u16> {
    let processes = state.map(|state| state.processes.as_slice()).unwrap_or_default();
    let port = |url: &str| url.rsplit(':').next()?.parse().ok();
    let urls = processes.iter().map(|process| (process.name.as_str(), process.url.as_str()));
    let urls = urls.chain(state.map(|state| (EDGE, state.edge.as_str())));
    urls.filter_map(|(name, url)| Some((name.to_owned(), port(url)?))).collect()
}

fn plan(
    shards: u32,
    store: StoreKind,
    ports: WantedPorts,
    before: Option<&SavedState>,
    lock: &InstallationLock,
) -> Result<(Topology, Ports), UpError> {
    let before = earlier_ports(before);
    let deadline = Instant::now() + ORPHAN_EXIT_TIME;
    loop {
        match Topology::plan(shards, store, ports, &before) {
            // The servers of a killed `up` end within milliseconds, and there is no event for the end of a process that is not
            // a child.
            Err(UpError::PortInUse { .. }) if lock.is_after_crash() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

/// Writes certificates, kubeconfigs and configurations. Returns notes about certificates.
fn write_files(installation: &Installation, topology: &Topology) -> Result<Vec<String>, UpError> {
    let certificates = installation.certificates();
    let names = topology.shards().map(|shard| shard.name.as_str());
    let mut inventory = Inventory::parse(names, std::iter::empty::<&str>())?.with_issuer();
    if topology.etcd().is_some() {
        inventory = inventory.with_etcd();
    }
    let report = Plan::for_inventory(&inventory).apply(&certificates, SystemTime::now(), Renewal::WhenDue)?;
    let renewed = report.rows.iter().filter(|row| row.action == Action::Renewed).count();
    let mut notes = report.notes;
    if renewed > 0 {
        notes.push(format!("{renewed} certificates were renewed"));
    }
    let inner = InternalAddresses { root_shard: topology.root_shard().url(), cache: topology.cache().url() };
    let addresses = Addresses { gateway: topology.gateway().url(), inner: Some(inner) };
    installation.kubeconfigs().write(&certificates, &addresses, &installation.admin_kubeconfig())?;
    let program = std::env::current_exe().map_err(UpError::NoOwnPath)?;
    let arguments = login_arguments(installation, topology);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    Kubeconfig::with_credential_plugin(
        &certificates,
        &topology.edge_url(),
        &program.to_string_lossy(),
        &arguments,
    )?
    .write(&installation.edge_kubeconfig())?;
    if !installation.users().exists() {
        replace(&installation.users(), USERS.as_bytes())?;
    }
    create_private_folder(&installation.logs())?;
    create_private_folder(&installation.configs())?;
    for file in config_files(installation, topology)? {
        replace(&installation.config(&file.process), file.text.as_bytes())?;
    }
    for process in &topology.processes {
        create_private_folder(&installation.data(&process.name))?;
    }
    Ok(notes)
}

/// The store of the data; `None` if there is none.
fn existing_store(installation: &Installation) -> Option<StoreKind> {
    let names = installation.processes_with_data();
    if names.iter().any(|name| name == ETCD) {
        return Some(StoreKind::Etcd);
    }
    let shards = shard_names(shards_with_data(&names));
    let mut files = shards.map(|shard| installation.data(&shard).join("store.redb"));
    files.any(|file| file.exists()).then_some(StoreKind::File)
}

fn choose_store(
    installation: &Installation,
    existing: Option<StoreKind>,
    wanted: Option<StoreKind>,
) -> Result<StoreKind, UpError> {
    let name = |kind| match kind {
        StoreKind::File => "files",
        StoreKind::Etcd => "etcd",
    };
    match (existing, wanted) {
        (Some(found), Some(wanted)) if found != wanted => Err(UpError::OtherStore {
            directory: installation.directory().to_owned(),
            found: name(found),
            wanted: name(wanted),
        }),
        (found, wanted) => Ok(wanted.or(found).unwrap_or(StoreKind::File)),
    }
}

/// etcd, on the `PATH` or where `deploy/tools.sh` unpacks it, beside the folder of this program.
fn etcd_program(folder: &Path) -> Result<PathBuf, UpError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = folder.with_file_name("tools").join("usr/bin");
    let mut files = std::env::split_paths(&path).chain([unpacked.clone()]).map(|folder| folder.join(ETCD));
    files.find(|file| file.is_file()).ok_or(UpError::NoEtcd { folder: unpacked })
}

/// The programs of the servers, which are in the folder of this program, except for etcd.
fn programs(store: StoreKind) -> Result<BTreeMap<&'static str, PathBuf>, UpError> {
    let own = std::env::current_exe().map_err(UpError::NoOwnPath)?;
    let folder = own.parent().unwrap_or(&own).to_owned();
    let find = |role: Role| {
        let program = role.program();
        if role == Role::Etcd {
            return Ok((program, etcd_program(&folder)?));
        }
        let path = folder.join(program);
        if path.is_file() {
            Ok((program, path))
        } else {
            Err(UpError::NoProgram { program, folder: folder.clone() })
        }
    };
    let roles = Role::ALL.into_iter().filter(|role| *role != Role::Etcd || store == StoreKind::Etcd);
    roles.map(find).collect()
}

/// Raises the soft limit on open files to the hard one; the servers inherit it. Returns a note if it is low.
fn raise_open_files() -> Result<Option<String>, UpError> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // On failure the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    check_open_files(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

fn check_open_files(limit: u64) -> Result<Option<String>, UpError> {
    match limit {
        ..OPEN_FILES_NEEDED => Err(UpError::OpenFiles { limit, needed: OPEN_FILES_NEEDED }),
        OPEN_FILES_NEEDED..OPEN_FILES_RECOMMENDED => Ok(Some(format!(
            "only {limit} files may be open per process, which is enough to try Fairlead out; \
             `ulimit -n {OPEN_FILES_RECOMMENDED}` allows more connections"
        ))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::installation::SavedProcess;

    #[test]
    fn too_few_open_files_are_refused_and_few_are_mentioned() {
        assert!(matches!(check_open_files(1_023), Err(UpError::OpenFiles { limit: 1_023, .. })));
        assert!(check_open_files(1_024).unwrap().unwrap().contains("1024"));
        assert_eq!(check_open_files(16_384).unwrap(), None);
    }

    #[test]
    fn ports_of_an_earlier_run_are_read_by_process() {
        let process = |name: &str, url: &str| SavedProcess {
            name: name.to_owned(),
            url: url.to_owned(),
            condition: "ready".to_owned(),
            pid: None,
            since: None,
            restarts: 0,
            last_exit: None,
        };
        let state = SavedState {
            pid: 1,
            started: String::new(),
            gateway: String::new(),
            edge: "https://127.0.0.1:4712".to_owned(),
            processes: vec![process("root", "https://127.0.0.1:4711"), process("odd", "nowhere")],
        };
        assert_eq!(
            earlier_ports(Some(&state)),
            BTreeMap::from([("edge".to_owned(), 4712), ("root".to_owned(), 4711)])
        );
        assert!(earlier_ports(None).is_empty());
    }

    #[test]
    fn a_directory_keeps_its_kind_of_store() {
        let folder = tempfile::tempdir().unwrap();
        let installation = Installation::at(folder.path()).unwrap();
        let choose = |wanted| choose_store(&installation, existing_store(&installation), wanted);
        // The folders of an installation that never ran.
        std::fs::create_dir_all(installation.data("root")).unwrap();
        assert_eq!(choose(None).unwrap(), StoreKind::File);
        assert_eq!(choose(Some(StoreKind::Etcd)).unwrap(), StoreKind::Etcd);
        std::fs::write(installation.data("root").join("store.redb"), "").unwrap();
        assert_eq!(choose(None).unwrap(), StoreKind::File);
        let refused = choose(Some(StoreKind::Etcd)).unwrap_err();
        assert!(refused.to_string().ends_with("is in files, not in etcd"), "{refused}");
        assert!(refused.hint().unwrap().contains("fairlead store copy"));
        std::fs::remove_file(installation.data("root").join("store.redb")).unwrap();
        std::fs::create_dir_all(installation.data("etcd")).unwrap();
        assert_eq!(choose(None).unwrap(), StoreKind::Etcd);
        let refused = choose(Some(StoreKind::File)).unwrap_err();
        assert!(refused.to_string().ends_with("is in etcd, not in files"), "{refused}");
    }

    #[test]
    fn a_port_in_use_leaves_the_data_alone() {
        let folder = tempfile::tempdir().unwrap();
        let installation = Installation::at(folder.path()).unwrap();
        drop(installation.lock().unwrap());
        let data = installation.data("root").join("store.redb");
        std::fs::create_dir_all(data.parent().unwrap()).unwrap();
        std::fs::write(&data, "precious").unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let lock = installation.lock().unwrap();
        let ports = WantedPorts { gateway: port, edge: None, etcd: None };
        let refused = plan(2, StoreKind::File, ports, None, &lock).unwrap_err();
        assert!(matches!(refused, UpError::PortInUse { .. }), "{refused}");
        assert_eq!(std::fs::read_to_string(&data).unwrap(), "precious");
    }
}
