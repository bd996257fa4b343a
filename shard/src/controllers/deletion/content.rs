//! Finds the stored objects of a logical cluster by their keys, independent of the definitions that exist.
//!
//! So it also finds objects whose definition or binding was removed before.

use std::ops::ControlFlow;

use fairlead_apiserver::hub::Hub;
use fairlead_apiserver::object::ObjectBytes;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_names::{CUSTOM_RESOURCES, Key, Origin, ResourceName};
use fairlead_process::Status;
use fairlead_store::{Range, Revision};

use crate::index::Definitions;

/// Number of objects that are visited before other tasks run.
const PAGE: usize = 512;
/// Number of resources that are visited before other tasks run.
const RESOURCES: usize = 64;

/// A stored object and its key.
pub(in crate::controllers) struct FoundObject<'a> {
    /// The encoded key.
    pub(in crate::controllers) key: &'a [u8],
    /// The key's parts.
    pub(in crate::controllers) parts: Key<'a>,
    /// The stored object; `None` if the value is not an object.
    pub(in crate::controllers) object: Option<ObjectBytes<'a>>,
    /// Revision of the last change.
    pub(in crate::controllers) revision: Revision,
}

/// Visitor of objects, called synchronously in a read transaction.
pub(in crate::controllers) type Visit<'v> = dyn FnMut(&FoundObject<'_>) -> ControlFlow<()> + Send + 'v;

/// Visits all objects of a logical cluster, or of one namespace in it, resource by resource, until `visit` breaks.
/// Costs two look-ups for each resource that may have objects in the logical cluster, and the objects themselves.
///
/// # Errors
/// 500 when the store cannot be read.
pub(in crate::controllers) async fn visit_all(
    objects: &ObjectStore,
    (definitions, hub): (&Definitions, &Hub),
    cluster: &str,
    namespace: Option<&str>,
    visit: &mut Visit<'_>,
) -> Result<(), Status> {
    for (visited, (resource, origin)) in (1_usize..).zip(definitions.stored_resources(hub, cluster).await) {
        if visit_resource(objects, &resource, &origin, cluster, namespace, visit).await?.is_break() {
            return Ok(());
        }
        if visited % RESOURCES == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// Visits the objects of one resource in a logical cluster, or in one namespace of it, until `visit` breaks.
///
/// # Errors
/// 500 when the store cannot be read.
pub(in crate::controllers) async fn visit_resource(
    objects: &ObjectStore,
    resource: &ResourceName,
    origin: &Origin,
    cluster: &str,
    namespace: Option<&str>,
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<()>, Status> {
    let mut range = Range::prefix(objects.codec().range(resource, origin, cluster, namespace));
    loop {
        let mut visited = 0;
        let mut last = None;
        let mut flow = ControlFlow::Continue(());
        objects
            .store()
            .scan(&range, None, &mut |record| {
                if let Ok(parts) = objects.codec().decode(record.key) {
                    let object = ObjectBytes::parse(record.value).ok();
                    flow = visit(&FoundObject { key: record.key, parts, object, revision: record.modified });
                }
                visited += 1;
                if visited == PAGE {
                    last = Some(record.key.to_vec());
                }
                if visited == PAGE { ControlFlow::Break(()) } else { flow }
            })
            .map_err(Status::internal)?;
        match last {
            Some(last) if flow.is_continue() => range = range.after(&last),
            _ => return Ok(flow),
        }
        tokio::task::yield_now().await;
    }
}

/// The origin in a key.
pub(in crate::controllers) fn origin_of(parts: &Key<'_>) -> Origin {
    match parts.origin {
        None => Origin::BuiltIn,
        Some(CUSTOM_RESOURCES) => Origin::Custom,
        Some(identity) => Origin::Identity(identity.into()),
    }
}
