//! Sets the claim labels of all objects of a resource, in bounded batches.

use std::ops::ControlFlow;

use fairlead_apiserver::Scope;
use fairlead_apiserver::object::{EncodedObject, ObjectBytes, ObjectMetaRef};
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_process::Status;
use fairlead_store::{CommitError, Mutation, Range};

use crate::permission_claims::{ClaimLabels, ClusterClaims, LabelledResource};

/// Objects that are visited before other tasks run.
const PAGE: usize = 512;
/// Objects that are changed between two reads.
const BATCH: usize = 128;
/// Their size in bytes; the last one may exceed it.
const BATCH_BYTES: usize = 1024 * 1024;
/// Conflicts of one batch with other writers.
const ATTEMPTS: usize = 16;

/// Sets the claim labels of all objects of a resource in a logical cluster. Objects that have them are only read.
///
/// # Errors
/// 409 if other writers were faster again and again, 500 if the store cannot be read or written.
pub(super) async fn relabel(
    objects: &ObjectStore,
    cluster: &str,
    (resource, origin): &LabelledResource,
    claims: &ClusterClaims,
) -> Result<(), Status> {
    let mut range = Range::prefix(objects.codec().range(resource, origin, cluster, None));
    let mut attempts = 0;
    loop {
        let page = read_page(objects, cluster, &range, |object| {
            let expected = ClaimLabels::of(Some(claims), (resource, origin), |key| object.label(key));
            expected.are_set(object.labels.iter().map(|(key, value)| (&**key, &**value)))
        })?;
        let mut mutations = Vec::with_capacity(page.outdated.len());
        for (key, stored) in &page.outdated {
            mutations.push(labelled(objects, key, stored, (resource, origin), claims)?);
        }
        if !mutations.is_empty() {
            // The labels of an object do not depend on those of others.
            match objects.commit_each(mutations).await {
                Ok(()) => {}
                Err(CommitError::Conflict { .. }) if attempts < ATTEMPTS => {
                    attempts += 1;
                    continue;
                }
                Err(CommitError::Conflict { .. }) => {
                    let message = format!("the {resource} of {cluster} are changed too often");
                    return Err(Status::conflict(
                        fairlead_process::GroupResource::new(&resource.group, &resource.resource),
                        "",
                        message,
                    ));
                }
                Err(error) => return Err(Status::internal(error)),
            }
        }
        attempts = 0;
        let Some(last) = page.last else { return Ok(()) };
        range = range.after(&last);
        tokio::task::yield_now().await;
    }
}

/// A part of a range.
struct Page {
    /// The objects with other labels, by key.
    outdated: Vec<(Vec<u8>, StoredObject)>,
    /// The last key, unless the range ends.
    last: Option<Vec<u8>>,
}

fn read_page(
    objects: &ObjectStore,
    cluster: &str,
    range: &Range,
    is_current: impl Fn(&ObjectMetaRef<'_>) -> bool,
) -> Result<Page, Status> {
    let scope = Scope::new(cluster);
    let mut page = Page { outdated: Vec::new(), last: None };
    let (mut visited, mut bytes) = (0, 0);
    let read = objects.store().scan(range, None, &mut |record| {
        visited += 1;
        // Objects that cannot be read cannot be seen by anybody.
        if let Ok(object) = ObjectBytes::parse(record.value)
            && let Ok(meta) = ObjectMetaRef::parse(object)
            && !is_current(&meta)
        {
            let (object, scope) = (EncodedObject::copied(object), scope.clone());
            bytes += record.value.len();
            let stored = StoredObject { object, revision: record.modified, scope };
            page.outdated.push((record.key.to_vec(), stored));
        }
        if visited < PAGE && page.outdated.len() < BATCH && bytes < BATCH_BYTES {
            return ControlFlow::Continue(());
        }
        page.last = Some(record.key.to_vec());
        ControlFlow::Break(())
    });
    read.map_err(Status::internal)?;
    Ok(page)
}

/// The change of one object. Its schema and the owners of its fields stay.
fn labelled(
    objects: &ObjectStore,
    key: &[u8],
    stored: &StoredObject,
    (resource, origin): (&fairlead_names::ResourceName, &fairlead_names::Origin),
    claims: &ClusterClaims,
) -> Result<Mutation, Status> {
    let mut object = objects.tree(stored)?;
    let labels = &object["metadata"]["labels"];
    let expected = ClaimLabels::of(Some(claims), (resource, origin), |key| labels[key].as_str());
    expected.set(&mut object);
    let old = stored.object.as_object();
    let encoded = objects.encode_managed(object, old.schema_hash(), old.managed_fields())?;
    Ok(Mutation::update(key.to_vec(), stored.revision, encoded.stored().clone()))
}
