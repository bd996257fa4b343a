#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::super::testing::Shard;
use super::*;

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";

fn policy(expression: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps", "secrets", "unknown", "*/status"],
            }]},
            "validations": [{"expression": expression}],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_policy_has_the_result_of_the_type_check() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", POLICIES, policy("object.metadata.name == 'b'")).await.unwrap();
    let status = || shard.get("abc", POLICIES, None, "p").unwrap()["status"].clone();
    shard.until("the first generation is checked", || status()["observedGeneration"] == 1).await;
    assert_eq!(status(), json!({"observedGeneration": 1, "typeChecking": {}}));

    let change = |policy: &mut Value| {
        policy["spec"]["validations"][0]["expression"] = "object.immutable && object.nope".into();
    };
    shard.change("abc", POLICIES, None, "p", change).await;
    shard.until("the second generation is checked", || status()["observedGeneration"] == 2).await;
    let warnings = &status()["typeChecking"]["expressionWarnings"];
    assert_eq!(warnings[0]["fieldRef"], "spec.validations[0].expression");
    let warning = warnings[0]["warning"].as_str().unwrap();
    for part in ["/v1, Kind=ConfigMap: ERROR: ", "undefined field 'nope'", "/v1, Kind=Secret: ERROR: "] {
        assert!(warning.contains(part), "{warning}");
    }
}
