//! The doors of a gateway, opened, changed and closed while it runs.
//!
//! It is done in two steps. To prepare new settings is all that can fail: sockets are bound, files are read. To apply them
//! cannot, so either all doors are as the settings say or none has changed. What closes, drains: a door that was removed,
//! or the old address of one that has moved.

mod inherited_sockets;
mod prepare;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fairlead_authn::ServiceAccountLookup;
use fairlead_config::DoorConfig;
use fairlead_process::{Inheritance, InheritedSockets, Reloads, Shutdown, Tasks};
use tokio::sync::watch;

use crate::admin::{AdminApi, ShownDoor};
use crate::auth::listener_authentication::{DoorAuthentication, PreparedPolicy};
use crate::http::HttpServer;
use crate::listener::accept::{Serving, serve};
use crate::listener::acme::{Acme, Keeping};
use crate::listener::bound::{BoundDoor, DoorAddress};
use crate::listener::connection_limit::Slots;
use crate::listener::workers::Lanes;
use crate::policy::listener::{Door, Frame};
use crate::telemetry::Telemetry;
pub(crate) use prepare::DoorError;

/// How long the end of the process waits for the access log's.
const MAX_FLUSH: Duration = Duration::from_secs(2);

/// What all doors are made of.
pub(crate) struct DoorParts {
    /// Metrics, access log and traces.
    pub(crate) telemetry: Arc<Telemetry>,
    /// The list of open listeners is shown there.
    pub(crate) admin: Arc<AdminApi>,
    /// What serves connections.
    pub(crate) app: Arc<HttpServer>,
    /// Where they are served.
    pub(crate) lanes: Arc<Lanes>,
    /// Who knows whether a service account is still there.
    pub(crate) lookup: Arc<dyn ServiceAccountLookup>,
    /// What gets certificates from an authority.
    pub(crate) acme: Acme,
    /// What keeps files fresh.
    pub(crate) reloads: Reloads,
    /// What ends the process.
    pub(crate) shutdown: Shutdown,
    /// Where doors run.
    pub(crate) tasks: Tasks,
    /// Sockets that were there before us.
    pub(crate) inherited: Arc<InheritedSockets>,
    /// Nobody is let in before this is true.
    pub(crate) gate: watch::Receiver<bool>,
}

/// All doors.
pub(crate) struct Doors {
    parts: DoorParts,
    open: Vec<OpenDoor>,
    /// How many sockets are served, those that drain among them.
    serving: Arc<AtomicUsize>,
}

/// Whether doors that are prepared have their sockets already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// They do.
    Bound,
    /// They will not be opened.
    Unbound,
}

/// All doors as settings want them, which cannot fail any more.
pub(crate) struct PreparedDoors(Vec<PreparedDoor>);

struct PreparedDoor {
    config: DoorConfig,
    wanted: DoorAddress,
    /// Unless it goes on with the one that it has.
    bound: Option<BoundDoor>,
    change: Change,
}

enum Change {
    New(Arc<Door>, Arc<DoorAuthentication>),
    Known(Box<PreparedPolicy>, Option<Frame>),
}

struct OpenDoor {
    config: DoorConfig,
    door: Arc<Door>,
    authentication: Arc<DoorAuthentication>,
    listening: Listening,
    /// Its certificate, if that is an authority's to give.
    keeping: Option<Keeping>,
}

/// A socket that is served.
struct Listening {
    /// As the settings say it.
    wanted: DoorAddress,
    /// With the real port.
    address: DoorAddress,
    /// There as long as it accepts.
    socket: Weak<BoundDoor>,
    /// A place for each connection.
    slots: Arc<Slots>,
    /// Ends it before the process ends.
    end: Shutdown,
}

impl Doors {
    /// None yet.
    pub(crate) fn new(parts: DoorParts) -> Self {
        Self { parts, open: Vec::new(), serving: Arc::default() }
    }

