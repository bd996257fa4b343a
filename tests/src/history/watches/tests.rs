use std::collections::BTreeMap;

use super::super::{
    Action, Change, Content, History, Key, Operation, Outcome, Revision, Version, Violation, WatchEntry,
    WatchLog,
};
use Change::{Added, Deleted, Modified};

fn key(name: &str) -> Key {
    Key { collection: "/maps".into(), name: name.into() }
}

fn version(content: u64, revision: Revision) -> Version {
    Version { revision, content: Content(content) }
}

fn event(change: Change, name: &str, content: u64, revision: Revision) -> WatchEntry {
    WatchEntry::Event { change, key: key(name), version: version(content, revision) }
}

fn listed(revision: Revision, objects: &[(&str, u64, Revision)]) -> WatchEntry {
    let objects = objects.iter().map(|(name, content, revision)| (key(name), version(*content, *revision)));
    WatchEntry::Listed { revision, objects: objects.collect() }
}

/// The run of all cases: `a` is created at 1, changed at 3, deleted at 5; `b` is created at 2 and changed at 6.
fn operations() -> Vec<Operation> {
    let create = |content| Action::Create(Content(content));
    let patch = |content| Action::Patch(Content(content));
    [
        ("a", create(1), Outcome::Written(1)),
        ("b", create(2), Outcome::Written(2)),
        ("a", patch(3), Outcome::Written(3)),
        ("a", Action::Delete { expected: None }, Outcome::Deleted),
        ("b", patch(6), Outcome::Written(6)),
    ]
    .into_iter()
    .zip((1..).step_by(2))
    .map(|((name, action, outcome), start)| Operation {
        key: key(name),
        replica: 0,
        action,
        outcome,
        start,
        end: start + 1,
    })
    .collect()
}

/// Everything from the begin on.
fn complete() -> Vec<WatchEntry> {
    vec![
        listed(0, &[]),
        event(Added, "a", 1, 1),
        event(Added, "b", 2, 2),
        event(Modified, "a", 3, 3),
        WatchEntry::Bookmark(4),
        event(Deleted, "a", 3, 5),
        event(Modified, "b", 6, 6),
    ]
}

fn check(logs: Vec<Vec<WatchEntry>>) -> Vec<Violation> {
    let watches = logs.into_iter().enumerate().map(|(number, entries)| WatchLog {
        watcher: format!("watcher-{number}"),
        collections: vec!["/maps".into()],
        entries,
    });
    History { operations: operations(), watches: watches.collect(), ..History::default() }.check()
}

#[test]
fn complete_watches_are_accepted() {
    let with_a_new_list = vec![
        listed(2, &[("a", 1, 1), ("b", 2, 2)]),
        event(Modified, "a", 3, 3),
        // The history is gone, so the watcher lists again. It did not see the deletion.
        listed(6, &[("b", 6, 6)]),
        WatchEntry::Bookmark(9),
    ];
    let from_the_middle = vec![listed(4, &[("a", 3, 3), ("b", 2, 2)]), event(Deleted, "a", 3, 5)];
    for logs in
        [vec![complete()], vec![with_a_new_list.clone()], vec![complete(), with_a_new_list, from_the_middle]]
    {
        let violations = check(logs.clone());
        assert!(violations.is_empty(), "{logs:?}: {violations:?}");
    }
}

