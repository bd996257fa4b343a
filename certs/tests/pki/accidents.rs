//! Lost, damaged and swapped files, and concurrent processes.

use super::*;

#[test]
fn loose_permissions_are_tightened_and_reported() {
    let pki = Pki::issued();
    let key = pki.gateway().key;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let report = pki.apply_after(0);
    assert!(report.is_unchanged());
    assert_eq!(
        report.notes,
        [format!("{}: permissions of the group and of others were removed", key.display())]
    );
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn damaged_leaves_are_issued_again() {
    type Damage = fn(&Pki);
    let cases: [(&str, Damage, Reason); 6] = [
        ("certificate lost", |pki| fs::remove_file(pki.gateway().certificate).unwrap(), Reason::Damaged),
        ("key lost", |pki| fs::remove_file(pki.gateway().key).unwrap(), Reason::Damaged),
        (
            "certificate garbled",
            |pki| fs::write(pki.gateway().certificate, [0xff; 9]).unwrap(),
            Reason::Damaged,
        ),
        (
            "crash between key and certificate",
            |pki| fs::copy(pki.admin().key, pki.gateway().key).map(drop).unwrap(),
            Reason::KeyMismatch,
        ),
        (
            "another leaf in its place",
            |pki| {
                let cache = pki.layout.serving_cert(&Server::Cache);
                fs::copy(cache.key, pki.gateway().key).unwrap();
                fs::copy(cache.certificate, pki.gateway().certificate).unwrap();
            },
            Reason::SubjectChanged,
        ),
        (
            "a leaf of another installation in its place",
            |pki| {
                let other = Pki::issued();
                fs::copy(other.gateway().key, pki.gateway().key).unwrap();
                fs::copy(other.gateway().certificate, pki.gateway().certificate).unwrap();
            },
            Reason::SignerChanged,
        ),
    ];
    for (name, accident, reason) in cases {
        let pki = Pki::issued();
        accident(&pki);
        let report = pki.apply_after(0);
        let expected = BTreeMap::from([("gateway serving".to_owned(), (Action::Renewed, reason))]);
        assert_eq!(reasons(&report), expected, "{name}");
        assert!(
            is_server(&pki.gateway().certificate, &pki.layout.serving_ca(), "localhost", pki.start),
            "{name}"
        );
        assert!(pki.apply_after(0).is_unchanged(), "{name}");
    }
}

#[test]
fn a_temporary_file_of_a_crash_is_replaced() {
    let pki = Pki::issued();
    let key = pki.gateway().key;
    fs::write(key.with_file_name(".gateway.key.tmp"), "half a key").unwrap();
    fs::remove_file(&key).unwrap();
    pki.apply_after(0);
    assert!(is_server(&pki.gateway().certificate, &pki.layout.serving_ca(), "localhost", pki.start));
    assert!(!key.with_file_name(".gateway.key.tmp").exists());
}

#[test]
fn an_authority_whose_certificate_is_lost_is_signed_again_and_its_leaves_stay() {
    let pki = Pki::issued();
    fs::remove_file(pki.layout.client_ca()).unwrap();
    let report = pki.apply_after(0);
    let expected = BTreeMap::from([("client-ca".to_owned(), (Action::Renewed, Reason::PublicHalfMissing))]);
    assert_eq!(reasons(&report), expected);
    assert!(is_client(&pki.admin().certificate, &pki.layout.client_ca(), pki.start));
}

#[test]
fn an_authority_without_key_serves_until_something_must_be_signed() {
    let pki = Pki::issued();
    fs::remove_file(pki.authority_key(Authority::Client)).unwrap();
    assert!(pki.apply_after(0).is_unchanged());

    let before = pki.files();
    let error = pki.try_apply_after(300).unwrap_err();
    assert!(matches!(error, Error::AuthorityKeyMissing { authority: Authority::Client, .. }), "{error}");
    assert_eq!(pki.files(), before, "nothing is written, not even what could be signed");
}

#[test]
fn damaged_authorities_and_service_account_keys_are_never_replaced() {
    type Damage = fn(&Pki);
    let cases: [(&str, Damage, &str); 6] = [
        (
            "authority's key garbled",
            |pki| fs::write(pki.authority_key(Authority::Client), "x").unwrap(),
            "holds no readable private key",
        ),
        ("bundle garbled", |pki| fs::write(pki.layout.client_ca(), "x").unwrap(), "holds no certificate"),
        (
            "a leaf as authority",
            |pki| fs::copy(pki.admin().certificate, pki.layout.client_ca()).map(drop).unwrap(),
            "is not the certificate of an authority",
        ),
        (
            "authorities mixed up",
            |pki| fs::copy(pki.layout.serving_ca(), pki.layout.client_ca()).map(drop).unwrap(),
            "does not belong to the authority's certificate",
        ),
        (
            "signing key of tokens garbled",
            |pki| fs::write(pki.layout.service_account_keys().signing_key, "x").unwrap(),
            "holds no readable private key",
        ),
        (
            "signing key of tokens lost",
            |pki| fs::remove_file(pki.layout.service_account_keys().signing_key).unwrap(),
            "is missing beside its public key",
        ),
    ];
    for (name, accident, expected) in cases {
        let pki = Pki::issued();
        accident(&pki);
        let before = pki.files();
        let error = pki.try_apply_after(300).unwrap_err();
        assert!(matches!(&error, Error::Damaged { problem, .. } if *problem == expected), "{name}: {error}");
        assert_eq!(pki.files(), before, "{name}");
    }
}

#[test]
fn a_newer_or_unreadable_format_is_refused() {
    let pki = Pki::issued();
    let format = pki.layout.directory().join("format");
    assert_eq!(fs::read_to_string(&format).unwrap(), format!("{FORMAT}\n"));
    for (text, expected) in [
        (
            "2",
            format!(
                "{} has format 2, but this program supports formats up to 1: use a newer fairlead",
                format.display()
            ),
        ),
        ("soon", format!("{} does not contain a format number: is this a PKI directory?", format.display())),
    ] {
        fs::write(&format, text).unwrap();
        let before = pki.files();
        assert_eq!(pki.try_apply_after(400).unwrap_err().to_string(), expected);
        assert_eq!(
            pki.plan.observe(&pki.layout, pki.start, Renewal::WhenDue).unwrap_err().to_string(),
            expected
        );
        assert_eq!(pki.files(), before);
    }
}

#[test]
fn two_processes_cannot_apply_at_once() {
    let pki = Pki::issued();
    let lock = pki.layout.directory().join(".lock");
    let held: File = OpenOptions::new().write(true).open(lock).unwrap();
    held.try_lock().unwrap();
    assert!(matches!(pki.try_apply_after(0).unwrap_err(), Error::Busy { .. }));
    drop(held);
    assert!(pki.try_apply_after(0).is_ok());
}
