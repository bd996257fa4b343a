use std::collections::HashMap;

use super::super::{
    Action, Content, History, Key, Operation, Outcome, Register, Revision, Version, Violation,
};

const NEVER: u64 = u64::MAX;

fn operation(start: u64, end: u64, action: Action, outcome: Outcome) -> Operation {
    let key = Key { collection: "/maps".into(), name: "a".into() };
    Operation { key, replica: 0, action, outcome, start, end }
}

fn create(content: u64) -> Action {
    Action::Create(Content(content))
}

fn update(content: u64, expected: Option<Revision>) -> Action {
    Action::Update { content: Content(content), expected }
}

fn found(content: u64, revision: Revision) -> Outcome {
    Outcome::Found(Version { revision, content: Content(content) })
}

fn check(operations: Vec<Operation>) -> Vec<Violation> {
    History { operations, ..History::default() }.check()
}

const DELETE: Action = Action::Delete { expected: None };
use Outcome::{AlreadyExists, Conflict, Deleted, NotFound, Unknown, Written};

#[test]
fn histories_of_a_correct_server_are_accepted() {
    let histories = [
        (
            "one after the other",
            vec![
                operation(1, 2, Action::Read, NotFound),
                operation(3, 4, create(1), Written(10)),
                operation(5, 6, create(2), AlreadyExists),
                operation(7, 8, Action::Read, found(1, 10)),
                operation(9, 10, update(3, Some(10)), Written(11)),
                operation(11, 12, update(4, Some(10)), Conflict),
                operation(13, 14, Action::Patch(Content(5)), Written(15)),
                operation(15, 16, Action::Delete { expected: Some(11) }, Conflict),
                operation(17, 18, Action::Delete { expected: Some(15) }, Deleted),
                operation(19, 20, Action::Patch(Content(6)), NotFound),
                operation(21, 22, create(7), Written(30)),
            ],
        ),
        (
            "concurrent: the revisions give the order",
            vec![
                operation(1, 2, create(1), Written(1)),
                operation(3, 10, Action::Patch(Content(2)), Written(4)),
                operation(3, 10, Action::Patch(Content(3)), Written(3)),
                operation(4, 9, Action::Read, found(3, 3)),
                operation(5, 9, Action::Read, found(1, 1)),
                operation(11, 12, Action::Read, found(2, 4)),
            ],
        ),
        (
            "an unknown write that happened",
            vec![operation(1, 5, create(1), Unknown), operation(6, 7, Action::Read, found(1, 3))],
        ),
        (
            "an unknown write that did not happen",
            vec![operation(1, 5, create(1), Unknown), operation(6, 7, Action::Read, NotFound)],
        ),
        (
            "an unknown write that nobody saw, but that explains a refusal and a deletion",
            vec![
                operation(1, NEVER, create(1), Unknown),
                operation(2, 3, create(2), AlreadyExists),
                operation(4, 5, DELETE, Deleted),
                operation(6, 7, create(3), Written(9)),
            ],
        ),
        (
            "an unknown deletion",
            vec![
                operation(1, 2, create(1), Written(1)),
                operation(3, 9, DELETE, Unknown),
                operation(4, 5, Action::Read, found(1, 1)),
                operation(6, 7, Action::Read, NotFound),
            ],
        ),
        (
            "a refusal of an unconditional write",
            vec![operation(1, 2, create(1), Written(1)), operation(3, 4, update(2, None), Conflict)],
        ),
    ];
    for (name, history) in histories {
        let violations = check(history);
        assert!(violations.is_empty(), "{name}: {violations:?}");
    }
}

#[test]
fn histories_of_a_broken_server_are_rejected() {
    let histories = [
        ("lost write", vec![operation(1, 2, create(1), Written(1)), operation(3, 4, Action::Read, NotFound)]),
        (
            "lost update",
            vec![
                operation(1, 2, create(1), Written(1)),
                operation(3, 4, update(2, Some(1)), Written(2)),
                operation(5, 6, Action::Read, found(1, 1)),
            ],
        ),
        (
            "stale read between two correct ones",
            vec![
                operation(1, 2, create(1), Written(1)),
                operation(3, 4, update(2, None), Written(2)),
                operation(5, 6, Action::Read, found(2, 2)),
                operation(7, 8, Action::Read, found(1, 1)),
                operation(9, 10, Action::Read, found(2, 2)),
            ],
        ),
        (
            "two conditional updates of one revision",
            vec![
                operation(1, 2, create(1), Written(1)),
                operation(3, 9, update(2, Some(1)), Written(2)),
                operation(3, 9, update(3, Some(1)), Written(3)),
            ],
        ),
        (
            "two creations",
            vec![operation(1, 9, create(1), Written(1)), operation(1, 9, create(2), Written(2))],
        ),
        (
            "resurrected object",
            vec![
                operation(1, 2, create(1), Written(1)),
                operation(3, 4, DELETE, Deleted),
                operation(5, 6, Action::Read, NotFound),
                operation(7, 8, Action::Read, found(1, 1)),
            ],
        ),
        (
            "an unknown write that happens after its end",
            vec![
                operation(1, 5, create(1), Unknown),
                operation(6, 7, Action::Read, NotFound),
                operation(8, 9, Action::Read, found(1, 1)),
            ],
        ),
        (
            "revisions that go back",
            vec![operation(1, 2, create(1), Written(7)), operation(3, 4, update(2, None), Written(6))],
        ),
        (
            "a refusal without a reason",
            vec![operation(1, 2, create(1), Written(1)), operation(3, 4, update(2, Some(1)), Conflict)],
        ),
        ("a deletion of nothing", vec![operation(1, 2, DELETE, Deleted)]),
    ];
    for (name, history) in histories {
        let violations = check(history);
        assert!(matches!(&violations[..], [Violation::NotLinearizable { .. }]), "{name}: {violations:?}");
    }
}

