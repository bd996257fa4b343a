//! The contents of a new directory, checked by strict verifiers.

use super::*;

#[test]
fn the_first_run_issues_everything_and_the_second_changes_nothing() {
    let pki = Pki::planned();
    let first = pki.apply_after(0);
    assert_eq!(first.rows.len(), pki.plan.items().len());
    assert!(first.rows.iter().all(|row| (row.action, row.reason) == (Action::Issued, Reason::New)));
    assert_eq!(first.notes, [] as [String; 0]);

    let before = pki.files();
    let second = pki.apply_after(1);
    assert!(second.is_unchanged(), "{second}");
    assert_eq!(pki.files(), before);
    let expiry = |report: &Report| report.rows.iter().map(|row| row.expires).collect::<Vec<_>>();
    assert_eq!(expiry(&first), expiry(&second));
}

#[test]
fn observing_returns_the_steps_of_applying_without_changes() {
    let pki = Pki::planned();
    let steps = pki.plan.observe(&pki.layout, pki.start, Renewal::WhenDue).unwrap();
    assert!(!pki.layout.directory().exists());
    let report = pki.apply_after(0);
    let told: Vec<_> = steps.iter().map(|step| (step.item.to_string(), step.action, step.reason)).collect();
    let done: Vec<_> = report.rows.iter().map(|row| (row.name.clone(), row.action, row.reason)).collect();
    assert_eq!(told, done);
}

#[test]
fn the_report_is_a_table() {
    let pki = Pki::issued();
    let table = pki.apply_after(0).to_string();
    let line = |start: &str| table.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    let cells = |line: String| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(cells(line("NAME")), ["NAME", "FILE", "SUBJECT", "SIGNED BY", "EXPIRES", "ACTION"]);
    assert_eq!(
        cells(line("kcp-admin ")),
        [
            "kcp-admin client",
            "clients/kcp-admin.crt",
            "CN=kcp-admin,O=system:kcp:admin",
            "client-ca",
            "2028-01-15",
            "kept"
        ]
    );
    assert_eq!(
        cells(line("service-account")),
        ["service-account key", "service-accounts/sa.pub", "-", "-", "-", "kept"]
    );
}

