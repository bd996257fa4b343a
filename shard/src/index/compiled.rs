//! Compiled definitions of custom resources, shared by all logical clusters with an equal `spec`.

use std::sync::{Arc, Weak};

use fairlead_apiserver::registry::{
    Conversion, ConversionCache, ConversionWebhook, SelectableField, ServedVersion, Subresource, Versions,
};
use fairlead_apiserver::resource::{CustomStrategy, PrinterColumns, SCALE, Shape, Verb, Verbs};
use fairlead_schema::FieldPath;
use fairlead_schema::crd::{self, CrdNames, CrdSpec, CrdVersion};
use fairlead_schema::metadata::Scope;
use fairlead_schema::version_priority;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of a `spec`.
pub(super) type SpecDigest = [u8; 32];

/// A CRD's `spec`, compiled.
pub(super) struct CompiledDefinition {
    pub(super) digest: SpecDigest,
    pub(super) group: String,
    pub(super) names: CrdNames,
    pub(super) namespaced: bool,
    pub(super) versions: Arc<Versions>,
    pub(super) conversion: Conversion,
}

/// The compiled definitions in use, by the digest of their `spec`. Compiling costs milliseconds for a schema of thousands of lines, and
/// an installation may have the same one in thousands of logical clusters.
#[derive(Default)]
pub(super) struct CompiledDefinitions {
    by_digest: Mutex<FxHashMap<SpecDigest, Weak<CompiledDefinition>>>,
    conversions: Arc<ConversionCache>,
}

impl CompiledDefinitions {
    /// The compiled form of a `spec`. `None` if it is invalid, which is logged: a stored definition was valid when it was written.
    pub(super) fn get(&self, spec: &Value) -> Option<Arc<CompiledDefinition>> {
        let digest: SpecDigest = Sha256::digest(spec.to_string()).into();
        if let Some(known) = self.by_digest.lock().get(&digest).and_then(Weak::upgrade) {
            return Some(known);
        }
        let parsed = CrdSpec::parse_spec(spec, &FieldPath::new("spec"))
            .inspect_err(|errors| tracing::warn!(?errors, "a stored CRD is not served"))
            .ok()?;
        let storage = parsed.storage_version().map(local_version)?;
        let mut served: Vec<_> =
            parsed.versions.iter().filter(|version| version.served).map(local_version).collect();
        served.sort_by_cached_key(|version| version_priority(&version.name));
        let compiled = Arc::new(CompiledDefinition {
            digest,
            group: parsed.group,
            names: parsed.names,
            namespaced: parsed.scope == Scope::Namespaced,
            versions: Arc::new(Versions { served, storage }),
            conversion: match &parsed.conversion {
                crd::Conversion::None => Conversion::None,
                crd::Conversion::Webhook(client) => {
                    let webhook = ConversionWebhook::new(client, Arc::clone(&self.conversions));
                    Conversion::Webhook(Arc::new(webhook))
                }
            },
        });
        let mut by_digest = self.by_digest.lock();
        by_digest.retain(|_, known| known.strong_count() > 0);
        by_digest.insert(digest, Arc::downgrade(&compiled));
        Some(compiled)
    }
}

fn local_version(version: &CrdVersion) -> ServedVersion {
    let selectable = |field: &fairlead_schema::crd::SelectableField| SelectableField {
        name: field.label.as_str().into(),
        path: field.path.clone(),
        default: "",
    };
    let scale = Subresource { name: SCALE, kind: Some(("autoscaling", "v1", "Scale")), ..STATUS };
    let subresources = [version.has_status.then_some(STATUS), version.scale.is_some().then_some(scale)];
    ServedVersion {
        name: version.name.as_str().into(),
        shape: Shape::Structural(Arc::new(version.schema.clone())),
        open_api: Some(version.open_api_schema.clone()),
        columns: Arc::new(PrinterColumns::new(version.columns.clone())),
        selectable_fields: version.selectable_fields.iter().map(selectable).collect(),
        deprecation_warning: version.deprecation_warning.as_deref().map(Into::into),
        subresources: subresources.into_iter().flatten().collect(),
        strategy: Arc::new(CustomStrategy {
            has_status_subresource: version.has_status,
            scale: version.scale.clone(),
        }),
    }
}

/// The subresource `status`.
pub(super) const STATUS: Subresource =
    Subresource { name: "status", verbs: Verbs::of(&[Verb::Get, Verb::Patch, Verb::Update]), kind: None };
