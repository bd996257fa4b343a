//! The redirect endpoint of the code flow: a server on a loopback address that accepts one code (RFC 8252 7.3).

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::form_urlencoded;

/// Maximum number of connections. Browsers open some in advance.
const MAX_CONNECTIONS: usize = 16;
/// Timeout of a request head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the browser to read the last page.
const LAST_PAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// A server that waits for the redirect of a browser.
pub(super) struct Callback {
    listener: TcpListener,
    address: SocketAddr,
}

/// The parameters of the expected redirect.
#[derive(Clone, Debug)]
pub(super) struct ExpectedCallback {
    pub(super) state: String,
    pub(super) issuer: String,
}

/// Errors of the redirect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallbackError {
    #[error("the sign-in was refused: {0}")]
    Refused(String),
    #[error("the redirect comes from another issuer")]
    OtherIssuer,
}

/// Result of a request.
#[derive(Debug, PartialEq, Eq)]
enum CallbackResult {
    /// The redirect that ends the sign-in.
    Finished(Result<String, CallbackError>),
    /// Another request, with its response.
    Other(StatusCode, &'static str),
}

impl Callback {
    pub(super) async fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The redirect URI.
    pub(super) fn redirect(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    /// Waits for the redirect and returns its code. Requests without the expected state are rejected.
    pub(super) async fn code(self, expected: &ExpectedCallback) -> Result<String, CallbackError> {
        let (sender, mut outcomes) = mpsc::channel(1);
        let mut connections = JoinSet::new();
        let outcome = loop {
            tokio::select! {
                Some(outcome) = outcomes.recv() => break outcome,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                // `accept` fails when descriptors run out. A later connection may succeed.
                Ok((stream, _)) = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(serve(stream, expected.clone(), sender.clone()));
                }
            }
        };
        drop(self.listener);
        drop(outcomes);
        // The browser gets its page; idle connections are closed.
        let _ = timeout(LAST_PAGE_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
        outcome
    }
}

async fn serve(
    stream: TcpStream,
    expected: ExpectedCallback,
    sender: mpsc::Sender<Result<String, CallbackError>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let result = evaluate(request.method(), request.uri().path(), request.uri().query(), &expected);
        let sender = sender.clone();
        async move { Ok::<_, Infallible>(respond(result, &sender)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // Errors of a browser's connection do not matter.
    let _ = connection.await;
}

fn evaluate(method: &Method, path: &str, query: Option<&str>, expected: &ExpectedCallback) -> CallbackResult {
    if path != "/callback" {
        return CallbackResult::Other(StatusCode::NOT_FOUND, "This page does not exist.");
    }
    if method != Method::GET {
        return CallbackResult::Other(StatusCode::METHOD_NOT_ALLOWED, "Use GET.");
    }
    let pairs: Vec<_> = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect();
    let value = |key: &str| pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_ref());
    if value("state") != Some(expected.state.as_str()) {
        return CallbackResult::Other(StatusCode::BAD_REQUEST, "This is not the expected sign-in.");
    }
    // RFC 9207. Without `iss`, the token endpoint and the nonce prevent a mix-up of issuers.
    if value("iss").is_some_and(|issuer| issuer != expected.issuer) {
        return CallbackResult::Finished(Err(CallbackError::OtherIssuer));
    }
    match (value("code"), value("error")) {
        (Some(code), None) => CallbackResult::Finished(Ok(code.to_owned())),
        (_, Some(error)) => {
            let description = value("error_description").map_or(String::new(), |text| format!(": {text}"));
            CallbackResult::Finished(Err(CallbackError::Refused(printable(&format!("{error}{description}")))))
        }
        (None, None) => CallbackResult::Other(StatusCode::BAD_REQUEST, "There is no code."),
    }
}

fn respond(
    result: CallbackResult,
    sender: &mpsc::Sender<Result<String, CallbackError>>,
) -> Response<Full<Bytes>> {
    let (code, sentence) = match result {
        CallbackResult::Other(code, sentence) => (code, sentence),
        CallbackResult::Finished(outcome) => {
            let sentence = match &outcome {
                Ok(_) => "You are signed in. You can close this page and go back to the terminal.",
                Err(_) => "You are not signed in. The terminal shows the reason; you can close this page.",
            };
            // Only the first result counts.
            let _ = sender.try_send(outcome);
            (StatusCode::OK, sentence)
        }
    };
    let page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Fairlead</title>\
         <style>:root{{color-scheme:light dark;font:1rem/1.5 system-ui,sans-serif}}body{{max-width:28rem;margin:12vh auto;\
         padding:0 1.25rem}}</style></head><body><p>{sentence}</p></body></html>\n"
    );
    let mut response = Response::new(Full::new(Bytes::from(page)));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The address contains the code.
    headers.insert(http::header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Removes control characters, which could control the terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_redirect_ends_the_wait() {
        let expected = ExpectedCallback { state: "s".to_owned(), issuer: "https://i".to_owned() };
        let finished = |outcome| CallbackResult::Finished(outcome);
        let refused = |text: &str| CallbackResult::Finished(Err(CallbackError::Refused(text.to_owned())));
        for (method, path, query, result) in [
            ("GET", "/callback", "code=c%2Bd&state=s&iss=https%3A%2F%2Fi", finished(Ok("c+d".to_owned()))),
            ("GET", "/callback", "state=s&code=c", finished(Ok("c".to_owned()))),
            ("GET", "/callback", "state=s&code=c&iss=https://j", finished(Err(CallbackError::OtherIssuer))),
            ("GET", "/callback", "error=access_denied&state=s", refused("access_denied")),
            ("GET", "/callback", "error=e&error_description=a%1Bb&state=s", refused("e: ab")),
            ("GET", "/callback", "error=e&code=c&state=s", refused("e")),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
            assert_eq!(evaluate(&method, path, Some(query), &expected), result, "{query}");
        }
        for (method, path, query, code) in [
            ("GET", "/favicon.ico", "", 404),
            ("POST", "/callback", "code=c&state=s", 405),
            ("GET", "/callback", "", 400),
            ("GET", "/callback", "code=c", 400),
            ("GET", "/callback", "code=c&state=t", 400),
            ("GET", "/callback", "error=e&state=t", 400),
            ("GET", "/callback", "state=s", 400),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
            let result = evaluate(&method, path, Some(query), &expected);
            assert!(
                matches!(&result, CallbackResult::Other(found, _) if found.as_u16() == code),
                "{query}: {result:?}"
            );
        }
    }
}
