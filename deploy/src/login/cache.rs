//! Tokens on disk: one file with mode 0600 per issuer, client and authorities. A file is replaced by rename, so concurrent
//! processes read either the old or the new one.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The tokens of a sign-in. `Debug` prints no tokens.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tokens {
    pub(super) id_token: String,
    /// Expiry of the ID token, in seconds since 1970.
    pub(super) expires: i64,
    pub(super) refresh_token: Option<String>,
    /// Name of the user, for messages.
    pub(super) user: String,
}

/// The file of one issuer and client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheFile {
    path: PathBuf,
    issuer: String,
}

#[derive(Serialize, Deserialize)]
struct Content {
    issuer: String,
    #[serde(flatten)]
    tokens: Tokens,
}

/// A cache that cannot be used. The operator has to act.
#[derive(Debug, thiserror::Error)]
pub(super) enum CacheError {
    #[error("there is no folder for tokens: neither XDG_CACHE_HOME nor HOME is set")]
    NoHome,
    #[error("cannot {attempt} {}: {source}", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
}

impl CacheError {
    fn io(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { attempt, path, source }
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("user", &self.user)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// The folder of the tokens: `given`, else that of the XDG Base Directory Specification.
pub(super) fn folder(given: Option<&Path>) -> Result<PathBuf, CacheError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    given
        .map(Path::to_owned)
        .or_else(|| absolute("XDG_CACHE_HOME").map(|cache| cache.join("fairlead/login")))
        .or_else(|| absolute("HOME").map(|home| home.join(".cache/fairlead/login")))
        .ok_or(CacheError::NoHome)
}

/// Deletes the tokens of an issuer, or all. Returns the number of files.
pub(super) fn delete(folder: &Path, issuer: Option<&str>) -> Result<usize, CacheError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(CacheError::io("read", folder)(error)),
    };
    let mut count = 0;
    for entry in entries {
        let path = entry.map_err(CacheError::io("read", folder))?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        // The issuer of a file that cannot be read is unknown. Such a file is only deleted together with all others.
        let content = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Content>(&text).ok());
        if issuer.is_none_or(|issuer| content.is_some_and(|content| content.issuer == issuer)) {
            match fs::remove_file(&path) {
                Ok(()) => count += 1,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(CacheError::io("remove", &path)(error)),
            }
        }
    }
    Ok(count)
}

impl CacheFile {
    /// The file for tokens of an issuer. `authorities` are part of its name: another installation at the same address has
    /// other ones, and rejects tokens of this one.
    pub(super) fn of(folder: &Path, issuer: &str, client_id: &str, authorities: &[u8]) -> Self {
        let mut digest = Sha256::new();
        for part in [issuer.as_bytes(), client_id.as_bytes(), authorities] {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part);
        }
        let name: String = digest.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { path: folder.join(format!("{name}.json")), issuer: issuer.to_owned() }
    }

    /// The tokens; `None` without any, or if other users can read or write the file.
    pub(super) fn read(&self) -> Option<Tokens> {
        let mode = fs::metadata(&self.path).ok()?.permissions().mode();
        if mode & 0o077 != 0 {
            return None;
        }
        let content: Content = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        (content.issuer == self.issuer).then_some(content.tokens)
    }

    /// Replaces the tokens.
    pub(super) fn write(&self, tokens: &Tokens) -> Result<(), CacheError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(CacheError::io("create", folder))?;
        // The process id makes the name unique.
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        let write = || -> io::Result<()> {
            match fs::remove_file(&new) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let content = Content { issuer: self.issuer.clone(), tokens: tokens.clone() };
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(&content)?)?;
            fs::rename(&new, &self.path)
        };
        write().map_err(|error| {
            // The incomplete file is of no use.
            let _ = fs::remove_file(&new);
            CacheError::io("write", &self.path)(error)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn tokens(id_token: &str) -> Tokens {
        Tokens {
            id_token: id_token.to_owned(),
            expires: 7,
            refresh_token: Some("r".to_owned()),
            user: "u".to_owned(),
        }
    }

    #[test]
    fn only_the_owner_can_read_tokens() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/b");
        let file = CacheFile::of(&folder, "https://i", "c", b"ca");
        assert_eq!(file.read(), None);
        file.write(&tokens("one")).unwrap();
        file.write(&tokens("two")).unwrap();
        assert_eq!(file.read(), Some(tokens("two")));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&file.path)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no temporary files are left");
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(file.read(), None, "others can read it");
        file.write(&tokens("three")).unwrap();
        assert_eq!(mode(&file.path), 0o600);
        fs::write(&file.path, "{half").unwrap();
        assert_eq!(file.read(), None);
        assert!(!format!("{:?}", tokens("secret")).contains("secret"));
    }

    #[test]
    fn each_issuer_client_and_installation_has_its_file() {
        let folder = Path::new("/x");
        let usual = CacheFile::of(folder, "https://i", "c", b"ca");
        for (issuer, client, ca) in [
            ("https://j", "c", "ca"),
            ("https://i", "d", "ca"),
            ("https://i", "c", "cb"),
            ("https://ic", "", "ca"),
        ] {
            assert_ne!(CacheFile::of(folder, issuer, client, ca.as_bytes()).path, usual.path);
        }
    }

    #[test]
    fn tokens_are_deleted_by_issuer_or_all() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        assert_eq!(delete(&folder.join("none"), None).unwrap(), 0);
        for (issuer, client) in
            [("https://i", "c"), ("https://i", "d"), ("https://j", "c"), ("https://k", "c")]
        {
            CacheFile::of(folder, issuer, client, b"").write(&tokens("t")).unwrap();
        }
        fs::write(folder.join("note.txt"), "not ours").unwrap();
        assert_eq!(delete(folder, Some("https://i")).unwrap(), 2);
        assert_eq!(delete(folder, Some("https://i")).unwrap(), 0);
        assert_eq!(delete(folder, None).unwrap(), 2);
        assert!(folder.join("note.txt").exists());
    }
}
