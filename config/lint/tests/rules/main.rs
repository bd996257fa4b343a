//! Each rule finds the mistake that it is about, where it stands; a good configuration has nothing to complain about.
#![allow(clippy::unwrap_used, reason = "tests")]

mod authentication;
mod certificates;
mod files;
mod listeners;
mod servers;
mod site;
