//! Field ownership of a write: which manager owns which fields afterwards.

use std::borrow::Cow;

use fairlead_process::{Status, StatusCause};
use fairlead_schema::apply::{
    self, Applied, ApplyError, ConversionFailure, FieldSet, InvalidManagedFields, ManagedFields, Manager,
    ObjectType, ObjectVersions, PathElement,
};
use serde_json::{Map, Value};

use super::managed_fields::take_managed_fields;
use super::metadata::now;
use super::owner_conversion::OwnerConversions;
use super::read::group_resource;
use super::{ServedResource, Subresource, Target};
use crate::object::ScopeAnnotations;
use crate::request::Warnings;
use crate::resource::WriteTarget;

/// The ownership of one write.
pub(super) struct Ownership<'w> {
    kind: OwnedKind<'w>,
    api_version: String,
    subresource: &'w str,
    manager: &'w str,
    now: String,
    /// The fields that nobody owns: those of the scope.
    unowned: FieldSet,
    /// These, and the fields that the write cannot change.
    reset: FieldSet,
    conversions: OwnerConversions,
}

/// The kind of the written object.
enum OwnedKind<'w> {
    /// That of the resource.
    Resource(&'w ServedResource),
    /// That of a subresource, which has one version: the Scale of an object.
    Subresource(&'w Subresource),
}

impl OwnedKind<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Resource(resource) => &resource.kind,
            Self::Subresource(subresource) => subresource.kind.map_or("", |(_, _, kind)| kind),
        }
    }
}

/// The owners after a write: `metadata.managedFields` as it is stored.
pub(super) struct Owners(pub(super) Vec<u8>);

impl Owners {
    /// Whether the same managers own the same fields as in the stored owners, whatever the times.
    pub(super) fn are_same(&self, stored: &[u8]) -> bool {
        let parse = |json: &[u8]| ManagedFields::parse(json).unwrap_or_default();
        self.0 == stored || parse(&self.0).has_same_owners(&parse(stored))
    }
}

impl<'w> Ownership<'w> {
    pub(super) fn new(target: &'w Target, manager: &'w str, annotations: ScopeAnnotations) -> Self {
        let subresource = target.subresource.as_deref();
        let write = subresource.map_or(WriteTarget::Main, WriteTarget::Subresource);
        let mut unowned = FieldSet::default();
        for key in annotations {
            unowned.insert(&["metadata", "annotations", key].map(PathElement::field));
        }
        let own = subresource.and_then(|name| target.resource.subresource(&target.version, name));
        let (kind, api_version, reset) = match own.and_then(|own| Some((own, own.kind?))) {
            Some((own, (group, version, _))) => {
                (OwnedKind::Subresource(own), format!("{group}/{version}"), FieldSet::default())
            }
            None => (
                OwnedKind::Resource(&target.resource),
                target.resource.api_version(&target.version),
                FieldSet::of_fields(target.resource.strategy(&target.version).reset_fields(write)),
            ),
        };
        Self {
            kind,
            api_version,
            subresource: subresource.unwrap_or_default(),
            manager,
            now: now(),
            reset: reset.union(unowned.clone()),
            unowned,
            conversions: OwnerConversions::default(),
        }
    }

    /// Runs a comparison of owners, again after each conversion by a webhook that it lacked.
    ///
    /// # Errors
    /// Those of the comparison.
    pub(super) async fn compared<T>(
        &self,
        compare: impl Fn(&Self) -> Result<T, Status>,
    ) -> Result<T, Status> {
        match self.kind {
            OwnedKind::Resource(resource) => self.conversions.complete(resource, || compare(self)).await,
            // It has one version.
            OwnedKind::Subresource(_) => compare(self),
        }
    }

