//! The label and field selection of a list or watch.

use fairlead_process::Status;

use super::{SelectableField, ServedResource, Target};
use crate::hub::{Labels, ObjectEvent};
use crate::object::{ObjectBytes, ObjectMetaRef};
use crate::request::{FieldSelector, LabelSelector, ListOptions};

/// The selectors of a request, checked against the selectable fields of the resource.
pub struct Selection<'r> {
    labels: &'r LabelSelector,
    fields: &'r FieldSelector,
    namespace: Option<&'r str>,
    only_deleting: bool,
    selectable: &'r [SelectableField],
}

impl<'r> Selection<'r> {
    /// Checks that every field may be selected.
    ///
    /// # Errors
    /// 400 for a field that may not.
    pub fn of(target: &'r Target, options: &'r ListOptions) -> Result<Self, Status> {
        let selectable = selectable_fields(&target.resource, &target.version);
        for term in options.fields.terms() {
            let metadata = matches!(&*term.field, "metadata.name" | "metadata.namespace");
            if !metadata && !selectable.iter().any(|field| *field.name == *term.field) {
                let built_in = target.resource.origin == fairlead_names::Origin::BuiltIn;
                return Err(Status::bad_request(if built_in && selectable.is_empty() {
                    format!(
                        "{:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                        term.field
                    )
                } else {
                    format!("field label not supported: {}", term.field)
                }));
            }
        }
        // The namespace is part of the storage range unless the scope is a wildcard.
        let namespace = if target.scopes.one().is_some() { None } else { target.namespace.as_deref() };
        Ok(Self {
            labels: &options.labels,
            fields: &options.fields,
            namespace,
            only_deleting: options.only_deleting,
            selectable,
        })
    }

    /// Whether every object is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.namespace.is_none() && !self.only_deleting
    }

    /// Whether an object is selected. Costs nothing without selectors, otherwise one metadata parse, and one parse
    /// of the whole object per term on a field outside of metadata.
    pub fn selects(&self, object: ObjectBytes<'_>) -> bool {
        if self.is_everything() {
            return true;
        }
        let Ok(meta) = ObjectMetaRef::parse(object) else {
            return false;
        };
        (!self.only_deleting || meta.deletion_timestamp.is_some())
            && self.selects_state(|key| meta.label(key), (meta.namespace.as_deref(), &meta.name), object)
    }

    /// Whether a state of an object is selected that an event carries. Costs nothing without selectors; the metadata are parsed
    /// once per event, not per watcher.
    pub(crate) fn selects_in_event(&self, event: &ObjectEvent, state: EventState<'_>) -> bool {
        if self.is_everything() {
            return true;
        }
        let EventState { labels, object } = state;
        let name = (event.namespace.as_deref(), &*event.name);
        let selected = labels.is_some_and(|labels| self.selects_state(|key| labels.get(key), name, object));
        selected && (!self.only_deleting || is_deleting(object))
    }

    fn selects_state<'l>(
        &self,
        label: impl Fn(&str) -> Option<&'l str>,
        (namespace, name): (Option<&str>, &str),
        object: ObjectBytes<'_>,
    ) -> bool {
        if !self.labels.selects(label) || self.namespace.is_some_and(|own| namespace != Some(own)) {
            return false;
        }
        self.fields.selects(|field| match field {
            "metadata.name" => name.to_owned(),
            "metadata.namespace" => namespace.unwrap_or_default().to_owned(),
            _ => {
                let Some(selectable) = self.selectable.iter().find(|selectable| *selectable.name == *field)
                else {
                    return String::new();
                };
                let tree: serde_json::Value = serde_json::from_slice(object.json()).unwrap_or_default();
                selectable.value(&tree)
            }
        })
    }
}

fn is_deleting(object: ObjectBytes<'_>) -> bool {
    ObjectMetaRef::parse(object).is_ok_and(|meta| meta.deletion_timestamp.is_some())
}

/// A state of an object in an event, with its labels.
#[derive(Clone, Copy)]
pub(crate) struct EventState<'e> {
    pub(crate) labels: Option<&'e Labels>,
    pub(crate) object: ObjectBytes<'e>,
}

/// The fields of a version that may be selected.
pub(crate) fn selectable_fields<'r>(resource: &'r ServedResource, version: &str) -> &'r [SelectableField] {
    resource.version(version).map_or(&[], |version| &version.selectable_fields)
}
