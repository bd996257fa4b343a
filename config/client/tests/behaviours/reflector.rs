use std::time::Duration;

use fairlead_client::{
    Client, ClientOptions, Event, ListWatch, Phase, Piece, Reflector, ReflectorOptions, ReflectorStatus,
};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use crate::support::{Pki, Server, Wire, client, impatient};

/// The fields of an object that these tests need.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Thing {
    metadata: Name,
    #[serde(default)]
    color: Color,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Name {
    name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Color {
    #[default]
    None,
    Red,
}

/// A reflector that runs by itself and reports in short: `+a`, `-a`, `@9`, `=a,b@7`.
struct Run {
    events: mpsc::UnboundedReceiver<String>,
    status: watch::Receiver<ReflectorStatus>,
}

impl Run {
    fn start(client: Client) -> Self {
        Self::of(Reflector::new(client, ListWatch::new("/things"), quick()))
    }

    fn of(mut reflector: Reflector<Thing>) -> Self {
        let status = reflector.status();
        let (sender, events) = mpsc::unbounded_channel();
        tokio::spawn(async move { while sender.send(short(reflector.next().await)).is_ok() {} });
        Self { events, status }
    }

    async fn expect(&mut self, expected: &[&str]) {
        for expected in expected {
            assert_eq!(self.events.recv().await.unwrap(), *expected);
        }
    }

    fn status(&self) -> ReflectorStatus {
        self.status.borrow().clone()
    }
}

fn short(event: Event<Thing>) -> String {
    match event {
        Event::Replaced { items, resource_version } => {
            let names: Vec<String> = items.into_iter().map(|thing| thing.metadata.name).collect();
            format!("={}@{resource_version}", names.join(","))
        }
        Event::Applied(thing) => format!("+{}", thing.metadata.name),
        Event::Deleted(thing) => format!("-{}", thing.metadata.name),
        Event::Progress(version) => format!("@{version}"),
    }
}

fn quick() -> ReflectorOptions {
    ReflectorOptions {
        initial_backoff: Duration::from_millis(1),
        longest_backoff: Duration::from_millis(5),
        ..ReflectorOptions::default()
    }
}

fn thing(name: &str, version: u64) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn list(names: &[&str], version: u64, continue_token: &str) -> String {
    let items: Vec<String> = names.iter().map(|name| thing(name, version)).collect();
    let meta = format!(r#"{{"resourceVersion":"{version}","continue":"{continue_token}"}}"#);
    format!(r#"{{"kind":"List","metadata":{meta},"items":[{}]}}"#, items.join(","))
}

const GONE: &str =
    r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 7 (9)"}"#;

#[tokio::test]
async fn pages_are_delivered_one_by_one_and_the_first_is_marked() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let mut reflector = Reflector::<Thing>::new(client, ListWatch::new("/things"), quick());
    let (sender, mut pieces) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let line = match reflector.next_piece().await {
                Piece::Page { items, is_first, complete_at } => {
                    let names: Vec<String> = items.into_iter().map(|thing| thing.metadata.name).collect();
                    format!("{}{}{complete_at:?}", names.join(","), if is_first { " first " } else { " " })
                }
                other => format!("{other:?}"),
            };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    server.expect("GET", "/things?limit=500").await.reply(200, list(&["a", "b"], 7, "next"));
    assert_eq!(pieces.recv().await.unwrap(), "a,b first None");
    // The continue token expires; another list follows.
    server.expect("GET", "/things?limit=500&continue=next").await.reply(410, GONE);
    server.expect("GET", "/things?limit=500").await.reply(200, list(&["a"], 9, "more"));
    assert_eq!(pieces.recv().await.unwrap(), "a first None");
    server.expect("GET", "/things?limit=500&continue=more").await.reply(200, list(&["c"], 9, ""));
    assert_eq!(pieces.recv().await.unwrap(), "c Some(\"9\")");
}

#[tokio::test]
async fn pages_are_listed_and_then_watched() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let mut run = Run::start(client(&pki, server.port, ClientOptions::default()));
    assert!(!run.status().synced);
    server.expect("GET", "/things?limit=500").await.reply(200, list(&["a", "b"], 7, "next"));
    server.expect("GET", "/things?limit=500&continue=next").await.reply(200, list(&["c"], 7, ""));
    run.expect(&["=a,b,c@7"]).await;
    let call =
        server.expect_query(&["watch=1", "allowWatchBookmarks=true", "resourceVersion=7", "!limit"]).await;
    let timeout = call.path_and_query.split("timeoutSeconds=").nth(1).unwrap().parse::<u64>().unwrap();
    assert!((300..=600).contains(&timeout), "{timeout}");
    let watch = call.stream();
    watch.event("ADDED", &thing("d", 8));
    watch.event("MODIFIED", &thing("a", 9));
    watch.event("DELETED", &thing("b", 10));
    watch.event("BOOKMARK", r#"{"kind":"Thing","metadata":{"resourceVersion":"12"}}"#);
    run.expect(&["+d", "+a", "-b", "@12"]).await;
    let status = run.status();
    assert_eq!((status.phase, status.synced, status.relists, status.restarts), (Phase::Watching, true, 1, 1));
    assert_eq!(status.resource_version.as_deref(), Some("12"));
    assert!(status.last_event.is_some() && status.last_contact >= status.last_event);
}

#[tokio::test]
async fn a_broken_watch_resumes_without_a_list_and_loses_no_event() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let wire = Wire::to(server.port).await;
    let mut run = Run::start(client(&pki, wire.port, ClientOptions::default()));
    server.expect("GET", "/things?limit=500").await.reply(200, list(&[], 7, ""));
    run.expect(&["=@7"]).await;
    let watch = server.expect_query(&["watch=1", "resourceVersion=7"]).await.stream();
    watch.event("ADDED", &thing("a", 8));
    watch.event("ADDED", &thing("b", 9));
    run.expect(&["+a", "+b"]).await;
    wire.cut();
    // Revision 9 may have had more events, so the client requests it again.
    let watch = server.expect_query(&["watch=1", "resourceVersion=8"]).await.stream();
    watch.event("ADDED", &thing("b", 9));
    watch.event("ADDED", &thing("c", 9));
    watch.event("BOOKMARK", &thing("", 11));
    run.expect(&["+b", "+c", "@11"]).await;
    // A stream that breaks and a proper end are resumed alike.
    drop(watch);
    let watch = server.expect_query(&["watch=1", "resourceVersion=11"]).await.stream();
    watch.event("DELETED", &thing("c", 12));
    run.expect(&["-c"]).await;
    watch.end();
    let _watch = server.expect_query(&["watch=1", "resourceVersion=11"]).await.stream();
    let mut status = run.status.clone();
    let status = status.wait_for(|status| status.restarts == 4).await.unwrap();
    assert_eq!(status.relists, 1);
}

#[tokio::test]
async fn after_410_a_new_list_reveals_deleted_objects() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let mut run = Run::start(client(&pki, server.port, ClientOptions::default()));
    server.expect("GET", "/things?limit=500").await.reply(200, list(&["a", "b"], 7, ""));
    run.expect(&["=a,b@7"]).await;
    // 410 as an event of an accepted watch.
    let watch = server.expect_query(&["watch=1", "resourceVersion=7"]).await.stream();
    watch.event("ERROR", GONE);
    server.expect("GET", "/things?limit=500").await.reply(200, list(&["b"], 20, ""));
    run.expect(&["=b@20"]).await;
    // 410 as the response to the request.
    server.expect_query(&["watch=1", "resourceVersion=20"]).await.reply(410, GONE);
    server.expect("GET", "/things?limit=500").await.reply(200, list(&["b", "c"], 30, ""));
    run.expect(&["=b,c@30"]).await;
    let _watch = server.expect_query(&["watch=1", "resourceVersion=30"]).await.stream();
    assert_eq!(run.status().relists, 3);
}

