//! What goes to standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process;

use clap::ValueEnum;

/// How a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// The text without what moves a terminal's cursor or the direction of what is read: names in it are anybody's choice.
pub(crate) fn harmless(text: &str) -> String {
    let is_odd = |character: char| {
        character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let shown = |character: char| match character {
        odd if is_odd(odd) => odd.escape_unicode().to_string(),
        other => other.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Prints. A reader that has left (`| head`) has what it wanted; anything else that keeps the text from being printed
/// ends the program with one sentence, because what was asked for has not been done.
pub(crate) fn print(text: impl Display) {
    let _ = is_printed(text);
}

/// The same, and tells whether there is still a reader.
pub(crate) fn is_printed(text: impl Display) -> bool {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => false,
        Err(error) => {
            // Nor can it be told, perhaps.
            let _ = writeln!(io::stderr(), "Error: cannot print: {error}");
            process::exit(1);
        }
    }
}

/// Columns as wide as their widest cell.
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
