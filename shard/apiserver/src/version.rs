//! `/version`: the emulated version of Kubernetes.

use bytes::Bytes;
use serde_json::json;

/// The minor version of Kubernetes whose API this crate implements.
const MINOR: &str = "36";

/// The body of `/version`; `build` is appended to the version of Kubernetes. Clients select features by the major and
/// minor numbers.
pub fn version_document(build: &str) -> Bytes {
    let version = json!({
        "major": "1",
        "minor": MINOR,
        "emulationMajor": "1",
        "emulationMinor": MINOR,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": format!("v1.{MINOR}.0+{build}"),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    });
    Bytes::from(version.to_string())
}

/// The architecture under its Go name (GOARCH), which clients expect.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
