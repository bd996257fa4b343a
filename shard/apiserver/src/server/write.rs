//! Create, update, patch and delete on the wire.

use std::sync::Arc;

use bytes::Bytes;
use fairlead_process::{Status, StatusDetails, StatusReason};
use fairlead_schema::builtin::{BuiltinKind, builtin_by_kind};
use fairlead_schema::patch::{
    JsonPatch, JsonPatchError, StrategicPatchError, apply_client_scheme_patch, apply_merge_patch,
    apply_strategic_merge_patch, is_client_scheme_group,
};
use http::{HeaderMap, StatusCode};
use http_body::Body;
use parking_lot::Mutex;
use serde_json::Value;

use super::body::{self, Document};
use super::read::{list_options, options_status};
use super::{ApiServer, Context, negotiation_status};
use crate::host::Host;
use crate::registry::{DeleteResult, StoredObject, Target, WriteResult, group_resource};
use crate::request::{DeleteOptions, PatchKind, WriteOptions};
use crate::response::{self, Response};

impl<H: Host> ApiServer<H> {
    pub(super) async fn create<B>(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: Option<&str>,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        if name.is_some() && target.subresource.is_none() {
            return Err(super::target::not_allowed(&target.resource, target.verb));
        }
        let options = write_options(context, "CreateOptions")?;
        let new = read_object(context, target, body, &options, warnings).await?;
        let written = target.resource.registry.create(target, new, &options).await;
        warnings.extend(options.warnings.take());
        self.written(context, target, &written?)
    }

    pub(super) async fn update<B>(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: &str,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let options = write_options(context, "UpdateOptions")?;
        let new = read_object(context, target, body, &options, warnings).await?;
        // The registry checks the name only if the object exists.
        crate::registry::check_name(&new, name)?;
        let written = target.resource.registry.update(target, name, &|_| Ok(new.clone()), &options).await;
        warnings.extend(options.warnings.take());
        self.written(context, target, &written?)
    }

    pub(super) async fn patch<B>(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: &str,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let options = write_options(context, "PatchOptions")?;
        let bytes = body::read(body).await?;
        if let Some(record) = context.record {
            record.request_patch(&bytes);
        }
        let patch = PatchDocument::read(&context.parts.headers, target, &bytes)?;
        let found = Mutex::new(Vec::new());
        let change = |old: Option<&Value>| {
            let old = old.ok_or_else(|| Status::not_found(group_resource(&target.resource), name))?;
            let mut document = Document { value: patch.apply(old)?, duplicates: patch.duplicates.clone() };
            body::check_kind(target, &mut document.value)?;
            let mut warnings = Vec::new();
            body::apply_schema(target, &mut document, options.field_validation, &mut warnings)?;
            *found.lock() = warnings;
            Ok(document.value)
        };
        let written = target.resource.registry.update(target, name, &change, &options).await;
        warnings.extend(found.into_inner());
        warnings.extend(options.warnings.take());
        self.written(context, target, &written?)
    }

    pub(super) async fn delete<B>(
        &self,
        context: &Context<'_>,
        target: &Target,
        name: &str,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let options = delete_options(context, body).await?;
        let accepted = context.accepted()?;
        let deleted = target.resource.registry.delete(target, name, &options).await;
        warnings.extend(options.warnings.take());
        match deleted? {
            DeleteResult::Marked(stored) => self.one(context, target, accepted, &stored, StatusCode::OK),
            DeleteResult::Gone(stored) => {
                let resource = &target.resource;
                // The object is deleted already, so the response must not be an error.
                let meta = crate::object::ObjectMetaRef::parse(stored.object.as_object()).unwrap_or_default();
                let details = StatusDetails {
                    name: name.to_owned(),
                    group: resource.name.group.to_string(),
                    kind: resource.name.resource.to_string(),
                    uid: meta.uid.into_owned(),
                    ..StatusDetails::default()
                };
                response::encoded(accepted, StatusCode::OK, Status::success_json(&details))
            }
        }
    }

