//! Opens, changes and closes the listeners of a gateway at run time.
//!
//! A change has two steps. The preparation does all that can fail: it binds sockets and reads files. Applying the result
//! cannot fail, so either all listeners match the configuration or none has changed. Closing means draining: of a removed
//! listener, or of the old address of a moved one.

mod handed_over_sockets;
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

/// Time limit for writing the access log at the end of the process.
const MAX_FLUSH: Duration = Duration::from_secs(2);

/// The dependencies that all listeners share.
pub(crate) struct ListenerParts {
    /// Metrics, access log and traces.
    pub(crate) telemetry: Arc<Telemetry>,
    /// The memory limit for stalled streams of all listeners.
    pub(crate) backlog_budget: Arc<BacklogBudget>,
    /// The admin API, which shows the list of open listeners.
    pub(crate) admin: Arc<AdminApi>,
    /// The HTTP server of all connections.
    pub(crate) app: Arc<HttpServer>,
    /// The workers that serve connections.
    pub(crate) workers: Arc<Workers>,
    /// Looks up whether a service account still exists.
    pub(crate) lookup: Arc<dyn ServiceAccountLookup>,
    /// Orders certificates from an ACME authority.
    pub(crate) acme: Acme,
    /// Reloads files.
    pub(crate) reloads: Reloads,
    /// Ends the process.
    pub(crate) shutdown: Shutdown,
    /// The tasks that listeners run as.
    pub(crate) tasks: Tasks,
    /// Sockets that were open before the process started.
    pub(crate) inherited: Arc<InheritedSockets>,
    /// Connections are accepted once this is true.
    pub(crate) may_accept: watch::Receiver<bool>,
}

/// All listeners.
pub(crate) struct ListenerManager {
    parts: ListenerParts,
    open: Vec<OpenListener>,
    /// Number of served sockets, including those that drain.
    served_sockets: Arc<AtomicUsize>,
}

/// All listeners of a configuration, which can be applied without failure.
pub(crate) struct PreparedListeners(Vec<PreparedListener>);

struct PreparedListener {
    config: ListenerConfig,
    wanted: ListenAddress,
    /// `None` if the listener keeps its socket.
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
    /// The renewal of its certificate, if it uses ACME.
    renewal: Option<RenewalState>,
}

/// A served socket.
struct ServedSocket {
    /// The configured address.
    wanted: ListenAddress,
    /// The address with the actual port.
    address: ListenAddress,
    /// Exists while it accepts connections.
    socket: Weak<BoundListener>,
    /// The limit of open connections.
    connection_limit: Arc<ConnectionLimit>,
    /// Drains and closes the socket, also before the process ends.
    end: Shutdown,
}

impl ListenerManager {
    /// A manager without listeners.
    pub(crate) fn new(parts: ListenerParts) -> Self {
        Self { parts, open: Vec::new(), served_sockets: Arc::default() }
    }

