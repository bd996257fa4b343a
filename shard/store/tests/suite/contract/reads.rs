//! Reads: ranges, pages, old revisions.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use fairlead_store::{Mutation, Range, ReadError};

use super::subject::{delete, put, show};
use crate::backend::on_every_backend;

#[test]
fn a_range_holds_its_start_but_not_its_end() {
    on_every_backend(|store| async move {
        let keys = ["a", "b", "b/1", "b/2", "b0", "c"];
        store.commit(keys.map(|key| Mutation::put(key, "v")).to_vec()).await.unwrap();
        // Also as history: nothing of this is current any more.
        let past = store.revision();
        store
            .commit(keys.map(|key| Mutation::delete(key, fairlead_store::Expect::Any)).to_vec())
            .await
            .unwrap();
        let cases = [
            (Range::all(), &keys[..]),
            (Range::prefix("b/"), &["b/1", "b/2"]),
            (Range::prefix("b"), &["b", "b/1", "b/2", "b0"]),
            (Range::prefix("x"), &[]),
            (Range::between("b", "b0"), &["b", "b/1", "b/2"]),
            (Range::between("b", "b"), &[]),
            (Range::between("c", "a"), &[]),
            (Range { start: "b0".into(), end: None }, &["b0", "c"]),
            (Range::prefix("b").after(b"b/1"), &["b/2", "b0"]),
        ];
        for (range, expected) in cases {
            let page = store.list(&range, None, Some(past)).unwrap();
            let found: Vec<_> = page.records.iter().map(|record| record.key.clone()).collect();
            assert_eq!(found, expected, "{range:?}");
            assert!(store.list(&range, None, None).unwrap().records.is_empty(), "{range:?}");
        }
    });
}

#[test]
fn every_revision_can_be_listed_as_it_was() {
    on_every_backend(|store| async move {
        assert_eq!(store.listed(Some(0)), [""; 0]);
        put(&*store, "a", "1").await;
        put(&*store, "b", "1").await;
        put(&*store, "a", "2").await;
        delete(&*store, "a").await;
        put(&*store, "c", "1").await;
        put(&*store, "a", "3").await;
        let expected: [&[&str]; 7] = [
            &[],
            &["a=1@1/1"],
            &["a=1@1/1", "b=1@2/2"],
            &["a=2@1/3", "b=1@2/2"],
            &["b=1@2/2"],
            &["b=1@2/2", "c=1@5/5"],
            &["a=3@6/6", "b=1@2/2", "c=1@5/5"],
        ];
        for (at, expected) in (0..).zip(expected) {
            assert_eq!(store.listed(Some(at)), expected, "at {at}");
        }
        assert_eq!(store.listed(None), expected[6]);
        let future = store.list(&Range::all(), None, Some(store.at(7)));
        assert!(matches!(future, Err(ReadError::Future { current }) if current == store.at(6)), "{future:?}");
    });
}

#[test]
fn pages_of_one_revision_are_not_disturbed_by_writers() {
    on_every_backend(|store| async move {
        for key in ["a", "b", "c", "d", "e", "f", "g"] {
            put(&*store, key, "old").await;
        }
        let whole = store.listed(None);
        for size in 1..=8 {
            let (mut at, mut range, mut seen, mut pages) = (None, Range::all(), Vec::new(), 0);
            loop {
                // The first page of each size reads the latest revision, so the comparison is with that.
                let page = store.list(&range, NonZeroUsize::new(size), at.or(Some(store.at(7)))).unwrap();
                seen.extend(show(&page, store.at(0)));
                pages += 1;
                at = Some(page.revision);
                // Between two pages everything changes.
                put(&*store, "a0", "new").await;
                put(&*store, "e", "new").await;
                store.commit(vec![Mutation::delete("f", fairlead_store::Expect::Any)]).await.unwrap();
                let Some(last) = page.records.last() else { break };
                range = range.after(&last.key);
                if !page.has_more {
                    break;
                }
            }
            assert_eq!(seen, whole, "pages of {size}");
            assert_eq!(pages, 7_usize.div_ceil(size), "`has_more` is exact for pages of {size}");
        }
    });
}

#[test]
fn a_key_with_a_long_history_is_read_at_each_of_its_revisions() {
    on_every_backend(|store| async move {
        put(&*store, "before", "-").await;
        for value in 0..100 {
            put(&*store, "hot", &value.to_string()).await;
        }
        put(&*store, "later", "-").await;
        for at in 1..=102 {
            let listed = store.listed(Some(at));
            let mut expected = vec!["before=-@1/1".to_owned()];
            if at > 1 {
                let version = at.min(101);
                expected.push(format!("hot={}@2/{version}", version - 2));
            }
            if at == 102 {
                expected.push("later=-@102/102".to_owned());
            }
            assert_eq!(listed, expected, "at {at}");
        }
    });
}

#[test]
fn a_visitor_stops_the_scan_and_may_read_the_store() {
    on_every_backend(|store| async move {
        for key in ["a", "b", "c"] {
            put(&*store, key, key).await;
        }
        delete(&*store, "a").await;
        for (at, expected) in [(None, ["b", "c"]), (Some(store.at(3)), ["a", "b"])] {
            let mut seen = Vec::new();
            let read = store.scan(&Range::all(), at, &mut |record| {
                assert_eq!(store.get(b"b").unwrap().unwrap().value, "b");
                seen.push(String::from_utf8(record.key.to_vec()).unwrap());
                if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(read.unwrap(), at.unwrap_or(store.at(4)));
            assert_eq!(seen, expected);
        }
    });
}
