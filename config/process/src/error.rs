//! Errors that end a process, and their text.

use std::error::Error;

/// An error that ends the process, with advice if there is some.
pub trait FatalError: Error {
    /// Advice for the operator, one sentence.
    fn hint(&self) -> Option<String> {
        None
    }
}

impl FatalError for fairlead_config::ConfigError {
    fn hint(&self) -> Option<String> {
        fairlead_config::ConfigError::hint(self)
    }
}

/// An error with its sources on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
