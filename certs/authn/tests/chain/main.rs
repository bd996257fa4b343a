//! Chains of authenticators, for connections with valid, invalid and no credentials.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "tests")]

mod certificates;

use std::{
    fs,
    path::Path,
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, SystemTime},
};

use fairlead_authn::{
    AuthenticationMethod, Authenticator, CertificateAuthorities, Chain, ClientCertificateAuthenticator,
    ConnectionCredentials, CredentialKind, GroupFilter, Identity, Observer, Outcome, Reason,
    RequestCredentials, RequestHeaderAuthenticator, RequestHeaderNames, SharedAuthorities, TokenFile,
    TokenUnion, TrustPurpose, UserInfo, Verdict, VerdictFuture,
};
use fairlead_certs::{Client, Inventory, Layout, Plan, Renewal, Server};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls_pki_types::{CertificateDer, pem::PemObject};

const DAY: Duration = Duration::from_secs(86_400);

/// A PKI of `fairlead-certs`, issued once for all tests.
struct Pki {
    _directory: tempfile::TempDir,
    layout: Layout,
    start: SystemTime,
}

static PKI: LazyLock<Pki> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::new(directory.path());
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let plan = Plan::for_inventory(&Inventory::parse(["root"], [] as [&str; 0]).unwrap());
    plan.apply(&layout, start, Renewal::WhenDue).unwrap();
    Pki { _directory: directory, layout, start }
});

fn authorities() -> CertificateAuthorities {
    let bundle = |path| fs::read(path).unwrap();
    CertificateAuthorities::none()
        .with(TrustPurpose::Client, &bundle(PKI.layout.client_ca()))
        .unwrap()
        .with(TrustPurpose::RequestHeader, &bundle(PKI.layout.requestheader_ca()))
        .unwrap()
}

fn credentials_from(path: &Path) -> ConnectionCredentials {
    ConnectionCredentials::new(Arc::new([CertificateDer::from_pem_file(path).unwrap()]))
}

fn client(client: &Client) -> ConnectionCredentials {
    credentials_from(&PKI.layout.client_cert(client).certificate)
}

fn none() -> ConnectionCredentials {
    ConnectionCredentials::none()
}

const TOKENS: &str = "good-token,ann,7,\"team-a,system:masters\"\n";

/// The chain of a shard.
fn shard(authorities: &SharedAuthorities) -> Chain {
    Chain::builder()
        .with(RequestHeaderAuthenticator::new(
            authorities.clone(),
            ["kcp-front-proxy"],
            RequestHeaderNames::default(),
        ))
        .with(ClientCertificateAuthenticator::new(authorities.clone()))
        .with(TokenFile::parse(TOKENS, Path::new("tokens.csv")).unwrap())
        .build()
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
    }
    headers
}

fn ask_at(
    chain: &Chain,
    connection: &ConnectionCredentials,
    lines: &[(&str, &str)],
    now: SystemTime,
) -> Outcome {
    chain.authenticate(connection, &headers(lines), now).now_or_never().expect("no I/O")
}

fn ask(chain: &Chain, connection: &ConnectionCredentials, lines: &[(&str, &str)]) -> Outcome {
    ask_at(chain, connection, lines, PKI.start)
}

/// `name: group group` of an identity, `anonymous`, or `rejected: reason`.
fn summary(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Identified(identity) => {
            format!("{}: {}", identity.user().name, identity.user().groups.join(" "))
        }
        Outcome::Anonymous => "anonymous".to_owned(),
        Outcome::Rejected(rejection) => format!("rejected: {rejection}"),
    }
}

fn identity(outcome: Outcome) -> Arc<Identity> {
    match outcome {
        Outcome::Identified(identity) => identity,
        other => panic!("not identified: {other:?}"),
    }
}

