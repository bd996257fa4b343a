//! The log file of a process, bounded in size.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Size above which a log is rotated.
const MAX_SIZE: u64 = 16 << 20;

/// A log file and its predecessor, `<name>.log.1`.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    max_size: u64,
}

impl LogFile {
    /// The log at a path. The file need not exist.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, max_size: MAX_SIZE }
    }

    /// Opens the file for appending.
    pub(crate) fn open(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(&self.path)
    }

    /// Rotates a log that is too large. Its writers keep their file descriptors, so the content is copied and the file
    /// truncated. Lines written in between are lost, one or two in 16 MiB.
    pub(crate) fn rotate(&self) -> io::Result<()> {
        let size = match std::fs::metadata(&self.path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if size > self.max_size {
            let mut rotated = self.path.clone().into_os_string();
            rotated.push(".1");
            std::fs::copy(&self.path, rotated)?;
            OpenOptions::new().write(true).open(&self.path)?.set_len(0)?;
        }
        Ok(())
    }
}

/// The last lines of a log that are not blank, at most `count`.
pub(crate) fn last_lines(path: &Path, count: usize) -> Vec<String> {
    // Bounds the read, however large the file is.
    const TAIL: u64 = 16 << 10;
    let read = || {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(TAIL)))?;
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail)?;
        io::Result::Ok(String::from_utf8_lossy(&tail).into_owned())
    };
    let tail = read().unwrap_or_default();
    let lines: Vec<_> = tail.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Write;

    use super::*;

    #[test]
    fn a_large_log_is_rotated_while_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogFile { path: folder.path().join("a.log"), max_size: 8 };
        log.rotate().unwrap();
        let mut writer = log.open().unwrap();
        writer.write_all(b"12345678").unwrap();
        log.rotate().unwrap();
        assert_eq!(std::fs::read_to_string(&log.path).unwrap(), "12345678");
        writer.write_all(b"9").unwrap();
        log.rotate().unwrap();
        writer.write_all(b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&log.path).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(folder.path().join("a.log.1")).unwrap(), "123456789");
    }

    #[test]
    fn blank_lines_are_not_among_the_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        assert!(last_lines(&path, 2).is_empty());
        std::fs::write(&path, format!("{}\none\n\ntwo\n  three\n \n", "x".repeat(100_000))).unwrap();
        assert_eq!(last_lines(&path, 2), ["two", "  three"]);
        assert_eq!(last_lines(&path, 9).len(), 4);
    }
}
