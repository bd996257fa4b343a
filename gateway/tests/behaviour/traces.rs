//! Traces: the client's trace context, the headers for shards, and the spans for a collector.

use std::convert::Infallible;
use std::net::SocketAddr;

use fairlead_config::{TraceContextPolicy, TracingConfig};
use http::{Method, Response};
use http_body_util::{BodyExt, Empty};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::world::{Answer, Http2, SecondGateway, World, connect, eventually, request, until};

const PATH: &str = "/clusters/root:org/api";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

/// A gateway with these tracing settings, at a listener with this policy for the client's trace context.
async fn tracing(world: &World, settings: Value, policy: TraceContextPolicy) -> SecondGateway {
    let settings: TracingConfig = serde_json::from_value(settings).unwrap();
    let another = world.start_second_gateway(|config| {
        config.tracing = settings;
        config.listeners[0].trace_context = policy;
    });
    another.gateway.ready().await;
    another
}

/// The `traceparent` and `tracestate` that the shard received.
async fn upstream_trace_headers(client: &Http2, fields: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let answer = client.send(request(Method::GET, PATH, fields, "")).await;
    (answer.echoed("traceparent: "), answer.echoed("tracestate: "))
}

/// The trace ID and the span ID of a sampled `traceparent`.
fn sampled(lines: &[String]) -> (String, String) {
    let [line] = lines else { panic!("{lines:?}") };
    let fields: Vec<&str> = line.strip_prefix("traceparent: 00-").unwrap().split('-').collect();
    let [trace, span, "01"] = fields[..] else { panic!("{line}") };
    assert_eq!((trace.len(), span.len()), (32, 16), "{line}");
    (trace.to_owned(), span.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trace_context_of_a_client_is_continued_or_removed() {
    use TraceContextPolicy::{Continue, Restart};
    let world = World::new().await;
    let (yes, no) = (traceparent("01"), traceparent("00"));
    let nothing: Vec<String> = Vec::new();
    let unchanged = |value: &str| vec![format!("traceparent: {value}")];
    let state = vec!["tracestate: a=b".to_owned()];
    // Without tracing the headers pass unchanged, valid or not; a listener that restarts traces removes them.
    for (policy, passes) in [(Continue, true), (Restart, false)] {
        let another = tracing(&world, json!({}), policy).await;
        let client = world.client_of(&another).await;
        for value in [yes.as_str(), no.as_str(), "odd"] {
            let expected =
                if passes { (unchanged(value), state.clone()) } else { (nothing.clone(), nothing.clone()) };
            assert_eq!(
                upstream_trace_headers(&client, &[("traceparent", value), ("tracestate", "a=b")]).await,
                expected,
                "{policy:?}"
            );
        }
        another.end().await;
    }

    // A listener that continues traces follows the client's sampling decision; without a valid one it samples at random.
    let another = tracing(&world, json!({"sample": 1}), Continue).await;
    let client = world.client_of(&another).await;
    let (parent, kept) =
        upstream_trace_headers(&client, &[("traceparent", &yes), ("tracestate", "a=b")]).await;
    let (trace, span) = sampled(&parent);
    assert_eq!((trace.as_str(), kept), (TRACE, state.clone()));
    assert_ne!(span, SPAN, "the parent span of the shard is the gateway's");
    assert_eq!(
        upstream_trace_headers(&client, &[("traceparent", &no)]).await,
        (unchanged(&no), nothing.clone())
    );
    let odd = upstream_trace_headers(&client, &[("traceparent", "odd"), ("tracestate", "a=b")]).await;
    assert_ne!(sampled(&odd.0).0, TRACE);
    assert_eq!(odd.1, nothing, "a tracestate without a valid traceparent is removed");
    // A client cannot remove the header by naming it in `Connection`.
    let mut http1 = world_http1(&world, &another).await;
    let get = request(Method::GET, PATH, &[("host", "localhost"), ("connection", "traceparent")], "");
    let answer = Answer::of(http1.send_request(get).await.unwrap()).await;
    sampled(&answer.echoed("traceparent: "));
    another.end().await;

    // At a public listener no client can have itself sampled, or join another trace.
    for (sample, is_traced) in [(json!(0), false), (json!(1), true)] {
        let settings = json!({"sample": sample, "otlpEndpoint": "http://127.0.0.1:1"});
        let another = tracing(&world, settings, Restart).await;
        let client = world.client_of(&another).await;
        let (parent, state) =
            upstream_trace_headers(&client, &[("traceparent", &yes), ("tracestate", "a=b")]).await;
        match is_traced {
            true => assert_ne!(sampled(&parent).0, TRACE),
            false => assert_eq!(parent, nothing),
        }
        assert_eq!(state, nothing);
        another.end().await;
    }
}

async fn world_http1(
    world: &World,
    another: &SecondGateway,
) -> hyper::client::conn::http1::SendRequest<http_body_util::Full<bytes::Bytes>> {
    let user = world.user();
    let stream = connect(another.address, &world.serving_ca, Some(&user), b"http/1.1").await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A collector of spans, with all spans that it received.
struct Collector {
    address: SocketAddr,
    spans: watch::Sender<Vec<Value>>,
    /// The status code of its responses.
    code: watch::Sender<u16>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (spans, code) = (watch::Sender::new(Vec::new()), watch::Sender::new(200));
        let (collected, answered) = (spans.clone(), code.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (collected, answered) = (collected.clone(), answered.clone());
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (collected, code) = (collected.clone(), *answered.borrow());
                    async move {
                        assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/v1/traces"));
                        assert_eq!(request.headers()["content-type"], "application/json");
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        if code == 200 {
                            let body: Value = serde_json::from_slice(&body).unwrap();
                            collected.send_modify(|all| all.push(body));
                        }
                        let answer = Response::builder().status(code).body(Empty::<bytes::Bytes>::new());
                        Ok::<_, Infallible>(answer.unwrap())
                    }
                });
                let server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(async move { server.serve_connection(TokioIo::new(stream), service).await });
            }
        });
        Self { address, spans, code }
    }

    fn all(&self) -> Vec<Value> {
        let requests = self.spans.borrow();
        let spans = requests.iter().map(|request| &request["resourceSpans"][0]["scopeSpans"][0]["spans"]);
        spans.flat_map(|spans| spans.as_array().unwrap().clone()).collect()
    }

    async fn has(&self, count: usize) -> Vec<Value> {
        until(&self.spans, |_| self.all().len() >= count).await;
        self.all()
    }
}

