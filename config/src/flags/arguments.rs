//! The command line of a program that takes flags of kcp or a configuration file.

use std::path::PathBuf;

use clap::{Arg, ArgAction};

use super::{FlagError, FlagSet, GivenFlags, ParsedLine};

/// The result of parsing such a command line; `F` has the settings of its flags.
#[derive(Debug)]
pub enum Arguments<F> {
    /// The flags.
    Flags(Box<F>),
    /// No flags: a configuration file.
    File(PathBuf),
    /// Help or the version was requested: the text to print.
    Text(String),
}

impl FlagSet {
    /// Parses the arguments that follow the name of a program. `process` is its name in `fairlead config defaults`.
    ///
    /// # Errors
    /// [`FlagError`] names the flag.
    pub(super) fn arguments<F>(
        &self,
        version: &'static str,
        process: &str,
        arguments: impl IntoIterator<Item = String>,
        settings: impl FnOnce(&GivenFlags) -> Result<F, FlagError>,
    ) -> Result<Arguments<F>, FlagError> {
        let help = format!(
            "Configuration file, in place of all flags; `fairlead config defaults {process}` prints one"
        );
        let file = Arg::new("config").long("config").num_args(1).action(ArgAction::Append);
        let command = self.command(version).arg(file.value_name("FILE").help(help));
        let given = match self.parse(command, arguments)? {
            ParsedLine::Text(text) => return Ok(Arguments::Text(text)),
            ParsedLine::Flags(given) => given,
        };
        match (given.argument("config"), given.first()) {
            (None, _) => settings(&given).map(Box::new).map(Arguments::Flags),
            (Some(_), Some(flag)) => Err(FlagError::Mixed(flag)),
            (Some(file), None) => Ok(Arguments::File(PathBuf::from(file))),
        }
    }
}
