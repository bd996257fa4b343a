//! The doors of a gateway, made one at a time in two steps: to prepare one is all that can fail, to open it cannot.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_authn::ServiceAccountLookup;
use fairlead_config::{DoorConfig, GatewayConfig};
use fairlead_process::{LoadError, Reloads, Shutdown, Tasks, TlsSource};

use crate::authentication::DoorAuthentication;
use crate::core::Core;
use crate::lanes::Lanes;
use crate::limits::DoorQuotas;
use crate::listener::{BoundDoor, CertificateMeaning, Door, DoorNumber, DoorOptions};
use crate::peers::{Peers, PeersError};
use crate::proxy::DataPlane;
use crate::upstream::DoorSender;

/// How long the end of the process waits for the access log's.
const MAX_FLUSH: Duration = Duration::from_secs(2);

/// What all doors are made of.
pub(crate) struct DoorParts {
    /// What requests share.
    pub(crate) core: Arc<Core>,
    /// What serves connections.
    pub(crate) app: Arc<DataPlane>,
    /// Where they are served.
    pub(crate) lanes: Arc<Lanes>,
    /// Who knows whether a service account is still there.
    pub(crate) lookup: Arc<dyn ServiceAccountLookup>,
    /// What keeps files fresh.
    pub(crate) reloads: Reloads,
    /// What ends the process.
    pub(crate) shutdown: Shutdown,
    /// Where doors run.
    pub(crate) tasks: Tasks,
}

/// All doors.
pub(crate) struct Doors {
    parts: DoorParts,
    open: Vec<OpenDoor>,
    /// How many have not ended yet.
    serving: Arc<AtomicUsize>,
}

/// A door that is bound and has all its files, but accepts nobody yet.
pub(crate) struct PreparedDoor {
    listener: BoundDoor,
    options: DoorOptions,
    authentication: Arc<DoorAuthentication>,
}

/// A door that is listened at.
#[derive(Clone)]
pub(crate) struct OpenDoor {
    /// The door.
    pub(crate) door: Arc<Door>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its settings.
    pub(crate) authentication: Arc<DoorAuthentication>,
}

/// A door cannot be opened; the operator has to act.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// A file that is needed cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What is said of its peers cannot be used.
    #[error(transparent)]
    Peers(#[from] PeersError),
}

impl DoorError {
    /// Advice for the operator.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Bind { address, source } if source.kind() == std::io::ErrorKind::AddrInUse => {
                Some(format!("something else listens on port {}", address.port()))
            }
            Self::Bind { .. } | Self::Load(_) | Self::Peers(_) => None,
        }
    }
}

impl Doors {
    /// None yet.
    pub(crate) fn new(parts: DoorParts) -> Self {
        Self { parts, open: Vec::new(), serving: Arc::default() }
    }

    /// Binds a door and loads its files.
    ///
    /// # Errors
    /// [`DoorError`]; nothing listens then.
    pub(crate) fn prepare(
        &self,
        number: DoorNumber,
        config: &DoorConfig,
        gateway: &GatewayConfig,
    ) -> Result<PreparedDoor, DoorError> {
        let DoorParts { core, lanes, lookup, reloads, shutdown, .. } = &self.parts;
        let address = config.serving.address;
        let listener = BoundDoor::bind(address).map_err(|source| DoorError::Bind { address, source })?;
        let authentication =
            DoorAuthentication::new(config.clone(), Arc::clone(&core.as_kcp), Arc::clone(lookup));
        let trusted = &config.authentication.request_header.client_ca;
        let certificates = match config.client_ca.as_ref().or(trusted.as_ref()) {
            Some(_) => CertificateMeaning::Identity,
            None => CertificateMeaning::Transport,
        };
        let peers = Peers::of(config, reloads)?;
        let sender = DoorSender::of(config, gateway, reloads)?;
        let door = authentication.open(reloads, |policy| Door {
            number,
            name: config.name.as_str().into(),
            certificates,
            peers,
            sender,
            quotas: Arc::new(DoorQuotas::new(&config.quotas)),
            policy: ArcSwap::from_pointee(policy),
        })?;
        let what = format!("serving certificate of door {}", config.name);
        let authorities = [config.client_ca.as_deref(), trusted.as_deref()];
        let options = DoorOptions {
            door,
            tls: TlsSource::https(&config.serving)
                .with_policy(&config.tls)
                .announcing(authorities.into_iter().flatten())
                .watch(&what, reloads)?,
            limits: gateway.limits.clone(),
            shutdown: shutdown.clone(),
            metrics: core.metrics.door(&config.name),
            lanes: Arc::clone(lanes),
        };
        Ok(PreparedDoor { listener, options, authentication })
    }

    /// Lets clients in.
    pub(crate) fn open(&mut self, prepared: PreparedDoor) {
        let PreparedDoor { listener, options, authentication } = prepared;
        let (door, address) = (Arc::clone(&options.door), listener.local_addr());
        tracing::info!(door = %door.name, %address, "listening");
        self.open.push(OpenDoor { door, address, authentication });
        self.tell();
        self.serving.fetch_add(1, Ordering::AcqRel);
        let serving = Arc::clone(&self.serving);
        let (app, core) = (Arc::clone(&self.parts.app), Arc::clone(&self.parts.core));
        self.parts.tasks.spawn("door", async move {
            listener.serve(options, app).await;
            // The last one to close: nothing more happens.
            if serving.fetch_sub(1, Ordering::AcqRel) == 1 {
                core.traces.finish();
                let log = Arc::clone(&core.access_log);
                let _ = tokio::task::spawn_blocking(move || log.flush(MAX_FLUSH)).await;
            }
        });
    }

    /// Puts other settings in force at the doors that are open, as far as that goes while they are.
    pub(crate) fn reconfigure(&self, config: &[DoorConfig]) {
        for OpenDoor { door, authentication, .. } in &self.open {
            if let Some(changed) = config.iter().find(|changed| *changed.name == *door.name) {
                authentication.reconfigure(changed, door, &self.parts.reloads);
                door.quotas.set(&changed.quotas);
            }
        }
    }

    /// Those that are open by name, with the real ports.
    pub(crate) fn addresses(&self) -> Vec<(String, SocketAddr)> {
        self.open.iter().map(|open| (open.door.name.to_string(), open.address)).collect()
    }

    /// Tells whoever shows them.
    fn tell(&self) {
        self.parts.core.doors.store(Arc::new(self.open.clone()));
    }
}
