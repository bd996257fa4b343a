//! Users as Kubernetes describes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The user of admitted requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of users with a valid credential.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of users without a valid credential.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// A user. Its serialised form is `UserInfo` of `authentication.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The unique name.
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Distinguishes users that had the same name at different times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The user's groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Additional attributes from the authenticator. Keys are lower case.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// The only logical cluster in which the user is valid, if there is one: that of a service account, or of a workspace
    /// that has issuers of its own. In other logical clusters another user may have the same name.
    pub fn cluster_name(&self) -> Option<&str> {
        self.extra.get("authentication.kcp.io/cluster-name")?.first().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_written_and_read_as_kubernetes_does() {
        let user = UserInfo {
            name: "ann".to_owned(),
            uid: Some("7".to_owned()),
            groups: vec!["a".to_owned(), "b".to_owned()],
            extra: BTreeMap::from([("example.com/k".to_owned(), vec!["v".to_owned()])]),
        };
        let json = r#"{"username":"ann","uid":"7","groups":["a","b"],"extra":{"example.com/k":["v"]}}"#;
        assert_eq!(serde_json::to_string(&user).unwrap(), json);
        assert_eq!(serde_json::from_str::<UserInfo>(json).unwrap(), user);

        let bare = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        assert_eq!(serde_json::to_string(&bare).unwrap(), r#"{"username":"ann"}"#);
        assert_eq!(serde_json::from_str::<UserInfo>(r#"{"username":"ann"}"#).unwrap(), bare);
    }
}
