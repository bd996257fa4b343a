//! The groups of a catalog, and the order of their versions.

use std::sync::Arc;

use fairlead_schema::version_priority;

use crate::registry::{Catalog, ServedResource};

/// A group of a catalog with its versions, best first.
pub(super) struct Group<'c> {
    pub(super) name: &'c str,
    pub(super) versions: Vec<&'c str>,
}

/// The named groups of a catalog in the order of its resources, or the core group.
pub(super) fn groups(catalog: &Catalog, is_core: bool) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for resource in &catalog.resources {
        let name = &*resource.name.group;
        if name.is_empty() != is_core {
            continue;
        }
        let group = match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group,
            None => {
                groups.push(Group { name, versions: Vec::new() });
                let last = groups.len() - 1;
                &mut groups[last]
            }
        };
        for version in &resource.versions.served {
            if !group.versions.contains(&&*version.name) {
                group.versions.push(&version.name);
            }
        }
    }
    for group in &mut groups {
        group.versions.sort_by_cached_key(|version| version_priority(version));
    }
    groups
}

/// The resources of a group version.
pub(super) fn resources<'c>(
    catalog: &'c Catalog,
    group: &'c str,
    version: &'c str,
) -> impl Iterator<Item = &'c Arc<ServedResource>> {
    let has = move |resource: &&Arc<ServedResource>| {
        *resource.name.group == *group && resource.version(version).is_some()
    };
    catalog.resources.iter().filter(has)
}
