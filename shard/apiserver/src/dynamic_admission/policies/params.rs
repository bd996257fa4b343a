//! Parameters of policies: objects of any served kind in the scope of the policy.

use std::future::poll_fn;
use std::sync::Arc;

use fairlead_authn::Identity;
use fairlead_process::Status;
use serde_json::Value;

use super::binding::{ParamReference, ParamSelection};
use super::policy::ParamKind;
use super::review::PolicyReview;
use crate::registry::{Catalog, ServedResource, StoredObject, Target, to_version};
use crate::request::{LabelSelector, ListOptions, RequestFlags};
use crate::resource::Verb;
use crate::scope::ScopeSelector;

/// An object that is the parameter of a policy. It is decoded when the policy is evaluated.
#[derive(Clone)]
pub(super) struct Parameter {
    resource: Arc<ServedResource>,
    version: Box<str>,
    stored: StoredObject,
}

/// The fault of a policy or binding, in the words of Kubernetes.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigurationError {
    #[error("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")]
    UnknownParamKind { group: Box<str>, version: Box<str>, kind: Box<str> },
    #[error("parameters in {scope} cannot be read: its objects are on another shard")]
    OtherServer { scope: Box<str> },
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NoNamespace,
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    ClusterScopedParam,
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NoParams,
}

/// The resource of a kind, if its objects can be read.
pub(super) fn resource_of_kind(catalog: &Catalog, kind: &ParamKind) -> Option<Arc<ServedResource>> {
    let found = catalog.resources.iter().find(|resource| {
        *resource.name.group == *kind.group
            && *resource.kind == *kind.kind
            && resource.version(&kind.version).is_some()
            && resource.verbs.contains(Verb::List)
    });
    found.cloned()
}

impl Parameter {
    /// The object in the version that the policy names.
    pub(super) async fn object(&self, review: &PolicyReview<'_>) -> Result<Value, Status> {
        to_version(&self.resource, &self.version, review.objects.tree(&self.stored)?).await
    }

    /// Namespace and name.
    pub(super) fn key(&self) -> (Box<str>, Box<str>) {
        let meta = crate::object::ObjectMetaRef::parse(self.stored.object.as_object());
        meta.map_or_else(
            |_| ("".into(), "".into()),
            |meta| (meta.namespace.as_deref().unwrap_or_default().into(), (*meta.name).into()),
        )
    }
}

impl PolicyReview<'_> {
    /// The resource of a `paramKind`.
    pub(super) fn param_resource(
        &self,
        kind: &ParamKind,
    ) -> Result<Result<Arc<ServedResource>, ConfigurationError>, Status> {
        let host = self.host()?;
        // Without its parameters, the policy would seem to have none, and would not be evaluated.
        if !host.has_objects(self.scope) {
            return Ok(Err(ConfigurationError::OtherServer { scope: self.scope.as_str().into() }));
        }
        let catalog = host.catalog(self.scope)?;
        Ok(resource_of_kind(&catalog, kind).ok_or_else(|| ConfigurationError::UnknownParamKind {
            group: kind.group.clone(),
            version: kind.version.clone(),
            kind: kind.kind.clone(),
        }))
    }

    /// The parameters that a binding refers to. A selector may find none, and then the policy is not evaluated.
    pub(super) async fn parameters(
        &self,
        kind: &ParamKind,
        resource: &Arc<ServedResource>,
        reference: &ParamReference,
    ) -> Result<Result<Vec<Parameter>, ConfigurationError>, Status> {
        let namespace = match (resource.namespaced, &reference.namespace) {
            (true, Some(namespace)) => Some(&**namespace),
            (true, None) => match self.written_namespace() {
                Some(namespace) => Some(namespace),
                None => return Ok(Err(ConfigurationError::NoNamespace)),
            },
            (false, Some(_)) => return Ok(Err(ConfigurationError::ClusterScopedParam)),
            (false, None) => None,
        };
        let found = match &reference.selection {
            ParamSelection::Name(name) => {
                let (resource_name, origin) = (&resource.name, &resource.origin);
                self.objects.get(resource_name, origin, self.scope, namespace, name)?.into_iter().collect()
            }
            ParamSelection::Labels(selector) => self.selected(kind, resource, namespace, selector).await?,
        };
        if found.is_empty() && reference.denies_missing {
            return Ok(Err(ConfigurationError::NoParams));
        }
        let parameter =
            |stored| Parameter { resource: Arc::clone(resource), version: kind.version.clone(), stored };
        Ok(Ok(found.into_iter().map(parameter).collect()))
    }

    /// Reads a list in steps, between which other requests run.
    async fn selected(
        &self,
        kind: &ParamKind,
        resource: &Arc<ServedResource>,
        namespace: Option<&str>,
        selector: &LabelSelector,
    ) -> Result<Vec<StoredObject>, Status> {
        let target = Target {
            resource: Arc::clone(resource),
            version: (*kind.version).into(),
            scopes: ScopeSelector::One(self.scope.clone()),
            namespace: namespace.map(Into::into),
            name: None,
            subresource: None,
            verb: Verb::List,
            identity: Identity::anonymous(),
            spans_origins: false,
            flags: RequestFlags::default(),
        };
        let options = ListOptions { labels: selector.clone(), ..ListOptions::default() };
        let mut list = resource.registry.list(&target, &options).await?;
        let mut found = Vec::new();
        loop {
            let mut collect = StoredObject::collect_into(&mut found);
            if poll_fn(|context| list.poll_step(context, &mut collect)).await?.is_some() {
                break;
            }
            drop(collect);
            tokio::task::yield_now().await;
        }
        Ok(found)
    }

    /// The namespace of the written object. A Namespace counts as one in itself, as in Kubernetes.
    fn written_namespace(&self) -> Option<&str> {
        let name = &self.write.resource.name;
        let is_namespace = name.group.is_empty() && &*name.resource == "namespaces";
        if is_namespace { Some(self.write.name) } else { self.write.namespace }
    }
}
