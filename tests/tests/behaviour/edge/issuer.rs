//! Hostile requests to the issuer.

use std::process::Stdio;

use fairlead_client::{Request, Response};
use fairlead_tests::harness::{binary, encoded};
use http::header::{CONTENT_TYPE, COOKIE, HOST, HeaderName, HeaderValue, LOCATION, ORIGIN};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::process::Command;

use super::User;
use crate::installation::{Installation, within};

const FORM: &str = "application/x-www-form-urlencoded";
const SIGN_IN: &str = "/authorize?response_type=code&client_id=fairlead&redirect_uri=http%3A%2F%2F127.0.0.1%3A9%2Fcallback\
                       &scope=openid&state=s&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM\
                       &code_challenge_method=S256";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_unknown_clients_are_rejected() {
    let installation = Installation::start(1).await;
    let issuer = installation.server("issuer").url;
    let user = User::new(&installation, "a");
    let client = user.at(&issuer);
    let send =
        async |request: Request| within("a response", client.request_any_status(request)).await.unwrap();
    let get = |path: &str| Request::new(Method::GET, path);
    let post = |path: &str, body: String| Request::new(Method::POST, path).with_body(FORM, body);
    let is = |response: &Response, code: u16, part: &str| {
        let body = String::from_utf8_lossy(&response.body);
        assert!(response.status.as_u16() == code && body.contains(part), "{} {body}", response.status);
        assert_eq!(response.headers["cache-control"], "no-store");
        assert!(!response.headers.contains_key("access-control-allow-origin"));
    };
    for (method, path, allow) in [
        (Method::GET, "/token", "POST"),
        (Method::DELETE, "/token", "POST"),
        (Method::POST, "/keys", "GET, HEAD"),
        (Method::PUT, "/authorize", "GET, HEAD, POST"),
        (Method::OPTIONS, "/device", "GET, HEAD, POST"),
    ] {
        let response = send(Request::new(method, path)).await;
        is(&response, 405, "use ");
        assert_eq!(response.headers["allow"], allow);
    }
    is(&send(get("/etc/passwd")).await, 404, "no such endpoint");
    let elsewhere = get("/keys").with_header(HOST, HeaderValue::from_static("evil.example"));
    let elsewhere = raw(&installation, &issuer, elsewhere).await;
    assert!(elsewhere.starts_with("HTTP/1.1 421 "), "{elsewhere}");
    is(&send(post("/token", "a".repeat(100_000))).await, 413, "too large");
    let json = Request::new(Method::POST, "/token").with_body("application/json", "{}");
    is(&send(json).await, 415, "invalid_request");
    is(&send(post("/token", "a=%FF".to_owned())).await, 400, "not text");
    is(&send(post("/token", "grant_type=x&grant_type=y".to_owned())).await, 400, "twice");
    is(
        &send(post("/token", "client_id=fairlead&grant_type=password".to_owned())).await,
        400,
        "unsupported_grant_type",
    );
    let secret = post("/token", "client_id=fairlead&grant_type=refresh_token".to_owned()).with_header(
        HeaderName::from_static("authorization"),
        HeaderValue::from_static("Basic Zm9vOmJhcg=="),
    );
    let response = send(secret).await;
    is(&response, 401, "invalid_client");
    assert!(response.headers.contains_key("www-authenticate"));
    // An unknown redirect URI gets no redirect.
    for stranger in
        ["https%3A%2F%2Fevil.example%2Fcallback", "http%3A%2F%2F127.0.0.1%3A9%40evil.example%2Fcallback"]
    {
        let response = send(get(&SIGN_IN.replace("http%3A%2F%2F127.0.0.1%3A9%2Fcallback", stranger))).await;
        is(&response, 400, "The redirect URI");
        assert!(!response.headers.contains_key(LOCATION));
    }
    let plain = send(get(&SIGN_IN.replace("S256", "plain"))).await;
    assert_eq!(plain.status, StatusCode::SEE_OTHER);
    assert!(plain.headers[LOCATION].to_str().unwrap().contains("error=invalid_request"), "{plain:?}");
}

