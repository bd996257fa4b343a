//! Create and update: one pipeline of pure steps, and a commit at the end.
//!
//! prepare → fill metadata → admission mutates → validate → admission validates → commit. A conflict
//! starts the pipeline again from the state that was found.

use std::borrow::Cow;

use fairlead_names::Origin;
use fairlead_process::{Status, StatusCause, StatusReason};
use fairlead_schema::metadata::{
    Scope as ObjectScope, remove_absent, validate_core_finalizers, validate_object_meta,
    validate_object_meta_update,
};
use fairlead_schema::names::NameRule;
use fairlead_schema::{FieldError, FieldPath};
use fairlead_store::{CommitError, Expect, Mutation};
use serde_json::Value;

use super::admission::{AdmissionOptions, AdmissionRequest, ReviewedManagedFields};
use super::conversion::to_storage;
use super::join::join;
use super::managed_fields::{take_managed_fields, with_managed_fields};
use super::objects::put;
use super::ownership::{Owners, Ownership, admitted, check_created, keep_scope, replicated};
use super::read::{group_resource, not_found};
use super::reservation::Reservations;
use super::scale::ScaleOwners;
use super::store_backed::Authority;
use super::{Proposal, StoreRegistry, StoredObject, Target, WriteResult, metadata};
use crate::object::EncodedObject;
use crate::registry::ServedResource;
use crate::request::{DryRun, Warnings, WriteOptions};
use crate::resource::{Verb, WriteTarget};
use crate::scope::Scope;

/// Attempts of a write before a conflict is returned to the client. Many writes may depend on one object, such as creates of CRDs
/// on their LogicalCluster; each round of conflicts lets one of them pass.
const ATTEMPTS: usize = 64;

impl StoreRegistry {
    pub(super) async fn write_new(
        &self,
        target: &Target,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let requested = take_managed_fields(&mut object);
        let managed = match self.authority {
            Authority::Origin => self.ownership(target, options).of_created(requested.as_ref(), &object),
            Authority::Replica => replicated(requested.as_ref(), b""),
        };
        self.create_managed(target, object, &managed, options).await
    }

    pub(super) fn ownership<'w>(&self, target: &'w Target, options: &'w WriteOptions) -> Ownership<'w> {
        Ownership::new(target, options.manager(), self.objects.annotations())
    }

