//! The log file: one line of JSON per event.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use jiff::Timestamp;

use super::rotation::{self, Rotation, create};

/// A log file, or standard output.
#[derive(Debug)]
pub struct LogFile {
    target: Target,
    rotation: Rotation,
}

#[derive(Debug)]
enum Target {
    File { path: PathBuf, file: File, size: u64 },
    Stdout,
}

/// A log file that cannot be opened; the operator has to fix its path.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {} cannot be opened", file.display())]
pub struct LogFileError {
    /// The file.
    pub file: PathBuf,
    /// The reason.
    #[source]
    pub source: io::Error,
}

impl LogFile {
    /// Opens a file to append to, with its folder; `-` is standard output.
    ///
    /// # Errors
    /// [`LogFileError`].
    pub fn open(path: &Path, rotation: Rotation) -> Result<Self, LogFileError> {
        if path == Path::new("-") {
            return Ok(Self { target: Target::Stdout, rotation });
        }
        let failed = |source| LogFileError { file: path.to_path_buf(), source };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let (file, size) = open_complete(path).map_err(failed)?;
        Ok(Self { target: Target::File { path: path.to_path_buf(), file, size }, rotation })
    }

    /// Appends events, whole lines in one write. A killed process may leave a part of the last one, which the next start removes.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&mut self, events: &[Bytes]) -> io::Result<()> {
        let mut lines = Vec::with_capacity(events.iter().map(|event| event.len() + 1).sum());
        for event in events {
            lines.extend_from_slice(event);
            lines.push(b'\n');
        }
        match &mut self.target {
            Target::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&lines)?;
                out.flush()
            }
            Target::File { path, file, size } => {
                let added = lines.len() as u64;
                if self.rotation.max_bytes > 0 && *size > 0 && *size + added > self.rotation.max_bytes {
                    rotation::rename(path, Timestamp::now())?;
                    *file = create(path)?;
                    *size = 0;
                    if let Err(error) = rotation::tidy(path, self.rotation, Timestamp::now()) {
                        tracing::warn!(%error, file = %path.display(), "old audit logs cannot be removed");
                    }
                }
                match file.write_all(&lines) {
                    Ok(()) => *size += added,
                    Err(error) => {
                        // A full disk may have taken a part of the lines; the next write must not continue it.
                        let _ = file.set_len(*size);
                        return Err(error);
                    }
                }
                Ok(())
            }
        }
    }
}

/// Opens a file. A last line without an end is removed: a killed process may have written a part of it, and no response depends
/// on it.
fn open_complete(path: &Path) -> io::Result<(File, u64)> {
    let mut file = create(path)?;
    let size = file.metadata()?.len();
    let complete = complete_size(&mut file, size)?;
    if complete < size {
        tracing::warn!(file = %path.display(), bytes = size - complete, "an incomplete line is removed");
        file.set_len(complete)?;
    }
    Ok((file, complete))
}

/// The size without a last line that has no end.
fn complete_size(file: &mut File, size: u64) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(STEP);
        let mut piece = vec![0; usize::try_from(end - start).unwrap_or_default()];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut piece)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn event(number: usize) -> Bytes {
        format!("{{\"number\":{number}}}").into()
    }

    #[test]
    fn a_file_is_rotated_by_size_and_old_files_are_limited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/audit.log");
        let rotation = Rotation { max_bytes: 40, max_backups: 2, ..Rotation::default() };
        let mut log = LogFile::open(&path, rotation).unwrap();
        for number in 10..20 {
            log.write(&[event(number)]).unwrap();
        }
        let names = names(path.parent().unwrap());
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names[..2].iter().all(|name| name.starts_with("audit-20") && name.ends_with(".log")));
        let mut all = String::new();
        for name in &names {
            all += &std::fs::read_to_string(path.with_file_name(name)).unwrap();
        }
        let expected: String = (14..20).map(|number| format!("{{\"number\":{number}}}\n")).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn old_files_are_compressed_and_deleted_by_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        std::fs::write(folder.path().join("audit-2020-01-01T00-00-00.000.log"), "old").unwrap();
        std::fs::write(folder.path().join("audit-other.log"), "other").unwrap();
        let rotation =
            Rotation { max_bytes: 20, max_age_days: 7, is_compressed: true, ..Rotation::default() };
        let mut log = LogFile::open(&path, rotation).unwrap();
        log.write(&[event(10)]).unwrap();
        log.write(&[event(11)]).unwrap();
        let names = names(folder.path());
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names[0].ends_with(".log.gz"), "{names:?}");
        assert_eq!(names[1..], ["audit-other.log", "audit.log"]);
        let mut text = String::new();
        let compressed = File::open(folder.path().join(&names[0])).unwrap();
        flate2::read::GzDecoder::new(compressed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"number\":10}\n");
    }

    /// Writes events until it is killed. Only run by the test below, in a process of its own.
    #[test]
    #[ignore = "endless"]
    fn writes_until_it_is_killed() {
        let path = std::env::var("FAIRLEAD_AUDIT_TEST").unwrap();
        let mut log = LogFile::open(Path::new(&path), Rotation::default()).unwrap();
        let text: Bytes = format!("{{\"text\":\"{}\"}}", "x".repeat(5000)).into();
        loop {
            log.write(&vec![text.clone(); 7]).unwrap();
        }
    }

    #[test]
    fn after_a_kill_the_file_has_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for round in 1..=5 {
            let mut writer = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--ignored", "audit::log_file::tests::writes_until_it_is_killed"])
                .env("FAIRLEAD_AUDIT_TEST", &path)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let size = || std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
            while size() < round * 1_000_000 {
                assert!(writer.try_wait().unwrap().is_none(), "the writer has ended");
                std::thread::yield_now();
            }
            // SIGKILL.
            writer.kill().unwrap();
            writer.wait().unwrap();
            drop(LogFile::open(&path, Rotation::default()).unwrap());
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.ends_with('\n'), "round {round}");
            for line in text.lines() {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
        }
    }

    #[test]
    fn an_incomplete_line_is_removed_at_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for (before, kept) in [
            ("{\"numb".to_owned(), ""),
            ("{}\n{\"numb".to_owned(), "{}\n"),
            (format!("{{}}\n{}", "x".repeat(200_000)), "{}\n"),
            ("{}\n".to_owned(), "{}\n"),
            (String::new(), ""),
        ] {
            std::fs::write(&path, before).unwrap();
            let mut log = LogFile::open(&path, Rotation::default()).unwrap();
            log.write(&[event(1), event(2)]).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text, format!("{kept}{{\"number\":1}}\n{{\"number\":2}}\n"));
        }
    }
}