#[test]
fn broken_watches_are_rejected() {
    let without = |index: usize| {
        let mut entries = complete();
        entries.remove(index);
        entries
    };
    let exchanged = |a: usize, b: usize| {
        let mut entries = complete();
        entries.swap(a, b);
        entries
    };
    let doubled = |index: usize| {
        let mut entries = complete();
        entries.insert(index, entries[index].clone());
        entries
    };
    type Expected = fn(&Violation) -> bool;
    let cases: [(&str, Vec<Vec<WatchEntry>>, Expected); 16] = [
        ("lost change of an acknowledged write", vec![without(3)], |one| {
            matches!(one, Violation::EventLost { revision: 3, .. })
        }),
        ("lost deletion that another watcher saw", vec![without(5), complete()], |one| {
            matches!(one, Violation::EventLost { revision: 5, .. })
        }),
        ("lost creation", vec![without(1)], |one| matches!(one, Violation::WrongType { exists: false, .. })),
        ("doubled event", vec![doubled(3)], |one| matches!(one, Violation::NotInOrder { .. })),
        ("reordered events", vec![exchanged(3, 5)], |one| matches!(one, Violation::NotInOrder { .. })),
        (
            "events of the list again, after a resumption",
            vec![vec![listed(2, &[("a", 1, 1), ("b", 2, 2)]), event(Added, "b", 2, 2)]],
            |one| matches!(one, Violation::NotInOrder { position: 2, .. }),
        ),
        ("resurrected object", vec![[complete(), vec![event(Modified, "a", 3, 7)]].concat()], |one| {
            matches!(one, Violation::WrongType { exists: false, .. } | Violation::TwoRevisions { .. })
        }),
        ("event that nobody caused", vec![[complete(), vec![event(Modified, "b", 77, 8)]].concat()], |one| {
            matches!(one, Violation::NeverWritten { .. })
        }),
        ("bookmark from the past", vec![[complete(), vec![WatchEntry::Bookmark(5)]].concat()], |one| {
            matches!(one, Violation::BackInTime { position: 6, revision: 5, .. })
        }),
        (
            "a bookmark that is ahead of the events",
            vec![vec![listed(0, &[]), WatchEntry::Bookmark(2), event(Modified, "a", 3, 3)]],
            |one| matches!(one, Violation::EventLost { revision: 1, .. }),
        ),
        (
            "list from the past",
            vec![[complete(), vec![listed(4, &[("a", 3, 3), ("b", 2, 2)])]].concat()],
            |one| matches!(one, Violation::BackInTime { .. }),
        ),
        ("stale list", vec![vec![listed(4, &[("a", 1, 1), ("b", 2, 2)])]], |one| {
            matches!(one, Violation::WrongList { shown: Some(_), .. })
        }),
        (
            "resumption after a compaction, without a list",
            vec![vec![
                listed(0, &[]),
                event(Added, "a", 1, 1),
                event(Added, "b", 2, 2),
                event(Modified, "b", 6, 6),
            ]],
            |one| matches!(one, Violation::EventLost { revision: 3, window: [0, 6], .. }),
        ),
        (
            "list after a compaction that lacks an acknowledged change",
            vec![vec![listed(0, &[]), event(Added, "a", 1, 1), listed(6, &[("b", 2, 2)])]],
            |one| matches!(one, Violation::WrongList { revision: 6, shown: Some(_), .. }),
        ),
        (
            "deletion that no watcher received, and that the last list shows",
            vec![without(5), vec![listed(6, &[("b", 6, 6)])]],
            |one| matches!(one, Violation::WrongList { revision: 6, shown: None, .. }),
        ),
        ("list without an object", vec![vec![listed(4, &[("a", 3, 3)])], complete()], |one| {
            matches!(one, Violation::WrongList { shown: None, .. })
        }),
    ];
    for (name, logs, expected) in cases {
        let violations = check(logs);
        assert!(violations.iter().any(expected), "{name}: {violations:?}");
        violations.iter().for_each(|one| assert!(!one.to_string().is_empty()));
    }
}

#[test]
fn two_watchers_must_agree() {
    let mut other = complete();
    other[5] = event(Modified, "a", 3, 5);
    let violations = check(vec![complete(), other]);
    assert!(
        violations.iter().any(|one| matches!(one, Violation::Disagreement { revision: 5, .. })),
        "{violations:?}"
    );
}

#[test]
fn a_log_begins_with_a_list() {
    let violations = check(vec![complete().split_off(1)]);
    assert!(violations.iter().any(|one| matches!(one, Violation::NoList { .. })), "{violations:?}");
    let objects = BTreeMap::new();
    assert!(check(vec![vec![WatchEntry::Listed { revision: 0, objects }]]).is_empty());
}
