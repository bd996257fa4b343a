//! Tables of built-in kinds, as `kubectl get` prints them.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::kind::BuiltinKind;
use super::semantics::event_to_core_form;
use crate::printer_column::{age, human_duration};

/// A column definition of a `meta.k8s.io/v1` `Table`, serialized as in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TableColumn {
    /// Heading of the column.
    pub name: &'static str,
    /// OpenAPI type of the cells: `string`, `date`.
    #[serde(rename = "type")]
    pub column_type: &'static str,
    /// Role of the column.
    pub format: ColumnFormat,
    /// Description for users.
    pub description: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
}

/// The `format` of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ColumnFormat {
    /// No particular role.
    #[serde(rename = "")]
    None,
    /// The column identifies the object.
    #[serde(rename = "name")]
    Name,
}

impl BuiltinKind {
    /// The columns of the kind's table.
    #[must_use]
    pub fn table_columns(&self) -> &'static [TableColumn] {
        match self.kind {
            "CertificateSigningRequest" => CERTIFICATE_SIGNING_REQUEST,
            "ConfigMap" => CONFIG_MAP,
            "Event" => EVENT,
            "MutatingAdmissionPolicy" => MUTATING_POLICY,
            "ValidatingAdmissionPolicy" => VALIDATING_POLICY,
            "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => POLICY_BINDING,
            "Lease" => LEASE,
            "Namespace" => NAMESPACE,
            "ResourceQuota" => RESOURCE_QUOTA,
            "RoleBinding" | "ClusterRoleBinding" => BINDING,
            "Secret" => SECRET,
            "ServiceAccount" => SERVICE_ACCOUNT,
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOK_CONFIGURATION,
            _ => DEFAULT,
        }
    }

    /// The cells of one object's row, one per column. Reads only the fields that the cells need.
    #[must_use]
    pub fn table_cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let created = object["metadata"]["creationTimestamp"].as_str();
        let name = json!(text(&object["metadata"], "name"));
        let age_cell = || json!(age_of(created, now));
        match self.kind {
            "CertificateSigningRequest" => {
                let spec = &object["spec"];
                let duration = spec["expirationSeconds"].as_i64().map(jiff::SignedDuration::from_secs);
                let duration = duration.map_or_else(|| "<none>".to_owned(), human_duration);
                let [signer, requestor] = ["signerName", "username"].map(|field| json!(text(spec, field)));
                let condition = json!(certificate_condition(&object["status"]));
                vec![name, age_cell(), signer, requestor, json!(duration), condition]
            }
            "ConfigMap" => vec![name, json!(count(object, "data") + count(object, "binaryData")), age_cell()],
            "Event" if self.group == self.storage_group() => event_cells(object, now),
            "Event" => event_cells(&event_to_core_form(object.clone()), now),
            "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy" => {
                let is_mutating = self.kind == "MutatingAdmissionPolicy";
                let expressions = &object["spec"][if is_mutating { "mutations" } else { "validations" }];
                let expressions = expressions.as_array().map_or(0, Vec::len);
                vec![name, json!(expressions), json!(param_kind(object)), age_cell()]
            }
            "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => {
                let policy = json!(text(&object["spec"], "policyName"));
                vec![name, policy, json!(param_reference(object)), age_cell()]
            }
            "Lease" => vec![name, json!(text(&object["spec"], "holderIdentity")), age_cell()],
            "Namespace" => vec![name, json!(text(&object["status"], "phase")), age_cell()],
            "ResourceQuota" => {
                let (requests, limits) = quota_usage(object);
                vec![name, json!(requests), json!(limits), age_cell()]
            }
            "RoleBinding" | "ClusterRoleBinding" => {
                let role = &object["roleRef"];
                let role = json!(format!("{}/{}", text(role, "kind"), text(role, "name")));
                let subjects = |kind| json!(subjects_of(object, kind));
                vec![name, role, age_cell(), subjects("User"), subjects("Group"), subjects("ServiceAccount")]
            }
            "Secret" => vec![name, json!(text(object, "type")), json!(count(object, "data")), age_cell()],
            "ServiceAccount" => vec![name, age_cell()],
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                vec![name, json!(object["webhooks"].as_array().map_or(0, Vec::len)), age_cell()]
            }
            _ => vec![name, json!(created)],
        }
    }
}

