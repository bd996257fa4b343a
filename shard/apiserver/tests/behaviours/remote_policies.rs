//! Policies of other servers, which review the objects of a bound resource.

use std::sync::Arc;

use fairlead_names::ResourceName;
use serde_json::{Value, json};

use crate::client::{GADGETS, Server};
use crate::policies::rule;

const PROVIDER: &str = "//clusters/provider/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

#[tokio::test]
async fn policies_of_another_server_review_a_bound_resource() {
    let server = Server::start().await;
    let gadgets = json!({"resourceRules": [rule("example.com", "gadgets")]});
    let policy = |name: &str, changes: Value| {
        let mut spec = json!({"matchConstraints": gadgets, "failurePolicy": "Fail"});
        for (field, value) in changes.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        Arc::new(json!({"metadata": {"name": name}, "spec": spec}))
    };
    let refuses = |name: &str, message: &str| {
        policy(
            name,
            json!({"validations": [{"expression": "object.metadata.name != 'bad'", "message": message}]}),
        )
    };
    let binding = |name: &str| {
        Arc::new(
            json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}),
        )
    };
    let set = |plural: &str, objects: &[Arc<Value>]| {
        let resource = ResourceName::new("admissionregistration.k8s.io", plural);
        server.dynamic().set_remote(&resource, "provider", objects).unwrap();
    };
    let bad = json!({"metadata": {"name": "bad"}});
    let refusal = async || {
        let response = server.post(GADGETS, &bad).await;
        if response.code == 201 {
            server.delete(&format!("{GADGETS}/bad")).await;
            return None;
        }
        Some(response.failure().2)
    };
    let ends_with = |message: Option<String>, end: &str| {
        assert!(message.as_ref().is_some_and(|message| message.ends_with(end)), "{message:?}");
    };
    set("validatingadmissionpolicies", &[refuses("p", "first"), refuses("unbound", "never")]);
    assert_eq!(refusal().await, None);
    set("validatingadmissionpolicybindings", &[binding("p")]);
    ends_with(refusal().await, "denied request: first");
    set("validatingadmissionpolicies", &[refuses("p", "changed")]);
    ends_with(refusal().await, "denied request: changed");

    // An object of the store takes precedence over one with its name, and is not removed with it.
    server.create(PROVIDER, &refuses("p", "stored")).await;
    ends_with(refusal().await, "denied request: stored");
    set("validatingadmissionpolicies", &[refuses("p", "other")]);
    ends_with(refusal().await, "denied request: stored");
    set("validatingadmissionpolicies", &[]);
    ends_with(refusal().await, "denied request: stored");
    server.delete(&format!("{PROVIDER}/p")).await;
    assert_eq!(refusal().await, None);

    // Parameters are not replicated, so the failure policy decides.
    let parameters = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "true"}],
    });
    set("validatingadmissionpolicies", &[policy("p", parameters.clone())]);
    ends_with(
        refusal().await,
        "failed to configure policy: parameters in provider cannot be read: its objects are on another shard",
    );
    let mut ignored = parameters;
    ignored["failurePolicy"] = "Ignore".into();
    set("validatingadmissionpolicies", &[policy("p", ignored)]);
    assert_eq!(refusal().await, None);
    set("validatingadmissionpolicybindings", &[]);
    assert_eq!(refusal().await, None);
}
