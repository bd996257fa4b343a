//! The `fairlead` command, which runs and operates an installation.
//!
//! It starts the servers as processes and uses them as any client does. It must not know their internals: it knows their
//! settings (`fairlead-config`), their certificates (`fairlead-certs`) and their APIs (`fairlead-client`).

mod certs;
mod command;
mod config;
mod gateway;
mod installation;
mod kubeconfigs;
mod login;
mod output;
mod status;
mod up;
mod ws;

pub use command::main;
