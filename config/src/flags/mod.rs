//! Command lines of kcp's programs, turned into settings.
//!
//! All flags of these programs are accepted, in the syntax of Go's flag libraries. Valid flags without effect in Fairlead
//! are named in one warning. A value that is invalid in kcp is refused, whether or not the flag has an effect here.

mod arguments;
mod authentication;
mod cache;
mod flag;
pub mod groups;
mod serving;
mod shard;
pub mod values;
mod virtual_workspaces;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::check::Checker;
use crate::load::ProcessConfig;
use crate::shared::LogConfig;
use crate::units::Timespan;
use crate::values::LogFormat;

pub use arguments::Arguments;
pub use cache::{CacheArguments, CacheFlags};
pub use flag::{Flag, Kind, Support, flag};
pub use serving::SelfSignedFiles;
pub use shard::{ShardArguments, ShardFlags};
pub use virtual_workspaces::{VirtualWorkspacesArguments, VirtualWorkspacesFlags};

/// The command line is invalid; the operator must change it.
#[derive(Debug, thiserror::Error)]
pub enum FlagError {
    /// The flag does not exist, or its value is missing.
    #[error("{0}")]
    Usage(String),
    /// The value does not have the flag's type.
    #[error("--{flag}: {value:?} is no {wanted}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// The expected type.
        wanted: &'static str,
    },
    /// A required flag is missing.
    #[error("--{0} is required")]
    Missing(&'static str),
    /// A certificate without its key, or a key without its certificate.
    #[error("--{0} needs --{1}")]
    Alone(&'static str, &'static str),
    /// A flag of kcp whose effect is missing here.
    #[error("--{flag} is not supported: {reason}")]
    Unsupported {
        /// The flag.
        flag: &'static str,
        /// One sentence.
        reason: &'static str,
    },
    /// A flag is combined with a configuration file.
    #[error("--{0} beside --config: settings come from flags or from a file, not from both")]
    Mixed(&'static str),
    /// The flags contradict each other, as kcp says it.
    #[error("{0}")]
    Conflict(String),
}

impl FlagError {
    /// An invalid value of a flag.
    pub fn value(flag: &'static str, value: &str, wanted: &'static str) -> Self {
        Self::Value { flag, value: value.to_owned(), wanted }
    }
}

/// The flags of one program.
#[derive(Clone, Copy, Debug)]
pub struct FlagSet {
    /// The program's name.
    pub program: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// The flags in the order of the help, by subject.
    pub groups: &'static [&'static [Flag]],
}

/// The result of parsing a command line.
#[derive(Debug)]
pub enum ParsedLine {
    /// The flags that were given.
    Flags(GivenFlags),
    /// Help or the version was requested: the text to print.
    Text(String),
}

impl FlagSet {
    /// All flags.
    pub fn flags(&self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.groups.iter().copied().flatten()
    }

    /// The command line parser for these flags.
    pub fn command(&self, version: &'static str) -> Command {
        let command = Command::new(self.program).about(self.about).version(version).args_override_self(true);
        self.flags().fold(command, |command, flag| {
            let arg = Arg::new(flag.name).long(flag.name).help(flag.help);
            let arg = match flag.kind {
                Kind::Switch => arg
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
                    .action(ArgAction::Append)
                    .value_name("true|false"),
                _ => arg.num_args(1).allow_hyphen_values(true).action(ArgAction::Append).value_name("VALUE"),
            };
            command.arg(if flag.name == "v" { arg.short('v') } else { arg })
        })
    }

    /// Parses the arguments that follow the program's name by `command`, which may have further arguments of its own.
    ///
    /// # Errors
    /// [`FlagError::Usage`] for an unknown flag or a missing value. Values are not checked.
    pub fn parse(
        &self,
        command: Command,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<ParsedLine, FlagError> {
        let name = std::iter::once(self.program.to_owned());
        let arguments = name.chain(arguments.into_iter().map(flag::normalise));
        match command.try_get_matches_from(arguments) {
            Ok(matches) => Ok(ParsedLine::Flags(GivenFlags { matches, set: *self })),
            Err(shown) if matches!(shown.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
                Ok(ParsedLine::Text(shown.to_string()))
            }
            Err(error) => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                Err(FlagError::Usage(first.trim_start_matches("error: ").to_owned()))
            }
        }
    }
}

/// The parsed flags. Except for [`GivenFlags::check_values`], its methods expect checked values; values of the wrong
/// type are skipped.
#[derive(Debug)]
pub struct GivenFlags {
    matches: ArgMatches,
    set: FlagSet,
}

impl GivenFlags {
    /// Checks every value, as Go programs do: also those that a later value replaces, and those without effect here.
    ///
    /// # Errors
    /// [`FlagError`] names the first flag that is invalid or refused.
    pub fn check_values(&self) -> Result<(), FlagError> {
        for flag in self.set.flags() {
            for text in self.repeated(flag.name) {
                if let Some(wanted) = flag.kind.invalid(text) {
                    return Err(FlagError::value(flag.name, text, wanted));
                }
            }
            let is_set = self.text(flag.name).is_some_and(|text| text != "false");
            if flag.support == Support::Refused && is_set {
                return Err(FlagError::Unsupported { flag: flag.name, reason: flag.help });
            }
        }
        Ok(())
    }

    /// An argument that is no flag of the table.
    pub fn argument(&self, name: &str) -> Option<&str> {
        self.matches.get_many::<String>(name).and_then(Iterator::last).map(String::as_str)
    }

