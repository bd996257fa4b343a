//! Linearizability of one register.
//!
//! The search takes operations in the order of their begin and goes back when the response of a pending one cannot be
//! explained. Three rules keep it short, and none of them loses an explanation:
//! - Writes whose revision is known are taken in the order of revisions.
//! - A response that changes nothing is taken as soon as it is correct.
//! - An operation without a response that did not happen is dropped at its end.
//!
//! A cache of (taken operations, state) prevents that a configuration is visited twice.

use std::collections::{HashMap, HashSet};

use super::violation::Stuck;
use super::{Action, Content, Operation, Outcome, Register, Revision};

/// Searches an order that explains all responses. `revisions` has the revision of each content that anybody has seen.
pub(super) fn check(
    operations: &[&Operation],
    initial: Register,
    revisions: &HashMap<Content, Revision>,
) -> Result<(), Stuck> {
    Search::new(operations, revisions).run(initial)
}

struct Search<'a> {
    operations: &'a [&'a Operation],
    revisions: &'a HashMap<Content, Revision>,
    points: Points,
    taken: BitSet,
    /// The place of each write with a known revision in the order of revisions.
    places: Vec<Option<usize>>,
    /// The revisions of these writes, in order.
    order: Vec<Revision>,
    /// How many of them are taken.
    ordered_writes: usize,
    /// Configurations that were visited.
    visited: HashSet<(BitSet, Register)>,
    /// The taken operations, with the state before each, to go back.
    path: Vec<(usize, Register)>,
    furthest: Option<Stuck>,
}

impl<'a> Search<'a> {
    fn new(operations: &'a [&'a Operation], revisions: &'a HashMap<Content, Revision>) -> Self {
        let revision = |index: &usize| revisions.get(&operations[*index].action.content()?).copied();
        let is_write =
            |index: &usize| matches!(operations[*index].outcome, Outcome::Written(_) | Outcome::Unknown);
        let mut order: Vec<usize> =
            (0..operations.len()).filter(|index| is_write(index) && revision(index).is_some()).collect();
        order.sort_by_key(revision);
        let mut places = vec![None; operations.len()];
        for (place, index) in order.iter().enumerate() {
            places[*index] = Some(place);
        }
        let order = order.iter().filter_map(revision).collect();
        Self {
            operations,
            revisions,
            points: Points::new(operations),
            taken: BitSet::new(operations.len()),
            places,
            order,
            ordered_writes: 0,
            visited: HashSet::new(),
            path: Vec::new(),
            furthest: None,
        }
    }

    fn run(mut self, mut state: Register) -> Result<(), Stuck> {
        let mut point = self.points.first();
        while let Some(current) = point {
            match self.points.at(current) {
                Point::Begin(operation) => match self.explain(operation, state) {
                    Some(after) if self.take(operation, state, after) => {
                        (point, state) = (self.points.first(), after);
                    }
                    _ => point = self.points.after(current),
                },
                Point::End(operation)
                    if self.may_be_dropped(operation) && self.take(operation, state, state) =>
                {
                    point = self.points.first();
                }
                // An operation ends here that is not taken: an earlier choice was wrong.
                Point::End(_) => (point, state) = self.go_back(state)?,
            }
        }
        Ok(())
    }

    /// Takes an operation, unless this leads to a configuration that was visited.
    fn take(&mut self, operation: usize, before: Register, after: Register) -> bool {
        self.taken.insert(operation);
        if !self.visited.insert((self.taken.clone(), after)) {
            self.taken.remove(operation);
            return false;
        }
        self.points.remove(operation);
        self.ordered_writes += usize::from(self.places[operation].is_some());
        self.path.push((operation, before));
        true
    }

    /// Undoes operations up to the last one that could also be taken later. Returns the point to go on with, and the state
    /// there.
    fn go_back(&mut self, mut state: Register) -> Result<(Option<usize>, Register), Stuck> {
        self.note_progress(state);
        while let Some((operation, before)) = self.path.pop() {
            self.points.restore(operation);
            self.taken.remove(operation);
            self.ordered_writes -= usize::from(self.places[operation].is_some());
            let had_no_alternative = state == before;
            state = before;
            if !had_no_alternative {
                return Ok((self.points.after(self.points.begin(operation)), before));
            }
        }
        Err(self.furthest.take().unwrap_or_else(|| self.stuck(state)))
    }

    fn may_be_dropped(&self, operation: usize) -> bool {
        self.operations[operation].outcome == Outcome::Unknown && self.places[operation].is_none()
    }

    /// The state to which an operation leads with its response; `None` if its response is wrong in this state.
    fn explain(&self, operation: usize, state: Register) -> Option<Register> {
        if self.places[operation].is_some_and(|place| place != self.ordered_writes) {
            return None;
        }
        if let Action::ReadSince(revision) = self.operations[operation].action
            && self.order.get(self.ordered_writes).is_some_and(|next| *next <= revision)
        {
            return None;
        }
        explain(self.operations[operation], state, self.revisions)
    }

    fn note_progress(&mut self, state: Register) {
        if self.furthest.as_ref().is_none_or(|furthest| furthest.explained < self.path.len()) {
            self.furthest = Some(self.stuck(state));
        }
    }

    fn stuck(&self, state: Register) -> Stuck {
        const SHOWN: usize = 12;
        let mut remaining: Vec<_> =
            (0..self.operations.len()).filter(|index| !self.taken.contains(*index)).collect();
        remaining.sort_by_key(|index| self.operations[*index].end);
        Stuck {
            explained: self.path.len(),
            total: self.operations.len(),
            state,
            remaining: remaining
                .into_iter()
                .take(SHOWN)
                .map(|index| self.operations[index].clone())
                .collect(),
        }
    }
}

