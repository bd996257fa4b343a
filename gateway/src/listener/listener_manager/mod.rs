//! The listeners of a gateway, opened, changed and closed while it runs.
//!
//! It is done in two steps. To prepare new settings is all that can fail: sockets are bound, files are read. To apply them
//! cannot, so either all listeners are as the settings say or none has changed. What closes, drains: a listener that was removed,
//! or the old address of one that has moved.

mod inherited_sockets;
mod prepare;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fairlead_authn::ServiceAccountLookup;
use fairlead_config::ListenerConfig;
use fairlead_process::{Inheritance, InheritedSockets, Reloads, Shutdown, Tasks};
use tokio::sync::watch;

use crate::admin::{AdminApi, ListenerInfo};
use crate::auth::listener_authentication::{ListenerAuthentication, PreparedPolicy};
use crate::http::HttpServer;
use crate::listener::accept::{ListenerRuntime, serve};
use crate::listener::acme::{Acme, RenewalState};
use crate::listener::bound::{BoundListener, ListenAddress};
use crate::listener::connection_limit::ConnectionLimit;
use crate::listener::workers::Workers;
use crate::policy::connection_backlog::BacklogBudget;
use crate::policy::listener::{ConnectionPolicy, Listener};
use crate::telemetry::Telemetry;
pub(crate) use prepare::ListenerError;

/// How long the end of the process waits for the access log's.
const MAX_FLUSH: Duration = Duration::from_secs(2);

/// What all listeners are made of.
pub(crate) struct ListenerParts {
    /// Metrics, access log and traces.
    pub(crate) telemetry: Arc<Telemetry>,
    /// Memory for slow readers of all listeners.
    pub(crate) backlog_budget: Arc<BacklogBudget>,
    /// The list of open listeners is shown there.
    pub(crate) admin: Arc<AdminApi>,
    /// What serves connections.
    pub(crate) app: Arc<HttpServer>,
    /// Where they are served.
    pub(crate) workers: Arc<Workers>,
    /// Who knows whether a service account is still there.
    pub(crate) lookup: Arc<dyn ServiceAccountLookup>,
    /// What gets certificates from an authority.
    pub(crate) acme: Acme,
    /// What keeps files fresh.
    pub(crate) reloads: Reloads,
    /// What ends the process.
    pub(crate) shutdown: Shutdown,
    /// Where listeners run.
    pub(crate) tasks: Tasks,
    /// Sockets that were there before us.
    pub(crate) inherited: Arc<InheritedSockets>,
    /// Nobody is let in before this is true.
    pub(crate) gate: watch::Receiver<bool>,
}

/// All listeners.
pub(crate) struct ListenerManager {
    parts: ListenerParts,
    open: Vec<OpenListener>,
    /// How many sockets are served, those that drain among them.
    serving: Arc<AtomicUsize>,
}

/// All listeners as settings want them, which cannot fail any more.
pub(crate) struct PreparedListeners(Vec<PreparedListener>);

struct PreparedListener {
    config: ListenerConfig,
    wanted: ListenAddress,
    /// Unless it goes on with the one that it has.
    bound: Option<BoundListener>,
    change: Change,
}

enum Change {
    New(Arc<Listener>, Arc<ListenerAuthentication>),
    Known(Box<PreparedPolicy>, Option<ConnectionPolicy>),
}

struct OpenListener {
    config: ListenerConfig,
    listener: Arc<Listener>,
    authentication: Arc<ListenerAuthentication>,
    listening: ServedSocket,
    /// Its certificate, if that is an authority's to give.
    keeping: Option<RenewalState>,
}

/// A socket that is served.
struct ServedSocket {
    /// As the settings say it.
    wanted: ListenAddress,
    /// With the real port.
    address: ListenAddress,
    /// There as long as it accepts.
    socket: Weak<BoundListener>,
    /// A place for each connection.
    slots: Arc<ConnectionLimit>,
    /// Ends it before the process ends.
    end: Shutdown,
}

impl ListenerManager {
    /// None yet.
    pub(crate) fn new(parts: ListenerParts) -> Self {
        Self { parts, open: Vec::new(), serving: Arc::default() }
    }

