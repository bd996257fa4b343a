//! Resolves the resource of a request and checks that it supports the operation.

use std::sync::Arc;

use bytes::Bytes;
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{GroupResource, Status};

use super::body::ByteBody;
use super::{ApiServer, Context};
use crate::host::{Host, RequestedResource};
use crate::registry::ServedResource;
use crate::registry::{Target, group_resource};
use crate::request::{Form, ResourcePath};
use crate::resource::Verb;
use crate::response::{self, Response, ResponseBody};
use crate::scope::{Scope, ScopeSelector};

impl<H: Host> ApiServer<H> {
    /// Carries out an authorized resource request.
    pub(super) async fn resource<B: ByteBody>(
        &self,
        context: &Context<'_>,
        wanted: ResourcePath,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status> {
        let scopes =
            context.scopes.ok_or_else(|| Status::bad_request("the request names no logical cluster"))?;
        if matches!(scopes, ScopeSelector::Every { .. }) && !matches!(wanted.verb, Verb::List | Verb::Watch) {
            let group_resource = GroupResource::new(&wanted.group, &wanted.resource);
            let mut status = Status::method_not_allowed(group_resource, wanted.verb.as_str());
            status.message.push_str(" in the `*` logical cluster");
            return Err(status);
        }
        let name = ResourceName::new(&wanted.group, &wanted.resource);
        let reads = matches!(wanted.verb, Verb::Get | Verb::List | Verb::Watch);
        let is_metadata_only =
            reads && matches!(context.accepted().map(|accepted| accepted.form), Ok(Form::PartialMetadata(_)));
        let requested = RequestedResource {
            name: &name,
            version: &wanted.version,
            identity: wanted.identity.as_deref(),
            is_metadata_only,
        };
        let Some(resource) = self.host.resolve(scopes, &requested)? else {
            return self.unknown_resource(scopes, &wanted);
        };
        let Some(version) = resource.version(&wanted.version) else {
            return self.unknown_resource(scopes, &wanted);
        };
        warnings.extend(version.deprecation_warning.as_deref().map(str::to_owned));
        if let Some(refusal) = unsupported_operation(&resource, &wanted) {
            return Err(refusal);
        }
        let spans_origins =
            is_metadata_only && wanted.identity.is_none() && matches!(scopes, ScopeSelector::Every { .. });
        let target = Target {
            version: version.name.clone(),
            scopes: scopes.clone(),
            namespace: wanted.namespace.as_deref().map(Into::into),
            name: wanted.name.as_deref().map(Into::into),
            subresource: wanted.subresource.as_deref().map(Into::into),
            verb: wanted.verb,
            identity: Arc::clone(context.identity),
            spans_origins: spans_origins && resource.origin != Origin::BuiltIn,
            flags: self.host.request_flags(&context.parts.headers),
            resource,
        };
        context.observe(&self.metrics, &target);
        match (wanted.verb, wanted.name) {
            (Verb::Get, Some(name)) => self.get(context, &target, &name).await,
            (Verb::List, _) => self.list(context, &target).await,
            (Verb::Watch, name) => {
                let key = target.resource.key;
                let response = self.watch(context, target, name).await?;
                // A definition that changed before the subscription has ended the watches that were open then, and not this one. The
                // client watches again.
                match self.host.resolve(scopes, &requested)? {
                    Some(resource) if resource.key == key => Ok(response),
                    _ => Ok(response.map(|_| ResponseBody::full(Bytes::new()))),
                }
            }
            (Verb::Create, name) => self.create(context, &target, name.as_deref(), body, warnings).await,
            (Verb::Update, Some(name)) => self.update(context, &target, &name, body, warnings).await,
            (Verb::Patch, Some(name)) => self.patch(context, &target, &name, body, warnings).await,
            (Verb::Delete, Some(name)) => self.delete(context, &target, &name, body, warnings).await,
            (Verb::DeleteCollection, _) => self.delete_collection(context, &target, body, warnings).await,
            (Verb::Get | Verb::Update | Verb::Patch | Verb::Delete, None) => {
                Err(not_allowed(&target.resource, wanted.verb))
            }
        }
    }

    /// 404: a `Status` if the group version is served, otherwise the response to unknown paths, from which
    /// clients conclude that the whole API is missing.
    fn unknown_resource(&self, scopes: &ScopeSelector, wanted: &ResourcePath) -> Result<Response, Status> {
        let serves = |scope: &Scope| -> Result<bool, Status> {
            Ok(self.host.catalog(scope)?.resources.iter().any(|resource| {
                *resource.name.group == *wanted.group && resource.version(&wanted.version).is_some()
            }))
        };
        match scopes.one() {
            _ if wanted.group.is_empty() => Err(Status::unknown_resource()),
            Some(scope) if serves(scope)? => Err(Status::unknown_resource()),
            Some(_) | None => Ok(response::unknown_path()),
        }
    }
}

/// The error of an operation that the resource does not support: a wrong scope, an unknown subresource, or
/// an unsupported verb.
fn unsupported_operation(resource: &ServedResource, wanted: &ResourcePath) -> Option<Status> {
    let verbs = match &wanted.subresource {
        None => resource.verbs,
        Some(name) => match resource.subresource(&wanted.version, name) {
            Some(subresource) => subresource.verbs,
            None => return Some(Status::unknown_resource()),
        },
    };
    if wanted.namespace.is_some() && !resource.namespaced {
        return Some(Status::unknown_resource());
    }
    let names_object = wanted.name.is_some();
    if resource.namespaced && wanted.namespace.is_none() && names_object {
        return Some(Status::unknown_resource());
    }
    // All namespaces together can only be read.
    let writes_all_namespaces = resource.namespaced && wanted.namespace.is_none() && wanted.verb.is_write();
    // Only a definition that is being deleted permits updates and no creates.
    let is_terminating = wanted.subresource.is_none()
        && resource.origin != Origin::BuiltIn
        && verbs.contains(Verb::Update)
        && !verbs.contains(Verb::Create);
    if is_terminating && wanted.verb == Verb::Create {
        let message = "create not allowed while custom resource definition is terminating";
        return Some(Status::forbidden(group_resource(resource), "", message));
    }
    (writes_all_namespaces || !verbs.contains(wanted.verb)).then(|| not_allowed(resource, wanted.verb))
}

/// A 405 with the message of Kubernetes, which differs between built-in and custom resources.
pub(super) fn not_allowed(resource: &ServedResource, verb: Verb) -> Status {
    match resource.origin {
        Origin::BuiltIn => Status::unknown_method(),
        Origin::Custom | Origin::Identity(_) => {
            Status::method_not_allowed(group_resource(resource), verb.as_str())
        }
    }
}
