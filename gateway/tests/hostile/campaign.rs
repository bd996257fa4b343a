//! Generated hostile requests: without a certificate, with a valid one, and with one of an authority that is not trusted.
//!
//! `HOSTILE_REQUESTS` is their number (`make hostile`: a million), `HOSTILE_SEED` selects them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::frames::{End, RawHttp2};
use crate::generate::frames::frames;
use crate::generate::framing::message;
use crate::pki::{Authority, Leaf, client_config};
use crate::random::Random;
use crate::target::{LIMIT, Target};
use crate::wire::{NoAnswer, RawHttp1};
use crate::world::{Http2, connect};

const DEFAULT_REQUESTS: usize = 20_000;
const DEFAULT_SEED: u64 = 0x0fa1_71ead;
/// Attackers at work at the same time.
const ATTACKERS: usize = 24;
/// After this time without an answer the message is taken to be one that the gateway waits for more of.
const PATIENCE: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_requests_neither_deceive_a_shard_nor_harm_the_gateway() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let requests =
        number("HOSTILE_REQUESTS").map_or(DEFAULT_REQUESTS, |count| usize::try_from(count).unwrap());
    let seed = number("HOSTILE_SEED").unwrap_or(DEFAULT_SEED);
    let mut target = Target::start().await;

    // Fills buffers, caches and connections to shards before the measurement.
    let alice = target.world.user();
    attack(&target, requests / 20, seed ^ 1, Some(&alice)).await;
    target.forget();
    let before = target.at_rest().await;

    let began = Instant::now();
    let foreign = Authority::new("elsewhere").client("alice", &["system:masters"]);
    let phases = [
        ("nobody", None, vec![]),
        ("alice", Some(&alice), as_shards_know(&target, &alice).await),
        ("foreign", Some(&foreign), vec![]),
    ];
    for (name, certificate, expected) in phases {
        let outcomes = attack(&target, requests / 3, seed, certificate).await;
        println!("{name}: {outcomes:?}");
        let arrived = target.forget();
        for (said, request) in &arrived.identities {
            assert!(name != "foreign", "a request of somebody unknown has reached a shard: {request}");
            // The gateway sends identities in headers only; trailers must contain none.
            let expected = if request.starts_with("trailers of ") { &Vec::new() } else { &expected };
            assert_eq!(said, expected, "{name} was taken for somebody else: {request}");
        }
        // Or the campaign would be one against the front listener only.
        let reached = arrived.requests * 100 / (requests / 3).max(1);
        assert!(
            if name == "foreign" { reached == 0 } else { reached >= 20 },
            "{name}: {reached} % have reached a shard"
        );
        println!("{name}: {reached} % have reached a shard");
    }
    println!("{requests} requests in {:.0?}, seed {seed}", began.elapsed());
    target.assert_unharmed(&before).await;
}

/// The identity headers of an honest request.
async fn as_shards_know(target: &Target, user: &Leaf) -> Vec<String> {
    let stream = connect(target.address, &target.world.serving_ca, Some(user), b"h2").await.unwrap();
    assert_eq!(Http2::over(stream).await.get("/clusters/root:org/api").await.status, 200);
    let mut said = target.forget().identities.into_keys();
    let known = said.next().unwrap();
    assert!(known.contains(&"x-remote-user: alice".to_owned()) && said.next().is_none());
    known
}

/// Sends so many requests; returns how they ended.
async fn attack(
    target: &Target,
    requests: usize,
    seed: u64,
    certificate: Option<&Leaf>,
) -> BTreeMap<String, usize> {
    let tls = |protocol| client_config(&target.world.serving_ca, certificate, protocol);
    let (over_http1, over_http2) = (tls(&b"http/1.1"[..]), tls(b"h2"));
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|number| {
            let attacker = Attacker {
                random: Random::new(seed.wrapping_mul(31).wrapping_add(number as u64)),
                address: target.address,
                tls: [Arc::clone(&over_http1), Arc::clone(&over_http2)],
                http1: None,
                http2: None,
                outcomes: BTreeMap::new(),
            };
            tokio::spawn(attacker.attack(requests.div_ceil(ATTACKERS)))
        })
        .collect();
    let mut outcomes = BTreeMap::new();
    for attacker in attackers {
        for (outcome, count) in attacker.await.unwrap() {
            *outcomes.entry(outcome).or_default() += count;
        }
    }
    outcomes
}

