//! A server of a collection, and an installation of two endpoints and their slice.

mod collection;
mod installation;
mod server;

pub use collection::Expiry;
pub use installation::Installation;
pub use server::Server;
