//! The gateway's index of workspaces.

use std::net::SocketAddr;

use fairlead_client::{Client, PatchType, WriteOptions};
use fairlead_tests::load::{Target, WorkspaceLoad, measure_workspaces};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::installation::{Installation, code, until, within};
use crate::wire::send;

const SHARDS: &str = "/apis/core.kcp.io/v1alpha1/shards";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_seen_ready_has_access() {
    let installation = Installation::start(2).await;
    let target = Target::from_kubeconfig(&installation.admin_kubeconfig(), None, Vec::new()).unwrap();
    let load = WorkspaceLoad {
        clients: 16,
        count: 300,
        settled_after: 300,
        name_prefix: "crew".to_owned(),
        type_name: "universal".to_owned(),
    };
    let table = within("300 workspaces", measure_workspaces(&target, &load)).await.unwrap();
    for row in table.rows().iter().filter(|row| row.what.ends_with("after Ready")) {
        assert_eq!(row.value, "0", "{}: {}", row.what, row.note);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_index_connection_means_neither_a_list_nor_a_403() {
    let installation = Installation::start(2).await;
    let direct = installation.server("shard-1").url;
    let proxy = Proxy::to(direct.trim_start_matches("https://").parse().unwrap()).await;
    let root = installation.admin("/clusters/root");
    let patch = json!({ "spec": { "baseURL": proxy.url() } });
    let shard = format!("{SHARDS}/shard-1");
    root.patch::<Value>(&shard, PatchType::Merge, &patch, &WriteOptions::default()).await.unwrap();
    within("the index comes through the proxy", proxy.until_used()).await;
    let first = installation.workspace("root", "first", "shard-1").await;
    let lists = index(&root, "lists_read").await;
    for round in 0..5 {
        let watches = index(&root, "watches_opened").await;
        proxy.cut();
        // Known workspaces stay known: requests may fail because of the cut, but never with 403.
        let response = until("a response", || {
            let client = installation.admin(&first);
            async move {
                let response = client.get(CONFIG_MAPS).await;
                match response {
                    Err(error) if error.code() != Some(403) && error.is_retryable() => Err(error),
                    response => Ok(code(&response)),
                }
            }
        })
        .await;
        assert_eq!(response, 200);
        let next = installation.workspace("root", &format!("next-{round}"), "shard-1").await;
        installation.admin(&next).get(CONFIG_MAPS).await.unwrap();
        until("the index watches again", || async {
            let now = index(&root, "watches_opened").await;
            if now > watches { Ok(()) } else { Err(now) }
        })
        .await;
    }
    assert_eq!(index(&root, "lists_read").await, lists);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_first_sync_no_workspace_is_denied() {
    let mut installation = Installation::start(1).await;
    let url = format!("https://127.0.0.1:{}", installation.port());
    let admin = installation.credentials(&fairlead_certs::Client::Admin);
    installation.freeze("root").await;
    let before = installation.server("gateway");
    installation.signal("gateway", Signal::KILL);
    installation.until_server("gateway", |now| now.pid != before.pid && now.pid != 0).await;
    until("the port is open", || tokio::net::TcpStream::connect(("127.0.0.1", installation.port()))).await;
    for path in ["/clusters/root/api", "/clusters/nowhere/api", "/clusters/root:nowhere/api", "/readyz"] {
        let response = send(&url, &admin, http::Method::GET, path, &[], "").await;
        let expected = if path == "/readyz" { 500 } else { 503 };
        assert_eq!(response.code, expected, "{path}: {response:?}");
        if expected == 503 {
            assert!(response.headers.contains_key("retry-after"), "{path}: {response:?}");
        }
    }
    assert_eq!(send(&url, &admin, http::Method::GET, "/livez", &[], "").await.code, 200);
    installation.signal("root", Signal::CONT);
    installation.until_complete().await;
    let response = send(&url, &admin, http::Method::GET, "/clusters/root/api", &[], "").await;
    assert_eq!(response.code, 200, "{response:?}");
    let response = send(&url, &admin, http::Method::GET, "/clusters/root:nowhere/api", &[], "").await;
    assert_eq!(response.code, 403, "{response:?}");
}

/// The sum of an index metric of the gateway.
pub(super) async fn index(admin: &Client, name: &str) -> f64 {
    let text = admin.with_prefix("").get("/metrics").await.unwrap().body;
    let prefix = format!("fairlead_gateway_index_{name}");
    let text = String::from_utf8_lossy(&text).into_owned();
    let values = text.lines().filter(|line| line.starts_with(&prefix));
    let values: Vec<f64> = values.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(!values.is_empty(), "no {prefix} in\n{text}");
    values.iter().sum()
}

/// A TCP proxy whose connections can be cut.
struct Proxy {
    port: u16,
    used: watch::Sender<usize>,
    cuts: watch::Sender<u32>,
}

impl Proxy {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (used, cuts) = (watch::Sender::new(0), watch::Sender::new(0));
        let (counter, cutter) = (used.clone(), cuts.clone());
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let mut cut = cutter.subscribe();
                counter.send_modify(|count| *count += 1);
                connections.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { port, used, cuts }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    async fn until_used(&self) {
        self.used.subscribe().wait_for(|count| *count > 0).await.unwrap();
    }

    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}