struct Attacker {
    random: Random,
    address: std::net::SocketAddr,
    /// For HTTP/1.1 and for HTTP/2.
    tls: [Arc<rustls::ClientConfig>; 2],
    http1: Option<RawHttp1>,
    http2: Option<RawHttp2>,
    outcomes: BTreeMap<String, usize>,
}

impl Attacker {
    async fn attack(mut self, requests: usize) -> BTreeMap<String, usize> {
        for _ in 0..requests {
            if self.random.percent(60) {
                self.over_http1().await;
            } else {
                self.over_http2().await;
            }
        }
        self.outcomes
    }

    fn count(&mut self, outcome: impl ToString) {
        *self.outcomes.entry(outcome.to_string()).or_default() += 1;
    }

    async fn over_http1(&mut self) {
        let message = message(&mut self.random);
        let mut connection = match self.http1.take() {
            Some(kept) => kept,
            None => RawHttp1::over(self.connect(0).await),
        };
        let shown = || message.bytes[..message.bytes.len().min(4096)].escape_ascii().to_string();
        let exchange = async {
            // A server that does not want it all has still answered.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut connection.socket, &message.bytes).await;
            if message.unfinished {
                connection.finish().await;
            }
            let mut codes = Vec::new();
            let first = match timeout(PATIENCE, connection.answer(message.head)).await {
                Ok(first) => first,
                Err(_) => {
                    connection.finish().await;
                    connection.answer(message.head).await
                }
            };
            let mut next = first;
            loop {
                match next {
                    Ok(answer) => {
                        codes.push(answer.code.to_string());
                        if !message.doubtful && !answer.last {
                            assert!(connection.is_clean(), "more than an answer: {}", shown());
                            return (codes, Some(connection));
                        }
                        connection.finish().await;
                    }
                    Err(NoAnswer::End) => {
                        if codes.is_empty() {
                            codes.push("closed".to_owned());
                        }
                        return (codes, None);
                    }
                    Err(NoAnswer::BrokenOff(_)) if message.doubtful => {
                        codes.push("broken off".to_owned());
                        return (codes, None);
                    }
                    Err(fault) => panic!("{fault:?} to {}", shown()),
                }
                next = connection.answer(false).await;
            }
        };
        let ended = timeout(LIMIT, exchange).await;
        let (codes, kept) = ended.unwrap_or_else(|_| panic!("it hangs: {}", shown()));
        self.http1 = kept;
        for code in codes {
            self.count(code);
        }
    }

    async fn over_http2(&mut self) {
        let mut connection = match self.http2.take() {
            Some(kept) => kept,
            None => RawHttp2::over(self.connect(1).await).await,
        };
        let frames = frames(&mut self.random, &mut connection);
        let shown = || frames.bytes[..frames.bytes.len().min(4096)].escape_ascii().to_string();
        let exchange = async {
            connection.write(&frames.bytes).await;
            connection.settle(&frames.streams).await
        };
        let ended = timeout(LIMIT, exchange).await.unwrap_or_else(|_| panic!("it hangs: {}", shown()));
        let ends = ended.unwrap_or_else(|fault| panic!("{fault} to {}", shown()));
        for end in ends {
            match end {
                End::Answered(code) => self.count(code),
                End::Reset(code) => self.count(format!("reset {code}")),
                End::Gone => self.count("gone"),
            }
        }
        if connection.is_usable() {
            self.http2 = Some(connection);
        }
    }

    async fn connect(&self, protocol: usize) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::clone(&self.tls[protocol])).connect(name, stream).await.unwrap()
    }
}
