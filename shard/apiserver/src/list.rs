//! The body of a list: pieces of objects, serialized when the client takes them.
//!
//! A list holds one piece in memory, whatever its size. Small lists are complete in the first piece and are sent whole.

use core::task::{Context, Poll, ready};
use std::ops::ControlFlow;

use bytes::Bytes;
use fairlead_process::Status;
use prometheus::IntCounter;
use serde_json::{Value, json};

use crate::gzip::GzipStream;
use crate::registry::{ListCursor, ListEnd, ListedObject, Target};
use crate::render::Renderer;
use crate::request::Form;
use crate::watch::View;

/// Bytes of a piece.
const PIECE: usize = 64 * 1024;
/// Objects of a piece that are parsed, for tables, metadata and other versions: about 0.5 ms.
const PARSED_PER_PIECE: usize = 16;

/// The stream of a list.
pub struct ListBody {
    target: Target,
    view: View,
    cursor: Box<dyn ListCursor>,
    /// Seconds since the epoch, for the ages in tables.
    now: i64,
    /// Whether the metadata are known before the items: a page has its continue token at the end.
    is_page: bool,
    has_items: bool,
    /// Counts the objects.
    returned: IntCounter,
    /// A piece that has been built.
    ready: Option<Vec<u8>>,
    gzip: Option<GzipStream>,
    is_done: bool,
}

impl ListBody {
    /// The list of a cursor; `is_page` if it has a limit.
    pub(crate) fn new(
        target: Target,
        view: View,
        cursor: Box<dyn ListCursor>,
        is_page: bool,
        returned: IntCounter,
    ) -> Self {
        Self {
            target,
            view,
            cursor,
            now: jiff::Timestamp::now().as_second(),
            is_page,
            has_items: false,
            returned,
            ready: None,
            gzip: None,
            is_done: false,
        }
    }

    /// Appends the next items, about a piece. Returns the end of the list if these were the last ones. Pending, with nothing
    /// appended, while a webhook converts the objects.
    ///
    /// # Errors
    /// 410 or 500.
    pub(crate) fn poll_items(
        &mut self,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<Option<ListEnd>, Status>> {
        let renderer = renderer(&self.target, self.view, self.now);
        let (mut parsed, mut failed, mut returned) = (0, None, 0);
        let (limit, has_items) = (out.len() + PIECE, &mut self.has_items);
        let end = self.cursor.poll_step(context, &mut |listed: ListedObject<'_>| {
            if core::mem::replace(has_items, true) {
                out.push(b',');
            }
            returned += 1;
            parsed += usize::from(!renderer.is_verbatim(listed.object));
            if let Err(status) = append_item(&renderer, listed, out) {
                failed = Some(status);
            }
            if failed.is_some() || out.len() >= limit || parsed >= PARSED_PER_PIECE {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        self.returned.inc_by(returned);
        match failed {
            Some(status) => Poll::Ready(Err(status)),
            None => end,
        }
    }

    /// A list that is complete: all items are serialized.
    pub(crate) fn whole(&self, items: &[u8], end: &ListEnd) -> Vec<u8> {
        let mut out = Vec::with_capacity(items.len() + 512);
        self.append_head(Some(&list_metadata(end)), &mut out);
        out.extend_from_slice(items);
        out.extend_from_slice(b"]}\n");
        out
    }

    /// Makes the list a stream that begins with these items.
    pub(crate) fn begin_stream(&mut self, items: &[u8]) {
        let mut out = Vec::with_capacity(items.len() + 512);
        let revision = self.cursor.revision();
        let metadata = list_metadata(&ListEnd { revision, ..ListEnd::default() });
        self.append_head((!self.is_page).then_some(&metadata), &mut out);
        out.extend_from_slice(items);
        self.ready = Some(out);
    }

    /// Compresses the stream.
    pub(crate) fn compress(&mut self) {
        self.gzip = Some(GzipStream::new());
    }

    /// The next piece.
    pub(crate) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let mut piece = match self.ready.take() {
            Some(ready) => ready,
            None => {
                let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
                match ready!(self.poll_items(context, &mut piece)) {
                    Ok(None) => {}
                    Ok(Some(end)) => {
                        self.is_done = true;
                        self.append_tail(&end, &mut piece);
                    }
                    Err(status) => {
                        self.is_done = true;
                        return Poll::Ready(Some(Err(status)));
                    }
                }
                piece
            }
        };
        if let Some(gzip) = &mut self.gzip {
            let Some(compressed) = gzip.compress(&piece, self.is_done) else {
                self.is_done = true;
                return Poll::Ready(Some(Err(Status::internal("the response cannot be compressed"))));
            };
            piece = compressed;
        }
        if piece.is_empty() && !self.is_done {
            // The step selected nothing. Other tasks run before the next one.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(piece.into())))
    }

    /// Everything before the items.
    fn append_head(&self, metadata: Option<&Value>, out: &mut Vec<u8>) {
        let resource = &self.target.resource;
        let mut head = match self.view.form {
            Form::Table(version) => json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}")}),
            Form::PartialMetadata(version) => {
                json!({"kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}")})
            }
            Form::AggregatedDiscovery(_) | Form::Object => {
                json!({"kind": *resource.list_kind, "apiVersion": resource.api_version(&self.target.version)})
            }
        };
        if let Some(metadata) = metadata {
            head["metadata"] = metadata.clone();
        }
        let items = if matches!(self.view.form, Form::Table(_)) {
            head["columnDefinitions"] = renderer(&self.target, self.view, self.now).columns();
            "rows"
        } else {
            "items"
        };
        let head = head.to_string();
        out.extend_from_slice(&head.as_bytes()[..head.len() - 1]);
        out.extend_from_slice(format!(",\"{items}\":[").as_bytes());
    }

    /// Everything behind the items.
    fn append_tail(&self, end: &ListEnd, out: &mut Vec<u8>) {
        out.push(b']');
        if self.is_page {
            out.extend_from_slice(b",\"metadata\":");
            out.extend_from_slice(list_metadata(end).to_string().as_bytes());
        }
        out.extend_from_slice(b"}\n");
    }
}

fn renderer<'t>(target: &'t Target, view: View, now: i64) -> Renderer<'t> {
    Renderer {
        resource: &target.resource,
        version: &target.version,
        form: view.form,
        annotations: view.annotations,
        now,
        included: view.included,
        scale: None,
    }
}

fn append_item(renderer: &Renderer<'_>, listed: ListedObject<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
    if let Form::Table(_) = renderer.form {
        let row = renderer.row(renderer.tree(listed)?);
        return serde_json::to_writer(out, &row).map_err(Status::internal);
    }
    renderer.write_item(listed, out)
}

fn list_metadata(end: &ListEnd) -> Value {
    let mut metadata = json!({"resourceVersion": end.revision.to_string()});
    if let Some(token) = &end.continue_token {
        metadata["continue"] = (**token).into();
    }
    if let Some(remaining) = end.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}
