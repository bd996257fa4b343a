//! Opens text in the user's editor.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::SharingError;

/// A file that only the user can read. It stays if it is not removed.
pub(crate) struct EditedFile(PathBuf);

impl EditedFile {
    /// Writes the text to a new file and returns when the editor has ended.
    pub(crate) fn open(text: &str) -> Result<Self, SharingError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("fairlead-claims-{}-{}.yaml", std::process::id(), now.as_nanos());
        let file = Self(std::env::temp_dir().join(name));
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&file.0);
        opened
            .and_then(|mut opened| opened.write_all(text.as_bytes()))
            .map_err(|source| file.failure(source))?;
        file.edit(&editor())?;
        Ok(file)
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> Result<String, SharingError> {
        fs::read_to_string(&self.0).map_err(|source| self.failure(source))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn remove(self) {
        // A file in the folder for temporary files is no failure of the command.
        let _ = fs::remove_file(&self.0);
    }

    fn edit(&self, editor: &str) -> Result<(), SharingError> {
        // The shell splits the editor's arguments, as kubectl does.
        let status = Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(&self.0).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(SharingError::EditorFailed(editor.to_owned())),
            Err(error) => Err(SharingError::Editor(editor.to_owned(), error)),
        }
    }

    fn failure(&self, source: io::Error) -> SharingError {
        SharingError::EditedFile { path: self.0.clone(), source }
    }
}

/// The editor of kubectl, else that of the system.
fn editor() -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    variable("KUBE_EDITOR").or_else(|| variable("EDITOR")).unwrap_or_else(|| "vi".to_owned())
}
