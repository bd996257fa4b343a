//! The command line of programs whose measurements have goals.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::Scale;

/// What to measure, with which amounts and where.
#[derive(Args, Clone, Debug)]
pub struct GoalArguments<M: ValueEnum + Clone + Send + Sync + 'static> {
    /// Measurements, separated by commas; all if absent.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<M>,
    /// The amounts for which the goals are set; without it, some measurements take a fifth or less.
    #[arg(long, conflicts_with = "smoke")]
    full: bool,
    /// Tiny amounts, which show that everything works.
    #[arg(long)]
    smoke: bool,
    /// Folder for the servers' files, not on tmpfs; one in `target` if absent.
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl<M: ValueEnum + Clone + Send + Sync + 'static> GoalArguments<M> {
    /// The measurements in the order in which they were named, or all.
    pub fn measurements(&self) -> &[M] {
        if self.only.is_empty() { M::value_variants() } else { &self.only }
    }

    /// The amount of load.
    pub fn scale(&self) -> Scale {
        match (self.full, self.smoke) {
            (true, _) => Scale::Full,
            (false, true) => Scale::Smoke,
            (false, false) => Scale::Normal,
        }
    }

    /// The folder for the servers' files.
    pub fn directory(&self, program: &str) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| Path::new("target").join(program))
    }
}
