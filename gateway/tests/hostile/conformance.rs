//! h2spec, a conformance suite of others for HTTP/2, against a door: `make h2spec`.

use tokio::process::Command;

use crate::world::World;

/// Number of its cases; all of them have to pass.
const CASES: usize = 146;

/// On both ways to a shard, with an answer that does not end by itself: one case wants to disturb a stream that is
/// still open, and would race with a short answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program h2spec: make h2spec"]
async fn every_case_of_h2spec_passes() {
    let program = std::env::var("H2SPEC").expect("H2SPEC has to name the program h2spec");
    let world = World::new().await;
    let _old = world.old_workspace().await;
    for path in ["/clusters/root:org/big", "/clusters/root:old/big"] {
        let port = world.address.port().to_string();
        let arguments = ["--tls", "--insecure", "--host", "127.0.0.1", "--port", &port, "--path", path];
        let output = Command::new(&program).args(arguments).args(["--timeout", "3"]).output().await;
        let output = output.expect("H2SPEC cannot be run");
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = format!("{CASES} tests, {CASES} passed, 0 skipped, 0 failed");
        assert!(text.contains(&expected), "{path}:\n{text}");
        println!("h2spec, {path}: {expected}");
    }
}
