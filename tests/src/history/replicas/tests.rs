use super::super::{Action, Content, History, Key, Operation, Outcome, Revision, Version, Violation};

use Outcome::{AlreadyExists, Conflict, Deleted, NotFound, Unknown, Written};

const NEVER: u64 = u64::MAX;
const DELETE: Action = Action::Delete { expected: None };

/// An operation at a replica, between two times.
fn at(replica: usize, [start, end]: [u64; 2], action: Action, outcome: Outcome) -> Operation {
    let key = Key { collection: "/maps".into(), name: "a".into() };
    Operation { key, replica, action, outcome, start, end }
}

fn create(content: u64) -> Action {
    Action::Create(Content(content))
}

fn patch(content: u64) -> Action {
    Action::Patch(Content(content))
}

fn update(content: u64, expected: Revision) -> Action {
    Action::Update { content: Content(content), expected: Some(expected) }
}

fn found(content: u64) -> Outcome {
    // In these histories a content is its revision.
    Outcome::Found(Version { revision: content, content: Content(content) })
}

fn check(operations: Vec<Operation>) -> Vec<Violation> {
    History { operations, ..History::default() }.check()
}

#[test]
fn replicas_that_are_late_are_accepted() {
    let histories = [
        (
            "reads of a late copy",
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(0, [3, 4], patch(2), Written(2)),
                at(1, [5, 6], Action::Read, NotFound),
                at(1, [7, 8], Action::Read, found(1)),
                at(1, [9, 10], Action::Read, found(2)),
            ],
        ),
        (
            "refusals from a late copy",
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(0, [3, 4], patch(2), Written(2)),
                at(1, [5, 6], Action::Read, found(1)),
                at(1, [7, 8], update(3, 2), Conflict),
                at(0, [9, 10], DELETE, Deleted),
                at(1, [11, 12], create(4), AlreadyExists),
                at(1, [13, 14], patch(5), NotFound),
            ],
        ),
        (
            "a write through a late replica, which has everything before it then",
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(1, [3, 4], Action::Read, NotFound),
                at(1, [5, 6], patch(2), Written(2)),
                at(0, [7, 8], Action::Read, found(1)),
                at(1, [7, 8], Action::Read, found(2)),
            ],
        ),
        (
            "a read with a resourceVersion",
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(0, [3, 4], patch(2), Written(2)),
                at(0, [3, 9], patch(3), Written(3)),
                at(1, [5, 6], Action::ReadSince(1), found(1)),
                at(1, [7, 8], Action::ReadSince(2), found(2)),
            ],
        ),
        (
            "a write without a response, seen at another replica first",
            vec![
                at(0, [1, NEVER], create(1), Unknown),
                at(1, [2, 3], Action::Read, found(1)),
                at(0, [4, 5], Action::Read, NotFound),
                at(0, [6, 7], create(2), AlreadyExists),
            ],
        ),
    ];
    for (name, history) in histories {
        let violations = check(history);
        assert!(violations.is_empty(), "{name}: {violations:?}");
    }
}

