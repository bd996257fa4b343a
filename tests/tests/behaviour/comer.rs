//! The pattern of two gateways, with the files that users copy.

use fairlead_tests::comer::{Comer, check_idle_watch, matrix};
use fairlead_tests::harness::is_left_out;

/// The same checks as `make demo-comer`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_identity_can_do_what_the_pattern_documents_at_each_gateway() {
    if is_left_out("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let comer = Comer::start(folder.path()).await.unwrap();
    // Displayed, not debug-printed: the error may name a missing program and how to get it.
    let rows = matrix(&comer).await.unwrap_or_else(|error| panic!("{error}"));
    for row in &rows {
        assert_eq!(row.found, row.expected, "{} at {}", row.identity, row.gateway);
    }
    check_idle_watch(&comer).await.unwrap();
}