const fn column(name: &'static str, description: &'static str) -> TableColumn {
    TableColumn { name, column_type: "string", format: ColumnFormat::None, description, priority: 0 }
}

const fn count_column(name: &'static str, description: &'static str) -> TableColumn {
    TableColumn { column_type: "integer", ..column(name, description) }
}

const fn wide(name: &'static str, description: &'static str) -> TableColumn {
    TableColumn { priority: 1, ..column(name, description) }
}

const NAME: TableColumn = TableColumn {
    format: ColumnFormat::Name,
    ..column("Name", "Name of the object, unique among its kind in its namespace.")
};
const AGE: TableColumn = column("Age", "Time since the object was created.");

const DEFAULT: &[TableColumn] =
    &[NAME, TableColumn { column_type: "date", ..column("Created At", "Creation time of the object.") }];
const CERTIFICATE_SIGNING_REQUEST: &[TableColumn] = &[
    NAME,
    AGE,
    column("SignerName", "The signer that the request is for."),
    column("Requestor", "The user who created the request."),
    column("RequestedDuration", "Requested validity of the certificate."),
    column("Condition", "Pending, Approved or Denied; then whether it has failed or was issued."),
];
const CONFIG_MAP: &[TableColumn] = &[NAME, column("Data", "Number of keys."), AGE];
const LEASE: &[TableColumn] = &[NAME, column("Holder", "Identity of the holder of the lease."), AGE];
const MUTATING_POLICY: &[TableColumn] =
    &[NAME, count_column("Mutations", "Number of mutations of the policy."), PARAM_KIND, AGE];
const VALIDATING_POLICY: &[TableColumn] =
    &[NAME, count_column("Validations", "Number of validations of the policy."), PARAM_KIND, AGE];
const PARAM_KIND: TableColumn = column("ParamKind", "Version and kind of the parameters of the policy.");
const POLICY_BINDING: &[TableColumn] = &[
    NAME,
    column("PolicyName", "Name of the bound policy."),
    column("ParamRef", "Parameters that the binding selects."),
    AGE,
];
const NAMESPACE: &[TableColumn] = &[NAME, column("Status", "Phase of the namespace."), AGE];
const RESOURCE_QUOTA: &[TableColumn] = &[
    NAME,
    column("Request", "Use and limit of each resource."),
    column("Limit", "Use and limit of the resources whose limits are restricted."),
    AGE,
];
const SECRET: &[TableColumn] =
    &[NAME, column("Type", "Type of the secret data."), column("Data", "Number of keys."), AGE];
const SERVICE_ACCOUNT: &[TableColumn] = &[NAME, AGE];
const WEBHOOK_CONFIGURATION: &[TableColumn] =
    &[NAME, count_column("Webhooks", "Number of webhooks of the configuration."), AGE];
const BINDING: &[TableColumn] = &[
    NAME,
    column("Role", "The granted role."),
    AGE,
    wide("Users", "Users in the subjects."),
    wide("Groups", "Groups in the subjects."),
    wide("ServiceAccounts", "Service accounts in the subjects."),
];
const EVENT: &[TableColumn] = &[
    column("Last Seen", "Time since the last occurrence."),
    column("Type", "Normal or Warning."),
    column("Reason", "Reason of the event, one CamelCase word."),
    column("Object", "The involved object."),
    wide("Subobject", "The part of the involved object."),
    wide("Source", "The component that reports the event."),
    column("Message", "Description of the event."),
    wide("First Seen", "Time since the first occurrence."),
    wide("Count", "Number of occurrences."),
    TableColumn { priority: 1, ..NAME },
];

fn certificate_condition(status: &Value) -> String {
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let has = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    let mut cell = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        cell.push_str(",Failed");
    }
    if status["certificate"].as_str().is_some_and(|certificate| !certificate.is_empty()) {
        cell.push_str(",Issued");
    }
    cell
}

