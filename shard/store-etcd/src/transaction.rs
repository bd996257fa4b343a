//! A commit as a transaction of etcd, and the meaning of its response.

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};
use fairlead_store::{Change, Expect, Mutation, Record, Revision};

use crate::keys::KeyLayout;
use crate::offset::Offset;
use crate::owner::Claim;

/// Bytes of a request beside its operations.
const FRAME: usize = 512;
/// The most bytes that surround a key or a value in an operation.
const OPERATION: usize = 32;

/// The effect of a transaction.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The commit has this revision.
    Committed(Revision),
    /// The expectations hold and nothing had to be changed. The keys are as `found` says.
    Unchanged { revision: Revision, found: Vec<KeyState> },
    /// The expectation of a mutation does not hold.
    Conflict { index: usize, current: Option<Record>, revision: Revision },
    /// The owner's record is another one, so nothing was changed.
    Foreign,
    /// A cluster that has the same owner's record, such as one that was restored from a backup, has executed it.
    Elsewhere,
    /// The response does not fit the request.
    Malformed,
}

impl Outcome {
    /// The outcome of a transaction that was sent when the cluster had passed a revision. A commit that does not follow it was
    /// executed by a cluster that was set back.
    pub(crate) fn after(self, seen: Revision) -> Self {
        match self {
            Self::Committed(revision) if revision <= seen => Self::Elsewhere,
            outcome => outcome,
        }
    }
}

/// The last modification of a key; `None`: it does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyState {
    pub(crate) key: Bytes,
    pub(crate) modified: Option<Revision>,
}

/// The size of a request, rounded up.
pub(crate) fn request_bytes(mutations: &[Mutation], layout: &KeyLayout, claim: &Claim) -> usize {
    let guard = 2 * claim.key.len() + claim.record.len();
    let prefix = layout.prefix().len() + OPERATION;
    let each = mutations.iter().map(|mutation| {
        let key = mutation.key.len() + prefix;
        // The comparison, and the read of the current state when it fails.
        let expectation = if mutation.expect == Expect::Any { 0 } else { 2 * (key + OPERATION) };
        mutation.bytes() + prefix + OPERATION + expectation
    });
    FRAME + guard + each.sum::<usize>()
}

/// The transaction of a commit, whose size has been checked. Copies keys and values once.
pub(crate) fn transaction(mutations: &[Mutation], layout: &KeyLayout, claim: &Claim) -> Txn {
    let mut compares = vec![claim.comparison()];
    let mut reads = vec![TxnOp::get(claim.key.clone(), None)];
    let mut changes = Vec::with_capacity(mutations.len());
    let reads_fences = !has_put(mutations);
    for mutation in mutations {
        let key = layout.encode(&mutation.key);
        if let Some(compare) = comparison(&key, mutation.expect, claim.offset) {
            compares.push(compare);
            reads.push(TxnOp::get(key.clone(), None));
        }
        match &mutation.change {
            Change::Put(value) => changes.push(TxnOp::put(key, &value[..], None)),
            Change::Delete => changes.push(TxnOp::delete(key, None)),
            Change::Keep if reads_fences => {
                changes.push(TxnOp::get(key, Some(GetOptions::new().with_keys_only())));
            }
            Change::Keep => {}
        }
    }
    Txn::new().when(compares).and_then(changes).or_else(reads)
}

/// A key that does not exist has the `mod_revision` 0.
fn comparison(key: &[u8], expect: Expect, offset: Offset) -> Option<Compare> {
    let (operator, revision) = match expect {
        Expect::Any => return None,
        Expect::Absent => (CompareOp::Equal, 0),
        Expect::Present => (CompareOp::Greater, 0),
        Expect::At(at) => match offset.to_etcd(at) {
            // No key has such a revision, so this must never hold.
            0 => (CompareOp::Less, 0),
            at => (CompareOp::Equal, at),
        },
    };
    Some(Compare::mod_revision(key, operator, revision))
}

/// Whether a commit writes a value.
fn has_put(mutations: &[Mutation]) -> bool {
    mutations.iter().any(|mutation| matches!(mutation.change, Change::Put(_)))
}

