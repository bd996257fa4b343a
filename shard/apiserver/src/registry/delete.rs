//! Delete and deletecollection: preconditions and finalizers.

use core::future::poll_fn;

use fairlead_process::{GroupResource, Status};
use fairlead_store::{CommitError, Expect, Mutation};
use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use serde_json::{Value, json};

use super::admission::{AdmissionOptions, AdmissionRequest, ReviewedManagedFields};
use super::conversion::to_storage;
use super::join::join;
use super::objects::put;
use super::read::{group_resource, not_found};
use super::store_backed::Authority;
use super::write::{admission_request, commit_status};
use super::{DeleteResult, DeletedCollection, StoreRegistry, StoredObject, Target, metadata};
use crate::request::{DeleteOptions, DryRun, ListOptions, Propagation};
use crate::resource::{Deferral, Verb};

/// Attempts of a delete before a conflict is returned to the client.
const ATTEMPTS: usize = 8;
/// Concurrent deletes of a deletecollection. Their commits share durable writes.
const CONCURRENT_DELETES: usize = 64;

impl StoreRegistry {
    pub(super) async fn remove(
        &self,
        target: &Target,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        let resource = &*target.resource;
        let scope = target.scope()?;
        let namespace = target.namespace.as_deref();
        let key =
            self.objects.key(resource.storage_name(), &resource.origin, scope.as_str(), namespace, name);
        for _ in 0..ATTEMPTS {
            let current = self.objects.get_by_key(&key, scope)?.ok_or_else(|| not_found(resource, name))?;
            let old = self.tree_in_version(target, &current).await?;
            options.guard.delete(name, &old)?;
            check_preconditions(target, options, &old, name)?;
            let request =
                admission_request(target, scope, name, Verb::Delete, AdmissionOptions::Delete(options));
            let managed_fields =
                ReviewedManagedFields { new: b"", old: current.object.as_object().managed_fields() };
            let request = AdmissionRequest { managed_fields, ..request };
            let mut mutations = self.admission.validate(&request, None, Some(&old)).await?;
            let expect = Expect::At(current.revision);
            let marked = match self.authority {
                Authority::Replica => None,
                Authority::Origin => marked_for_deletion(target, &old, options.propagation),
            };
            let (mutation, deleted) = match marked {
                Some(new) => {
                    let (stored, schema_hash) = to_storage(resource, &target.version, new).await?;
                    let managed = current.object.as_object().managed_fields();
                    let object = self.objects.encode_managed(stored, schema_hash, managed)?;
                    if object == current.object {
                        return Ok(DeleteResult::Marked(current));
                    }
                    (
                        put(key.clone(), expect, &object),
                        DeleteResult::Marked(StoredObject { object, ..current }),
                    )
                }
                None => (Mutation::delete(key.clone(), expect), DeleteResult::Gone(current)),
            };
            if options.dry_run == DryRun::All {
                return Ok(deleted);
            }
            mutations.insert(0, mutation);
            let Some(mutations) = join(mutations) else { continue };
            match self.objects.commit(mutations).await {
                Ok(revision) => {
                    self.wait_for_index(target, revision).await;
                    return Ok(match deleted {
                        DeleteResult::Marked(object) => {
                            DeleteResult::Marked(StoredObject { revision, ..object })
                        }
                        DeleteResult::Gone(object) => DeleteResult::Gone(object),
                    });
                }
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(commit_status(resource, name, error)),
            }
        }
        Err(Status::modified(group_resource(resource), name))
    }

