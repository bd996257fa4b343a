//! The resources of an export's view.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_api::{PermissionClaim, claim_label, label};
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_apiserver::request::{LabelSelector, LabelTerm, Operator};
use fairlead_apiserver::resource::{Verb, Verbs};
use fairlead_names::{ResourceName, export_hash};
use fairlead_process::Status;

use super::rules::{ExportRules, Objects};
use super::source::{Export, Exports};
use super::{API_BINDINGS, APIS_GROUP};
use crate::filtered::filtered;
use crate::shard::Shard;

const READS: Verbs = Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]);
const STATUS_VERBS: Verbs = Verbs::of(&[Verb::Get, Verb::Patch, Verb::Update]);
/// The resources of kcp's own group that an export can claim.
const CLAIMABLE_APIS: [&str; 3] = [API_BINDINGS, "apiexports", "apiresourceschemas"];

/// The catalog of an export, with all exports of which it was made.
pub(super) struct ExportCatalog {
    pub(super) catalog: Arc<Catalog>,
    /// The export, and those whose resources it claims.
    sources: Vec<Arc<Export>>,
}

impl ExportCatalog {
    /// Whether a catalog of these exports would be the same.
    pub(super) fn is_of(&self, sources: &[Arc<Export>]) -> bool {
        self.sources.len() == sources.len()
            && self.sources.iter().zip(sources).all(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Makes the catalog from [`sources`].
    pub(super) fn new(sources: Vec<Arc<Export>>, shard: &Arc<dyn Shard>, exports: &Arc<dyn Exports>) -> Self {
        let mut resources = BTreeMap::new();
        if let Some((export, claimed)) = sources.split_first()
            && export.identity.is_some()
        {
            let builder = Builder { export, claimed, shard, exports };
            builder.add_exported(&mut resources);
            builder.add_claimed(&mut resources);
            builder.add_bindings(&mut resources);
        }
        let catalog = Arc::new(Catalog::new(resources.into_values().map(Arc::new).collect()));
        Self { catalog, sources }
    }
}

/// An export, and those that provide the resources that it claims, by name and logical cluster.
///
/// # Errors
/// 500 if they cannot be read.
pub(super) fn sources(export: Arc<Export>, exports: &dyn Exports) -> Result<Vec<Arc<Export>>, Status> {
    let mut claimed = Vec::new();
    for claim in export.claims.iter().filter(|claim| !claim.identity_hash.is_empty()) {
        for other in exports.by_identity(&claim.identity_hash)? {
            if !claimed.iter().any(|known| Arc::ptr_eq(known, &other)) {
                claimed.push(other);
            }
        }
    }
    claimed.sort_by(|one, other| (&one.name, &one.cluster).cmp(&(&other.name, &other.cluster)));
    claimed.insert(0, export);
    Ok(claimed)
}

type Resources = BTreeMap<ResourceName, ServedResource>;

struct Builder<'b> {
    export: &'b Arc<Export>,
    claimed: &'b [Arc<Export>],
    shard: &'b Arc<dyn Shard>,
    exports: &'b Arc<dyn Exports>,
}

impl Builder<'_> {
    fn add_exported(&self, resources: &mut Resources) {
        for resource in &self.export.resources {
            let view = self.view(resource, Objects::Exported, LabelSelector::default(), resource.verbs);
            resources.insert(resource.name.clone(), view);
        }
    }

    /// An exported resource takes precedence over a claimed one, and an earlier claim over a later one.
    fn add_claimed(&self, resources: &mut Resources) {
        for claim in &self.export.claims {
            for resource in self.claimed_resources(claim) {
                if !resources.contains_key(&resource.name) {
                    let labels = self.claim_selector(claim);
                    let view = self.view(&resource, Objects::Claimed, labels, resource.verbs);
                    resources.insert(resource.name.clone(), view);
                }
            }
        }
    }

    /// APIBindings are always there, at least those to the export itself, for reads.
    fn add_bindings(&self, resources: &mut Resources) {
        let name = ResourceName::new(APIS_GROUP, API_BINDINGS);
        if resources.contains_key(&name) {
            return;
        }
        let Some(bindings) = self.shard.resource(&name) else { return };
        let hash = export_hash(self.export.cluster.as_str(), &self.export.name);
        let own = LabelSelector::of_labels([(label::EXPORT, &*hash)]);
        let rules = self.rules(&bindings, Objects::Bindings, own);
        resources
            .insert(name, filtered(bindings, READS, |name| (name == "status").then(Verbs::default), rules));
    }

    fn claimed_resources(&self, claim: &PermissionClaim) -> Vec<Arc<ServedResource>> {
        let name = ResourceName::new(&claim.group, &claim.resource);
        let common = self.shard.resource(&name);
        if fairlead_api::claimable_built_in(&name.group, &name.resource).is_some() {
            let groups: &[&str] = match (&*name.group, &*name.resource) {
                ("", "events") => &["", "events.k8s.io"],
                ("events.k8s.io", "events") => &["events.k8s.io", ""],
                _ => return common.into_iter().collect(),
            };
            let named =
                groups.iter().filter_map(|group| self.shard.resource(&ResourceName::new(group, "events")));
            return named.collect();
        }
        if *name.group == *APIS_GROUP {
            return common.filter(|_| CLAIMABLE_APIS.contains(&&*name.resource)).into_iter().collect();
        }
        // Exports with the same identity have the same owner, so their schemas fit together. The last one is taken, as in kcp.
        let mut provided = self
            .claimed
            .iter()
            .filter(|other| other.identity.as_deref() == Some(&*claim.identity_hash))
            .flat_map(|other| &other.resources)
            .filter(|resource| resource.name == name);
        provided.next_back().cloned().into_iter().collect()
    }

    /// The objects that consumers let the export have. Those of its own bindings have another label, which no consumer takes away.
    fn claim_selector(&self, claim: &PermissionClaim) -> LabelSelector {
        let (key, value) = claim_label(self.export.cluster.as_str(), &self.export.name, claim);
        let mut values = std::collections::BTreeSet::from([value]);
        if claim.group == APIS_GROUP && claim.resource == API_BINDINGS {
            values.insert(label::REFLEXIVE_CLAIM.to_owned());
        }
        LabelSelector::of(vec![LabelTerm { key, operator: Operator::In, values }])
    }

    fn view(
        &self,
        resource: &Arc<ServedResource>,
        objects: Objects,
        labels: LabelSelector,
        verbs: Verbs,
    ) -> ServedResource {
        let rules = self.rules(resource, objects, labels);
        filtered(Arc::clone(resource), verbs, |name| (name == "status").then_some(STATUS_VERBS), rules)
    }

    fn rules(&self, resource: &ServedResource, objects: Objects, labels: LabelSelector) -> Arc<ExportRules> {
        Arc::new(ExportRules {
            export: Arc::clone(self.export),
            resource: resource.name.clone(),
            origin: resource.origin.clone(),
            objects,
            labels,
            shard: Arc::clone(self.shard),
            exports: Arc::clone(self.exports),
        })
    }
}
