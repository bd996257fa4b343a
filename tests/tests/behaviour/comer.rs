//! The pattern of two gateways, with the files that people copy.

use fairlead_tests::comer::{Comer, matrix, quiet_watch};
use fairlead_tests::harness::is_left_out;

/// What `make demo-comer` prints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_every_door_everybody_can_do_what_the_pattern_says() {
    if is_left_out("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let comer = Comer::start(folder.path()).await.unwrap();
    // In words: it may say that a program is missing, and how to get it.
    let rows = matrix(&comer).await.unwrap_or_else(|error| panic!("{error}"));
    for row in &rows {
        assert_eq!(row.found, row.expected, "{} at {}", row.who, row.door);
    }
    quiet_watch(&comer).await.unwrap();
}
