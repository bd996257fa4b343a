//! Custom resources and discovery with kubectl.

use super::{Session, with_each};

const SHIPS: &str = include_str!("../../../../deploy/examples/ships.yaml");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_resources_are_defined_filled_pruned_and_explained() {
    with_each(|session: Session| async move {
        session.apply(SHIPS).await;
        session.ok("wait crd ships.harbour.example.com --for=condition=Established --timeout=50s").await;
        session.ok("create namespace harbour").await;
        let argo =
            "apiVersion: harbour.example.com/v1\nkind: Ship\nmetadata: {name: argo, namespace: harbour}\n";
        let ship = |spec: &str| format!("{argo}spec: {spec}\n");
        assert_eq!(
            session.apply(&ship("{draught: 4}")).await.trim(),
            "ship.harbour.example.com/argo created"
        );
        assert_eq!(
            session.apply(&ship("{draught: 4}")).await.trim(),
            "ship.harbour.example.com/argo unchanged"
        );
        let table = session.ok("-n harbour get ships").await;
        let cells: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells, [["NAME", "DRAUGHT", "BERTH"], ["argo", "4", "roads"]]);

        // Strict validation is kubectl's default; the error names the field.
        let unknown = ship("{draught: 4, sails: 3}");
        let refused = session.kubectl.run_with_input(["apply", "-f", "-"], &unknown).await.unwrap();
        assert!(
            !refused.status.success() && refused.stderr.contains("unknown field \"spec.sails\""),
            "{refused:?}"
        );
        let warned =
            session.kubectl.run_with_input(["apply", "--validate=warn", "-f", "-"], &unknown).await.unwrap();
        assert!(
            warned.status.success() && warned.stderr.contains("unknown field \"spec.sails\""),
            "{warned:?}"
        );
        session.prints(&["-n", "harbour", "get", "ship", "argo", "-o", "jsonpath={.spec.sails}"], "").await;
        for (spec, complaint) in [
            ("{draught: 0}", "spec.draught in body should be greater than or equal to 1"),
            ("{draught: deep}", "spec.draught: Invalid value: \"string\""),
            ("{berth: quay}", "spec.draught: Required value"),
        ] {
            let arguments = ["replace", "--validate=false", "-f", "-"];
            let refused = session.kubectl.run_with_input(arguments, &ship(spec)).await.unwrap();
            assert!(!refused.status.success() && refused.stderr.contains(complaint), "{spec}: {refused:?}");
        }

        let explained = session.ok("explain ship.spec").await;
        for part in ["KIND:       Ship", "What a ship needs of a harbour.", "draught\t<integer> -required-"] {
            assert!(explained.contains(part), "{explained}");
        }
        assert!(session.ok("explain configmap.data").await.contains("FIELD: data <map[string]string>"));
        let resources = session.ok("api-resources --api-group=harbour.example.com -o wide").await;
        assert!(resources.contains("ships") && resources.contains("deletecollection"), "{resources}");
        assert!(session.ok("api-versions").await.contains("harbour.example.com/v1"));

        session.ok("delete crd ships.harbour.example.com --timeout=50s").await;
        let gone = session.refused(&["get", "ships.harbour.example.com", "-A"]).await;
        assert!(gone.contains("the server doesn't have a resource type"), "{gone}");
        // The objects are deleted with the definition: the same definition again has none.
        session.apply(SHIPS).await;
        session.ok("wait crd ships.harbour.example.com --for=condition=Established --timeout=50s").await;
        session.prints(&["get", "ships", "-A", "-o", "name"], "").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_with_stored_objects_cannot_be_removed() {
    with_each(|session: Session| async move {
        session.apply(SHIPS).await;
        let patch = |operations: &'static str| {
            ["patch", "crd", "ships.harbour.example.com", "--type=json", "-p", operations]
        };
        let second = r#"[
            {"op": "copy", "from": "/spec/versions/0", "path": "/spec/versions/1"},
            {"op": "replace", "path": "/spec/versions/1/name", "value": "v2"},
            {"op": "replace", "path": "/spec/versions/0/storage", "value": false}]"#;
        let patched = session.run(&patch(second)).await;
        assert!(patched.status.success(), "{patched:?}");
        let stored = ["get", "crd", "ships.harbour.example.com", "-o", "jsonpath={.status.storedVersions}"];
        session.prints(&stored, r#"["v1","v2"]"#).await;
        let refused = session.refused(&patch(r#"[{"op": "remove", "path": "/spec/versions/0"}]"#)).await;
        assert!(refused.contains("status.storedVersions[0]: Invalid value: \"v1\""), "{refused}");

        let others = SHIPS.replace("harbour.example.com", "harbour.k8s.io");
        let refused = session.kubectl.run_with_input(["create", "-f", "-"], &others).await.unwrap();
        let wanted = "metadata.annotations[api-approved.kubernetes.io]: Required value";
        assert!(!refused.status.success() && refused.stderr.contains(wanted), "{refused:?}");
    })
    .await;
}

/// Definitions with the names of Kubernetes kinds, whose lists kubectl patches by their keys.
const WORKLOADS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: deployments.apps}
spec:
  group: apps
  scope: Namespaced
  names: {plural: deployments, kind: Deployment, shortNames: [deploy]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    selectableFields: [{jsonPath: .spec.paused}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-preserve-unknown-fields: true
            properties: {replicas: {type: integer, minimum: 0}, paused: {type: boolean}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.test.k8s.io
  annotations: {api-approved.kubernetes.io: \"unapproved, a test\"}
spec:
  group: test.k8s.io
  scope: Cluster
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    deprecated: true
    schema: {openAPIV3Schema: {type: object}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pods.core}
spec:
  group: \"\"
  scope: Namespaced
  names: {plural: pods, kind: Pod}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_may_have_the_names_of_kubernetes_kinds() {
    with_each(|session: Session| async move {
        session.apply(WORKLOADS).await;
        session.ok("create namespace harbour").await;
        let deployment = |containers: &str| {
            format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: harbour}}\n\
                 spec: {{replicas: 2, paused: true, template: {{spec: {{containers: {containers}}}}}}}\n"
            )
        };
        session.apply(&deployment("[{name: a, image: one}, {name: b, image: two}]")).await;
        // kubectl sends a strategic merge patch.
        session.apply(&deployment("[{name: a, image: three}, {name: b, image: two}]")).await;
        let images = [
            "-n",
            "harbour",
            "get",
            "deploy",
            "web",
            "-o",
            "jsonpath={.spec.template.spec.containers[*].image}",
        ];
        session.prints(&images, "three two").await;

        session.ok("-n harbour scale deployment web --replicas=5 --current-replicas=2").await;
        session
            .prints(&["-n", "harbour", "get", "deploy", "web", "-o", "jsonpath={.spec.replicas}"], "5")
            .await;
        let refused = session
            .refused(&["-n", "harbour", "scale", "deployment", "web", "--replicas=1", "--current-replicas=2"])
            .await;
        assert!(refused.contains("Expected replicas to be 2, was 5"), "{refused}");
        session
            .prints(
                &["-n", "harbour", "get", "deploy", "--field-selector=spec.paused=true", "-o", "name"],
                "deployment.apps/web",
            )
            .await;
        session
            .prints(
                &["-n", "harbour", "get", "deploy", "--field-selector=spec.paused=false", "-o", "name"],
                "",
            )
            .await;
        assert!(session.ok("explain deployment.spec.replicas").await.contains("FIELD: replicas <integer>"));

        let approval = [
            "get",
            "crd",
            "widgets.test.k8s.io",
            "-o",
            "jsonpath={.status.conditions[?(@.type==\"KubernetesAPIApprovalPolicyConformant\")].reason}",
        ];
        session.prints(&approval, "UnapprovedAnnotation").await;
        let warned = session.run(&["get", "widgets"]).await;
        assert!(warned.stderr.contains("test.k8s.io/v1 Widget is deprecated"), "{warned:?}");

        session
            .apply("apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: harbour}\nspec: {x: 1}\n")
            .await;
        session.prints(&["-n", "harbour", "get", "pods", "-o", "name"], "pod/p").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_can_query_their_identity_and_rights() {
    with_each(|session: Session| async move {
        let me = session.ok("auth whoami -o json").await;
        let me: serde_json::Value = serde_json::from_str(&me).unwrap();
        assert_eq!(me["status"]["userInfo"]["username"], "kcp-admin");
        assert_eq!(
            me["status"]["userInfo"]["groups"],
            serde_json::json!(["system:authenticated", "system:kcp:admin"])
        );
        let rights = session.ok("auth can-i --list -n default").await;
        let all = |line: &str| line.split_whitespace().collect::<Vec<_>>() == ["*.*", "[]", "[]", "[*]"];
        assert!(rights.lines().any(all), "{rights}");
        session.prints(&["auth", "can-i", "delete", "secrets"], "yes").await;
        // Another user has the rights of a role, and no more.
        session.ok("create clusterrole look --verb=get,list --resource=configmaps").await;
        session.ok("create clusterrolebinding look --clusterrole=look --user=jane").await;
        // The user needs access to the workspace first.
        assert_eq!(may_jane(&session, "list").await, "false");
        // `kubectl create clusterrole` does not know the verb `access`.
        session
            .apply(
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: enter}\n\
                 rules: [{nonResourceURLs: [\"/\"], verbs: [access]}]\n",
            )
            .await;
        session.ok("create clusterrolebinding enter --clusterrole=enter --user=jane").await;
        assert_eq!(may_jane(&session, "list").await, "true");
        assert_eq!(may_jane(&session, "delete").await, "false");
        session.prints(&["auth", "can-i", "list", "configmaps", "--as=jane"], "yes").await;
        let refused = session.run(&["auth", "can-i", "delete", "configmaps", "--as=jane"]).await;
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(refused.stdout.starts_with("no"), "{refused:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_service_accounts_are_created_and_reviewed() {
    with_each(|session: Session| async move {
        session.ok("create serviceaccount robot").await;
        let token = session.ok("create token robot --duration=10m").await;
        let review = format!(
            "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {{token: {}}}\n",
            token.trim()
        );
        let arguments = "create --validate=false -f - -o jsonpath={.status.user.username}";
        let user = session.kubectl.ok_with_input(arguments, &review).await.unwrap();
        assert_eq!(user, "system:serviceaccount:default:robot");
        let refused = session.refused(&["create", "token", "nobody"]).await;
        assert!(refused.contains(r#"serviceaccounts "nobody" not found"#), "{refused}");
    })
    .await;
}

async fn may_jane(session: &Session, verb: &str) -> String {
    let review = format!(
        "apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec: {{user: jane, \
         groups: [\"system:authenticated\"], resourceAttributes: {{verb: {verb}, resource: configmaps}}}}\n"
    );
    let arguments = "create --validate=false -f - -o jsonpath={.status.allowed}";
    session.kubectl.ok_with_input(arguments, &review).await.unwrap()
}
