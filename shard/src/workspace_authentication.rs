//! Authenticators from the WorkspaceAuthenticationConfigurations of workspace types, built for the first request that needs
//! them.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlead_apiserver::Scope;
use fairlead_apiserver::hub::Hub;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_authn::{FieldError, JwtSettings, WorkspaceAuthenticator};
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::external_clusters::ExternalClusters;
use crate::global::GlobalView;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{WORKSPACE_AUTHENTICATION_CONFIGURATIONS, WORKSPACE_TYPES};
use crate::workspace_types::{TypeLookup, type_reference};

/// Maximum number of types whose authenticators are kept; the least recently used one is replaced.
const MAX_TYPES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// Time after which configurations of another shard are read again. There is no watch for them.
const FOREIGN_TTL: Duration = Duration::from_secs(60);
/// The same after a failed request.
const FAILURE_TTL: Duration = Duration::from_secs(10);

/// Authenticators by workspace type.
pub(crate) struct WorkspaceAuthenticators {
    objects: ObjectStore,
    definitions: Arc<Definitions>,
    clusters: Arc<ClusterIndex>,
    types: Arc<TypeLookup>,
    external: Option<Arc<ExternalClusters>>,
    /// Counts the changes of types and configurations on this shard, and of types on others.
    changes: Arc<AtomicU64>,
    built: Mutex<LruCache<Box<str>, Built>>,
}

/// The authenticator of a type.
#[derive(Clone)]
struct Built {
    changes: u64,
    expires: Option<Instant>,
    /// Digest of the configurations from which it was built.
    digest: [u8; 32],
    /// `None` for a type without configurations, as most are.
    authenticator: Option<Arc<WorkspaceAuthenticator>>,
}

/// The configurations of a type.
struct Configurations {
    specs: Vec<(String, Value)>,
    expires: Option<Instant>,
}

impl WorkspaceAuthenticators {
    /// Authenticators that follow the hub and the cache server.
    pub(crate) fn follow(
        objects: ObjectStore,
        hub: &Hub,
        global: &GlobalView,
        definitions: Arc<Definitions>,
        clusters: Arc<ClusterIndex>,
        types: Arc<TypeLookup>,
        external: Option<Arc<ExternalClusters>>,
    ) -> Arc<Self> {
        let changes = Arc::new(AtomicU64::new(0));
        // Relaxed: only the difference of two values counts.
        for resource in [&*WORKSPACE_TYPES, &*WORKSPACE_AUTHENTICATION_CONFIGURATIONS] {
            let changes = changes.clone();
            hub.observe(resource.clone(), Box::new(move |_| _ = changes.fetch_add(1, Ordering::Relaxed)));
        }
        let remote = changes.clone();
        global.on_change(
            WORKSPACE_TYPES.clone(),
            Box::new(move |_| _ = remote.fetch_add(1, Ordering::Relaxed)),
        );
        let built = Mutex::new(LruCache::new(MAX_TYPES));
        Arc::new(Self { objects, definitions, clusters, types, external, changes, built })
    }

    /// The authenticator for a logical cluster, used in addition to the shard's. For a known type this costs two look-ups
    /// in maps.
    pub(crate) async fn of(&self, cluster: &str) -> Option<Arc<WorkspaceAuthenticator>> {
        let state = self.clusters.get(cluster)?;
        let workspace_type = state.type_reference.as_deref()?;
        let changes = self.changes.load(Ordering::Relaxed);
        let known = self.built.lock().get(workspace_type).cloned();
        if let Some(built) = &known
            && built.changes == changes
            && built.expires.is_none_or(|end| Instant::now() < end)
        {
            return built.authenticator.clone();
        }
        let Configurations { specs, expires } = self.configurations(workspace_type).await;
        let digest = digest(&specs);
        let authenticator = match known {
            // Its keys of issuers are still in use.
            Some(known) if known.digest == digest => known.authenticator,
            _ if specs.is_empty() => None,
            _ => {
                let settings = specs.iter().flat_map(|(name, spec)| issuers(name, spec));
                Some(Arc::new(WorkspaceAuthenticator::new(settings)))
            }
        };
        let built = Built { changes, expires, digest, authenticator: authenticator.clone() };
        self.built.lock().put(workspace_type.into(), built);
        authenticator
    }

