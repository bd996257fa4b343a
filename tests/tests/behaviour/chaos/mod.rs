//! What must hold when things go wrong.

mod crash;
mod files;
mod hostile;
mod identity;
mod index;
mod restart;
mod rotation;
