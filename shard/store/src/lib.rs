//! A revisioned key-value log with a view: commit, get, list, watch, compact; redb or memory.
