//! The body of a watch: frames of events, ready to send.

mod conversion;

use core::task::{Context, Poll, ready};
use std::ops::ControlFlow;

use bytes::Bytes;
use fairlead_process::Status;
use fairlead_store::Revision;
use serde_json::{Value, json};

use self::conversion::WatchConversion;
use crate::hub::{Backlog, Delivery, EventLabels, FrameType, Labels, ObjectChange, ObjectEvent};
use crate::metrics::LongRunning;
use crate::object::{EncodedObject, ScopeAnnotations};
use crate::registry::{EventState, Selection};
use crate::registry::{ListCursor, ListedObject, OpenWatch, Target};
use crate::render::{IncludeObjectPolicy, Renderer};
use crate::request::{Form, InitialEvents, ListOptions};
use crate::scope::Scope;

/// The size up to which pending events are sent in one chunk.
const CHUNK: usize = 64 * 1024;
/// Objects of a chunk of the initial state that are parsed, for tables, metadata and other versions: about 0.5 ms.
const PARSED_PER_CHUNK: usize = 16;

/// The stream of a watch's frames. An idle watch holds its request and a subscription: some hundred bytes.
pub struct WatchBody {
    target: Target,
    options: ListOptions,
    view: View,
    watched: OpenWatch,
    initial: Option<Box<dyn ListCursor>>,
    backlog: Backlog,
    phase: Phase,
    headings_sent: bool,
    /// Counts this watch and its events.
    observed: LongRunning,
    /// For a resource with a conversion webhook.
    conversion: Option<Box<WatchConversion>>,
}

/// The requested form of the objects in the stream.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) form: Form,
    pub(crate) annotations: ScopeAnnotations,
    pub(crate) included: IncludeObjectPolicy,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Phase {
    /// Sends the initial state.
    Initial,
    /// Sends the events before the subscription.
    Backlog,
    /// Sends the events of the subscription.
    Live,
    /// The stream has ended.
    Done,
}

impl WatchBody {
    pub(crate) fn new(
        target: Target,
        options: ListOptions,
        view: View,
        mut watched: OpenWatch,
        observed: LongRunning,
    ) -> Self {
        let options = watched.selection.take().map_or(options, |narrower| *narrower);
        let initial = watched.initial.take();
        let backlog = core::mem::take(&mut watched.backlog);
        let conversion = WatchConversion::of(&target, &options, view.annotations).map(Box::new);
        let (phase, headings_sent) = (Phase::Initial, false);
        Self { target, options, view, watched, initial, backlog, phase, headings_sent, observed, conversion }
    }

    /// The next chunk of frames: all that is pending, up to [`CHUNK`] bytes. A single
    /// shared frame is sent without a copy.
    pub(crate) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.phase == Phase::Initial {
            return self.poll_initial(context);
        }
        let mut chunk = Chunk::default();
        while chunk.len() < CHUNK {
            match self.poll_frame(context) {
                Poll::Ready(Some(frame)) => chunk.push(frame),
                Poll::Ready(None) if chunk.is_empty() => return Poll::Ready(None),
                Poll::Pending if chunk.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some(chunk.into_bytes()))
    }

