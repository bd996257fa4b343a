//! Served resources, and the registries that carry out requests on them, over the store or another backend.

mod admission;
mod builtin;
mod commits;
mod continuation;
mod conversion;
mod conversion_webhook;
mod cursor;
mod delete;
mod join;
mod managed_fields;
mod metadata;
mod namespace;
mod objects;
mod owner_conversion;
mod ownership;
mod read;
mod replica;
mod reservation;
mod scale;
mod selection;
mod served;
mod served_key;
mod shared_form;
mod store_backed;
mod subresource_create;
mod write;

use core::pin::Pin;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_authn::Identity;
use fairlead_process::{GroupResource, Status};
use fairlead_schema::crd::ScalePaths;
use fairlead_store::Revision;
use serde_json::Value;

use crate::hub::{Backlog, Subscription};
use crate::object::{EncodedObject, ObjectBytes};
use crate::request::{DeleteOptions, ListOptions, RequestFlags, WriteOptions};
use crate::resource::{SCALE, Verb};
use crate::scope::{Scope, ScopeSelector};

pub use admission::{Admission, AdmissionOptions, AdmissionRequest, ReadOnly, ReviewedManagedFields};
pub use builtin::{built_in_resources, is_built_in};
pub use conversion_webhook::{ConversionCache, ConversionWebhook};
pub use cursor::ListCursor;
pub use delete::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
pub use metadata::generated_name;
pub use namespace::NamespaceLifecycle;
pub use objects::{ObjectStore, StoredObject};
pub use replica::{DiscoveredResource, ResourceReplica};
pub use reservation::{Reservation, Reservations};
pub use selection::Selection;
pub use served::{
    Catalog, Conversion, SelectableField, ServedResource, ServedVersion, Subresource, Versions,
};
pub use served_key::{CatalogKey, ServedKey};
pub use store_backed::StoreRegistry;
pub use subresource_create::SubresourceCreate;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use continuation::Continuation;
pub(crate) use conversion::{ConversionBatch, WebhookConverter, to_version, to_version_in_place};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use conversion_webhook::fuzzing::conversion_response;
pub(crate) use managed_fields::{managed_fields_of, set_managed_fields, take_managed_fields};
pub(crate) use metadata::{check_name, set_request_namespace};
pub(crate) use objects::malformed_status;
pub(crate) use read::group_resource;
pub(crate) use selection::EventState;

/// Carries out requests on one or more resources. Discovery, tables and watches are common to all
/// implementations. A registry refuses the writes that it does not implement.
#[async_trait]
pub trait Registry: Send + Sync {
    /// Reads an object.
    ///
    /// # Errors
    /// 404, or 504 when the requested revision has not been reached.
    async fn get(
        &self,
        target: &Target,
        name: &str,
        at_least: Option<Revision>,
    ) -> Result<StoredObject, Status>;

    /// Opens a list. It is read in steps.
    ///
    /// # Errors
    /// 400, 422 or 504 by the rules of resourceVersion and continue; 410 at the first step.
    async fn list(&self, target: &Target, options: &ListOptions) -> Result<Box<dyn ListCursor>, Status>;

    /// Opens a watch.
    ///
    /// # Errors
    /// 410 when the revision is compacted.
    async fn watch(
        &self,
        target: &Target,
        options: &ListOptions,
        until: WatchEnd,
    ) -> Result<OpenWatch, Status>;

    /// Creates an object; evaluates a review.
    ///
    /// # Errors
    /// Any refusal.
    async fn create(
        &self,
        target: &Target,
        _object: Value,
        _options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        Err(target.method_not_allowed())
    }

    /// Updates one object: `change` gets the current state (in the requested version) and returns the new
    /// one. It may be called several times.
    ///
    /// # Errors
    /// Any refusal.
    async fn update(
        &self,
        target: &Target,
        _name: &str,
        _change: &Change<'_>,
        _options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        Err(target.method_not_allowed())
    }

    /// Applies a configuration to one object, or creates it (server-side apply).
    ///
    /// # Errors
    /// Any refusal; 409 for fields that other managers own.
    async fn apply(
        &self,
        target: &Target,
        _name: &str,
        _configuration: &AppliedConfiguration<'_>,
        _options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        Err(target.method_not_allowed())
    }

    /// Deletes one object, or marks it for deletion.
    ///
    /// # Errors
    /// Any refusal.
    async fn delete(
        &self,
        target: &Target,
        _name: &str,
        _options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        Err(target.method_not_allowed())
    }

    /// Deletes all selected objects and returns their last state.
    ///
    /// # Errors
    /// Any refusal; objects deleted before the error stay deleted.
    async fn delete_collection(
        &self,
        target: &Target,
        _selection: &ListOptions,
        _options: &DeleteOptions,
    ) -> Result<DeletedCollection, Status> {
        Err(target.method_not_allowed())
    }
}

