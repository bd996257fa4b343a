//! Create, update, patch and delete on the wire.

use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use fairlead_process::{Status, StatusCause, StatusDetails, StatusReason};
use fairlead_schema::DecodeError;
use fairlead_schema::builtin::{BuiltinKind, builtin_by_kind};
use fairlead_schema::patch::{
    JsonPatch, JsonPatchError, StrategicPatchError, apply_client_scheme_patch, apply_merge_patch,
    apply_strategic_merge_patch, is_client_scheme_group,
};
use fairlead_store::Revision;
use http::StatusCode;
use http::header::USER_AGENT;
use parking_lot::Mutex;
use serde_json::Value;

use super::body::{self, ByteBody, Document};
use super::body_type::ExpectedType;
use super::read::{list_options, options_status};
use super::{ApiServer, Context, forbidden_because, negotiation_status};
use crate::host::{Action, Attributes, Host};
use crate::registry::{
    AppliedConfiguration, DeleteResult, StoredObject, Target, WriteResult, group_resource,
};
use crate::request::{DeleteOptions, OptionsError, PatchKind, Query, WriteOptions};
use crate::resource::Verb;
use crate::response::{self, Response};

impl<H: Host> ApiServer<H> {
    pub(super) async fn create<B: ByteBody>(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: Option<&str>,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status> {
        if name.is_some() && target.subresource.is_none() {
            return Err(super::target::not_allowed(&target.resource, target.verb));
        }
        let options = write_options(context, "CreateOptions")?;
        let mut new = read_object(context, target, body, &options, warnings).await?;
        crate::registry::set_request_namespace(&mut new, target)?;
        let written = target.resource.registry.create(target, new, &options).await;
        warnings.extend(options.warnings.take());
        self.written(context, target, &written?)
    }

    pub(super) async fn update<B: ByteBody>(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: &str,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status> {
        let options = write_options(context, "UpdateOptions")?;
        let new = read_object(context, target, body, &options, warnings).await?;
        let options = WriteOptions { base: revision_of(&new["metadata"]["resourceVersion"]), ..options };
        // The registry checks the name only if the object exists.
        crate::registry::check_name(&new, name)?;
        // Some kinds are created by an update of an absent object. As in Kubernetes, that needs the permission to create it.
        let (is_absent, may_create) = (AtomicBool::new(false), AtomicBool::new(false));
        let change = |old: Option<&Value>| {
            if old.is_some() || may_create.load(Ordering::Relaxed) {
                return Ok(new.clone());
            }
            is_absent.store(true, Ordering::Relaxed);
            Err(Status::not_found(group_resource(&target.resource), name))
        };
        let mut written = target.resource.registry.update(target, name, &change, &options).await;
        if is_absent.load(Ordering::Relaxed) {
            Box::pin(self.authorize_create(context, target, name)).await?;
            may_create.store(true, Ordering::Relaxed);
            written = target.resource.registry.update(target, name, &change, &options).await;
        }
        warnings.extend(options.warnings.take());
        self.written(context, target, &written?)
    }

    pub(super) async fn patch<B: ByteBody>(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: &str,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status> {
        let kind = PatchKind::of(&context.parts.headers).map_err(|error| negotiation_status(&error))?;
        check_patch_options(context.query, kind).map_err(|error| options_status("PatchOptions", &error))?;
        let options = write_options(context, "PatchOptions")?;
        let bytes = body::read(body).await?;
        if let Some(record) = context.record {
            record.request_patch(&bytes);
        }
        if kind == PatchKind::Apply {
            return self.apply(context, target, name, &bytes, options, warnings).await;
        }
        let patch = PatchDocument::read(kind, target, &bytes)?;
        let (uses_managed_fields, base) = (patch.uses_managed_fields(), patch.base());
        let options = WriteOptions { uses_managed_fields, base, ..options };
        let found = Mutex::new(Vec::new());
        let expected = ExpectedType::of(target);
        let change = |old: Option<&Value>| {
            let old = old.ok_or_else(|| Status::not_found(group_resource(&target.resource), name))?;
            let mut document = Document { value: patch.apply(old)?, duplicates: patch.duplicates.clone() };
            expected.check_patched(&mut document.value, target)?;
            let mut warnings = Vec::new();
            let validation = options.field_validation.unwrap_or_default();
            body::apply_schema(target, &mut document, validation, &mut warnings)
                .map_err(|error| error.of_patch(&document.value))?;
            *found.lock() = warnings;
            Ok(document.value)
        };
        let written = target.resource.registry.update(target, name, &change, &options).await;
        warnings.extend(found.into_inner());
        warnings.extend(options.warnings.take());
        self.written(context, target, &written?)
    }

    /// Server-side apply.
    async fn apply(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: &str,
        bytes: &[u8],
        options: WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status> {
        let configuration =
            body::decode_configuration(bytes, options.field_validation.unwrap_or_default(), warnings)?;
        let base = revision_of(&configuration["metadata"]["resourceVersion"]);
        let options = WriteOptions { base, ..options };
        let authorize_create = || -> Pin<Box<dyn Future<Output = Result<(), Status>> + Send + '_>> {
            Box::pin(self.authorize_create(context, target, name))
        };
        let configuration =
            AppliedConfiguration { value: &configuration, authorize_create: &authorize_create };
        let written = target.resource.registry.apply(target, name, &configuration, &options).await;
        warnings.extend(options.warnings.take());
        self.written(context, target, &written?)
    }

    /// Whether the client may create the object that it applies or updates.
    async fn authorize_create(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: &str,
    ) -> Result<(), Status> {
        let action = Action::Resource {
            verb: Verb::Create.as_str(),
            group: &target.resource.name.group,
            version: &target.version,
            resource: &target.resource.name.resource,
            subresource: target.subresource.as_deref(),
            namespace: target.namespace.as_deref(),
            name: Some(name),
        };
        let user = context.identity.user();
        let attributes = Attributes::new(user, context.scopes, action);
        let authorization = self.host.authorize(&attributes).decided().await;
        if authorization.is_allowed() {
            return Ok(());
        }
        Err(forbidden_because(user, &action, authorization.client_reason()))
    }

    pub(super) async fn delete<B: ByteBody>(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: &str,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status> {
        let options = delete_options(context, target, body).await?;
        let accepted = context.accepted()?;
        let deleted = target.resource.registry.delete(target, name, &options).await;
        warnings.extend(options.warnings.take());
        match deleted? {
            DeleteResult::Marked(stored) => self.one(context, target, accepted, &stored, StatusCode::OK),
            DeleteResult::Gone(stored) if target.resource.strategy(&target.version).returns_deleted() => {
                self.one(context, target, accepted, &stored, StatusCode::OK)
            }
            DeleteResult::Gone(stored) => {
                let resource = &target.resource;
                // The object is deleted already, so the response must not be an error.
                let meta = crate::object::ObjectMetaRef::parse(stored.object.as_object()).unwrap_or_default();
                let details = StatusDetails {
                    name: name.to_owned(),
                    group: resource.storage_name().group.to_string(),
                    kind: resource.name.resource.to_string(),
                    uid: meta.uid.into_owned(),
                    ..StatusDetails::default()
                };
                response::encoded(accepted, StatusCode::OK, Status::success_json(&details))
            }
        }
    }

    pub(super) async fn delete_collection<B: ByteBody>(
        &self,
        context: &Context<'_>,
        target: &Target,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status> {
        let selection = list_options(context.query, false)?;
        let options = delete_options(context, target, body).await?;
        let accepted = context.accepted()?;
        let deleted = target.resource.registry.delete_collection(target, &selection, &options).await;
        warnings.extend(options.warnings.take());
        let deleted = deleted?;
        let renderer = self.renderer(context.query, target, crate::request::Form::Object)?;
        let items: Result<Vec<Value>, Status> =
            deleted.objects.iter().map(|stored| renderer.tree(listed(stored))).collect();
        let list = serde_json::json!({
            "kind": *target.resource.list_kind,
            "apiVersion": target.resource.api_version(&target.version),
            "metadata": {"resourceVersion": deleted.revision.to_string()},
            "items": items?,
        });
        response::encoded(accepted, StatusCode::OK, list.to_string().into_bytes())
    }

    fn written(
        &self,
        context: &Context<'_>,
        target: &Target,
        written: &WriteResult,
    ) -> Result<Response, Status> {
        let accepted = context.accepted()?;
        match written {
            WriteResult::Created(stored) => self.one(context, target, accepted, stored, StatusCode::CREATED),
            WriteResult::Updated(stored) => self.one(context, target, accepted, stored, StatusCode::OK),
            WriteResult::NotStored(value) => {
                response::encoded(accepted, StatusCode::CREATED, value.to_string().into_bytes())
            }
        }
    }
}

fn listed(stored: &StoredObject) -> crate::registry::ListedObject<'_> {
    crate::registry::ListedObject {
        object: stored.object.as_object(),
        revision: stored.revision,
        scope: stored.scope.as_str(),
    }
}

/// Reads the object in a request body: checks its kind, prunes and defaults it.
async fn read_object<B: ByteBody>(
    context: &Context<'_>,
    target: &Target,
    body: B,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    let expected = ExpectedType::of(target);
    let bytes = body::read(body).await?;
    let own = (&*expected.api_version, &*expected.kind);
    let refuse = |error: &DecodeError| expected.undecodable(error, &bytes);
    let mut document = body::decode(&context.parts.headers, &bytes, own, refuse)?;
    expected.check(&mut document.value, &bytes, target)?;
    body::apply_schema(target, &mut document, options.field_validation.unwrap_or_default(), warnings)?;
    if let Some(record) = context.record {
        record.request_object(&document.value);
    }
    Ok(document.value)
}

fn write_options(context: &Context<'_>, kind: &str) -> Result<WriteOptions, Status> {
    let options = WriteOptions::parse(context.query).map_err(|error| options_status(kind, &error))?;
    let options = options.with_user_agent(user_agent(context));
    Ok(WriteOptions { audit_annotations: context.audit_annotations.clone(), ..options })
}

/// Checks the options that depend on the kind of a patch.
fn check_patch_options(query: &Query<'_>, kind: PatchKind) -> Result<(), OptionsError> {
    match kind {
        PatchKind::Apply if query.get("fieldManager").is_none() => {
            Err(OptionsError::Required { field: "fieldManager", message: "is required for apply patch" })
        }
        PatchKind::Json | PatchKind::Merge | PatchKind::Strategic if query.get("force").is_some() => {
            Err(OptionsError::Forbidden {
                field: "force",
                message: "may not be specified for non-apply patch",
            })
        }
        _ => Ok(()),
    }
}

fn user_agent<'r>(context: &Context<'r>) -> &'r str {
    let header = context.parts.headers.get(USER_AGENT);
    header.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn delete_options<B: ByteBody>(
    context: &Context<'_>,
    target: &Target,
    body: B,
) -> Result<DeleteOptions, Status> {
    let bytes = body::read(body).await?;
    let body = match bytes.is_empty() {
        true => Value::Null,
        false => {
            let own = ("meta.k8s.io/v1", "DeleteOptions");
            let refuse = |error: &DecodeError| Status::bad_request(error.to_string());
            body::decode(&context.parts.headers, &bytes, own, refuse)?.value
        }
    };
    if let Some(record) = context.record.filter(|_| !body.is_null()) {
        record.request_object(&body);
    }
    check_options_version(target, body["apiVersion"].as_str().unwrap_or_default())?;
    let options =
        DeleteOptions::parse(context.query, body).map_err(|error| options_status("DeleteOptions", &error))?;
    Ok(DeleteOptions { audit_annotations: context.audit_annotations.clone(), ..options })
}

/// Checks the `apiVersion` of DeleteOptions. Kubernetes has them in each of its groups and in those of custom resources.
fn check_options_version(target: &Target, api_version: &str) -> Result<(), Status> {
    let is_known = match api_version.split_once('/') {
        None => ["", "v1"].contains(&api_version),
        Some((group, _)) => {
            group == "meta.k8s.io" || *group == *target.resource.name.group || is_client_scheme_group(group)
        }
    };
    if is_known {
        return Ok(());
    }
    let message = format!("no kind \"DeleteOptions\" is registered for version {api_version:?}");
    Err(Status::bad_request(message))
}

/// A patch, decoded.
enum Patch {
    Json(JsonPatch),
    Merge(Value),
    /// A strategic merge patch, with the kind whose patch strategies it uses.
    Strategic(Value, &'static BuiltinKind),
    /// A strategic merge patch of a custom resource whose kind Kubernetes' clients know.
    ClientScheme(Value, Arc<str>),
}

/// A decoded patch with its duplicate fields.
struct PatchDocument {
    patch: Patch,
    duplicates: Vec<String>,
}

impl PatchDocument {
    fn read(kind: PatchKind, target: &Target, bytes: &[u8]) -> Result<Self, Status> {
        let resource = &target.resource;
        let built_in = builtin_by_kind(&resource.name.group, &target.version, &resource.kind)
            .filter(|_| resource.origin == fairlead_names::Origin::BuiltIn);
        let mut decoded = fairlead_schema::decode_json(bytes, body::MAX_BODY).map_err(undecodable)?;
        // A strategic merge converts `1.0` to an integer; other patches of built-in kinds are decoded afterwards, which fails.
        if built_in.is_none() || kind == PatchKind::Strategic {
            fairlead_schema::whole_numbers_to_integers(&mut decoded.value);
        }
        let patch = match (kind, built_in) {
            (PatchKind::Json, _) => Patch::Json(JsonPatch::parse(decoded.value).map_err(json_patch_status)?),
            (PatchKind::Strategic, Some(kind)) => Patch::Strategic(decoded.value, kind),
            (PatchKind::Strategic, None)
                if is_client_scheme_group(&resource.name.group) && target.scale().is_none() =>
            {
                Patch::ClientScheme(decoded.value, Arc::clone(&resource.kind))
            }
            (PatchKind::Strategic, None) => return Err(Status::unsupported_media_type(&SUPPORTED)),
            (PatchKind::Merge | PatchKind::Apply, _) if decoded.value.is_object() => {
                Patch::Merge(decoded.value)
            }
            (PatchKind::Merge | PatchKind::Apply, _) => {
                let found = fairlead_schema::go_type_of(&decoded.value);
                let expected = "map[string]interface {}";
                return Err(undecodable(format!(
                    "json: cannot unmarshal {found} into Go value of type {expected}"
                )));
            }
        };
        Ok(Self { patch, duplicates: decoded.duplicate_fields })
    }

    /// Whether the patch reads or writes `metadata.managedFields`.
    fn uses_managed_fields(&self) -> bool {
        match &self.patch {
            Patch::Json(patch) => patch.refers_to(&["metadata", "managedFields"]),
            Patch::Merge(patch) | Patch::Strategic(patch, _) | Patch::ClientScheme(patch, _) => {
                patch["metadata"].get("managedFields").is_some()
            }
        }
    }

    /// The resourceVersion on which the client bases the patch.
    fn base(&self) -> Option<Revision> {
        match &self.patch {
            Patch::Json(patch) => patch.operand(&["metadata", "resourceVersion"]).and_then(revision_of),
            Patch::Merge(patch) | Patch::Strategic(patch, _) | Patch::ClientScheme(patch, _) => {
                revision_of(&patch["metadata"]["resourceVersion"])
            }
        }
    }

    fn apply(&self, old: &Value) -> Result<Value, Status> {
        let mut new = old.clone();
        match &self.patch {
            Patch::Json(patch) => patch.apply(&mut new, body::MAX_BODY).map_err(json_patch_status)?,
            Patch::Merge(patch) => apply_merge_patch(&mut new, patch.clone()),
            Patch::Strategic(patch, kind) => {
                apply_strategic_merge_patch(kind, &mut new, patch)
                    .map_err(|error: StrategicPatchError| Status::bad_request(error.to_string()))?;
            }
            Patch::ClientScheme(patch, kind) => {
                apply_client_scheme_patch(kind, &mut new, patch)
                    .map_err(|error| Status::bad_request(error.to_string()))?;
            }
        }
        Ok(new)
    }
}

/// A resourceVersion; `None` if it is not one.
fn revision_of(version: &Value) -> Option<Revision> {
    version.as_str()?.parse().ok().map(Revision)
}

fn undecodable(error: impl core::fmt::Display) -> Status {
    Status::bad_request(format!("error decoding patch: {error}"))
}

/// The message of Kubernetes does not say what is wrong. The cause does, and kubectl shows it.
fn json_patch_status(error: JsonPatchError) -> Status {
    match error {
        JsonPatchError::Malformed(_) => Status::bad_request(error.to_string()),
        JsonPatchError::TooManyOperations(_) | JsonPatchError::MoveTooLarge => {
            let message = format!("Request entity too large: {error}");
            Status::new(413, StatusReason::RequestEntityTooLarge, message)
        }
        _ => {
            let message = "the server rejected our request due to an error in our request";
            let cause = StatusCause {
                reason: "UnexpectedServerResponse".into(),
                message: error.to_string(),
                ..StatusCause::default()
            };
            let details = StatusDetails { causes: vec![cause], ..StatusDetails::default() };
            Status::new(422, StatusReason::Invalid, message).with_details(details)
        }
    }
}

/// The patch types of all kinds.
const SUPPORTED: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
