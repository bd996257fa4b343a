//! Bodies and responses.

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;

pub(super) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

pub(super) fn streaming(receiver: mpsc::Receiver<Bytes>) -> Response<Body> {
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
        let line = receiver.recv().await?;
        Some((line, receiver))
    })
    .map(|line| Ok(Frame::data(line)));
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(StreamBody::new(frames).boxed_unsync())
        .unwrap()
}

pub(super) fn json_response(value: &Value) -> Response<Body> {
    let text = value.to_string();
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_LENGTH, text.len())
        .body(full(text))
        .unwrap()
}

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn empty() -> Body {
    full(Bytes::new())
}
