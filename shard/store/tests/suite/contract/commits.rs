//! Commits: numbers, expectations, atomicity, refusals.

use bytes::Bytes;
use fairlead_store::{Change, CommitError, Expect, MAX_KEY_BYTES, Mutation, Record, Revision};
use futures_util::future::join_all;

use super::subject::{delete, put};
use crate::backend::on_every_backend;

#[test]
fn every_commit_has_the_next_revision_and_its_records_carry_it() {
    on_every_backend(|store| async move {
        assert_eq!(store.revision(), store.at(0));
        assert_eq!(put(&*store, "a", "1").await, store.at(1));
        assert_eq!(put(&*store, "b", "1").await, store.at(2));
        assert_eq!(put(&*store, "a", "2").await, store.at(3));
        assert_eq!(delete(&*store, "b").await, store.at(4));
        assert_eq!(put(&*store, "b", "3").await, store.at(5));
        assert_eq!(store.revision(), store.at(5));
        assert_eq!(store.listed(None), ["a=2@1/3", "b=3@5/5"]);
    });
}

#[test]
fn an_unmet_expectation_fails_the_commit_and_returns_the_current_record() {
    /// The expectation, given the revisions that created and modified the present key.
    type Make = fn(Revision, Revision) -> Expect;
    let cases: [(&str, Make, bool, bool); 7] = [
        ("any", |_, _| Expect::Any, true, true),
        ("absent", |_, _| Expect::Absent, true, false),
        ("present", |_, _| Expect::Present, false, true),
        ("at modified", |_, modified| Expect::At(modified), false, true),
        ("at created", |created, _| Expect::At(created), false, false),
        ("at later", |_, modified| Expect::At(Revision(modified.0 + 1)), false, false),
        ("at 0", |_, _| Expect::At(Revision(0)), false, false),
    ];
    on_every_backend(|store| async move {
        for (name, expect, on_absent, on_present) in cases {
            for (change, is_put) in
                [(Change::Keep, false), (Change::Put("3".into()), true), (Change::Delete, false)]
            {
                for (present, holds) in [(false, on_absent), (true, on_present)] {
                    let case = format!("expect {name}, present: {present}, {change:?}");
                    let created = put(&*store, "key", "1").await;
                    let modified = put(&*store, "key", "2").await;
                    if !present {
                        delete(&*store, "key").await;
                    }
                    let before = store.get(b"key").unwrap();
                    let latest = store.revision();
                    let expect = expect(created, modified);
                    let mutation = Mutation { key: "key".into(), expect, change: change.clone() };

                    let outcome = store.commit(vec![mutation]).await;
                    let effect = is_put || (change == Change::Delete && present);
                    let expected_revision = Revision(latest.0 + u64::from(holds && effect));
                    assert_eq!(store.revision(), expected_revision, "{case}");
                    match outcome {
                        Ok(revision) => assert_eq!((holds, revision), (true, expected_revision), "{case}"),
                        Err(CommitError::Conflict { index: 0, current }) => {
                            assert_eq!((holds, current), (false, before.clone()), "{case}");
                        }
                        Err(other) => panic!("{case}: {other}"),
                    }
                    let after = store.get(b"key").unwrap();
                    match (&change, holds) {
                        (Change::Put(_), true) => {
                            let created = if present { created } else { expected_revision };
                            let (key, value) = ("key".into(), "3".into());
                            let written = Record { key, value, created, modified: expected_revision };
                            assert_eq!(after, Some(written), "{case}");
                        }
                        (Change::Delete, true) => assert_eq!(after, None, "{case}"),
                        _ => assert_eq!(after, before, "{case}"),
                    }
                    store.commit(vec![Mutation::delete("key", Expect::Any)]).await.unwrap();
                }
            }
        }
    });
}

#[test]
fn a_commit_happens_wholly_or_not_at_all() {
    on_every_backend(|store| async move {
        put(&*store, "b", "1").await;
        let mixed =
            |expect| vec![Mutation::put("a", "2"), Mutation::delete("b", expect), Mutation::create("c", "2")];
        let refused = store.commit(mixed(Expect::At(store.at(7)))).await;
        assert!(matches!(refused, Err(CommitError::Conflict { index: 1, current: Some(_) })), "{refused:?}");
        assert_eq!(store.listed(None), ["b=1@1/1"]);
        assert_eq!(store.revision(), store.at(1));

        assert_eq!(store.commit(mixed(Expect::At(store.at(1)))).await.unwrap(), store.at(2));
        assert_eq!(store.listed(None), ["a=2@2/2", "c=2@2/2"]);
    });
}

