//! The front proxy: finds the shard, authenticates, forwards.

mod index;
mod pick;
mod request;
mod route;
mod table;
