//! The stream of objects.

use serde_json::json;

use crate::support::{Expiry, Installation};

#[tokio::test]
async fn objects_of_all_endpoints_appear_once_each() {
    let installation = Installation::start().await;
    let Installation { first, second, .. } = &installation;
    first.with(|anchors| {
        anchors.apply("a", "bow", json!({}));
        anchors.apply("b", "bow", json!({}));
    });
    second.with(|anchors| anchors.apply("c", "bow", json!({})));
    let mut objects = installation.objects();
    objects.expect(&["+a|default/bow", "+b|default/bow", "+c|default/bow"]).await;
    objects.expect_nothing_before_another_of(first).await;
    objects.expect_nothing_before_another_of(second).await;
    assert_eq!(objects.inner().endpoint_count(), 2);
    assert_eq!(objects.inner().iter().count(), 5);

    first.with(|anchors| anchors.apply("a", "bow", json!({ "spec": { "weight": 1 } })));
    objects.expect(&["+a|default/bow"]).await;
    second.with(|anchors| anchors.delete("c", "bow"));
    objects.expect(&["-c|default/bow"]).await;
    assert_eq!(objects.inner().iter().count(), 4);
}

#[tokio::test]
async fn a_restart_of_an_endpoint_gives_exactly_the_changes_meanwhile() {
    let cases: [(&str, Option<Expiry>, &[&str]); 3] = [
        ("with history", None, &["watch"]),
        ("without history", Some(Expiry::Event), &["watch", "list", "watch"]),
        ("without history, behind a gateway", Some(Expiry::Response), &["watch", "list", "watch"]),
    ];
    for (case, expiry, expected_requests) in cases {
        let mut installation = Installation::start().await;
        installation.first.with(|anchors| {
            for name in ["changed", "deleted", "unchanged"] {
                anchors.apply("a", name, json!({}));
            }
        });
        let mut objects = installation.objects();
        objects.expect(&["+a|default/changed", "+a|default/deleted", "+a|default/unchanged"]).await;
        objects.idle_until(installation.first.watches(1)).await;
        objects.idle_until(installation.second.watches(1)).await;

        installation.first.stop().await;
        installation.first.with(|anchors| {
            anchors.take_requests();
            anchors.apply("a", "changed", json!({ "spec": { "weight": 1 } }));
            anchors.delete("a", "deleted");
            anchors.apply("b", "new", json!({}));
            if let Some(expiry) = expiry {
                anchors.compact(expiry);
            }
        });
        // The other endpoint is not affected.
        objects.expect_nothing_before_another_of(&installation.second).await;
        installation.first.resume().await;
        objects.expect(&["+a|default/changed", "+b|default/new", "-a|default/deleted"]).await;
        objects.idle_until(installation.first.watches(1)).await;
        objects.expect_nothing_before_another_of(&installation.first).await;

        let requests = installation.first.with(|anchors| anchors.take_requests());
        let verbs: Vec<_> = requests.iter().map(|request| request.split(' ').next().unwrap()).collect();
        assert_eq!(verbs, expected_requests, "{case}: {requests:?}");
    }
}

#[tokio::test]
async fn a_watch_that_ends_with_an_expired_revision_lists_again() {
    let installation = Installation::start().await;
    let first = &installation.first;
    first.with(|anchors| anchors.apply("a", "bow", json!({})));
    let mut objects = installation.objects();
    objects.expect(&["+a|default/bow"]).await;
    objects.idle_until(first.watches(1)).await;
    first.with(|anchors| {
        anchors.take_requests();
        anchors.apply("a", "stern", json!({}));
        anchors.expire_watches();
    });
    objects.expect(&["+a|default/stern"]).await;
    objects.idle_until(first.watches(1)).await;
    objects.expect_nothing_before_another_of(first).await;
    assert_eq!(first.with(|anchors| anchors.take_requests()), ["list", "watch 3"]);
}