/// Whether a commit creates an object. Objects have a UID of their own, so nobody else commits the same.
pub(crate) fn creates(mutations: &[Mutation]) -> bool {
    mutations
        .iter()
        .any(|mutation| mutation.expect == Expect::Absent && matches!(mutation.change, Change::Put(_)))
}

/// Whether a commit can have an effect at all. One that cannot is safe to repeat.
pub(crate) fn can_change(mutations: &[Mutation]) -> bool {
    mutations.iter().any(|mutation| mutation.change != Change::Keep)
}

/// The outcome of [`transaction`]. Copies the response, unless the commit wrote a value and succeeded.
pub(crate) fn outcome(mutations: &[Mutation], claim: &Claim, response: &TxnResponse) -> Outcome {
    let Some(header) = response.header() else { return Outcome::Malformed };
    if header.cluster_id() != claim.cluster {
        return if response.succeeded() { Outcome::Elsewhere } else { Outcome::Foreign };
    }
    let revision = claim.offset.to_store(header.revision());
    if !response.succeeded() {
        return conflict(mutations, claim, response, revision);
    }
    if has_put(mutations) {
        return Outcome::Committed(revision);
    }
    let responses = response.op_responses();
    if responses.len() != mutations.len() {
        return Outcome::Malformed;
    }
    let mut found = Vec::with_capacity(mutations.len());
    for (mutation, response) in mutations.iter().zip(responses) {
        let modified = match response {
            TxnOpResponse::Delete(delete) if delete.deleted() > 0 => return Outcome::Committed(revision),
            TxnOpResponse::Delete(_) => None,
            TxnOpResponse::Get(get) => get.kvs().first().map(|kv| claim.offset.to_store(kv.mod_revision())),
            TxnOpResponse::Put(_) | TxnOpResponse::Txn(_) => return Outcome::Malformed,
        };
        found.push(KeyState { key: mutation.key.clone(), modified });
    }
    Outcome::Unchanged { revision, found }
}

/// All reads of a response are of one revision, so the first expectation that they contradict is the cause.
fn conflict(mutations: &[Mutation], claim: &Claim, response: &TxnResponse, revision: Revision) -> Outcome {
    let mut reads = response.op_responses().into_iter().map(|response| match response {
        TxnOpResponse::Get(mut get) => Some(get.take_kvs().into_iter().next()),
        _ => None,
    });
    let Some(Some(owner)) = reads.next() else { return Outcome::Malformed };
    if owner.is_none_or(|owner| owner.value() != claim.record) {
        return Outcome::Foreign;
    }
    let expecting = mutations.iter().enumerate().filter(|(_, mutation)| mutation.expect != Expect::Any);
    for ((index, mutation), read) in expecting.zip(reads) {
        let Some(found) = read else { return Outcome::Malformed };
        let modified = found.as_ref().map(|kv| claim.offset.to_store(kv.mod_revision()));
        if !mutation.expect.admits(modified) {
            let current = found.map(|kv| Record {
                created: claim.offset.to_store(kv.create_revision()),
                modified: claim.offset.to_store(kv.mod_revision()),
                key: mutation.key.clone(),
                value: kv.into_key_value().1.into(),
            });
            return Outcome::Conflict { index, current, revision };
        }
    }
    Outcome::Malformed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_request_counts_every_copy_of_a_key() {
        let layout = KeyLayout::new("/registry", "/registry");
        let claim = Claim {
            cluster: 1,
            key: layout.owner(),
            record: vec![0; 50],
            number: 1,
            offset: Offset::default(),
            revision: Revision(1),
        };
        let bytes = |mutations: &[Mutation]| request_bytes(mutations, &layout, &claim);
        let key = vec![b'k'; 1000];
        let put = bytes(&[Mutation::put(key.clone(), vec![0; 5000])]);
        assert!((6000..7000).contains(&put), "{put}");
        let create = bytes(&[Mutation::create(key.clone(), vec![0; 5000])]);
        assert!((8000..9000).contains(&create), "{create}");
        let delete = bytes(&[Mutation::delete(key, Expect::Any)]);
        assert!((1000..2000).contains(&delete), "{delete}");
    }
}