#[tokio::test]
async fn errors_that_are_not_about_the_history_do_not_cause_lists() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let mut run = Run::start(client(&pki, server.port, ClientOptions::default()));
    server.expect("GET", "/things?limit=500").await.reply(503, "");
    server.expect("GET", "/things?limit=500").await.reply(200, list(&["a"], 7, "next"));
    server.expect("GET", "/things?limit=500&continue=next").await.reply(500, "");
    server.expect("GET", "/things?limit=500&continue=next").await.reply(200, list(&["b"], 7, ""));
    run.expect(&["=a,b@7"]).await;
    for code in [401, 403, 429, 500, 503] {
        server.expect_query(&["watch=1", "resourceVersion=7"]).await.reply(code, "");
    }
    let watch = server.expect_query(&["watch=1", "resourceVersion=7"]).await.stream();
    watch.event("ERROR", r#"{"kind":"Status","code":500,"message":"boom"}"#);
    let watch = server.expect_query(&["watch=1", "resourceVersion=7"]).await.stream();
    watch.event("ADDED", &thing("c", 8));
    run.expect(&["+c"]).await;
}

#[tokio::test]
async fn a_replaced_store_is_listed_again() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let mut run = Run::start(client(&pki, server.port, ClientOptions::default()));
    server.expect("GET", "/things?limit=500").await.reply(200, list(&["a"], 700, ""));
    run.expect(&["=a@700"]).await;
    let watch = server.expect_query(&["watch=1", "resourceVersion=700"]).await.stream();
    watch.event("BOOKMARK", &thing("", 3));
    server.expect("GET", "/things?limit=500").await.reply(200, list(&[], 3, ""));
    run.expect(&["=@3"]).await;
}

