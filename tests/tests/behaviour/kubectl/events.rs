//! `kubectl events`, and lists of every built-in resource in each form that kubectl requests.

use super::with_each;

const OLD_FORM: &str = r#"
apiVersion: v1
kind: Event
metadata: {name: old, namespace: default}
involvedObject: {apiVersion: v1, kind: ConfigMap, name: harbour, namespace: default}
reason: Opened
message: an event of the older form
type: Normal
source: {component: pilot}
firstTimestamp: "2026-01-01T00:00:00Z"
lastTimestamp: "2026-01-01T00:00:00Z"
count: 3
"#;

const NEW_FORM: &str = r#"
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: new, namespace: default}
regarding: {apiVersion: v1, kind: Secret, name: key, namespace: default}
reason: Closed
note: an event of the newer form
type: Warning
action: Close
eventTime: "2026-01-01T00:00:00.000000Z"
reportingController: fairlead.dev/pilot
reportingInstance: pilot-1
"#;

#[tokio::test]
async fn events_of_both_forms_are_listed_and_selected() {
    with_each(|session| async move {
        session.apply(OLD_FORM).await;
        session.apply(NEW_FORM).await;
        for resource in ["events", "events.events.k8s.io", "ev"] {
            let listed = session.ok(&format!("get {resource} --no-headers")).await;
            assert!(listed.contains("Opened") && listed.contains("configmap/harbour"), "{listed}");
            assert!(listed.contains("Closed") && listed.contains("an event of the newer form"), "{listed}");
        }
        let wide = session.ok("get events -o wide").await;
        for column in ["LAST SEEN", "SUBOBJECT", "SOURCE", "FIRST SEEN", "COUNT", "pilot"] {
            assert!(wide.contains(column), "{column}: {wide}");
        }
        let events = session.ok("events --types=Warning").await;
        assert!(events.contains("Secret/key") && !events.contains("harbour"), "{events}");
        let of_map = session.ok("events --for configmap/harbour").await;
        assert!(of_map.contains("(x3") && !of_map.contains("Secret"), "{of_map}");
        for (resource, selector, name) in [
            ("events", "involvedObject.kind=Secret", "event/new"),
            ("events", "reportingComponent=fairlead.dev/pilot", "event/new"),
            ("events.events.k8s.io", "regarding.name=harbour", "event.events.k8s.io/old"),
        ] {
            let line = format!("get {resource} --field-selector={selector} -o name");
            assert_eq!(session.ok(&line).await.trim(), name);
        }
        let note = session.ok("get events.events.k8s.io old -o jsonpath={.note}").await;
        assert_eq!(note, "an event of the older form");
    })
    .await;
}

#[tokio::test]
async fn every_listed_resource_has_tables_and_pages() {
    with_each(|session| async move {
        let printed = session.ok("api-resources --verbs=list,watch -o name").await;
        let resources: Vec<&str> = printed.lines().collect();
        assert!(resources.contains(&"events.events.k8s.io") && resources.len() > 15, "{resources:?}");
        // All resources in one command, because each start of kubectl takes a third of a second.
        let all = resources.join(",");
        for options in
            ["", "-o wide", "--chunk-size=2", "--field-selector=metadata.name=none", "-o yaml", "-l a=b"]
        {
            session.ok(&format!("get {all} {options} --all-namespaces")).await;
        }
    })
    .await;
}
