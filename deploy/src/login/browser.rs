//! Opens a browser, if there is one on this machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A program that opens an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Browser(OsString);

impl Browser {
    /// The program in `BROWSER`, else the default browser if there is a desktop.
    pub(super) fn detect() -> Option<Self> {
        Self::select(|name| std::env::var_os(name).filter(|value| !value.is_empty()), in_path)
    }

    fn select(
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

    /// Opens the address. Success of the browser itself is not known.
    pub(super) fn open(&self, address: &str) -> std::io::Result<()> {
        // Output of the browser must not mix with that for the client.
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
    fn a_browser_needs_a_desktop_or_the_variable() {
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
            assert_eq!(Browser::select(variable, found), expected, "{variables:?}");
        }
    }
}
