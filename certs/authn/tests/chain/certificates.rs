//! Certificates of clients: subjects, chains, validity, and the bundles of their authorities.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fairlead_authn::{
    CertificateAuthorities, Chain, ClientCertificateAuthenticator, ConnectionCredentials, SharedAuthorities,
    TrustPurpose,
};
use fairlead_certs::Client;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls_pki_types::CertificateDer;

use crate::{DAY, PKI, ask, ask_at, authorities, client, shard, summary};

/// Object identifiers and values, in order.
type Subject<'a> = &'a [(&'a [u64], &'a str)];

/// An authority of one test, for leaves with unusual subjects.
struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl TestAuthority {
    fn new() -> Self {
        let params = Self::authority("workshop");
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    fn authority(name: &str) -> CertificateParams {
        let mut params = Self::params(&[(&[2, 5, 4, 3], name)]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    }

    fn params(subject: Subject<'_>) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let mut seen: Vec<&[u64]> = Vec::new();
        for (oid, value) in subject {
            // The builder holds one value per type; a second value uses another name of the same type.
            let kind = match *oid {
                [2, 5, 4, 3] if !seen.contains(oid) => DnType::CommonName,
                [2, 5, 4, 10] if !seen.contains(oid) => DnType::OrganizationName,
                _ => DnType::CustomDnType(oid.to_vec()),
            };
            seen.push(oid);
            params.distinguished_name.push(kind, DnValue::Utf8String((*value).to_owned()));
        }
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2040, 1, 1);
        params
    }

    fn chain(&self) -> Chain {
        let authorities =
            CertificateAuthorities::none().with(TrustPurpose::Client, self.issuer.pem().as_bytes()).unwrap();
        Chain::builder()
            .with(ClientCertificateAuthenticator::new(SharedAuthorities::new(authorities)))
            .build()
    }

    fn issue(&self, params: &CertificateParams) -> ConnectionCredentials {
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        ConnectionCredentials::new(Arc::new([leaf.der().clone()]))
    }
}

#[test]
fn only_subjects_with_one_common_name_are_users() {
    const CN: &[u64] = &[2, 5, 4, 3];
    const O: &[u64] = &[2, 5, 4, 10];
    let workshop = TestAuthority::new();
    let chain = workshop.chain();
    let cases: [(Subject<'_>, &str); 6] = [
        (&[(CN, "ann")], "ann: system:authenticated"),
        (&[(CN, "ann"), (O, "a"), (O, "b,c")], "ann: a b,c system:authenticated"),
        (&[(CN, "änn"), (O, "system:authenticated")], "änn: system:authenticated"),
        (&[(O, "a")], "rejected: client certificate: the certificate's subject has no common name"),
        (&[(CN, "")], "rejected: client certificate: the certificate's subject has no common name"),
        (
            &[(CN, "ann"), (CN, "root")],
            "rejected: client certificate: the certificate's subject has more than one common name",
        ),
    ];
    for (subject, expected) in cases {
        let connection = workshop.issue(&TestAuthority::params(subject));
        assert_eq!(summary(&ask(&chain, &connection, &[])), expected, "{subject:?}");
    }
}

#[test]
fn invalid_certificates_are_rejected() {
    let workshop = TestAuthority::new();
    let chain = workshop.chain();
    let subject: Subject<'_> = &[(&[2, 5, 4, 3], "ann")];

    let mut for_servers = TestAuthority::params(subject);
    for_servers.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let self_signed = TestAuthority::params(subject).self_signed(&KeyPair::generate().unwrap()).unwrap();
    let impostor = TestAuthority::new().issue(&TestAuthority::params(subject));
    let garbage = CertificateDer::from(vec![0x30, 0x03, 1, 2, 3]);

    for (name, connection, expected) in [
        ("for servers only", workshop.issue(&for_servers), "client CA"),
        ("self-signed", ConnectionCredentials::new(Arc::new([self_signed.der().clone()])), "not signed by"),
        ("an authority of the same name", impostor, "client CA"),
        ("garbage", ConnectionCredentials::new(Arc::new([garbage])), "cannot be parsed"),
    ] {
        let outcome = summary(&ask(&chain, &connection, &[]));
        assert!(
            outcome.starts_with("rejected: client certificate: ") && outcome.contains(expected),
            "{name}: {outcome}"
        );
    }
}

#[test]
fn intermediates_are_taken_from_the_presented_chain() {
    let workshop = TestAuthority::new();
    let intermediate = CertifiedIssuer::signed_by(
        TestAuthority::authority("intermediate"),
        KeyPair::generate().unwrap(),
        &workshop.issuer,
    )
    .unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = TestAuthority::params(&[(&[2, 5, 4, 3], "ann")]).signed_by(&key, &intermediate).unwrap();
    let chain = workshop.chain();
    let complete = ConnectionCredentials::new(Arc::new([leaf.der().clone(), intermediate.der().clone()]));
    assert_eq!(summary(&ask(&chain, &complete, &[])), "ann: system:authenticated");
    let incomplete = ConnectionCredentials::new(Arc::new([leaf.der().clone()]));
    assert!(summary(&ask(&chain, &incomplete, &[])).ends_with("not signed by the client CA"));
}

#[test]
fn an_expired_intermediate_is_noticed_on_an_open_connection() {
    let workshop = TestAuthority::new();
    let mut params = TestAuthority::authority("intermediate");
    params.not_after = date_time_ymd(2030, 1, 1);
    let intermediate =
        CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &workshop.issuer).unwrap();
    let leaf = TestAuthority::params(&[(&[2, 5, 4, 3], "ann")])
        .signed_by(&KeyPair::generate().unwrap(), &intermediate)
        .unwrap();
    let connection = ConnectionCredentials::new(Arc::new([leaf.der().clone(), intermediate.der().clone()]));
    let chain = workshop.chain();
    // The first second of 2030.
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000);
    let before = ask_at(&chain, &connection, &[], end - Duration::from_secs(60));
    assert_eq!(summary(&before), "ann: system:authenticated");
    let after = summary(&ask_at(&chain, &connection, &[], end + Duration::from_secs(600)));
    assert!(after.starts_with("rejected: "), "{after}");
}

