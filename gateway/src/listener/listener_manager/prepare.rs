//! Everything about doors that can fail, done before anything has changed.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_config::{DoorConfig, GatewayConfig};
use fairlead_process::{ClientCertificates, LoadError, TlsSource, chain};

use crate::auth::listener_authentication::DoorAuthentication;
use crate::listener::acme::AcmeError;
use crate::listener::bound::{BoundDoor, DoorAddress};
use crate::listener::listener_manager::{
    Change, DoorParts, Doors, OpenDoor, PreparedDoor, PreparedDoors, Sockets,
};
use crate::policy::client_address::{Peers, PeersError};
use crate::policy::listener::{CertificateMeaning, Door, Frame};
use crate::policy::quota::DoorQuotas;
use crate::upstream::DoorSender;

/// A door cannot be opened or changed; the operator has to act.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file of its TLS cannot be loaded.
    #[error(transparent)]
    Tls(LoadError),
    /// Who the gateway is towards shards cannot be loaded.
    #[error(transparent)]
    Sender(LoadError),
    /// A file about who is who cannot be loaded.
    #[error(transparent)]
    Credentials(LoadError),
    /// The same for other settings than those in force.
    #[error("credentials of door {door}: {reason}")]
    NewCredentials {
        /// Its name.
        door: String,
        /// Why.
        reason: String,
    },
    /// What is said of its peers cannot be used.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// There is no certificate for it, and none can be made.
    #[error("door {0} cannot show a certificate: {1}")]
    Acme(String, #[source] Box<AcmeError>),
    /// Doors that were closed are still draining.
    #[error("there are too many doors, those that still drain among them")]
    TooMany,
}

impl DoorError {
    /// Advice for the operator.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Bind { address, source } if source.kind() == io::ErrorKind::AddrInUse => {
                Some(match address.rsplit_once(':') {
                    Some((host, port)) if host != "unix" => format!("something else listens on port {port}"),
                    _ => "another process listens there".to_owned(),
                })
            }
            Self::TooMany => Some("it is tried again in a moment".to_owned()),
            Self::Bind { .. }
            | Self::Tls(_)
            | Self::Sender(_)
            | Self::Credentials(_)
            | Self::NewCredentials { .. }
            | Self::Peers(_)
            | Self::Acme(..) => None,
        }
    }

    /// The key of the door's settings that it is about.
    fn key(&self) -> &'static str {
        match self {
            Self::Bind { address, .. } if address.starts_with("unix:") => ".socket",
            Self::Bind { .. } => ".serving.address",
            Self::Tls(_) => ".serving",
            Self::Sender(_) => ".upstreamIdentity",
            Self::Credentials(_) | Self::NewCredentials { .. } => ".authentication",
            Self::Peers(_) => ".peers",
            Self::Acme(..) => ".tls.acme",
            Self::TooMany => "",
        }
    }
}

impl Doors {
    /// Does everything that can fail about these settings.
    ///
    /// # Errors
    /// [`DoorError`] with the key of the setting that it is about; all doors are as they were.
    pub(crate) fn prepare(
        &self,
        config: &GatewayConfig,
        sockets: Sockets,
    ) -> Result<PreparedDoors, (String, DoorError)> {
        let prepared = config.listeners.iter().enumerate().map(|(place, door)| {
            let known = self.open.iter().find(|open| open.config.name == door.name);
            let prepared = match known {
                Some(known) => self.prepare_change(known, door, config),
                None => self.prepare_new(door, config, sockets),
            };
            prepared.map_err(|error| (format!("listeners[{place}]{}", error.key()), error))
        });
        Ok(PreparedDoors(prepared.collect::<Result<_, _>>()?))
    }

    fn prepare_new(
        &self,
        door: &DoorConfig,
        config: &GatewayConfig,
        sockets: Sockets,
    ) -> Result<PreparedDoor, DoorError> {
        let DoorParts { telemetry, lookup, reloads, .. } = &self.parts;
        let wanted = address_of(door);
        let bound = match sockets {
            Sockets::Bound => Some(self.socket(&door.name, &wanted)?),
            Sockets::Unbound => None,
        };
        let frame = self.frame(door, config, sockets)?;
        let kept = Arc::new(());
        let files = reloads.kept_by(&kept);
        let authentication = DoorAuthentication::new(door.clone(), &config.as_kcp, Arc::clone(lookup));
        let series = telemetry.metrics.door_series(&door.name).ok_or(DoorError::TooMany)?;
        let opened = authentication.open(&files, |policy| Door {
            name: door.name.as_str().into(),
            series,
            metrics: telemetry.metrics.door(&door.name),
            frame: ArcSwap::from_pointee(frame),
            quotas: Arc::new(DoorQuotas::new(&door.quotas)),
            policy: ArcSwap::from_pointee(policy),
            _files: kept,
        });
        let change = Change::New(opened.map_err(DoorError::Credentials)?, authentication);
        Ok(PreparedDoor { config: door.clone(), wanted, bound, change })
    }

