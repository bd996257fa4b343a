//! Requests at an even pace, due whether or not earlier ones are answered, and events for the watches.
//!
//! The number of a request determines its content. Nothing is measured here: on a busy machine requests are sent late,
//! and all of them are sent.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::LIMIT;
use crate::clients::{Clients, Connection, IDENTITIES, Identity, Protocol};
use crate::party::Party;
use crate::tally::Refusal;
use crate::watches::Watches;
use crate::world::{Answer, request};

const TICK: Duration = Duration::from_millis(20);
const EVENTS_EVERY: Duration = Duration::from_millis(250);
/// One in this many requests has a connection of its own.
const OWN_CONNECTION: u64 = 25;

/// The amount of load.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Requests in a second.
    pub second: u64,
    pub watches: usize,
}

pub struct Load {
    pub pace: Pace,
    pub clients: Arc<Clients>,
    pub watches: Watches,
    parties: Arc<[Arc<Party>]>,
    sent: Arc<watch::Sender<u64>>,
    turn: Arc<Mutex<()>>,
    _tasks: JoinSet<()>,
}

/// While it exists, no request is sent.
pub struct Pause {
    _turn: OwnedMutexGuard<()>,
}

/// A request, as its number says.
struct Planned {
    number: u64,
    party: Arc<Party>,
    method: Method,
    identity: Identity,
    protocol: Protocol,
    connection: Connection,
}

impl Load {
    /// Begins with the watches; there are no requests before all are open.
    pub async fn start(clients: Arc<Clients>, parties: &[Arc<Party>], pace: Pace) -> Self {
        let watches = Watches::open(&clients, parties, pace.watches).await;
        let (sent, turn) = (Arc::new(watch::Sender::new(0)), Arc::<Mutex<()>>::default());
        let parties: Arc<[Arc<Party>]> = parties.into();
        let mut tasks = JoinSet::new();
        tasks.spawn(requests(
            pace,
            Arc::clone(&clients),
            Arc::clone(&parties),
            Arc::clone(&sent),
            Arc::clone(&turn),
        ));
        tasks.spawn(events(Arc::clone(&parties), Arc::clone(&turn)));
        Self { pace, clients, watches, parties, sent, turn, _tasks: tasks }
    }

    /// Returns when so many more requests have been sent.
    pub async fn goes_on_for(&self, requests: u64) {
        let until = *self.sent.borrow() + requests;
        crate::world::until(&self.sent, |sent| *sent >= until).await;
    }

    /// Stops, and waits until every request is answered, and every watch open and up to date.
    pub async fn pause(&self) -> Pause {
        let pause = Pause { _turn: Arc::clone(&self.turn).lock_owned().await };
        for party in &*self.parties {
            let settled = party
                .tally
                .until(|figures| figures.is_answered() && self.watches.are_current(party, figures));
            if timeout(LIMIT, settled).await.is_err() {
                let (figures, behind) = (party.tally.figures(), self.watches.behind(party));
                panic!("{} does not settle: {figures:?}; watches that are behind: {behind:?}", party.name);
            }
        }
        pause
    }

    /// Requests that were sent so far.
    pub fn sent(&self) -> u64 {
        *self.sent.borrow()
    }
}

async fn requests(
    pace: Pace,
    clients: Arc<Clients>,
    parties: Arc<[Arc<Party>]>,
    sent: Arc<watch::Sender<u64>>,
    turn: Arc<Mutex<()>>,
) {
    let per_tick = pace.second * u64::try_from(TICK.as_millis()).unwrap() / 1000;
    let mut due = Instant::now();
    loop {
        tokio::time::sleep_until(due).await;
        due += TICK;
        let _turn = match turn.try_lock() {
            Ok(turn) => turn,
            // A pause is not made up for.
            Err(_) => {
                let turn = turn.lock().await;
                due = Instant::now() + TICK;
                turn
            }
        };
        for number in *sent.borrow()..*sent.borrow() + per_tick {
            let planned = Planned::new(number, &parties);
            planned.party.tally.count(|figures| figures.sent += 1);
            tokio::spawn(planned.ask(Arc::clone(&clients)));
        }
        sent.send_modify(|sent| *sent += per_tick);
    }
}

async fn events(parties: Arc<[Arc<Party>]>, turn: Arc<Mutex<()>>) {
    let mut due = Instant::now();
    loop {
        tokio::time::sleep_until(due).await;
        let _turn = turn.lock().await;
        parties.iter().for_each(|party| party.event());
        due = Instant::now() + EVENTS_EVERY;
    }
}

impl Planned {
    fn new(number: u64, parties: &[Arc<Party>]) -> Self {
        // Every combination comes up, in no regular order.
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        let choice = |from: u32, of: u64| mixed.rotate_right(from) % of;
        let place = |index: u64| usize::try_from(index).unwrap();
        Self {
            number,
            party: Arc::clone(&parties[place(number) % parties.len()]),
            method: if choice(0, 4) == 0 { Method::POST } else { Method::GET },
            identity: IDENTITIES[place(choice(8, 3))],
            protocol: if choice(16, 2) == 0 { Protocol::Http1 } else { Protocol::Http2 },
            connection: match number % OWN_CONNECTION {
                0 => Connection::Own,
                _ => Connection::Reused,
            },
        }
    }

    async fn ask(self, clients: Arc<Clients>) {
        let tally = &self.party.tally;
        match timeout(LIMIT, self.answer(&clients)).await {
            Err(_) => tally.wrong(format!("request {} is never answered", self.number)),
            Ok(Err(error)) => tally.wrong(format!("{self}: {error}")),
            Ok(Ok(answer)) => match Refusal::of(&answer) {
                Some(Refusal::TryAgain) => tally.count(|figures| figures.refused += 1),
                Some(Refusal::Broken) => tally.count(|figures| figures.broken += 1),
                None if self.is_echoed(&answer) => tally.count(|figures| figures.good += 1),
                None => tally.wrong(format!("{self}: {answer:?}")),
            },
        }
    }

    async fn answer(&self, clients: &Clients) -> std::io::Result<Answer> {
        let question = request(self.method.clone(), &self.path(&self.party.workspace()), &[], &self.body());
        let (response, held) = clients.send(self.identity, self.protocol, self.connection, question).await?;
        let answer = Answer::read(response).await.map_err(std::io::Error::other)?;
        if self.connection == Connection::Reused {
            clients.give_back(held);
        }
        Ok(answer)
    }

    fn path(&self, cluster: &str) -> String {
        format!("/clusters/{cluster}/api/v1/namespaces/default/configmaps/{}", self.number)
    }

    fn body(&self) -> String {
        match self.method {
            Method::POST => format!("{} ", self.number).repeat(200),
            _ => String::new(),
        }
    }

    /// Whether the right shard has seen the right request of the right user.
    fn is_echoed(&self, answer: &Answer) -> bool {
        answer.status == 200 && {
            let echo = answer.json();
            let user = format!("x-remote-user: {}", self.identity.name());
            echo["shard"] == self.party.name
                && echo["method"] == self.method.as_str()
                && echo["path"] == self.path(&self.party.id)
                && echo["body"] == self.body()
                && answer.echoed("x-remote-user") == [user]
        }
    }
}

impl std::fmt::Display for Planned {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, method, identity, protocol, connection, .. } = self;
        write!(formatter, "request {number} ({method} by {identity:?}, {protocol:?}, {connection:?})")
    }
}