    /// Creates an object whose owners are known.
    async fn create_managed(
        &self,
        target: &Target,
        object: Value,
        managed: &[u8],
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = &*target.resource;
        let scope = target.scope()?;
        let generated = metadata::wants_generated_name(&object);
        let mut attempt = 0;
        loop {
            attempt += 1;
            options.warnings.take();
            options.audit_annotations.take();
            let mut object = object.clone();
            resource.strategy(&target.version).prepare_create(&mut object);
            // A field that `prepare_create` removed may have a default, for example a phase.
            if self.authority == Authority::Origin
                && let Some(version) = resource.version(&target.version)
            {
                version.shape.refresh(&mut object);
            }
            let name = metadata::fill(&mut object, target, self.authority)?;
            let write = AdmissionOptions::Write(options);
            let request = admission_request(target, scope, &name, Verb::Create, write);
            options.guard.change(&name, None, &mut object)?;
            let reservations = Reservations::default();
            let managed_fields = ReviewedManagedFields { new: managed, old: b"" };
            let request = AdmissionRequest { reservations: Some(&reservations), managed_fields, ..request };
            let mut mutations = self.admission.mutate(&request, &mut object, None).await?;
            let managed = admitted(managed, &mut object, &options.warnings);
            let managed_fields = ReviewedManagedFields { new: &managed, old: b"" };
            let request = AdmissionRequest { managed_fields, ..request };
            self.validate_create(target, &object, &name)?;
            mutations.extend(self.admission.validate(&request, Some(&object), None).await?);
            let (stored, schema_hash) = to_storage(resource, &target.version, object).await?;
            let encoded = self.objects.encode_managed(stored, schema_hash, &managed)?;
            let key = self.objects.key(
                resource.storage_name(),
                &resource.origin,
                scope.as_str(),
                target.namespace.as_deref(),
                &name,
            );
            if options.dry_run == DryRun::All {
                if self.objects.get_by_key(&key, scope)?.is_some() {
                    return Err(Status::already_exists(group_resource(resource), &name));
                }
                return Ok(WriteResult::Created(unsaved(encoded, scope)));
            }
            mutations.insert(0, put(key, Expect::Absent, &encoded));
            let Some(mutations) = join(mutations) else {
                if attempt < ATTEMPTS {
                    continue;
                }
                return Err(Status::modified(group_resource(resource), &name));
            };
            match reservations.commit(&self.objects, mutations).await {
                Ok(revision) => {
                    self.wait_for_index(target, revision).await;
                    return Ok(WriteResult::Created(StoredObject {
                        object: encoded,
                        revision,
                        scope: scope.clone(),
                    }));
                }
                // The name is taken. A generated name is generated again.
                Err(CommitError::Conflict { index: 0, current }) if !generated || attempt == ATTEMPTS => {
                    let mut status = Status::already_exists(group_resource(resource), &name);
                    let terminating = current
                        .and_then(|record| EncodedObject::parse(record.value).ok())
                        .is_some_and(|object| is_terminating(&object));
                    if terminating {
                        status.message = format!("object is being deleted: {}", status.message);
                    }
                    return Err(status);
                }
                // Fences come from indexes, which follow the store.
                Err(CommitError::Conflict { .. }) if attempt < ATTEMPTS => self.wait_for_indexes().await,
                Err(error) => return Err(commit_status(resource, &name, error)),
            }
        }
    }