    /// The first flag that is given.
    pub fn first(&self) -> Option<&'static str> {
        self.set.flags().find(|flag| self.is_given(flag.name)).map(|flag| flag.name)
    }

    /// The last value of a flag; `None` if it is empty.
    pub fn text(&self, flag: &'static str) -> Option<&str> {
        self.repeated(flag).last().filter(|value| !value.is_empty())
    }

    /// All values of a flag, in order.
    pub fn repeated(&self, flag: &'static str) -> impl Iterator<Item = &str> {
        debug_assert!(self.set.flags().any(|known| known.name == flag), "{flag}");
        self.matches.get_many::<String>(flag).into_iter().flatten().map(String::as_str)
    }

    /// Whether a flag is given, if only with an empty value.
    pub fn is_given(&self, flag: &'static str) -> bool {
        self.repeated(flag).next().is_some()
    }

    /// The elements of all lists of a flag.
    pub fn list(&self, flag: &'static str) -> Vec<String> {
        self.repeated(flag).filter_map(values::list).flatten().collect()
    }

    /// The elements of a flag's lists, or the default if the flag is not given.
    pub fn list_or(&self, flag: &'static str, default: Vec<String>) -> Vec<String> {
        if self.is_given(flag) { self.list(flag) } else { default }
    }

    /// One pair per occurrence, because the value may contain commas.
    pub fn pairs(&self, flag: &'static str) -> BTreeMap<String, String> {
        let pairs = self.repeated(flag).filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, text)| (key.trim().to_owned(), text.trim().to_owned())).collect()
    }

    /// A boolean.
    pub fn switch(&self, flag: &'static str, default: bool) -> bool {
        self.text(flag).and_then(values::boolean).unwrap_or(default)
    }

    /// A whole number.
    pub fn number(&self, flag: &'static str) -> Option<i64> {
        self.text(flag).and_then(values::integer)
    }

    /// A whole number that is not negative and fits its setting.
    ///
    /// # Errors
    /// [`FlagError::Value`] for any other number.
    pub fn count<T: TryFrom<i64>>(&self, flag: &'static str, default: T) -> Result<T, FlagError> {
        let Some(number) = self.number(flag) else { return Ok(default) };
        T::try_from(number).map_err(|_| FlagError::value(flag, &number.to_string(), "number of this kind"))
    }

    /// A number with or without a fraction.
    pub fn float(&self, flag: &'static str) -> Option<f64> {
        self.text(flag).and_then(|text| text.parse().ok())
    }

    /// A duration.
    pub fn duration(&self, flag: &'static str) -> Option<Timespan> {
        self.text(flag).and_then(values::duration).map(timespan)
    }

    /// A file or folder.
    pub fn path(&self, flag: &'static str) -> Option<PathBuf> {
        self.text(flag).map(PathBuf::from)
    }

    /// A value of a setting's own type, such as a URL.
    ///
    /// # Errors
    /// [`FlagError::Value`] says that the value is no `wanted`.
    pub fn parsed<T: std::str::FromStr>(
        &self,
        flag: &'static str,
        wanted: &'static str,
    ) -> Result<Option<T>, FlagError> {
        let Some(text) = self.text(flag) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| FlagError::value(flag, text, wanted))
    }

    /// One of several words.
    ///
    /// # Errors
    /// [`FlagError::Value`] for any other word.
    pub fn choice<T: Copy>(
        &self,
        flag: &'static str,
        default: T,
        choices: &[(&str, T)],
        wanted: &'static str,
    ) -> Result<T, FlagError> {
        let Some(text) = self.text(flag) else { return Ok(default) };
        let chosen = choices.iter().find(|(word, _)| *word == text);
        chosen.map(|(_, value)| *value).ok_or_else(|| FlagError::value(flag, text, wanted))
    }

    /// True if a feature gate is enabled; the last value counts.
    pub fn gate(&self, name: &str) -> bool {
        let gates = self.repeated("feature-gates").filter_map(values::gates).flatten();
        gates.filter(|(gate, _)| *gate == name).last().is_some_and(|(_, is_open)| is_open)
    }

    /// Format and level of logs. `program` is the log target of the program itself.
    ///
    /// # Errors
    /// [`FlagError::Value`] for an unknown format.
    pub fn log(&self, program: &str) -> Result<LogConfig, FlagError> {
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let format = self.choice("logging-format", LogFormat::Text, &formats, "text or json")?;
        let level = match self.text("v").and_then(values::level).unwrap_or(2) {
            0..=3 => "info".to_owned(),
            4..=5 => format!("info,{program}=debug"),
            _ => format!("debug,{program}=trace"),
        };
        Ok(LogConfig { format, level })
    }

    /// The sentence that names the given flags without effect.
    pub fn without_effect(&self) -> Option<String> {
        let ignored =
            self.set.flags().filter(|flag| flag.support == Support::Ignored && self.is_given(flag.name));
        let names: Vec<String> = ignored.map(|flag| format!("--{}", flag.name)).collect();
        (!names.is_empty()).then(|| format!("accepted and without effect here: {}", names.join(", ")))
    }
}

/// Checks settings that flags have filled, as those of a file are checked.
fn checked(config: &impl ProcessConfig) -> Result<(), FlagError> {
    let mut checker = Checker::default();
    config.check(&mut checker);
    match checker.into_faults().into_iter().next() {
        None => Ok(()),
        Some(fault) => Err(FlagError::Conflict(format!("{}: {}", fault.key, fault.message))),
    }
}

/// A duration as a setting, in whole milliseconds.
pub fn timespan(duration: Duration) -> Timespan {
    Timespan::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
