//! Differential test of the HTTP/1.1 parser: pingora accepts every request that ours accepts, with the same method, target,
//! fields and body, and with the same bytes left for the next request.
//!
//! The reverse does not hold: ours is stricter (both framings at once, bare LF, control characters in the target). Two things that
//! ours accepts are left out, because pingora refuses them: empty lines before a request (RFC 9112, 2.2), and characters in a
//! target that other servers accept and ours forwards percent-encoded.

use bytes::BytesMut;
use http::header::HeaderMap;
use http::{Method, Version};
use pingora::protocols::http::v1::server::HttpSession;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::http::http1::body::{Body, Progress};
use crate::http::http1::{fields, request_head};
use crate::request::host;

/// A parsed request.
#[derive(Debug, PartialEq)]
struct Parsed {
    method: Method,
    /// The target, as in the request line.
    target: Vec<u8>,
    /// Lower-case names and values, sorted.
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    /// Bytes after the request; `None` where the connection is closed after it.
    rest: Option<Vec<u8>>,
}

/// Reads a request with both parsers.
///
/// # Panics
/// If ours accepts it and pingora's does not, or reads another request.
pub fn http1(input: &[u8]) {
    let Some(ours) = parse(input) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    let theirs = runtime.block_on(parse_with_pingora(input));
    assert!(theirs.is_ok(), "pingora refuses what we accept: {theirs:?}: {}", input.escape_ascii());
    let Ok(theirs) = theirs else { return };
    // pingora may close connections that we keep. If both keep one, the next request must begin at the same byte.
    let ours = Parsed { rest: ours.rest.filter(|_| theirs.rest.is_some()), ..ours };
    let theirs = Parsed { rest: theirs.rest.filter(|_| ours.rest.is_some()), ..theirs };
    assert_eq!(ours, theirs, "{}", input.escape_ascii());
}

/// Parses the first request of a connection with our parser; `None` if it is refused or incomplete.
fn parse(input: &[u8]) -> Option<Parsed> {
    let begin = request_head::blank_lines(input);
    // pingora does not skip empty lines before a request.
    let input = Some(&input[begin..]).filter(|_| begin == 0)?;
    if target(input)?.iter().any(|byte| !byte.is_ascii() || b"\"<>`".contains(byte)) {
        return None;
    }
    let end = fields::end(input, 0).ok()??;
    let head = request_head::parse(&input[..end]).ok()?;
    if host::host_error_over_http1(&head.parts).is_some() || head.parts.method == Method::CONNECT {
        return None;
    }
    let mut body = Body::new(head.framing);
    let (mut rest, mut whole) = (BytesMut::from(&input[end..]), Vec::new());
    loop {
        match body.take(&mut rest).ok()? {
            Progress::Part(part) => whole.extend_from_slice(&part),
            Progress::NeedMore => return None,
            Progress::End => break,
        }
    }
    Some(Parsed {
        method: head.parts.method,
        target: target(input)?.to_vec(),
        fields: sorted(&head.parts.headers),
        body: whole,
        rest: head.keep_alive.then(|| rest.to_vec()),
    })
}

async fn parse_with_pingora(input: &[u8]) -> Result<Parsed, String> {
    let (mut client, server) = tokio::io::duplex(input.len().max(1));
    client.write_all(input).await.map_err(|error| error.to_string())?;
    client.shutdown().await.map_err(|error| error.to_string())?;
    let mut session = HttpSession::new(Box::new(server));
    session.set_pipelining_enabled(true);
    session.read_request().await.map_err(|error| error.to_string())?.ok_or("no request")?;
    session.set_server_keepalive(Some(60));
    let request = session.req_header();
    let (method, headers) = (request.method.clone(), sorted(&request.headers));
    let raw = request.raw_path().to_vec();
    let is_old = request.version == Version::HTTP_10;
    let target = target(input).ok_or("no target")?;
    if raw != target {
        return Err(format!("its target is {}", raw.escape_ascii()));
    }
    let mut body = Vec::new();
    while let Some(part) = session.read_body_bytes().await.map_err(|error| error.to_string())? {
        body.extend_from_slice(&part);
    }
    let keeps = session.will_keepalive() && !is_old;
    let reused = session.reuse().await.map_err(|error| error.to_string())?;
    let rest = match reused.filter(|_| keeps) {
        Some(reused) => {
            let (mut stream, prefix) = reused.into_parts();
            let mut rest = prefix.map(|prefix| prefix.to_vec()).unwrap_or_default();
            if stream.as_any().downcast_ref::<DuplexStream>().is_some() {
                stream.read_to_end(&mut rest).await.map_err(|error| error.to_string())?;
            }
            Some(rest)
        }
        None => None,
    };
    drop(client);
    Ok(Parsed { method, target: target.to_vec(), fields: headers, body, rest })
}

/// The second word of the request line.
fn target(input: &[u8]) -> Option<&[u8]> {
    input.split(|byte| *byte == b' ').nth(1)
}

/// All fields in one order.
fn sorted(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let all = headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{http1, parse};

    #[test]
    fn both_parsers_are_asked() {
        for accepted in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET",
            b"PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\nrest",
        ] {
            assert!(parse(accepted).is_some(), "{}", accepted.escape_ascii());
            http1(accepted);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn heads_mean_the_same(
            head in "(GET|POST|PUT|M-SEARCH|HEAD) (/[a-z0-9/?&=%.~:@!$'()*+,;\"<>`-]{0,20}|\\*|http://a/x) HTTP/1\\.[01]\r\n\
                     (Host: a(:80)?\r\n)?([a-zA-Z0-9_-]{1,8}:[ \t]?[ -~\u{e4}]{0,12}[ \t]?\r\n){0,6}\r\n",
            rest in "[a-zA-Z0-9 \r\n]{0,20}",
        ) {
            http1(format!("{head}{rest}").as_bytes());
        }

        #[test]
        fn bodies_with_a_length_end_at_the_same_byte(
            length in "[ ]?[0-9+,]{1,3}[ ]?",
            body in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:{length}\r\n\r\n");
            http1(&[head.as_bytes(), &body].concat());
        }

        #[test]
        fn bodies_in_chunks_end_at_the_same_byte(
            chunks in "((1\r\na|02\r\nab|A;x=\"y\"\r\n0123456789|3 \r\nabc|2\r\nabc|1\na)\r\n){0,4}(0|00|0;x|)\r\n",
            trailers in "([a-zA-Z-]{1,8}: ?[a-z]{0,4}\r\n){0,2}(\r\n|\n|)",
            rest in "[a-zA-Z \r\n]{0,10}",
        ) {
            let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            http1(format!("{head}{chunks}{trailers}{rest}").as_bytes());
        }
    }
}