    fn manager(&self) -> Manager<'_> {
        Manager {
            name: self.manager,
            api_version: &self.api_version,
            subresource: self.subresource,
            now: &self.now,
        }
    }

    /// The owners of a new object. `requested` is its managedFields in the request.
    pub(super) fn of_created(&self, requested: Option<&Value>, object: &Value) -> Vec<u8> {
        let requested = requested.map(ManagedFields::of_value).and_then(Result::ok).unwrap_or_default();
        // As in Kubernetes, an object whose fields cannot be tracked is stored without owners.
        apply::track_create(requested, object, &self.manager(), self).unwrap_or_default().to_json()
    }

    /// The owners of a changed object. `stored` are those of the old state, `requested` those in the request.
    ///
    /// Costs some µs for a small object: the owners are parsed, the states compared, the owners written.
    pub(super) fn of_updated(
        &self,
        stored: &[u8],
        requested: Option<&Value>,
        old: &Value,
        new: &Value,
    ) -> Owners {
        // A write to a subresource cannot set them.
        let requested = requested.filter(|_| self.subresource.is_empty());
        if requested.is_some_and(apply::is_reset) {
            return Owners(Vec::new());
        }
        let given = requested.and_then(|requested| ManagedFields::of_value(requested).ok());
        // A client that reads, changes and writes an object sends what it has read; others send nothing.
        let before = given
            .filter(|given| !given.is_empty())
            .unwrap_or_else(|| ManagedFields::parse(stored).unwrap_or_default());
        let after = apply::track_update(before, old, new, &self.manager(), self).unwrap_or_default();
        Owners(after.to_json())
    }

    /// Applies a configuration to an object, or to none. The result has no defaults for what it has added.
    ///
    /// # Errors
    /// 400 for a configuration that does not have the type of its kind, 409 for fields of other managers.
    pub(super) fn apply(
        &self,
        stored: &[u8],
        live: Option<&Value>,
        configuration: &Value,
        force: bool,
    ) -> Result<(Value, Owners), Status> {
        self.check_type(configuration)?;
        let before = ManagedFields::parse(stored).map_err(Status::internal)?;
        let Applied { object, managed } =
            apply::apply(before, live, configuration, &self.manager(), force, self)
                .map_err(|error| self.apply_status(configuration, error))?;
        Ok((object, Owners(managed.to_json())))
    }

    fn check_type(&self, configuration: &Value) -> Result<(), Status> {
        let text = |field: &str| configuration[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version != self.api_version || kind != self.kind.name() {
            let kind = type_text(api_version, kind);
            return Err(Status::bad_request(format!("invalid object type: {kind}")));
        }
        if !configuration["metadata"]["managedFields"].is_null() {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        Ok(())
    }

    fn apply_status(&self, configuration: &Value, error: ApplyError) -> Status {
        let object = || {
            let text = |field: &str| configuration["metadata"][field].as_str().unwrap_or_default();
            let kind = type_text(&self.api_version, self.kind.name());
            format!("({}/{}; {kind})", text("namespace"), text("name"))
        };
        match error {
            ApplyError::Configuration(error) => {
                Status::bad_request(format!("failed to create typed patch object {}: {error}", object()))
            }
            ApplyError::Object(error) => {
                Status::internal(format!("failed to create typed live object {}: {error}", object()))
            }
            ApplyError::Conflicts(conflicts) => {
                let causes = conflicts.iter().map(|conflict| {
                    StatusCause::field("FieldManagerConflict", conflict.field(), conflict.message())
                });
                Status::apply_conflict(conflicts.to_string(), causes.collect())
            }
            ApplyError::Conversion(_) | ApplyError::NoType => Status::internal(error),
        }
    }
}

impl ObjectVersions for Ownership<'_> {
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let resource = match self.kind {
            OwnedKind::Resource(resource) => resource,
            OwnedKind::Subresource(own) if api_version == self.api_version => return own.merge_type(),
            OwnedKind::Subresource(_) => return None,
        };
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let storage = &resource.versions.storage;
        let version = resource
            .version(version)
            .or_else(|| Some(storage).filter(|storage| &*storage.name == version))
            .filter(|_| *group == *resource.name.group)?;
        Some(version.shape.merge_type())
    }

    fn convert<'v>(&self, object: &'v Value, api_version: &str) -> Result<Cow<'v, Value>, ConversionFailure> {
        let from = object["apiVersion"].as_str().unwrap_or(&self.api_version);
        let resource = match self.kind {
            OwnedKind::Resource(resource) if from != api_version => resource,
            OwnedKind::Resource(_) | OwnedKind::Subresource(_) => return Ok(Cow::Borrowed(object)),
        };
        let to = api_version.rsplit('/').next().unwrap_or_default();
        let mut converted = self.conversions.converted(resource, to, object)?;
        if let Some(version) = resource.version(to) {
            version.shape.prune(converted.to_mut());
        }
        Ok(converted)
    }

    fn reset_fields(&self, api_version: &str) -> Option<&FieldSet> {
        Some(if api_version == self.api_version { &self.reset } else { &self.unowned })
    }
}

/// A type in the notation of Go: `apps/v1, Kind=Deployment`, `/v1, Kind=Secret`.
fn type_text(api_version: &str, kind: &str) -> String {
    let separator = if api_version.contains('/') { "" } else { "/" };
    format!("{separator}{api_version}, Kind={kind}")
}

/// The owners after admission: those that it has set in the object, if they are valid.
pub(super) fn admitted<'o>(owners: &'o [u8], object: &mut Value, warnings: &Warnings) -> Cow<'o, [u8]> {
    let Some(set) = take_managed_fields(object) else { return Cow::Borrowed(owners) };
    match ManagedFields::of_value(&set) {
        Ok(managed) => Cow::Owned(managed.to_json()),
        Err(InvalidManagedFields(fault)) => {
            warnings.add(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {fault}"
            ));
            Cow::Borrowed(owners)
        }
    }
}

/// The owners of a replica: those of its origin, which the request has, as they are. `stored` are kept if it has none, or invalid
/// ones.
pub(super) fn replicated(requested: Option<&Value>, stored: &[u8]) -> Vec<u8> {
    let valid = requested.filter(|requested| ManagedFields::of_value(requested).is_ok());
    valid.map_or_else(|| stored.to_vec(), |requested| requested.to_string().into_bytes())
}

/// Copies the scope annotations of the old state, so that the new one does not appear to remove them.
pub(super) fn keep_scope(annotations: ScopeAnnotations, old: &Value, new: &mut Value) {
    for key in annotations {
        let Some(value) = old["metadata"]["annotations"].get(*key) else { continue };
        let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let own = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if own.is_null() {
            *own = Value::Object(Map::new());
        }
        if let Some(own) = own.as_object_mut() {
            own.insert((*key).into(), value.clone());
        }
    }
}

/// Checks an object that an applied configuration creates.
///
/// # Errors
/// 400 without a name, 409 for the UID of an object that does not exist any more.
pub(super) fn check_created(target: &Target, name: &str, object: &mut Value) -> Result<(), Status> {
    super::check_name(object, name)?;
    if let Some(uid) = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        let reason = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Status::conflict(group_resource(&target.resource), name, reason));
    }
    // As in Kubernetes, an object that does not exist has no version that could differ.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    Ok(())
}
