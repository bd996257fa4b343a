//! Authentication configurations of workspace types: `WorkspaceType` objects refer to `WorkspaceAuthenticationConfiguration`
//! objects in the same logical cluster.
//!
//! This module builds no authenticators. It stores the configurations per type. The caller builds authenticators from them on
//! demand; the generation shows whether an authenticator is current.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_client::{Client, ListWatch, Piece, Reflector, ReflectorOptions};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::routing::index::objects::{is_id, null_as_default};

/// Changes within this time are published together, because publishing iterates over all types.
const PUBLISH_DELAY: Duration = Duration::from_millis(20);

/// An authentication configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Configuration {
    /// The shard of the object.
    pub(crate) shard: Arc<str>,
    /// The id of the object's logical cluster.
    pub(crate) cluster: Arc<str>,
    /// The object's name.
    pub(crate) name: Arc<str>,
    /// Changes with the content; no two configurations have the same generation.
    pub(crate) generation: u64,
    /// The object's `spec` as JSON.
    pub(crate) spec: Arc<[u8]>,
}

/// The configurations of all workspace types.
#[derive(Debug)]
pub(crate) struct WorkspaceAuthentication {
    by_type: ArcSwap<FxHashMap<Arc<str>, Arc<[Configuration]>>>,
    none: Arc<[Configuration]>,
    /// Shards of which everything has been read once and published.
    synced: ArcSwap<FxHashSet<Arc<str>>>,
    state: Mutex<State>,
    published: Notify,
}

#[derive(Debug, Default)]
struct State {
    shards: BTreeMap<Arc<str>, ShardState>,
    generation: u64,
}

/// The objects of one shard.
#[derive(Debug, Default)]
struct ShardState {
    types: Collection<TypeEntry>,
    configurations: Collection<Configuration>,
}

/// Logical cluster and name of an object.
type ObjectKey = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Collection<T> {
    objects: FxHashMap<ObjectKey, T>,
    /// Objects that the pages of the current list have named so far.
    seen: FxHashSet<ObjectKey>,
    synced: bool,
}

impl<T> Default for Collection<T> {
    fn default() -> Self {
        Self { objects: FxHashMap::default(), seen: FxHashSet::default(), synced: false }
    }
}

#[derive(Debug, PartialEq)]
struct TypeEntry {
    /// `path:name`, as logical clusters refer to their type.
    full_name: Arc<str>,
    configurations: Vec<Arc<str>>,
}

impl WorkspaceAuthentication {
    /// Starts without configurations.
    pub(crate) fn new() -> Self {
        Self {
            by_type: ArcSwap::default(),
            none: Arc::default(),
            synced: ArcSwap::default(),
            state: Mutex::default(),
            published: Notify::new(),
        }
    }

    /// Waits until a new state is published. For a single waiter.
    pub(super) async fn changed(&self) {
        self.published.notified().await;
    }

    /// The configurations of a type `path:name`; empty if it has none. One map look-up; no lock, no copy.
    pub(crate) fn configurations(&self, workspace_type: &str) -> Arc<[Configuration]> {
        Arc::clone(self.by_type.load().get(workspace_type).unwrap_or(&self.none))
    }

    /// Whether everything on these shards has been read once and published. Before that, a type without configurations may
    /// have some.
    pub(crate) fn is_synced<'s>(&self, mut shards: impl Iterator<Item = &'s Arc<str>>) -> bool {
        let synced = self.synced.load();
        shards.all(|name| synced.contains(name))
    }

    /// Removes the objects of a shard.
    pub(super) fn remove_shard(&self, shard: &str) {
        let mut state = self.state.lock();
        if state.shards.remove(shard).is_some() {
            self.publish(&state);
        }
    }

    /// Publishes the state.
    ///
    /// Each type belongs to one logical cluster. If two logical clusters have a type of the same name, the configurations
    /// of neither are used, because the wrong issuers would be trusted. The same logical cluster on two shards is being
    /// migrated; the first shard by name takes precedence.
    fn publish(&self, state: &State) {
        let mut homes: FxHashMap<&Arc<str>, (&Arc<str>, Vec<Configuration>)> = FxHashMap::default();
        let mut disputed: FxHashSet<&Arc<str>> = FxHashSet::default();
        for shard in state.shards.values() {
            for ((cluster, _), entry) in &shard.types.objects {
                let found = entry.configurations.iter().filter_map(|name| {
                    shard.configurations.objects.get(&(Arc::clone(cluster), Arc::clone(name))).cloned()
                });
                match homes.entry(&entry.full_name) {
                    std::collections::hash_map::Entry::Vacant(vacant) => {
                        vacant.insert((cluster, found.collect()));
                    }
                    std::collections::hash_map::Entry::Occupied(home) if home.get().0 != cluster => {
                        disputed.insert(&entry.full_name);
                    }
                    std::collections::hash_map::Entry::Occupied(_) => {}
                }
            }
        }
        for name in &disputed {
            tracing::warn!(workspace_type = %name, "two logical clusters have this type: its authenticators are not used");
        }
        let undisputed = homes.into_iter().filter(|(name, _)| !disputed.contains(name));
        let by_type = undisputed.map(|(name, (_, found))| (Arc::clone(name), found.into()));
        self.by_type.store(Arc::new(by_type.collect()));
        let synced =
            state.shards.iter().filter(|(_, shard)| shard.types.synced && shard.configurations.synced);
        self.synced.store(Arc::new(synced.map(|(name, _)| Arc::clone(name)).collect()));
        self.published.notify_one();
    }
}

