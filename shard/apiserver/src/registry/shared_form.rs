//! Built-in resources whose objects are stored as those of another resource: events exist in two groups.

use std::sync::LazyLock;

use fairlead_names::{Origin, ResourceName};
use fairlead_schema::builtin::{event_to_core_form, event_to_events_form};
use serde_json::Value;

use super::ServedResource;

/// The schema hash of a resource with a shared form. No stored object has it, so none is sent as it is stored.
pub(super) const SHARED_FORM_SCHEMA: u64 = 1;

/// The stored form of a resource.
pub(crate) struct SharedForm {
    /// The resource under which the objects are stored.
    pub(crate) storage: ResourceName,
    /// Converts an object to the stored form.
    pub(crate) store: fn(Value) -> Value,
    /// Converts an object to the form of the resource.
    pub(crate) serve: fn(Value) -> Value,
}

static EVENTS: LazyLock<SharedForm> = LazyLock::new(|| SharedForm {
    storage: ResourceName::new("", "events"),
    store: event_to_core_form,
    serve: event_to_events_form,
});

impl ServedResource {
    /// The stored form, if it is another one than the resource's own.
    pub(crate) fn shared_form(&self) -> Option<&'static SharedForm> {
        let is_shared = self.origin == Origin::BuiltIn
            && &*self.name.group == "events.k8s.io"
            && &*self.name.resource == "events";
        is_shared.then(|| &*EVENTS)
    }

    /// The resource under which the objects are stored and watched.
    pub(crate) fn storage_name(&self) -> &ResourceName {
        self.shared_form().map_or(&self.name, |form| &form.storage)
    }

    /// The path of a selectable field in a stored object.
    pub(super) fn stored_field(group: &str, field: &str) -> String {
        if group != "events.k8s.io" {
            return format!(".{field}");
        }
        match field.strip_prefix("regarding.") {
            Some(part) => format!(".involvedObject.{part}"),
            None if field == "reportingController" => ".reportingComponent".to_owned(),
            None => format!(".{field}"),
        }
    }
}
