//! The webhook that receives audit events: a server in a kubeconfig, to which an `EventList` is posted.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fairlead_client::{Client, ClientError, ClientOptions, Kubeconfig, Request, UnverifiedTls};
use http::Method;

/// Number of attempts for a batch, and the growth of the pause between them, as in Kubernetes.
const ATTEMPTS: u32 = 5;
const GROWTH: f64 = 1.5;

/// The server that receives events.
pub struct AuditWebhook {
    client: Client,
    initial_pause: Duration,
}

impl AuditWebhook {
    /// The current context of a kubeconfig. `initial_pause` is the time before a failed batch is sent again.
    ///
    /// # Errors
    /// The reason why the kubeconfig cannot be used.
    pub fn from_kubeconfig(file: &Path, initial_pause: Duration) -> Result<Self, String> {
        let kubeconfig = Kubeconfig::load(file).map_err(|error| error.to_string())?;
        let context = kubeconfig.resolve(None).map_err(|error| error.to_string())?;
        let client = Client::from_context(&context, UnverifiedTls::Refuse, ClientOptions::default())
            .map_err(|error| error.to_string())?;
        Ok(Self::new(client, initial_pause))
    }

    /// A server that a client reaches.
    pub fn new(client: Client, initial_pause: Duration) -> Self {
        Self { client, initial_pause }
    }

    /// Posts events as one list. Any error is retried with growing pauses: an audit log must not lose events because of the code
    /// that a proxy chose.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub(super) async fn write(&self, events: &[Bytes]) -> Result<(), ClientError> {
        let list = event_list(events);
        let mut pause = self.initial_pause;
        for attempt in 1.. {
            let request = Request::new(Method::POST, "").with_body("application/json", list.clone());
            match self.client.request(request).await {
                Ok(_) => return Ok(()),
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(error) => tracing::debug!(%error, "the audit webhook has not taken a batch"),
            }
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(GROWTH);
        }
        Ok(())
    }
}

fn event_list(events: &[Bytes]) -> Bytes {
    let mut list = Vec::with_capacity(events.iter().map(|event| event.len() + 1).sum::<usize>() + 128);
    list.extend_from_slice(br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#);
    for (position, event) in events.iter().enumerate() {
        if position > 0 {
            list.push(b',');
        }
        list.extend_from_slice(event);
    }
    list.extend_from_slice(b"]}");
    list.into()
}
