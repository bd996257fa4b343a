//! Get, list and watch over a store, by the rules of resourceVersion.

use std::time::Duration;

use fairlead_process::{GroupResource, Status};
use fairlead_store::{Range, ReadError, Revision};
use serde_json::Value;
use tokio::time::timeout;

use super::continuation::Continuation;
use super::conversion::{ConvertedCursor, WebhookConverter, to_version_in_place};
use super::cursor::{ListCursor, StoreCursor};
use super::objects::read_status;
use super::{
    Conversion, ObjectStore, OpenWatch, Selection, ServedResource, StoreRegistry, StoredObject, Target,
    WatchEnd,
};
use crate::hub::{Backlog, BacklogError, Interest, ProgressNotifications};
use crate::request::{InitialEvents, ListOptions, VersionMatch};
use crate::scope::ScopeSelector;

/// Time that a read waits for a revision that has not been reached.
const WAIT_FOR_REVISION: Duration = Duration::from_secs(3);

impl StoreRegistry {
    pub(super) async fn read_one(
        &self,
        target: &Target,
        name: &str,
        at_least: Option<Revision>,
    ) -> Result<StoredObject, Status> {
        self.wait_for_revision(at_least).await?;
        let resource = &target.resource;
        let found = self.objects.get(
            resource.storage_name(),
            &resource.origin,
            target.scope()?,
            target.namespace.as_deref(),
            name,
        )?;
        let found = found.ok_or_else(|| not_found(resource, name))?;
        self.in_version(target, found).await
    }

