//! The `fairlead` command, which runs and operates an installation.
//!
//! The command starts the servers as processes and uses them like any other client. It depends on their settings
//! (`fairlead-config`), their certificates (`fairlead-certs`) and their APIs (`fairlead-client`), not on their internals; only
//! `restore` writes their store (`fairlead-store`), while they do not run.

mod backup;
mod certs;
mod command;
mod config;
mod connection;
mod crd;
mod gateway;
mod installation;
mod kubeconfigs;
mod login;
mod output;
mod plugin;
mod restore;
mod sharing;
mod status;
mod store;
#[cfg(test)]
mod test_server;
mod up;
mod ws;
mod yaml;

pub use command::main;
