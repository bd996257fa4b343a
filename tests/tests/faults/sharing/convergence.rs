//! Compares the objects of all servers with the requested state.

use std::collections::{BTreeMap, BTreeSet};

use fairlead_client::{Client, ClientError};
use serde_json::Value;

use super::operations::{Accepted, Desired};
use super::site::{BINDINGS, EXPORTS, Export, KINDS, SCHEMAS, SHARDS, Site, Workspace};
use crate::site::eventually;

const LOCKS: &str = "internal.apis.kcp.io/resource-bindings";
const CLAIM_LABEL: &str = "claimed.internal.apis.kcp.io/";
const SLICES: &str = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices";
const LOGICAL_CLUSTERS: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters";
const BOUND_DEFINITIONS: &str =
    "/clusters/system:bound-crds/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Waits until all servers agree with the requested state, and panics with what differs if they do not.
pub(super) async fn wait(site: &Site, desired: &Desired, round: u64) {
    eventually(&format!("convergence in round {round}"), || async {
        let mut found = Findings::default();
        found.compare(site, desired).await.map_err(|error| error.to_string())?;
        match found.0.len() {
            0 => Ok(()),
            count => Err(format!("{count} differences\n{}", found.0[..count.min(20)].join("\n"))),
        }
    })
    .await;
}

/// The differences.
#[derive(Default)]
struct Findings(Vec<String>);

/// The bindings of the test on a shard, by logical cluster and name.
type Bindings = BTreeMap<(String, String), Value>;

