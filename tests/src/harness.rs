//! Binaries, processes, certificates, ports and kubectl for tests of real processes.

mod balancer;
mod binary;
mod descendants;
mod error;
mod etcd;
mod forms;
mod installation;
mod kubectl;
mod pki;
mod process;
mod shard;
mod shared_etcd;
mod test_store;
mod tool;

pub use balancer::Balancer;
pub use binary::{binary, free_port};
pub use descendants::with_descendants;
pub use error::HarnessError;
pub use etcd::EtcdCluster;
pub use forms::{Form, encoded, split_address};
pub use installation::{CacheServers, Installation, cache_server, replica};
pub use kubectl::{Kubectl, Output};
pub use pki::Pki;
pub use process::{Process, Program, ready};
pub use shard::{EtcdSettings, Shard, ShardSettings};
pub use shared_etcd::{SharedEtcd, shared_etcd};
pub use test_store::TestStore;
pub use tool::{is_left_out, python, tool};
