//! Many slow clients: heads and bodies in small pieces, responses that are not read, and many ranges. A hundred of each here; with
//! slowhttptest at 4,000 connections: `make slow`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use fairlead_config::Timespan;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::target::{LIMIT, Target};
use crate::wire::RawHttp1;
use crate::world::Http2;

const CONNECTIONS: usize = 100;
const API: &str = "/clusters/root:org/api";

/// The first bytes of a slow client, and the bytes that it repeats.
struct Mode {
    name: &'static str,
    first: String,
    more: &'static [u8],
}

fn modes() -> [Mode; 4] {
    let head = |method: &str, path: &str, more: &str| {
        format!("{method} /clusters/root:org/{path} HTTP/1.1\r\nHost: localhost\r\n{more}")
    };
    let ranges: Vec<String> = (5..900).map(|end| format!("5-{end}")).collect();
    [
        Mode { name: "headers", first: head("GET", "api", "X-Slow: "), more: b"x" },
        Mode { name: "body", first: head("POST", "api", "Content-Length: 4096\r\n\r\n"), more: b"x" },
        Mode { name: "reading", first: head("GET", "big", "\r\n"), more: b"" },
        Mode {
            name: "ranges",
            first: head("HEAD", "api", &format!("Range: bytes=0-,{}\r\n\r\n", ranges.join(","))),
            more: b"",
        },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_delay_no_other_client_and_are_disconnected() {
    let mut target = Target::with(|config| {
        config.limits.header_read_timeout = Timespan::from_millis(500);
        config.limits.idle_timeout = Timespan::from_millis(500);
        config.slow_clients.request_body_timeout = Timespan::from_millis(500);
        config.slow_clients.response_stall_timeout = Timespan::from_millis(500);
    })
    .await;
    let before = target.at_rest().await;
    for mode in modes() {
        let mut slow = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = target.http1(None).await;
            connection.socket.write_all(mode.first.as_bytes()).await.unwrap();
            slow.push(tokio::spawn(drip(connection, mode.more)));
        }
        let honest = target.honest().await;
        for _ in 0..100 {
            let answer = timeout(LIMIT, honest.get(API)).await.expect("an honest client is not served");
            assert_eq!(answer.status, 200, "{}", mode.name);
        }
        drop(honest);
        // Their ends of the connections are still open: it is the gateway that has had enough.
        println!("slow {}", mode.name);
        target.at_rest().await;
        slow.iter().for_each(JoinHandle::abort);
    }
    target.assert_unharmed(&before).await;
}

/// Goes on slowly, and takes nothing of what comes.
async fn drip(mut connection: RawHttp1, more: &[u8]) {
    let mut pause = tokio::time::interval(Duration::from_millis(100));
    loop {
        pause.tick().await;
        let _ = connection.socket.write_all(more).await;
    }
}

/// Prints, for each mode, how long an honest client had to wait at most, and what the tool says. Fails if it was longer than
/// SLOW_MOST_MILLIS, where that is set: time is only to be trusted on an idle machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program slowhttptest: make slow"]
async fn slowhttptest_at_4000_connections() {
    let program = std::env::var("SLOWHTTPTEST").unwrap_or_else(|_| "slowhttptest".to_owned());
    let seconds = std::env::var("SLOW_SECONDS").unwrap_or_else(|_| "60".to_owned());
    let most = std::env::var("SLOW_MOST_MILLIS").ok().map(|text| text.parse().expect("a number is needed"));
    let most = most.map(Duration::from_millis);
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    for (name, path, arguments) in [
        ("-H", "api", &["-i", "10"][..]),
        ("-B", "api", &["-i", "10", "-s", "8192"]),
        ("-R", "api", &["-a", "10", "-b", "3000", "-t", "HEAD"]),
        ("-X", "mib", &["-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-k", "3"]),
    ] {
        let url = format!("https://localhost:{}/clusters/root:org/{path}", target.address.port());
        let mut tool = Command::new(&program)
            .arg(name)
            .args(["-c", "4000", "-r", "400", "-p", "3", "-l", &seconds, "-u", &url])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("SLOWHTTPTEST cannot be run");
        let mut output = tool.stdout.take().unwrap();
        let said = tokio::spawn(async move {
            let mut text = Vec::new();
            let _ = output.read_to_end(&mut text).await;
            String::from_utf8_lossy(&text).into_owned()
        });
        let honest = target.honest().await;
        let mut waits = Vec::new();
        while tool.try_wait().unwrap().is_none() {
            waits.push(probe(&honest).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        drop(honest);
        waits.sort();
        let late = waits.iter().filter(|wait| **wait > Duration::from_millis(100)).count();
        println!(
            "slowhttptest {name}: {} probes, at most {:?}, p99 {:?}, {late} over 100 ms",
            waits.len(),
            waits[waits.len() - 1],
            waits[waits.len() * 99 / 100],
        );
        println!("  {}", what_it_says(&said.await.unwrap()));
        // Buffers that are kept for reuse are more than after a hundred connections.
        let after = target.at_rest().await;
        println!("  memory at rest: {} MiB, then {} MiB", before.memory_kib >> 10, after.memory_kib >> 10);
        assert!(target.gateway.child.try_wait().unwrap().is_none(), "the gateway has ended");
        let longest = waits[waits.len() - 1];
        assert!(most.is_none_or(|most| longest <= most), "{name}: an honest client waited for {longest:?}");
    }
}

async fn probe(honest: &Http2) -> Duration {
    let began = Instant::now();
    let answer = timeout(LIMIT, honest.get(API)).await.expect("an honest client is not served");
    assert_eq!(answer.status, 200);
    began.elapsed()
}

/// The last that it says of its connections, and why it ended. It writes in colours.
fn what_it_says(text: &str) -> String {
    let plain: String =
        text.split('\u{1b}').map(|part| part.split_once('m').map_or(part, |(_, rest)| rest)).collect();
    let last = |what: &str| {
        let line = plain.lines().rev().find(|line| line.trim_start().starts_with(what));
        line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
    };
    let wanted = ["connected:", "error:", "closed:", "service available:", "Exit status:"];
    wanted.map(last).join("; ")
}