#[tokio::test]
async fn a_connection_without_response_is_replaced() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let wire = Wire::to(server.port).await;
    let mut run = Run::start(client(&pki, wire.port, impatient()));
    server.expect("GET", "/things?limit=500").await.reply(200, list(&[], 7, ""));
    let watch = server.expect_query(&["watch=1", "resourceVersion=7"]).await.stream();
    watch.event("BOOKMARK", &thing("", 9));
    run.expect(&["=@7", "@9"]).await;
    wire.freeze();
    let watch = server.expect_query(&["watch=1", "resourceVersion=9"]).await.stream();
    watch.event("ADDED", &thing("a", 10));
    run.expect(&["+a"]).await;
    assert_eq!(run.status().relists, 1);
}

#[tokio::test]
async fn a_persisted_revision_is_resumed_without_a_list() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let mut run = Run::of(Reflector::resume(client, ListWatch::new("/things"), quick(), "42".into()));
    let watch = server.expect_query(&["watch=1", "resourceVersion=42"]).await.stream();
    watch.event("ADDED", &thing("a", 43));
    run.expect(&["+a"]).await;
    let status = run.status();
    assert!(status.synced);
    assert_eq!((status.relists, status.resource_version.as_deref()), (0, Some("42")));
}

#[tokio::test]
async fn an_object_that_does_not_decode_is_skipped_and_counted() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let mut run = Run::start(client(&pki, server.port, ClientOptions::default()));
    let odd = r#"{"metadata":{"name":"x","resourceVersion":"8"},"color":"mauve"}"#;
    let body = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{},{odd}]}}"#, thing("a", 7));
    server.expect("GET", "/things?limit=500").await.reply(200, body);
    run.expect(&["=a@7"]).await;
    let watch = server.expect_query(&["watch=1"]).await.stream();
    watch.event("ADDED", odd);
    watch.event("ADDED", &thing("b", 9));
    run.expect(&["+b"]).await;
    let status = run.status();
    assert_eq!((status.skipped, status.relists, status.restarts), (2, 1, 1));
}

#[tokio::test]
async fn cancelling_next_loses_nothing() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let mut reflector = Reflector::<Thing>::new(client, ListWatch::new("/things"), quick());
    // Every wait is given up once before it is resumed.
    macro_rules! given_up {
        ($while:expr) => {
            tokio::select! { biased; _ = reflector.next() => panic!("an event too early"), value = $while => value }
        };
    }
    let call = given_up!(server.expect("GET", "/things?limit=500"));
    call.reply(200, list(&["a"], 7, "next"));
    let call = given_up!(server.expect("GET", "/things?limit=500&continue=next"));
    call.reply(200, list(&["b"], 7, ""));
    assert_eq!(short(reflector.next().await), "=a,b@7");
    let watch = given_up!(server.expect_query(&["watch=1"])).stream();
    watch.send("{\"type\":\"ADDED\",\"obj");
    let mut status = reflector.status();
    given_up!(async { status.wait_for(|status| status.phase == Phase::Watching).await.map(drop) }).unwrap();
    watch.send(&format!("ect\":{}}}\n", thing("c", 8)));
    assert_eq!(short(reflector.next().await), "+c");
    server.assert_no_call();
}
