//! What tokens of service accounts claim, in both forms that Kubernetes has had.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{TokenFault, UserInfo, jwt::Claims};

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
/// The logical cluster that a user comes from.
const CLUSTER_NAME: &str = "authentication.kcp.io/cluster-name";
/// The logical clusters that a user counts in; elsewhere he is nobody.
const SCOPES: &str = "authentication.kcp.io/scopes";

/// A service account and what its token depends on, as claimed by a token that was verified.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceAccount {
    /// The logical cluster; a token of a plain Kubernetes has none.
    pub(crate) cluster: Option<String>,
    pub(crate) namespace: String,
    pub(crate) account: Named,
    pub(crate) pod: Option<Named>,
    pub(crate) node: Option<Named>,
    pub(crate) secret: Secret,
    credential_id: Option<String>,
}

/// An object and which one of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The secret that a token depends on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Secret {
    #[default]
    None,
    /// It must be this one.
    Bound(Named),
    /// It must hold the token.
    Holding(String),
}

#[derive(Deserialize)]
struct BoundClaims {
    #[serde(rename = "clusterName")]
    cluster: Option<String>,
    #[serde(default)]
    namespace: String,
    #[serde(default, rename = "serviceaccount")]
    account: Named,
    pod: Option<Named>,
    node: Option<Named>,
    secret: Option<Named>,
}

impl ServiceAccount {
    /// The claims of tokens that are requested: short-lived and bound to objects.
    pub(crate) fn bound(claims: &Claims) -> Result<Self, TokenFault> {
        const CLAIM: &str = "kubernetes.io";
        let private = claims.get(CLAIM).ok_or_else(|| TokenFault::claim(CLAIM, "is missing"))?;
        let private = BoundClaims::deserialize(private)
            .map_err(|_| TokenFault::claim(CLAIM, "is not that of a service account"))?;
        let BoundClaims { cluster, namespace, account, pod, node, secret } = private;
        if namespace.is_empty() || account.name.is_empty() || account.uid.is_empty() {
            return Err(TokenFault::claim(CLAIM, "does not name a service account"));
        }
        Ok(Self {
            cluster: cluster.filter(|cluster| !cluster.is_empty()),
            namespace,
            account,
            pod,
            node,
            secret: secret.map_or(Secret::None, Secret::Bound),
            credential_id: credential_id(claims),
        })
    }

    /// The claims of tokens that stand in secrets and live as long as these.
    pub(crate) fn legacy(claims: &Claims) -> Result<Self, TokenFault> {
        let text = |name: &str| match claims.text(name)? {
            "" => Err(TokenFault::claim(name, "is empty")),
            text => Ok(text.to_owned()),
        };
        let account = Named {
            name: text("kubernetes.io/serviceaccount/service-account.name")?,
            uid: text("kubernetes.io/serviceaccount/service-account.uid")?,
        };
        let namespace = text("kubernetes.io/serviceaccount/namespace")?;
        if claims.text("sub")? != username(&namespace, &account.name) {
            return Err(TokenFault::claim("sub", "names another service account than the rest"));
        }
        Ok(Self {
            cluster: match claims.get("kubernetes.io/serviceaccount/clusterName") {
                None | Some(Value::Null) => None,
                Some(_) => Some(text("kubernetes.io/serviceaccount/clusterName")?),
            },
            secret: Secret::Holding(text("kubernetes.io/serviceaccount/secret.name")?),
            namespace,
            account,
            pod: None,
            node: None,
            // Nobody has ever given them an ID, so what one claims is not taken for one.
            credential_id: None,
        })
    }

    /// The user that it is.
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
        // An account of no logical cluster is tied to one without a name, which does not exist. Without these
        // extras it would be at home everywhere.
        extra.extend(tied_to(self.cluster.as_deref().unwrap_or_default()));
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

/// The extras of a user who comes from a logical cluster and counts nowhere else.
pub(crate) fn tied_to(cluster: &str) -> [(String, Vec<String>); 2] {
    [
        (CLUSTER_NAME.to_owned(), vec![cluster.to_owned()]),
        (SCOPES.to_owned(), vec![format!("cluster:{cluster}")]),
    ]
}

/// `JTI=` and the token's own ID, under which Kubernetes writes it into audit logs (KEP-4193).
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
