//! What goes to standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process;

/// Prints. A reader that has left (`| head`) has what it wanted; anything else that keeps the text from being printed
/// ends the program with one sentence, because what was asked for has not been done.
pub(crate) fn print(text: impl Display) {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            // Nor can it be told, perhaps.
            let _ = writeln!(io::stderr(), "Error: cannot print: {error}");
            process::exit(1);
        }
        _ => {}
    }
}
