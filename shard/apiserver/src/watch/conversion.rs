//! Events of a resource with a conversion webhook: converted in batches, in their order.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use fairlead_process::Status;
use fairlead_store::Revision;

use super::{Phase, WatchBody, error_frame};
use crate::hub::{Delivery, FrameType, ObjectChange, ObjectEvent};
use crate::object::{EncodedObject, ScopeAnnotations};
use crate::registry::{ConversionBatch, ListedObject, Selection, StoredObject, Target, WebhookConverter};
use crate::request::ListOptions;
use crate::scope::Scope;

/// The conversion of a watch's events.
pub(super) struct WatchConversion {
    converter: WebhookConverter,
    /// Whether selectors apply, so that the state before an event is needed, too.
    has_selectors: bool,
    batch: Option<EventBatch>,
    ready: VecDeque<Bytes>,
}

/// Events whose objects are being converted.
struct EventBatch {
    items: Vec<Item>,
    states: Pin<Box<dyn Future<Output = Result<Vec<StoredObject>, Status>> + Send>>,
}

enum Item {
    /// An event, whose object and previous state are the next states of the batch.
    Event(Arc<ObjectEvent>),
    Bookmark(Revision),
}

impl WatchConversion {
    /// The conversion for a watch; `None` if its resource has no webhook.
    pub(super) fn of(target: &Target, options: &ListOptions, annotations: ScopeAnnotations) -> Option<Self> {
        let converter = WebhookConverter::of(target, annotations)?;
        let has_selectors = !options.labels.is_empty() || !options.fields.is_empty();
        Some(Self { converter, has_selectors, batch: None, ready: VecDeque::new() })
    }

    fn start(&mut self, items: Vec<Item>, states: Vec<StoredObject>) {
        let converter = self.converter.clone();
        let states = Box::pin(async move { converter.convert(states).await });
        self.batch = Some(EventBatch { items, states });
    }
}

impl WatchBody {
    /// The next frame of converted events. Events that arrive during a call wait in the queue of the subscription, which is
    /// bounded, so a webhook that hangs ends the watch.
    pub(super) fn poll_converted_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let Some(conversion) = &mut self.conversion else { return Poll::Ready(None) };
            if let Some(frame) = conversion.ready.pop_front() {
                return Poll::Ready(Some(frame));
            }
            if let Some(batch) = &mut conversion.batch {
                let states = ready!(batch.states.as_mut().poll(context));
                let items = conversion.batch.take().map(|batch| batch.items).unwrap_or_default();
                let frames = self.converted_frames(items, states);
                if let Some(conversion) = &mut self.conversion {
                    conversion.ready = frames;
                }
                continue;
            }
            let has_selectors = conversion.has_selectors;
            let (items, states) = self.pending_events(context, has_selectors);
            if items.is_empty() {
                return if self.phase == Phase::Done { Poll::Ready(None) } else { Poll::Pending };
            }
            if let Some(conversion) = &mut self.conversion {
                conversion.start(items, states);
            }
        }
    }

    /// The events that have arrived, up to a batch, and the states of their objects.
    fn pending_events(
        &mut self,
        context: &mut Context<'_>,
        has_selectors: bool,
    ) -> (Vec<Item>, Vec<StoredObject>) {
        let (mut items, mut states) = (Vec::new(), Vec::new());
        let mut batch = ConversionBatch::default();
        while !batch.is_full()
            && let Poll::Ready(Some(delivery)) = self.poll_delivery(context)
        {
            let event = match delivery {
                Delivery::Progress(revision) => {
                    items.push(Item::Bookmark(revision));
                    // A bookmark ends the batch, so that there are not more of them than events.
                    break;
                }
                Delivery::Event(event) => event,
            };
            let mut add = |object: &EncodedObject, revision: Revision| {
                let scope = Scope::new(&event.scope);
                let stored = StoredObject { object: object.clone(), revision, scope };
                batch.add(&stored);
                states.push(stored);
            };
            add(event.change.object(), event.revision);
            if has_selectors && let ObjectChange::Updated { previous, .. } = &event.change {
                // Its own revision is not known.
                add(previous, Revision(0));
            }
            items.push(Item::Event(event));
        }
        (items, states)
    }

    fn converted_frames(
        &mut self,
        items: Vec<Item>,
        states: Result<Vec<StoredObject>, Status>,
    ) -> VecDeque<Bytes> {
        let mut frames = VecDeque::new();
        let mut states = match states {
            Ok(states) => states.into_iter(),
            Err(status) => {
                self.phase = Phase::Done;
                frames.push_back(error_frame(&status));
                return frames;
            }
        };
        let has_selectors = self.conversion.as_ref().is_some_and(|conversion| conversion.has_selectors);
        for item in items {
            match item {
                Item::Bookmark(revision) => frames.push_back(self.bookmark(revision, false)),
                Item::Event(event) => {
                    let object = states.next();
                    let has_previous = has_selectors && matches!(event.change, ObjectChange::Updated { .. });
                    let previous = if has_previous { states.next() } else { None };
                    let Some(object) = object else { break };
                    frames.extend(self.converted_frame(&event, &object, previous.as_ref()));
                }
            }
        }
        frames
    }

    /// The frame of an event with its converted states.
    fn converted_frame(
        &mut self,
        event: &ObjectEvent,
        object: &StoredObject,
        previous: Option<&StoredObject>,
    ) -> Option<Bytes> {
        // The selectors were checked when the watch was opened.
        let selection = Selection::of(&self.target, &self.options).ok()?;
        let is_selected = selection.selects(object.object.as_object());
        let was_selected =
            previous.map_or(is_selected, |previous| selection.selects(previous.object.as_object()));
        let frame_type = match (&event.change, was_selected, is_selected) {
            (ObjectChange::Created(_), _, true) => FrameType::Added,
            (ObjectChange::Deleted(_), _, true) | (ObjectChange::Updated { .. }, true, false) => {
                FrameType::Deleted
            }
            (ObjectChange::Updated { .. }, true, true) => FrameType::Modified,
            (ObjectChange::Updated { .. }, false, true) => FrameType::Added,
            _ => return None,
        };
        // An object that leaves the selection is sent as it was, with the revision of the change.
        let shown = if is_selected { object } else { previous? };
        let scope = shown.scope.clone();
        let object = shown.object.as_object();
        let listed = ListedObject { object, revision: event.revision, scope: scope.as_str() };
        Some(self.frame(frame_type, listed))
    }
}