#[test]
fn a_shard_authenticates_its_callers() {
    type Lines<'a> = &'a [(&'a str, &'a str)];
    let chain = shard(&SharedAuthorities::new(authorities()));
    let forged: Lines<'_> = &[("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    let stamped: Lines<'_> =
        &[("x-remote-user", "bob"), ("x-remote-group", "team"), ("x-remote-group", "system:authenticated")];
    let server = credentials_from(&PKI.layout.serving_cert(&Server::Gateway).certificate);
    let proxy = || client(&Client::FrontProxy);
    let admin = || client(&Client::Admin);
    let unknown_issuer = "not signed by the client CA";

    let cases: [(&str, ConnectionCredentials, Lines<'_>, String); 16] = [
        ("nothing", none(), &[], "anonymous".into()),
        ("headers without certificate", none(), forged, "anonymous".into()),
        ("an admin", admin(), &[], "kcp-admin: system:kcp:admin system:authenticated".into()),
        (
            "an admin's headers mean nothing",
            admin(),
            forged,
            "kcp-admin: system:kcp:admin system:authenticated".into(),
        ),
        ("the gateway for its user", proxy(), stamped, "bob: team system:authenticated".into()),
        ("a user without groups", proxy(), &[("x-remote-user", "bob")], "bob: system:authenticated".into()),
        (
            "the gateway for nobody",
            proxy(),
            &[("x-remote-user", "system:anonymous"), ("x-remote-group", "system:unauthenticated")],
            "system:anonymous: system:unauthenticated".into(),
        ),
        (
            "the gateway saying nothing",
            proxy(),
            &[("x-remote-group", "system:masters")],
            format!("rejected: client certificate: {unknown_issuer}"),
        ),
        (
            "the gateway passing on a token",
            proxy(),
            &[("authorization", "Bearer good-token")],
            "ann: team-a system:masters system:authenticated".into(),
        ),
        (
            "two users at once, even with a good token",
            proxy(),
            &[("x-remote-user", "bob"), ("x-remote-user", "root"), ("authorization", "Bearer good-token")],
            "rejected: request header: header x-remote-user is repeated".into(),
        ),
        (
            "a good token",
            none(),
            &[("authorization", "Bearer good-token")],
            "ann: team-a system:masters system:authenticated".into(),
        ),
        (
            "a wrong token",
            none(),
            &[("authorization", "Bearer bad")],
            "rejected: token file: the bearer token is not known".into(),
        ),
        (
            "a good certificate and a wrong token",
            admin(),
            &[("authorization", "Bearer bad")],
            "kcp-admin: system:kcp:admin system:authenticated".into(),
        ),
        (
            "a wrong certificate and a good token",
            server,
            &[("authorization", "Bearer good-token")],
            "ann: team-a system:masters system:authenticated".into(),
        ),
        (
            "two tokens",
            admin(),
            &[("authorization", "Bearer good-token"), ("authorization", "Bearer bad")],
            "rejected: bearer token: there is more than one Authorization header or bearer subprotocol"
                .into(),
        ),
        ("another scheme is no credential", none(), &[("authorization", "Basic YTpi")], "anonymous".into()),
    ];
    for (name, connection, lines, expected) in cases {
        assert_eq!(summary(&ask(&chain, &connection, lines)), expected, "{name}");
        // The connection caches the verification; the second request must have the same result.
        assert_eq!(summary(&ask(&chain, &connection, lines)), expected, "{name}, again");
    }
}

#[test]
fn identities_have_a_method_and_an_expiry() {
    let chain = shard(&SharedAuthorities::new(authorities()));
    let connection = client(&Client::Admin);
    let by_certificate = identity(ask(&chain, &connection, &[]));
    let certificate = connection.certificate().unwrap().unwrap();
    assert_eq!(by_certificate.method(), AuthenticationMethod::ClientCertificate);
    assert_eq!(by_certificate.expires(), Some(PKI.start + 365 * DAY));
    assert_eq!(certificate.not_after, PKI.start + 365 * DAY);
    let credential_id = &by_certificate.user().extra["authentication.kubernetes.io/credential-id"];
    let hexadecimal: String = certificate.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(credential_id, &[format!("X509SHA256={hexadecimal}")]);

    let by_header = identity(ask(&chain, &client(&Client::FrontProxy), &[("x-remote-user", "bob")]));
    assert_eq!((by_header.method(), by_header.expires()), (AuthenticationMethod::RequestHeader, None));
    let by_token = identity(ask(&chain, &none(), &[("authorization", "Bearer good-token")]));
    assert_eq!((by_token.method(), by_token.expires()), (AuthenticationMethod::TokenFile, None));
    assert_eq!(by_token.user().uid.as_deref(), Some("7"));
}

#[test]
fn a_shard_reads_what_a_gateway_stamps() {
    let authorities = SharedAuthorities::new(authorities());
    let gateway = Chain::builder()
        .with(ClientCertificateAuthenticator::new(authorities.clone()))
        .filter_groups(GroupFilter::privileged())
        .build();
    let shard = shard(&authorities);
    let mut forwarded = headers(&[("x-remote-user", "root"), ("connection", "x-remote-group")]);
    let at_the_gateway = identity(ask(&gateway, &client(&Client::Admin), &[]));
    at_the_gateway.headers().unwrap().stamp(&mut forwarded);
    let outcome =
        shard.authenticate(&client(&Client::FrontProxy), &forwarded, PKI.start).now_or_never().unwrap();
    assert_eq!(identity(outcome).user(), at_the_gateway.user());
}

#[test]
fn a_gateway_drops_privileged_groups_of_certificates() {
    let gateway = Chain::builder()
        .with(ClientCertificateAuthenticator::new(SharedAuthorities::new(authorities())))
        .filter_groups(GroupFilter::privileged())
        .build();
    for (who, expected) in [
        (Client::ShardAdmin, "shard-admin: system:authenticated"),
        (Client::LogicalClusterAdmin, "logical-cluster-admin: system:authenticated"),
        (Client::Admin, "kcp-admin: system:authenticated system:kcp:admin"),
        (
            Client::ShardPicker("root".parse().unwrap()),
            "shard-root-picker: system:authenticated system:fairlead:shard",
        ),
    ] {
        assert_eq!(summary(&ask(&gateway, &client(&who), &[])), expected);
    }
    assert!(!gateway.authenticates_tokens());
    assert!(shard(&SharedAuthorities::new(authorities())).authenticates_tokens());
}

#[test]
fn groups_of_tokens_are_filtered_apart_from_those_of_certificates() {
    let authorities = SharedAuthorities::new(authorities());
    let chain = Chain::builder()
        .with(ClientCertificateAuthenticator::new(authorities))
        .with(
            TokenFile::parse("t,ann,7,\"system:kcp:admin,system:fairlead:x,team\"\n", Path::new("t"))
                .unwrap(),
        )
        .filter_token_groups(GroupFilter::new([] as [&str; 0], ["system:kcp:admin", "system:fairlead:*"]))
        .build();
    let token = [("authorization", "Bearer t")];
    for _ in 0..2 {
        assert_eq!(summary(&ask(&chain, &none(), &token)), "ann: system:authenticated team");
        assert_eq!(
            summary(&ask(&chain, &client(&Client::Admin), &[])),
            "kcp-admin: system:kcp:admin system:authenticated"
        );
    }
}

#[test]
fn requests_of_one_connection_share_one_identity() {
    for filter in [GroupFilter::default(), GroupFilter::privileged()] {
        let chain = Chain::builder()
            .with(ClientCertificateAuthenticator::new(SharedAuthorities::new(authorities())))
            .filter_groups(filter)
            .build();
        let connection = client(&Client::ShardAdmin);
        let first = identity(ask(&chain, &connection, &[]));
        let second = identity(ask_at(&chain, &connection, &[], PKI.start + Duration::from_secs(599)));
        assert!(Arc::ptr_eq(&first, &second));
    }
}

#[test]
fn two_chains_on_one_connection_do_not_mix_their_results() {
    let authorities = SharedAuthorities::new(authorities());
    let plain = Chain::builder().with(ClientCertificateAuthenticator::new(authorities.clone())).build();
    let strict = Chain::builder()
        .with(ClientCertificateAuthenticator::new(authorities))
        .filter_groups(GroupFilter::privileged())
        .build();
    let connection = client(&Client::ShardAdmin);
    for _ in 0..2 {
        assert_eq!(
            summary(&ask(&plain, &connection, &[])),
            "shard-admin: system:masters system:authenticated"
        );
        assert_eq!(summary(&ask(&strict, &connection, &[])), "shard-admin: system:authenticated");
    }
}

#[test]
fn a_certificate_is_checked_for_expiry_on_an_open_connection() {
    let chain = shard(&SharedAuthorities::new(authorities()));
    let connection = client(&Client::Admin);
    let known = "kcp-admin: system:kcp:admin system:authenticated";
    let end = PKI.start + 365 * DAY;
    let second = Duration::from_secs(1);
    for (now, expected) in [
        (PKI.start - DAY, "certificate not valid yet"),
        (PKI.start, known),
        (end - second, known),
        (end + second, "certificate expired"),
        (end - second, known),
        (PKI.start - Duration::from_secs(301), "certificate not valid yet"),
    ] {
        let outcome = summary(&ask_at(&chain, &connection, &[], now));
        assert!(
            outcome == expected || outcome.starts_with("rejected") && outcome.contains(expected),
            "{outcome}"
        );
    }
}

#[test]
fn replaced_authorities_apply_from_the_next_request() {
    let shared = SharedAuthorities::new(authorities());
    let chain = shard(&shared);
    let connection = client(&Client::Admin);
    let known = summary(&ask(&chain, &connection, &[]));
    shared.replace(CertificateAuthorities::none());
    assert_eq!(
        summary(&ask(&chain, &connection, &[])),
        "rejected: client certificate: no client CA is configured"
    );
    shared.replace(authorities());
    assert_eq!(summary(&ask(&chain, &connection, &[])), known);
}

#[test]
fn one_authority_for_both_purposes_still_needs_an_allowed_name() {
    let bundle = fs::read(PKI.layout.client_ca()).unwrap();
    let both = CertificateAuthorities::none()
        .with(TrustPurpose::Client, &bundle)
        .and_then(|authorities| authorities.with(TrustPurpose::RequestHeader, &bundle))
        .unwrap();
    let shared = SharedAuthorities::new(both);
    let forged = [("x-remote-user", "root")];
    let outcome = ask(&shard(&shared), &client(&Client::Admin), &forged);
    assert_eq!(summary(&outcome), "kcp-admin: system:kcp:admin system:authenticated");

    let only_headers = |allowed: &[&str]| {
        Chain::builder()
            .with(RequestHeaderAuthenticator::new(
                shared.clone(),
                allowed.iter().copied(),
                RequestHeaderNames::default(),
            ))
            .build()
    };
    assert_eq!(
        summary(&ask(&only_headers(&["kcp-front-proxy"]), &client(&Client::Admin), &forged)),
        "rejected: request header: \"kcp-admin\" may not assert identities"
    );
    let anybody = ask(&only_headers(&[]), &client(&Client::Admin), &forged);
    assert_eq!(summary(&anybody), "root: system:authenticated");
}

#[test]
fn proxies_have_a_valid_certificate_of_the_request_header_authority() {
    let shared = SharedAuthorities::new(authorities());
    let clients_only = Chain::builder().with(ClientCertificateAuthenticator::new(shared.clone())).build();
    let shard = shard(&shared);
    let expired = PKI.start + DAY * 10_000;
    for (connection, now, expected) in [
        (client(&Client::FrontProxy), PKI.start, true),
        // Its name may not assert identities.
        (client(&Client::FrontProxyEdge), PKI.start, true),
        (client(&Client::FrontProxy), expired, false),
        (client(&Client::Admin), PKI.start, false),
        (none(), PKI.start, false),
    ] {
        assert_eq!(shard.is_proxy(&connection, now), expected, "{connection:?}");
        assert!(!clients_only.is_proxy(&connection, now), "{connection:?}");
    }
}

/// Acts like a webhook: its verdict is pending.
struct Remote {
    verdict: Verdict,
}

impl Authenticator for Remote {
    fn name(&self) -> &'static str {
        "remote"
    }

    fn credential_kind(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        if request.token.is_none() {
            return VerdictFuture::Ready(Verdict::NoOpinion);
        }
        VerdictFuture::Pending(Box::pin(async move { self.verdict.clone() }))
    }
}

