//! Every setting of every process, typed, with defaults, lint rules and kcp flag names.
//!
//! One YAML file per process, read strictly. A setting is declared once: its type, key, default and documentation.
//! This crate does not know how settings are used; it reads files only to lint them and never looks into a secret.

mod setting;
mod shared;
mod units;
mod values;

pub use setting::{Entry, Meaning, Setting};
pub use shared::{ConnectionLimits, DrainConfig, KeyPairConfig, LogConfig};
pub use units::{ByteSize, Timespan, UnitError};
pub use values::{Battery, HttpsUrl, InputFile, LogFormat, OwnPath, SecretFile, TokenPolicy};
