//! A flag: its name, the syntax of its value and its effect here.

use super::values;

/// The syntax of a flag's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// `--flag`, `--flag=true`, `--flag=false`; never `--flag true`.
    Switch,
    /// One text; the last one counts.
    Text,
    /// An IP address.
    Address,
    /// A whole number.
    Number,
    /// A number with or without a fraction.
    Float,
    /// The verbosity of logs.
    Level,
    /// A duration.
    Duration,
    /// A number of bytes, with or without a unit.
    Size,
    /// Comma-separated, may be repeated.
    List,
    /// Numbers, comma-separated.
    Numbers,
    /// `pattern=N`, comma-separated.
    Levels,
    /// `Name=true`, comma-separated.
    Gates,
    /// Repeated, each `key=value`.
    Pair,
    /// Repeated, each value as it is.
    Repeated,
}

impl Kind {
    /// The name of this kind if `text` is not a valid value; `None` if it is valid.
    pub(crate) fn invalid(self, text: &str) -> Option<&'static str> {
        let (is_one, wanted) = match self {
            Self::Text | Self::Repeated => return None,
            Self::Switch => (values::boolean(text).is_some(), "true or false"),
            Self::Address => (text.is_empty() || values::address(text).is_some(), "IP address"),
            Self::Number => (values::integer(text).is_some(), "whole number"),
            Self::Float => (text.parse::<f64>().is_ok(), "number"),
            Self::Level => (values::level(text).is_some(), "level such as 4"),
            Self::Duration => (values::duration(text).is_some(), "duration such as 30s"),
            Self::Size => (values::is_size(text), "size such as 512Ki"),
            Self::List => (values::list(text).is_some(), "comma-separated list"),
            Self::Numbers => (values::are_numbers(text), "list of numbers such as 23,29"),
            Self::Levels => (values::are_levels(text), "list such as pattern=4"),
            Self::Gates => (values::gates(text).is_some(), "list such as Name=true,Other=false"),
            Self::Pair => (text.contains('='), "pair such as key=value"),
        };
        (!is_one).then_some(wanted)
    }
}

/// The effect of a flag of kcp in Fairlead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Support {
    /// The same as in kcp.
    Supported,
    /// No effect, as in kcp's program, so that no warning is needed.
    NoEffect,
    /// No effect; a warning names the flag.
    Ignored,
    /// Refused, because without its effect the process would not be what the operator expects. The help says why.
    Refused,
}

/// One flag.
#[derive(Debug)]
pub struct Flag {
    /// The name, without dashes.
    pub name: &'static str,
    /// The syntax of its value.
    pub kind: Kind,
    /// Its effect.
    pub support: Support,
    /// Its meaning, in a few words.
    pub help: &'static str,
}

/// Declares a flag in a table.
pub const fn flag(name: &'static str, kind: Kind, support: Support, help: &'static str) -> Flag {
    Flag { name, kind, support, help }
}

/// Replaces underscores in the names of flags by dashes, as Kubernetes does.
pub(crate) fn normalise(argument: String) -> String {
    let Some(rest) = argument.strip_prefix("--") else {
        return argument;
    };
    let (name, value) = match rest.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (rest, None),
    };
    let name = name.replace('_', "-");
    match value {
        Some(value) => format!("--{name}={value}"),
        None => format!("--{name}"),
    }
}
