//! Third-party programs that tests run: kubectl, Prometheus, Chromium.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::HarnessError;

/// Names the programs, separated by spaces, that `make test` could not get on this machine.
const WITHOUT: &str = "FAIRLEAD_TESTS_WITHOUT";

/// The path of a program: on the `PATH`, else where `deploy/tools.sh` unpacks it.
pub fn tool(name: &str) -> Result<PathBuf, HarnessError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = target().join("tools/usr/bin");
    let mut folders = std::env::split_paths(&path).chain([unpacked]).map(|folder| folder.join(name));
    folders.find(|file| file.is_file()).ok_or_else(|| HarnessError::NoTool { name: name.to_owned() })
}

/// A Python with the package `kubernetes`: the one that `deploy/tools.sh` has set up.
pub fn python() -> Result<PathBuf, HarnessError> {
    let python = target().join("tools/python/bin/python");
    if python.is_file() {
        Ok(python)
    } else {
        Err(HarnessError::NoTool { name: "python-kubernetes".to_owned() })
    }
}

/// Whether the calling test, or its part that needs this program, is left out. Without [`WITHOUT`] no test is: a missing
/// program fails it. A left-out test is recorded in `target/tests-left-out`, from which `deploy/test.sh` makes its last
/// line.
pub fn is_left_out(program: &str) -> bool {
    let without = std::env::var(WITHOUT).unwrap_or_default();
    if !without.split_whitespace().any(|missing| missing == program) {
        return false;
    }
    let test = test_name();
    println!("left out without {program}: {test}");
    let record = OpenOptions::new().create(true).append(true).open(target().join("tests-left-out"));
    if let Err(error) = record.and_then(|mut file| file.write_all(format!("{program}\t{test}\n").as_bytes()))
    {
        println!("the left-out test cannot be recorded: {error}");
    }
    true
}

/// The name of the running test: its binary, then its path, which the test harness gives to its thread.
fn test_name() -> String {
    let binary = std::env::current_exe().unwrap_or_default();
    let binary = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let binary = binary.rsplit_once('-').map_or(binary.as_str(), |(name, _hash)| name);
    format!("{binary} {}", std::thread::current().name().unwrap_or_default())
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target")
}
