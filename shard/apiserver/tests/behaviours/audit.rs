//! The audit log: what is recorded of which request, and what happens if a destination fails.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlead_apiserver::audit::{
    AuditLog, AuditMetrics, AuditWebhook, BatchOptions, DestinationOptions, LineFormat, LogFile, Mode,
    Policy, Rotation, Throttle, Truncation,
};
use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, TrustRoots};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::client::{CONFIG_MAPS, Server};

const POLICY: &str = "
- {level: None, users: [quiet]}
- {level: Metadata, resources: [{group: '', resources: [secrets]}]}
- {level: Request, resources: [{group: example.com}], omitStages: [RequestReceived]}
- {level: RequestResponse, resources: [{group: '', resources: [configmaps]}], omitManagedFields: true}
- {level: Metadata, nonResourceURLs: [/version]}
";

fn policy(rules: &str) -> Policy {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:{rules}");
    Policy::parse(&text, Path::new("policy.yaml")).unwrap()
}

const BLOCKING: DestinationOptions =
    DestinationOptions { format: LineFormat::Json, mode: Mode::Blocking, truncation: None };

/// A server with a log file.
pub(crate) struct Audited {
    pub(crate) server: Server,
    pub(crate) file: AuditFile,
}

/// A log file that is removed at the end.
pub(crate) struct AuditFile {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Audited {
    /// A server that has written the events of a request before it responds.
    pub(crate) async fn blocking(rules: &str) -> Self {
        Self::start(rules, BLOCKING).await
    }

    async fn start(rules: &str, options: DestinationOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let file = LogFile::open(&path, Rotation::default()).unwrap();
        let policy = policy(rules);
        let server = Server::configured(|api, metrics| {
            let mut log = AuditLog::new(policy, AuditMetrics::new(metrics).unwrap());
            tokio::spawn(log.add_log(file, options).run(std::future::pending()));
            api.with_audit(log)
        })
        .await;
        Self { server, file: AuditFile { path, _folder: folder } }
    }

    fn text(&self) -> String {
        self.file.text()
    }

    fn take(&self) -> Vec<Value> {
        self.file.take()
    }
}

impl AuditFile {
    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }

