//! Faults of a configuration that is well-formed but cannot work.

use std::fmt::Display;

/// Collects faults with their keys.
#[derive(Debug, Default)]
pub struct Checker {
    prefix: String,
    faults: Vec<Fault>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The key with its path, such as `listeners[1].name`.
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Checker {
    /// Reports a fault of a key.
    pub fn fault(&mut self, key: &str, message: &str, hint: &str) {
        let hint = Some(hint.to_owned());
        self.faults.push(Fault { key: join(&self.prefix, key), message: message.to_owned(), hint });
    }

    /// Reports a fault if a value is too small.
    pub(crate) fn at_least<T: PartialOrd + Display>(&mut self, key: &str, value: T, least: T) {
        if value < least {
            self.fault(key, &format!("{value} is too little"), &format!("use at least {least}"));
        }
    }

    /// Reports a fault if a value is too large.
    pub(crate) fn at_most<T: PartialOrd + Display>(&mut self, key: &str, value: T, most: T) {
        if value > most {
            self.fault(key, &format!("{value} is too much"), &format!("use at most {most}"));
        }
    }

    /// Runs checks with a key as prefix.
    pub fn within(&mut self, key: &str, check: impl FnOnce(&mut Self)) {
        let inner = join(&self.prefix, key);
        let outer = std::mem::replace(&mut self.prefix, inner);
        check(self);
        self.prefix = outer;
    }

    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }
}

pub(crate) fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}
