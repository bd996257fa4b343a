//! Unaggregated discovery: one document for the groups, one for each group version.

use serde_json::{Value, json};

use super::order::{self, Group};
use crate::registry::{Catalog, ServedResource};
use crate::resource::Verbs;

/// The document at `/api` (APIVersions).
pub(super) fn versions(address: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses(address)})
}

/// The document at `/apis` (APIGroupList).
pub(super) fn groups(catalog: &Catalog, address: &str) -> Value {
    let groups: Vec<Value> = order::groups(catalog, false)
        .iter()
        .map(|group| {
            let mut value = group_value(group);
            let built_in = catalog.resources.iter().any(|resource| {
                *resource.name.group == *group.name && resource.origin == fairlead_names::Origin::BuiltIn
            });
            if built_in {
                value["serverAddressByClientCIDRs"] = addresses(address);
            }
            value
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The document at `/apis/<group>` (APIGroup).
pub(super) fn group(catalog: &Catalog, name: &str) -> Option<Value> {
    let groups = order::groups(catalog, false);
    let mut value = group_value(groups.iter().find(|group| group.name == name)?);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

fn group_value(group: &Group<'_>) -> Value {
    let version =
        |version: &&str| json!({"groupVersion": format!("{}/{version}", group.name), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first()})
}

fn addresses(address: &str) -> Value {
    json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": address}])
}

/// The document at `/api/v1` or `/apis/<group>/<version>` (APIResourceList).
pub(super) fn resources(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut found = order::resources(catalog, group, version).peekable();
    if found.peek().is_none() && !(group.is_empty() && version == "v1") {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let entries: Vec<Value> = found.flat_map(|resource| entries(resource, version)).collect();
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": entries});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn entries(resource: &ServedResource, version: &str) -> Vec<Value> {
    let mut own = json!({
        "name": *resource.name.resource,
        "singularName": *resource.singular,
        "namespaced": resource.namespaced,
        "kind": *resource.kind,
        "verbs": verbs(resource.verbs),
    });
    if !resource.short_names.is_empty() {
        own["shortNames"] = resource.short_names.iter().map(|name| Value::from(&**name)).collect();
    }
    if !resource.categories.is_empty() {
        own["categories"] = resource.categories.iter().map(|name| Value::from(&**name)).collect();
    }
    if let Some(hash) = &resource.storage_version_hash {
        own["storageVersionHash"] = (**hash).into();
    }
    let mut entries = vec![own];
    for subresource in resource.version(version).into_iter().flat_map(|version| &version.subresources) {
        let (group, version, kind) = subresource.kind.unwrap_or(("", "", &resource.kind));
        let mut entry = json!({
            "name": format!("{}/{}", resource.name.resource, subresource.name),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": verbs(subresource.verbs),
        });
        if !version.is_empty() {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        entries.push(entry);
    }
    entries
}

/// The verbs; `null` for none, as in Kubernetes.
fn verbs(verbs: Verbs) -> Value {
    let names: Vec<Value> = verbs.iter().map(|verb| Value::from(verb.as_str())).collect();
    if names.is_empty() { Value::Null } else { names.into() }
}
