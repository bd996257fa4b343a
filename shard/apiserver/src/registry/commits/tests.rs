#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::HashSet;
use std::sync::Arc;

use fairlead_store::{MemoryStore, Range};

use super::*;

const CODEC: KeyCodec = KeyCodec::new("/registry", 1, |group, _| group.is_empty());

fn objects() -> ObjectStore {
    ObjectStore::new(Arc::new(MemoryStore::new()), CODEC, &["kcp.io/cluster"])
}

fn key(resource: &str, name: &str) -> String {
    format!("/registry/core/{resource}/cluster/default/{name}")
}

fn create(resource: &str, name: &str) -> Mutation {
    Mutation::create(key(resource, name), name.to_owned())
}

fn fence(resource: &str, name: &str, expect: Expect) -> Mutation {
    Mutation::fence(key(resource, name), expect)
}

/// All commits of a batch; the last one is at the end.
fn parts(mutations: Vec<Mutation>) -> Vec<Part> {
    let Some(batch) = divide(&CODEC, &mutations) else {
        let origins = (0..mutations.len()).collect();
        return vec![Part { mutations, origins }];
    };
    let required = batch.required(&mutations);
    let mut parts: Vec<Part> =
        batch.early.iter().map(|changes| early_part(&mutations, changes, &required)).collect();
    parts.push(batch.last_part(mutations));
    parts
}

/// The events of a store by commit.
async fn events(objects: &ObjectStore) -> Vec<(Revision, Vec<String>)> {
    let mut follower = objects.store().follow(Revision(0)).unwrap();
    let mut events = Vec::new();
    while events.last().is_none_or(|(revision, _)| *revision < objects.store().revision()) {
        let batch = follower.next().await.unwrap();
        let names = batch.events.iter().map(|event| String::from_utf8_lossy(&event.key).into_owned());
        events.push((batch.revision, names.map(|key| key.rsplit('/').next().unwrap().to_owned()).collect()));
    }
    events
}

#[test]
fn a_commit_has_one_object_of_a_resource_at_most() {
    let elsewhere = |cluster: &str| Mutation::delete(format!("/registry/core/a/{cluster}/n/x"), Expect::Any);
    let identity = |hash: &str| Mutation::delete(format!("/registry/g.io/a/{hash}/c/x"), Expect::Present);
    let cases: [(Vec<Mutation>, usize); 8] = [
        (vec![create("a", "1")], 1),
        (vec![create("a", "1"), create("b", "1"), fence("a", "2", Expect::Present)], 1),
        (vec![create("a", "1"), create("a", "2")], 2),
        (vec![create("a", "1"), create("b", "1"), create("a", "2"), create("b", "2"), create("c", "1")], 2),
        (vec![create("a", "1"), create("b", "1"), create("b", "2"), create("b", "3")], 3),
        // A watch over all logical clusters sees both, and one for metadata sees resources of all origins.
        (vec![elsewhere("c1"), elsewhere("c2")], 2),
        (vec![identity("h1"), identity("h2")], 2),
        // No watch sees keys of another layout.
        (vec![Mutation::put("x", "1"), Mutation::put("y", "1"), create("a", "1")], 1),
    ];
    for (mutations, count) in cases {
        let parts = parts(mutations.clone());
        assert_eq!(parts.len(), count, "{mutations:?}");
        let mut changed: Vec<usize> = Vec::new();
        for part in &parts {
            let mut resources = HashSet::new();
            for (mutation, origin) in part.mutations.iter().zip(&part.origins) {
                assert_eq!(mutation.key, mutations[*origin].key);
                if mutation.change == Change::Keep {
                    continue;
                }
                changed.push(*origin);
                let Ok(key) = CODEC.decode(&mutation.key) else { continue };
                assert!(resources.insert((key.group, key.resource)), "{part:?}");
            }
        }
        changed.sort_unstable();
        let is_change = |index: &usize| mutations[*index].change != Change::Keep;
        assert_eq!(changed, (0..mutations.len()).filter(is_change).collect::<Vec<_>>(), "each change once");
    }
}

