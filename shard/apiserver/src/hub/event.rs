//! A change of an object, decoded once and shared by all its watchers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fairlead_names::{KeyCodec, Origin, ResourceName};
use fairlead_store::{Event, Revision};

use crate::object::{EncodedObject, MalformedObject, ObjectBytes, ObjectMetaRef, ScopeAnnotations};

/// A change of one object.
pub struct ObjectEvent {
    /// The commit of the change. All events of a commit have the same revision.
    pub revision: Revision,
    /// The resource.
    pub resource: ResourceName,
    /// The origin of its definition.
    pub origin: Origin,
    /// The scope's segments joined by `/`.
    pub scope: Arc<str>,
    /// The namespace.
    pub namespace: Option<Box<str>>,
    /// The name.
    pub name: Box<str>,
    /// The change.
    pub change: ObjectChange,
    frames: [OnceLock<Bytes>; 3],
    labels: OnceLock<EventLabels>,
}

/// A change of an object.
#[derive(Clone, Debug)]
pub enum ObjectChange {
    /// The object was created.
    Created(EncodedObject),
    /// The object was updated.
    Updated {
        /// The new state.
        object: EncodedObject,
        /// The old state.
        previous: EncodedObject,
    },
    /// The object was deleted; its last state.
    Deleted(EncodedObject),
}

impl ObjectChange {
    /// The state in the watch event: the new one, or the last one of a deleted object.
    pub fn object(&self) -> &EncodedObject {
        match self {
            Self::Created(object) | Self::Updated { object, .. } | Self::Deleted(object) => object,
        }
    }

    /// The state before the change.
    pub fn previous(&self) -> Option<&EncodedObject> {
        match self {
            Self::Created(_) => None,
            Self::Updated { previous, .. } => Some(previous),
            Self::Deleted(object) => Some(object),
        }
    }
}

/// The labels of an event's states; `None` for a malformed object, which no selector selects.
pub(crate) struct EventLabels {
    /// Of the state in the watch event.
    pub(crate) object: Option<Labels>,
    /// Of the state before an update.
    pub(crate) previous: Option<Labels>,
}

/// The labels of an object.
pub(crate) struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of a label.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| **own == *key).map(|(_, value)| &**value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// The type of a watch event on the wire. The same change can have different types for different selectors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FrameType {
    Added,
    Modified,
    Deleted,
}

impl FrameType {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl ObjectEvent {
    /// Decodes one event of the store. Copies the parts of the key; the value is shared.
    ///
    /// # Errors
    /// [`MalformedObject`] when key or value are of another layout.
    pub fn decode(revision: Revision, event: &Event, codec: &KeyCodec) -> Result<Self, MalformedObject> {
        let key = codec.decode(&event.key).map_err(|_| MalformedObject)?;
        let origin = match key.origin {
            None => Origin::BuiltIn,
            Some(fairlead_names::CUSTOM_RESOURCES) => Origin::Custom,
            Some(identity) => Origin::Identity(identity.into()),
        };
        let previous =
            event.previous.as_ref().map(|record| EncodedObject::parse(record.value.clone())).transpose()?;
        let object = event.value.clone().map(EncodedObject::parse).transpose()?;
        let change = match (object, previous) {
            (Some(object), None) => ObjectChange::Created(object),
            (Some(object), Some(previous)) => ObjectChange::Updated { object, previous },
            (None, Some(previous)) => ObjectChange::Deleted(previous),
            (None, None) => return Err(MalformedObject),
        };
        Ok(Self {
            revision,
            resource: ResourceName::new(key.group, key.resource),
            origin,
            scope: key.scope.into(),
            namespace: key.namespace.map(Into::into),
            name: key.name.into(),
            change,
            frames: Default::default(),
            labels: OnceLock::new(),
        })
    }

    /// The whole frame of a JSON watch in the stored version, built at most once per type and shared by
    /// all watchers. A deleted object carries the revision of its deletion.
    pub(crate) fn frame(&self, frame_type: FrameType, annotations: ScopeAnnotations) -> Bytes {
        let build = || {
            let mut out = Vec::with_capacity(1024);
            out.extend_from_slice(b"{\"type\":\"");
            out.extend_from_slice(frame_type.as_str().as_bytes());
            out.extend_from_slice(b"\",\"object\":");
            self.change.object().as_object().splice(self.revision, &self.scope, annotations, &mut out);
            out.extend_from_slice(b"}\n");
            out.into()
        };
        self.frames[frame_type as usize].get_or_init(build).clone()
    }

    /// The labels before and after the change, parsed at most once and shared by all watchers that select by labels.
    pub(crate) fn labels(&self) -> &EventLabels {
        let labels = |object: &EncodedObject| {
            let meta = ObjectMetaRef::parse(object.as_object()).ok()?;
            Some(Labels(meta.labels.iter().map(|(key, value)| ((**key).into(), (**value).into())).collect()))
        };
        self.labels.get_or_init(|| match &self.change {
            ObjectChange::Updated { object, previous } => {
                EventLabels { object: labels(object), previous: labels(previous) }
            }
            ObjectChange::Created(object) | ObjectChange::Deleted(object) => {
                EventLabels { object: labels(object), previous: None }
            }
        })
    }

    /// The metadata of [`object`](Self::object).
    ///
    /// # Errors
    /// [`MalformedObject`].
    pub fn metadata(&self) -> Result<ObjectMetaRef<'_>, MalformedObject> {
        ObjectMetaRef::parse(self.object())
    }

    /// The state in the watch event.
    pub fn object(&self) -> ObjectBytes<'_> {
        self.change.object().as_object()
    }

    /// Approximate memory of the event and its objects, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let previous = match &self.change {
            ObjectChange::Updated { previous, .. } => previous.stored().len(),
            ObjectChange::Created(_) | ObjectChange::Deleted(_) => 0,
        };
        size_of::<Self>() + self.change.object().stored().len() + previous
    }

    /// Whether the object was deleted.
    pub fn is_deletion(&self) -> bool {
        matches!(self.change, ObjectChange::Deleted(_))
    }
}