#[test]
fn authenticators_may_call_another_server() {
    let user = UserInfo { name: "remote-user".to_owned(), ..UserInfo::default() };
    let accepting = Remote {
        verdict: Verdict::Accepted(Arc::new(Identity::new(user, AuthenticationMethod::Webhook, None))),
    };
    let away = Remote { verdict: Verdict::Declined(Reason::Unavailable("connection refused".into())) };
    let file = || TokenFile::parse(TOKENS, Path::new("tokens.csv")).unwrap();

    let chain = Chain::builder().with(file()).with(accepting).build();
    let ask_token = |chain: &Chain, token: &str| {
        ask(chain, &none(), &[("authorization", format!("Bearer {token}").as_str())])
    };
    assert!(summary(&ask_token(&chain, "good-token")).starts_with("ann:"), "the first that accepts decides");
    assert_eq!(summary(&ask_token(&chain, "other")), "remote-user: system:authenticated");

    let chain = Chain::builder().with(away).with(file()).build();
    assert!(
        summary(&ask_token(&chain, "good-token")).starts_with("ann:"),
        "an outage of one leaves the others"
    );
    let Outcome::Rejected(rejection) = ask_token(&chain, "other") else { panic!("accepted") };
    assert!(rejection.is_retryable());
    assert_eq!(
        rejection.to_string(),
        "remote: cannot be verified now: connection refused; token file: the bearer token is not known"
    );
}

