//! A list whose objects a webhook converts, one batch after the other.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::ControlFlow;

use fairlead_process::Status;
use fairlead_store::Revision;

use super::converter::{ConversionBatch, WebhookConverter};
use crate::registry::cursor::{ListCursor, StoreCursor};
use crate::registry::{ListEnd, ListedObject, Selection, StoredObject, Target, Visitor};
use crate::request::ListOptions;

/// A list in the requested version. Selectors apply to the converted objects, so a page may have fewer objects than its limit.
pub(in crate::registry) struct ConvertedCursor {
    source: StoreCursor,
    converter: WebhookConverter,
    target: Target,
    options: ListOptions,
    stage: Stage,
}

type Conversion = Pin<Box<dyn Future<Output = Result<Vec<StoredObject>, Status>> + Send>>;

enum Stage {
    Reading,
    Converting(Conversion, Option<ListEnd>),
    Sending(VecDeque<StoredObject>, Option<ListEnd>),
}

impl ConvertedCursor {
    /// The objects of `source`, which reads with [`ListOptions::before_conversion`] of `options`.
    pub(in crate::registry) fn new(
        source: StoreCursor,
        converter: WebhookConverter,
        target: Target,
        options: ListOptions,
    ) -> Self {
        Self { source, converter, target, options, stage: Stage::Reading }
    }

    fn read(&mut self) -> Result<Stage, Status> {
        let mut found = Vec::new();
        let mut batch = ConversionBatch::default();
        let end = self.source.step(&mut |listed: ListedObject<'_>| {
            found.extend(StoredObject::copied(listed));
            found.last().into_iter().for_each(|stored| batch.add(stored));
            if batch.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let converter = self.converter.clone();
        Ok(Stage::Converting(Box::pin(async move { converter.convert(found).await }), end))
    }

    /// Visits converted objects until the visitor breaks. Returns whether all of them were visited.
    fn send(&self, objects: &mut VecDeque<StoredObject>, visit: &mut Visitor<'_>) -> Result<bool, Status> {
        let selection = Selection::of(&self.target, &self.options)?;
        while let Some(stored) = objects.pop_front() {
            let object = stored.object.as_object();
            let listed = ListedObject { object, revision: stored.revision, scope: stored.scope.as_str() };
            if selection.selects(object) && visit(listed).is_break() {
                return Ok(objects.is_empty());
            }
        }
        Ok(true)
    }
}

impl ListCursor for ConvertedCursor {
    fn revision(&self) -> Revision {
        self.source.revision()
    }

    fn poll_step(
        &mut self,
        context: &mut Context<'_>,
        visit: &mut Visitor<'_>,
    ) -> Poll<Result<Option<ListEnd>, Status>> {
        loop {
            match core::mem::replace(&mut self.stage, Stage::Reading) {
                Stage::Reading => self.stage = self.read()?,
                Stage::Converting(mut conversion, end) => match conversion.as_mut().poll(context) {
                    Poll::Pending => {
                        self.stage = Stage::Converting(conversion, end);
                        return Poll::Pending;
                    }
                    Poll::Ready(converted) => self.stage = Stage::Sending(converted?.into(), end),
                },
                Stage::Sending(mut objects, end) => {
                    if !self.send(&mut objects, visit)? {
                        self.stage = Stage::Sending(objects, end);
                        return Poll::Ready(Ok(None));
                    }
                    // The remaining objects are not converted, so how many of them are selected is unknown.
                    let counts = self.options.labels.is_empty() && self.options.fields.is_empty();
                    let end = end.map(|end| ListEnd { remaining: end.remaining.filter(|_| counts), ..end });
                    return Poll::Ready(Ok(end));
                }
            }
        }
    }
}
