//! The roles and bindings of one scope, evaluated for a user.

use std::sync::Arc;

use fairlead_authn::UserInfo;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::Rule;
use crate::host::Action;
use crate::object::{MalformedObject, ObjectBytes};

/// A role's name and rules.
#[derive(Clone, Debug)]
pub struct Role {
    /// The namespace of a Role, `None` for a ClusterRole.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
    /// The permissions.
    pub rules: Vec<Rule>,
}

/// A binding of a role to subjects.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The namespace in which it applies; `None`: everywhere.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
    /// The role.
    pub role: RoleReference,
    /// The subjects.
    pub subjects: Vec<Subject>,
}

/// A reference to a role.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct RoleReference {
    /// `Role` or `ClusterRole`.
    pub kind: RoleKind,
    /// Its name.
    pub name: Arc<str>,
}

/// The kind of a referenced role.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum RoleKind {
    /// A role of all namespaces.
    ClusterRole,
    /// A role of the binding's namespace.
    Role,
}

/// A user, group or service account.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(tag = "kind")]
pub enum Subject {
    /// All members of a group.
    Group {
        /// The group.
        name: Arc<str>,
    },
    /// A service account of this scope.
    ServiceAccount {
        /// The account.
        name: Arc<str>,
        /// Its namespace.
        #[serde(default)]
        namespace: Arc<str>,
    },
    /// A user by name.
    User {
        /// The user.
        name: Arc<str>,
    },
}

impl Subject {
    fn matches(&self, user: &UserInfo) -> bool {
        match self {
            Self::Group { name } => user.groups.iter().any(|group| **group == **name),
            Self::ServiceAccount { name, namespace } => user
                .name
                .strip_prefix("system:serviceaccount:")
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(own_namespace, own)| own == &**name && own_namespace == &**namespace),
            Self::User { name } => *user.name == **name,
        }
    }
}

impl Role {
    /// Reads a stored Role or ClusterRole.
    ///
    /// # Errors
    /// [`MalformedObject`].
    pub fn parse(object: ObjectBytes<'_>) -> Result<Self, MalformedObject> {
        let wire: WireRole = serde_json::from_slice(object.json()).map_err(|_| MalformedObject)?;
        Ok(Self {
            namespace: wire.metadata.namespace,
            name: wire.metadata.name,
            rules: wire.rules.unwrap_or_default(),
        })
    }
}

impl Binding {
    /// Reads a stored RoleBinding or ClusterRoleBinding.
    ///
    /// # Errors
    /// [`MalformedObject`].
    pub fn parse(object: ObjectBytes<'_>) -> Result<Self, MalformedObject> {
        let wire: WireBinding = serde_json::from_slice(object.json()).map_err(|_| MalformedObject)?;
        let (namespace, name) = (wire.metadata.namespace, wire.metadata.name);
        let mut subjects = wire.subjects.unwrap_or_default();
        // A service account without a namespace is in the namespace of the binding.
        for subject in &mut subjects {
            if let Subject::ServiceAccount { namespace: own, .. } = subject
                && own.is_empty()
                && let Some(namespace) = &namespace
            {
                *own = namespace.clone();
            }
        }
        Ok(Self { namespace, name, role: wire.role_ref, subjects })
    }
}

#[derive(Deserialize)]
struct WireRole {
    metadata: WireMetadata,
    #[serde(default)]
    rules: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBinding {
    metadata: WireMetadata,
    role_ref: RoleReference,
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
}

#[derive(Deserialize)]
struct WireMetadata {
    name: Arc<str>,
    namespace: Option<Arc<str>>,
}

/// The roles and bindings of one scope, parsed. Evaluation visits each binding once.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    cluster_roles: FxHashMap<Arc<str>, Arc<Role>>,
    roles: FxHashMap<(Arc<str>, Arc<str>), Arc<Role>>,
    bindings: Vec<Binding>,
}

impl Policy {
    /// A policy of these roles and bindings.
    pub fn new(roles: impl IntoIterator<Item = Role>, bindings: Vec<Binding>) -> Self {
        let mut policy = Self { bindings, ..Self::default() };
        for role in roles {
            match &role.namespace {
                None => policy.cluster_roles.insert(role.name.clone(), Arc::new(role)),
                Some(namespace) => {
                    policy.roles.insert((namespace.clone(), role.name.clone()), Arc::new(role))
                }
            };
        }
        policy
    }