    /// The events since the last call.
    pub(crate) fn take(&self) -> Vec<Value> {
        let events = self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        std::fs::File::options().write(true).open(&self.path).unwrap().set_len(0).unwrap();
        events
    }
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn requests_are_recorded_by_the_level_of_the_policy() {
    let audited = Audited::start(POLICY, BLOCKING).await;
    let server = &audited.server;
    assert_eq!(audited.take(), Vec::<Value>::new(), "creates of namespaces match no rule");

    // Metadata: no body, so no secret.
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    let headers = [
        ("content-type", "application/json"),
        ("user-agent", "tester/1"),
        ("x-forwarded-for", "192.0.2.7, nonsense, 192.0.2.8"),
        ("authorization", "Bearer abc.def.ghi"),
    ];
    let created = server
        .send("POST", "/api/v1/namespaces/default/secrets?dryRun=All", &headers, secret.to_string())
        .await;
    let text = audited.text();
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg") && !text.contains("abc.def"), "{text}");
    let events = audited.take();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    let [received, complete] = events.as_slice() else { panic!("{events:?}") };
    for event in &events {
        assert_eq!((&event["kind"], &event["apiVersion"]), (&json!("Event"), &json!("audit.k8s.io/v1")));
        assert_eq!(event["auditID"], created.header("audit-id"));
        assert_eq!(event["requestURI"], "/api/v1/namespaces/default/secrets?dryRun=All");
        assert_eq!((&event["verb"], &event["level"]), (&json!("create"), &json!("Metadata")));
        assert_eq!(event["user"], json!({"username": "admin"}));
        assert_eq!(event["sourceIPs"], json!(["192.0.2.7", "192.0.2.8"]));
        assert_eq!(event["userAgent"], "tester/1");
        assert_eq!(event["annotations"]["kcp.io/cluster"], "c");
        assert_eq!((event.get("requestObject"), event.get("responseObject")), (None, None));
    }
    assert_eq!(received.get("responseStatus"), None);
    assert_eq!(received["stageTimestamp"], received["requestReceivedTimestamp"]);
    assert_eq!(received["stageTimestamp"].as_str().unwrap().len(), "2026-01-01T00:00:00.000000Z".len());
    assert_eq!(complete["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(
        complete["objectRef"],
        json!({"resource": "secrets", "namespace": "default", "name": "s", "apiVersion": "v1"})
    );
    let annotation = |key: &str| complete["annotations"][key].as_str().unwrap_or_default();
    assert_eq!(annotation("authorization.k8s.io/decision"), "allow");
    assert_eq!(annotation("request.auth.kcp.io/01-test-decision"), "Allowed");
    assert_eq!(annotation("request.auth.kcp.io/01-test-reason"), "by name");
    assert_eq!(annotation("test.example.com/mutated"), "s", "of admission");

    // Request, without the first stage.
    let patched = server.patch("/apis/example.com/v1/gadgets/none", "merge", &json!({"a": 1})).await;
    assert_eq!(patched.code, 404);
    let events = audited.take();
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert_eq!(events[0]["requestObject"], json!({"a": 1}));
    assert_eq!(events[0].get("responseObject"), None);
    let status = &events[0]["responseStatus"];
    assert_eq!(
        (&status["status"], &status["reason"], &status["code"]),
        (&json!("Failure"), &json!("NotFound"), &json!(404))
    );
    assert_eq!(status["details"]["name"], "none");

    // RequestResponse, without managed fields.
    let object = json!({"metadata": {"name": "a", "managedFields": []}, "data": {"k": "v"}});
    server.create(CONFIG_MAPS, &object).await;
    let events = audited.take();
    assert_eq!(events[0].get("requestObject"), None, "it is not read yet");
    assert_eq!(events[1]["requestObject"]["data"], json!({"k": "v"}));
    assert_eq!(events[1]["responseObject"]["metadata"]["name"], "a");
    assert_eq!(events[1]["responseObject"]["metadata"].get("managedFields"), None);
    server.get_as(&format!("{CONFIG_MAPS}/a?pretty=true"), "application/yaml").await;
    assert_eq!(audited.take()[1]["responseObject"]["data"], json!({"k": "v"}), "JSON in any case");
    server.delete(&format!("{CONFIG_MAPS}/a")).await;
    let events = audited.take();
    assert_eq!(events[1]["responseStatus"]["status"], "Success");
    assert_eq!(events[1]["responseStatus"]["details"]["kind"], "configmaps");

    server.get("//version").await;
    let events = audited.take();
    assert_eq!((&events[1]["verb"], events[1].get("objectRef")), (&json!("get"), None));

    server.send("GET", "//version", &[("x-user", "quiet")], "").await;
    assert_eq!(audited.take(), Vec::<Value>::new());
    let forbidden = server.send("GET", CONFIG_MAPS, &[("x-user", "nobody")], "").await;
    assert_eq!(forbidden.code, 403);
    let events = audited.take();
    assert_eq!(events[1]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(events[1]["annotations"]["request.auth.kcp.io/01-test-decision"], "NoOpinion");
}

#[tokio::test]
async fn failed_authentication_and_impersonation_are_recorded() {
    let audited = Audited::start(POLICY, BLOCKING).await;
    let server = &audited.server;
    let headers = [("x-user", "impostor"), ("authorization", "Bearer secret-token")];
    assert_eq!(server.send("GET", CONFIG_MAPS, &headers, "").await.code, 401);
    assert!(!audited.text().contains("secret-token"));
    let events = audited.take();
    assert_eq!(stages(&events), ["ResponseStarted"]);
    assert_eq!(
        events[0]["responseStatus"],
        json!({"metadata": {}, "message": "Authentication failed, attempted: bearer", "code": 401})
    );
    assert_eq!(events[0]["user"], json!({}));

    let headers = [("impersonate-user", "bob"), ("impersonate-group", "team")];
    assert_eq!(server.send("GET", CONFIG_MAPS, &headers, "").await.code, 200);
    let events = audited.take();
    assert_eq!(events[0].get("impersonatedUser"), None);
    assert_eq!(events[1]["impersonatedUser"]["username"], "bob");
    assert_eq!(events[1]["user"]["username"], "admin");
}

#[tokio::test]
async fn a_watch_is_recorded_at_its_begin_and_its_end() {
    let audited = Audited::start(POLICY, BLOCKING).await;
    let mut watch = audited.server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    audited.server.config_map("a", json!({})).await;
    watch.next().await;
    let of_watch = |events: Vec<Value>| -> Vec<Value> {
        events.into_iter().filter(|event| event["verb"] == "watch").collect()
    };
    let events = of_watch(audited.take());
    assert_eq!(stages(&events), ["RequestReceived", "ResponseStarted"]);
    assert_eq!(events[1]["responseStatus"]["code"], 200);
    drop(watch);
    // The event is queued; one that waits for the log comes after it.
    audited.server.get(&format!("{CONFIG_MAPS}/a")).await;
    let events = of_watch(audited.take());
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert_eq!(events[0].get("responseObject"), None);
}

#[tokio::test]
async fn a_long_list_is_recorded_when_it_has_been_sent() {
    let audited = Audited::start(POLICY, BLOCKING).await;
    for number in 0..40 {
        let object = json!({"metadata": {"name": format!("n{number}")}, "data": {"k": "x".repeat(8192)}});
        audited.server.create(CONFIG_MAPS, &object).await;
    }
    audited.take();
    let headers = [("accept-encoding", "gzip")];
    let list = audited.server.send("GET", CONFIG_MAPS, &headers, "").await;
    assert!(list.bytes.len() > 128 * 1024, "a stream");
    audited.server.get("//version").await;
    let events = audited.take();
    let complete =
        events.iter().find(|event| event["stage"] == "ResponseComplete" && event["verb"] == "list");
    let object = &complete.unwrap()["responseObject"];
    assert_eq!(object["items"].as_array().unwrap().len(), 40);
}

#[tokio::test]
async fn an_aborted_request_is_recorded() {
    let audited = Audited::start(POLICY, BLOCKING).await;
    let object = json!({"metadata": {"name": "a", "labels": {"never": "ends"}}}).to_string();
    let headers = [("content-type", "application/json")];
    let request = audited.server.send("POST", CONFIG_MAPS, &headers, object);
    tokio::select! {
        response = request => panic!("{response:?}"),
        () = async {
            while audited.text().is_empty() {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    audited.server.get("//version").await;
    let events = audited.take();
    let ended = events.iter().find(|event| event["stage"] == "ResponseComplete" && event["verb"] == "create");
    assert_eq!(ended.unwrap()["responseStatus"]["message"], "Connection closed early");
}

#[tokio::test]
async fn a_strict_log_that_cannot_be_written_stops_requests() {
    for (mode, code, rejected) in [(Mode::Blocking, 200, 0.0), (Mode::BlockingStrict, 500, 1.0)] {
        let server = Server::configured(|api, metrics| {
            let mut log = AuditLog::new(policy(POLICY), AuditMetrics::new(metrics).unwrap());
            // Every write to this file fails.
            let full = LogFile::open(Path::new("/dev/full"), Rotation::default()).unwrap();
            let options = DestinationOptions { mode, ..BLOCKING };
            tokio::spawn(log.add_log(full, options).run(std::future::pending()));
            api.with_audit(log)
        })
        .await;
        let response = server.get(CONFIG_MAPS).await;
        assert_eq!(response.code, code, "{mode:?}");
        assert_eq!(server.metric("apiserver_audit_requests_rejected_total"), rejected);
        assert!(server.metric("apiserver_audit_error_total{plugin=\"log\"}") >= 1.0);
        assert_eq!(server.get("/api/v1/namespaces").await.code, 200, "not recorded");
    }
}

#[tokio::test]
async fn events_are_shortened_by_the_limits_of_sizes() {
    let truncation = Truncation { max_event_bytes: 2000, max_batch_bytes: 10_000 };
    let audited =
        Audited::start(POLICY, DestinationOptions { truncation: Some(truncation), ..BLOCKING }).await;
    let object = json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(4000)}});
    audited.server.create(CONFIG_MAPS, &object).await;
    let events = audited.take();
    assert_eq!(events[1]["annotations"]["audit.k8s.io/truncated"], "true");
    assert_eq!((events[1].get("requestObject"), events[1].get("responseObject")), (None, None));
    assert_eq!(events[1]["objectRef"]["name"], "a");
}

#[tokio::test]
async fn legacy_lines_have_the_form_of_kubernetes() {
    let audited = Audited::start(POLICY, DestinationOptions { format: LineFormat::Legacy, ..BLOCKING }).await;
    audited.server.send("GET", "//version", &[("user-agent", "t"), ("audit-id", "abc")], "").await;
    let text = audited.text();
    let line = text.lines().nth(1).unwrap();
    let (_, line) = line.split_once(" AUDIT: ").unwrap();
    assert_eq!(
        line,
        "id=\"abc\" stage=\"ResponseComplete\" ip=\"<unknown>\" method=\"get\" user=\"admin\" groups=\"<none>\" \
         as=\"<self>\" asgroups=\"<lookup>\" user-agent=\"t\" namespace=\"<none>\" uri=\"/version\" response=\"200\""
    );
}

/// A server of the batches that it gets. It fails as often as it is told to.
struct Receiver {
    client: Client,
    batches: mpsc::UnboundedReceiver<Value>,
    _accepting: JoinSet<()>,
}

impl Receiver {
    async fn start(failures: usize) -> Self {
        let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![key.cert.der().clone()], private)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/audit", listener.local_addr().unwrap().port());
        let (sender, batches) = mpsc::unbounded_channel();
        let failures = Arc::new(Mutex::new(failures));
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, sender, failures) = (acceptor.clone(), sender.clone(), Arc::clone(&failures));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service =
                        service_fn(move |request| take(request, sender.clone(), Arc::clone(&failures)));
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // A client may disconnect at any time.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let credentials = Credentials::new(TrustRoots::Pem(key.cert.pem().into_bytes())).unwrap();
        let client = Client::new(Endpoint::parse(&url).unwrap(), credentials, ClientOptions::default());
        Self { client, batches, _accepting: accepting }
    }
}

async fn take(
    request: Request<Incoming>,
    sender: mpsc::UnboundedSender<Value>,
    failures: Arc<Mutex<usize>>,
) -> Result<Response<Full<bytes::Bytes>>, std::convert::Infallible> {
    assert_eq!(request.uri().path(), "/audit");
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut response = Response::new(Full::default());
    {
        let mut failures = failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            return Ok(response);
        }
    }
    let _ = sender.send(serde_json::from_slice(&body).unwrap());
    Ok(response)
}

