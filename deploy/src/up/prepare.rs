//! Everything that is done before the first process is started: refusals, certificates, files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use fairlead_certs::{Action, Inventory, Kubeconfig, Plan, Renewal};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::UpError;
use super::settings::{USERS, config_files, login_arguments};
use super::topology::{EDGE, Ports, Role, Topology, shards_with_data};
use crate::kubeconfigs::{Addresses, InnerAddresses};
use crate::site::{Occupation, Record, Site, make_private, replace};

/// With fewer open files a server cannot even hold its own files and a handful of connections.
const OPEN_FILES_NEEDED: u64 = 1_024;
/// With fewer open files a few thousand watches are refused.
const OPEN_FILES_WANTED: u64 = 16_384;
/// How long the servers of an `up` that was killed may take to notice.
const ORPHANS_GONE: Duration = Duration::from_secs(3);

/// What the command line asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    /// The number of shards; `None` for what fits.
    pub shards: Option<u32>,
    pub port: u16,
    /// The port of the door for tokens; `None` for any.
    pub edge_port: Option<u16>,
    pub fresh: bool,
}

/// Whether an installation has been run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// It begins with nothing.
    New,
    /// It has data.
    Known,
}

/// An installation that can be started.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub topology: Topology,
    /// Its ports are nobody else's while this lives.
    pub ports: Ports,
    /// The program of each role.
    pub programs: BTreeMap<&'static str, PathBuf>,
    /// Sentences that somebody should read.
    pub notes: Vec<String>,
    pub age: Age,
    /// When the preparation began.
    pub begin: Instant,
    /// Nobody else works in the directory while this lives.
    pub occupation: Occupation,
}

impl Prepared {
    /// Refuses what cannot work before it changes anything; then writes certificates, kubeconfigs and configurations.
    pub(crate) fn in_site(site: &Site, wishes: &Wishes) -> Result<Self, UpError> {
        let begin = Instant::now();
        let mut notes: Vec<_> = raise_open_files()?.into_iter().collect();
        let programs = programs()?;
        let occupation = site.occupy()?;
        let before = site.read_record();
        // A refused port must not cost the data.
        let with_data = if wishes.fresh { 0 } else { shards_with_data(&site.processes_with_data()) };
        let shards = wishes.shards.unwrap_or(with_data.max(2));
        let (topology, ports) = plan(shards, wishes, before.as_ref(), &occupation)?;
        if wishes.fresh {
            site.clear(&occupation)?;
        }
        if shards < with_data {
            notes.push(format!(
                "there is data of {with_data} shards, and workspaces of those not started are away"
            ));
        }
        notes.extend(write_files(site, &topology)?);
        let age = if with_data == 0 { Age::New } else { Age::Known };
        Ok(Self { topology, ports, programs, notes, age, begin, occupation })
    }
}

/// The ports of an earlier run by process name.
fn earlier_ports(record: Option<&Record>) -> BTreeMap<String, u16> {
    let processes = record.map(|record| record.processes.as_slice()).unwrap_or_default();
    let port = |url: &str| url.rsplit(':').next()?.parse().ok();
    let urls = processes.iter().map(|process| (process.name.as_str(), process.url.as_str()));
    let urls = urls.chain(record.map(|record| (EDGE, record.edge.as_str())));
    urls.filter_map(|(name, url)| Some((name.to_owned(), port(url)?))).collect()
}

