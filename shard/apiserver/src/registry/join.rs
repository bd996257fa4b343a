//! Joins the mutations of a write and of its admission plugins into one commit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use fairlead_store::{Change, Expect, Mutation};

/// One mutation per key. A fence adds its expectation to the change of its key. `None` if two expectations of a key
/// contradict each other because it changed between two reads, or if two mutations change one key: the write must start
/// again.
pub(super) fn join(mutations: Vec<Mutation>) -> Option<Vec<Mutation>> {
    if mutations.len() < 2 {
        return Some(mutations);
    }
    let mut joined: Vec<Mutation> = Vec::with_capacity(mutations.len());
    let mut positions = HashMap::with_capacity(mutations.len());
    for mutation in mutations {
        match positions.entry(mutation.key.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(joined.len());
                joined.push(mutation);
            }
            Entry::Occupied(occupied) => {
                let known = joined.get_mut(*occupied.get())?;
                known.expect = both(known.expect, mutation.expect)?;
                match (&known.change, mutation.change) {
                    (_, Change::Keep) => {}
                    (Change::Keep, change) => known.change = change,
                    _ => return None,
                }
            }
        }
    }
    Some(joined)
}

fn both(one: Expect, other: Expect) -> Option<Expect> {
    match (one, other) {
        (Expect::Any, expect) | (expect, Expect::Any) => Some(expect),
        (Expect::Present, at @ Expect::At(_)) | (at @ Expect::At(_), Expect::Present) => Some(at),
        _ => (one == other).then_some(one),
    }
}

#[cfg(test)]
mod tests {
    use fairlead_store::Revision;

    use super::*;

    #[test]
    fn a_fence_joins_the_change_of_its_key() {
        let (a, at) = (|| bytes::Bytes::from_static(b"a"), Expect::At(Revision(1)));
        let put = || Mutation::update(a(), Revision(1), "v");
        for (mutations, expected) in [
            (vec![put(), Mutation::fence(a(), at)], Some(vec![put()])),
            (vec![Mutation::fence(a(), at), put()], Some(vec![put()])),
            (vec![Mutation::fence(a(), Expect::Present), put()], Some(vec![put()])),
            (vec![Mutation::fence(a(), at), Mutation::fence(a(), at)], Some(vec![Mutation::fence(a(), at)])),
            (vec![put(), Mutation::fence("b", at)], Some(vec![put(), Mutation::fence("b", at)])),
            (vec![put(), Mutation::fence(a(), Expect::At(Revision(2)))], None),
            (vec![put(), Mutation::fence(a(), Expect::Absent)], None),
            (vec![put(), put()], None),
        ] {
            assert_eq!(join(mutations.clone()), expected, "{mutations:?}");
        }
    }
}
