//! The command that runs and operates all of it.