#[test]
fn parts_expect_of_each_other_what_one_commit_would() {
    let owner = || Mutation::update(key("owners", "o"), Revision(7), "new");
    let lock = || fence("locks", "l", Expect::At(Revision(3)));
    let delete = |name| Mutation::delete(key("a", name), Expect::At(Revision(5)));
    let found = parts(vec![delete("1"), create("a", "2"), delete("3"), lock(), owner()]);
    let required = || {
        vec![fence("a", "3", Expect::At(Revision(5))), lock(), fence("owners", "o", Expect::At(Revision(7)))]
    };
    let with = |change| required().into_iter().chain([change]).collect::<Vec<_>>();
    let mutations: Vec<_> = found.iter().map(|part| part.mutations.clone()).collect();
    assert_eq!(mutations[..2], [with(create("a", "2")), with(delete("1"))]);
    assert_eq!(
        mutations[2],
        [fence("a", "1", Expect::Absent), fence("a", "2", Expect::Present), delete("3"), lock(), owner()]
    );
    assert_eq!(found[0].origins, [2, 3, 4, 1]);
}

#[tokio::test]
async fn the_last_objects_come_last() {
    let objects = objects();
    let batch = vec![create("a", "a1"), create("a", "a2"), create("a", "a3"), create("b", "owner")];
    let revision = objects.commit(batch).await.unwrap();
    let events = events(&objects).await;
    assert_eq!(events.len(), 3);
    assert_eq!(events[2], (revision, vec!["a3".to_owned(), "owner".to_owned()]));
}

#[tokio::test]
async fn independent_changes_are_commits_of_their_own() {
    let objects = objects();
    let count = 3 * CONCURRENT_COMMITS;
    objects.commit_each((0..count).map(|nth| create("a", &nth.to_string())).collect()).await.unwrap();
    let events = events(&objects).await;
    assert_eq!(events.len(), count);
    assert!(events.iter().all(|(_, names)| names.len() == 1));
}

#[tokio::test]
async fn a_conflict_names_the_mutation_and_nothing_is_done_for_a_changed_owner() {
    let objects = objects();
    let first = objects.commit(vec![create("b", "owner")]).await.unwrap();
    let second = objects.commit(vec![Mutation::update(key("b", "owner"), first, "2")]).await.unwrap();
    let batch = |at| vec![create("a", "a1"), create("a", "a2"), Mutation::update(key("b", "owner"), at, "3")];
    let conflict = objects.commit(batch(first)).await.unwrap_err();
    assert!(matches!(conflict, CommitError::Conflict { index: 2, .. }), "{conflict}");
    assert_eq!(objects.store().revision(), second);

    objects.commit(vec![create("a", "a1")]).await.unwrap();
    let conflict = objects.commit(batch(second)).await.unwrap_err();
    assert!(matches!(conflict, CommitError::Conflict { index: 0, .. }), "{conflict}");
    assert!(
        objects.store().get(key("a", "a2").as_bytes()).unwrap().is_none(),
        "the last commit has not begun"
    );
}

#[tokio::test]
async fn an_invalid_batch_is_refused_as_a_whole() {
    let objects = objects();
    let twice = vec![create("a", "1"), create("a", "2"), create("a", "2")];
    let refusal = objects.commit(twice).await.unwrap_err();
    assert!(matches!(refusal, CommitError::DuplicateKey { index: 2 }), "{refusal}");
    assert!(matches!(objects.commit(Vec::new()).await.unwrap_err(), CommitError::Empty));
    objects.commit_each(Vec::new()).await.unwrap();
    let (_, found) = objects
        .store()
        .list(&Range::prefix("/"), None, None)
        .map(|page| (page.revision, page.records.len()))
        .unwrap();
    assert_eq!(found, 0);
}
