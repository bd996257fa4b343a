//! Rotation of a log file: by size, with a limit of number and age of the old files.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use crate::gzip::GzipStream;

/// The settings of the rotation; zero means no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rotation {
    /// Bytes from which the file is renamed and a new one begun.
    pub max_bytes: u64,
    /// Days after which an old file is deleted.
    pub max_age_days: u32,
    /// Number of old files that are kept.
    pub max_backups: usize,
    /// Whether old files are compressed by gzip.
    pub is_compressed: bool,
}

/// The time in the name of an old file: `audit-2026-11-25T08-30-00.000.log`.
const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S.%3f";

/// Opens a file for appending that only its owner may read.
pub(super) fn create(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)
}

/// Renames a file by the time, or by a later one than those of all old files: rotations within a millisecond stay in order.
pub(super) fn rename(file: &Path, now: Timestamp) -> io::Result<()> {
    let (stem, extension) = name_parts(file);
    let newest = backups(file)?.into_iter().map(|(_, time)| time).max();
    let after_newest = newest.and_then(|newest| newest.checked_add(SignedDuration::from_millis(1)).ok());
    let at = after_newest.map_or(now, |after_newest| after_newest.max(now));
    fs::rename(file, file.with_file_name(format!("{stem}-{}{extension}", at.strftime(TIME_FORMAT))))
}

/// Compresses and deletes old files by the settings.
pub(super) fn tidy(file: &Path, rotation: Rotation, now: Timestamp) -> io::Result<()> {
    let mut backups = backups(file)?;
    backups.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    for (position, (path, time)) in backups.into_iter().enumerate() {
        let is_beyond = rotation.max_backups > 0 && position >= rotation.max_backups;
        let age = now.duration_since(time);
        let is_old = rotation.max_age_days > 0
            && age > SignedDuration::from_hours(24 * i64::from(rotation.max_age_days));
        if is_beyond || is_old {
            fs::remove_file(&path)?;
        } else if rotation.is_compressed && path.extension().is_none_or(|extension| extension != "gz") {
            compress(&path)?;
        }
    }
    Ok(())
}

/// The old files of a log file with their times.
fn backups(file: &Path) -> io::Result<Vec<(PathBuf, Timestamp)>> {
    let (stem, extension) = name_parts(file);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        let time = plain.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(&extension));
        let time = time.and_then(|time| {
            let civil = jiff::civil::DateTime::strptime("%Y-%m-%dT%H-%M-%S%.f", time).ok()?;
            civil.to_zoned(jiff::tz::TimeZone::UTC).ok()
        });
        if let Some(time) = time {
            found.push((entry.path(), time.timestamp()));
        }
    }
    Ok(found)
}

/// The name of a file without its extension, and the extension with its dot.
fn name_parts(file: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = text(file.extension());
    let extension = if extension.is_empty() { extension } else { format!(".{extension}") };
    (text(file.file_stem()), extension)
}

/// Replaces a file by its compressed form. The new file gets its name only when it is complete.
fn compress(path: &Path) -> io::Result<()> {
    use io::{Read as _, Write as _};
    const PIECE: usize = 64 * 1024;
    let mut compressed_name = path.as_os_str().to_owned();
    compressed_name.push(".gz");
    let mut partial_name = compressed_name.clone();
    partial_name.push(".partial");
    let mut source = fs::File::open(path)?;
    let mut target = create(Path::new(&partial_name))?;
    let mut gzip = GzipStream::new();
    let mut piece = vec![0; PIECE];
    loop {
        let read = source.read(&mut piece)?;
        let compressed = gzip
            .compress(&piece[..read], read == 0)
            .ok_or_else(|| io::Error::other("the file cannot be compressed"))?;
        target.write_all(&compressed)?;
        if read == 0 {
            break;
        }
    }
    target.sync_all()?;
    fs::rename(&partial_name, &compressed_name)?;
    fs::remove_file(path)
}