#[test]
fn keys_are_readable_by_their_owner_only() {
    let pki = Pki::issued();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = pki.files();
    assert!(files.keys().filter(|path| path.extension().is_some_and(|ext| ext == "key")).count() > 10);
    for (path, contents) in files {
        let secret = contents.windows(11).any(|window| window == b"PRIVATE KEY");
        assert_eq!(secret, path.extension().is_some_and(|ext| ext == "key"), "{}", path.display());
        if secret {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        assert_eq!(mode(path.parent().unwrap()), 0o700);
    }
}

#[test]
fn servers_are_valid_for_all_their_names_and_their_authority_only() {
    let pki = Pki::issued();
    let layout = &pki.layout;
    for server in [Server::Gateway, Server::Cache, Server::Shard("root".parse().unwrap())] {
        let leaf = layout.serving_cert(&server).certificate;
        for name in ["localhost", "127.0.0.1", "::1", "kcp.example.com"] {
            assert!(is_server(&leaf, &layout.serving_ca(), name, pki.start), "{server:?} {name}");
        }
        assert!(!is_server(&leaf, &layout.serving_ca(), "other.example.com", pki.start));
        assert!(!is_server(&leaf, &layout.serving_ca(), "localhost", pki.start + 366 * DAY));
        assert!(!is_server(&leaf, &layout.client_ca(), "localhost", pki.start));
        assert!(!is_client(&leaf, &layout.serving_ca(), pki.start), "a server's certificate is no identity");
    }
}

#[test]
fn clients_are_valid_for_their_authority_only() {
    let pki = Pki::issued();
    let layout = &pki.layout;
    for item in pki.plan.items() {
        let Item::Leaf(leaf) = item else { continue };
        let Usage::Client(_) = &leaf.usage else { continue };
        let file = leaf.files(layout).certificate;
        for authority in Authority::ALL {
            let expected = authority == leaf.signer;
            assert_eq!(is_client(&file, &layout.trust(authority), pki.start), expected, "{leaf} {authority}");
        }
    }
}

#[test]
fn certificates_satisfy_strict_verifiers() {
    let pki = Pki::issued();
    let mut serials = HashSet::new();
    for item in pki.plan.items() {
        let (file, key, signer, years) = match item {
            Item::Authority(authority) => {
                (pki.layout.trust(*authority), pki.authority_key(*authority), *authority, 10)
            }
            Item::Leaf(leaf) => {
                let files = leaf.files(&pki.layout);
                (files.certificate, files.key, leaf.signer, 1)
            }
            Item::ServiceAccountKey => continue,
        };
        let der = certificate(&file);
        let (_, leaf) = X509Certificate::from_der(&der).unwrap();
        let signer = certificate(&pki.layout.trust(signer));
        let (_, signer) = X509Certificate::from_der(&signer).unwrap();
        let is_authority = matches!(item, Item::Authority(_));

        assert_eq!(leaf.version().to_string(), "V3");
        assert!(serials.insert(leaf.raw_serial().to_vec()), "serial numbers are unique");
        assert_eq!(leaf.raw_serial().len(), 16);
        assert!((0x40..0x80).contains(&leaf.raw_serial()[0]), "serial numbers are positive");
        assert_eq!(leaf.issuer(), signer.subject());
        leaf.verify_signature(Some(signer.public_key())).unwrap();
        assert!(leaf.extensions().iter().any(|extension| matches!(
            (extension.critical, extension.parsed_extension()),
            (true, ParsedExtension::BasicConstraints(constraints)) if constraints.ca == is_authority
        )));
        assert_eq!(key_id(&leaf, Side::Authority), key_id(&signer, Side::Subject));
        assert!(key_id(&leaf, Side::Subject).is_some());

        let usage = leaf.key_usage().unwrap().unwrap();
        assert!(usage.critical);
        assert_eq!(usage.value.digital_signature(), !is_authority);
        assert_eq!((usage.value.key_cert_sign(), usage.value.crl_sign()), (is_authority, is_authority));
        assert!(!usage.value.key_encipherment());

        let seconds = leaf.validity().not_after.timestamp() - leaf.validity().not_before.timestamp();
        assert_eq!(seconds, years * 365 * 86_400 + 300);
        // P-256: the curve's OID 1.2.840.10045.3.1.7 is in the public key.
        let curve: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
        assert!(leaf.public_key().raw.windows(curve.len()).any(|window| window == curve));
        PrivateKeyDer::from_pem_file(key).unwrap();
    }
}

enum Side {
    Subject,
    Authority,
}

fn key_id(certificate: &X509Certificate<'_>, side: Side) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match (extension.parsed_extension(), &side) {
        (ParsedExtension::SubjectKeyIdentifier(id), Side::Subject) => Some(id.0.to_vec()),
        (ParsedExtension::AuthorityKeyIdentifier(id), Side::Authority) => {
            id.key_identifier.as_ref().map(|id| id.0.to_vec())
        }
        _ => None,
    })
}

#[test]
fn hosts_become_alternative_names_of_the_right_kind() {
    let mut pki = Pki::planned();
    pki.plan = plan(&["*.example.com", "fd00::7"]);
    pki.apply_after(0);
    let der = certificate(&pki.gateway().certificate);
    let (_, leaf) = X509Certificate::from_der(&der).unwrap();
    let names = &leaf.subject_alternative_name().unwrap().unwrap().value.general_names;
    assert!(names.contains(&GeneralName::DNSName("*.example.com")));
    assert!(names.contains(&GeneralName::IPAddress(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7])));
    assert_eq!(names.len(), 5);
    assert!("fd00::7".parse::<Host>().is_ok());
    assert!(pki.apply_after(0).is_unchanged());
}
