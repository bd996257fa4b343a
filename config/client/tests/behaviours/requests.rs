use std::time::Duration;

use bytes::Bytes;
use fairlead_client::{
    Client, ClientError, ClientOptions, Credentials, DeleteOptions, Endpoint, ErrorOrigin, NameResolver,
    PatchType, Request, TrustRoots, WatchEventKind, WriteOptions,
};
use futures_util::{FutureExt as _, stream};
use http::Version;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{Pki, Protocols, Server, Wire, client, impatient};

#[tokio::test]
async fn concurrent_requests_share_one_http2_connection_dialled_once() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let requests: Vec<_> = (0..50)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { client.get(&format!("/{n}")).await.unwrap().body })
        })
        .collect();
    for _ in 0..50 {
        let call = server.call().await;
        assert_eq!((call.version, call.connection), (Version::HTTP_2, 1));
        let body = call.path_and_query.clone();
        call.reply(200, body);
    }
    for (n, request) in requests.into_iter().enumerate() {
        assert_eq!(request.await.unwrap(), format!("/{n}"));
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn request_any_status_returns_errors_of_other_servers_as_responses() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let request =
        tokio::spawn(
            async move { client.request_any_status(Request::new(http::Method::GET, "/token")).await },
        );
    server.expect("GET", "/token").await.reply(400, "{\"error\":\"slow_down\"}");
    let response = request.await.unwrap().unwrap();
    assert_eq!((response.status.as_u16(), &response.body[..]), (400, &b"{\"error\":\"slow_down\"}"[..]));
}

#[tokio::test]
async fn a_relayed_body_is_sent_as_it_arrives_and_not_kept() {
    let pki = Pki::new();
    for protocols in [Protocols::Both, Protocols::OnlyHttp1] {
        let mut server = Server::with(&pki, "localhost", protocols).await;
        let client = client(&pki, server.port, ClientOptions::default());
        // The second piece exists only when the first has been taken, so that no complete body is waited for.
        let (piece, pieces) = tokio::sync::mpsc::channel::<Bytes>(1);
        let frames = stream::unfold(pieces, |mut pieces| async {
            let piece = pieces.recv().await?;
            Some((Ok::<_, std::io::Error>(Frame::data(piece)), pieces))
        });
        let request = Request::new(http::Method::POST, "/objects");
        let relayed =
            tokio::spawn(async move { client.relay(request, StreamBody::new(frames)).await.map(|_| ()) });
        for text in ["one", "two", "three"] {
            piece.send(Bytes::from_static(text.as_bytes())).await.unwrap();
        }
        drop(piece);
        let call = server.expect("POST", "/objects").await;
        assert_eq!(&call.body[..], b"onetwothree");
        call.reply(400, "");
        relayed.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_full_connection_is_joined_by_more_up_to_the_limit() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let options = ClientOptions { streams_per_connection: 2, max_connections: 2, ..ClientOptions::default() };
    let client = client(&pki, server.port, options);
    let mut pending = Vec::new();
    let mut second_used = false;
    // Requests do not wait for the second connection; it is used once it is there.
    for _ in 0..1000 {
        let client = client.clone();
        pending.push(tokio::spawn(async move { client.get("/").await }));
        second_used |= server.call().await.connection == 2;
        if second_used && pending.len() > 8 {
            break;
        }
    }
    assert!(second_used);
    assert_eq!(server.connections(), 2);
    pending.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn servers_without_http2_get_http1_on_a_reused_connection() {
    let pki = Pki::new();
    let mut server = Server::with(&pki, "localhost", Protocols::OnlyHttp1).await;
    let client = client(&pki, server.port, ClientOptions::default()).with_prefix("/clusters/root");
    for n in 0..3 {
        let request = tokio::spawn({
            let client = client.clone();
            async move { client.get("/readyz?verbose").await }
        });
        let call = server.expect("GET", "/clusters/root/readyz?verbose").await;
        assert_eq!((call.version, call.connection), (Version::HTTP_11, 1), "request {n}");
        assert_eq!(call.headers["host"], format!("localhost:{}", server.port));
        call.reply(200, "ok");
        assert_eq!(request.await.unwrap().unwrap().body, "ok");
    }
    // A watch occupies its connection; the next request gets another one.
    let watch = tokio::spawn({
        let client = client.clone();
        async move { client.watch("/x?watch=1").await }
    });
    let stream = server.expect("GET", "/clusters/root/x?watch=1").await.stream();
    let mut watch = watch.await.unwrap().unwrap();
    let request = tokio::spawn(async move { client.get("/y").await });
    let call = server.expect("GET", "/clusters/root/y").await;
    assert_eq!(call.connection, 2);
    call.reply(200, "");
    request.await.unwrap().unwrap();
    stream.event("ADDED", "{}");
    assert_eq!(watch.next().await.unwrap().unwrap().kind, WatchEventKind::Added);
    stream.end();
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn objects_are_sent_as_json_with_write_options() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let work = tokio::spawn(async move {
        let options = WriteOptions { field_manager: Some("me".into()), dry_run: false };
        let created: Value = client.create("/c", &json!({"a": 1}), &options).await.unwrap();
        let _: Value = client.replace("/c/x", &created, &WriteOptions::default()).await.unwrap();
        let _: Value = client.patch("/c/x", PatchType::ForcedApply, &json!({}), &options).await.unwrap();
        client.delete("/c/x", &DeleteOptions::default()).await.unwrap();
        let read: Result<Value, _> = client.get_json("/c/x").await;
        read.unwrap_err()
    });
    let call = server.expect("POST", "/c?fieldManager=me").await;
    assert_eq!(
        (&call.headers["content-type"], &call.body[..]),
        (&"application/json".parse().unwrap(), &b"{\"a\":1}"[..])
    );
    call.reply(201, "{\"a\":2}");
    let call = server.expect("PUT", "/c/x").await;
    assert_eq!(&call.body[..], b"{\"a\":2}");
    call.reply(200, "{}");
    let call = server.expect("PATCH", "/c/x?fieldManager=me&force=true").await;
    assert_eq!(call.headers["content-type"], "application/apply-patch+yaml");
    call.reply(200, "{}");
    server.expect("DELETE", "/c/x").await.reply(200, "{}");
    server.expect("GET", "/c/x").await.reply(200, "<html>");
    let error = work.await.unwrap();
    assert!(matches!(error, ClientError::Decode { .. }) && error.origin() == ErrorOrigin::Server, "{error}");
}

#[tokio::test]
async fn an_error_response_is_an_error_with_its_status() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let request = tokio::spawn(async move { client.get("/").await });
    let head = http::Response::builder().status(429).header("retry-after", "3");
    let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"slow down","reason":"TooManyRequests","code":429}"#;
    server.call().await.reply_with(head, body);
    let error = request.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "TooManyRequests: slow down (429)");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    assert!(error.is_retryable());
}