fn plan(
    shards: u32,
    wishes: &Wishes,
    before: Option<&Record>,
    occupation: &Occupation,
) -> Result<(Topology, Ports), UpError> {
    let before = earlier_ports(before);
    let patience = Instant::now() + ORPHANS_GONE;
    loop {
        match Topology::plan(shards, wishes.port, wishes.edge_port, &before) {
            // Nothing tells when a stranger's process has ended; ours do so within milliseconds.
            Err(UpError::PortInUse { .. }) if occupation.is_after_a_crash() && Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

/// Returns what should be told about certificates.
fn write_files(site: &Site, topology: &Topology) -> Result<Vec<String>, UpError> {
    let certificates = site.certificates();
    let names = topology.shards().map(|shard| shard.name.as_str());
    let inventory = Inventory::parse(names, std::iter::empty::<&str>())?.with_issuer();
    let report = Plan::for_inventory(&inventory).apply(&certificates, SystemTime::now(), Renewal::WhenDue)?;
    let renewed = report.rows.iter().filter(|row| row.action == Action::Renewed).count();
    let mut notes = report.notes;
    if renewed > 0 {
        notes.push(format!("{renewed} certificates were renewed"));
    }
    let inner = InnerAddresses { root_shard: topology.root_shard().url(), cache: topology.cache().url() };
    let addresses = Addresses { gateway: topology.gateway().url(), inner: Some(inner) };
    site.kubeconfigs().write(&certificates, &addresses, &site.admin_kubeconfig())?;
    let program = std::env::current_exe().map_err(UpError::NoOwnPath)?;
    let arguments = login_arguments(site, topology);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    Kubeconfig::signed_in(&certificates, &topology.edge_url(), &program.to_string_lossy(), &arguments)?
        .write(&site.edge_kubeconfig())?;
    if !site.users().exists() {
        replace(&site.users(), USERS.as_bytes())?;
    }
    make_private(&site.logs())?;
    make_private(&site.configs())?;
    for file in config_files(site, topology)? {
        replace(&site.config(&file.process), file.text.as_bytes())?;
    }
    for process in &topology.processes {
        make_private(&site.data(&process.name))?;
    }
    Ok(notes)
}

/// The servers' programs, which lie beside this one.
fn programs() -> Result<BTreeMap<&'static str, PathBuf>, UpError> {
    let own = std::env::current_exe().map_err(UpError::NoOwnPath)?;
    let folder = own.parent().unwrap_or(&own).to_owned();
    let find = |role: Role| {
        let program = role.program();
        let path = folder.join(program);
        if path.is_file() {
            Ok((program, path))
        } else {
            Err(UpError::NoProgram { program, folder: folder.clone() })
        }
    };
    Role::ALL.into_iter().map(find).collect()
}

/// Raises the limit on open files as far as it goes; the servers inherit it. Returns a note if it is low.
fn raise_open_files() -> Result<Option<String>, UpError> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Some systems refuse it; then the limit simply stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    judge_open_files(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

fn judge_open_files(limit: u64) -> Result<Option<String>, UpError> {
    match limit {
        ..OPEN_FILES_NEEDED => Err(UpError::OpenFiles { limit, needed: OPEN_FILES_NEEDED }),
        OPEN_FILES_NEEDED..OPEN_FILES_WANTED => Ok(Some(format!(
            "only {limit} files may be open per process, which is enough to try things out; \
             `ulimit -n {OPEN_FILES_WANTED}` makes room for more connections"
        ))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::site::ProcessRecord;

    #[test]
    fn too_few_open_files_are_refused_and_few_are_mentioned() {
        assert!(matches!(judge_open_files(1_023), Err(UpError::OpenFiles { limit: 1_023, .. })));
        assert!(judge_open_files(1_024).unwrap().unwrap().contains("1024"));
        assert_eq!(judge_open_files(16_384).unwrap(), None);
    }

    #[test]
    fn ports_are_remembered_by_process() {
        let process = |name: &str, url: &str| ProcessRecord {
            name: name.to_owned(),
            url: url.to_owned(),
            condition: "ready".to_owned(),
            pid: None,
            since: None,
            restarts: 0,
            last_exit: None,
        };
        let record = Record {
            pid: 1,
            started: String::new(),
            gateway: String::new(),
            edge: "https://127.0.0.1:4712".to_owned(),
            processes: vec![process("root", "https://127.0.0.1:4711"), process("odd", "nowhere")],
        };
        assert_eq!(
            earlier_ports(Some(&record)),
            BTreeMap::from([("edge".to_owned(), 4712), ("root".to_owned(), 4711)])
        );
        assert!(earlier_ports(None).is_empty());
    }

    #[test]
    fn a_refusal_leaves_the_data_alone() {
        let folder = tempfile::tempdir().unwrap();
        let site = Site::at(folder.path()).unwrap();
        drop(site.occupy().unwrap());
        let data = site.data("root").join("store.redb");
        std::fs::create_dir_all(data.parent().unwrap()).unwrap();
        std::fs::write(&data, "precious").unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let occupation = site.occupy().unwrap();
        let wishes = Wishes { shards: None, port, edge_port: None, fresh: true };
        let refused = plan(2, &wishes, None, &occupation).unwrap_err();
        assert!(matches!(refused, UpError::PortInUse { .. }), "{refused}");
        assert_eq!(std::fs::read_to_string(&data).unwrap(), "precious");
    }
}