fn attribute(span: &Value, key: &str) -> Value {
    let all = span["attributes"].as_array().unwrap();
    let found = all.iter().find(|attribute| attribute["key"] == key);
    found.map_or(Value::Null, |attribute| attribute["value"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_gets_the_spans_of_the_request_and_of_the_upstream_request() {
    let world = World::new().await;
    let collector = Collector::start().await;
    let endpoint = format!("http://{}", collector.address);
    let settings =
        json!({"otlpEndpoint": endpoint, "sample": 0, "interval": "10ms", "serviceName": "edge-1"});
    let another = tracing(&world, settings, TraceContextPolicy::Continue).await;
    let client = world.client_of(&another).await;
    // Nothing is sampled at random; one client's header requests it.
    upstream_trace_headers(&client, &[]).await;
    upstream_trace_headers(&client, &[("traceparent", &traceparent("00"))]).await;
    let (parent, _) = upstream_trace_headers(&client, &[("traceparent", &traceparent("01"))]).await;
    let (_, upstream_span) = sampled(&parent);
    let spans = collector.has(2).await;
    assert_eq!(spans.len(), 2, "{spans:?}");
    let own = spans.iter().find(|span| span["kind"] == 2).unwrap();
    let of_shard = spans.iter().find(|span| span["kind"] == 3).unwrap();
    for span in [own, of_shard] {
        assert_eq!(span["traceId"], TRACE);
        let at = |key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(at("startTimeUnixNano") <= at("endTimeUnixNano"), "{span}");
    }
    assert_eq!(own["parentSpanId"], SPAN);
    assert_eq!(of_shard["parentSpanId"], own["spanId"]);
    assert_eq!(of_shard["spanId"], upstream_span, "the shard continues the span of the upstream request");
    assert_eq!(attribute(own, "http.response.status_code"), json!({"intValue": "200"}));
    assert_eq!(attribute(own, "url.path"), json!({"stringValue": PATH}));
    assert_eq!(attribute(own, "fairlead.shard"), json!({"stringValue": "alpha"}));
    assert_eq!(own["status"], Value::Null);
    let service = collector.spans.borrow()[0]["resourceSpans"][0]["resource"]["attributes"][0].clone();
    assert_eq!(service, json!({"key": "service.name", "value": {"stringValue": "edge-1"}}));

    // A response of the gateway itself has no span for a shard; queued spans are sent at the end.
    let unknown = request(Method::GET, "/clusters/root:nope/api", &[("traceparent", &traceparent("01"))], "");
    assert_eq!(client.send(unknown).await.status, 403);
    another.end().await;
    let spans = collector.has(3).await;
    assert_eq!((spans.len(), &spans[2]["kind"]), (3, &json!(2)), "{spans:?}");
    assert_eq!(attribute(&spans[2], "fairlead.reason"), json!({"stringValue": "unknown_workspace"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_collector_loses_spans_and_no_request() {
    let world = World::new().await;
    let collector = Collector::start().await;
    let endpoint = format!("http://{}", collector.address);
    let settings = json!({"otlpEndpoint": endpoint, "sample": 1, "interval": "10ms", "queue": 16});
    let another = tracing(&world, settings, TraceContextPolicy::Continue).await;
    let client = world.client_of(&another).await;
    let operator = world.operator();
    let operator =
        Http2::over(connect(another.address, &world.serving_ca, Some(&operator), b"h2").await.unwrap()).await;
    let failed = async || {
        let text = operator.get("/metrics").await.text;
        let failed = text
            .lines()
            .find_map(|line| line.strip_prefix("fairlead_gateway_spans_total{result=\"failed\"} "));
        failed.unwrap().parse::<u64>().unwrap()
    };
    // A redirect is no acceptance of the spans either.
    for code in [400, 302] {
        collector.code.send_replace(code);
        let before = failed().await;
        eventually("spans are lost", async || {
            assert_eq!(client.get(PATH).await.status, 200);
            failed().await > before
        })
        .await;
        // The collector is available again.
        collector.spans.send_replace(Vec::new());
        collector.code.send_replace(200);
        eventually("spans arrive again", async || {
            assert_eq!(client.get(PATH).await.status, 200);
            !collector.all().is_empty()
        })
        .await;
    }
    another.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tracing_follows_its_settings() {
    let world = World::new().await;
    let mut another = tracing(&world, json!({}), TraceContextPolicy::Continue).await;
    let client = world.client_of(&another).await;
    assert!(upstream_trace_headers(&client, &[]).await.0.is_empty());
    let mut config = world.config.clone();
    config.tracing = serde_json::from_value(json!({"sample": 1})).unwrap();
    another.gateway.reconfigure(config.clone()).unwrap();
    sampled(&upstream_trace_headers(&client, &[]).await.0);
    config.listeners[0].trace_context = TraceContextPolicy::Restart;
    another.gateway.reconfigure(config.clone()).unwrap();
    assert_ne!(
        sampled(&upstream_trace_headers(&client, &[("traceparent", &traceparent("01"))]).await.0).0,
        TRACE
    );
    // An invalid configuration changes nothing.
    config.tracing = serde_json::from_value(
        json!({"sample": 0, "otlpEndpoint": "https://localhost:1", "serverCA": "/nowhere/ca.crt"}),
    )
    .unwrap();
    let refused = another.gateway.reconfigure(config).unwrap_err().to_string();
    assert!(refused.contains("/nowhere/ca.crt"), "{refused}");
    sampled(&upstream_trace_headers(&client, &[]).await.0);
    another.end().await;
}