/// Carries out creates of the subresources of one or more resources.
#[async_trait]
pub trait SubresourceCreator: Send + Sync {
    /// Returns the response, or `None` for a subresource that cannot be created.
    ///
    /// # Errors
    /// Any refusal.
    async fn create(&self, create: &SubresourceCreate<'_>, object: Value) -> Result<Option<Value>, Status>;
}

/// The objects that a deletecollection has found.
#[derive(Debug)]
pub struct DeletedCollection {
    /// The revision of the list.
    pub revision: Revision,
    /// The objects at that revision.
    pub objects: Vec<StoredObject>,
}

/// The target of a request after its resource has been resolved.
#[derive(Clone)]
pub struct Target {
    /// The resource.
    pub resource: Arc<ServedResource>,
    /// The requested version.
    pub version: Arc<str>,
    /// The scopes; writes have exactly one.
    pub scopes: ScopeSelector,
    /// The namespace; `None` for cluster-scoped resources and for all namespaces.
    pub namespace: Option<Arc<str>>,
    /// The object's name in the path. Methods for one object also get it as an argument; creates
    /// of a subresource (`serviceaccounts/<name>/token`) read it here.
    pub name: Option<Arc<str>>,
    /// The subresource.
    pub subresource: Option<Arc<str>>,
    /// The verb.
    pub verb: Verb,
    /// The authenticated client.
    pub identity: Arc<Identity>,
    /// Whether the request reads the metadata of all origins.
    pub spans_origins: bool,
    /// Flags of the host for its own registries.
    pub flags: RequestFlags,
}

impl Target {
    /// The `scale` subresource, if the request is about it.
    pub(crate) fn scale(&self) -> Option<&ScalePaths> {
        let is_scale = self.subresource.as_deref() == Some(SCALE);
        is_scale.then(|| self.resource.strategy(&self.version).scale()).flatten()
    }

    /// The one scope of a request that needs one.
    ///
    /// # Errors
    /// 405 for a wildcard.
    pub fn scope(&self) -> Result<&Scope, Status> {
        self.scopes.one().ok_or_else(|| self.method_not_allowed())
    }

    /// 405: the registry does not carry out the verb.
    pub fn method_not_allowed(&self) -> Status {
        let name = &self.resource.name;
        Status::method_not_allowed(GroupResource::new(&name.group, &name.resource), self.verb.as_str())
    }
}

/// Visits listed objects, synchronously under a read transaction, so it must be short.
pub type Visitor<'v> = dyn FnMut(ListedObject<'_>) -> ControlFlow<()> + Send + 'v;

/// An object of a list, borrowed from the store.
#[derive(Clone, Copy)]
pub struct ListedObject<'a> {
    /// The object.
    pub object: ObjectBytes<'a>,
    /// The commit that last changed it.
    pub revision: Revision,
    /// Its scope.
    pub scope: &'a str,
}

/// The end of a list.
#[derive(Clone, Debug, Default)]
pub struct ListEnd {
    /// The revision of the list.
    pub revision: Revision,
    /// The token for the next page.
    pub continue_token: Option<String>,
    /// The number of remaining objects, if it is known.
    pub remaining: Option<u64>,
}

/// The deadline of a watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchEnd {
    /// The earlier of its timeout and the expiry of its credential.
    pub at: tokio::time::Instant,
}

/// An opened watch: the initial state and the subscription to later events.
pub struct OpenWatch {
    /// Objects to send as ADDED.
    pub initial: Option<Box<dyn ListCursor>>,
    /// Events that happened before the subscription was registered.
    pub backlog: Backlog,
    /// Events of the subscription up to this revision are skipped: `initial` and `backlog` cover them.
    pub after: Revision,
    /// The live events.
    pub subscription: Subscription,
    /// The options by which events are selected, if they are narrower than the requested ones: those of a view.
    pub selection: Option<Box<ListOptions>>,
    /// The scope that its objects show, if it is not the one in which they are stored.
    pub shown_scope: Option<Scope>,
    /// Ends the watch when it completes, before the deadline of the subscription.
    pub ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl OpenWatch {
    fn new(
        initial: Option<Box<dyn ListCursor>>,
        backlog: Backlog,
        after: Revision,
        subscription: Subscription,
    ) -> Self {
        Self { initial, backlog, after, subscription, selection: None, shown_scope: None, ended: None }
    }
}

/// Computes the new state of an object from the current one (`None`: there is none), or refuses.
pub type Change<'c> = dyn Fn(Option<&Value>) -> Result<Value, Status> + Send + Sync + 'c;

/// A configuration of server-side apply.
pub struct AppliedConfiguration<'a> {
    /// The object, as far as its manager specifies it.
    pub value: &'a Value,
    /// Decides whether the client may create the object. Called only if it does not exist.
    pub authorize_create: &'a CreateAuthorization<'a>,
}

/// Decides whether a client may create an object.
pub type CreateAuthorization<'a> =
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>> + Send + Sync + 'a;

/// The way in which a client changes an object.
enum Proposal<'p, 'a> {
    /// An update or patch.
    Change(&'p Change<'p>),
    /// Server-side apply.
    Apply(&'p AppliedConfiguration<'a>),
}

/// The result of a write.
pub enum WriteResult {
    /// The object was created.
    Created(StoredObject),
    /// The object was changed, or left as it was.
    Updated(StoredObject),
    /// The response of a kind that is not stored.
    NotStored(Value),
}

/// The result of a delete.
pub enum DeleteResult {
    /// The object waits for its finalizers.
    Marked(StoredObject),
    /// The object was deleted; this was its last state.
    Gone(StoredObject),
}

impl StoredObject {
    /// A visitor that copies the objects into a vector.
    pub fn collect_into(into: &mut Vec<Self>) -> impl FnMut(ListedObject<'_>) -> ControlFlow<()> + Send {
        |listed| {
            into.extend(Self::copied(listed));
            ControlFlow::Continue(())
        }
    }

    fn copied(listed: ListedObject<'_>) -> Option<Self> {
        let object = EncodedObject::copied(listed.object);
        Some(Self { object, revision: listed.revision, scope: Scope::new(listed.scope) })
    }
}