    /// Whether a rule that is granted to the user permits the action. ClusterRoles that this policy does not have
    /// are looked up in `fallback`, so that bindings may refer to roles of all scopes.
    pub fn permits(&self, user: &UserInfo, action: &Action<'_>, fallback: Option<&Self>) -> bool {
        let namespace = match action {
            Action::Resource { namespace, .. } => *namespace,
            Action::NonResource { .. } => None,
        };
        self.granted_rules(user, namespace, fallback)
            .any(|role| role.rules.iter().any(|rule| rule.permits(action)))
    }

    /// All rules granted to the user that apply in a namespace (`None`: outside of namespaces).
    pub fn rules(&self, user: &UserInfo, namespace: Option<&str>, fallback: Option<&Self>) -> Vec<Rule> {
        self.granted_rules(user, namespace, fallback).flat_map(|role| role.rules.clone()).collect()
    }

    /// The role that a binding refers to.
    pub fn role(
        &self,
        reference: &RoleReference,
        namespace: Option<&str>,
        fallback: Option<&Self>,
    ) -> Option<Arc<Role>> {
        match reference.kind {
            RoleKind::ClusterRole => {
                let own = self.cluster_roles.get(&*reference.name);
                own.or_else(|| fallback?.cluster_roles.get(&*reference.name)).cloned()
            }
            RoleKind::Role => self.roles.get(&(Arc::from(namespace?), reference.name.clone())).cloned(),
        }
    }

    fn granted_rules<'p>(
        &'p self,
        user: &'p UserInfo,
        namespace: Option<&'p str>,
        fallback: Option<&'p Self>,
    ) -> impl Iterator<Item = Arc<Role>> + 'p {
        self.bindings
            .iter()
            .filter(move |binding| binding.namespace.is_none() || binding.namespace.as_deref() == namespace)
            .filter(move |binding| binding.subjects.iter().any(|subject| subject.matches(user)))
            .filter_map(move |binding| self.role(&binding.role, binding.namespace.as_deref(), fallback))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::encode;

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo {
            name: name.into(),
            groups: groups.iter().map(|group| (*group).into()).collect(),
            ..UserInfo::default()
        }
    }

    fn object(mut value: Value) -> crate::object::EncodedObject {
        value["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
        value["kind"] = "X".into();
        encode(&value, 0).unwrap()
    }

    fn role(namespace: Option<&str>, name: &str, verb: &str) -> Role {
        let object = object(json!({"metadata": {"name": name, "namespace": namespace},
            "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["secrets"]}]}));
        Role::parse(object.as_object()).unwrap()
    }

    fn binding(namespace: Option<&str>, kind: &str, role: &str, subject: Value) -> Binding {
        let object = object(json!({"metadata": {"name": "b", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": [subject]}));
        Binding::parse(object.as_object()).unwrap()
    }

    #[test]
    fn bindings_grant_roles_in_their_namespace() {
        let alice = json!({"kind": "User", "name": "alice"});
        let fallback = Policy::new([role(None, "everywhere", "delete")], Vec::new());
        let policy = Policy::new(
            [role(None, "reader", "get"), role(Some("n"), "local", "list")],
            vec![
                binding(None, "ClusterRole", "reader", json!({"kind": "Group", "name": "staff"})),
                binding(Some("n"), "Role", "local", alice.clone()),
                binding(Some("n"), "ClusterRole", "everywhere", alice),
                binding(Some("n"), "ClusterRole", "reader", json!({"kind": "ServiceAccount", "name": "bot"})),
            ],
        );
        for (user, verb, namespace, permitted) in [
            (user("bob", &["staff"]), "get", None, true),
            (user("bob", &["staff"]), "get", Some("n"), true),
            (user("bob", &[]), "get", None, false),
            (user("alice", &[]), "list", Some("n"), true),
            (user("alice", &[]), "list", Some("m"), false),
            (user("alice", &[]), "list", None, false),
            (user("alice", &[]), "delete", Some("n"), true),
            (user("system:serviceaccount:n:bot", &[]), "get", Some("n"), true),
            (user("system:serviceaccount:m:bot", &[]), "get", Some("n"), false),
        ] {
            let action = Action::Resource {
                verb,
                group: "",
                version: "v1",
                resource: "secrets",
                subresource: None,
                namespace,
                name: None,
            };
            assert_eq!(
                policy.permits(&user, &action, Some(&fallback)),
                permitted,
                "{user:?} {verb} {namespace:?}"
            );
        }
    }
}
