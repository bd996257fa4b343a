//! The audit record of a response: at once for a whole one, at its end for a stream.

use core::pin::Pin;
use core::task::{Context, Poll};

use bytes::Bytes;
use fairlead_schema::decode_yaml;
use http::header::CONTENT_TYPE;
use http_body::{Body, Frame, SizeHint};

use crate::audit::{AuditRecord, Capture, MAX_RESPONSE_OBJECT};
use crate::response::{Response, ResponseBody};

/// The largest response that is parsed only to find out whether it is a `Status`.
const MAX_STATUS: usize = 16 << 10;

/// A stream with the record that is completed at its end.
struct AuditedBody {
    inner: ResponseBody,
    record: Option<AuditRecord>,
    capture: Option<Capture>,
    code: u16,
}

/// Records a response before its headers are added. A whole response completes its record, so that an event is stored before the
/// client gets the response. The record of a stream whose content is recorded goes with it; otherwise it is returned.
pub(super) async fn record(response: Response, record: AuditRecord) -> (Response, Option<AuditRecord>) {
    let code = response.status().as_u16();
    match response.body() {
        ResponseBody::Full(bytes) => {
            let empty = Bytes::new();
            let bytes = bytes.as_ref().unwrap_or(&empty);
            let content_type =
                response.headers().get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
            record_whole(&record, code, content_type, bytes);
            // A watch that failed, or that ends at once.
            record.started().await;
            record.complete().await;
            (response, None)
        }
        ResponseBody::List(_) if record.records_response() => {
            record.response_code(code);
            (response.map(|inner| with_record(inner, record, Some(Capture::default()), code)), None)
        }
        ResponseBody::List(_) | ResponseBody::Watch(_) | ResponseBody::Streamed(_) => {
            record.response_code(code);
            record.started().await;
            (response, Some(record))
        }
    }
}

/// Completes the record at the end of the stream.
pub(super) fn at_end(response: Response, record: AuditRecord) -> Response {
    let code = response.status().as_u16();
    response.map(|inner| with_record(inner, record, None, code))
}

fn with_record(
    inner: ResponseBody,
    record: AuditRecord,
    capture: Option<Capture>,
    code: u16,
) -> ResponseBody {
    ResponseBody::Streamed(Box::pin(AuditedBody { inner, record: Some(record), capture, code }))
}

fn record_whole(record: &AuditRecord, code: u16, content_type: &[u8], bytes: &Bytes) {
    record.response_code(code);
    let limit = if record.records_response() { MAX_RESPONSE_OBJECT } else { MAX_STATUS };
    if bytes.is_empty() {
        return;
    }
    if bytes.len() > limit {
        if record.records_response() {
            record.response_is_too_large();
        }
        return;
    }
    let object = if content_type.starts_with(b"application/json") {
        serde_json::from_slice(bytes).ok()
    } else if content_type.starts_with(b"application/yaml") {
        decode_yaml(bytes, limit).ok().map(|decoded| decoded.value)
    } else {
        None
    };
    if let Some(object) = object {
        record.response_object(code, object);
    }
}

impl AuditedBody {
    fn end(&mut self) {
        let Some(record) = self.record.take() else { return };
        if let Some(capture) = self.capture.take() {
            capture.record(&record, self.code);
        }
        record.complete_later();
    }
}

impl Body for AuditedBody {
    type Data = Bytes;
    type Error = fairlead_process::BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(capture), Some(piece)) = (&mut self.capture, frame.data_ref()) {
                    capture.add(piece);
                }
            }
            Poll::Ready(Some(Err(_)) | None) => self.end(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for AuditedBody {
    fn drop(&mut self) {
        self.end();
    }
}
