//! From a path to a resource: what the request is about, and whether it can be asked.

use std::sync::Arc;

use bytes::Bytes;
use fairlead_names::ResourceName;
use fairlead_process::{GroupResource, Status};
use http_body::Body;

use super::{ApiServer, Context};
use crate::host::{Host, Wanted};
use crate::registry::Target;
use crate::request::{Form, ResourcePath};
use crate::resource::{ServedResource, Verb};
use crate::response::{self, Response};
use crate::scope::ScopeSelector;

impl<H: Host> ApiServer<H> {
    /// Carries out an authorized resource request.
    pub(super) async fn resource<B>(
        &self,
        context: &Context<'_>,
        wanted: ResourcePath,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let group_resource = GroupResource::new(&wanted.group, &wanted.resource);
        let scopes =
            context.scopes.ok_or_else(|| Status::bad_request("the request names no logical cluster"))?;
        if matches!(scopes, ScopeSelector::Every { .. }) && !matches!(wanted.verb, Verb::List | Verb::Watch) {
            let mut status = Status::method_not_allowed(group_resource, wanted.verb.as_str());
            status.message.push_str(" in the `*` logical cluster");
            return Err(status);
        }
        let name = ResourceName::new(&wanted.group, &wanted.resource);
        let reads = matches!(wanted.verb, Verb::Get | Verb::List | Verb::Watch);
        let metadata_only =
            reads && matches!(context.accepted().map(|accepted| accepted.form), Ok(Form::PartialMetadata));
        let question = Wanted {
            name: &name,
            version: &wanted.version,
            identity: wanted.identity.as_deref(),
            metadata_only,
        };
        let Some(resource) = self.host.resolve(scopes, &question)? else {
            return Ok(response::unknown_path());
        };
        let Some(version) = resource.version(&wanted.version) else {
            return Ok(response::unknown_path());
        };
        warnings.extend(version.deprecation_warning.as_deref().map(str::to_owned));
        if wanted.namespace.is_some() && !resource.namespaced {
            return Ok(response::unknown_path());
        }
        if !allows(&resource, &wanted) {
            return match wanted.subresource {
                Some(subresource) if resource.subresource(&subresource).is_none() => {
                    Ok(response::unknown_path())
                }
                Some(_) | None => Err(Status::method_not_allowed(group_resource, wanted.verb.as_str())),
            };
        }
        if resource.namespaced
            && wanted.namespace.is_none()
            && (wanted.verb.is_write() || wanted.verb == Verb::Get)
        {
            if wanted.verb == Verb::Create && wanted.name.is_none() {
                return Err(Status::bad_request("an empty namespace may not be set during creation"));
            }
            return Ok(response::unknown_path());
        }
        let every_origin =
            metadata_only && wanted.identity.is_none() && matches!(scopes, ScopeSelector::Every { .. });
        let target = Target {
            version: version.name.clone(),
            scopes: scopes.clone(),
            namespace: wanted.namespace.as_deref().map(Into::into),
            subresource: wanted.subresource.as_deref().map(Into::into),
            verb: wanted.verb,
            identity: Arc::clone(context.identity),
            every_origin: every_origin && resource.origin != fairlead_names::Origin::BuiltIn,
            resource,
        };
        match (wanted.verb, wanted.name) {
            (Verb::Get, Some(name)) => self.get(context, &target, &name).await,
            (Verb::List, _) => self.list(context, &target).await,
            (Verb::Watch, name) => self.watch(context, target, name).await,
            (Verb::Create, name) => self.create(context, &target, name.as_deref(), body, warnings).await,
            (Verb::Update, Some(name)) => self.update(context, &target, &name, body, warnings).await,
            (Verb::Patch, Some(name)) => self.patch(context, &target, &name, body, warnings).await,
            (Verb::Delete, Some(name)) => self.delete(context, &target, &name, body).await,
            (Verb::DeleteCollection, _) => self.delete_collection(context, &target, body).await,
            (Verb::Get | Verb::Update | Verb::Patch | Verb::Delete, None) => {
                let name = &target.resource.name;
                Err(Status::method_not_allowed(
                    GroupResource::new(&name.group, &name.resource),
                    wanted.verb.as_str(),
                ))
            }
        }
    }
}

fn allows(resource: &ServedResource, wanted: &ResourcePath) -> bool {
    match &wanted.subresource {
        None => resource.verbs.contains(wanted.verb),
        Some(name) => {
            resource.subresource(name).is_some_and(|subresource| subresource.verbs.contains(wanted.verb))
        }
    }
}
