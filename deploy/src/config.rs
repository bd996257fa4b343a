//! `fairlead config`: prints default settings, checks a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use fairlead_config::{Finding, ProcessKind, defaults_yaml};
use fairlead_lint::lint;

use crate::output::print;

/// Subcommands of `fairlead config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a complete configuration with every default and its description
    Defaults {
        /// gateway, shard, cache, issuer or virtual-workspaces
        kind: ProcessKind,
    },
    /// Check a configuration and the files that it names; exit code 1 if there are findings
    Lint {
        /// gateway, shard, cache, issuer or virtual-workspaces
        kind: ProcessKind,
        /// The configuration
        file: PathBuf,
    },
}

impl ConfigCommand {
    /// Runs the subcommand.
    pub(crate) fn run(&self) -> ExitCode {
        match self {
            Self::Defaults { kind } => {
                print(defaults_yaml(*kind));
                ExitCode::SUCCESS
            }
            Self::Lint { kind, file } => {
                let findings = lint(*kind, file);
                print(report(&findings, file));
                if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
        }
    }
}

fn report(findings: &[Finding], file: &Path) -> String {
    if findings.is_empty() {
        return format!("{}: no findings\n", file.display());
    }
    let lines = findings.iter().map(|finding| match &finding.hint {
        Some(hint) => format!("{finding}\n  hint: {hint}\n"),
        None => format!("{finding}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_printed_with_place_and_hint() {
        let file = Path::new("a.yaml");
        assert_eq!(report(&[], file), "a.yaml: no findings\n");
        let finding = Finding {
            file: file.to_owned(),
            place: Some((3, 5)),
            key: Some("serving".to_owned()),
            message: "is odd".to_owned(),
            hint: Some("make it even".to_owned()),
        };
        let blunt = Finding { hint: None, place: None, ..finding.clone() };
        let text = "a.yaml:3:5: serving: is odd\n  hint: make it even\na.yaml: serving: is odd\n";
        assert_eq!(report(&[finding, blunt], file), text);
    }
}
