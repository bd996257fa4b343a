//! Limits the number of entries: the oldest updates are merged.

use std::collections::BTreeMap;

use super::entries::{Entry, ManagedFields, ManagerIdentity, Operation};

/// The largest number of entries of updates, as in Kubernetes.
const MAX_UPDATES: usize = 10;
/// The manager that owns the fields of merged entries.
const MERGED: &str = "ancient-changes";

/// Merges the oldest updates, for each version into one entry, until there are few enough.
pub(super) fn cap_updates(managed: &mut ManagedFields) {
    let updates = managed.entries.iter().filter(|entry| !entry.is_applied());
    let mut count = updates.clone().count();
    if count <= MAX_UPDATES {
        return;
    }
    let mut oldest: Vec<(i64, String, ManagerIdentity)> =
        updates.map(|entry| (entry.seconds(), entry.identity.sort_key(), entry.identity.clone())).collect();
    oldest.sort_by(|one, two| (one.0, &one.1).cmp(&(two.0, &two.1)));
    let mut first_of_version: BTreeMap<String, ManagerIdentity> = BTreeMap::new();
    for (_, _, identity) in oldest {
        if count <= MAX_UPDATES {
            return;
        }
        let Some(version) = managed.get(&identity).map(|entry| entry.api_version.clone()) else { continue };
        let Some(first) = first_of_version.get(&version) else {
            first_of_version.insert(version, identity);
            continue;
        };
        let merged = ManagerIdentity::new(MERGED, Operation::Update, &version, "");
        let base = match managed.remove(&merged) {
            Some(base) => Some(base),
            None => managed.remove(first),
        };
        let Some(latest) = managed.remove(&identity) else {
            managed.entries.extend(base);
            continue;
        };
        let earlier = base.map(|entry| entry.fields).unwrap_or_default();
        managed.entries.push(Entry { identity: merged, fields: latest.fields.union(earlier), ..latest });
        count -= 1;
    }
}