/// A form from another page, or without the browser's cookie, signs no user in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_forms_of_the_issuers_own_pages_are_accepted() {
    let installation = Installation::start(1).await;
    let issuer = installation.server("issuer").url;
    let user = User::new(&installation, "a");
    let page = || async {
        let mut form = user.open(&format!("{issuer}{SIGN_IN}")).await;
        form.fields.push(("user".to_owned(), "developer".to_owned()));
        form
    };
    let mut foreign = page().await;
    foreign.origin = "https://evil.example".to_owned();
    let body = encoded(&foreign.fields);
    let send = |request: Request| async {
        let request = request.with_header(CONTENT_TYPE, HeaderValue::from_static(FORM));
        within("a response", user.at(&issuer).request_any_status(request)).await.unwrap()
    };
    let cookie = HeaderValue::from_str(&foreign.cookie).unwrap();
    let origin = HeaderValue::from_str(&issuer).unwrap();
    let post = || Request::new(Method::POST, "/authorize").with_body(FORM, body.clone());
    let evil = HeaderValue::from_static("https://evil.example");
    for (what, request) in [
        ("another page", post().with_header(COOKIE, cookie.clone()).with_header(ORIGIN, evil)),
        (
            "a page that hides",
            post().with_header(COOKIE, cookie.clone()).with_header(ORIGIN, HeaderValue::from_static("null")),
        ),
        ("no page", post().with_header(COOKIE, cookie.clone())),
        ("another browser", post().with_header(ORIGIN, origin.clone())),
        (
            "another page's secret",
            post()
                .with_header(ORIGIN, origin.clone())
                .with_header(COOKIE, HeaderValue::from_str(&page().await.cookie).unwrap()),
        ),
    ] {
        let response = send(request).await;
        assert_eq!(response.status, StatusCode::FORBIDDEN, "{what}");
        assert!(!response.headers.contains_key(LOCATION), "{what}");
    }
    let response = send(post().with_header(COOKIE, cookie).with_header(ORIGIN, origin)).await;
    assert_eq!(response.status, StatusCode::SEE_OTHER, "both secrets are right");
    assert!(response.headers[LOCATION].to_str().unwrap().starts_with("http://127.0.0.1:9/callback?code="));

    // The same for the device flow.
    let authorization =
        post_form(&user, &issuer, "/device_authorization", "client_id=fairlead&scope=openid").await;
    let address = authorization["verification_uri_complete"].as_str().unwrap();
    let mut form = user.open(address).await;
    form.fields.push(("user".to_owned(), "developer".to_owned()));
    let unseen = Request::new(Method::POST, "/device").with_body(FORM, encoded(&form.fields));
    assert_eq!(send(unseen).await.status, StatusCode::FORBIDDEN);
    let poll = format!(
        "client_id=fairlead&grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code&device_code={}",
        authorization["device_code"].as_str().unwrap()
    );
    assert_eq!(post_form(&user, &issuer, "/token", &poll).await["error"], "authorization_pending");
    assert_eq!(post_form(&user, &issuer, "/token", &poll).await["error"], "slow_down");
    assert_eq!(user.send(&form).await.status, StatusCode::OK);
    assert!(post_form(&user, &issuer, "/token", &poll).await["id_token"].is_string());
    assert_eq!(post_form(&user, &issuer, "/token", &poll).await["error"], "invalid_grant");
}

/// The issuer does not start on an address that other machines can reach.
#[tokio::test]
async fn the_issuer_listens_on_this_machine_only() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("issuer.yaml");
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:6444"] {
        std::fs::write(&config, format!("serving: {{address: \"{address}\"}}\n")).unwrap();
        let mut command = Command::new(binary("fairlead-issuer").unwrap());
        command.arg("--config").arg(&config).stdin(Stdio::null());
        let output = within("its end", command.output()).await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{address}");
        assert!(errors.contains("is not a loopback address") && errors.contains("hint:"), "{errors}");
    }
}

async fn post_form(user: &User<'_>, issuer: &str, path: &str, body: &str) -> Value {
    let request = Request::new(Method::POST, path).with_body(FORM, body.to_owned());
    let response = within("a response", user.at(issuer).request_any_status(request)).await.unwrap();
    serde_json::from_slice(&response.body).unwrap()
}

/// Sends a request over HTTP/1.1 with the host of its URL; returns the response unparsed.
async fn raw(installation: &Installation, issuer: &str, request: Request) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = issuer.strip_prefix("https://").unwrap();
    let mut config = installation.anonymous().tls_config().as_ref().clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = installation.anonymous().server_name("127.0.0.1").unwrap();
    let mut stream =
        tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await.unwrap();
    let host = request.headers[HOST].to_str().unwrap();
    let text = format!(
        "{} {} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n",
        request.method, request.path_and_query
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    // The connection may end without close_notify.
    let _ = within("the response", stream.read_to_end(&mut response)).await;
    String::from_utf8_lossy(&response).into_owned()
}