fn event_cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let since = |object: &Value, field: &str| age_of(object[field].as_str(), now);
    let given = |field: &str| event[field].is_string();
    let first = since(event, if given("firstTimestamp") { "firstTimestamp" } else { "eventTime" });
    let series = event.get("series").filter(|series| series.is_object());
    let (last, count) = match series {
        Some(series) => (since(series, "lastObservedTime"), series["count"].as_i64().unwrap_or(0)),
        None => {
            let last = if given("lastTimestamp") { since(event, "lastTimestamp") } else { first.clone() };
            (last, event["count"].as_i64().filter(|count| *count != 0).unwrap_or(1))
        }
    };
    let involved = &event["involvedObject"];
    let mut target = text(involved, "kind").to_lowercase();
    if !text(involved, "name").is_empty() {
        target = format!("{target}/{}", text(involved, "name"));
    }
    let or = |first: &str, second: &str| {
        if first.is_empty() { second.to_owned() } else { first.to_owned() }
    };
    let mut source = or(text(&event["source"], "component"), text(event, "reportingComponent"));
    let instance = or(text(&event["source"], "host"), text(event, "reportingInstance"));
    if !instance.is_empty() {
        source = format!("{source}, {instance}");
    }
    vec![
        json!(last),
        json!(text(event, "type")),
        json!(text(event, "reason")),
        json!(target),
        json!(text(involved, "fieldPath")),
        json!(source),
        json!(text(event, "message").trim()),
        json!(first),
        json!(count),
        json!(text(&event["metadata"], "name")),
    ]
}

/// `<apiVersion>/<kind>` of the parameters.
fn param_kind(policy: &Value) -> String {
    let kind = &policy["spec"]["paramKind"];
    if kind.is_object() {
        format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind"))
    } else {
        UNSET.to_owned()
    }
}

