//! The exit of a process that cannot start: message, hint and exit code.

use std::process::ExitCode;

use crate::error::{FatalError, chain};
use crate::supervised::end_with_supervisor;

/// Runs a `main` and turns its error into one sentence, a hint and exit code 1. A process that was started by a
/// supervisor (`FAIRLEAD_SUPERVISED`, a pipe as standard input) also ends as soon as the supervisor is gone.
pub fn run<E: FatalError>(main: impl FnOnce() -> Result<(), E>) -> ExitCode {
    if let Err(error) = end_with_supervisor() {
        eprintln!("the supervisor cannot be monitored: {error}");
        return ExitCode::FAILURE;
    }
    match main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let program = std::env::args().next().unwrap_or_default();
            let program = program.rsplit('/').next().unwrap_or_default();
            eprint!("{}", describe(program, &error));
            ExitCode::FAILURE
        }
    }
}

fn describe(program: &str, error: &impl FatalError) -> String {
    let mut text = format!("{program}: {}\n", chain(error));
    if let Some(hint) = error.hint() {
        text.push_str(&format!("  hint: {hint}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum StartError {
        #[error("the store cannot be opened")]
        Store(#[source] std::io::Error),
    }

    impl FatalError for StartError {
        fn hint(&self) -> Option<String> {
            Some("is another shard running?".to_owned())
        }
    }

    #[test]
    fn an_error_is_one_sentence_with_its_cause_and_a_hint() {
        let error = StartError::Store(std::io::Error::other("locked"));
        assert_eq!(
            describe("shard", &error),
            "shard: the store cannot be opened: locked\n  hint: is another shard running?\n"
        );
    }
}
