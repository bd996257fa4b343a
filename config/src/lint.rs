//! Lint of a configuration and its files without starting the process.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::check::{Checker, Fault, join};
use crate::key_positions::KeyPositions;
use crate::load::{Finding, ProcessConfig, locate, parse};
use crate::regular_file::read_configuration;
use crate::setting::{Meaning, Setting};

/// All findings of a configuration and its files, and those of `check_content`, which gets the settings with resolved paths.
pub fn lint_configuration<T: ProcessConfig>(
    file: &Path,
    check_content: impl FnOnce(&T, &mut Checker),
) -> Vec<Finding> {
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        let hint = Some("name a file: devices and FIFOs may have no end".to_owned());
        let message = "is not a file".to_owned();
        return vec![Finding { file: file.to_owned(), place: None, key: None, message, hint }];
    }
    let text = match read_configuration(file) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("cannot be read: {error}");
            let hint = Some(format!("`fairlead config defaults {}` prints a complete one", T::KIND));
            return vec![Finding { file: file.to_owned(), place: None, key: None, message, hint }];
        }
    };
    let (mut config, mut findings) = match parse::<T>(&text, file) {
        Ok(parsed) => parsed,
        Err(finding) => return vec![finding],
    };
    let base = file.parent().unwrap_or(Path::new(""));
    let mut faults = Vec::new();
    visit(&config, "", &mut |key, meaning| faults.extend(check_file(key, meaning, base)));
    let unread = config.unread();
    faults.retain(|fault| !unread.contains(&fault.key));
    config.resolve_paths(base);
    let mut checker = Checker::default();
    check_content(&config, &mut checker);
    let positions = KeyPositions::of(&text);
    let faults = faults.into_iter().chain(checker.into_faults());
    findings.extend(faults.map(|fault| locate(fault, &positions, file)));
    findings.sort_by_key(|finding| finding.place);
    findings
}

fn visit(setting: &dyn Setting, path: &str, found: &mut dyn FnMut(&str, Meaning<'_>)) {
    for entry in setting.entries().unwrap_or_default() {
        visit(entry.value, &join(path, entry.key), found);
    }
    for (index, element) in setting.elements().unwrap_or_default().into_iter().enumerate() {
        visit(element, &format!("{path}[{index}]"), found);
    }
    found(path, setting.meaning());
}

fn check_file(key: &str, meaning: Meaning<'_>, base: &Path) -> Option<Fault> {
    let fault =
        |message: String, hint: String| Some(Fault { key: key.to_owned(), message, hint: Some(hint) });
    let (path, secret) = match meaning {
        Meaning::Plain => return None,
        Meaning::ReadFile(path) => (base.join(path), false),
        Meaning::SecretFile(path) => (base.join(path), true),
    };
    let shown = path.display();
    let metadata = match fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return fault(format!("there is no file {shown}"), hint_for_missing(&path));
        }
        Err(error) => {
            return fault(format!("{shown} cannot be read: {error}"), "check its owner and mode".to_owned());
        }
    };
    if !metadata.is_file() {
        return fault(format!("{shown} is not a file"), "name a file".to_owned());
    }
    if metadata.len() == 0 {
        return fault(format!("{shown} is empty"), hint_for_missing(&path));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if secret && mode & 0o077 != 0 {
        let message = format!("{shown} is a secret that other users may access (mode {mode:04o})");
        return fault(message, format!("chmod 600 {shown}"));
    }
    None
}

fn hint_for_missing(path: &Path) -> String {
    let kind = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match kind {
        "crt" | "key" | "pem" | "kubeconfig" => {
            "`fairlead certs init` makes certificates and kubeconfigs".to_owned()
        }
        _ => "paths are relative to the folder of the configuration".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::{CacheConfig, GatewayConfig, ShardConfig};

    struct Fixture(tempfile::TempDir);

    impl Fixture {
        fn new(text: &str) -> Self {
            let fixture = Self(tempfile::tempdir().unwrap());
            fixture.write("f.yaml", text, 0o644);
            fixture
        }

        fn write(&self, name: &str, text: &str, mode: u32) {
            let path = self.0.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }

        fn check<T: ProcessConfig>(&self, expected: Expect) {
            let findings = lint_configuration::<T>(&self.0.path().join("f.yaml"), |_, _| ());
            let line = |f: &Finding| format!("{f} ({})\n", f.hint.as_deref().unwrap_or("no hint"));
            let text: String = findings.iter().map(line).collect();
            expected.assert_eq(&text.replace(&format!("{}/", self.0.path().display()), ""));
        }
    }

    #[test]
    fn a_good_configuration_has_no_findings() {
        let fixture = Fixture::new("clientCA: ca.crt\n");
        for (name, mode) in [("ca.crt", 0o644), ("tls.crt", 0o644), ("tls.key", 0o600)] {
            fixture.write(name, "content is not looked at", mode);
        }
        fixture.check::<CacheConfig>(expect![""]);
    }

    #[test]
    fn unusable_files_are_named_with_their_line() {
        let fixture = Fixture::new("clientCA: ca.crt\nserving:\n  certificate: .\n  privateKey: open.key\n");
        fixture.write("ca.crt", "", 0o644);
        fixture.write("open.key", "k", 0o640);
        fixture.check::<CacheConfig>(expect![[r#"
            f.yaml:1:11: clientCA: ca.crt is empty (`fairlead certs init` makes certificates and kubeconfigs)
            f.yaml:3:16: serving.certificate: . is not a file (name a file)
            f.yaml:4:15: serving.privateKey: open.key is a secret that other users may access (mode 0640) (chmod 600 open.key)
        "#]]);
        let fixture = Fixture::new("tokenFile: t.csv\n");
        fixture.write("tls.crt", "c", 0o644);
        fixture.check::<ShardConfig>(expect![[r#"
            f.yaml: serving.privateKey: there is no file tls.key (`fairlead certs init` makes certificates and kubeconfigs)
            f.yaml:1:12: tokenFile: there is no file t.csv (paths are relative to the folder of the configuration)
        "#]]);
    }

    #[test]
    fn a_file_that_does_not_parse_or_is_not_there_is_one_finding() {
        let fixture = Fixture::new("serving: [\n");
        fixture.check::<GatewayConfig>(expect![[r#"
            f.yaml:1:1: there is no key "serving" here (there are: listeners, acme, index, upstream, paths, placement, corsAllowedOrigins, kcpCompatibility, limits, slowClients, stalledStreamBudget, drain, upgrade, stateFile, log, accessLog, tracing)
        "#]]);
        fs::remove_file(fixture.0.path().join("f.yaml")).unwrap();
        fixture.check::<GatewayConfig>(expect![[r#"
            f.yaml: cannot be read: No such file or directory (os error 2) (`fairlead config defaults gateway` prints a complete one)
        "#]]);
    }
}
