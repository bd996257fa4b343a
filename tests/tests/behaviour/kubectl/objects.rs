//! Everyday objects: applied, changed, read, deleted.

use super::{Session, with_each};

const CONFIG: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: harbour}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: tides, namespace: harbour, labels: {kind: table}}
data: {high: "06:12", low: "12:25"}
---
apiVersion: v1
kind: Secret
metadata: {name: locker, namespace: harbour}
data: {combination: NC04LTE1}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: pilot, namespace: harbour}
rules: [{apiGroups: [""], resources: ["configmaps"], verbs: ["get", "list"]}]
"#;

fn outcomes(printed: &str) -> Vec<&str> {
    printed.lines().filter_map(|line| line.split_whitespace().next_back()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_are_owned_by_who_applies_them_at_the_server() {
    with_each(|session: Session| async move {
        let kubectl = &session.kubectl;
        let apply = "apply --server-side -f -";
        let applied = kubectl.ok_with_input(apply, CONFIG).await.unwrap();
        assert_eq!(outcomes(&applied), ["serverside-applied"; 4]);
        let version = ["-n", "harbour", "get", "cm", "tides", "-o", "jsonpath={.metadata.resourceVersion}"];
        let before = session.run(&version).await.stdout;
        kubectl.ok_with_input(apply, CONFIG).await.unwrap();
        assert_eq!(session.run(&version).await.stdout, before, "nothing changed, nothing written");

        let changed = CONFIG.replace("06:12", "06:40");
        let diff = kubectl.run_with_input(["diff", "--server-side", "-f", "-"], &changed).await.unwrap();
        assert_eq!(diff.status.code(), Some(1), "{diff:?}");
        let other = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
        let refused = kubectl.run_with_input(other, &changed).await.unwrap();
        assert!(!refused.status.success(), "{refused:?}");
        let conflict = "Apply failed with 1 conflict: conflict with \"kubectl\": .data.high";
        assert!(refused.stderr.contains(conflict), "{refused:?}");
        let forced = "apply --server-side --field-manager=other --force-conflicts -f -";
        kubectl.ok_with_input(forced, &changed).await.unwrap();
        // A field is removed when its last owner drops it.
        let without = changed.replace("high: \"06:40\", ", "");
        kubectl.ok_with_input("apply --server-side --field-manager=other -f -", &without).await.unwrap();
        session
            .prints(&["-n", "harbour", "get", "cm", "tides", "-o", "jsonpath={.data}"], r#"{"low":"12:25"}"#)
            .await;
        let shown = session.ok("-n harbour get cm tides -o yaml").await;
        assert!(!shown.contains("managedFields"), "{shown}");
        let shown = session.ok("-n harbour get cm tides -o yaml --show-managed-fields").await;
        assert!(shown.contains("manager: other"), "{shown}");

        // Objects of client-side apply are taken over without conflicts.
        session.apply(&CONFIG.replace("tides", "winds")).await;
        kubectl.ok_with_input(apply, &changed.replace("tides", "winds")).await.unwrap();
        session
            .prints(&["-n", "harbour", "get", "cm", "winds", "-o", "jsonpath={.data.high}"], "06:40")
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_applied_changed_and_applied_again() {
    with_each(|session: Session| async move {
        assert_eq!(outcomes(&session.apply(CONFIG).await), ["created"; 4]);
        assert_eq!(outcomes(&session.apply(CONFIG).await), ["unchanged"; 4]);
        let changed = CONFIG.replace("06:12", "06:40").replace(", \"list\"", "");
        assert_eq!(
            outcomes(&session.apply(&changed).await),
            ["unchanged", "configured", "unchanged", "configured"]
        );
        session
            .prints(&["-n", "harbour", "get", "cm", "tides", "-o", "jsonpath={.data.high}"], "06:40")
            .await;
        let rules = "jsonpath={.rules[0].verbs}";
        session.prints(&["-n", "harbour", "get", "role", "pilot", "-o", rules], r#"["get"]"#).await;
        // A key that was removed from the manifest is deleted. A key that another client added stays.
        session.ok("-n harbour patch cm tides --type=merge -p {\"data\":{\"wind\":\"west\"}}").await;
        session.apply(&changed.replace(", low: \"12:25\"", "")).await;
        let data = "jsonpath={.data}";
        let kept = r#"{"high":"06:40","wind":"west"}"#;
        session.prints(&["-n", "harbour", "get", "cm", "tides", "-o", data], kept).await;
        session.ok("-n harbour apply view-last-applied cm tides").await;

        let difference = session.run(&["-n", "harbour", "diff", "-f", "-"]).await;
        assert!(difference.stdout.is_empty(), "{difference:?}");
        let wanted = changed.replace("06:40", "07:00");
        let difference = session.kubectl.run_with_input(["diff", "-f", "-"], &wanted).await.unwrap();
        assert_eq!(difference.status.code(), Some(1), "{difference:?}");
        assert!(
            difference.stdout.contains("-  high: \"06:40\"") || difference.stdout.contains("-  high: 06:40")
        );
        assert!(
            difference.stdout.contains("+  high: \"07:00\"") || difference.stdout.contains("+  high: 07:00")
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_created_by_hand_patched_edited_and_replaced() {
    with_each(|session: Session| async move {
        // From kubectl 1.32 on, these bodies are protobuf.
        for (line, printed) in [
            ("create namespace yard", "namespace/yard created"),
            ("-n yard create configmap tools --from-literal=saw=1", "configmap/tools created"),
            ("-n yard create secret generic keys --from-literal=gate=oak", "secret/keys created"),
            ("-n yard create serviceaccount smith", "serviceaccount/smith created"),
            (
                "-n yard create role look --verb=get,list --resource=configmaps",
                "role.rbac.authorization.k8s.io/look created",
            ),
            (
                "-n yard create rolebinding look --role=look --serviceaccount=yard:smith",
                "rolebinding.rbac.authorization.k8s.io/look created",
            ),
            (
                "create clusterrole look --verb=get --resource=namespaces",
                "clusterrole.rbac.authorization.k8s.io/look created",
            ),
            (
                "create clusterrolebinding look --clusterrole=look --user=jane --group=crew",
                "clusterrolebinding.rbac.authorization.k8s.io/look created",
            ),
        ] {
            assert_eq!(session.ok(line).await.trim(), printed);
        }
        let refused = session.refused(&["-n", "yard", "create", "configmap", "tools"]).await;
        assert!(refused.contains("configmaps \"tools\" already exists"), "{refused}");
        session.prints(&["-n", "yard", "get", "secret", "keys", "-o", "jsonpath={.data.gate}"], "b2Fr").await;
        let subject = "jsonpath={.subjects[0].kind}/{.subjects[0].namespace}/{.subjects[0].name}";
        let smith = "ServiceAccount/yard/smith";
        session.prints(&["-n", "yard", "get", "rolebinding", "look", "-o", subject], smith).await;

        let tools = |path: &'static str| ["-n", "yard", "get", "cm", "tools", "-o", path];
        session.ok("-n yard label cm tools size=small").await;
        session.ok("-n yard annotate cm tools owner=smith").await;
        session.ok("-n yard label cm tools size=large --overwrite").await;
        let marks = "jsonpath={.metadata.labels.size} {.metadata.annotations.owner}";
        session.prints(&tools(marks), "large smith").await;
        for patch in [
            ["--type=json", r#"-p=[{"op":"add","path":"/data/axe","value":"2"}]"#],
            ["--type=merge", r#"-p={"data":{"saw":null,"file":"3"}}"#],
            ["--type=strategic", r#"-p={"data":{"plane":"4"}}"#],
        ] {
            session
                .prints(
                    &["-n", "yard", "patch", "cm", "tools", patch[0], patch[1]],
                    "configmap/tools patched",
                )
                .await;
        }
        session.prints(&tools("jsonpath={.data}"), r#"{"axe":"2","file":"3","plane":"4"}"#).await;
        // In a strategic merge patch, lists without a merge key are replaced.
        let verbs = r#"-p={"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}"#;
        session.run(&["-n", "yard", "patch", "role", "look", "--type=strategic", verbs]).await;
        let resources = "jsonpath={.rules[*].resources[*]}";
        session.prints(&["-n", "yard", "get", "role", "look", "-o", resources], "secrets").await;

        let editor = session.folder.join("editor");
        std::fs::write(&editor, "#!/bin/sh\nsed -i 's/plane: \"4\"/plane: \"5\"/' \"$1\"\n").unwrap();
        std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let edited = session
            .kubectl
            .command()
            .env("EDITOR", &editor)
            .args(["-n", "yard", "edit", "cm", "tools"])
            .output()
            .await
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&edited.stdout), "configmap/tools edited\n", "{edited:?}");
        session.prints(&tools("jsonpath={.data.plane}"), "5").await;

        let whole = session.ok("-n yard get cm tools -o json").await;
        let replacement = whole.replace("\"axe\": \"2\"", "\"axe\": \"20\"");
        let printed = session.kubectl.ok_with_input("replace -f -", &replacement).await.unwrap();
        assert_eq!(printed.trim(), "configmap/tools replaced");
        // The second replacement has an old resource version.
        let stale = session.kubectl.run_with_input(["replace", "-f", "-"], &whole).await.unwrap();
        assert!(stale.stderr.contains("Conflict") && stale.stderr.contains("modified"), "{stale:?}");
        session.prints(&tools("jsonpath={.data.axe}"), "20").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_found_by_selectors_and_pages_and_deleted() {
    with_each(|session: Session| async move {
        session.ok("create namespace quay").await;
        let manifest: String = (0..7)
            .map(|number| {
                let parity = if number % 2 == 0 { "even" } else { "odd" };
                format!(
                    "apiVersion: v1\nkind: Secret\nmetadata: {{name: berth-{number}, namespace: quay, \
                     labels: {{parity: {parity}}}}}\n---\n"
                )
            })
            .collect();
        session.apply(&manifest).await;
        let names = |printed: String| printed.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let all = session.ok("-n quay get secret -o name --chunk-size=2").await;
        assert_eq!(names(all).len(), 7);
        let odd = session.ok("-n quay get secret -o name -l parity=odd").await;
        assert_eq!(names(odd), ["secret/berth-1", "secret/berth-3", "secret/berth-5"]);
        let odd = session.ok("-n quay get secret -o name -l parity!=even,parity").await;
        assert_eq!(names(odd).len(), 3);
        let one = session.ok("get secret -A -o name --field-selector=metadata.name=berth-4").await;
        assert_eq!(names(one), ["secret/berth-4"]);
        let none = session.refused(&["-n", "quay", "get", "secret", "--field-selector=data.high=1"]).await;
        assert!(none.contains("field label not supported"), "{none}");
        let wide = session.ok("-n quay get secret -L parity").await;
        assert_eq!(
            wide.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
            ["NAME", "TYPE", "DATA", "AGE", "PARITY"]
        );
        let sorted = session.ok("-n quay get secret -o name --sort-by={.metadata.name}").await;
        assert_eq!(names(sorted)[6], "secret/berth-6");

        let mut waiting = session
            .kubectl
            .command()
            .args(["-n", "quay", "wait", "--for=delete", "secret/berth-1", "--timeout=50s"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        session.ok("-n quay delete secret -l parity=odd").await;
        assert!(waiting.wait().await.unwrap().success());
        let left = session.ok("-n quay get secret -o name").await;
        assert_eq!(names(left), ["secret/berth-0", "secret/berth-2", "secret/berth-4", "secret/berth-6"]);
        session.prints(&["-n", "quay", "delete", "secret", "berth-0"], "secret \"berth-0\" deleted").await;
        let missing = session.refused(&["-n", "quay", "get", "secret", "berth-0"]).await;
        assert!(missing.contains("(NotFound): secrets \"berth-0\" not found"), "{missing}");
        session.ok("-n quay delete secret --all").await;
        session.prints(&["-n", "quay", "get", "secret", "-o", "name"], "").await;
        // A namespace is deleted with its objects.
        session.ok("-n quay create secret generic last").await;
        session.ok("delete namespace quay --timeout=50s").await;
        let missing = session.refused(&["get", "namespace", "quay"]).await;
        assert!(missing.contains("NotFound"), "{missing}");
        session
            .prints(&["get", "secret", "-A", "-o", "name", "--field-selector=metadata.namespace=quay"], "")
            .await;
    })
    .await;
}