fn batch(buffer_size: usize, max_size: usize) -> Mode {
    let throttle = Some(Throttle { rate: 1000.0, burst: 100 });
    Mode::Batch(BatchOptions { buffer_size, max_size, max_wait: Duration::from_millis(20), throttle })
}

async fn with_webhook(client: Client, mode: Mode) -> Server {
    Server::configured(|api, metrics| {
        let mut log = AuditLog::new(policy("\n- {level: Metadata}\n"), AuditMetrics::new(metrics).unwrap());
        let webhook = AuditWebhook::new(client, Duration::from_millis(1));
        let options = DestinationOptions { mode, ..BLOCKING };
        tokio::spawn(log.add_webhook(webhook, options).run(std::future::pending()));
        api.with_audit(log)
    })
    .await
}

#[tokio::test]
async fn a_webhook_gets_every_event_in_batches_although_it_fails_at_first() {
    let mut receiver = Receiver::start(3).await;
    let server = with_webhook(receiver.client.clone(), batch(10_000, 50)).await;
    for number in 0..200 {
        server.config_map(&format!("n{number}"), json!({})).await;
    }
    let mut names = Vec::new();
    let mut batches = 0;
    while names.len() < 2 * 201 {
        let list = receiver.batches.recv().await.unwrap();
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
        let items = list["items"].as_array().unwrap();
        assert!(items.len() <= 50);
        names.extend(items.iter().map(|event| event["auditID"].as_str().unwrap().to_owned()));
        batches += 1;
    }
    assert!(batches < 402, "the events come in batches");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 201, "two events of each request, none lost, none twice");
    assert_eq!(server.metric("apiserver_audit_error_total{plugin=\"buffered\"}"), 0.0);
    assert_eq!(server.metric("apiserver_audit_event_total"), 402.0);
}

#[tokio::test]
async fn a_webhook_that_is_down_loses_events_and_holds_no_request() {
    let receiver = Receiver::start(usize::MAX).await;
    let server = with_webhook(receiver.client.clone(), batch(4, 2)).await;
    for number in 0..50 {
        server.config_map(&format!("n{number}"), json!({})).await;
    }
    while server.metric("apiserver_audit_error_total{plugin=\"buffered\"}") < 80.0 {
        server.get("//version").await;
        tokio::task::yield_now().await;
    }
}
