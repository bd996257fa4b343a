//! Errors about recordings.

use std::path::{Path, PathBuf};

/// A file of recordings that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system or of gzip.
        source: std::io::Error,
    },
    /// A line is not in the expected format.
    #[error("{}: line {line}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// A recording lacks a part that the tests need, or has it in an unknown form.
    #[error("{}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

impl RecordingError {
    /// For `map_err` on an operation with a file.
    pub(super) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// For `map_err` on parsing a line, or a whole file as line 1.
    pub(super) fn line(path: &Path, line: usize) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Line { path, line, source }
    }

    pub(super) fn content(path: &Path, problem: impl Into<String>) -> Self {
        Self::Content { path: path.to_owned(), problem: problem.into() }
    }
}
