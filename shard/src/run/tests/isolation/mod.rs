//! Isolation between workspaces: each identity tries each verb at each path form, in each state of a permission claim.
//!
//! The shard is a whole one without listeners. `table.txt` has the requests and the expected responses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod backups;
mod changes;
mod copies;
mod installation;
mod table;

pub(super) use self::installation::Installation;

/// The requests and their responses.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/run/tests/isolation/table.txt");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_identity_sees_and_changes_what_the_rules_give_it() {
    let installation = Installation::start().await;
    let table = std::fs::read_to_string(TABLE).unwrap();
    let rows = table::rows(&table);
    let mut differences = String::new();
    for row in &rows {
        if let Some(difference) = row.difference(&installation).await {
            differences.push_str(&difference);
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
    assert_eq!(table::requests(&rows), table::stated_requests(&table), "rows were lost or added");
}
