//! The tail of completed requests (`fairlead gateway tail`).

use http::Method;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::Value;

use crate::pki::Leaf;
use crate::world::{ORG, World, eventually, request};

const PATH: &str = "/services/fairlead/v1/tail";

/// The lines of a tail, in order.
struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    async fn open(world: &World, query: &str) -> Self {
        let client = world.http2(Some(&world.operator())).await;
        let answer =
            client.open(request(Method::GET, &format!("{PATH}?watch=1{query}"), &[], "")).await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["cache-control"]),
            (200, &"no-store".parse().unwrap())
        );
        Self { body: Response::into_body(answer), rest: Vec::new() }
    }

    /// The next line; `None` at an orderly end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.rest.extend_from_slice(&frame.into_data().unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_shows_its_filtered_lines_until_the_gateway_ends() {
    let world = World::new().await;
    world.create_workspace("root", "other", "alpha", "0ther00000000001");
    let client = world.http2(Some(&world.user())).await;
    eventually("the workspace is served", async || {
        client.get("/clusters/root:other/api").await.status == 200
    })
    .await;
    let mut all = Lines::open(&world, "").await;
    let mut of_org = Lines::open(&world, "&workspace=root:org").await;
    let mut errors = Lines::open(&world, "&errors=1&listener=internal&user=alice").await;

    let paths = [
        "/clusters/root:other/api".to_owned(),
        "/clusters/root:org/api".to_owned(),
        format!("/clusters/{ORG}/api"),
        "/elsewhere".to_owned(),
    ];
    for path in &paths {
        client.get(path).await;
    }
    for path in &paths {
        assert_eq!(all.next().await.unwrap()["path"], path.as_str());
    }
    // By its path and by its ID.
    for path in &paths[1..3] {
        let line = of_org.next().await.unwrap();
        assert_eq!(
            (&line["path"], &line["cluster"], &line["shard"]),
            (&path.as_str().into(), &ORG.into(), &"alpha".into()),
            "{line}"
        );
    }
    let error = errors.next().await.unwrap();
    assert_eq!(
        (&error["path"], &error["code"], &error["user"]),
        (&"/elsewhere".into(), &404.into(), &"alice".into()),
        "{error}"
    );

    drop(client);
    world.environment.shutdown.begin();
    let ends = async {
        for lines in [&mut all, &mut of_org, &mut errors] {
            // The other tails get a line for the one that ends; an incomplete response would be an error.
            while let Some(line) = lines.next().await {
                assert_eq!(line["path"], PATH, "{line}");
            }
        }
    };
    let (ended, ()) = tokio::join!(world.environment.tasks.supervise(), ends);
    ended.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_needs_an_operator_and_names_invalid_filters() {
    let world = World::new().await;
    let (operator, alice) = (world.operator(), world.user());
    for (leaf, query, code, says) in [
        (None::<&Leaf>, "", 401, ""),
        (Some(&alice), "", 403, "forbidden"),
        (Some(&operator), "colour=red", 400, "colour"),
        (Some(&operator), "status=6xx", 400, "6xx"),
    ] {
        let answer = world.get(leaf, &format!("{PATH}?{query}")).await;
        assert_eq!(answer.status, code, "{query}: {}", answer.text);
        assert!(answer.text.contains(says), "{query}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_tail_reader_loses_lines_and_delays_no_request() {
    let world = World::new().await;
    let mut lines = Lines::open(&world, "").await;
    let client = world.http2(Some(&world.user())).await;
    // More than the queue, the connection's windows and all socket buffers hold.
    let sent = 6_000;
    let long = "x".repeat(900);
    for _ in 0..sent {
        assert_eq!(client.get(&format!("/clusters/root:org/{long}")).await.status, 200);
    }
    let (mut read, mut lost) = (0, 0);
    while read + lost < sent {
        let line = lines.next().await.unwrap();
        match line["lost"].as_u64() {
            Some(number) => lost += number,
            None => read += 1,
        }
    }
    assert!(read + lost == sent && lost > 0 && read > 1000, "{read} read, {lost} lost");
}
