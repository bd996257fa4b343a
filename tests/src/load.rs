//! Load on a running system, and its cost. The system is known by paths of a kubeconfig and process IDs only.

mod apiserver;
mod command_line;
mod delivery;
mod fsync;
mod gets;
mod kcp;
mod latency;
mod proc;
mod report;
mod run;
mod sharing;
mod table;
mod target;
mod watches;
mod workspaces;

pub use apiserver::{Measurement, ServerKind};
pub use command_line::GoalArguments;
pub use delivery::{DeliveryLoad, measure_delivery};
pub use fsync::measure_fsync;
pub use gets::{GetLoad, measure_gets};
pub use latency::Latencies;
pub use proc::{ObservedProcess, Sample, raise_file_limit};
pub use report::{Figure, GoalTable};
pub use run::Scale;
pub use sharing::{SharingMeasurement, measure_sharing};
pub use table::{Row, Table};
pub use target::{LoadError, Target};
pub use watches::{WatchLoad, measure_watches};
pub use workspaces::{WorkspaceLoad, measure_workspaces};
