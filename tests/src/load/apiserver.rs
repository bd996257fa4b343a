//! The API server beside its goals: CPU time, memory and times of one shard, and of a Go kcp where there is one.
//!
//! Each measurement starts a server with an empty store of its own, so that no figure depends on another one. Figures are of
//! the server's process; the load runs in this one, on the same machine.

mod definitions;
mod deletion;
mod fill;
mod lists;
mod requests;
mod server;
mod watches;
mod workspaces;

use std::path::Path;

use clap::ValueEnum;
use clap::builder::PossibleValue;

pub use server::Kind as ServerKind;

use super::LoadError;
use super::report::Figure;
use super::run::{Scale, Size};
use server::Server;

/// A group of figures with one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurement {
    /// CPU of reading a small object.
    Get,
    /// Rate and CPU of durable creations.
    Create,
    /// Time, CPU and memory of large lists and of pages.
    List,
    /// CPU of server-side apply.
    Apply,
    /// CPU of CEL rules.
    Rules,
    /// Delivery to many watchers, and memory of idle ones.
    Watchers,
    /// Memory of a large CRD in many workspaces.
    Definition,
    /// Memory of empty workspaces.
    Workspaces,
    /// Many watches that are resumed at once.
    Resume,
    /// Reads beside a large list.
    Fairness,
    /// CPU of a changed CRD beside others.
    Redefinition,
    /// Deletion of an owner with many dependents.
    Owner,
}

impl Measurement {
    /// All measurements in the order of the table.
    const ALL: [Self; 12] = [
        Self::Get,
        Self::Create,
        Self::List,
        Self::Apply,
        Self::Rules,
        Self::Watchers,
        Self::Definition,
        Self::Workspaces,
        Self::Resume,
        Self::Fairness,
        Self::Redefinition,
        Self::Owner,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::List => "list",
            Self::Apply => "apply",
            Self::Rules => "rules",
            Self::Watchers => "watchers",
            Self::Definition => "definition",
            Self::Workspaces => "workspaces",
            Self::Resume => "resume",
            Self::Fairness => "fairness",
            Self::Redefinition => "redefinition",
            Self::Owner => "owner",
        }
    }

    /// The size of the store's page cache, if it is not the default. A large CRD's own bytes would fill the default one
    /// during the measurement.
    fn cache_size(self) -> Option<&'static str> {
        (self == Self::Definition).then_some("1MiB")
    }

    /// Runs it with a fresh server, whose files are in a new folder of `directory`.
    ///
    /// # Errors
    /// If the server cannot be started or a request fails that must not.
    pub async fn run(
        self,
        kind: &ServerKind,
        directory: &Path,
        scale: Scale,
    ) -> Result<Vec<Figure>, LoadError> {
        let folder = directory.join(format!("{}-{}", kind.name(), self.name()));
        let mut server = Server::start(kind, &folder, self.cache_size()).await?;
        let size = Size(scale);
        let figures = match self {
            Self::Get => requests::get(&server, size).await,
            Self::Create => requests::create(&server, size).await,
            Self::List => lists::list(&mut server, size).await,
            Self::Apply => requests::apply(&server, size).await,
            Self::Rules => requests::rules(&server, size).await,
            Self::Watchers => watches::watchers(&server, size).await,
            Self::Definition => workspaces::large_definition(&server, size).await,
            Self::Workspaces => workspaces::empty(&server, size).await,
            Self::Resume => watches::resume(&mut server, size).await,
            Self::Fairness => lists::fairness(&server, size).await,
            Self::Redefinition => definitions::redefinition(&server, size).await,
            Self::Owner => deletion::owner(&server, size).await,
        };
        drop(server);
        // A failed removal leaves a folder that the next run replaces.
        let _ = std::fs::remove_dir_all(&folder);
        figures
    }
}

impl ValueEnum for Measurement {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}
