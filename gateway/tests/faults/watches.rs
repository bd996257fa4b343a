//! Watches that count: each event has the number after the one before, whatever happens to the watch meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::LIMIT;
use crate::clients::{Clients, Connection, IDENTITIES, Identity, Protocol};
use crate::party::Party;
use crate::tally::{Figures, Refusal};
use crate::world::{Answer, request};

/// Time between two attempts; the shards of this suite recover before a client gives up.
const BEFORE_ANOTHER_TRY: Duration = Duration::from_millis(100);
/// One in this many watches has a connection over HTTP/1.1 to itself; the others share some over HTTP/2.
const OVER_HTTP1: usize = 10;

pub struct Watches {
    all: Arc<[Arc<Watch>]>,
    _tasks: JoinSet<()>,
}

struct Watch {
    party: Arc<Party>,
    identity: Identity,
    protocol: Protocol,
    /// The number of the last event.
    last: AtomicU64,
    /// Its revision.
    revision: AtomicU64,
    /// Number of ends so far.
    ends: AtomicU64,
}

/// The end of a watch.
enum End {
    /// As watches end: between two events.
    Cleanly,
    /// The client has new credentials.
    Left,
    Wrong(String),
}

impl Watches {
    /// Opens so many, evenly over the shards, and waits until all are open.
    pub async fn open(clients: &Arc<Clients>, parties: &[Arc<Party>], count: usize) -> Self {
        let watch = |number: usize| Watch {
            party: Arc::clone(&parties[number % parties.len()]),
            identity: IDENTITIES[number / parties.len() % IDENTITIES.len()],
            protocol: if (number / parties.len()).is_multiple_of(OVER_HTTP1) {
                Protocol::Http1
            } else {
                Protocol::Http2
            },
            last: AtomicU64::new(0),
            revision: AtomicU64::new(0),
            ends: AtomicU64::new(0),
        };
        let all: Arc<[Arc<Watch>]> = (0..count).map(|number| Arc::new(watch(number))).collect();
        let mut tasks = JoinSet::new();
        for watch in &*all {
            tasks.spawn(Arc::clone(watch).follow(Arc::clone(clients)));
        }
        let watches = Self { all, _tasks: tasks };
        for party in parties {
            let opened = party.tally.until(|figures| watches.are_current(party, figures));
            if timeout(LIMIT, opened).await.is_err() {
                panic!("the watches of {} are not opened: {:?}", party.name, party.tally.figures());
            }
        }
        watches
    }

    /// Whether all watches of a shard are open and have its last event.
    pub fn are_current(&self, party: &Party, figures: &Figures) -> bool {
        let is_current = |watch: &Arc<Watch>| watch.last.load(Ordering::SeqCst) == party.events();
        figures.watching == self.count(party) && self.of(party).all(is_current)
    }

    /// The last numbers of those that have not the shard's last event.
    pub fn behind(&self, party: &Party) -> Vec<u64> {
        let last = self.of(party).map(|watch| watch.last.load(Ordering::SeqCst));
        last.filter(|last| *last != party.events()).collect()
    }

    pub fn count(&self, party: &Party) -> usize {
        self.of(party).count()
    }

    /// Number of ends of each watch of a shard so far.
    pub fn ends(&self, party: &Party) -> Vec<u64> {
        self.of(party).map(|watch| watch.ends.load(Ordering::SeqCst)).collect()
    }

    fn of(&self, party: &Party) -> impl Iterator<Item = &Arc<Watch>> {
        self.all.iter().filter(move |watch| watch.party.name == party.name)
    }
}

impl Watch {
    async fn follow(self: Arc<Self>, clients: Arc<Clients>) {
        let mut credentials = clients.credentials();
        loop {
            credentials.mark_unchanged();
            let path = format!(
                "/clusters/{}/api/v1/numbers?watch=true&resourceVersion={}",
                self.party.workspace(),
                self.revision.load(Ordering::SeqCst)
            );
            let question = request(Method::GET, &path, &[], "");
            let connection = match self.protocol {
                Protocol::Http1 => Connection::Own,
                Protocol::Http2 => Connection::Reused,
            };
            let sent = timeout(LIMIT, clients.send(self.identity, self.protocol, connection, question)).await;
            match sent {
                Err(_) => self.wrong("a watch is not answered".to_owned()),
                Ok(Err(error)) => self.wrong(format!("a watch cannot be opened: {error}")),
                Ok(Ok((response, _held))) if response.status() == 200 => {
                    self.party.tally.count(|figures| figures.watching += 1);
                    let end = tokio::select! {
                        end = self.read(response) => end,
                        _ = credentials.changed() => End::Left,
                    };
                    self.ends.fetch_add(1, Ordering::SeqCst);
                    self.party.tally.count(|figures| {
                        figures.watching -= 1;
                        figures.ended += u64::from(!matches!(end, End::Left));
                    });
                    if let End::Wrong(what) = end {
                        self.wrong(what);
                    }
                }
                Ok(Ok((response, _held))) => match Answer::read(response).await {
                    Ok(answer) if Refusal::of(&answer).is_some() => {
                        let said = answer.text.clone();
                        self.party.tally.turned_away(said);
                    }
                    answer => self.wrong(format!("a watch is answered {answer:?}")),
                },
            }
            tokio::time::sleep(BEFORE_ANOTHER_TRY).await;
        }
    }

    fn wrong(&self, what: String) {
        self.party.tally.wrong(format!("{what} ({:?}, {:?})", self.identity, self.protocol));
    }

    async fn read(&self, mut response: Response<Incoming>) -> End {
        let mut rest = Vec::new();
        loop {
            match response.body_mut().frame().await {
                None if rest.is_empty() => return End::Cleanly,
                None => return End::Wrong("a watch ended in the middle of an event".to_owned()),
                Some(Err(error)) => return End::Wrong(format!("a watch broke off: {error:?}")),
                Some(Ok(frame)) => rest.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..])),
            }
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(event) => self.event(&event),
                    Err(_) => return End::Wrong(format!("no event: {}", line.escape_ascii())),
                }
            }
        }
    }

    fn event(&self, event: &Value) {
        let object = &event["object"];
        let revision = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let (Some(revision), Some(number)) = (revision, object["number"].as_u64()) else {
            return self.wrong(format!("no event of ours: {event}"));
        };
        let expected = self.last.load(Ordering::SeqCst) + 1;
        self.revision.store(revision, Ordering::SeqCst);
        self.last.store(number, Ordering::SeqCst);
        self.party.tally.count(|figures| {
            figures.events += 1;
            figures.missed += number.saturating_sub(expected);
            figures.doubled += u64::from(number < expected);
        });
    }
}