#[test]
fn a_fence_on_another_key_holds_a_commit_back() {
    on_every_backend(|store| async move {
        let lease = put(&*store, "lease", "me").await;
        let fenced = || vec![Mutation::put("object", "mine"), Mutation::fence("lease", Expect::At(lease))];
        let written = store.commit(fenced()).await.unwrap();
        assert_eq!(store.listed(None), ["lease=me@1/1", "object=mine@2/2"]);

        put(&*store, "lease", "somebody else").await;
        let refused = store.commit(fenced()).await;
        assert!(matches!(refused, Err(CommitError::Conflict { index: 1, .. })), "{refused:?}");
        assert_eq!(store.get(b"object").unwrap().unwrap().modified, written);
    });
}

#[test]
fn malformed_commits_are_refused_and_use_no_revision() {
    on_every_backend(|store| async move {
        let (limits, start) = (store.limits(), store.revision());
        let large = |bytes| Mutation::put("large", Bytes::from(vec![0; bytes]));
        let key = |bytes| Mutation::put(vec![b'k'; bytes], "");
        let too_large = format!("{} bytes exceed the limit of {} bytes", limits.bytes + 5, limits.bytes);
        let refused = [
            (vec![], "a commit needs at least one mutation"),
            (
                vec![Mutation::put("a", "1"), Mutation::put("b", "1"), Mutation::delete("a", Expect::Any)],
                "mutation 2 names a key that an earlier mutation of the commit names",
            ),
            (vec![large(limits.bytes)], &too_large),
            (vec![key(MAX_KEY_BYTES + 1)], "4097 bytes exceed the limit of 4096 bytes"),
        ];
        for (mutations, message) in refused {
            assert_eq!(store.commit(mutations).await.unwrap_err().to_string(), message);
        }
        assert_eq!(store.revision(), start);
        if limits.mutations < 100_000 {
            let many = (0..=limits.mutations).map(|nth| Mutation::put(nth.to_string(), "")).collect();
            let refused = store.commit(many).await;
            assert!(matches!(refused, Err(CommitError::TooManyMutations { .. })), "{refused:?}");
            let most = (0..limits.mutations).map(|nth| Mutation::create(nth.to_string(), "")).collect();
            store.commit(most).await.unwrap();
        }
        let before = store.revision();

        let accepted = vec![large(limits.bytes - "large".len() - MAX_KEY_BYTES), key(MAX_KEY_BYTES)];
        assert_eq!(store.commit(accepted).await.unwrap(), Revision(before.0 + 1), "exactly at the limits");
        let read = store.get(b"large").unwrap().unwrap();
        assert_eq!(read.value.len(), limits.bytes - "large".len() - MAX_KEY_BYTES);
    });
}

#[test]
fn keys_and_values_are_any_bytes() {
    let keys: [&'static [u8]; 6] = [b"", b"\0", b"\0\0", b"a\0b", b"\xff", b"\xff\xff"];
    on_every_backend(|store| async move {
        let mutations = keys.map(|key| Mutation::create(key, Bytes::from_static(key)));
        store.commit(mutations.to_vec()).await.unwrap();
        for key in keys {
            let record = store.get(key).unwrap().unwrap();
            assert_eq!((&record.key[..], &record.value[..]), (key, key));
        }
        let page = store.list(&fairlead_store::Range::all(), None, None).unwrap();
        assert_eq!(page.records.iter().map(|record| &record.key[..]).collect::<Vec<_>>(), keys);
    });
}

#[test]
fn a_commit_is_visible_to_every_reader_when_it_is_acknowledged() {
    on_every_backend(|store| async move {
        let clients = (0..32).map(|client| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    let (key, value) = (format!("key-{client}"), format!("{round}"));
                    let revision = put(&*store, &key, &value).await;
                    assert!(store.revision() >= revision);
                    let record = store.get(key.as_bytes()).unwrap().unwrap();
                    assert_eq!((record.value, record.modified), (Bytes::from(value), revision));
                }
            })
        });
        join_all(clients).await.into_iter().for_each(Result::unwrap);
        assert_eq!(store.revision(), store.at(32 * 20));
        assert_eq!(store.stats().commits, 32 * 20);
    });
}

#[test]
fn exactly_one_of_many_updates_of_a_revision_succeeds() {
    on_every_backend(|store| async move {
        put(&*store, "counter", "0").await;
        let clients = (0..16).map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut conflicts = 0;
                for _ in 0..10 {
                    let mut seen = store.get(b"counter").unwrap().unwrap();
                    loop {
                        let count: u64 = std::str::from_utf8(&seen.value).unwrap().parse().unwrap();
                        let next = Mutation::update("counter", seen.modified, (count + 1).to_string());
                        match store.commit(vec![next]).await {
                            Ok(_) => break,
                            Err(CommitError::Conflict { index: 0, current }) => seen = current.unwrap(),
                            Err(other) => panic!("{other}"),
                        }
                        conflicts += 1;
                    }
                }
                conflicts
            })
        });
        let conflicts: u64 = join_all(clients).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(store.get(b"counter").unwrap().unwrap().value, "160");
        assert_eq!(store.revision(), store.at(161));
        assert_eq!(store.stats().conflicts, conflicts);
    });
}