#[test]
fn broken_promises_of_replicas_are_found_with_the_replica() {
    let (first, second, writes) = (Some(0), Some(1), None);
    let histories = [
        (
            "a copy that goes back",
            second,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(0, [3, 4], patch(2), Written(2)),
                at(1, [5, 6], Action::Read, found(2)),
                at(1, [7, 8], Action::Read, found(1)),
            ],
        ),
        (
            "a copy that has lost an object again",
            second,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(1, [3, 4], Action::Read, found(1)),
                at(1, [5, 6], Action::Read, NotFound),
            ],
        ),
        (
            "writes that a copy takes over in another order",
            second,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(0, [3, 9], patch(2), Written(2)),
                at(0, [3, 9], patch(3), Written(3)),
                at(1, [4, 5], Action::Read, found(3)),
                at(1, [6, 7], Action::Read, found(2)),
            ],
        ),
        (
            "a stale read after an own write",
            second,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(1, [3, 4], patch(2), Written(2)),
                at(1, [5, 6], Action::Read, found(1)),
            ],
        ),
        (
            "a refusal that forgets an own write",
            first,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(1, [1, 2], Action::Read, NotFound),
                at(0, [3, 4], patch(2), NotFound),
            ],
        ),
        (
            "a conflict without a reason",
            second,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(1, [3, 4], Action::Read, found(1)),
                at(1, [5, 6], update(2, 1), Conflict),
            ],
        ),
        (
            "a read with a resourceVersion that is too old",
            second,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(0, [3, 4], patch(2), Written(2)),
                at(1, [5, 6], Action::ReadSince(2), found(1)),
            ],
        ),
        (
            "a read of what was written later",
            second,
            vec![at(1, [1, 2], Action::Read, found(3)), at(0, [3, 4], create(3), Written(3))],
        ),
        (
            "an acknowledged write that was lost",
            writes,
            vec![at(0, [1, 2], create(1), Written(1)), at(1, [3, 4], create(2), Written(2))],
        ),
        (
            "two successes against one expectation",
            writes,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(0, [3, 9], update(2, 1), Written(2)),
                at(1, [3, 9], update(3, 1), Written(3)),
            ],
        ),
        (
            "two creations",
            writes,
            vec![at(0, [1, 9], create(1), Written(1)), at(1, [1, 9], create(2), Written(2))],
        ),
        (
            "two deletions of one object",
            writes,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(0, [3, 9], DELETE, Deleted),
                at(1, [3, 9], DELETE, Deleted),
            ],
        ),
        (
            "a later write with an earlier revision",
            writes,
            vec![at(0, [1, 2], create(7), Written(7)), at(1, [3, 4], patch(6), Written(6))],
        ),
        (
            "a write without a response that happened after its end",
            writes,
            vec![
                at(0, [1, 2], create(1), Written(1)),
                at(0, [3, 4], patch(3), Unknown),
                at(1, [5, 6], patch(2), Written(2)),
                at(1, [7, 8], Action::Read, found(3)),
            ],
        ),
    ];
    for (name, expected, history) in histories {
        let violations = check(history);
        let is_found = violations
            .iter()
            .any(|one| matches!(one, Violation::NotLinearizable { replica, .. } if *replica == expected));
        assert!(is_found, "{name}: {violations:?}");
    }
}

/// Random histories of three replicas, each with a copy that is late: accepted. The same with one read that goes back behind
/// what its replica has shown: rejected.
#[test]
fn generated_histories_of_replicas_are_judged_correctly() {
    const REPLICAS: usize = 3;
    let (mut changed, mut rejected) = (0, 0);
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut history = Vec::new();
        // The state after each revision, and how many of them each copy has.
        let mut states: Vec<Option<u64>> = vec![None];
        let mut copies = [0; REPLICAS];
        for content in 1..200 {
            let replica = random.usize(..REPLICAS);
            let (latest, copy) = (states.len() - 1, &mut copies[replica]);
            *copy = random.usize(*copy..=latest);
            let times = [content * 10, content * 10 + random.u64(1..9)];
            // A write is decided by the latest state, whatever the copy has; the copy has it afterwards.
            let exists = states[latest].is_some();
            let (action, outcome) = match random.u8(..8) {
                0..4 => (Action::Read, states[*copy].map_or(NotFound, found)),
                4 if exists => (DELETE, Deleted),
                4..6 if !exists => (create(content), Written(content)),
                6 if exists => (patch(content), Written(content)),
                _ if states[*copy].is_none() => (patch(content), NotFound),
                _ => (create(content), AlreadyExists),
            };
            match outcome {
                Written(revision) => states.push(Some(revision)),
                Deleted => states.push(None),
                _ => {}
            }
            if matches!(outcome, Written(_) | Deleted) {
                *copy = states.len() - 1;
            }
            history.push(at(replica, times, action, outcome));
        }
        let violations = check(history.clone());
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
        // The last read of each replica shows its first one again.
        for replica in 0..REPLICAS {
            let mut broken = history.clone();
            let is_read = |one: &&mut Operation| {
                one.replica == replica && one.action == Action::Read && one.outcome != NotFound
            };
            let mut reads: Vec<&mut Operation> = broken.iter_mut().filter(is_read).collect();
            if let [first, .., last] = &mut reads[..]
                && first.outcome != last.outcome
            {
                last.outcome = first.outcome;
                changed += 1;
                rejected += usize::from(!check(broken).is_empty());
            }
        }
    }
    assert!(changed > 400 && rejected == changed, "{rejected} of {changed} changed histories are rejected");
}
