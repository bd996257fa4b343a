//! Behaviours of the running system, seen from its clients.