#[test]
fn a_write_that_happened_twice_or_never_is_found() {
    let twice =
        check(vec![operation(1, 2, create(1), Written(1)), operation(3, 4, Action::Read, found(1, 2))]);
    assert!(
        twice.iter().any(|one| matches!(one, Violation::TwoRevisions { revisions: [1, 2], .. })),
        "{twice:?}"
    );
    let never =
        check(vec![operation(1, 2, create(1), Written(1)), operation(3, 4, Action::Read, found(9, 1))]);
    assert!(never.iter().any(|one| matches!(one, Violation::NeverWritten { .. })), "{never:?}");
}

#[test]
fn the_initial_state_counts() {
    let read = operation(1, 2, Action::Read, NotFound);
    let register = Register { content: Some(Content(1)), revision: 1 };
    let initial = HashMap::from([(read.key.clone(), register)]);
    let history = History { initial, operations: vec![read], watches: Vec::new() };
    let violations = history.check();
    assert!(matches!(&violations[..], [Violation::NotLinearizable { .. }]), "{violations:?}");
    let shown = violations[0].to_string();
    assert!(shown.contains("/maps/a") && shown.contains("Read -> NotFound"), "{shown}");
}

/// Random histories of a correct register, with many clients: accepted. The same with one response exchanged: rejected.
#[test]
fn generated_histories_are_judged_correctly() {
    const CLIENTS: usize = 16;
    let mut rejected = 0;
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut history = generate(&mut random, CLIENTS, 300);
        let violations = check(history.clone());
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
        // A read that finds the state before the write that it found is stale, if that write was acknowledged before.
        let reads = (0..history.len()).filter(|index| matches!(history[*index].outcome, Outcome::Found(_)));
        let reads: Vec<_> = reads.collect();
        let changed = reads[random.usize(..reads.len())];
        history[changed].outcome = Outcome::Found(Version { revision: 1, content: Content(1) });
        rejected += usize::from(!check(history).is_empty());
    }
    assert!(rejected > 180, "only {rejected} of 200 changed histories are rejected");
}

/// Operations of concurrent clients, each of which takes effect at a random time between its begin and its end.
fn generate(random: &mut fastrand::Rng, clients: usize, count: usize) -> Vec<Operation> {
    let mut state = Register::default();
    let mut free_at = vec![1; clients];
    let mut planned: Vec<(u64, u64, u64)> = (0..count)
        .map(|_| {
            let client = random.usize(..clients);
            let start = free_at[client];
            let (takes, rest) = (random.u64(1..30), random.u64(1..30));
            free_at[client] = start + takes + rest + 1;
            (start + takes, start, start + takes + rest)
        })
        .collect();
    planned.sort_unstable();
    let mut revision = 0;
    // No client can expect a revision that no client has seen.
    let mut is_known = false;
    let mut history = vec![];
    for (index, (_, start, end)) in planned.into_iter().enumerate() {
        let content = Content(index as u64 + 1);
        let (action, outcome) = match (random.u8(..10), state.content) {
            (0..4, None) => (Action::Read, NotFound),
            (0..4, Some(content)) => {
                (Action::Read, Outcome::Found(Version { revision: state.revision, content }))
            }
            (4, None) => (DELETE, NotFound),
            (4, Some(_)) => (DELETE, Deleted),
            (_, None) => (Action::Create(content), Written(0)),
            (5, Some(_)) => (Action::Create(content), AlreadyExists),
            (6, Some(_)) if is_known => {
                (Action::Update { content, expected: Some(state.revision) }, Written(0))
            }
            (7, Some(_)) if state.revision > 1 => {
                (Action::Update { content, expected: Some(state.revision - 1) }, Conflict)
            }
            (_, Some(_)) => (Action::Patch(content), Written(0)),
        };
        is_known |= matches!(outcome, Outcome::Found(_));
        // Some responses of writes are lost; some of those writes do not happen.
        let is_lost = matches!(outcome, Written(_) | Deleted) && random.u8(..20) == 0;
        let happens = !is_lost || random.bool();
        let outcome = match outcome {
            Written(_) if happens => {
                revision += random.u64(1..3);
                state = Register { content: Some(content), revision };
                is_known = !is_lost;
                Written(revision)
            }
            Deleted if happens => {
                revision += 1;
                state.content = None;
                Deleted
            }
            other => other,
        };
        history.push(operation(start, end, action, if is_lost { Unknown } else { outcome }));
    }
    history
}