#[tokio::test]
async fn the_next_address_is_tried_if_one_accepts_and_never_responds() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = [silent.local_addr().unwrap(), ([127, 0, 0, 1], server.port).into()];
    let names = NameResolver::from_fn(move |_, _| async move { Ok(addresses.into()) }.boxed());
    let connect_timeout = Duration::from_secs(2);
    let client =
        client(&pki, server.port, ClientOptions { resolver: names, connect_timeout, ..Default::default() });
    let error = client.get("/").await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }) && error.is_retryable(), "{error}");
    let again = tokio::spawn(async move { client.get("/").await });
    server.call().await.reply(200, "");
    assert_eq!(again.await.unwrap().unwrap().status, 200);
}

#[tokio::test]
async fn a_request_is_limited_in_time_and_a_watch_only_until_it_begins() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let options = ClientOptions { request_timeout: Duration::from_millis(200), ..ClientOptions::default() };
    let client = client(&pki, server.port, options);
    let watching = tokio::spawn({
        let client = client.clone();
        async move { client.watch("/?watch=1").await }
    });
    let stream = server.call().await.stream();
    let mut watch = watching.await.unwrap().unwrap();
    // The second request gets no response; its end shows that the limit has passed.
    let error = client.get("/slow").await.unwrap_err();
    assert!(
        matches!(error, ClientError::Timeout { .. }) && error.origin() == ErrorOrigin::Network,
        "{error}"
    );
    stream.event("MODIFIED", "{}");
    assert_eq!(watch.next().await.unwrap().unwrap().kind, WatchEventKind::Modified);
    drop(watch);
    stream.cancelled().await;
}

#[tokio::test]
async fn responses_and_events_are_limited_in_size() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let options =
        ClientOptions { max_response_bytes: 1000, max_event_bytes: 1000, ..ClientOptions::default() };
    let client = client(&pki, server.port, options);
    let work = tokio::spawn(async move {
        let response = client.get("/").await.unwrap_err();
        let mut watch = client.watch("/?watch=1").await.unwrap();
        let event = watch.next().await.unwrap().unwrap_err();
        [response, event]
    });
    server.call().await.reply(200, vec![b'x'; 1001]);
    let stream = server.call().await.stream();
    stream.send(&"x".repeat(1001));
    for error in work.await.unwrap() {
        assert!(matches!(error, ClientError::TooLarge { limit: 1000, .. }), "{error}");
    }
}

#[tokio::test]
async fn a_broken_connection_is_replaced() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let wire = Wire::to(server.port).await;
    let client = client(&pki, wire.port, ClientOptions::default());
    let get = |path: &'static str| {
        let client = client.clone();
        tokio::spawn(async move { client.get(path).await })
    };
    let first = get("/");
    server.call().await.reply(200, "");
    first.await.unwrap().unwrap();
    // A read in flight is repeated, once.
    let read = get("/read");
    let held = server.expect("GET", "/read").await;
    wire.cut();
    let again = server.expect("GET", "/read").await;
    assert_ne!(held.connection, again.connection);
    again.reply(200, "");
    read.await.unwrap().unwrap();
    // A write in flight may have happened; that is for the caller to judge.
    let write = tokio::spawn({
        let client = client.clone();
        async move { client.request(Request::new(http::Method::POST, "/write")).await }
    });
    let _held = server.expect("POST", "/write").await;
    wire.cut();
    let error = write.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }) && error.is_retryable(), "{error}");
    server.assert_no_call();
}

