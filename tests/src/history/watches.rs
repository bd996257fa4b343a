//! Watches: in order, complete, and in agreement with each other and with the acknowledged writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Change, History, Key, Outcome, Revision, Version, Violation, WatchEntry, WatchLog};

/// Checks every log on its own, then against the changes that all logs and all acknowledged writes show together.
pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut changes = Changes::default();
    for operation in &history.operations {
        if let (Outcome::Written(_), Some(version)) = (operation.outcome, operation.shown()) {
            changes.note(&operation.key, version.revision, Some(version), &mut violations);
        }
    }
    let mut windows = Vec::new();
    for log in &history.watches {
        windows.extend(follow(log, &mut changes, &mut violations));
    }
    for window in &windows {
        violations.extend(changes.lost(window));
    }
    for log in &history.watches {
        violations.extend(changes.wrong_lists(log, &windows));
    }
    violations
}

/// Everything between two revisions, of which a watcher received every change.
struct Window<'a> {
    log: &'a WatchLog,
    from: Revision,
    to: Revision,
    received: BTreeSet<(&'a Key, Revision)>,
}

/// Follows one log as an informer does. Returns its windows: one per list.
fn follow<'a>(log: &'a WatchLog, changes: &mut Changes, violations: &mut Vec<Violation>) -> Vec<Window<'a>> {
    let mut windows: Vec<Window<'a>> = Vec::new();
    let mut objects: BTreeMap<&Key, Version> = BTreeMap::new();
    let watcher = || log.watcher.clone();
    for entry in &log.entries {
        let position = windows.last().map(|window| window.to);
        match entry {
            WatchEntry::Listed { revision, objects: listed } => {
                if let Some(position) = position.filter(|position| revision < position) {
                    violations.push(Violation::BackInTime {
                        watcher: watcher(),
                        position,
                        revision: *revision,
                    });
                }
                windows.push(Window { log, from: *revision, to: *revision, received: BTreeSet::new() });
                objects = listed.iter().map(|(key, version)| (key, *version)).collect();
                for (key, version) in listed {
                    changes.note(key, version.revision, Some(*version), violations);
                }
            }
            WatchEntry::Bookmark(revision) => match (position, windows.last_mut()) {
                (Some(position), _) if *revision < position => {
                    violations.push(Violation::BackInTime {
                        watcher: watcher(),
                        position,
                        revision: *revision,
                    });
                }
                (_, Some(window)) => window.to = *revision,
                _ => violations.push(Violation::NoList { watcher: watcher() }),
            },
            WatchEntry::Event { change, key, version } => {
                let Some(window) = windows.last_mut() else {
                    violations.push(Violation::NoList { watcher: watcher() });
                    continue;
                };
                if version.revision <= window.to {
                    let (key, version, position) = (key.clone(), *version, window.to);
                    violations.push(Violation::NotInOrder { watcher: watcher(), key, version, position });
                    continue;
                }
                window.to = version.revision;
                window.received.insert((key, version.revision));
                let exists = objects.contains_key(key);
                if exists == (*change == Change::Added) {
                    let (change, key, version) = (*change, key.clone(), *version);
                    violations.push(Violation::WrongType {
                        watcher: watcher(),
                        change,
                        key,
                        version,
                        exists,
                    });
                }
                let after = (*change != Change::Deleted).then_some(*version);
                changes.note(key, version.revision, after, violations);
                match after {
                    Some(version) => objects.insert(key, version),
                    None => objects.remove(key),
                };
            }
        }
    }
    windows
}

/// The changes that anybody has seen: by object and revision, the object after it.
#[derive(Default)]
struct Changes(BTreeMap<Key, BTreeMap<Revision, Option<Version>>>);

impl Changes {
    fn note(
        &mut self,
        key: &Key,
        revision: Revision,
        after: Option<Version>,
        violations: &mut Vec<Violation>,
    ) {
        if !self.0.contains_key(key) {
            self.0.insert(key.clone(), BTreeMap::new());
        }
        let Some(changes) = self.0.get_mut(key) else { return };
        if *changes.entry(revision).or_insert(after) != after {
            violations.push(Violation::Disagreement { key: key.clone(), revision });
        }
    }

    /// The changes in a window that its watcher did not receive.
    fn lost<'a>(&'a self, window: &'a Window<'_>) -> impl Iterator<Item = Violation> + 'a {
        let of_collection = window.log.collections.iter().flat_map(|collection| self.collection(collection));
        let inside = of_collection.flat_map(|(key, changes)| {
            let range = (std::ops::Bound::Excluded(window.from), std::ops::Bound::Included(window.to));
            changes.range(range).map(move |(revision, _)| (key, *revision))
        });
        inside.filter(|change| !window.received.contains(change)).map(|(key, revision)| {
            Violation::EventLost {
                watcher: window.log.watcher.clone(),
                key: key.clone(),
                revision,
                window: [window.from, window.to],
            }
        })
    }

    /// The lists of a log that do not show the state at their revision. An object that is missing in a list may have been
    /// deleted without a witness, unless a watcher saw everything since its last change.
    fn wrong_lists(&self, log: &WatchLog, windows: &[Window<'_>]) -> Vec<Violation> {
        let lists = log.entries.iter().filter_map(|entry| match entry {
            WatchEntry::Listed { revision, objects } => Some((*revision, objects)),
            _ => None,
        });
        let mut violations = Vec::new();
        for (revision, objects) in lists {
            for (key, changes) in log.collections.iter().flat_map(|collection| self.collection(collection)) {
                let Some((changed, expected)) = changes.range(..=revision).next_back() else { continue };
                let shown = objects.get(key).copied();
                let had_witness = || {
                    windows.iter().any(|window| {
                        let is_watched = window.log.collections.contains(&key.collection);
                        is_watched && window.from <= *changed && revision <= window.to
                    })
                };
                if shown != *expected && (shown.is_some() || had_witness()) {
                    let (watcher, key, expected) = (log.watcher.clone(), key.clone(), *expected);
                    violations.push(Violation::WrongList { watcher, key, revision, shown, expected });
                }
            }
        }
        violations
    }

    fn collection(
        &self,
        collection: &Arc<str>,
    ) -> impl Iterator<Item = (&Key, &BTreeMap<Revision, Option<Version>>)> {
        let first = Key { collection: collection.clone(), name: "".into() };
        let collection = collection.clone();
        self.0.range(first..).take_while(move |(key, _)| key.collection == collection)
    }
}

#[cfg(test)]
mod tests;
