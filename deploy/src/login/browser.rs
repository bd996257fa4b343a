//! Opening a browser, where there evidently is one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A program that shows an address to the person here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Browser(OsString);

impl Browser {
    /// What `BROWSER` names; else the desktop's own, if there is a desktop.
    pub(super) fn here() -> Option<Self> {
        Self::among(|name| std::env::var_os(name).filter(|value| !value.is_empty()), in_path)
    }

    fn among(
        variable: impl Fn(&str) -> Option<OsString>,
        found: impl Fn(&str) -> Option<PathBuf>,
    ) -> Option<Self> {
        if let Some(browser) = variable("BROWSER") {
            return Some(Self(browser));
        }
        if cfg!(target_os = "macos") {
            return found("open").map(|path| Self(path.into()));
        }
        ["WAYLAND_DISPLAY", "DISPLAY"].into_iter().find_map(variable)?;
        found("xdg-open").map(|path| Self(path.into()))
    }

    /// Opens the address. Whether that worked, only the person sees.
    pub(super) fn open(&self, address: &str) -> std::io::Result<()> {
        // Nothing of it may come between what is printed for others.
        let mut command = Command::new(&self.0);
        command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(drop)
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(target_os = "macos"))]
    fn a_browser_needs_a_screen_or_to_be_named() {
        for (variables, installed, expected) in [
            (&[][..], true, None),
            (&[("DISPLAY", ":0")], true, Some("/bin/xdg-open")),
            (&[("WAYLAND_DISPLAY", "w")], true, Some("/bin/xdg-open")),
            (&[("DISPLAY", ":0")], false, None),
            (&[("BROWSER", "lynx"), ("DISPLAY", ":0")], true, Some("lynx")),
        ] {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            let found = |program: &str| installed.then(|| PathBuf::from("/bin").join(program));
            let expected = expected.map(|program| Browser(program.into()));
            assert_eq!(Browser::among(variable, found), expected, "{variables:?}");
        }
    }
}