impl Findings {
    async fn compare(&mut self, site: &Site, desired: &Desired) -> Result<(), ClientError> {
        let mut bound_on: BTreeMap<&str, BTreeSet<&'static str>> = BTreeMap::new();
        for shard in SHARDS {
            let client = site.direct(shard);
            let client = &client;
            let list = |path: String| async move { list(client, &path).await };
            let all = list(format!("/clusters/*{BINDINGS}")).await?;
            let bindings: Bindings = all
                .iter()
                .cloned()
                .map(|binding| ((cluster(&binding).to_owned(), name(&binding).to_owned()), binding))
                .filter(|((_, name), _)| name.starts_with("export-"))
                .collect();
            self.bindings(site, desired, shard, &bindings);
            self.locks(&list(format!("/clusters/*{LOGICAL_CLUSTERS}")).await?, &bindings);
            self.definitions(shard, &list(BOUND_DEFINITIONS.to_owned()).await?, &all);
            for resource in ["configmaps", "secrets"] {
                let objects = list(format!("/clusters/*/api/v1/{resource}")).await?;
                self.labels(site, shard, resource, &objects, &bindings);
                for (number, export) in
                    site.exports.iter().enumerate().filter(|(number, _)| desired.exports[*number])
                {
                    let path = format!("{}/clusters/*/api/v1/{resource}", view(export));
                    let seen = list(path).await?;
                    self.view(site, desired, (shard, resource, number), &objects, &seen);
                }
            }
            for export in &site.exports {
                let has_bindings = bindings.keys().any(|(_, name)| *name == export.name);
                if has_bindings {
                    bound_on.entry(&export.name).or_default().insert(shard);
                }
                for kind in KINDS {
                    let path = format!("/clusters/*/apis/{}/v1/{kind}:{}", export.group(), export.identity);
                    match list(path).await {
                        Ok(objects) => self.objects(export, &objects, &bindings),
                        Err(error) if error.is_not_found() => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        for (number, export) in site.exports.iter().enumerate() {
            let bound = bound_on.remove(&*export.name).unwrap_or_default();
            self.slice(site, export, desired.exports[number], &bound).await?;
        }
        self.cache(site, desired).await
    }

    fn add(&mut self, difference: String) {
        self.0.push(difference);
    }

    /// Every requested binding is there with its status, and no other one.
    fn bindings(&mut self, site: &Site, desired: &Desired, shard: &str, bindings: &Bindings) {
        let mut expected = BTreeSet::new();
        for ((consumer, number), accepted) in &desired.bindings {
            let (consumer, export): (&Workspace, &Export) =
                (&site.consumers[*consumer], &site.exports[*number]);
            if consumer.shard != shard {
                continue;
            }
            let key = (consumer.cluster.clone(), export.name.clone());
            match bindings.get(&key) {
                None => self.add(format!("binding {key:?} is missing")),
                Some(binding) => self.binding(export, desired.exports[*number], accepted, binding),
            }
            expected.insert(key);
        }
        for key in bindings.keys().filter(|key| !expected.contains(*key)) {
            self.add(format!("binding {key:?} is still there"));
        }
    }

    fn binding(&mut self, export: &Export, exists: bool, accepted: &Accepted, binding: &Value) {
        let who = format!("binding {} in {}", export.name, cluster(binding));
        let status = &binding["status"];
        let is_bound = status["phase"] == "Bound";
        let valid = condition(binding, "APIExportValid");
        if exists {
            for kind in ["Ready", "APIExportValid", "InitialBindingCompleted", "PermissionClaimsApplied"] {
                if condition(binding, kind).0 != "True" {
                    self.add(format!("{who}: {kind} is {:?}", condition(binding, kind)));
                }
            }
            if !is_bound {
                self.add(format!("{who} is {}", status["phase"]));
            }
        } else if valid != ("False", "APIExportNotFound") {
            self.add(format!("{who}: APIExportValid is {valid:?} without the export"));
        }
        if !is_bound {
            return;
        }
        let bound: BTreeSet<&str> = bound_resources(binding)
            .filter(|bound| bound["schema"]["identityHash"] == *export.identity)
            .filter_map(|bound| bound["resource"].as_str())
            .collect();
        if bound != BTreeSet::from(KINDS) {
            self.add(format!("{who}: bound resources are {bound:?}"));
        }
        let applied = status["appliedPermissionClaims"].as_array().into_iter().flatten();
        let applied: BTreeSet<&str> = applied.filter_map(|claim| claim["resource"].as_str()).collect();
        if !applied.iter().eq(accepted) {
            self.add(format!("{who}: claims of {applied:?} are applied, not of {accepted:?}"));
        }
    }

    /// Every lock belongs to a bound resource, and every bound resource has a lock.
    fn locks(&mut self, logical_clusters: &[Value], bindings: &Bindings) {
        let mut locked = BTreeSet::new();
        for logical_cluster in logical_clusters {
            let text = logical_cluster["metadata"]["annotations"][LOCKS].as_str().unwrap_or("{}");
            let locks: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
            for (resource, lock) in locks {
                let Some(binding) = lock["n"].as_str().filter(|name| name.starts_with("export-")) else {
                    continue;
                };
                locked.insert((cluster(logical_cluster).to_owned(), binding.to_owned(), resource));
            }
        }
        let bound: BTreeSet<(String, String, String)> = bindings
            .iter()
            .flat_map(|((cluster, name), binding)| {
                bound_resources(binding).map(move |bound| {
                    let resource = format!("{}.{}", text(&bound["resource"]), text(&bound["group"]));
                    (cluster.clone(), name.clone(), resource)
                })
            })
            .collect();
        for lock in locked.difference(&bound) {
            self.add(format!("lock {lock:?} without a bound resource"));
        }
        for resource in bound.difference(&locked) {
            self.add(format!("bound resource {resource:?} without a lock"));
        }
    }

    /// Every bound schema has one definition on the shard. Unused ones are kept for half an hour, longer than this test takes.
    fn definitions(&mut self, shard: &str, definitions: &[Value], bindings: &[Value]) {
        let used: BTreeSet<&str> = bindings
            .iter()
            .flat_map(bound_resources)
            .filter_map(|bound| bound["schema"]["UID"].as_str())
            .collect();
        let defined: BTreeSet<&str> = definitions.iter().map(name).collect();
        for schema in used.difference(&defined) {
            self.add(format!("schema {schema} is bound on {shard} and has no definition"));
        }
        let mut resources = BTreeSet::new();
        for spec in definitions.iter().map(|definition| &definition["spec"]) {
            let resource = (text(&spec["group"]), text(&spec["names"]["plural"]));
            // The schemas never change.
            if resource.0.starts_with("export-") && !resources.insert(resource) {
                self.add(format!("{shard} has two definitions of {resource:?}"));
            }
        }
    }

    /// Objects have one label for each accepted claim of their workspace.
    fn labels(&mut self, site: &Site, shard: &str, resource: &str, objects: &[Value], bindings: &Bindings) {
        for consumer in site.consumers.iter().filter(|consumer| consumer.shard == shard) {
            let accepting = bindings.iter().filter(|((cluster, _), binding)| {
                *cluster == consumer.cluster
                    && binding["status"]["phase"] == "Bound"
                    && binding["spec"]["permissionClaims"].as_array().is_some_and(|claims| {
                        claims
                            .iter()
                            .any(|claim| claim["resource"] == *resource && claim["state"] == "Accepted")
                    })
            });
            let expected = accepting.count();
            for object in objects.iter().filter(|object| cluster(object) == consumer.cluster) {
                let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
                let labels = labels.filter(|(key, _)| key.starts_with(CLAIM_LABEL)).count();
                if labels != expected {
                    self.add(format!(
                        "{resource} {} in {} has {labels} claim labels, not {expected}",
                        name(object),
                        consumer.cluster
                    ));
                }
            }
        }
    }

    /// The provider sees all objects of the workspaces that accept its claim, and no others.
    fn view(
        &mut self,
        site: &Site,
        desired: &Desired,
        (shard, resource, export): (&str, &str, usize),
        objects: &[Value],
        seen: &[Value],
    ) {
        let accepting: BTreeSet<&str> = desired
            .bindings
            .iter()
            .filter(|((_, number), accepted)| *number == export && accepted.contains(resource))
            .map(|((consumer, _), _)| &*site.consumers[*consumer].cluster)
            .collect();
        let key = |object: &Value| format!("{}/{}", cluster(object), name(object));
        let expected: BTreeSet<String> =
            objects.iter().filter(|object| accepting.contains(cluster(object))).map(key).collect();
        let seen: BTreeSet<String> = seen.iter().map(key).collect();
        if seen != expected {
            self.add(format!(
                "{} on {shard}: {} {resource} are seen, not {}",
                site.exports[export].name,
                seen.len(),
                expected.len()
            ));
        }
    }

    /// Every object of an exported resource has a binding.
    fn objects(&mut self, export: &Export, objects: &[Value], bindings: &Bindings) {
        for object in objects {
            if !bindings.contains_key(&(cluster(object).to_owned(), export.name.clone())) {
                self.add(format!(
                    "{} {} in {} has no binding",
                    text(&object["kind"]),
                    name(object),
                    cluster(object)
                ));
            }
        }
    }

    /// The endpoint slice of an export names the shards with bindings; without the export there is none.
    async fn slice(
        &mut self,
        site: &Site,
        export: &Export,
        exists: bool,
        bound_on: &BTreeSet<&'static str>,
    ) -> Result<(), ClientError> {
        let path = export.provider.path(&format!("{SLICES}/{}", export.name));
        let slice: Value = match site.direct(export.provider.shard).get_json(&path).await {
            Ok(slice) => slice,
            Err(error) if error.is_not_found() => Value::Null,
            Err(error) => return Err(error),
        };
        if slice.is_null() == exists {
            self.add(format!("{} exists: {exists}, its endpoint slice: {}", export.name, !exists));
        }
        if !exists {
            return Ok(());
        }
        let urls = slice["status"]["endpoints"].as_array().into_iter().flatten();
        let urls: BTreeSet<String> =
            urls.filter_map(|endpoint| endpoint["url"].as_str()).map(str::to_owned).collect();
        let expected: BTreeSet<String> = bound_on
            .iter()
            .map(|shard| format!("{}{}", site.installation.url(shard), view(export)))
            .collect();
        if urls != expected {
            self.add(format!("the endpoint slice of {} has {urls:?}, not {expected:?}", export.name));
        }
        Ok(())
    }

    /// The cache server has the existing exports and schemas, and no others.
    async fn cache(&mut self, site: &Site, desired: &Desired) -> Result<(), ClientError> {
        let client = site.installation.cached("/services/cache/shards/*/clusters/*").unwrap();
        let exports = site.exports.iter().enumerate().filter(|(number, _)| desired.exports[*number]);
        let exports: BTreeSet<String> = exports.map(|(_, export)| export.name.clone()).collect();
        let schemas =
            site.exports.iter().flat_map(|export| KINDS.map(|kind| format!("v1.{kind}.{}", export.group())));
        for (collection, expected) in
            [(EXPORTS, exports.clone()), (SLICES, exports), (SCHEMAS, schemas.collect::<BTreeSet<_>>())]
        {
            let replicas = list(&client, collection).await?;
            let is_own = |name: &&str| name.contains("export-");
            let replicas: BTreeSet<String> =
                replicas.iter().map(name).filter(is_own).map(str::to_owned).collect();
            if replicas != expected {
                self.add(format!("{collection}: the cache server has {replicas:?}, not {expected:?}"));
            }
        }
        Ok(())
    }
}

/// The path of the provider's view of an export.
fn view(export: &Export) -> String {
    format!("/services/apiexport/{}/{}", export.provider.cluster, export.name)
}

async fn list(client: &Client, path: &str) -> Result<Vec<Value>, ClientError> {
    let mut list: Value = client.get_json(path).await?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn bound_resources(binding: &Value) -> impl Iterator<Item = &Value> {
    binding["status"]["boundResources"].as_array().into_iter().flatten()
}

/// Status and reason of a condition.
fn condition<'b>(binding: &'b Value, kind: &str) -> (&'b str, &'b str) {
    let mut conditions = binding["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == *kind).unwrap_or(&Value::Null);
    (text(&found["status"]), text(&found["reason"]))
}

fn cluster(object: &Value) -> &str {
    text(&object["metadata"]["annotations"]["kcp.io/cluster"])
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
