//! Random histories on the backends of this crate.

use std::path::Path;
use std::sync::Arc;

use fairlead_store::{MemoryStore, RedbOptions, RedbStore, Store};
use proptest::prelude::*;

use crate::backend::{runtime, small_limits};
use crate::contract::model::{Step, check, steps};

fn open(path: &Path, options: RedbOptions) -> Arc<dyn Store> {
    Arc::new(RedbStore::open(path, options).unwrap())
}

fn check_redb(steps: Vec<Step>, options: RedbOptions) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let reopen = async |store: Arc<dyn Store>| {
        drop(store);
        open(&path, options)
    };
    runtime().block_on(check(steps, open(&path, options), reopen));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_memory_backend_is_the_model(steps in steps(), seed in any::<u64>()) {
        runtime().block_on(check(steps, Arc::new(MemoryStore::with_seed(seed)), async |store| store));
    }

    #[test]
    fn the_redb_backend_is_the_model(steps in steps()) {
        check_redb(steps, RedbOptions::default());
    }

    #[test]
    fn the_redb_backend_is_the_model_when_nothing_fits(steps in steps()) {
        check_redb(steps, small_limits());
    }
}