    /// An object in the requested version if a webhook converts it; without one, it is converted when it is rendered.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub(super) async fn in_version(
        &self,
        target: &Target,
        stored: StoredObject,
    ) -> Result<StoredObject, Status> {
        match WebhookConverter::of(target, self.objects.annotations()) {
            Some(converter) => {
                let converted = converter.convert(vec![stored]).await?.pop();
                converted.ok_or_else(|| Status::internal("a conversion returned no object"))
            }
            None => Ok(stored),
        }
    }

    /// The tree of a stored object in the requested version.
    ///
    /// # Errors
    /// 500 if the object cannot be converted.
    pub(super) async fn tree_in_version(
        &self,
        target: &Target,
        stored: &StoredObject,
    ) -> Result<Value, Status> {
        let resource = &target.resource;
        if !matches!(resource.conversion, Conversion::Webhook(_)) {
            return to_version_in_place(resource, &target.version, self.objects.tree(stored)?);
        }
        let converted = self.in_version(target, stored.clone()).await?;
        self.objects.tree(&converted)
    }

    /// Opens a list, whose objects are in the requested version if a webhook converts them.
    pub(super) async fn open_list(
        &self,
        target: &Target,
        options: &ListOptions,
    ) -> Result<Box<dyn ListCursor>, Status> {
        match WebhookConverter::of(target, self.objects.annotations()) {
            None => Ok(Box::new(self.open_stored_list(target, options).await?)),
            Some(converter) => {
                // Invalid selectors are refused before the first step.
                Selection::of(target, options)?;
                let source = self.open_stored_list(target, &options.before_conversion()).await?;
                Ok(Box::new(ConvertedCursor::new(source, converter, target.clone(), options.clone())))
            }
        }
    }

    async fn open_stored_list(&self, target: &Target, options: &ListOptions) -> Result<StoreCursor, Status> {
        // Invalid selectors are refused before the first step.
        Selection::of(target, options)?;
        let prefix = prefix_of(&self.objects, target);
        let page = options.continue_token.as_deref().map(|token| {
            Continuation::parse(token)
                .ok_or_else(|| Status::bad_request("continue key is not valid: the token is malformed"))
        });
        let page = page.transpose()?;
        let at = match &page {
            Some(page) => {
                // Another replica may have returned the first page.
                self.wait_for_base(page.revision()).await;
                page.revision()
            }
            None => self.list_revision(options).await?,
        };
        let mut range = match options.fields.exact("metadata.name") {
            Some(name) if target.namespace.is_some() || !target.resource.namespaced => {
                exact_range(&prefix, target, name)
            }
            _ => Range::prefix(prefix.clone()),
        };
        if let Some(page) = &page {
            range.start = range.start.max(page.start_key(&prefix).into());
        }
        let revision = at.unwrap_or_else(|| self.objects.store().revision());
        let objects = self.objects.clone();
        Ok(StoreCursor::new(objects, target.clone(), options.clone(), (prefix, range), revision, page))
    }

    pub(super) async fn open_watch(
        &self,
        target: &Target,
        options: &ListOptions,
        until: WatchEnd,
    ) -> Result<OpenWatch, Status> {
        Selection::of(target, options)?;
        let converter = WebhookConverter::of(target, self.objects.annotations());
        let wants_state = match options.initial_events {
            Some(InitialEvents::Send) => true,
            Some(InitialEvents::Skip) => false,
            None => options.resource_version.is_none_or(|version| version.0 == 0),
        };
        if options.initial_events == Some(InitialEvents::Send) {
            self.wait_for_revision(options.resource_version).await?;
        }
        let interest = Interest {
            resource: target.resource.storage_name().clone(),
            origin: (!target.spans_origins).then(|| target.resource.origin.clone()),
            scopes: target.scopes.clone(),
            namespace: target.namespace.clone(),
            // A webhook may change labels.
            label: options
                .labels
                .equality_term()
                .filter(|_| converter.is_none())
                .map(|(key, value)| (key.into(), value.into())),
        };
        let progress =
            if options.allows_bookmarks { ProgressNotifications::On } else { ProgressNotifications::Off };
        let subscription = self.hub.subscribe(interest.clone(), progress, Some(until.at));
        let registered = subscription.registered_at();
        if wants_state {
            let range = (String::new(), Range::prefix(prefix_of(&self.objects, target)));
            let after = self.objects.store().revision();
            // Continue tokens and limits have no meaning for a watch.
            let all = ListOptions { limit: None, continue_token: None, ..options.clone() };
            let stored = |options: ListOptions| {
                StoreCursor::new(self.objects.clone(), target.clone(), options, range, after, None)
            };
            let initial: Box<dyn ListCursor> = match converter {
                Some(converter) => {
                    let stored = stored(all.before_conversion());
                    Box::new(ConvertedCursor::new(stored, converter, target.clone(), all))
                }
                None => Box::new(stored(all)),
            };
            return Ok(OpenWatch::new(Some(initial), Backlog::default(), after, subscription));
        }
        let after = match options.resource_version {
            Some(version) if version.0 > 0 => version,
            _ => self.objects.store().revision(),
        };
        let range = Range::prefix(prefix_of(&self.objects, target));
        let too_old =
            |oldest: Revision| Status::expired(format!("too old resource version: {after} ({oldest})"));
        let backlog = self.hub.backlog(interest, range, after, registered).await;
        let backlog = backlog.map_err(|error| match error {
            BacklogError::Read(ReadError::Compacted { oldest }) => too_old(oldest),
            BacklogError::Read(other) => read_status(&other),
            BacklogError::TooLarge => too_old(registered),
        })?;
        let after = after.max(registered);
        Ok(OpenWatch::new(None, backlog, after, subscription))
    }

    /// The revision a first page is read at; `None` for the latest.
    async fn list_revision(&self, options: &ListOptions) -> Result<Option<Revision>, Status> {
        let Some(requested) = options.resource_version.filter(|version| version.0 > 0) else {
            return Ok(None);
        };
        let exact = match options.version_match {
            Some(VersionMatch::Exact) => true,
            Some(VersionMatch::NotOlderThan) => false,
            None => options.limit.is_some(),
        };
        self.wait_for_revision(Some(requested)).await?;
        Ok(exact.then_some(requested))
    }

    /// Waits until this replica has reached a revision that another one may have told the client, so that a write which is based
    /// on it is no conflict. A revision that does not come in time, or to a store of one process, is left to later checks.
    pub(super) async fn wait_for_base(&self, base: Option<Revision>) {
        if self.objects.store().is_shared() {
            let _ = self.wait_for_revision(base).await;
        }
    }

    /// Waits until the store has reached a revision.
    async fn wait_for_revision(&self, requested: Option<Revision>) -> Result<(), Status> {
        let Some(requested) = requested else { return Ok(()) };
        let current = self.objects.store().revision();
        if requested <= current {
            return Ok(());
        }
        match timeout(WAIT_FOR_REVISION, self.hub.wait(requested)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                Err(Status::resource_version_too_large(requested.0, self.objects.store().revision().0))
            }
        }
    }
}

pub(super) fn not_found(resource: &ServedResource, name: &str) -> Status {
    Status::not_found(group_resource(resource), name)
}

pub(crate) fn group_resource(resource: &ServedResource) -> GroupResource<'_> {
    let name = resource.storage_name();
    GroupResource::new(&name.group, &name.resource)
}

fn prefix_of(objects: &ObjectStore, target: &Target) -> String {
    let resource = &target.resource;
    if target.spans_origins {
        return objects.codec().all_origins(resource.storage_name());
    }
    // A namespace belongs to the range only when the scope is complete.
    let namespace = target.scopes.one().and(target.namespace.as_deref());
    objects.codec().range(resource.storage_name(), &resource.origin, target.scopes.leading(), namespace)
}

fn exact_range(prefix: &str, target: &Target, name: &str) -> Range {
    if matches!(target.scopes, ScopeSelector::One(_)) {
        let key = format!("{prefix}{name}");
        Range::between(key.clone(), format!("{key}\0"))
    } else {
        Range::prefix(prefix.to_owned())
    }
}