#[test]
fn a_proxy_is_trusted_only_while_its_certificate_is_valid() {
    let chain = shard(&SharedAuthorities::new(authorities()));
    let connection = client(&Client::FrontProxy);
    let user = [("x-remote-user", "bob")];
    let end = PKI.start + 365 * DAY;
    let before = summary(&ask_at(&chain, &connection, &user, end - Duration::from_secs(1)));
    assert_eq!(before, "bob: system:authenticated");
    let after = summary(&ask_at(&chain, &connection, &user, end + Duration::from_secs(1)));
    let expected = "rejected: request header: not accepted under the request-header CA: certificate expired";
    assert!(after.starts_with(expected), "{after}");
}

#[test]
fn bad_bundles_are_refused() {
    let client = |pem: &[u8]| {
        CertificateAuthorities::none()
            .with(TrustPurpose::Client, pem)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let good = fs::read(PKI.layout.client_ca()).unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
    assert_eq!(client(&good), Ok(()));
    assert_eq!(client(b""), Err("the client CA bundle holds no certificate".to_owned()));
    assert_eq!(client(b"just words"), Err("the client CA bundle holds no certificate".to_owned()));
    assert_eq!(
        client(b"-----BEGIN CERTIFICATE-----\nAQ"),
        Err("the client CA bundle is not readable PEM".to_owned())
    );
    let second = [good, broken.as_bytes().to_vec()].concat();
    let error = client(&second).unwrap_err();
    assert!(error.starts_with("certificate 2 of the client CA bundle cannot be used"), "{error}");
}

#[test]
fn the_subjects_for_the_handshake_are_unique() {
    assert_eq!(CertificateAuthorities::none().subjects().len(), 0);
    assert_eq!(authorities().subjects().len(), 2);
    let bundle = fs::read(PKI.layout.client_ca()).unwrap();
    let twice = authorities().with(TrustPurpose::RequestHeader, &bundle).unwrap();
    assert_eq!(twice.subjects().len(), 1);
}