/// The state to which an operation leads with its response. An operation without a response is one that happened.
fn explain(
    operation: &Operation,
    state: Register,
    revisions: &HashMap<Content, Revision>,
) -> Option<Register> {
    let is_at =
        |expected: Revision| state.content.is_some_and(|content| revisions.get(&content) == Some(&expected));
    let exists = state.content.is_some();
    let fits = match operation.action {
        Action::Create(_) => !exists,
        Action::Update { expected, .. } | Action::Delete { expected } => exists && expected.is_none_or(is_at),
        Action::Patch(_) | Action::Read | Action::ReadSince(_) => exists,
    };
    let written = |content: Content| {
        // The revision of a write that nobody has seen is unknown.
        let revision = revisions.get(&content).copied();
        let revision = revision.map_or(Some(state.revision), |new| (new > state.revision).then_some(new))?;
        Some(Register { content: Some(content), revision })
    };
    let is_correct = match (operation.outcome, operation.action) {
        (
            Outcome::Written(_) | Outcome::Unknown,
            Action::Create(content) | Action::Update { content, .. } | Action::Patch(content),
        ) => return fits.then(|| written(content)).flatten(),
        (Outcome::Deleted | Outcome::Unknown, Action::Delete { .. }) => {
            return fits.then_some(Register { content: None, ..state });
        }
        (Outcome::Found(version), Action::Read | Action::ReadSince(_)) => {
            state.content == Some(version.content)
        }
        (Outcome::NotFound, _) => !exists,
        (Outcome::AlreadyExists, _) => exists,
        (
            Outcome::Conflict,
            Action::Update { expected: Some(expected), .. } | Action::Delete { expected: Some(expected) },
        ) => exists && !is_at(expected),
        // The server gave up between other writers.
        (Outcome::Conflict, _) => true,
        (Outcome::Unknown, Action::Read | Action::ReadSince(_)) => true,
        (Outcome::Written(_) | Outcome::Deleted | Outcome::Found(_), _) => false,
    };
    is_correct.then_some(state)
}

/// Begins and ends of operations in the order of time, as a list from which operations are removed and restored.
struct Points {
    points: Vec<Point>,
    next: Vec<usize>,
    previous: Vec<usize>,
    begins: Vec<usize>,
    ends: Vec<usize>,
}

#[derive(Clone, Copy)]
enum Point {
    Begin(usize),
    End(usize),
}

/// The place before the first point, which closes the list to a ring.
const HEAD: usize = 0;

impl Points {
    fn new(operations: &[&Operation]) -> Self {
        // At one time, begins come first: operations that touch are concurrent.
        let mut order: Vec<(u64, bool, usize)> = operations
            .iter()
            .enumerate()
            .flat_map(|(index, operation)| [(operation.start, false, index), (operation.end, true, index)])
            .collect();
        order.sort_unstable();
        let (mut begins, mut ends) = (vec![0; operations.len()], vec![0; operations.len()]);
        let mut points = vec![Point::End(usize::MAX)];
        for (_, is_end, operation) in order {
            if is_end {
                ends[operation] = points.len();
                points.push(Point::End(operation));
            } else {
                begins[operation] = points.len();
                points.push(Point::Begin(operation));
            }
        }
        let count = points.len();
        let next = (1..=count).map(|index| index % count).collect();
        let previous = (0..count).map(|index| (index + count - 1) % count).collect();
        Self { points, next, previous, begins, ends }
    }

    fn first(&self) -> Option<usize> {
        self.after(HEAD)
    }

    fn after(&self, point: usize) -> Option<usize> {
        Some(self.next[point]).filter(|next| *next != HEAD)
    }

    fn at(&self, point: usize) -> Point {
        self.points[point]
    }

    fn begin(&self, operation: usize) -> usize {
        self.begins[operation]
    }

    fn remove(&mut self, operation: usize) {
        for point in [self.begins[operation], self.ends[operation]] {
            let (previous, next) = (self.previous[point], self.next[point]);
            self.next[previous] = next;
            self.previous[next] = previous;
        }
    }

    /// Undoes the last [`Points::remove`].
    fn restore(&mut self, operation: usize) {
        for point in [self.ends[operation], self.begins[operation]] {
            let (previous, next) = (self.previous[point], self.next[point]);
            self.next[previous] = point;
            self.previous[next] = point;
        }
    }
}

/// A set of operations.
#[derive(Clone, PartialEq, Eq, Hash)]
struct BitSet(Vec<u64>);

impl BitSet {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    fn remove(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }

    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }
}

#[cfg(test)]
mod tests;
