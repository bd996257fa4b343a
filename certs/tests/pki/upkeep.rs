//! Renewal over time, and after changes of the installation.

use super::*;

#[test]
fn a_leaf_is_renewed_when_a_third_of_its_lifetime_is_left() {
    for (days, expected) in [
        (200, None),
        (240, None),
        (250, Some((Action::Renewed, Reason::ExpiresSoon))),
        (364, Some((Action::Renewed, Reason::ExpiresSoon))),
        (400, Some((Action::Renewed, Reason::Expired))),
    ] {
        let pki = Pki::issued();
        let report = pki.apply_after(days);
        assert_eq!(reasons(&report).get("gateway serving").copied(), expected, "after {days} days");
        for authority in Authority::ALL {
            assert_eq!(report.row(&pki.layout.trust(authority)).unwrap().action, Action::Unchanged);
        }
        assert!(pki.apply_after(days).is_unchanged(), "after {days} days");
        assert!(is_server(
            &pki.gateway().certificate,
            &pki.layout.serving_ca(),
            "localhost",
            pki.start + DAY * days
        ));
    }
}

#[test]
fn a_clock_that_was_ahead_is_repaired() {
    let pki = Pki::planned();
    pki.apply_after(30);
    let report = pki.apply_after(0);
    assert!(
        report.rows.iter().filter(|row| row.expires.is_some()).all(|row| row.reason == Reason::NotYetValid)
    );
    assert!(is_client(&pki.admin().certificate, &pki.layout.client_ca(), pki.start));
}

#[test]
fn every_leaf_can_be_rotated_on_demand() {
    let pki = Pki::issued();
    let before = pki.files();
    let report = pki.plan.apply(&pki.layout, pki.start, Renewal::EveryLeaf).unwrap();
    for row in &report.rows {
        let changed = fs::read(&row.file).unwrap() != before[&row.file];
        assert_eq!(changed, row.signer.is_some(), "{}", row.name);
    }
    assert_ne!(fs::read(pki.gateway().key).unwrap(), before[&pki.gateway().key], "keys are rotated too");
    assert!(is_client(&pki.admin().certificate, &pki.layout.client_ca(), pki.start));
}

#[test]
fn another_host_renews_only_the_servers() {
    let mut pki = Pki::issued();
    pki.plan = plan(&["kcp.example.com", "10.1.2.3"]);
    let report = pki.apply_after(0);
    let renewed: Vec<_> = reasons(&report).into_iter().collect();
    let hosts_changed = (Action::Renewed, Reason::HostsChanged);
    assert_eq!(
        renewed,
        ["cache serving", "gateway serving", "shard-alpha serving", "shard-root serving"]
            .map(|name| (name.to_owned(), hosts_changed))
    );
    assert!(is_server(&pki.gateway().certificate, &pki.layout.serving_ca(), "10.1.2.3", pki.start));
}

#[test]
fn another_shard_gets_its_leaves_and_nothing_else_changes() {
    let mut pki = Pki::issued();
    let before = pki.files();
    pki.plan =
        Plan::for_inventory(&Inventory::parse(["root", "alpha", "beta"], ["kcp.example.com"]).unwrap());
    let report = pki.apply_after(0);
    let names: Vec<_> = reasons(&report).into_keys().collect();
    assert_eq!(names, ["kcp-shard-beta client", "shard-beta serving", "shard-beta-picker client"]);
    for (path, contents) in before {
        assert_eq!(fs::read(&path).unwrap(), contents, "{}", path.display());
    }
}

#[test]
fn near_the_expiry_of_an_authority_leaves_expire_with_it_and_are_not_renewed() {
    let pki = Pki::issued();
    let end = 3650;
    let report = pki.apply_after(end - 100);
    let authority = report.row(&pki.layout.client_ca()).unwrap().expires;
    assert_eq!(report.row(&pki.admin().certificate).unwrap().expires, authority);
    assert_eq!(report.notes.len(), 3, "{:?}", report.notes);
    assert!(report.notes[0].starts_with("serving-ca expires in 100 days"));
    assert!(pki.apply_after(end - 1).is_unchanged());

    let key = fs::read(pki.authority_key(Authority::Client)).unwrap();
    let report = pki.apply_after(end + 1);
    assert_eq!(reasons(&report)["client-ca"], (Action::Renewed, Reason::Expired));
    assert_eq!(reasons(&report)["kcp-admin client"], (Action::Renewed, Reason::Expired));
    assert_eq!(fs::read(pki.authority_key(Authority::Client)).unwrap(), key);
    assert!(is_client(&pki.admin().certificate, &pki.layout.client_ca(), pki.start + DAY * (end + 1)));
    assert!(pki.apply_after(end + 1).is_unchanged());
}

#[test]
fn further_certificates_in_a_bundle_survive_a_new_signature() {
    let pki = Pki::issued();
    let other = Pki::issued();
    let foreign = fs::read_to_string(other.layout.client_ca()).unwrap();
    let own = fs::read_to_string(pki.layout.client_ca()).unwrap();
    fs::write(pki.layout.client_ca(), format!("{own}{foreign}")).unwrap();
    assert!(pki.apply_after(0).is_unchanged());
    pki.apply_after(3651);
    let bundle = fs::read_to_string(pki.layout.client_ca()).unwrap();
    assert!(bundle.ends_with(&foreign) && !bundle.contains(&own));
}

#[test]
fn older_public_keys_of_tokens_are_kept() {
    let pki = Pki::issued();
    let files = pki.layout.service_account_keys();
    let older = fs::read_to_string(Pki::issued().layout.service_account_keys().verification_keys).unwrap();
    let own = fs::read_to_string(&files.verification_keys).unwrap();
    fs::write(&files.verification_keys, format!("{older}{own}")).unwrap();
    assert!(pki.apply_after(0).is_unchanged());
    fs::write(&files.verification_keys, &older).unwrap();
    let report = pki.apply_after(0);
    assert_eq!(reasons(&report)["service-account key"], (Action::Renewed, Reason::PublicHalfMissing));
    assert_eq!(fs::read_to_string(&files.verification_keys).unwrap(), format!("{own}{older}"));
}