    pub(super) async fn remove_many(
        &self,
        target: &Target,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<DeletedCollection, Status> {
        target.scope()?;
        let options = &DeleteOptions { is_of_collection: true, ..options.clone() };
        let mut found = Vec::new();
        let mut list = self.open_list(target, selection).await?;
        let revision = list.revision();
        loop {
            let mut collect = StoredObject::collect_into(&mut found);
            let step = poll_fn(|context| list.poll_step(context, &mut collect)).await?;
            if step.is_some() {
                break;
            }
            // A step is short; other requests run between two of them.
            tokio::task::yield_now().await;
        }
        let mut removals =
            stream::iter(0..found.len()).map(|index| self.remove_found(target, &found[index], options));
        let mut in_flight = FuturesUnordered::new();
        // After a failure no other deletion begins. Those that have begun end: cancelled, they might never succeed, because a
        // refusal is faster than a commit.
        let mut failure = None;
        loop {
            while failure.is_none() && in_flight.len() < CONCURRENT_DELETES {
                match removals.next().await {
                    Some(removal) => in_flight.push(removal),
                    None => break,
                }
            }
            match in_flight.next().await {
                Some(Ok(())) => {}
                Some(Err(status)) => failure = failure.or(Some(status)),
                None => break,
            }
        }
        drop(in_flight);
        drop(removals);
        match failure {
            Some(status) => Err(status),
            None => Ok(DeletedCollection { revision, objects: found }),
        }
    }
}

impl StoreRegistry {
    async fn remove_found(
        &self,
        target: &Target,
        found: &StoredObject,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let meta = crate::object::ObjectMetaRef::parse(found.object.as_object()).map_err(Status::internal)?;
        let one = Target { namespace: meta.namespace.as_deref().map(Into::into), ..target.clone() };
        match self.remove(&one, &meta.name, options).await {
            Err(status) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    }
}

/// The object marked for deletion, or `None` when it can be deleted at once.
fn marked_for_deletion(target: &Target, old: &Value, propagation: Option<Propagation>) -> Option<Value> {
    let mut new = old.clone();
    set_collector_finalizers(&mut new, propagation);
    let strategy = target.resource.strategy(&target.version);
    let deferral = strategy.begin_deletion(&mut new);
    let is_held_by_kind = deferral == Deferral::Marked || strategy.holds_deletion(&new);
    let is_held = is_held_by_kind || !metadata::finalizers(&new).is_empty();
    is_held.then(|| {
        metadata::mark_deleted(&mut new);
        // Kubernetes sets a grace period of 0 seconds only on objects that wait for `metadata.finalizers` alone.
        if is_held_by_kind && let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.remove("deletionGracePeriodSeconds");
        }
        new
    })
}

/// The finalizer of an object that waits until its dependents are deleted.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// The finalizer of an object that waits until its dependents do not refer to it any more.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// Sets the finalizers of the garbage collector. Without a policy, those that the object has decide.
fn set_collector_finalizers(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND_FINALIZER),
        Propagation::Orphan => Some(ORPHAN_FINALIZER),
    };
    let finalizers = &mut object["metadata"]["finalizers"];
    let mut all = finalizers.as_array().cloned().unwrap_or_default();
    all.retain(|one| one == &json!(wanted) || (one != FOREGROUND_FINALIZER && one != ORPHAN_FINALIZER));
    if let Some(wanted) = wanted
        && !all.iter().any(|one| one == wanted)
    {
        all.push(wanted.into());
    }
    if all.is_empty() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
    } else {
        *finalizers = all.into();
    }
}

fn check_preconditions(
    target: &Target,
    options: &DeleteOptions,
    old: &Value,
    name: &str,
) -> Result<(), Status> {
    let metadata = &old["metadata"];
    for (field, wanted, own, event) in [
        ("UID", &options.uid, &metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", &options.resource_version, &metadata["resourceVersion"], "modified"),
    ] {
        let own = own.as_str().unwrap_or_default();
        if let Some(wanted) = wanted
            && wanted != own
        {
            let message = format!(
                "the {field} in the precondition ({wanted}) does not match the {field} in record ({own}). \
                 The object might have been {event}"
            );
            // Kubernetes names the kind here, not the resource.
            let kind = GroupResource::new(&target.resource.name.group, &target.resource.kind);
            return Err(Status::conflict(kind, name, message));
        }
    }
    Ok(())
}
