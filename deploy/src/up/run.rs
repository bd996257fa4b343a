//! Runs a prepared installation: starts all processes at once, tells what happens, stops them in order.

use std::time::Duration;

use fairlead_client::ClientError;
use futures_util::future::{Fuse, FutureExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::UpError;
use super::board::{Announcement, Board, Change, News};
use super::child::{Launch, Order};
use super::journal::Journal;
use super::logs::{Log, last_lines};
use super::prepare::{Age, Prepared};
use super::readiness::ReadinessProbe;
use super::rights::{Granted, NAME, Rights};
use super::screen::Audience;
use super::topology::{Role, Topology};
use crate::site::{Site, now_as_text};

/// A process that has ended so often without ever having been ready will not be.
const HOPELESS: u32 = 3;
/// All must be ready for the first time by then.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Runs until a signal says otherwise, or until it is clear that not all processes start.
pub(crate) async fn run(site: &Site, prepared: Prepared, audience: &mut dyn Audience) -> Result<(), UpError> {
    // Named, because they must live until the last process has ended.
    let Prepared { topology, ports: _ports, programs, notes, begin, age, occupation: _occupation } = prepared;
    let mut signals = Signals::listen().map_err(UpError::Runtime)?;
    let (news, mut inbox) = mpsc::channel(64);
    let (mut processes, mut orders) = (JoinSet::new(), Vec::new());
    for (index, process) in topology.processes.iter().enumerate() {
        let launch = Launch {
            index,
            program: programs[process.role.program()].clone(),
            config: site.config(&process.name),
            log: Log::at(site.log(&process.name)),
            probe: ReadinessProbe::of(process, &site.certificates())?,
        };
        let (order, orders_of_one) = watch::channel(Order::Run);
        processes.spawn(launch.supervise(news.clone(), orders_of_one));
        orders.push(order);
    }
    drop(news);
    let rights = Rights::at(&topology.gateway().url(), &site.certificates())?;
    let mut house = House {
        site,
        topology: &topology,
        started: now_as_text(),
        board: Board::new(topology.processes.iter().map(|process| process.name.clone())),
        journal: Journal::of(site),
        audience,
        orders,
    };
    house.announce(&Announcement::Beginning(house.board.rows.iter().map(|row| row.name.clone()).collect()));
    for note in notes {
        house.announce(&Announcement::Note(note));
    }

    let limit = tokio::time::sleep(START_LIMIT);
    tokio::pin!(limit);
    let granting = Fuse::terminated();
    tokio::pin!(granting);
    let (mut all_ready, mut complete) = (false, false);
    let outcome = loop {
        tokio::select! {
            Some(news) = inbox.recv() => {
                house.note(news);
                if !complete {
                    if let Some(error) = house.hopeless() {
                        break Err(error);
                    }
                    if !all_ready && house.board.all_ready() {
                        all_ready = true;
                        granting.set(rights.clone().grant().fuse());
                    }
                }
            }
            outcome = &mut granting => {
                complete = true;
                if let Some(note) = told(&outcome, age) {
                    house.announce(&Announcement::Note(note));
                }
                let after_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
                house.announce(&Announcement::Ready { after_ms, edge: topology.edge_url() });
            }
            () = &mut limit, if !complete => break Err(house.too_slow()),
            () = signals.next() => break Ok(()),
        }
    };
    if let Err(error) = &outcome {
        // The audience hears of it from our caller.
        let (message, hint) = (error.to_string(), error.hint());
        house.journal.hear(&Announcement::Failed { message, hint });
    }
    house.stop(&mut inbox, &mut signals).await;
    while processes.join_next().await.is_some() {}
    outcome
}

/// What somebody should know of the development user's rights.
fn told(outcome: &Result<Granted, ClientError>, age: Age) -> Option<String> {
    match (outcome, age) {
        (Ok(Granted::Before), _) | (Ok(Granted::Now), Age::New) => None,
        (Ok(Granted::Now), Age::Known) => Some(format!(
            "the ClusterRoleBinding {NAME} in root was not there and has been made; one without subjects would be \
             left alone"
        )),
        (Err(error), _) => Some(format!("the development user has no rights, because of an error: {error}")),
    }
}

/// The installation while it runs.
struct House<'a> {
    site: &'a Site,
    topology: &'a Topology,
    started: String,
    board: Board,
    journal: Journal,
    audience: &'a mut dyn Audience,
    /// One per process.
    orders: Vec<watch::Sender<Order>>,
}

impl House<'_> {
    fn announce(&mut self, announcement: &Announcement) {
        self.journal.hear(announcement);
        self.audience.hear(announcement);
    }

    fn note(&mut self, news: News) {
        self.board.apply(&news, now_as_text());
        // For `status` only: not worth ending the servers.
        let _ = self.site.write_record(&self.board.record(&self.started, self.topology));
        self.announce(&Announcement::News(news));
    }

    /// Why there is no point in waiting any longer, if there is none.
    fn hopeless(&self) -> Option<UpError> {
        let row = self.board.rows.iter().find(|row| !row.was_ready && row.ends >= HOPELESS)?;
        let log = self.site.log(&row.name);
        Some(UpError::WillNotStart {
            name: row.name.clone(),
            how: row.last_exit.clone().unwrap_or_default(),
            last_words: last_lines(&log, 3),
            log,
        })
    }

    fn too_slow(&self) -> UpError {
        let waiting = self.board.rows.iter().filter(|row| !row.was_ready);
        let names: Vec<_> = waiting.map(|row| row.name.as_str()).collect();
        UpError::TooSlow { names: names.join(", "), after: START_LIMIT, logs: self.site.logs() }
    }

    /// Ends all processes: those that serve others last. A second signal kills what still runs.
    async fn stop(&mut self, inbox: &mut mpsc::Receiver<News>, signals: &mut Signals) {
        self.announce(&Announcement::Stopping);
        for role in Role::ALL {
            let members: Vec<_> =
                (0..self.orders.len()).filter(|index| self.topology.processes[*index].role == role).collect();
            self.order(&members, Order::Stop);
            let mut running = members.len();
            while running > 0 {
                tokio::select! {
                    news = inbox.recv() => match news {
                        Some(news) => {
                            let ended = news.change == Change::Stopped && members.contains(&news.process);
                            running -= usize::from(ended);
                            self.note(news);
                        }
                        // Nobody is left to tell.
                        None => return,
                    },
                    () = signals.next() => {
                        let all: Vec<_> = (0..self.orders.len()).collect();
                        self.order(&all, Order::Kill);
                    }
                }
            }
        }
    }

    fn order(&self, processes: &[usize], order: Order) {
        for index in processes {
            self.orders[*index].send_if_modified(|current| {
                let stronger = *current != Order::Kill && *current != order;
                if stronger {
                    *current = order;
                }
                stronger
            });
        }
    }
}

/// The signals that mean "end".
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
