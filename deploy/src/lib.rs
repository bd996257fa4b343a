//! The command that runs and operates all of it.
//!
//! It starts the servers as processes of their own and talks to them as any client does; it must not know their
//! insides. What it knows of them are their settings (`fairlead-config`), their certificates (`fairlead-certs`) and
//! the requests that people could send themselves (`fairlead-client`).

mod certs;
mod command;
mod config;
mod gateway;
mod kubeconfigs;
mod login;
mod output;
mod site;
mod status;
mod up;
mod ws;

pub use command::main;
