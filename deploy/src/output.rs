//! Output to standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process;

use clap::ValueEnum;

/// Output of a command: results to standard output, warnings to standard error.
pub(crate) struct Output<'a> {
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
}

impl Output<'_> {
    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush())
    }

    pub(crate) fn warn(&mut self, text: &str) -> io::Result<()> {
        self.err.write_all(text.as_bytes())
    }
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Escapes control characters and characters that change the direction of text. Text from requests may contain any, and
/// could otherwise control the terminal.
pub(crate) fn escape_control_characters(text: &str) -> String {
    let is_unsafe = |character: char| {
        character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let escape = |character: char| match character {
        character if is_unsafe(character) => character.escape_unicode().to_string(),
        other => other.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Prints a text. A closed pipe (`| head`) is no error. Any other error ends the program with a message, because its result is
/// lost.
pub(crate) fn print(text: impl Display) {
    let _ = try_print(text);
}

/// Prints like [`print`]. Returns whether there is still a reader.
pub(crate) fn try_print(text: impl Display) -> bool {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => false,
        Err(error) => {
            // Standard error may fail, too.
            let _ = writeln!(io::stderr(), "Error: cannot print: {error}");
            process::exit(1);
        }
    }
}

/// Rows with aligned columns.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
