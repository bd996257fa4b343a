//! The target of the log: standard output, or a file that is rotated when it is full.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A target.
#[derive(Debug)]
pub(super) enum Output {
    Stdout(TornLine),
    File(LogFile),
}

/// True if the last write ended within a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TornLine {
    Yes,
    No,
}

/// A file of bounded size, and its rotated predecessors.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// Size in bytes; whole lines only.
    size: u64,
    limits: Rotation,
}

/// The size at which a file is rotated, and the number of files that are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Rotation {
    pub(crate) max_size: u64,
    pub(crate) max_files: u32,
}

/// A write failed.
#[derive(Debug)]
pub(super) struct WriteError {
    /// Bytes of whole lines that were written.
    pub(super) written: usize,
    pub(super) error: io::Error,
}

impl Output {
    /// Writes lines, each with its line feed.
    ///
    /// # Errors
    /// [`WriteError`]; the caller drops the rest, because waiting for disk space would lose more.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), WriteError> {
        match self {
            Self::Stdout(torn) => write_to_stdout(torn, lines),
            Self::File(file) => file.write(lines),
        }
    }

    /// Reopens the file after it was moved.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(_) => Ok(()),
            Self::File(file) => file.reopen(),
        }
    }
}

fn write_to_stdout(torn: &mut TornLine, lines: &[u8]) -> Result<(), WriteError> {
    let mut out = io::stdout().lock();
    let failed = |written, error| Err(WriteError { written, error });
    if *torn == TornLine::Yes
        && let Err(error) = out.write_all(b"\n")
    {
        return failed(0, error);
    }
    match write_counted(&mut out, lines).and_then(|()| out.flush().map_err(|error| (lines.len(), error))) {
        Ok(()) => {
            *torn = TornLine::No;
            Ok(())
        }
        Err((written, error)) => {
            let whole = whole_lines(&lines[..written]);
            *torn = if whole == written { TornLine::No } else { TornLine::Yes };
            failed(whole, error)
        }
    }
}

impl LogFile {
    /// Opens a file and appends to its content.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open(path: &Path, limits: Rotation) -> io::Result<Self> {
        let file = append_to(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, limits })
    }

    fn reopen(&mut self) -> io::Result<()> {
        *self = Self::open(&self.path, self.limits)?;
        Ok(())
    }

    fn write(&mut self, lines: &[u8]) -> Result<(), WriteError> {
        let mut rest = lines;
        while !rest.is_empty() {
            let written = lines.len() - rest.len();
            let available =
                usize::try_from(self.limits.max_size.saturating_sub(self.size)).unwrap_or(usize::MAX);
            let mut fits = whole_lines(&rest[..available.min(rest.len())]);
            if fits == 0 && self.size > 0 {
                self.rotate().map_err(|error| WriteError { written, error })?;
                continue;
            }
            if fits == 0 {
                // Longer than the maximum size of a file, which the configuration prevents.
                fits = rest.len();
            }
            let (now, later) = rest.split_at(fits);
            self.append(now).map_err(|failed| WriteError { written: written + failed.written, ..failed })?;
            rest = later;
        }
        Ok(())
    }

    fn append(&mut self, lines: &[u8]) -> Result<(), WriteError> {
        match write_counted(&mut self.file, lines) {
            Ok(()) => {
                self.size += lines.len() as u64;
                Ok(())
            }
            Err((written, error)) => {
                let whole = whole_lines(&lines[..written]);
                self.size += whole as u64;
                if whole < written {
                    // Removes an incomplete line. If that fails as well, a reader sees it.
                    let _ = self.file.set_len(self.size);
                }
                Err(WriteError { written: whole, error })
            }
        }
    }

    /// Renames the files to the next number, and removes the oldest.
    fn rotate(&mut self) -> io::Result<()> {
        let numbered = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        if self.limits.max_files == 0 {
            self.file.set_len(0)?;
            self.size = 0;
            return Ok(());
        }
        // If another program has moved the file, no rotation is needed.
        if !self.path.exists() {
            return self.reopen();
        }
        for number in (1..self.limits.max_files).rev() {
            match std::fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, numbered(1))?;
        self.reopen()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    // The log contains user names, so other users must not read it.
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

/// Length up to the end of the last line.
fn whole_lines(bytes: &[u8]) -> usize {
    memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1)
}

fn write_counted(out: &mut impl io::Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    fn text(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn full_files_are_rotated_and_the_oldest_is_removed() {
        for (max_files, kept) in [(0, ["7\n8\n", "", "", ""]), (2, ["7\n8\n", "4\n5\n6\n", "1\n2\n3\n", ""])]
        {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("access.log");
            fs::write(&path, "0\n").unwrap();
            let mut file = LogFile::open(&path, Rotation { max_size: 6, max_files }).unwrap();
            // The first file ends with the existing lines: 0 1 2, then 3 4 5, then 6 7 8.
            file.write(b"1\n2\n").unwrap();
            fs::remove_file(&path).unwrap();
            file.reopen().unwrap();
            file.write(b"1\n2\n3\n4\n").unwrap();
            file.write(b"5\n6\n7\n8\n").unwrap();
            for (number, expected) in kept.into_iter().enumerate() {
                let path = match number {
                    0 => path.clone(),
                    _ => directory.path().join(format!("access.log.{number}")),
                };
                assert_eq!(text(&path).unwrap_or_default(), expected, "{max_files}: {number}");
            }
        }
    }

    #[test]
    fn a_moved_file_loses_no_line_and_no_rotated_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let mut file = LogFile::open(&path, Rotation { max_size: 4, max_files: 2 }).unwrap();
        file.write(b"1\n2\n3\n4\n").unwrap();
        assert_eq!(text(&directory.path().join("access.log.1")).as_deref(), Some("1\n2\n"));
        fs::remove_file(&path).unwrap();
        for line in [b"5\n", b"6\n", b"7\n"] {
            file.write(line).unwrap();
        }
        assert_eq!(text(&directory.path().join("access.log.2")).as_deref(), Some("1\n2\n"));
        assert_eq!(text(&directory.path().join("access.log.1")).as_deref(), Some("5\n6\n"));
        assert_eq!(text(&path).as_deref(), Some("7\n"));
    }

    #[test]
    fn failed_writes_are_counted_in_whole_lines() {
        let full = LogFile::open(Path::new("/dev/full"), Rotation { max_size: 1 << 20, max_files: 1 });
        let failed = full.unwrap().write(b"1\n2\n").unwrap_err();
        assert_eq!((failed.written, failed.error.kind()), (0, io::ErrorKind::StorageFull));
    }
}
