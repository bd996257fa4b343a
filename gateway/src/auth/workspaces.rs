//! Authenticators from the authentication configurations of workspace types, built for the first request that needs them.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fairlead_authn::{FieldError, JwtSettings, WorkspaceAuthenticator};
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;

use crate::routing::index::WorkspaceAuthentication;

/// Maximum number of types whose authenticators are kept; the least recently used one is replaced.
const MAX_TYPES: NonZeroUsize = match NonZeroUsize::new(1024) {
    Some(kept) => kept,
    None => NonZeroUsize::MIN,
};

/// Authenticators by workspace type.
pub(crate) struct WorkspaceAuthenticators {
    known: Arc<WorkspaceAuthentication>,
    built: Mutex<LruCache<Arc<str>, BuiltAuthenticator>>,
}

struct BuiltAuthenticator {
    /// Generations of the configurations from which it was built.
    generations: Vec<u64>,
    authenticator: Arc<WorkspaceAuthenticator>,
}

impl WorkspaceAuthenticators {
    /// Authenticators for the configurations in the index.
    pub(crate) fn new(known: Arc<WorkspaceAuthentication>) -> Self {
        Self { known, built: Mutex::new(LruCache::new(MAX_TYPES)) }
    }

    /// The authenticator for workspaces of a type, used in addition to the listener's. For a type without configurations,
    /// as most are, this costs one look-up in a map.
    pub(crate) fn of(&self, workspace_type: &Arc<str>) -> Option<Arc<WorkspaceAuthenticator>> {
        let configurations = self.known.configurations(workspace_type);
        if configurations.is_empty() {
            return None;
        }
        let same = |built: &BuiltAuthenticator| {
            built
                .generations
                .iter()
                .copied()
                .eq(configurations.iter().map(|configuration| configuration.generation))
        };
        let mut all = self.built.lock();
        if let Some(built) = all.get(workspace_type).filter(|built| same(built)) {
            return Some(Arc::clone(&built.authenticator));
        }
        let settings =
            configurations.iter().flat_map(|configuration| issuers(&configuration.name, &configuration.spec));
        let authenticator = Arc::new(WorkspaceAuthenticator::new(settings));
        let generations = configurations.iter().map(|configuration| configuration.generation).collect();
        all.put(
            Arc::clone(workspace_type),
            BuiltAuthenticator { generations, authenticator: Arc::clone(&authenticator) },
        );
        Some(authenticator)
    }
}

/// The issuers of a `WorkspaceAuthenticationConfiguration`. An invalid one is skipped and logged once: its tenant's users cannot
/// authenticate.
fn issuers(name: &str, spec: &[u8]) -> Vec<JwtSettings> {
    let spec: Value = serde_json::from_slice(spec).unwrap_or_default();
    let elements = spec["jwt"].as_array().into_iter().flatten();
    let settings = elements.filter_map(|element| match JwtSettings::from_value(element) {
        Ok(settings) => Some(settings),
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(FieldError::to_string).collect();
            tracing::warn!(
                configuration = name,
                faults = faults.join("; "),
                "an invalid issuer of a workspace type is skipped"
            );
            None
        }
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_that_cannot_be_used_are_left_out() {
        let good = r#"{"issuer":{"url":"https://a.example","audiences":["x"]},"claimMappings":{"username":{"claim":"sub","prefix":"a:"}}}"#;
        for (spec, count) in [
            (format!(r#"{{"jwt":[{good}]}}"#), 1),
            (format!(r#"{{"jwt":[{{"issuer":{{"url":"http://plain"}}}},{good}]}}"#), 1),
            ("{}".to_owned(), 0),
            ("no JSON".to_owned(), 0),
        ] {
            assert_eq!(issuers("c", spec.as_bytes()).len(), count, "{spec}");
        }
    }
}