    async fn configurations(&self, workspace_type: &str) -> Configurations {
        let mut found = Configurations { specs: Vec::new(), expires: None };
        let located = match self.types.find(&type_reference(workspace_type)) {
            Ok(Some(located)) => located,
            Ok(None) => return found,
            Err(status) => {
                tracing::warn!(workspace_type, %status, "a WorkspaceType cannot be read");
                found.expires = Some(Instant::now() + FAILURE_TTL);
                return found;
            }
        };
        for reference in &located.spec.authentication_configurations {
            match self.configuration(&located.cluster, &reference.name).await {
                Ok((spec, source)) => {
                    if source == Source::OtherShard {
                        found.expires = Some(Instant::now() + FOREIGN_TTL);
                    }
                    found.specs.extend(spec.map(|spec| (reference.name.clone(), spec)));
                }
                Err(problem) => {
                    let name = reference.name.as_str();
                    tracing::warn!(workspace_type, name, problem, "its issuers cannot be read");
                    found.expires = Some(Instant::now() + FAILURE_TTL);
                }
            }
        }
        found
    }

    async fn configuration(&self, cluster: &str, name: &str) -> Result<(Option<Value>, Source), String> {
        if self.clusters.get(cluster).is_some() {
            let Some(resource) = self.definitions.exported(&WORKSPACE_AUTHENTICATION_CONFIGURATIONS) else {
                return Ok((None, Source::Own));
            };
            let resource_name = &*WORKSPACE_AUTHENTICATION_CONFIGURATIONS;
            let scope = Scope::new(cluster);
            let stored = self.objects.get(resource_name, &resource.origin, &scope, None, name);
            let Some(stored) = stored.map_err(|status| status.message)? else {
                return Ok((None, Source::Own));
            };
            let mut object = self.objects.tree(&stored).map_err(|status| status.message)?;
            return Ok((Some(object["spec"].take()), Source::Own));
        }
        let Some(external) = &self.external else {
            return Err("they are on another shard, and this one has no credential for it".to_owned());
        };
        let path = format!("/apis/tenancy.kcp.io/v1alpha1/workspaceauthenticationconfigurations/{name}");
        let found = external.get(cluster, &path).await.map_err(|error| error.to_string())?;
        let spec = found.and_then(|body| {
            let mut object: Value = serde_json::from_slice(&body).ok()?;
            Some(object["spec"].take())
        });
        Ok((spec, Source::OtherShard))
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    Own,
    OtherShard,
}

fn digest(specs: &[(String, Value)]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for (name, spec) in specs {
        let spec = spec.to_string();
        digest.update(name.len().to_be_bytes());
        digest.update(name);
        digest.update(spec.len().to_be_bytes());
        digest.update(spec);
    }
    digest.finalize().into()
}

/// The issuers of a configuration. An invalid one is skipped and logged: its tenant's users cannot authenticate.
fn issuers(name: &str, spec: &Value) -> Vec<JwtSettings> {
    let elements = spec["jwt"].as_array().into_iter().flatten();
    let settings = elements.filter_map(|element| match JwtSettings::from_value(element) {
        Ok(settings) => Some(settings),
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(FieldError::to_string).collect();
            let faults = faults.join("; ");
            tracing::warn!(configuration = name, faults, "an invalid issuer of a workspace type is skipped");
            None
        }
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn issuers_that_cannot_be_used_are_left_out() {
        let good = json!({
            "issuer": {"url": "https://a.example", "audiences": ["x"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": "a:"}},
        });
        for (spec, count) in [
            (json!({"jwt": [good]}), 1),
            (json!({"jwt": [{"issuer": {"url": "http://plain"}}, good]}), 1),
            (json!({}), 0),
        ] {
            assert_eq!(issuers("c", &spec).len(), count, "{spec}");
        }
    }

    #[test]
    fn a_changed_configuration_has_another_digest() {
        let specs = |name: &str, spec: Value| vec![(name.to_owned(), spec)];
        let first = digest(&specs("a", json!({"jwt": []})));
        assert_eq!(first, digest(&specs("a", json!({"jwt": []}))));
        assert_ne!(first, digest(&specs("b", json!({"jwt": []}))));
        assert_ne!(first, digest(&specs("a", json!({"jwt": [1]}))));
    }
}
