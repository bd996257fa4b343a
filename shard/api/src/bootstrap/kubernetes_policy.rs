//! The default roles and bindings of Kubernetes that are useful without nodes, pods and a scheduler.

use serde_json::{Value, json};

use super::rbac::{
    allow, allow_all, allow_named, allow_urls, annotated, cluster_role, cluster_role_binding, labelled, role,
};
use crate::keys::group;

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";

/// ClusterRoles, ClusterRoleBindings and Roles of `system:admin`.
pub(super) fn objects() -> Vec<Value> {
    let mut objects = cluster_roles();
    objects.extend(cluster_role_bindings());
    objects.push(role(
        "kube-system",
        "extension-apiserver-authentication-reader",
        vec![allow_named(READ, "core", "configmaps", "extension-apiserver-authentication")],
    ));
    objects.into_iter().map(mark_as_default_policy).collect()
}

/// Adds the label and annotation by which Kubernetes recognizes and repairs its default policy.
fn mark_as_default_policy(object: Value) -> Value {
    let object = annotated(object, "rbac.authorization.kubernetes.io/autoupdate", "true");
    labelled(object, "kubernetes.io/bootstrapping", "rbac-defaults")
}

fn cluster_roles() -> Vec<Value> {
    let certificates = "certificates.k8s.io";
    let approver = |name: &str, signer: &str| {
        cluster_role(
            &format!("system:{certificates}:{name}-approver"),
            vec![allow_named("approve", certificates, "signers", &format!("kubernetes.io/{signer}"))],
        )
    };
    let requester = |name: &str| {
        cluster_role(
            &format!("system:{certificates}:certificatesigningrequests:{name}"),
            vec![allow("create", certificates, &format!("certificatesigningrequests/{name}"))],
        )
    };
    let mut roles = vec![
        cluster_role("cluster-admin", allow_all()),
        cluster_role(
            "system:auth-delegator",
            vec![
                allow("create", "authentication.k8s.io", "tokenreviews"),
                allow("create", "authorization.k8s.io", "subjectaccessreviews"),
            ],
        ),
        cluster_role(
            "system:basic-user",
            vec![
                allow("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
                allow("create", "authentication.k8s.io", "selfsubjectreviews"),
            ],
        ),
        requester("nodeclient"),
        requester("selfnodeclient"),
        approver("kube-apiserver-client", "kube-apiserver-client"),
        approver("kube-apiserver-client-kubelet", "kube-apiserver-client-kubelet"),
        approver("kubelet-serving", "kubelet-serving"),
        approver("legacy-unknown", "legacy-unknown"),
        cluster_role(
            "system:discovery",
            vec![allow_urls(
                "get",
                "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
            )],
        ),
        cluster_role(
            "system:monitoring",
            vec![
                allow_urls(
                    "get",
                    "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz",
                ),
                allow("get", "core", "nodes/metrics"),
            ],
        ),
        cluster_role(
            "system:public-info-viewer",
            vec![allow_urls("get", "/healthz /livez /readyz /version /version/")],
        ),
        cluster_role(
            "system:service-account-issuer-discovery",
            vec![allow_urls(
                "get",
                "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
            )],
        ),
    ];
    roles.extend(user_facing_roles());
    roles
}

/// The roles `admin`, `edit` and `view`, which collect the rules of roles with their labels (RBAC aggregation). The collected
/// rules are also written here, so that the roles work before any controller runs.
fn user_facing_roles() -> Vec<Value> {
    let edit_and_view = [edit_rules(), view_rules()].concat();
    let all = [edit_and_view.clone(), admin_rules()].concat();
    let part = |level: &str, rules: Vec<Value>| {
        let name = format!("system:aggregate-to-{level}");
        labelled(cluster_role(&name, rules), &aggregate_label(level), "true")
    };
    vec![
        aggregated("admin", all),
        labelled(aggregated("edit", edit_and_view), &aggregate_label("admin"), "true"),
        labelled(aggregated("view", view_rules()), &aggregate_label("edit"), "true"),
        part("admin", admin_rules()),
        part("edit", edit_rules()),
        part("view", view_rules()),
    ]
}

fn aggregate_label(level: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{level}")
}

fn aggregated(level: &str, rules: Vec<Value>) -> Value {
    let mut role = cluster_role(level, rules);
    role["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {aggregate_label(level): "true"}}]});
    role
}

fn admin_rules() -> Vec<Value> {
    vec![
        allow("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        allow(
            "create delete deletecollection get list patch update watch",
            "rbac.authorization.k8s.io",
            "rolebindings roles",
        ),
    ]
}

fn edit_rules() -> Vec<Value> {
    vec![
        allow(READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
        allow("impersonate", "core", "serviceaccounts"),
        allow(WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
        allow("create", "core", "pods/eviction"),
        allow(
            WRITE,
            "core",
            "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets \
             serviceaccounts services services/proxy",
        ),
        allow("create", "core", "serviceaccounts/token"),
        allow(WRITE, "core events.k8s.io", "events"),
        allow(
            WRITE,
            "apps",
            "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale \
             statefulsets statefulsets/scale",
        ),
        allow(WRITE, "autoscaling", "horizontalpodautoscalers"),
        allow(WRITE, "batch", "cronjobs jobs"),
        allow(
            WRITE,
            "extensions",
            "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets \
             replicasets/scale replicationcontrollers/scale",
        ),
        allow(WRITE, "policy", "poddisruptionbudgets"),
        allow(WRITE, "networking.k8s.io", "ingresses networkpolicies"),
        allow("create delete deletecollection get list patch update watch", "coordination.k8s.io", "leases"),
        allow(WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
    ]
}

fn view_rules() -> Vec<Value> {
    vec![
        allow(
            READ,
            "core",
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers \
             replicationcontrollers/scale serviceaccounts services services/status",
        ),
        allow(
            READ,
            "core",
            "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status \
             resourcequotas resourcequotas/status",
        ),
        allow(READ, "core", "namespaces"),
        allow(READ, "core events.k8s.io", "events"),
        allow(READ, "discovery.k8s.io", "endpointslices"),
        allow(
            READ,
            "apps",
            "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status \
             replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
        ),
        allow(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
        allow(READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
        allow(
            READ,
            "extensions",
            "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses \
             ingresses/status networkpolicies replicasets replicasets/scale replicasets/status \
             replicationcontrollers/scale",
        ),
        allow(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
        allow(READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
        allow(READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
    ]
}

fn cluster_role_bindings() -> Vec<Value> {
    let same = |name: &str, groups: &[&str]| cluster_role_binding(name, name, groups);
    vec![
        same("cluster-admin", &[group::MASTERS]),
        same("system:basic-user", &[group::AUTHENTICATED]),
        same("system:discovery", &[group::AUTHENTICATED]),
        same("system:monitoring", &["system:monitoring"]),
        same("system:public-info-viewer", &[group::AUTHENTICATED, group::UNAUTHENTICATED]),
        same("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
    ]
}