    pub(super) async fn write_change(
        &self,
        target: &Target,
        name: &str,
        proposal: &Proposal<'_, '_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = &*target.resource;
        let scope = target.scope()?;
        let namespace = target.namespace.as_deref();
        let key =
            self.objects.key(resource.storage_name(), &resource.origin, scope.as_str(), namespace, name);
        for _ in 0..ATTEMPTS {
            options.warnings.take();
            options.audit_annotations.take();
            let Some(current) = self.objects.get_by_key(&key, scope)? else {
                match self.create_absent(target, name, proposal, options).await {
                    // Another client was faster; the configuration is applied to its object.
                    Err(status)
                        if matches!(proposal, Proposal::Apply(_))
                            && status.reason == StatusReason::AlreadyExists =>
                    {
                        continue;
                    }
                    other => return other,
                }
            };
            let old = self.tree_in_version(target, &current).await?;
            options.guard.admit(name, &old)?;
            let before = current.object.as_object();
            let scale = ScaleOwners::of(target);
            let stored_owners = match &scale {
                None => Cow::Borrowed(before.managed_fields()),
                Some(scale) => Cow::Owned(scale.of_scale(before.managed_fields())),
            };
            let (mut new, owners) =
                self.propose(target, name, (&old, &stored_owners), proposal, options).await?;
            self.check_version(target, &old, &new, name)?;
            metadata::restore_immutable(&old, &mut new, target, name, self.authority)?;
            let write = WriteTarget::of(target.subresource.as_deref());
            resource.strategy(&target.version).prepare_update(write, &old, &mut new);
            options.guard.change(name, Some(&old), &mut new)?;
            let request =
                admission_request(target, scope, name, target.verb, AdmissionOptions::Write(options));
            let managed_fields = ReviewedManagedFields { new: &owners.0, old: &stored_owners };
            let request = AdmissionRequest { managed_fields, ..request };
            let mut mutations = self.admission.mutate(&request, &mut new, Some(&old)).await?;
            let owners = Owners(admitted(&owners.0, &mut new, &options.warnings).into_owned());
            let owners = match &scale {
                None => owners,
                Some(scale) => scale.of_object(before.managed_fields(), &owners),
            };
            // As in Kubernetes, validating admission sees the owners of an object, but not those of a Scale.
            let managed_fields = match &scale {
                None => ReviewedManagedFields { new: &owners.0, ..managed_fields },
                Some(_) => ReviewedManagedFields::default(),
            };
            let request = AdmissionRequest { managed_fields, ..request };
            let counts_generation = self.authority == Authority::Origin
                && resource.strategy(&target.version).counts_generations();
            if counts_generation && write == WriteTarget::Main {
                metadata::increment_generation(&old, &mut new);
            }
            self.validate_update(target, write, &old, &new, name, &options.warnings)?;
            mutations.extend(self.admission.validate(&request, Some(&new), Some(&old)).await?);
            let is_deleted = self.finishes_deletion(target, &new);
            let (stored, schema_hash) = to_storage(resource, &target.version, new).await?;
            let encoded = self.objects.encode_managed(stored, schema_hash, &owners.0)?;
            if !is_deleted && encoded.as_object().is_same(before) && owners.are_same(before.managed_fields())
            {
                return Ok(WriteResult::Updated(current));
            }
            if options.dry_run == DryRun::All {
                return Ok(WriteResult::Updated(StoredObject { object: encoded, ..current }));
            }
            let expect = Expect::At(current.revision);
            mutations.insert(
                0,
                if is_deleted {
                    Mutation::delete(key.clone(), expect)
                } else {
                    put(key.clone(), expect, &encoded)
                },
            );
            let Some(mutations) = join(mutations) else { continue };
            match self.objects.commit(mutations).await {
                Ok(revision) => {
                    self.wait_for_index(target, revision).await;
                    // A deleted object keeps its last revision.
                    let revision = if is_deleted { current.revision } else { revision };
                    return Ok(WriteResult::Updated(StoredObject {
                        object: encoded,
                        revision,
                        scope: scope.clone(),
                    }));
                }
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(commit_status(resource, name, error)),
            }
        }
        Err(Status::modified(group_resource(resource), name))
    }

    /// Creates an object that a client updates or applies, if its kind or the operation allows that.
    async fn create_absent(
        &self,
        target: &Target,
        name: &str,
        proposal: &Proposal<'_, '_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = &*target.resource;
        match proposal {
            _ if target.subresource.is_some() => Err(not_found(resource, name)),
            Proposal::Change(change) if resource.strategy(&target.version).allows_create_on_update() => {
                self.write_new(target, change(None)?, options).await
            }
            Proposal::Change(_) => Err(not_found(resource, name)),
            Proposal::Apply(configuration) => {
                let ownership = self.ownership(target, options);
                let applied =
                    ownership.compared(|own| own.apply(b"", None, configuration.value, options.force));
                let (object, owners) = applied.await?;
                let mut object = self.shaped(target, object)?;
                check_created(target, name, &mut object)?;
                (configuration.authorize_create)().await?;
                self.create_managed(target, object, &owners.0, options).await
            }
        }
    }

