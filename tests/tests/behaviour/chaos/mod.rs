//! Behaviour during failures.

mod crash;
mod files;
mod hang;
mod hostile;
mod identity;
mod index;
mod restart;
mod rotation;