    fn prepare_change(
        &self,
        known: &OpenDoor,
        door: &DoorConfig,
        config: &GatewayConfig,
    ) -> Result<PreparedDoor, DoorError> {
        let wanted = address_of(door);
        let bound =
            if wanted == known.listening.wanted { None } else { Some(self.socket(&door.name, &wanted)?) };
        let is_same =
            framed(&known.config) == framed(door) && *known.door.frame.load().limits == config.limits;
        let frame = if is_same { None } else { Some(self.frame(door, config, Sockets::Bound)?) };
        let policy = known
            .authentication
            .prepare(door, &config.as_kcp)
            .map_err(|error| DoorError::NewCredentials { door: door.name.clone(), reason: chain(&error) })?;
        let change = Change::Known(Box::new(policy), frame);
        Ok(PreparedDoor { config: door.clone(), wanted, bound, change })
    }

    /// A socket for a door. One that another door gives up is shared until it does.
    fn socket(&self, name: &str, wanted: &DoorAddress) -> Result<BoundDoor, DoorError> {
        let there = self.open.iter().find(|open| open.listening.address.is_same_place(wanted));
        let shared = there.and_then(|open| open.listening.socket.upgrade());
        let inherited = || self.parts.inherited.take(name, |socket| wanted.is_of(socket));
        let bound = match shared {
            Some(socket) => socket.share(wanted),
            None => match inherited() {
                Some(socket) => BoundDoor::inherit(socket, wanted),
                None => BoundDoor::bind(wanted),
            },
        };
        bound.map_err(|source| DoorError::Bind { address: wanted.to_string(), source })
    }

    fn frame(&self, door: &DoorConfig, config: &GatewayConfig, sockets: Sockets) -> Result<Frame, DoorError> {
        let kept = Arc::new(());
        let reloads = self.parts.reloads.kept_by(&kept);
        let trusted = &door.authentication.request_header.client_ca;
        let what = format!("serving certificate of door {}", door.name);
        let authorities = [door.client_ca.as_deref(), trusted.as_deref()];
        let certificates = match door.client_ca.as_ref().or(trusted.as_ref()) {
            Some(_) => CertificateMeaning::Identity,
            None => CertificateMeaning::Transport,
        };
        let client_certificates = match certificates {
            CertificateMeaning::Identity => ClientCertificates::Requested,
            // Browsers would bother their users, and nobody looks at them.
            CertificateMeaning::Transport => ClientCertificates::NotRequested,
        };
        let tls = TlsSource::https(&door.serving)
            .with_policy(&door.tls)
            .announcing(authorities.into_iter().flatten());
        let tls = self.parts.acme.source(door, TlsSource { client_certificates, ..tls }, sockets);
        let tls =
            tls.map_err(|error| DoorError::Acme(door.name.clone(), error.into()))?.watch(&what, &reloads);
        Ok(Frame {
            certificates,
            peers: Peers::of(door, &reloads)?,
            tls: tls.map_err(DoorError::Tls)?,
            challenges: self.parts.acme.challenges(door),
            limits: Arc::new(config.limits.clone()),
            sender: DoorSender::of(door, config, &reloads).map_err(DoorError::Sender)?,
            _files: kept,
        })
    }
}

/// Where a door is to be.
fn address_of(door: &DoorConfig) -> DoorAddress {
    match &door.socket {
        // The settings were checked.
        Some(socket) => DoorAddress::Unix(socket.path.to_path_buf(), socket.mode().unwrap_or(0o600)),
        None => DoorAddress::Tcp(door.serving.address),
    }
}

/// What a frame is made of.
fn framed(door: &DoorConfig) -> impl PartialEq + use<> {
    (
        (door.serving.certificate.clone(), door.serving.private_key.clone()),
        door.client_ca.clone(),
        door.authentication.request_header.client_ca.clone(),
        door.tls.clone(),
        door.peers.clone(),
        door.upstream_identity.clone(),
    )
}
