//! Where the browser brings the code: a listener on the loopback that takes one (RFC 8252 7.3).

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

/// Connections at the same time: browsers open some ahead.
const MOST_CONNECTIONS: usize = 16;
/// How long a connection may take to ask.
const ASK: Duration = Duration::from_secs(10);
/// How long the last page may take to be read.
const FAREWELL: Duration = Duration::from_secs(2);

/// Waits for a browser.
pub(super) struct Callback {
    listener: TcpListener,
    address: SocketAddr,
}

/// What a browser has to bring.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) state: String,
    pub(super) issuer: String,
}

/// No code came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoCode {
    #[error("the sign-in was refused: {0}")]
    Refused(String),
    #[error("the answer of the browser is of another issuer")]
    OtherIssuer,
}

/// What a visit of a browser means.
#[derive(Debug, PartialEq, Eq)]
enum Visit {
    /// It is over.
    Over(Result<String, NoCode>),
    /// It was about something else: the answer.
    Other(StatusCode, &'static str),
}

impl Callback {
    pub(super) async fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where the browser is to come.
    pub(super) fn redirect(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    /// The code that a browser brings. Waits until one does; what does not know the state is turned away.
    pub(super) async fn code(self, expected: &Expected) -> Result<String, NoCode> {
        let (sender, mut outcomes) = mpsc::channel(1);
        let mut connections = JoinSet::new();
        let outcome = loop {
            tokio::select! {
                Some(outcome) = outcomes.recv() => break outcome,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                // Out of descriptors, at worst: the next one may work, and somebody waits at a browser.
                Ok((stream, _)) = self.listener.accept(), if connections.len() < MOST_CONNECTIONS => {
                    connections.spawn(serve(stream, expected.clone(), sender.clone()));
                }
            }
        };
        drop(self.listener);
        drop(outcomes);
        // The browser's page; idle connections are cut.
        let _ = timeout(FAREWELL, async { while connections.join_next().await.is_some() {} }).await;
        outcome
    }
}

async fn serve(stream: TcpStream, expected: Expected, sender: mpsc::Sender<Result<String, NoCode>>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let visit = judge(request.method(), request.uri().path(), request.uri().query(), &expected);
        let sender = sender.clone();
        async move { Ok::<_, Infallible>(respond(visit, &sender)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ASK)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // How a browser's connection ends says nothing.
    let _ = connection.await;
}

fn judge(method: &Method, path: &str, query: Option<&str>, expected: &Expected) -> Visit {
    if path != "/callback" {
        return Visit::Other(StatusCode::NOT_FOUND, "There is nothing here.");
    }
    if method != Method::GET {
        return Visit::Other(StatusCode::METHOD_NOT_ALLOWED, "Browsers come with GET.");
    }
    let pairs: Vec<_> = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect();
    let value = |key: &str| pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_ref());
    if value("state") != Some(expected.state.as_str()) {
        return Visit::Other(StatusCode::BAD_REQUEST, "This is not the sign-in that is waited for.");
    }
    // RFC 9207; without it the token endpoint and the nonce tell the same.
    if value("iss").is_some_and(|issuer| issuer != expected.issuer) {
        return Visit::Over(Err(NoCode::OtherIssuer));
    }
    match (value("code"), value("error")) {
        (Some(code), None) => Visit::Over(Ok(code.to_owned())),
        (_, Some(error)) => {
            let description = value("error_description").map_or(String::new(), |text| format!(": {text}"));
            Visit::Over(Err(NoCode::Refused(printable(&format!("{error}{description}")))))
        }
        (None, None) => Visit::Other(StatusCode::BAD_REQUEST, "There is no code."),
    }
}

fn respond(visit: Visit, sender: &mpsc::Sender<Result<String, NoCode>>) -> Response<Full<Bytes>> {
    let (code, sentence) = match visit {
        Visit::Other(code, sentence) => (code, sentence),
        Visit::Over(outcome) => {
            let sentence = match &outcome {
                Ok(_) => "You are signed in. You can close this page and go back to the terminal.",
                Err(_) => "You are not signed in. The terminal says why; you can close this page.",
            };
            // The first outcome counts.
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
    // The address has the code in it.
    headers.insert(http::header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// A terminal is not for a stranger to write to.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_awaited_browser_ends_the_wait() {
        let expected = Expected { state: "s".to_owned(), issuer: "https://i".to_owned() };
        let over = |outcome| Visit::Over(outcome);
        let refused = |text: &str| Visit::Over(Err(NoCode::Refused(text.to_owned())));
        for (method, path, query, visit) in [
            ("GET", "/callback", "code=c%2Bd&state=s&iss=https%3A%2F%2Fi", over(Ok("c+d".to_owned()))),
            ("GET", "/callback", "state=s&code=c", over(Ok("c".to_owned()))),
            ("GET", "/callback", "state=s&code=c&iss=https://j", over(Err(NoCode::OtherIssuer))),
            ("GET", "/callback", "error=access_denied&state=s", refused("access_denied")),
            ("GET", "/callback", "error=e&error_description=a%1Bb&state=s", refused("e: ab")),
            ("GET", "/callback", "error=e&code=c&state=s", refused("e")),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
            assert_eq!(judge(&method, path, Some(query), &expected), visit, "{query}");
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
            let visit = judge(&method, path, Some(query), &expected);
            assert!(matches!(&visit, Visit::Other(found, _) if found.as_u16() == code), "{query}: {visit:?}");
        }
    }
}
