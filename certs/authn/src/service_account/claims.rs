//! The claims of service-account tokens, legacy and bound.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{TokenError, UserInfo, jwt::Claims};

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
/// Key of the extra with the user's logical cluster.
const CLUSTER_NAME: &str = "authentication.kcp.io/cluster-name";
/// Key of the extra with the logical clusters in which the user is valid; in others it has no identity.
const SCOPES: &str = "authentication.kcp.io/scopes";

/// A service account and the objects that its token is bound to, from the claims of a verified token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceAccount {
    /// The logical cluster; a token of plain Kubernetes has none.
    pub(crate) cluster: Option<String>,
    pub(crate) namespace: String,
    pub(crate) account: NamedObject,
    pub(crate) pod: Option<NamedObject>,
    pub(crate) node: Option<NamedObject>,
    pub(crate) secret: SecretBinding,
    credential_id: Option<String>,
}

/// The name and UID of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct NamedObject {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The secret that a token depends on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum SecretBinding {
    #[default]
    None,
    /// The secret with this name and UID must exist.
    Bound(NamedObject),
    /// The secret with this name must contain the token.
    Containing(String),
}

#[derive(Deserialize)]
struct BoundClaims {
    #[serde(rename = "clusterName")]
    cluster: Option<String>,
    #[serde(default)]
    namespace: String,
    #[serde(default, rename = "serviceaccount")]
    account: NamedObject,
    pod: Option<NamedObject>,
    node: Option<NamedObject>,
    secret: Option<NamedObject>,
}

impl ServiceAccount {
    /// Reads the claims of a token of the TokenRequest API: short-lived and bound to objects.
    pub(crate) fn bound(claims: &Claims) -> Result<Self, TokenError> {
        const CLAIM: &str = "kubernetes.io";
        let private = claims.get(CLAIM).ok_or_else(|| TokenError::claim(CLAIM, "is missing"))?;
        let private = BoundClaims::deserialize(private)
            .map_err(|_| TokenError::claim(CLAIM, "is not that of a service account"))?;
        let BoundClaims { cluster, namespace, account, pod, node, secret } = private;
        if namespace.is_empty() || account.name.is_empty() || account.uid.is_empty() {
            return Err(TokenError::claim(CLAIM, "does not name a service account"));
        }
        Ok(Self {
            cluster: cluster.filter(|cluster| !cluster.is_empty()),
            namespace,
            account,
            pod,
            node,
            secret: secret.map_or(SecretBinding::None, SecretBinding::Bound),
            credential_id: credential_id(claims),
        })
    }

    /// Reads the claims of a legacy token, which is stored in a secret and lives as long as it.
    pub(crate) fn legacy(claims: &Claims) -> Result<Self, TokenError> {
        let text = |name: &str| match claims.text(name)? {
            "" => Err(TokenError::claim(name, "is empty")),
            text => Ok(text.to_owned()),
        };
        let account = NamedObject {
            name: text("kubernetes.io/serviceaccount/service-account.name")?,
            uid: text("kubernetes.io/serviceaccount/service-account.uid")?,
        };
        let namespace = text("kubernetes.io/serviceaccount/namespace")?;
        if claims.text("sub")? != username(&namespace, &account.name) {
            return Err(TokenError::claim("sub", "names another service account than the other claims"));
        }
        Ok(Self {
            cluster: match claims.get("kubernetes.io/serviceaccount/clusterName") {
                None | Some(Value::Null) => None,
                Some(_) => Some(text("kubernetes.io/serviceaccount/clusterName")?),
            },
            secret: SecretBinding::Containing(text("kubernetes.io/serviceaccount/secret.name")?),
            namespace,
            account,
            pod: None,
            node: None,
            // Legacy tokens have no ID, so a claimed one is ignored.
            credential_id: None,
        })
    }

    /// The service account as a user.
    pub(crate) fn user(&self) -> UserInfo {
        let mut extra = BTreeMap::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(key.to_owned(), vec![value.to_owned()]);
            }
        };
        if let Some(pod) = self.pod.as_ref().filter(|pod| !pod.name.is_empty() && !pod.uid.is_empty()) {
            add(POD_NAME, &pod.name);
            add(POD_UID, &pod.uid);
        }
        if let Some(node) = self.node.as_ref().filter(|node| !node.name.is_empty()) {
            add(NODE_NAME, &node.name);
            add(NODE_UID, &node.uid);
        }
        if let Some(id) = &self.credential_id {
            add(CREDENTIAL_ID, id);
        }
        // An account without a logical cluster is restricted to one without a name, which does not exist. Without these
        // extras it would be valid in all logical clusters.
        extra.extend(cluster_extras(self.cluster.as_deref().unwrap_or_default()));
        UserInfo {
            name: username(&self.namespace, &self.account.name),
            uid: Some(self.account.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{}", self.namespace),
            ],
            extra,
        }
    }
}

/// The extras that restrict a user to one logical cluster.
pub(crate) fn cluster_extras(cluster: &str) -> [(String, Vec<String>); 2] {
    [
        (CLUSTER_NAME.to_owned(), vec![cluster.to_owned()]),
        (SCOPES.to_owned(), vec![format!("cluster:{cluster}")]),
    ]
}

/// `JTI=` and the ID of the token, which Kubernetes writes into audit logs (KEP-4193).
pub(crate) fn credential_id(claims: &Claims) -> Option<String> {
    let id = claims.get("jti")?.as_str().filter(|id| !id.is_empty())?;
    Some(format!("JTI={id}"))
}

/// Adds the credential's ID to a user's extras.
pub(crate) fn add_credential_id(claims: &Claims, extra: &mut BTreeMap<String, Vec<String>>) {
    if let Some(id) = credential_id(claims) {
        extra.insert(CREDENTIAL_ID.to_owned(), vec![id]);
    }
}

fn username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
