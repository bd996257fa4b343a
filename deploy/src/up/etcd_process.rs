//! The development etcd as a process that ends with `up`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use super::UpError;

/// Becomes etcd.
///
/// Other servers end when the pipe that is their standard input is closed, however `up` ends. etcd does not read it. So this
/// program asks the kernel to end it with its parent, and then becomes etcd, which keeps that request and its process id. On
/// systems other than Linux, etcd stays behind if `up` is killed.
#[derive(Clone, Debug, Args)]
pub(crate) struct EtcdProcess {
    /// Path of the program etcd
    #[arg(long)]
    program: PathBuf,
    /// Process id of `up`, with which etcd ends
    #[arg(long)]
    parent: u32,
    /// Configuration file of etcd
    #[arg(long)]
    config: PathBuf,
}

impl EtcdProcess {
    /// The program and its arguments before `--config`.
    pub(super) fn command_line(etcd: &Path) -> io::Result<(PathBuf, Vec<OsString>)> {
        let parent = std::process::id().to_string();
        let arguments = ["etcd".into(), "--program".into(), etcd.into(), "--parent".into(), parent.into()];
        Ok((std::env::current_exe()?, arguments.into()))
    }

    /// Returns only if it fails.
    pub(crate) fn become_etcd(&self) -> UpError {
        match end_with(self.parent) {
            Ok(()) => {}
            Err(error) => return UpError::Etcd(error),
        }
        UpError::Etcd(Command::new(&self.program).arg("--config-file").arg(&self.config).exec())
    }
}

/// Makes the kernel end this process when its parent ends.
#[cfg(target_os = "linux")]
fn end_with(parent: u32) -> io::Result<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended before.
    let is_here = getppid().is_some_and(|id| u32::try_from(id.as_raw_nonzero().get()) == Ok(parent));
    if is_here { Ok(()) } else { Err(io::Error::other("`fairlead up` has ended")) }
}

#[cfg(not(target_os = "linux"))]
fn end_with(_parent: u32) -> io::Result<()> {
    Ok(())
}