/// The namespace and name of the parameter, or the selector of parameters in the text form of Go. A parameter without a
/// namespace may be in any, or cluster-scoped.
fn param_reference(binding: &Value) -> String {
    let reference = &binding["spec"]["paramRef"];
    let selector = &reference["selector"];
    match (text(reference, "namespace"), text(reference, "name")) {
        (_, "") if selector.is_object() => selector_text(selector),
        (_, "") => UNSET.to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

fn selector_text(selector: &Value) -> String {
    let mut labels: Vec<(&String, &Value)> =
        selector["matchLabels"].as_object().into_iter().flatten().collect();
    labels.sort_unstable_by_key(|(key, _)| *key);
    let labels: String =
        labels.iter().map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let requirements = selector["matchExpressions"].as_array().map_or(&[][..], Vec::as_slice);
    let requirements: String = requirements
        .iter()
        .map(|requirement| {
            let values = requirement["values"].as_array().into_iter().flatten();
            let values: Vec<&str> = values.filter_map(Value::as_str).collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                text(requirement, "key"),
                text(requirement, "operator"),
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
}

const UNSET: &str = "<unset>";

/// `<resource>: <used>/<hard>` of the resources, and of those that begin with `limits.`.
fn quota_usage(quota: &Value) -> (String, String) {
    let status = &quota["status"];
    let hard = status["hard"].as_object();
    let mut resources: Vec<&String> = hard.into_iter().flat_map(|hard| hard.keys()).collect();
    resources.sort_unstable();
    let describe = |resource: &&String| {
        let amount = |of: &str| match &status[of][resource.as_str()] {
            Value::String(text) => text.clone(),
            Value::Null => "0".to_owned(),
            other => other.to_string(),
        };
        format!("{resource}: {}/{}", amount("used"), amount("hard"))
    };
    let (limits, requests): (Vec<&String>, Vec<&String>) =
        resources.into_iter().partition(|resource| resource.starts_with("limits."));
    let joined = |some: Vec<&String>| some.iter().map(describe).collect::<Vec<_>>().join(", ");
    (joined(requests), joined(limits))
}

fn age_of(timestamp: Option<&str>, now: Timestamp) -> String {
    timestamp.map_or_else(|| "<unknown>".to_owned(), |timestamp| age(timestamp, now))
}

fn subjects_of(binding: &Value, kind: &str) -> String {
    let subjects = binding["subjects"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<String> = subjects
        .iter()
        .filter(|subject| text(subject, "kind") == kind)
        .map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name").to_owned(),
        })
        .collect();
    names.join(", ")
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn count(object: &Value, field: &str) -> usize {
    object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::super::kind::{builtin_by_kind, builtin_kinds};
    use super::*;

    #[test]
    fn rows_are_those_of_a_real_server() {
        let rbac = "rbac.authorization.k8s.io";
        let meta = |name: &str| json!({"name": name, "creationTimestamp": "2026-11-21T13:23:21Z"});
        for (group, kind, object, cells) in [
            ("", "Namespace", json!({"status": {"phase": "Active"}}), json!(["n", "Active", "8m22s"])),
            (
                "",
                "ConfigMap",
                json!({"data": {"a": ""}, "binaryData": {"b": "", "c": ""}}),
                json!(["n", 3, "8m22s"]),
            ),
            (
                "",
                "ResourceQuota",
                json!({"status": {"hard": {"secrets": "10", "configmaps": "2", "limits.cpu": "1"}, "used": {"secrets": "3"}}}),
                json!(["n", "configmaps: 0/2, secrets: 3/10", "limits.cpu: 0/1", "8m22s"]),
            ),
            ("", "Secret", json!({"type": "Opaque"}), json!(["n", "Opaque", 0, "8m22s"])),
            ("", "ServiceAccount", json!({}), json!(["n", "8m22s"])),
            (rbac, "Role", json!({}), json!(["n", "2026-11-21T13:23:21Z"])),
            (
                rbac,
                "ClusterRoleBinding",
                json!({"roleRef": {"kind": "ClusterRole", "name": "c1"}, "subjects": [
                    {"kind": "User", "name": "a"}, {"kind": "User", "name": "b"},
                    {"kind": "ServiceAccount", "name": "s", "namespace": "d"}]}),
                json!(["n", "ClusterRole/c1", "8m22s", "a, b", "", "d/s"]),
            ),
            (
                "admissionregistration.k8s.io",
                "ValidatingAdmissionPolicy",
                json!({"spec": {"validations": [{}, {}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}),
                json!(["n", 2, "v1/ConfigMap", "8m22s"]),
            ),
            (
                "admissionregistration.k8s.io",
                "MutatingAdmissionPolicyBinding",
                json!({"spec": {"policyName": "p", "paramRef": {"selector": {"matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]}}}}),
                json!([
                    "n",
                    "p",
                    "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{\
                     LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}",
                    "8m22s"
                ]),
            ),
            (
                "admissionregistration.k8s.io",
                "ValidatingAdmissionPolicyBinding",
                json!({"spec": {"policyName": "p", "paramRef": {"name": "x"}}}),
                json!(["n", "p", "*/x", "8m22s"]),
            ),
            (
                "admissionregistration.k8s.io",
                "ValidatingAdmissionPolicyBinding",
                json!({"spec": {"policyName": "p", "paramRef": {"name": "x", "namespace": "d"}}}),
                json!(["n", "p", "d/x", "8m22s"]),
            ),
            (
                "admissionregistration.k8s.io",
                "ValidatingAdmissionPolicyBinding",
                json!({"spec": {"policyName": "p"}}),
                json!(["n", "p", "<unset>", "8m22s"]),
            ),
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
                json!({"webhooks": [{}, {}]}),
                json!(["n", 2, "8m22s"]),
            ),
            (
                "admissionregistration.k8s.io",
                "MutatingWebhookConfiguration",
                json!({}),
                json!(["n", 0, "8m22s"]),
            ),
            (
                "coordination.k8s.io",
                "Lease",
                json!({"spec": {"holderIdentity": "me"}}),
                json!(["n", "me", "8m22s"]),
            ),
            (
                "",
                "Event",
                json!({"involvedObject": {"kind": "ConfigMap", "name": "cm1"}, "reason": "Test", "type": "Normal",
                    "message": "hello\n", "source": {"component": "rec"}, "count": 1,
                    "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"}),
                json!(["324d", "Normal", "Test", "configmap/cm1", "", "rec", "hello", "324d", 1, "n"]),
            ),
        ] {
            let mut object = object;
            object["metadata"] = meta("n");
            let known = builtin_by_kind(group, "v1", kind).unwrap();
            let now = "2026-11-21T13:31:43Z".parse().unwrap();
            assert_eq!(json!(known.table_cells(&object, now)), cells, "{kind}");
        }
    }

    #[test]
    fn columns_have_the_names_types_and_priorities_of_kubernetes() {
        let admission = "admissionregistration.k8s.io";
        let rbac = "rbac.authorization.k8s.io";
        let default = "Name:string:name:0 Created At:date::0";
        let binding = "Name:string:name:0 Role:string::0 Age:string::0 Users:string::1 Groups:string::1 ServiceAccounts:string::1";
        let policy_binding = "Name:string:name:0 PolicyName:string::0 ParamRef:string::0 Age:string::0";
        let webhooks = "Name:string:name:0 Webhooks:integer::0 Age:string::0";
        let event = "Last Seen:string::0 Type:string::0 Reason:string::0 Object:string::0 Subobject:string::1 \
                     Source:string::1 Message:string::0 First Seen:string::1 Count:string::1 Name:string:name:1";
        for (group, kind, expected) in [
            ("", "ConfigMap", "Name:string:name:0 Data:string::0 Age:string::0"),
            ("", "Event", event),
            ("events.k8s.io", "Event", event),
            ("", "Namespace", "Name:string:name:0 Status:string::0 Age:string::0"),
            ("", "ResourceQuota", "Name:string:name:0 Request:string::0 Limit:string::0 Age:string::0"),
            ("", "Secret", "Name:string:name:0 Type:string::0 Data:string::0 Age:string::0"),
            ("", "ServiceAccount", "Name:string:name:0 Age:string::0"),
            (
                "certificates.k8s.io",
                "CertificateSigningRequest",
                "Name:string:name:0 Age:string::0 SignerName:string::0 Requestor:string::0 \
                 RequestedDuration:string::0 Condition:string::0",
            ),
            ("coordination.k8s.io", "Lease", "Name:string:name:0 Holder:string::0 Age:string::0"),
            (rbac, "ClusterRole", default),
            (rbac, "ClusterRoleBinding", binding),
            (rbac, "Role", default),
            (rbac, "RoleBinding", binding),
            (
                admission,
                "MutatingAdmissionPolicy",
                "Name:string:name:0 Mutations:integer::0 ParamKind:string::0 Age:string::0",
            ),
            (
                admission,
                "ValidatingAdmissionPolicy",
                "Name:string:name:0 Validations:integer::0 ParamKind:string::0 Age:string::0",
            ),
            (admission, "MutatingAdmissionPolicyBinding", policy_binding),
            (admission, "ValidatingAdmissionPolicyBinding", policy_binding),
            (admission, "MutatingWebhookConfiguration", webhooks),
            (admission, "ValidatingWebhookConfiguration", webhooks),
            ("apiextensions.k8s.io", "CustomResourceDefinition", default),
        ] {
            let columns = builtin_by_kind(group, "v1", kind).unwrap().table_columns().iter().map(|column| {
                let format = serde_json::to_value(column.format).unwrap();
                format!(
                    "{}:{}:{}:{}",
                    column.name,
                    column.column_type,
                    format.as_str().unwrap(),
                    column.priority
                )
            });
            assert_eq!(columns.collect::<Vec<_>>().join(" "), expected, "{group} {kind}");
        }
    }

    #[test]
    fn every_column_has_a_cell() {
        for kind in builtin_kinds() {
            let cells = kind.table_cells(&json!({}), Timestamp::UNIX_EPOCH);
            assert_eq!(cells.len(), kind.table_columns().len(), "{}", kind.kind);
        }
    }

    #[test]
    fn columns_serialize_as_in_the_api() {
        assert_eq!(
            serde_json::to_value(NAMESPACE[0]).unwrap(),
            json!({"name": "Name", "type": "string", "format": "name", "description": NAME.description,
                "priority": 0})
        );
    }
}
