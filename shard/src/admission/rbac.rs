//! Admission of roles and bindings: Kubernetes' privilege escalation check. A user cannot grant permissions that it
//! does not have.

use std::sync::LazyLock;

use fairlead_apiserver::authz::{Missing, RoleReference, Rule, missing_permissions};
use fairlead_apiserver::{Action, AdmissionRequest};
use fairlead_process::Status;
use serde::Deserialize as _;
use serde_json::Value;

use super::{ShardAdmission, forbidden, is_master, resource_of};

impl ShardAdmission {
    /// Requires that the rules of a written role, or of a bound role, are covered by the rules of the writer, unless
    /// the writer has the verb `escalate` or `bind`.
    pub(super) async fn validate_rbac(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if is_master(write) || old.is_some_and(|old| changes_only_gc_fields(object, old)) {
            return Ok(());
        }
        let (_, resource) = resource_of(write);
        let (verb, name, rules) = match resource {
            // Also if the rules do not change: the labels decide which roles contain the rules by aggregation.
            "roles" | "clusterroles" => ("escalate", write.name.to_owned(), rules_of(object)),
            "rolebindings" | "clusterrolebindings" => {
                let reference = RoleReference::deserialize(&object["roleRef"])
                    .map_err(|error| Status::bad_request(format!("roleRef: {error}")))?;
                let (own, system) = self.authorizer()?.policies(write.scope.as_str())?;
                let role = own.role(&reference, write.namespace, Some(&system));
                let Some(role) = role else {
                    // The role does not exist and could be created later with any rule.
                    return if self.is_permitted(write, "bind", &reference.name, &reference).await? {
                        Ok(())
                    } else {
                        Err(not_found(&reference))
                    };
                };
                if self.is_permitted(write, "bind", &reference.name, &reference).await? {
                    return Ok(());
                }
                ("bind", reference.name.to_string(), role.rules.clone())
            }
            _ => return Ok(()),
        };
        if verb == "escalate" {
            let action = Action::Resource {
                verb,
                group: "rbac.authorization.k8s.io",
                version: "v1",
                resource,
                subresource: None,
                namespace: write.namespace,
                name: Some(&name),
            };
            if self.authorizer()?.permits_deep(write.user, write.scope.as_str(), &action).await {
                return Ok(());
            }
        }
        let own = self.authorizer()?.rules(write.user, write.scope.as_str(), write.namespace)?;
        let missing = match missing_permissions(&rules, &own) {
            Missing::Rules(missing) => missing,
            Missing::TooComplex => {
                let message = "the rules have too many combinations of verbs, groups, resources and names to compare \
                               them with the permissions of the user; write fewer into one role";
                return Err(forbidden(write, message));
            }
        };
        if missing.is_empty() {
            // An aggregation rule collects rules of roles that do not exist yet.
            let aggregates = has_aggregation_rule(object) || old.is_some_and(has_aggregation_rule);
            let has_all = || missing_permissions(&*FULL_AUTHORITY, &own) == Missing::Rules(Vec::new());
            if resource == "clusterroles" && aggregates && !has_all() {
                let message = "must have cluster-admin privileges to use the aggregationRule";
                return Err(forbidden(write, message));
            }
            return Ok(());
        }
        let mut lines: Vec<String> = missing.iter().map(describe).collect();
        lines.sort();
        let message = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            write.user.name,
            quoted(&write.user.groups),
            lines.join("\n")
        );
        Err(forbidden(write, message))
    }

    async fn is_permitted(
        &self,
        write: &AdmissionRequest<'_>,
        verb: &str,
        name: &str,
        reference: &RoleReference,
    ) -> Result<bool, Status> {
        let resource = match reference.kind {
            fairlead_apiserver::authz::RoleKind::ClusterRole => "clusterroles",
            fairlead_apiserver::authz::RoleKind::Role => "roles",
        };
        let action = Action::Resource {
            verb,
            group: "rbac.authorization.k8s.io",
            version: "v1",
            resource,
            subresource: None,
            namespace: write.namespace,
            name: Some(name),
        };
        Ok(self.authorizer()?.permits_deep(write.user, write.scope.as_str(), &action).await)
    }
}

/// The rules that a user needs to write an aggregation rule.
static FULL_AUTHORITY: LazyLock<[Rule; 2]> = LazyLock::new(|| {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
});

fn has_aggregation_rule(role: &Value) -> bool {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

/// Whether an update changes nothing but what the garbage collector needs to delete the object.
fn changes_only_gc_fields(object: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        object
    };
    without(object) == without(old)
}

fn rules_of(object: &Value) -> Vec<Rule> {
    Vec::<Rule>::deserialize(&object["rules"]).unwrap_or_default()
}

fn not_found(reference: &RoleReference) -> Status {
    let resource = match reference.kind {
        fairlead_apiserver::authz::RoleKind::ClusterRole => "clusterroles",
        fairlead_apiserver::authz::RoleKind::Role => "roles",
    };
    let resource = fairlead_process::GroupResource::new("rbac.authorization.k8s.io", resource);
    Status::not_found(resource, &reference.name)
}

/// Formats a rule as Kubernetes does in this message.
fn describe(rule: &Rule) -> String {
    let mut parts = Vec::new();
    for (name, values) in [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ] {
        if !values.is_empty() {
            parts.push(format!("{name}:{}", quoted(values)));
        }
    }
    format!("{{{}}}", parts.join(", "))
}

/// A list of texts as Go formats it: `["a" "b"]`.
fn quoted(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", quoted.join(" "))
}