#[tokio::test]
async fn a_silent_peer_is_detected() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let wire = Wire::to(server.port).await;
    let client = client(&pki, wire.port, impatient());
    let watching = tokio::spawn({
        let client = client.clone();
        async move { client.watch("/?watch=1").await }
    });
    let _stream = server.call().await.stream();
    let mut watch = watching.await.unwrap().unwrap();
    wire.freeze();
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    let request = tokio::spawn(async move { client.get("/").await });
    server.expect("GET", "/").await.reply(200, "");
    request.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_watch_cut_within_an_event_is_an_error_not_an_end() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let watching = tokio::spawn(async move {
        let mut watch = client.watch("/?watch=1").await.unwrap();
        let first = watch.next().await.unwrap().unwrap();
        (first.object, watch.next().await.unwrap().unwrap_err())
    });
    let stream = server.call().await.stream();
    stream.send("{\"type\":\"ADDED\",");
    stream.send("\"object\":{\"a\":1}}\n{\"type\":\"ADD");
    stream.end();
    let (object, error) = watching.await.unwrap();
    assert_eq!(object, "{\"a\":1}");
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
}

#[tokio::test]
async fn unreachable_and_untrusted_servers_are_distinct_errors() {
    let pki = Pki::new();
    let server = Server::start(&pki).await;
    let stranger = client(&Pki::new(), server.port, ClientOptions::default());
    let error = stranger.get("/").await.unwrap_err();
    assert!(matches!(error, ClientError::Tls { .. }) && error.origin() == ErrorOrigin::Server, "{error}");

    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let error = client(&pki, port, ClientOptions::default()).get("/").await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }) && error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_server_that_closes_every_connection_is_an_error_not_a_loop() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = Endpoint::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let credentials = Credentials::new(TrustRoots::Nothing).unwrap();
    let client = Client::new(endpoint, credentials, ClientOptions::default());
    let request = tokio::spawn(async move { client.get("/").await });
    let mut accepted = 0;
    while !request.is_finished() && accepted < 20 {
        tokio::select! {
            connection = listener.accept() => drop(connection),
            () = tokio::task::yield_now() => continue,
        }
        accepted += 1;
    }
    let error = request.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    assert!(accepted <= 3, "{accepted}");
}

#[tokio::test]
async fn an_invalid_request_is_an_error_of_the_caller() {
    let credentials = Credentials::new(TrustRoots::Nothing).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = Endpoint::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let error = Client::new(endpoint, credentials, ClientOptions::default()).get("/a b").await.unwrap_err();
    assert!(matches!(error, ClientError::Request { .. }) && error.origin() == ErrorOrigin::Caller, "{error}");
}

#[tokio::test]
async fn a_request_that_a_replica_refuses_because_it_is_behind_is_sent_to_another_one() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let options = ClientOptions { follows_revisions: true, ..ClientOptions::default() };
    let client = client(&pki, server.port, options);
    let at = |revision: &str| http::Response::builder().header("x-fairlead-revision", revision);
    let options = WriteOptions::default();
    let object = json!({});
    let (written, ()) = tokio::join!(client.create::<Value>("/objects", &object, &options), async {
        let call = server.call().await;
        assert_eq!((&call.headers["x-fairlead-revision"], call.connection), (&"0".parse().unwrap(), 1));
        call.reply_with(at("7"), "{}");
    });
    written.unwrap();
    // A watch that is open goes on.
    let watching = client.clone();
    let watching = tokio::spawn(async move { watching.watch("/objects?watch=1").await });
    let watch = server.call().await.stream();
    let mut events = watching.await.unwrap().unwrap();
    let reading = client.clone();
    let reading = tokio::spawn(async move { reading.get("/objects").await });
    for (connection, revision) in [(1, "5"), (2, "7")] {
        let call = server.call().await;
        assert_eq!(
            (&call.headers["x-fairlead-revision"], call.connection),
            (&"7".parse().unwrap(), connection)
        );
        match connection {
            1 => call.reply_with(at(revision).status(503).header("x-fairlead-refused", "behind"), "{}"),
            _ => call.reply_with(at(revision), "current"),
        }
    }
    let response = reading.await.unwrap().unwrap();
    assert_eq!(&response.body[..], b"current");
    assert!(!response.headers.contains_key("x-fairlead-revision"));
    watch.event("ADDED", "{}");
    assert_eq!(events.next().await.unwrap().unwrap().kind, WatchEventKind::Added);
}