    /// Opens, changes and closes listeners as prepared. New ones are opened before old ones are closed.
    pub(crate) fn apply(&mut self, PreparedListeners(prepared): PreparedListeners) {
        let mut before = std::mem::take(&mut self.open);
        let mut closing = Vec::new();
        for PreparedListener { config, wanted, bound, change } in prepared {
            let known = before.iter().position(|open| open.config.name == config.name);
            let mut known = known.map(|at| before.swap_remove(at));
            let acme_settings = |config: &ListenerConfig| (config.tls.acme.clone(), config.hosts.clone());
            let kept_renewal = known.as_mut().and_then(|known| {
                let renewal = known.renewal.take();
                renewal.filter(|_| acme_settings(&known.config) == acme_settings(&config))
            });
            let (listener, authentication) = match (change, &known) {
                (Change::Known(policy, connection_policy), Some(known)) => {
                    let (listener, authentication) = (&known.listener, &known.authentication);
                    authentication.apply(*policy, listener, &self.parts.reloads);
                    listener.quotas.set(&config.quotas);
                    if let Some(connection_policy) = connection_policy {
                        known.listening.connection_limit.resize(connection_policy.limits.max_connections);
                        listener.connection_policy.store(Arc::new(connection_policy));
                    }
                    (Arc::clone(listener), Arc::clone(authentication))
                }
                (Change::New(listener, authentication), _) => (listener, authentication),
                // A listener that was known at the preparation is still known.
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
            let renewal =
                kept_renewal.or_else(|| self.parts.acme.start_renewal(&config, &self.parts.shutdown));
            self.open.push(OpenListener { config, listener, authentication, listening, renewal });
        }
        closing.extend(before);
        for closed in closing {
            self.close(&closed);
        }
        self.publish_listeners();
    }

    /// Starts to accept connections.
    fn listen(&self, listener: &Arc<Listener>, wanted: ListenAddress, bound: BoundListener) -> ServedSocket {
        let address = bound.address().clone();
        tracing::info!(listener = %listener.name, %address, "listening");
        // The file of an inherited socket belongs to the predecessor until the hand-over is complete.
        if !bound.is_inherited() {
            bound.own_file();
        }
        let (bound, end) = (Arc::new(bound), self.parts.shutdown.part());
        let connection_limit =
            Arc::new(ConnectionLimit::new(listener.connection_policy.load().limits.max_connections));
        let socket = Arc::downgrade(&bound);
        let runtime = ListenerRuntime {
            listener: Arc::clone(listener),
            shutdown: end.clone(),
            workers: Arc::clone(&self.parts.workers),
            connection_limit: Arc::clone(&connection_limit),
            may_accept: self.parts.may_accept.clone(),
        };
        self.served_sockets.fetch_add(1, Ordering::AcqRel);
        let (served_sockets, shutdown) = (Arc::clone(&self.served_sockets), self.parts.shutdown.clone());
        let (app, telemetry) = (Arc::clone(&self.parts.app), Arc::clone(&self.parts.telemetry));
        self.parts.tasks.spawn("listener", async move {
            serve(bound, runtime, app).await;
            // The last socket that closes during the drain: no more requests follow.
            if served_sockets.fetch_sub(1, Ordering::AcqRel) == 1 && shutdown.is_draining() {
                telemetry.traces.finish();
                let log = Arc::clone(&telemetry.access_log);
                let _ = tokio::task::spawn_blocking(move || log.flush(MAX_FLUSH)).await;
            }
        });
        ServedSocket { wanted, address, socket, connection_limit, end }
    }

    /// Stops accepting, and drains the open connections.
    fn close(&self, OpenListener { listener, listening, .. }: &OpenListener) {
        let ServedSocket { address, socket, end, .. } = listening;
        let taken_over = self.open.iter().any(|open| open.listening.address.is_same_socket(address));
        if let Some(socket) = socket.upgrade().filter(|_| taken_over) {
            socket.release();
        }
        tracing::info!(listener = %listener.name, %address, "closing");
        let end = end.clone();
        // Not one of the process's tasks: at its end it does not wait for the drain window of one listener.
        tokio::spawn(async move { end.run_now().await });
    }

    /// Takes over the files of the sockets that a predecessor has released.
    pub(crate) fn own_files(&self, inheritance: &Inheritance) {
        for open in &self.open {
            let Some(socket) = open.listening.socket.upgrade() else { continue };
            let is_own_socket = match inheritance.files.as_slice() {
                [] => inheritance.owned.contains(&open.config.name),
                files => socket.number().is_some_and(|number| files.contains(&number)),
            };
            if is_own_socket {
                socket.own_file();
            }
        }
    }

    /// The network addresses of open listeners by name, with the actual ports.
    pub(crate) fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let address = |open: &OpenListener| match open.listening.address {
            ListenAddress::Tcp(address) => Some((open.listener.name.to_string(), address)),
            ListenAddress::Unix(..) => None,
        };
        self.open.iter().filter_map(address).collect()
    }

    /// Updates the admin API's list of listeners.
    fn publish_listeners(&self) {
        let shown = self.open.iter().map(|open| ListenerInfo {
            listener: Arc::clone(&open.listener),
            address: open.listening.address.to_string(),
            config: open.config.clone(),
        });
        self.parts.admin.listeners.store(Arc::new(shown.collect()));
    }
}
