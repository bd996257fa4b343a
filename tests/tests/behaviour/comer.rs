//! The pattern of two gateways, with the files that people copy.

use fairlead_tests::comer::{Comer, ComerError, matrix, quiet_watch};

/// What `make demo-comer` prints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_every_door_everybody_can_do_what_the_pattern_says() {
    let folder = tempfile::tempdir().unwrap();
    let comer = Comer::start(folder.path()).await.unwrap();
    let rows = match matrix(&comer).await {
        Err(error @ ComerError::NoKubectl) => return println!("skipped: {error}"),
        rows => rows.unwrap(),
    };
    for row in &rows {
        assert_eq!(row.found, row.expected, "{} at {}", row.who, row.door);
    }
    quiet_watch(&comer).await.unwrap();
}