    /// The new state of an object and its owners, or those of its Scale if that is written. `stored` are the owners before.
    async fn propose(
        &self,
        target: &Target,
        name: &str,
        (old, stored): (&Value, &[u8]),
        proposal: &Proposal<'_, '_>,
        options: &WriteOptions,
    ) -> Result<(Value, Owners), Status> {
        if let Some(scale) = target.scale() {
            return self.propose_scale(target, name, scale, (old, stored), proposal, options);
        }
        let change = match proposal {
            Proposal::Change(change) => change,
            Proposal::Apply(configuration) => {
                let ownership = self.ownership(target, options);
                let (value, force) = (configuration.value, options.force);
                let applied = ownership.compared(|own| own.apply(stored, Some(old), value, force));
                let (object, owners) = applied.await?;
                return Ok((self.shaped(target, object)?, owners));
            }
        };
        let mut new = match options.uses_managed_fields {
            true => change(Some(&with_managed_fields(old, stored)?))?,
            false => change(Some(old))?,
        };
        let requested = take_managed_fields(&mut new);
        if self.authority == Authority::Replica {
            return Ok((new, Owners(replicated(requested.as_ref(), stored))));
        }
        if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
            remove_absent(metadata);
        }
        keep_scope(self.objects.annotations(), old, &mut new);
        let ownership = self.ownership(target, options);
        let updated = |own: &Ownership<'_>| Ok(own.of_updated(stored, requested.as_ref(), old, &new));
        let owners = ownership.compared(updated).await?;
        Ok((new, owners))
    }

    /// A merged object in the shape of its version, with defaults.
    fn shaped(&self, target: &Target, mut object: Value) -> Result<Value, Status> {
        if let Some(version) = target.resource.version(&target.version) {
            version.shape.admit(&mut object)?;
        }
        Ok(object)
    }

    /// A resourceVersion in the new object must be the current one.
    fn check_version(&self, target: &Target, old: &Value, new: &Value, name: &str) -> Result<(), Status> {
        let resource = &target.resource;
        match new["metadata"]["resourceVersion"]
            .as_str()
            .filter(|version| !version.is_empty() && *version != "0")
        {
            Some(version) if old["metadata"]["resourceVersion"] == version => Ok(()),
            Some(_) => Err(Status::modified(group_resource(resource), name)),
            None if target.verb == Verb::Patch
                || resource.strategy(&target.version).allows_unconditional_update() =>
            {
                Ok(())
            }
            None => {
                let path = FieldPath::new("metadata.resourceVersion");
                let error = FieldError::invalid(path, &Value::from(0), "must be specified for an update");
                // Kubernetes names the resource here, not the kind.
                Err(invalid_named(&resource.name.resource, resource, name, vec![error]))
            }
        }
    }

    /// Whether the update removes the last finalizer of an object that is marked for deletion.
    fn finishes_deletion(&self, target: &Target, new: &Value) -> bool {
        self.authority == Authority::Origin
            && metadata::is_deleting(new)
            && metadata::finalizers(new).is_empty()
            && !target.resource.strategy(&target.version).holds_deletion(new)
    }

    fn validate_create(&self, target: &Target, object: &Value, name: &str) -> Result<(), Status> {
        let resource = &*target.resource;
        let scope = if resource.namespaced { ObjectScope::Namespaced } else { ObjectScope::Cluster };
        let path = FieldPath::new("metadata");
        let mut errors = validate_object_meta(&object["metadata"], scope, resource.name_rule, &path);
        if is_validated_as_core(resource) {
            errors.extend(validate_core_finalizers(&object["metadata"], &path));
        }
        if let Some(version) = resource.version(&target.version) {
            errors.extend(version.shape.validate(object));
        }
        errors.extend(resource.strategy(&target.version).validate_create(object));
        if let Some(version) = resource.version(&target.version) {
            // Only updates have warnings.
            version.shape.validate_rules(object, None, &mut errors);
        }
        if errors.is_empty() { Ok(()) } else { Err(invalid(resource, name, errors)) }
    }

    fn validate_update(
        &self,
        target: &Target,
        write: WriteTarget<'_>,
        old: &Value,
        new: &Value,
        name: &str,
        warnings: &Warnings,
    ) -> Result<(), Status> {
        let resource = &*target.resource;
        let path = FieldPath::new("metadata");
        let scope = if resource.namespaced { ObjectScope::Namespaced } else { ObjectScope::Cluster };
        let mut errors = validate_object_meta(&new["metadata"], scope, NameRule::PathSegment, &path);
        if is_validated_as_core(resource) {
            errors.extend(validate_core_finalizers(&new["metadata"], &path));
        }
        errors.extend(validate_object_meta_update(&new["metadata"], &old["metadata"], &path));
        if let Some(version) = resource.version(&target.version) {
            errors.extend(version.shape.validate_update(new, old));
        }
        errors.extend(resource.strategy(&target.version).validate_update(write, old, new));
        if let Some(version) = resource.version(&target.version) {
            let ignored = version.shape.validate_rules(new, Some(old), &mut errors);
            ignored.iter().for_each(|error| warnings.add(error.to_string()));
        }
        if errors.is_empty() { Ok(()) } else { Err(invalid(resource, name, errors)) }
    }
}

