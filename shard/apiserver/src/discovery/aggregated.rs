//! Aggregated discovery (KEP-3352): all groups, versions and resources in one document.

use serde_json::{Value, json};

use super::order;
use crate::registry::{Catalog, ServedResource, ServedVersion};
use crate::resource::Verbs;

/// The document at `/api` or `/apis` as an APIGroupDiscoveryList.
pub(super) fn groups(catalog: &Catalog, is_core: bool, version: &str) -> Value {
    let items: Vec<Value> = order::groups(catalog, is_core)
        .iter()
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = order::resources(catalog, group.name, version)
                        .filter_map(|resource| Some(entry(resource, resource.version(version)?)))
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if is_core { json!({}) } else { json!({"name": group.name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn entry(resource: &ServedResource, version: &ServedVersion) -> Value {
    // As in kcp, the response kinds of the core group have no version.
    let name = if resource.name.group.is_empty() { "" } else { &*version.name };
    let own_kind = json!({"group": *resource.name.group, "version": name, "kind": *resource.kind});
    let mut entry = json!({
        "resource": *resource.name.resource,
        "responseKind": own_kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": *resource.singular,
        "verbs": verbs(resource.verbs),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = resource.short_names.iter().map(|name| Value::from(&**name)).collect();
    }
    if !resource.categories.is_empty() {
        entry["categories"] = resource.categories.iter().map(|name| Value::from(&**name)).collect();
    }
    if !version.subresources.is_empty() {
        entry["subresources"] = version
            .subresources
            .iter()
            .map(|subresource| {
                let kind = match subresource.kind {
                    Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
                    None => own_kind.clone(),
                };
                json!({"subresource": subresource.name, "responseKind": kind, "verbs": verbs(subresource.verbs)})
            })
            .collect();
    }
    entry
}

fn verbs(verbs: Verbs) -> Value {
    verbs.iter().map(|verb| Value::from(verb.as_str())).collect()
}
