//! Whether the shard accepts this process: at the start, and when it refuses a request.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairlead_client::{Backoff, Client, ClientError, Request};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;

/// A review without effects, in the logical cluster that every shard has.
const SELF_REVIEW: &str = "/clusters/system:admin/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
/// The impersonated user. Only members of a special group may impersonate others in it.
const IMPERSONATED: [(HeaderName, HeaderValue); 2] = [
    (
        HeaderName::from_static("impersonate-user"),
        HeaderValue::from_static("fairlead-virtual-workspaces-first-contact"),
    ),
    (HeaderName::from_static("impersonate-group"), HeaderValue::from_static("system:masters")),
];
/// Interval of warnings while the shard cannot be used.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Time after an accepted contact in which a refusal counts as one of the client.
const TRUST: Duration = Duration::from_secs(5);

/// The contact of this process to its shard.
pub(super) struct ShardContact {
    shard: Client,
    kubeconfig: PathBuf,
    /// The time at which the shard accepted the process last; `None`: it does not.
    accepted: watch::Sender<Option<Instant>>,
}

impl ShardContact {
    /// No contact until [`keep`](Self::keep) is awaited.
    pub(super) fn new(shard: Client, kubeconfig: PathBuf) -> Arc<Self> {
        Arc::new(Self { shard, kubeconfig, accepted: watch::Sender::new(None) })
    }

    /// The readiness of the process.
    pub(super) fn readiness(&self) -> Result<(), String> {
        match *self.accepted.borrow() {
            Some(_) => Ok(()),
            None => Err("the shard does not respond, or does not accept the kubeconfig's user".to_owned()),
        }
    }

    /// Contacts the shard until it accepts the process, at the start and after each refusal. Warns as long as it does not.
    pub(super) async fn keep(&self) {
        let mut accepted = self.accepted.subscribe();
        loop {
            self.until_accepted().await;
            // The sender is part of this contact.
            let _ = accepted.wait_for(Option::is_none).await;
        }
    }

    /// Whether a response of the shard refuses this process, not its client: a client that is asserted cannot be unknown to the shard,
    /// but it can lack a permission. Costs a request to the shard for the first of the refusals within some seconds.
    pub(super) async fn is_own_refusal(&self, response: StatusCode) -> bool {
        match response {
            StatusCode::UNAUTHORIZED => {}
            StatusCode::FORBIDDEN => {
                let last = *self.accepted.borrow();
                if last.is_some_and(|at| at.elapsed() < TRUST) {
                    return false;
                }
            }
            _ => return false,
        }
        match contact(&self.shard).await {
            Ok(()) => {
                self.accepted.send_replace(Some(Instant::now()));
                response == StatusCode::UNAUTHORIZED
            }
            Err(error) if matches!(error.code(), Some(401 | 403)) => {
                self.accepted.send_replace(None);
                true
            }
            Err(_) => response == StatusCode::UNAUTHORIZED,
        }
    }

    async fn until_accepted(&self) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut warned: Option<Instant> = None;
        while let Err(error) = contact(&self.shard).await {
            if warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                warned = Some(Instant::now());
                tracing::warn!(
                    kubeconfig = %self.kubeconfig.display(),
                    server = %self.shard.endpoint(),
                    %error,
                    hint = hint(&error),
                    "not ready, because the shard cannot be used"
                );
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
        self.accepted.send_replace(Some(Instant::now()));
    }
}

/// Readiness is open to all clients, so a request with the rights of this process follows.
async fn contact(shard: &Client) -> Result<(), ClientError> {
    shard.get("/readyz").await?;
    let mut review = Request::new(Method::POST, SELF_REVIEW).with_body("application/json", REVIEW);
    review.headers.extend(IMPERSONATED);
    shard.request(review).await.map(drop)
}

/// Advice for the operator.
fn hint(error: &ClientError) -> &'static str {
    match error {
        ClientError::Status(status) => match status.code {
            401 => "the shard does not accept the credentials of the kubeconfig's user",
            403 => "the user of the kubeconfig must be in system:masters",
            404 => "the server of the kubeconfig must be a shard",
            _ => "the shard may be starting",
        },
        ClientError::Tls { .. } => {
            "the kubeconfig needs the authority of the shard's certificate and a client certificate that the shard accepts"
        }
        ClientError::Connect { .. } | ClientError::Timeout { .. } => {
            "the server of the kubeconfig must be the address of a shard that runs"
        }
        _ => "the server of the kubeconfig must be a shard",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicU16, Ordering};

    use super::*;
    use crate::standalone::stub_shard::{StubShard, reply};

    /// The requests of a contact, and the code and the hint of its failure.
    async fn contact_with(readiness: u16, review: u16) -> (Vec<String>, Option<(u16, &'static str)>) {
        let shard = StubShard::start(move |head| match head.starts_with("GET /readyz ") {
            true => reply(readiness, "", "ok"),
            false => reply(review, "", "{}"),
        })
        .await;
        let failure = contact(&shard.client()).await.err();
        (shard.heads(), failure.map(|error| (error.code().unwrap(), hint(&error))))
    }

    #[tokio::test]
    async fn a_shard_that_is_ready_must_also_permit_impersonation_as_a_master() {
        let (heads, failure) = contact_with(200, 201).await;
        assert_eq!(failure, None);
        assert!(heads[1].starts_with(&format!("POST {SELF_REVIEW} ")), "{}", heads[1]);
        assert!(heads[1].contains("impersonate-group: system:masters\r\n"), "{}", heads[1]);
        for (readiness, review, code, expected) in [
            (503, 201, 503, "starting"),
            (200, 401, 401, "credentials"),
            (200, 403, 403, "system:masters"),
            (200, 404, 404, "must be a shard"),
        ] {
            let (_, failure) = contact_with(readiness, review).await;
            let (found, hint) = failure.unwrap();
            assert!(found == code && hint.contains(expected), "{found} {hint}");
        }
    }

    #[tokio::test]
    async fn a_refusal_of_the_process_is_none_of_its_client() {
        let review = Arc::new(AtomicU16::new(201));
        let answered = Arc::clone(&review);
        let shard = StubShard::start(move |head| match head.starts_with("GET /readyz ") {
            true => reply(200, "", "ok"),
            false => reply(answered.load(Ordering::Relaxed), "", "{}"),
        })
        .await;
        let contact = ShardContact::new(shard.client(), PathBuf::from("kubeconfig"));
        assert!(contact.readiness().is_err(), "before the first contact");
        assert!(!contact.is_own_refusal(StatusCode::FORBIDDEN).await);
        assert!(contact.readiness().is_ok());
        review.store(401, Ordering::Relaxed);
        assert!(!contact.is_own_refusal(StatusCode::FORBIDDEN).await, "just accepted");
        assert!(!contact.is_own_refusal(StatusCode::NOT_FOUND).await);
        assert!(contact.is_own_refusal(StatusCode::UNAUTHORIZED).await);
        assert!(contact.readiness().is_err());
        assert!(contact.is_own_refusal(StatusCode::FORBIDDEN).await);
        review.store(201, Ordering::Relaxed);
        tokio::select! {
            () = contact.keep() => {}
            accepted = async { contact.accepted.subscribe().wait_for(Option::is_some).await.map(drop) } => accepted.unwrap(),
        }
        assert!(contact.readiness().is_ok());
    }

    #[tokio::test]
    async fn a_server_that_does_not_listen_is_reported_by_its_address() {
        let shard = StubShard::start(|_| reply(200, "", "")).await;
        let client = shard.client();
        shard.stop().await;
        assert!(hint(&contact(&client).await.unwrap_err()).contains("address"));
    }
}