/// Collects the calls of an observer, one line each.
#[derive(Debug, Default)]
struct ReportedSteps(Mutex<Vec<String>>);

impl Observer for ReportedSteps {
    fn on_verdict(&self, authenticator: &'static str, verdict: &Verdict) {
        let word = match verdict {
            Verdict::Accepted(_) => "accepts",
            Verdict::NoOpinion => "has no opinion",
            Verdict::Declined(_) | Verdict::Refused(_) => "declines",
        };
        self.0.lock().unwrap().push(format!("{authenticator} {word}"));
    }

    fn on_cached_identity(&self, authenticator: &'static str, identity: &Identity) {
        self.0.lock().unwrap().push(format!("{authenticator} remembers {}", identity.user().name));
    }

    fn on_accepted(&self, before: &Identity, after: &Identity) {
        let groups = [before, after].map(|identity| identity.user().groups.join(" "));
        self.0.lock().unwrap().push(groups.join(" -> "));
    }
}

#[test]
fn an_observed_authentication_reports_all_steps_and_is_not_cached() {
    let other = TokenFile::parse("other,bob,8\n", Path::new("other.csv")).unwrap();
    let tokens =
        TokenUnion::new().with(other).with(TokenFile::parse(TOKENS, Path::new("tokens.csv")).unwrap());
    let chain = Chain::builder()
        .with(ClientCertificateAuthenticator::new(SharedAuthorities::new(authorities())))
        .with(tokens)
        .filter_groups(GroupFilter::privileged())
        .build();
    let token = headers(&[("authorization", "Bearer good-token")]);
    let observed = || {
        let (steps, connection) = (ReportedSteps::default(), none());
        let outcome = chain.authenticate_observed(Some(&steps), &connection, &token, PKI.start);
        let outcome = outcome.now_or_never().expect("no I/O");
        assert_eq!(summary(&outcome), "ann: system:authenticated team-a");
        steps.0.into_inner().unwrap()
    };
    let groups = "team-a system:masters system:authenticated -> system:authenticated team-a";
    for _ in 0..2 {
        let expected = [
            "client certificate has no opinion",
            "token file declines",
            "token file accepts",
            "bearer token accepts",
            groups,
        ];
        assert_eq!(observed(), expected);
    }
    // The cache entry of a real request is reported.
    assert!(summary(&ask(&chain, &none(), &[("authorization", "Bearer good-token")])).starts_with("ann:"));
    let expected =
        ["client certificate has no opinion", "bearer token remembers ann", "bearer token accepts", groups];
    assert_eq!(observed(), expected);
}

#[test]
fn a_credential_without_authenticator_is_rejected() {
    let chain = Chain::builder().build();
    let expected = "rejected: chain: no authenticator exists for this credential";
    assert_eq!(summary(&ask(&chain, &none(), &[("authorization", "Bearer x")])), expected);
    assert_eq!(summary(&ask(&chain, &client(&Client::Admin), &[])), expected);
    assert_eq!(summary(&ask(&chain, &none(), &[])), "anonymous");
}

#[test]
fn the_anonymous_identity_is_that_of_kubernetes() {
    let anonymous = Identity::anonymous();
    assert_eq!(anonymous.user().name, "system:anonymous");
    assert_eq!(anonymous.user().groups, ["system:unauthenticated"]);
    assert_eq!(anonymous.method(), AuthenticationMethod::Anonymous);
}
