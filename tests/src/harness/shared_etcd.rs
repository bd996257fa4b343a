//! One etcd for all tests of a process, each with prefixes of its own.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Runtime};

use super::{EtcdCluster, HarnessError, Program};

/// The number of its members, as of the clusters that fault tests start.
const MEMBERS: &str = "FAULT_ETCD_MEMBERS";

/// Runs a member until standard input ends, which it does with the process of the tests. Then the member is killed and its
/// directory, the current one, is removed.
const UNTIL_THE_TESTS_END: &str =
    r#""$@" </dev/null & read -r _; kill -KILL $!; wait $! 2>/dev/null; rm -rf -- "$PWD""#;

/// A running etcd. It does not sync its files, so it does not survive the machine, and it ends with the process.
pub struct SharedEtcd {
    endpoints: Vec<String>,
    prefixes: AtomicUsize,
    /// Both live as long as the process.
    _cluster: EtcdCluster,
    _runtime: Runtime,
}

/// The etcd of this process; the first call starts it, which takes some 0.3 s. It has `FAULT_ETCD_MEMBERS` members (1).
///
/// It may be called on a Tokio runtime with a paused clock, because the etcd is started on another one. The thread is blocked.
pub fn shared_etcd() -> Result<&'static SharedEtcd, HarnessError> {
    static SHARED: OnceLock<Result<SharedEtcd, HarnessError>> = OnceLock::new();
    let start = || match std::thread::spawn(SharedEtcd::start).join() {
        Ok(started) => started,
        Err(_) => Err(failed("the thread that starts it has panicked")),
    };
    SHARED.get_or_init(start).as_ref().map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> HarnessError {
    let source = std::io::Error::other(error.to_string());
    HarnessError::System { what: "starting the etcd that all tests share".to_owned(), source }
}

impl SharedEtcd {
    fn start() -> Result<Self, HarnessError> {
        let members = match std::env::var(MEMBERS) {
            Err(_) => 1,
            Ok(value) => value.parse().map_err(|_| HarnessError::Setting {
                name: MEMBERS,
                value,
                expected: "1, 2, 3 and so on",
            })?,
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let directory = tempfile::tempdir().map_err(failed)?.keep();
        let until_the_tests_end = |program: Program| {
            let shell = PathBuf::from("/bin/sh");
            program.run_by(shell, ["-c", UNTIL_THE_TESTS_END, "sh"]).with_lifeline().killed_with_descendants()
        };
        let arguments = ["--unsafe-no-fsync"];
        let cluster = EtcdCluster::start_programs(&directory, members, &arguments, until_the_tests_end);
        let cluster = runtime.block_on(cluster)?;
        let (endpoints, prefixes) = (cluster.endpoints(), AtomicUsize::new(0));
        Ok(Self { endpoints, prefixes, _cluster: cluster, _runtime: runtime })
    }

    /// The URLs for clients, of all members.
    pub fn endpoints(&self) -> Vec<String> {
        self.endpoints.clone()
    }

    /// A prefix that no other test has.
    pub fn new_prefix(&self) -> String {
        format!("/test-{}", self.prefixes.fetch_add(1, Ordering::Relaxed))
    }
}
