//! `/version`: which Kubernetes the server behaves like.

use bytes::Bytes;
use serde_json::json;

/// The minor version of Kubernetes whose API this crate speaks.
const MINOR: &str = "36";

/// The body of `/version`. Clients choose what they send by its major and minor numbers.
pub fn version_document() -> Bytes {
    let version = json!({
        "major": "1",
        "minor": MINOR,
        "emulationMajor": "1",
        "emulationMinor": MINOR,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": format!("v1.{MINOR}.0+fairlead-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    Bytes::from(version.to_string())
}
