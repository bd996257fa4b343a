//! Renders objects for responses: in the requested version, whole, as metadata, or as table rows.

use fairlead_process::{Status, StatusReason};
use fairlead_schema::crd::ScalePaths;
use serde_json::{Value, json};

use crate::object::{ObjectBytes, ScopeAnnotations};
use crate::registry::{ListedObject, ServedResource, StoredObject, malformed_status, to_version_in_place};
use crate::request::Form;
use crate::resource::{Columns as _, Shape, scale_columns};

/// Renders objects of one resource in one version and form.
pub(crate) struct Renderer<'r> {
    pub(crate) resource: &'r ServedResource,
    pub(crate) version: &'r str,
    pub(crate) form: Form,
    pub(crate) annotations: ScopeAnnotations,
    /// Seconds since the epoch, for ages in tables.
    pub(crate) now: i64,
    /// The part of its object that a table row contains.
    pub(crate) included: IncludeObjectPolicy,
    /// Renders the Scale of an object.
    pub(crate) scale: Option<&'r ScalePaths>,
}

/// The part of its object that a table row contains (`includeObject`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum IncludeObjectPolicy {
    #[default]
    Metadata,
    Nothing,
    Object,
}

impl Renderer<'_> {
    /// Whether the stored bytes have the requested version, schema and form.
    pub(crate) fn is_verbatim(&self, object: ObjectBytes<'_>) -> bool {
        self.form == Form::Object
            && object.version() == self.version
            && object.schema_hash() == self.resource.schema_hash
    }

    /// Appends one object.
    ///
    /// # Errors
    /// 500 when it is malformed.
    pub(crate) fn write(&self, listed: ListedObject<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        if self.is_verbatim(listed.object) {
            listed.object.splice(listed.revision, listed.scope, self.annotations, out);
            return Ok(());
        }
        let tree = self.tree(listed)?;
        serde_json::to_writer(out, &self.shape(tree)).map_err(Status::internal)
    }

    /// Appends one object as an item of a list. Items of built-in kinds have no apiVersion and kind, as in
    /// Go's typed lists; clients take them from the list.
    ///
    /// # Errors
    /// 500 when it is malformed.
    pub(crate) fn write_item(&self, listed: ListedObject<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        let built_in = self.is_verbatim(listed.object)
            && self.resource.version(self.version).is_some_and(|own| matches!(own.shape, Shape::BuiltIn(_)));
        if built_in {
            listed.object.splice_item(listed.revision, listed.scope, self.annotations, out);
            return Ok(());
        }
        if self.resource.shared_form().is_some() && self.form == Form::Object {
            let mut tree = self.tree(listed)?;
            if let Some(fields) = tree.as_object_mut() {
                fields.remove("apiVersion");
                fields.remove("kind");
            }
            return serde_json::to_writer(out, &tree).map_err(Status::internal);
        }
        self.write(listed, out)
    }

    /// The response body for an object: a table of one row if a table was requested.
    ///
    /// # Errors
    /// 500 when it is malformed.
    pub(crate) fn response_body(&self, stored: &StoredObject) -> Result<Vec<u8>, Status> {
        let listed = ListedObject {
            object: stored.object.as_object(),
            revision: stored.revision,
            scope: stored.scope.as_str(),
        };
        let mut out = Vec::new();
        if let Some(scale) = self.scale {
            let shown = self.scale_body(scale, listed)?;
            serde_json::to_writer(&mut out, &shown).map_err(Status::internal)?;
            return Ok(out);
        }
        match self.form {
            Form::Table(version) => {
                let row = self.row(self.tree(listed)?);
                let metadata = json!({"resourceVersion": stored.revision.to_string()});
                serde_json::to_writer(&mut out, &self.table(version, &metadata, vec![row], true))
                    .map_err(Status::internal)?;
            }
            Form::AggregatedDiscovery(_) | Form::Object | Form::PartialMetadata(_) => {
                self.write(listed, &mut out)?
            }
        }
        Ok(out)
    }

    fn scale_body(&self, scale: &ScalePaths, listed: ListedObject<'_>) -> Result<Value, Status> {
        let shown = scale
            .scale_of(&self.tree(listed)?)
            .map_err(|reason| Status::new(500, StatusReason::Unknown, reason))?;
        if !shown.has_replicas {
            let path = scale.spec_path();
            return Err(Status::internal(format!("the spec replicas field {path:?} does not exist")));
        }
        let Form::Table(version) = self.form else { return Ok(self.shape(shown.object)) };
        let columns = scale_columns();
        Ok(json!({
            "kind": "Table",
            "apiVersion": format!("meta.k8s.io/{version}"),
            "metadata": {"resourceVersion": listed.revision.to_string()},
            "columnDefinitions": columns.definitions(),
            "rows": [self.row_of(columns.cells(&shown.object, self.now), shown.object)],
        }))
    }

    /// The object as a tree in the requested version.
    ///
    /// # Errors
    /// 500 when it is malformed.
    pub(crate) fn tree(&self, listed: ListedObject<'_>) -> Result<Value, Status> {
        let tree = listed
            .object
            .to_value(listed.revision, listed.scope, self.annotations)
            .map_err(|error| malformed_status(&error))?;
        let mut tree = to_version_in_place(self.resource, self.version, tree)?;
        let managed = listed.object.managed_fields();
        if !managed.is_empty()
            && let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut)
        {
            let managed = serde_json::from_slice(managed).map_err(Status::internal)?;
            metadata.insert("managedFields".into(), managed);
        }
        Ok(tree)
    }

    /// The object in the requested form, except tables.
    pub(crate) fn shape(&self, mut object: Value) -> Value {
        if let Form::PartialMetadata(version) = self.form {
            return json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": object["metadata"].take(),
            });
        }
        object
    }

    /// A row of a table.
    pub(crate) fn row(&self, object: Value) -> Value {
        let columns = self.resource.version(self.version).map(|version| &version.columns);
        let cells = columns.map(|columns| columns.cells(&object, self.now)).unwrap_or_default();
        self.row_of(cells, object)
    }

    fn row_of(&self, cells: Vec<Value>, mut object: Value) -> Value {
        let included = match self.included {
            IncludeObjectPolicy::Nothing => Value::Null,
            IncludeObjectPolicy::Object => object,
            IncludeObjectPolicy::Metadata => {
                let version = if let Form::Table(version) = self.form { version } else { "v1" };
                json!({
                    "kind": "PartialObjectMetadata",
                    "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": object["metadata"].take(),
                })
            }
        };
        json!({"cells": cells, "object": included})
    }

    /// The column definitions of a table.
    pub(crate) fn columns(&self) -> Value {
        let columns = self.resource.version(self.version).map(|version| version.columns.definitions());
        json!(columns.unwrap_or_default())
    }

    /// A table of rows. In a watch, only the first table has the column definitions.
    pub(crate) fn table(&self, version: &str, metadata: &Value, rows: Vec<Value>, headings: bool) -> Value {
        let definitions = if headings { self.columns() } else { Value::Null };
        json!({
            "kind": "Table",
            "apiVersion": format!("meta.k8s.io/{version}"),
            "metadata": metadata,
            "columnDefinitions": definitions,
            "rows": rows,
        })
    }
}