    /// Has the doors that the settings want, and no others. New ones are open before old ones close.
    pub(crate) fn apply(&mut self, PreparedDoors(prepared): PreparedDoors) {
        let mut before = std::mem::take(&mut self.open);
        let mut closing = Vec::new();
        for PreparedDoor { config, wanted, bound, change } in prepared {
            let known = before.iter().position(|open| open.config.name == config.name);
            let mut known = known.map(|at| before.swap_remove(at));
            let asked = |config: &DoorConfig| (config.tls.acme.clone(), config.hosts.clone());
            let kept = known.as_mut().and_then(|known| {
                let keeping = known.keeping.take();
                keeping.filter(|_| asked(&known.config) == asked(&config))
            });
            let (door, authentication) = match (change, &known) {
                (Change::Known(policy, frame), Some(known)) => {
                    let (door, authentication) = (&known.door, &known.authentication);
                    authentication.apply(*policy, door, &self.parts.reloads);
                    door.quotas.set(&config.quotas);
                    if let Some(frame) = frame {
                        known.listening.slots.resize(frame.limits.max_connections);
                        door.frame.store(Arc::new(frame));
                    }
                    (Arc::clone(door), Arc::clone(authentication))
                }
                (Change::New(door, authentication), _) => (door, authentication),
                // Whatever was known when it was prepared is known still.
                (Change::Known(..), None) => continue,
            };
            let listening = match (bound, known) {
                (None, Some(known)) => Listening { wanted, ..known.listening },
                (Some(bound), known) => {
                    closing.extend(known);
                    self.listen(&door, wanted, bound)
                }
                (None, None) => continue,
            };
            let keeping = kept.or_else(|| self.parts.acme.keep(&config, &self.parts.shutdown));
            self.open.push(OpenDoor { config, door, authentication, listening, keeping });
        }
        closing.extend(before);
        for closed in closing {
            self.close(&closed);
        }
        self.tell();
    }

    /// Lets clients in.
    fn listen(&self, door: &Arc<Door>, wanted: DoorAddress, bound: BoundDoor) -> Listening {
        let address = bound.address().clone();
        tracing::info!(door = %door.name, %address, "listening");
        // The file of an inherited one stays its giver's until that says otherwise.
        if !bound.is_inherited() {
            bound.own();
        }
        let (bound, end) = (Arc::new(bound), self.parts.shutdown.part());
        let slots = Arc::new(Slots::new(door.frame.load().limits.max_connections));
        let socket = Arc::downgrade(&bound);
        let serving = Serving {
            door: Arc::clone(door),
            shutdown: end.clone(),
            lanes: Arc::clone(&self.parts.lanes),
            slots: Arc::clone(&slots),
            gate: self.parts.gate.clone(),
        };
        self.serving.fetch_add(1, Ordering::AcqRel);
        let (left, shutdown) = (Arc::clone(&self.serving), self.parts.shutdown.clone());
        let (app, telemetry) = (Arc::clone(&self.parts.app), Arc::clone(&self.parts.telemetry));
        self.parts.tasks.spawn("door", async move {
            serve(bound, serving, app).await;
            // The last one to close at the end: nothing more happens.
            if left.fetch_sub(1, Ordering::AcqRel) == 1 && shutdown.is_draining() {
                telemetry.traces.finish();
                let log = Arc::clone(&telemetry.access_log);
                let _ = tokio::task::spawn_blocking(move || log.flush(MAX_FLUSH)).await;
            }
        });
        Listening { wanted, address, socket, slots, end }
    }

    /// Lets nobody in any more, and lets what is open come to its end.
    fn close(&self, OpenDoor { door, listening, .. }: &OpenDoor) {
        let Listening { address, socket, end, .. } = listening;
        let taken_over = self.open.iter().any(|open| open.listening.address.is_same_place(address));
        if let Some(socket) = socket.upgrade().filter(|_| taken_over) {
            socket.leave();
        }
        tracing::info!(door = %door.name, %address, "closing");
        let end = end.clone();
        // Not among the process's tasks: at its end nobody waits for the window of one door.
        tokio::spawn(async move { end.run_now().await });
    }

    /// The files of sockets that a predecessor has left to us are ours.
    pub(crate) fn own(&self, inheritance: &Inheritance) {
        for open in &self.open {
            let Some(socket) = open.listening.socket.upgrade() else { continue };
            let is_ours = match inheritance.files.as_slice() {
                [] => inheritance.owned.contains(&open.config.name),
                files => socket.number().is_some_and(|number| files.contains(&number)),
            };
            if is_ours {
                socket.own();
            }
        }
    }

    /// Those that are open by name, with the real ports; of those on the network.
    pub(crate) fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let address = |open: &OpenDoor| match open.listening.address {
            DoorAddress::Tcp(address) => Some((open.door.name.to_string(), address)),
            DoorAddress::Unix(..) => None,
        };
        self.open.iter().filter_map(address).collect()
    }

    /// Tells whoever shows them.
    fn tell(&self) {
        let shown = self.open.iter().map(|open| ShownDoor {
            door: Arc::clone(&open.door),
            address: open.listening.address.to_string(),
            config: open.config.clone(),
        });
        self.parts.admin.listeners.store(Arc::new(shown.collect()));
    }
}
