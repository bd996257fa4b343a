//! Source text with positions, and errors in the form of cel-go, which API servers return in `Status` causes.

use std::fmt;

use crate::limits::MAX_REPORTED_ISSUES;

/// Longer lines are not repeated below an error.
const MAX_SNIPPET: usize = 16_384;

/// A source text.
pub(crate) struct Source<'s> {
    text: &'s str,
    /// Byte offsets at which lines begin.
    lines: Vec<usize>,
}

/// A place in the source: line from 1, column in code points from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    line: i64,
    column: i64,
}

impl Position {
    /// The position of errors that belong to no place.
    pub(crate) const NONE: Self = Self { line: -1, column: -1 };
}

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    pub(crate) position: Position,
    pub(crate) message: String,
}

/// Errors of one expression. Only the first ones are stored.
#[derive(Debug, Default)]
pub(crate) struct Issues {
    issues: Vec<Issue>,
    count: usize,
}

impl<'s> Source<'s> {
    pub(crate) fn new(text: &'s str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(index, _)| index + 1)).collect();
        Self { text, lines }
    }

    pub(crate) fn text(&self) -> &'s str {
        self.text
    }

    pub(crate) fn position(&self, offset: usize) -> Position {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |text| text.chars().count());
        Position { line: count(line), column: count(column) }
    }

    fn line(&self, number: i64) -> Option<&'s str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let start = *self.lines.get(index)?;
        let end = self.lines.get(index + 1).map_or(self.text.len(), |next| next - 1);
        self.text.get(start..end)
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Issues {
    pub(crate) fn report(&mut self, position: Position, message: impl Into<String>) {
        self.count += 1;
        if self.count <= MAX_REPORTED_ISSUES {
            self.issues.push(Issue { position, message: message.into() });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All errors, in the order of their positions, with the lines of the source.
    pub(crate) fn render(mut self, source: &Source<'_>) -> String {
        self.issues.sort_by_key(|issue| issue.position);
        let mut rendered: Vec<String> =
            self.issues.iter().map(|issue| RenderedIssue { issue, source }.to_string()).collect();
        if self.count > MAX_REPORTED_ISSUES {
            rendered.push(format!("{} more errors were truncated", self.count - MAX_REPORTED_ISSUES));
        }
        rendered.join("\n")
    }
}

struct RenderedIssue<'a> {
    issue: &'a Issue,
    source: &'a Source<'a>,
}

impl fmt::Display for RenderedIssue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.issue.position;
        write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, self.issue.message)?;
        let Some(snippet) = self.source.line(line).filter(|line| line.len() <= MAX_SNIPPET) else {
            return Ok(());
        };
        write!(f, "\n | {}\n | ", snippet.replace('\t', " "))?;
        // Wide characters need wide marks.
        let mut characters = snippet.chars();
        let column = usize::try_from(column).unwrap_or(0);
        for character in characters.by_ref().take(column) {
            f.write_str(if character.is_ascii() { "." } else { "．" })?;
        }
        let is_wide = characters.next().is_some_and(|character| !character.is_ascii());
        f.write_str(if is_wide { "＾" } else { "^" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shown_below_their_line() {
        let source = Source::new("a +\n\té.b");
        let mut issues = Issues::default();
        issues.report(source.position(7), "second");
        issues.report(source.position(2), "first");
        issues.report(Position::NONE, "nowhere");
        let expected = "ERROR: <input>:-1:0: nowhere\n\
            ERROR: <input>:1:3: first\n | a +\n | ..^\n\
            ERROR: <input>:2:3: second\n |  é.b\n | .．^";
        assert_eq!(issues.render(&source), expected);
    }
}