    /// The next frame that the selectors do not filter out.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.conversion.is_some() {
            return self.poll_converted_frame(context);
        }
        loop {
            match ready!(self.poll_delivery(context)) {
                None => return Poll::Ready(None),
                Some(Delivery::Event(event)) => {
                    if let Some(frame) = self.event(&event) {
                        return Poll::Ready(Some(frame));
                    }
                }
                Some(Delivery::Progress(revision)) => {
                    return Poll::Ready(Some(self.bookmark(revision, false)));
                }
            }
        }
    }

    /// The next event or progress after the initial state.
    fn poll_delivery(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        loop {
            if self.phase == Phase::Live && self.has_ended(context) {
                self.phase = Phase::Done;
            }
            match self.phase {
                // `poll_initial` sends these.
                Phase::Initial => self.phase = Phase::Backlog,
                Phase::Backlog => match self.backlog.next() {
                    Some(event) => return Poll::Ready(Some(Delivery::Event(event))),
                    None => {
                        self.backlog = Backlog::default();
                        self.phase = Phase::Live;
                    }
                },
                Phase::Live => match ready!(self.watched.subscription.poll_next(context)) {
                    Ok(Delivery::Event(event)) if event.revision <= self.watched.after => {}
                    Ok(Delivery::Progress(revision)) => {
                        return Poll::Ready(Some(Delivery::Progress(revision.max(self.watched.after))));
                    }
                    Ok(event) => return Poll::Ready(Some(event)),
                    // A clean end, whatever the reason: the client resumes from the last version that it got.
                    Err(_) => self.phase = Phase::Done,
                },
                Phase::Done => return Poll::Ready(None),
            }
        }
    }

    fn has_ended(&mut self, context: &mut Context<'_>) -> bool {
        let Some(ended) = &mut self.watched.ended else { return false };
        ended.as_mut().poll(context).is_ready()
    }

    /// The next chunk of the initial state, read from the store when the client takes it.
    fn poll_initial(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(mut cursor) = self.initial.take() else {
            self.phase = Phase::Backlog;
            return self.poll_chunk(context);
        };
        let mut out = Vec::new();
        let mut parsed = 0;
        let end = cursor.poll_step(context, &mut |listed: ListedObject<'_>| {
            parsed += usize::from(!self.renderer().is_verbatim(listed.object));
            self.append_frame(FrameType::Added, listed, &mut out);
            let is_full = out.len() >= CHUNK || parsed >= PARSED_PER_CHUNK || self.phase == Phase::Done;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let Poll::Ready(end) = end else {
            self.initial = Some(cursor);
            return Poll::Pending;
        };
        match end {
            Ok(None) if self.phase == Phase::Done => {}
            Ok(None) => self.initial = Some(cursor),
            Ok(Some(_)) if self.phase == Phase::Done => {}
            Ok(Some(_)) => {
                self.phase = Phase::Backlog;
                // A watch without a version gets it, too, as in Kubernetes.
                let ends_state = self.options.initial_events != Some(InitialEvents::Skip);
                if ends_state && self.options.allows_bookmarks {
                    out.extend_from_slice(&self.bookmark(self.watched.after, true));
                }
                if out.is_empty() {
                    return self.poll_chunk(context);
                }
            }
            Err(status) => {
                self.phase = Phase::Done;
                out.extend_from_slice(&error_frame(&status));
            }
        }
        if out.is_empty() {
            // The step selected nothing. Other tasks run before the next one.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(out.into()))
    }

    /// The frame of an event for this watch: an object that enters the selection is ADDED, one that leaves it DELETED.
    fn event(&mut self, event: &ObjectEvent) -> Option<Bytes> {
        // The selectors were checked when the watch was opened.
        let selection = Selection::of(&self.target, &self.options).ok()?;
        let selected = |object: &EncodedObject, labels: fn(&EventLabels) -> Option<&Labels>| {
            let is_everything = selection.is_everything();
            let labels = if is_everything { None } else { labels(event.labels()) };
            selection.selects_in_event(event, EventState { labels, object: object.as_object() })
        };
        let is_selected = |object: &EncodedObject| selected(object, |labels| labels.object.as_ref());
        let was_selected = |object: &EncodedObject| selected(object, |labels| labels.previous.as_ref());
        let (frame_type, object) = match &event.change {
            ObjectChange::Created(object) => (is_selected(object).then_some(FrameType::Added)?, object),
            ObjectChange::Deleted(object) => (is_selected(object).then_some(FrameType::Deleted)?, object),
            ObjectChange::Updated { object, previous } => match (was_selected(previous), is_selected(object))
            {
                (true, true) => (FrameType::Modified, object),
                (false, true) => (FrameType::Added, object),
                // The last state that was selected, with the revision of the change.
                (true, false) => (FrameType::Deleted, previous),
                (false, false) => return None,
            },
        };
        let listed =
            ListedObject { object: object.as_object(), revision: event.revision, scope: &event.scope };
        let is_shared = core::ptr::eq(object, event.change.object()) && self.watched.shown_scope.is_none();
        if is_shared && self.renderer().is_verbatim(listed.object) {
            let frame = event.frame(frame_type, self.view.annotations);
            self.observed.event(frame.len());
            return Some(frame);
        }
        Some(self.frame(frame_type, listed))
    }

    fn frame(&mut self, frame_type: FrameType, listed: ListedObject<'_>) -> Bytes {
        let mut out = Vec::with_capacity(1024);
        self.append_frame(frame_type, listed, &mut out);
        out.into()
    }

    fn append_frame(&mut self, frame_type: FrameType, listed: ListedObject<'_>, out: &mut Vec<u8>) {
        let shown_scope = self.watched.shown_scope.clone();
        let scope = shown_scope.as_ref().map_or(listed.scope, Scope::as_str);
        let listed = ListedObject { scope, ..listed };
        let start = out.len();
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(frame_type.as_str().as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        let rendered = match self.view.form {
            Form::Table(version) => {
                let renderer = self.renderer();
                renderer.tree(listed).and_then(|tree| {
                    let metadata = json!({"resourceVersion": listed.revision.to_string()});
                    let table =
                        renderer.table(version, &metadata, vec![renderer.row(tree)], !self.headings_sent);
                    serde_json::to_writer(&mut *out, &table).map_err(Status::internal)
                })
            }
            Form::AggregatedDiscovery(_) | Form::Object | Form::PartialMetadata(_) => {
                self.renderer().write(listed, out)
            }
        };
        self.headings_sent = true;
        if let Err(status) = rendered {
            self.phase = Phase::Done;
            out.truncate(start);
            out.extend_from_slice(&error_frame(&status));
            return;
        }
        out.extend_from_slice(b"}\n");
        self.observed.event(out.len() - start);
    }

    /// A bookmark: an object of the requested kind that has only a resourceVersion.
    fn bookmark(&mut self, revision: Revision, ends_state: bool) -> Bytes {
        let resource = &self.target.resource;
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if ends_state {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.view.form {
            Form::PartialMetadata(version) => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": metadata,
            }),
            Form::Table(version) => {
                let renderer = self.renderer();
                let row = json!({"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}});
                let list = json!({"resourceVersion": revision.to_string()});
                renderer.table(version, &list, vec![row], !self.headings_sent)
            }
            Form::AggregatedDiscovery(_) | Form::Object => json!({
                "kind": *resource.kind,
                "apiVersion": resource.api_version(&self.target.version),
                "metadata": metadata,
            }),
        };
        self.headings_sent = true;
        line(&json!({"type": "BOOKMARK", "object": object}))
    }

    fn renderer(&self) -> Renderer<'_> {
        Renderer {
            resource: &self.target.resource,
            version: &self.target.version,
            form: self.view.form,
            annotations: self.view.annotations,
            now: jiff::Timestamp::now().as_second(),
            included: self.view.included,
            scale: None,
        }
    }
}

/// The ERROR frame, after which a watch ends.
pub(crate) fn error_frame(status: &Status) -> Bytes {
    let mut out = b"{\"type\":\"ERROR\",\"object\":".to_vec();
    out.extend_from_slice(status.to_json().trim_ascii_end());
    out.extend_from_slice(b"}\n");
    out.into()
}

fn line(value: &Value) -> Bytes {
    let mut text = value.to_string();
    text.push('\n');
    text.into()
}

/// Joins frames; a single frame is not copied.
#[derive(Default)]
struct Chunk {
    first: Option<Bytes>,
    joined: Vec<u8>,
}

impl Chunk {
    fn len(&self) -> usize {
        self.joined.len() + self.first.as_ref().map_or(0, Bytes::len)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&mut self, frame: Bytes) {
        if self.joined.is_empty() && self.first.is_none() {
            self.first = Some(frame);
            return;
        }
        if let Some(first) = self.first.take() {
            self.joined.extend_from_slice(&first);
        }
        self.joined.extend_from_slice(&frame);
    }

    fn into_bytes(self) -> Bytes {
        self.first.unwrap_or_else(|| self.joined.into())
    }
}
