//! Bearer tokens of all kinds: valid, invalid and hostile.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "tests")]

mod configuration;
mod hostile;
mod issuers;
mod server;
mod service_accounts;
mod signing;
mod union;
mod webhook;
mod workspaces;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use fairlead_authn::{
    Authenticator, BearerToken, ConnectionCredentials, Identity, RequestCredentials, Verdict, VerdictFuture,
};
use http::HeaderMap;

/// The time of requests, unless a test uses another.
const NOW: u64 = 1_800_000_000;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

async fn ask_at(authenticator: &dyn Authenticator, token: &str, now: SystemTime) -> Verdict {
    let connection = ConnectionCredentials::none();
    let headers = HeaderMap::new();
    let token = BearerToken::new(token);
    let request = RequestCredentials {
        audiences: None,
        connection: &connection,
        headers: &headers,
        token: Some(&token),
        now,
        observer: None,
    };
    match authenticator.authenticate(&request) {
        VerdictFuture::Ready(verdict) => verdict,
        VerdictFuture::Pending(verdict) => verdict.await,
    }
}

async fn ask(authenticator: &dyn Authenticator, token: &str) -> Verdict {
    ask_at(authenticator, token, at(NOW)).await
}

/// `name: group group`, `no opinion`, or the reason.
fn summary(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accepted(identity) => {
            format!("{}: {}", identity.user().name, identity.user().groups.join(" "))
        }
        Verdict::NoOpinion => "no opinion".to_owned(),
        Verdict::Declined(reason) | Verdict::Refused(reason) => reason.to_string(),
    }
}

fn accepted(verdict: Verdict) -> Arc<Identity> {
    match verdict {
        Verdict::Accepted(identity) => identity,
        other => panic!("not accepted: {}", summary(&other)),
    }
}
