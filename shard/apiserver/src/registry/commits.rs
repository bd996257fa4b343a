//! Commits of several objects: no two objects of a resource get the same resourceVersion.
//!
//! A resourceVersion is the revision of a commit, and a client resumes a watch after the version of the last event that
//! it got. If a commit changed two objects of a resource, a watch that breaks between their events would be resumed
//! after both, and the second change would never be seen. A watch over all logical clusters sees each of them, so the
//! rule holds for a resource as a whole. Kubernetes has it because its transactions have one key.
//!
//! So a batch with several objects of a resource is divided. The *early* commits are independent of each other and are
//! sent concurrently; the *last* one has the last change of each resource. Callers put the object that the others belong
//! to at the end, such as the namespace whose content is deleted: its change comes after all others.
//!
//! Together, they are as safe as one commit. An early commit requires what the last one will require, so nothing is
//! done for an object that has changed meanwhile. The last one requires that the early changes still hold, so it never
//! says that something is done which is not. Early changes stay if the last commit fails; the caller plans again, and
//! finds them done.

use std::collections::HashMap;

use fairlead_names::KeyCodec;
use fairlead_store::{Change, CommitError, Expect, Mutation, Revision, Store};
use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};

use super::ObjectStore;

/// Concurrent commits of one batch. The embedded store writes those that wait together at once; a transaction of etcd
/// costs a round trip.
const CONCURRENT_COMMITS: usize = 128;

impl ObjectStore {
    /// Commits mutations: in one commit if they change at most one object of each resource, and otherwise in several, of
    /// which the last one has the last change of each resource. Returns the revision of the last one.
    ///
    /// # Errors
    /// [`CommitError`]; the index of a conflict is that in `mutations`. Only the last commit is certain not to have
    /// happened, as far as the error says so.
    pub async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
        match has_several_changes(&mutations).then(|| divide(self.codec(), &mutations)).flatten() {
            None => self.store().commit(mutations).await,
            // Boxed: a single write, the common case, has a small future.
            Some(batch) => Box::pin(self.commit_batch(mutations, batch)).await,
        }
    }

    /// Commits changes that do not depend on each other, each in a commit of its own.
    ///
    /// # Errors
    /// The first [`CommitError`]. No commit begins after it, but any of the others may have happened.
    pub async fn commit_each(&self, mutations: Vec<Mutation>) -> Result<(), CommitError> {
        let parts = mutations.into_iter().enumerate();
        let parts = parts.map(|(index, mutation)| Part { mutations: vec![mutation], origins: vec![index] });
        commit_all(&**self.store(), parts).await
    }

    async fn commit_batch(&self, mutations: Vec<Mutation>, batch: Batch) -> Result<Revision, CommitError> {
        let store = self.store();
        // What the store would refuse as one commit is refused before anything has happened.
        store.limits().check(&mutations)?;
        let required = batch.required(&mutations);
        let early = batch.early.iter().map(|changes| early_part(&mutations, changes, &required));
        commit_all(&**store, early).await?;
        batch.last_part(mutations).commit(&**store).await
    }
}

/// Sends commits concurrently. After a failure no other begins; those that have begun end.
async fn commit_all(store: &dyn Store, parts: impl Iterator<Item = Part> + Send) -> Result<(), CommitError> {
    let mut commits = stream::iter(parts).map(|part| part.commit(store));
    let mut in_flight = FuturesUnordered::new();
    let mut failure = None;
    loop {
        while failure.is_none() && in_flight.len() < CONCURRENT_COMMITS {
            match commits.next().await {
                Some(commit) => in_flight.push(commit),
                None => break,
            }
        }
        match in_flight.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => failure = failure.or(Some(error)),
            None => break,
        }
    }
    failure.map_or(Ok(()), Err)
}

/// One commit of a batch.
#[derive(Clone, Debug, Default)]
struct Part {
    mutations: Vec<Mutation>,
    /// The index in the batch of each mutation.
    origins: Vec<usize>,
}

impl Part {
    fn push(&mut self, index: usize, mutation: Mutation) {
        self.mutations.push(mutation);
        self.origins.push(index);
    }

    async fn commit(self, store: &dyn Store) -> Result<Revision, CommitError> {
        match store.commit(self.mutations).await {
            Err(CommitError::Conflict { index, current }) => {
                let index = self.origins.get(index).copied().unwrap_or(index);
                Err(CommitError::Conflict { index, current })
            }
            outcome => outcome,
        }
    }
}

/// A division of mutations. All numbers are their indexes.
#[derive(Debug, Eq, PartialEq)]
struct Batch {
    /// The changes of each early commit.
    early: Vec<Vec<usize>>,
    /// The place of each mutation: its commit, counted from the last one, which is 0. Fences have the place 0.
    places: Vec<usize>,
}

/// Whether there are several changes. Most commits have one, and fences.
fn has_several_changes(mutations: &[Mutation]) -> bool {
    mutations.iter().filter(|mutation| mutation.change != Change::Keep).nth(1).is_some()
}

/// Divides mutations; `None` if they change at most one object of each resource.
fn divide(codec: &KeyCodec, mutations: &[Mutation]) -> Option<Batch> {
    let mut places = vec![0; mutations.len()];
    // The number of later changes of each resource. Its origin does not matter: one watch can see several of them.
    let mut later: HashMap<(&str, &str), usize> = HashMap::new();
    let mut early: Vec<Vec<usize>> = Vec::new();
    for (index, mutation) in mutations.iter().enumerate().rev() {
        // No watch sees a key of another layout.
        let (false, Ok(key)) = (mutation.change == Change::Keep, codec.decode(&mutation.key)) else {
            continue;
        };
        let place = later.entry((key.group, key.resource)).or_default();
        if let (Some(place), Some(own)) = (place.checked_sub(1), places.get_mut(index)) {
            *own = place + 1;
            if early.len() == place {
                early.push(Vec::new());
            }
            early.get_mut(place)?.push(index);
        }
        *place += 1;
    }
    (!early.is_empty()).then_some(Batch { early, places })
}

impl Batch {
    /// The expectations of the last commit.
    fn required(&self, mutations: &[Mutation]) -> Part {
        let mut part = Part::default();
        for (index, (mutation, place)) in mutations.iter().zip(&self.places).enumerate() {
            if *place == 0 && mutation.expect != Expect::Any {
                part.push(index, Mutation::fence(mutation.key.clone(), mutation.expect));
            }
        }
        part
    }

    /// The last commit: its changes, and the expectation that those of the early ones hold.
    fn last_part(self, mutations: Vec<Mutation>) -> Part {
        let mut part = Part::default();
        for (index, (mutation, place)) in mutations.into_iter().zip(self.places).enumerate() {
            let mutation = match (place, &mutation.change) {
                (0, _) => mutation,
                (_, Change::Delete) => Mutation::fence(mutation.key, Expect::Absent),
                // Another writer may have changed it again; then it is still there.
                (_, Change::Put(_) | Change::Keep) => Mutation::fence(mutation.key, Expect::Present),
            };
            part.push(index, mutation);
        }
        part
    }
}

/// An early commit: its changes, and what the last one requires.
fn early_part(mutations: &[Mutation], changes: &[usize], required: &Part) -> Part {
    let mut part = required.clone();
    for index in changes {
        if let Some(mutation) = mutations.get(*index) {
            part.push(*index, mutation.clone());
        }
    }
    part
}

#[cfg(test)]
mod tests;