    pub(super) async fn delete_collection<B>(
        &self,
        context: &Context<'_>,
        target: &Target,
        body: B,
        warnings: &mut Vec<String>,
    ) -> Result<Response, Status>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let selection = list_options(context.query, false)?;
        let options = delete_options(context, body).await?;
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
async fn read_object<B>(
    context: &Context<'_>,
    target: &Target,
    body: B,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Value, Status>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let (api_version, kind) = body::expected_kind(target);
    let bytes = body::read(body).await?;
    let mut document = body::decode(&context.parts.headers, &bytes, (&api_version, &kind))?;
    body::check_kind(target, &mut document.value)?;
    body::apply_schema(target, &mut document, options.field_validation, warnings)?;
    if let Some(record) = context.record {
        record.request_object(&document.value);
    }
    Ok(document.value)
}

fn write_options(context: &Context<'_>, kind: &str) -> Result<WriteOptions, Status> {
    let options = WriteOptions::parse(context.query).map_err(|error| options_status(kind, &error))?;
    Ok(WriteOptions { audit_annotations: context.audit_annotations.clone(), ..options })
}

async fn delete_options<B>(context: &Context<'_>, body: B) -> Result<DeleteOptions, Status>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let bytes = body::read(body).await?;
    let body = match bytes.is_empty() {
        true => Value::Null,
        false => body::decode(&context.parts.headers, &bytes, ("meta.k8s.io/v1", "DeleteOptions"))?.value,
    };
    if let Some(record) = context.record.filter(|_| !body.is_null()) {
        record.request_object(&body);
    }
    let options =
        DeleteOptions::parse(context.query, body).map_err(|error| options_status("DeleteOptions", &error))?;
    Ok(DeleteOptions { audit_annotations: context.audit_annotations.clone(), ..options })
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
    fn read(headers: &HeaderMap, target: &Target, bytes: &[u8]) -> Result<Self, Status> {
        let kind = PatchKind::of(headers).map_err(|error| negotiation_status(&error))?;
        let resource = &target.resource;
        let built_in = builtin_by_kind(&resource.name.group, &target.version, &resource.kind)
            .filter(|_| resource.origin == fairlead_names::Origin::BuiltIn);
        if kind == PatchKind::Apply {
            // Not supported: a merge without field ownership would silently lose fields.
            let mut status = Status::unsupported_media_type(&SUPPORTED);
            status.message = format!("server-side apply is not supported yet; {}", status.message);
            return Err(status);
        }
        let decoded = fairlead_schema::decode_json(bytes, body::MAX_BODY).map_err(undecodable)?;
        let patch = match (kind, built_in) {
            (PatchKind::Json, _) => Patch::Json(JsonPatch::parse(decoded.value).map_err(json_patch_status)?),
            (PatchKind::Strategic, Some(kind)) => Patch::Strategic(decoded.value, kind),
            (PatchKind::Strategic, None)
                if is_client_scheme_group(&resource.name.group) && target.scale().is_none() =>
            {
                Patch::ClientScheme(decoded.value, Arc::clone(&resource.kind))
            }
            (PatchKind::Strategic, None) => return Err(Status::unsupported_media_type(&SUPPORTED[..2])),
            (PatchKind::Merge | PatchKind::Apply, _) if decoded.value.is_object() => {
                Patch::Merge(decoded.value)
            }
            (PatchKind::Merge | PatchKind::Apply, _) => {
                return Err(Status::bad_request("the merge patch is not a JSON object"));
            }
        };
        Ok(Self { patch, duplicates: decoded.duplicate_fields })
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

fn undecodable(error: impl core::fmt::Display) -> Status {
    Status::bad_request(format!("error decoding patch: {error}"))
}

fn json_patch_status(error: JsonPatchError) -> Status {
    match error {
        JsonPatchError::Malformed(_) => Status::bad_request(error.to_string()),
        _ => Status::new(422, StatusReason::Invalid, error.to_string()),
    }
}

const SUPPORTED: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];
