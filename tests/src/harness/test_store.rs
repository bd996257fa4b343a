//! The store that the environment chooses for tests that run on each of them.

use super::HarnessError;

const VARIABLE: &str = "FAIRLEAD_TEST_STORE";

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestStore {
    /// In memory. Real shards have no such store.
    Memory,
    /// A file.
    Redb,
    /// A prefix of the etcd that all tests of the process share.
    Etcd,
}

impl TestStore {
    /// The store that `FAIRLEAD_TEST_STORE` names: `memory`, `redb` or `etcd`. `None`: it is not set, so each test has its
    /// usual store.
    ///
    /// # Errors
    /// [`HarnessError::Setting`] for any other value: a run on the usual store would pass for one on the named store.
    pub fn chosen() -> Result<Option<Self>, HarnessError> {
        match std::env::var_os(VARIABLE) {
            None => Ok(None),
            Some(value) => Self::named(&value.to_string_lossy()).map(Some),
        }
    }

    /// The value of `fairlead up --store` for the chosen store; a file if none is chosen.
    ///
    /// # Errors
    /// As of [`chosen`](Self::chosen); [`HarnessError::Setting`] also for `memory`, which no shard has.
    pub fn of_shards() -> Result<&'static str, HarnessError> {
        match Self::chosen()? {
            None | Some(Self::Redb) => Ok("file"),
            Some(Self::Etcd) => Ok("etcd"),
            Some(Self::Memory) => Err(HarnessError::Setting {
                name: VARIABLE,
                value: "memory".to_owned(),
                expected: "redb, etcd: a real shard has no store in memory",
            }),
        }
    }

    fn named(value: &str) -> Result<Self, HarnessError> {
        match value {
            "memory" => Ok(Self::Memory),
            "redb" => Ok(Self::Redb),
            "etcd" => Ok(Self::Etcd),
            other => Err(HarnessError::Setting {
                name: VARIABLE,
                value: other.to_owned(),
                expected: "memory, redb, etcd",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TestStore;

    #[test]
    fn a_store_that_does_not_exist_is_refused() {
        let named = |value| TestStore::named(value).map_err(|error| error.to_string());
        assert_eq!(named("etcd"), Ok(TestStore::Etcd));
        for value in ["", "Etcd", "sqlite"] {
            assert_eq!(
                named(value),
                Err(format!("FAIRLEAD_TEST_STORE={value} is not one of memory, redb, etcd"))
            );
        }
    }
}