/// Follows the types and configurations of one shard; runs until it is dropped.
pub(super) struct AuthenticationFollower {
    shard: Arc<str>,
    client: Client,
    options: ReflectorOptions,
    identity: watch::Receiver<Option<Arc<str>>>,
    target: Arc<WorkspaceAuthentication>,
}

impl AuthenticationFollower {
    /// `client` addresses the shard itself, without a logical cluster.
    pub(super) fn new(
        shard: Arc<str>,
        client: &Client,
        options: ReflectorOptions,
        identity: watch::Receiver<Option<Arc<str>>>,
        target: Arc<WorkspaceAuthentication>,
    ) -> Self {
        Self { shard, client: client.with_prefix("/clusters/*"), options, identity, target }
    }

    pub(super) async fn run(mut self) {
        loop {
            let Ok(known) = self.identity.wait_for(Option::is_some).await.map(|known| known.clone()) else {
                return;
            };
            let mut changes = self.identity.clone();
            tokio::select! {
                () = self.follow(known.as_deref().unwrap_or_default()) => {}
                changed = changes.wait_for(|now| *now != known) => if changed.is_err() { return },
            }
        }
    }

    async fn follow(&self, identity: &str) {
        let mut types = Reflector::<TypeObject>::new(
            self.client.clone(),
            ListWatch::new(format!("/apis/tenancy.kcp.io/v1alpha1/workspacetypes:{identity}")),
            self.options.clone(),
        );
        let mut configurations = Reflector::<ConfigurationObject>::new(
            self.client.clone(),
            ListWatch::new(format!(
                "/apis/tenancy.kcp.io/v1alpha1/workspaceauthenticationconfigurations:{identity}"
            )),
            self.options.clone(),
        );
        let mut due: Option<Instant> = None;
        loop {
            let changed = tokio::select! {
                piece = types.next_piece() => self.change(|state, shard| {
                    apply(&mut state.shards.entry(shard).or_default().types, piece, TypeObject::into_entry)
                }),
                piece = configurations.next_piece() => self.change(|state, shard| {
                    let generation = &mut state.generation;
                    let known = state.shards.entry(Arc::clone(&shard)).or_default();
                    apply(&mut known.configurations, piece, |object| object.into_entry(&shard, generation))
                }),
                () = super::until(due) => {
                    self.target.publish(&self.target.state.lock());
                    due = None;
                    false
                }
            };
            if changed && due.is_none() {
                due = Some(Instant::now() + PUBLISH_DELAY);
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut State, Arc<str>) -> bool) -> bool {
        change(&mut self.target.state.lock(), Arc::clone(&self.shard))
    }
}

/// Applies a piece of a list or watch. Returns whether it changed anything.
fn apply<O, T: SameContent>(
    collection: &mut Collection<T>,
    piece: Piece<O>,
    mut entry: impl FnMut(O) -> (ObjectKey, Option<T>),
) -> bool {
    match piece {
        Piece::Page { items, is_first, complete_at } => {
            if is_first {
                collection.seen.clear();
            }
            let mut changed = false;
            for item in items {
                let (key, entry) = entry(item);
                collection.seen.insert(key.clone());
                changed |= collection.put(key, entry);
            }
            if complete_at.is_some() {
                let seen = std::mem::take(&mut collection.seen);
                let before = collection.objects.len();
                collection.objects.retain(|key, _| seen.contains(key));
                changed |= collection.objects.len() < before || !collection.synced;
                collection.synced = true;
            }
            changed
        }
        Piece::Applied(item) => {
            let (key, entry) = entry(item);
            collection.put(key, entry)
        }
        Piece::Deleted(item) => {
            let (key, _) = entry(item);
            collection.put(key, None)
        }
        Piece::Progress(_) => false,
    }
}

impl<T: SameContent> Collection<T> {
    fn put(&mut self, key: ObjectKey, entry: Option<T>) -> bool {
        let Some(entry) = entry.filter(|_| is_id(&key.0)) else {
            return self.objects.remove(&key).is_some();
        };
        if self.objects.get(&key).is_some_and(|known| known.is_same(&entry)) {
            return false;
        }
        self.objects.insert(key, entry);
        true
    }
}

trait SameContent {
    fn is_same(&self, other: &Self) -> bool;
}

impl SameContent for TypeEntry {
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

impl SameContent for Configuration {
    /// The generation is derived from the content and is not compared.
    fn is_same(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

/// A `WorkspaceType` of `tenancy.kcp.io/v1alpha1`.
#[derive(Debug, Deserialize)]
struct TypeObject {
    metadata: Meta,
    #[serde(default)]
    spec: TypeSpec,
}

#[derive(Debug, Default, Deserialize)]
struct TypeSpec {
    #[serde(rename = "authenticationConfigurations", default, deserialize_with = "null_as_default")]
    configurations: Vec<Reference>,
}

#[derive(Debug, Deserialize)]
struct Reference {
    name: Arc<str>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    name: Arc<str>,
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: Annotations,
}

#[derive(Debug, Default, Deserialize)]
struct Annotations {
    #[serde(rename = "kcp.io/cluster", default)]
    cluster: Arc<str>,
    #[serde(rename = "kcp.io/path", default)]
    path: Box<str>,
}

/// A `WorkspaceAuthenticationConfiguration` of `tenancy.kcp.io/v1alpha1`.
#[derive(Debug, Deserialize)]
struct ConfigurationObject {
    metadata: Meta,
    spec: Option<Box<RawValue>>,
}

impl TypeObject {
    /// Types without configurations are not stored.
    fn into_entry(self) -> (ObjectKey, Option<TypeEntry>) {
        let Meta { name, annotations: Annotations { cluster, path } } = self.metadata;
        let configurations: Vec<Arc<str>> =
            self.spec.configurations.into_iter().map(|reference| reference.name).collect();
        let entry = (!configurations.is_empty() && !path.is_empty())
            .then(|| TypeEntry { full_name: format!("{path}:{name}").into(), configurations });
        ((cluster, name), entry)
    }
}

impl ConfigurationObject {
    fn into_entry(self, shard: &Arc<str>, generation: &mut u64) -> (ObjectKey, Option<Configuration>) {
        let Meta { name, annotations: Annotations { cluster, .. } } = self.metadata;
        let key = (Arc::clone(&cluster), Arc::clone(&name));
        let entry = self.spec.map(|spec| {
            *generation += 1;
            let (shard, generation) = (Arc::clone(shard), *generation);
            Configuration { shard, cluster, name, generation, spec: spec.get().as_bytes().into() }
        });
        (key, entry)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;

    struct World(WorkspaceAuthentication);

    impl World {
        fn types(&self, shard: &str, piece: Piece<Value>) {
            let mut state = self.0.state.lock();
            let types = &mut state.shards.entry(shard.into()).or_default().types;
            apply(types, piece, |value| serde_json::from_value::<TypeObject>(value).unwrap().into_entry());
            self.0.publish(&state);
        }

        fn configurations(&self, shard: &str, piece: Piece<Value>) {
            let mut state = self.0.state.lock();
            let State { shards, generation } = &mut *state;
            let shard: Arc<str> = shard.into();
            let known = &mut shards.entry(Arc::clone(&shard)).or_default().configurations;
            apply(known, piece, |value| {
                serde_json::from_str::<ConfigurationObject>(&value.to_string())
                    .unwrap()
                    .into_entry(&shard, generation)
            });
            self.0.publish(&state);
        }

        fn of(&self, workspace_type: &str) -> Vec<String> {
            let found = self.0.configurations(workspace_type);
            found.iter().map(|one| format!("{} {}", one.shard, String::from_utf8_lossy(&one.spec))).collect()
        }
    }

    fn workspace_type(cluster: &str, path: &str, name: &str, configurations: &[&str]) -> Value {
        let references: Vec<Value> = configurations.iter().map(|name| json!({"name": name})).collect();
        json!({
            "metadata": {"name": name, "annotations": {"kcp.io/cluster": cluster, "kcp.io/path": path}},
            "spec": {"authenticationConfigurations": references},
        })
    }

    fn configuration(cluster: &str, name: &str, issuer: &str) -> Value {
        json!({
            "metadata": {"name": name, "annotations": {"kcp.io/cluster": cluster}},
            "spec": {"issuer": issuer},
        })
    }

    fn page(items: Vec<Value>, is_first: bool, is_last: bool) -> Piece<Value> {
        Piece::Page { items, is_first, complete_at: is_last.then(|| "7".to_owned()) }
    }

    /// The last piece may be the last event of the index, and readiness waits for it.
    #[test]
    fn a_waiter_is_notified_of_the_last_piece() {
        use futures_util::FutureExt;

        let world = World(WorkspaceAuthentication::new());
        let shard: Arc<str> = "a".into();
        assert_eq!(world.0.changed().now_or_never(), None);
        world.types("a", page(Vec::new(), true, true));
        assert_eq!(world.0.changed().now_or_never(), Some(()));
        assert!(!world.0.is_synced([&shard].into_iter()));
        world.configurations("a", page(Vec::new(), true, true));
        assert_eq!(world.0.changed().now_or_never(), Some(()));
        assert!(world.0.is_synced([&shard].into_iter()));
        assert_eq!(world.0.changed().now_or_never(), None);
    }

    #[test]
    fn a_type_uses_configurations_of_its_own_logical_cluster() {
        let world = World(WorkspaceAuthentication::new());
        let shards: [Arc<str>; 1] = ["a".into()];
        assert!(!world.0.is_synced(shards.iter()));
        world.types("a", page(vec![workspace_type("c1", "root:org", "t", &["x", "y"])], true, true));
        assert_eq!(world.of("root:org:t"), Vec::<String>::new());
        let both = vec![configuration("c1", "x", "i"), configuration("c2", "y", "elsewhere")];
        world.configurations("a", page(both, true, true));
        assert_eq!(world.of("root:org:t"), [r#"a {"issuer":"i"}"#]);
        assert!(world.0.is_synced(shards.iter()));
        world.configurations("a", Piece::Applied(configuration("c1", "y", "j")));
        assert_eq!(world.of("root:org:t"), [r#"a {"issuer":"i"}"#, r#"a {"issuer":"j"}"#]);
        world.types("a", Piece::Applied(workspace_type("c1", "root:org", "t", &["y"])));
        assert_eq!(world.of("root:org:t"), [r#"a {"issuer":"j"}"#]);
        world.types("a", Piece::Deleted(workspace_type("c1", "root:org", "t", &["y"])));
        assert_eq!(world.of("root:org:t"), Vec::<String>::new());
    }

    #[test]
    fn a_generation_is_new_if_and_only_if_the_content_is() {
        let world = World(WorkspaceAuthentication::new());
        world.types("a", page(vec![workspace_type("c1", "root", "t", &["x"])], true, true));
        let generation = |issuer: &str| {
            world.configurations("a", Piece::Applied(configuration("c1", "x", issuer)));
            world.0.configurations("root:t")[0].generation
        };
        let first = generation("i");
        assert_eq!(generation("i"), first);
        let second = generation("j");
        assert_ne!(second, first);
        // An object that was deleted and created again has a new generation.
        world.configurations("a", Piece::Deleted(configuration("c1", "x", "j")));
        assert!(![first, second].contains(&generation("j")));
    }

    #[test]
    fn a_list_replaces_objects_and_a_removed_shard_removes_its_own() {
        let world = World(WorkspaceAuthentication::new());
        world.types("a", page(vec![workspace_type("c1", "root", "t", &["x"])], true, true));
        world.configurations("a", page(vec![configuration("c1", "x", "i")], true, true));
        world.types("a", page(vec![workspace_type("c1", "root", "u", &["x"])], true, false));
        assert_eq!(world.of("root:t").len(), 1, "the list is not complete");
        world.types("a", page(Vec::new(), false, true));
        assert_eq!((world.of("root:t").len(), world.of("root:u").len()), (0, 1));
        world.0.remove_shard("a");
        assert_eq!(world.of("root:u").len(), 0);
    }

    #[test]
    fn a_type_in_two_logical_clusters_is_not_used() {
        let world = World(WorkspaceAuthentication::new());
        for shard in ["a", "b"] {
            // The same logical cluster on two shards counts as one, because it is being migrated.
            world.types(shard, page(vec![workspace_type("c1", "root", "t", &["x"])], true, true));
            world.configurations(shard, page(vec![configuration("c1", "x", "i")], true, true));
        }
        assert_eq!(world.of("root:t"), [r#"a {"issuer":"i"}"#]);
        world.types("b", Piece::Applied(workspace_type("c9", "root", "t", &["x"])));
        world.configurations("b", Piece::Applied(configuration("c9", "x", "stranger")));
        assert_eq!(world.of("root:t"), Vec::<String>::new());
        world.types("b", Piece::Deleted(workspace_type("c9", "root", "t", &["x"])));
        assert_eq!(world.of("root:t"), [r#"a {"issuer":"i"}"#]);
    }
}