#[tokio::test]
async fn a_watch_resumes_from_a_bookmark() {
    let installation = Installation::start().await;
    installation.first.with(|anchors| anchors.apply("a", "bow", json!({})));
    let mut objects = installation.objects();
    objects.expect(&["+a|default/bow"]).await;
    objects.idle_until(installation.first.watches(1)).await;
    installation.first.with(|anchors| {
        anchors.take_requests();
        anchors.bookmark();
        anchors.end_watches();
    });
    objects.idle_until(installation.first.wait_for(|anchors| !anchors.requests().is_empty())).await;
    objects.expect_nothing_before_another_of(&installation.first).await;
    assert_eq!(installation.first.with(|anchors| anchors.take_requests()), ["watch 101"]);
}

#[tokio::test]
async fn objects_of_a_url_that_leaves_the_slice_are_gone() {
    let installation = Installation::start().await;
    let Installation { first, second, .. } = &installation;
    first.with(|anchors| anchors.apply("a", "bow", json!({})));
    second.with(|anchors| anchors.apply("b", "bow", json!({})));
    let mut objects = installation.objects();
    objects.expect(&["+a|default/bow", "+b|default/bow"]).await;
    objects.idle_until(first.watches(1)).await;

    installation.publish(&[second]);
    objects.expect(&["-a|default/bow"]).await;
    objects.idle_until(first.watches(0)).await;
    assert_eq!(objects.inner().endpoint_count(), 1);
    objects.expect_nothing_before_another_of(second).await;

    first.with(|anchors| anchors.apply("a", "stern", json!({})));
    installation.publish(&[first, second]);
    objects.expect(&["+a|default/bow", "+a|default/stern"]).await;

    installation.slices.with(|slices| slices.delete("root:harbour", "anchors"));
    objects
        .expect(&["-a|default/bow", "-a|default/stern", "-b|default/bow", "-marker|default/marker-1"])
        .await;
    assert_eq!(objects.inner().endpoint_count(), 0);
}

#[tokio::test]
async fn a_slice_may_appear_later_and_its_server_may_restart() {
    let mut installation = Installation::start().await;
    installation.slices.with(|slices| slices.delete("root:harbour", "anchors"));
    installation.first.with(|anchors| anchors.apply("a", "bow", json!({})));
    let mut objects = installation.objects();
    objects.idle_until(installation.slices.watches(1)).await;
    assert_eq!(objects.inner().endpoint_count(), 0);
    installation.publish(&[&installation.first]);
    objects.expect(&["+a|default/bow"]).await;

    objects.idle_until(installation.first.watches(1)).await;
    installation.slices.stop().await;
    objects.expect_nothing_before_another_of(&installation.first).await;
    installation.second.with(|anchors| anchors.apply("b", "bow", json!({})));
    installation.publish(&[&installation.first, &installation.second]);
    installation.slices.with(|slices| slices.compact(Expiry::Event));
    installation.slices.resume().await;
    objects.expect(&["+b|default/bow"]).await;
}

#[tokio::test]
async fn a_logical_cluster_that_moves_keeps_its_objects() {
    let installation = Installation::start().await;
    let Installation { first, second, .. } = &installation;
    first.with(|anchors| anchors.apply("a", "bow", json!({})));
    let mut objects = installation.objects();
    objects.expect(&["+a|default/bow"]).await;
    objects.idle_until(second.watches(1)).await;
    second.with(|anchors| anchors.apply("a", "bow", json!({ "spec": { "weight": 2 } })));
    objects.expect(&["+a|default/bow"]).await;
    first.with(|anchors| anchors.delete("a", "bow"));
    objects.expect_nothing_before_another_of(first).await;
    let kept: Vec<_> = objects.inner().iter().map(|(key, _)| key.to_string()).collect();
    assert!(kept.contains(&"a|default/bow".to_owned()), "{kept:?}");
}