/// A write as admission sees it, without managedFields.
pub(super) fn admission_request<'a>(
    target: &'a Target,
    scope: &'a Scope,
    name: &'a str,
    verb: Verb,
    options: AdmissionOptions<'a>,
) -> AdmissionRequest<'a> {
    AdmissionRequest {
        verb,
        scope,
        resource: &target.resource,
        version: &target.version,
        subresource: target.subresource.as_deref(),
        namespace: target.namespace.as_deref(),
        name,
        user: target.identity.user(),
        options,
        managed_fields: ReviewedManagedFields::default(),
        dry_run: options.dry_run(),
        reservations: None,
        warnings: options.warnings(),
        audit_annotations: options.audit_annotations(),
    }
}

fn unsaved(object: EncodedObject, scope: &Scope) -> StoredObject {
    StoredObject { object, revision: fairlead_store::Revision(0), scope: scope.clone() }
}

fn is_terminating(object: &EncodedObject) -> bool {
    crate::object::ObjectMetaRef::parse(object.as_object())
        .is_ok_and(|meta| meta.deletion_timestamp.is_some())
}

/// 422 with one cause for each field.
pub(crate) fn invalid(resource: &ServedResource, name: &str, errors: Vec<FieldError>) -> Status {
    invalid_named(&resource.kind, resource, name, errors)
}

fn invalid_named(kind: &str, resource: &ServedResource, name: &str, errors: Vec<FieldError>) -> Status {
    let causes = errors
        .iter()
        .map(|error| StatusCause::field(error.reason(), error.path.to_string(), error.message.clone()))
        .collect();
    Status::invalid(&resource.storage_name().group, kind, name, causes)
}

/// `Retry-After` while the disk of the store is full. An operator has to make room, so earlier attempts do not help.
const FULL_DISK_RETRY_SECONDS: u32 = 5;

/// The `Status` of a failed commit.
pub(super) fn commit_status(resource: &ServedResource, name: &str, error: CommitError) -> Status {
    match error {
        CommitError::Conflict { .. } => Status::modified(group_resource(resource), name),
        CommitError::TooLarge { limit, .. } => Status::request_entity_too_large(limit as u64),
        CommitError::Unavailable { .. } | CommitError::NotLeader => {
            Status::service_unavailable(error.to_string(), 1)
        }
        // Clients and informers repeat a 503 with `Retry-After`; 507 has no reason in Kubernetes, and they report it as unknown.
        CommitError::Full { .. } => Status::service_unavailable(error.to_string(), FULL_DISK_RETRY_SECONDS),
        // Without `Retry-After`, by which clients repeat a request that may have had its effect.
        CommitError::Unknown { .. } => Status::timeout(error, 0),
        CommitError::Empty | CommitError::DuplicateKey { .. } | CommitError::TooManyMutations { .. } => {
            Status::internal(error)
        }
    }
}

/// Whether Kubernetes validates the metadata of a resource with the rules of its core group. Events have rules of their own.
fn is_validated_as_core(resource: &ServedResource) -> bool {
    const GROUPS: [&str; 4] = ["", "certificates.k8s.io", "coordination.k8s.io", "rbac.authorization.k8s.io"];
    resource.origin == Origin::BuiltIn
        && GROUPS.contains(&&*resource.name.group)
        && &*resource.name.resource != "events"
}
