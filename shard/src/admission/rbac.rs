//! Admission of roles and bindings: Kubernetes' privilege escalation check. A user cannot grant permissions that it
//! does not have.

use fairlead_apiserver::authz::{RoleReference, Rule};
use fairlead_apiserver::{Action, AdmissionRequest};
use fairlead_process::Status;
use serde::Deserialize as _;
use serde_json::Value;

use super::{ShardAdmission, forbidden, is_master, resource_of};

impl ShardAdmission {
    /// Requires that the rules of a written role, or of a bound role, are covered by the rules of the writer, unless
    /// the writer has the verb `escalate` or `bind`.
    pub(super) fn validate_rbac(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if is_master(write) {
            return Ok(());
        }
        let (_, resource) = resource_of(write);
        let (verb, name, rules) = match resource {
            "roles" | "clusterroles" => {
                if old.is_some_and(|old| {
                    old["rules"] == object["rules"] && old["aggregationRule"] == object["aggregationRule"]
                }) {
                    return Ok(());
                }
                ("escalate", write.name.to_owned(), rules_of(object))
            }
            "rolebindings" | "clusterrolebindings" => {
                let same = |field: &str| old.is_some_and(|old| old[field] == object[field]);
                if same("subjects") && same("roleRef") {
                    return Ok(());
                }
                let reference = RoleReference::deserialize(&object["roleRef"])
                    .map_err(|error| Status::bad_request(format!("roleRef: {error}")))?;
                let (own, system) = self.authorizer()?.policies(write.scope.as_str())?;
                let role = own.role(&reference, write.namespace, Some(&system));
                let Some(role) = role else {
                    // The role does not exist and could be created later with any rule.
                    return if self.is_permitted(write, "bind", &reference.name, &reference)? {
                        Ok(())
                    } else {
                        Err(not_found(&reference))
                    };
                };
                if self.is_permitted(write, "bind", &reference.name, &reference)? {
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
            if self.authorizer()?.permits_deep(write.user, write.scope.as_str(), &action) {
                return Ok(());
            }
        }
        let own = self.authorizer()?.rules(write.user, write.scope.as_str(), write.namespace)?;
        let missing: Vec<&Rule> = rules.iter().filter(|rule| !rule.is_covered_by(&own)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = missing.iter().map(|rule| describe(rule)).collect();
        let message = format!(
            "user {:?} (groups={:?}) is attempting to grant RBAC permissions not currently held:\n{}",
            write.user.name,
            write.user.groups,
            lines.join("\n")
        );
        Err(forbidden(write, message))
    }

    fn is_permitted(
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
        Ok(self.authorizer()?.permits_deep(write.user, write.scope.as_str(), &action))
    }
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
    let list = |values: &[String]| {
        let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("[{}]", quoted.join(" "))
    };
    let mut parts = Vec::new();
    for (name, values) in [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.resource_names),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("Verbs", &rule.verbs),
    ] {
        if !values.is_empty() {
            parts.push(format!("{name}:{}", list(values)));
        }
    }
    format!("{{{}}}", parts.join(", "))
}
