//! The cache of accepted tokens of a union.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairlead_authn::{
    AuthenticationMethod, Authenticator, Chain, ConnectionCredentials, CredentialKind, GroupFilter, Identity,
    Outcome, Reason, RequestCredentials, TokenError, TokenFile, TokenUnion, UserInfo, Verdict, VerdictFuture,
};
use http::HeaderMap;

use super::{NOW, ask, ask_at, at, summary};

/// Accepts the token `good` until a time, and counts its calls.
struct Counting {
    asked: Arc<AtomicUsize>,
    expires: Option<u64>,
}

impl Authenticator for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn credential_kind(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let Some(token) = request.token else { return VerdictFuture::Ready(Verdict::NoOpinion) };
        let verdict = match token.as_str() {
            "good" => {
                let groups = ["z", "system:masters", "a"].map(str::to_owned).to_vec();
                let user = UserInfo { name: "ann".to_owned(), groups, ..UserInfo::default() };
                let expires = self.expires.map(at);
                Verdict::Accepted(Arc::new(Identity::new(user, AuthenticationMethod::Webhook, expires)))
            }
            "down" => Verdict::Declined(Reason::Unavailable("down".into())),
            "bad" => Verdict::Declined(TokenError::Signature.into()),
            _ => Verdict::NoOpinion,
        };
        VerdictFuture::Pending(Box::pin(async { verdict }))
    }
}

fn union(expires: Option<u64>) -> (TokenUnion, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let file = TokenFile::parse("static,bob,1", Path::new("tokens.csv")).unwrap();
    let counting = Counting { asked: Arc::clone(&asked), expires };
    (TokenUnion::new().with(file).with(counting), asked)
}

#[tokio::test]
async fn the_first_that_accepts_decides() {
    let (union, asked) = union(None);
    let cases = [
        ("static", "bob: system:authenticated", 0),
        ("good", "ann: z system:masters a", 1),
        ("bad", "token file: the bearer token is not known; counting: the token's signature is not valid", 1),
        ("down", "token file: the bearer token is not known; counting: cannot be verified now: down", 1),
        ("other", "token file: the bearer token is not known", 1),
    ];
    for (token, expected, times) in cases {
        asked.store(0, Ordering::Relaxed);
        assert_eq!(summary(&ask(&union, token).await), expected);
        assert_eq!(asked.load(Ordering::Relaxed), times, "{token}");
    }
    match ask(&union, "down").await {
        Verdict::Declined(reason) => assert!(reason.is_retryable()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn successes_are_cached_for_ten_seconds_and_failures_are_not() {
    let (union, asked) = union(None);
    let times = async |token: &str, seconds: u64| {
        ask_at(&union, token, at(NOW + seconds)).await;
        asked.swap(0, Ordering::Relaxed)
    };
    assert_eq!(times("good", 0).await, 1);
    assert_eq!(times("good", 9).await, 0);
    assert_eq!(times("good", 10).await, 1);
    for token in ["bad", "down", "other"] {
        assert_eq!([times(token, 0).await, times(token, 0).await], [1, 1], "{token}");
    }
}

#[tokio::test]
async fn no_token_is_cached_beyond_its_expiry() {
    let (union, asked) = union(Some(NOW + 3));
    for (seconds, expected) in [(0, 1), (2, 0), (3, 1), (3, 1)] {
        ask_at(&union, "good", at(NOW + seconds)).await;
        assert_eq!(asked.swap(0, Ordering::Relaxed), expected, "after {seconds} s");
    }
}

#[tokio::test]
async fn a_cached_identity_is_the_same_object_in_a_chain() {
    let (union, _) = union(None);
    let chain = Chain::builder().with(union).filter_groups(GroupFilter::privileged()).build();
    let mut headers = HeaderMap::new();
    headers.insert("authorization", "Bearer good".parse().unwrap());
    let connection = ConnectionCredentials::none();
    let mut seen = Vec::new();
    for _ in 0..2 {
        match chain.authenticate(&connection, &headers, at(NOW) + Duration::from_secs(1)).await {
            Outcome::Identified(identity) => seen.push(identity),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen[0].user().groups, ["a", "system:authenticated", "z"]);
    assert!(Arc::ptr_eq(&seen[0], &seen[1]), "its headers are built once");
}
