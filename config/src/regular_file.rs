//! Reading of files that settings name, which may be of any type.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// Maximum size. Configurations, certificates, kubeconfigs and lists of networks are smaller.
const MAX_SIZE: u64 = 16 << 20;

/// The content of a regular file; `None` if it cannot be read, is larger than [`MAX_SIZE`], or is a device or FIFO, which may be
/// endless or block.
pub fn read_regular_file(file: &Path) -> Option<Vec<u8>> {
    if !is_regular_file(file) {
        return None;
    }
    read_limited(file).ok()
}

/// Whether it is a regular file of at most [`MAX_SIZE`].
pub fn is_regular_file(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_SIZE)
}

/// Reads a configuration. It may be a FIFO, as in process substitution of a shell, but not endless.
pub(crate) fn read_configuration(file: &Path) -> io::Result<String> {
    String::from_utf8(read_limited(file)?)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

fn read_limited(file: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(file)?.take(MAX_SIZE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_SIZE {
        let message = format!("it has more than {} MiB", MAX_SIZE >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::process::Command;

    use super::*;

    #[test]
    fn a_configuration_may_come_through_a_fifo_but_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let writer = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::write(fifo, "drain: {}\n").unwrap()
        });
        assert_eq!(read_configuration(&fifo).unwrap(), "drain: {}\n");
        writer.join().unwrap();
        assert!(!is_regular_file(&fifo) && read_regular_file(&fifo).is_none());

        let endless = read_configuration(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(
            (endless.kind(), endless.to_string().as_str()),
            (ErrorKind::FileTooLarge, "it has more than 16 MiB")
        );
        assert_eq!(read_regular_file(Path::new("/dev/zero")), None);

        let file = folder.path().join("file");
        fs::write(&file, vec![b'#'; 16 << 20]).unwrap();
        assert!(read_configuration(&file).is_ok() && is_regular_file(&file));
        fs::write(&file, vec![b'#'; (16 << 20) + 1]).unwrap();
        assert!(read_configuration(&file).is_err() && !is_regular_file(&file));
        fs::write(&file, b"\xff").unwrap();
        assert_eq!(read_configuration(&file).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