    /// Has the listeners that the settings want, and no others. New ones are open before old ones close.
    pub(crate) fn apply(&mut self, PreparedListeners(prepared): PreparedListeners) {
        let mut before = std::mem::take(&mut self.open);
        let mut closing = Vec::new();
        for PreparedListener { config, wanted, bound, change } in prepared {
            let known = before.iter().position(|open| open.config.name == config.name);
            let mut known = known.map(|at| before.swap_remove(at));
            let asked = |config: &ListenerConfig| (config.tls.acme.clone(), config.hosts.clone());
            let kept = known.as_mut().and_then(|known| {
                let keeping = known.keeping.take();
                keeping.filter(|_| asked(&known.config) == asked(&config))
            });
            let (listener, authentication) = match (change, &known) {
                (Change::Known(policy, frame), Some(known)) => {
                    let (listener, authentication) = (&known.listener, &known.authentication);
                    authentication.apply(*policy, listener, &self.parts.reloads);
                    listener.quotas.set(&config.quotas);
                    if let Some(frame) = frame {
                        known.listening.slots.resize(frame.limits.max_connections);
                        listener.frame.store(Arc::new(frame));
                    }
                    (Arc::clone(listener), Arc::clone(authentication))
                }
                (Change::New(listener, authentication), _) => (listener, authentication),
                // Whatever was known when it was prepared is known still.
                (Change::Known(..), None) => continue,
            };
            let listening = match (bound, known) {
                (None, Some(known)) => ServedSocket { wanted, ..known.listening },
                (Some(bound), known) => {
                    closing.extend(known);
                    self.listen(&listener, wanted, bound)
                }
                (None, None) => continue,
            };
            let keeping = kept.or_else(|| self.parts.acme.keep(&config, &self.parts.shutdown));
            self.open.push(OpenListener { config, listener, authentication, listening, keeping });
        }
        closing.extend(before);
        for closed in closing {
            self.close(&closed);
        }
        self.tell();
    }

    /// Lets clients in.
    fn listen(&self, listener: &Arc<Listener>, wanted: ListenAddress, bound: BoundListener) -> ServedSocket {
        let address = bound.address().clone();
        tracing::info!(listener = %listener.name, %address, "listening");
        // The file of an inherited one stays its giver's until that says otherwise.
        if !bound.is_inherited() {
            bound.own();
        }
        let (bound, end) = (Arc::new(bound), self.parts.shutdown.part());
        let slots = Arc::new(ConnectionLimit::new(listener.frame.load().limits.max_connections));
        let socket = Arc::downgrade(&bound);
        let serving = ListenerRuntime {
            listener: Arc::clone(listener),
            shutdown: end.clone(),
            workers: Arc::clone(&self.parts.workers),
            slots: Arc::clone(&slots),
            gate: self.parts.gate.clone(),
        };
        self.serving.fetch_add(1, Ordering::AcqRel);
        let (left, shutdown) = (Arc::clone(&self.serving), self.parts.shutdown.clone());
        let (app, telemetry) = (Arc::clone(&self.parts.app), Arc::clone(&self.parts.telemetry));
        self.parts.tasks.spawn("listener", async move {
            serve(bound, serving, app).await;
            // The last one to close at the end: nothing more happens.
            if left.fetch_sub(1, Ordering::AcqRel) == 1 && shutdown.is_draining() {
                telemetry.traces.finish();
                let log = Arc::clone(&telemetry.access_log);
                let _ = tokio::task::spawn_blocking(move || log.flush(MAX_FLUSH)).await;
            }
        });
        ServedSocket { wanted, address, socket, slots, end }
    }

    /// Lets nobody in any more, and lets what is open come to its end.
    fn close(&self, OpenListener { listener, listening, .. }: &OpenListener) {
        let ServedSocket { address, socket, end, .. } = listening;
        let taken_over = self.open.iter().any(|open| open.listening.address.is_same_place(address));
        if let Some(socket) = socket.upgrade().filter(|_| taken_over) {
            socket.leave();
        }
        tracing::info!(listener = %listener.name, %address, "closing");
        let end = end.clone();
        // Not among the process's tasks: at its end nobody waits for the window of one listener.
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
        let address = |open: &OpenListener| match open.listening.address {
            ListenAddress::Tcp(address) => Some((open.listener.name.to_string(), address)),
            ListenAddress::Unix(..) => None,
        };
        self.open.iter().filter_map(address).collect()
    }

    /// Tells whoever shows them.
    fn tell(&self) {
        let shown = self.open.iter().map(|open| ListenerInfo {
            listener: Arc::clone(&open.listener),
            address: open.listening.address.to_string(),
            config: open.config.clone(),
        });
        self.parts.admin.listeners.store(Arc::new(shown.collect()));
    }
}
