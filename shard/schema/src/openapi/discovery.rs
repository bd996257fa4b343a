//! OpenAPI documents of paths outside of group versions: discovery, `/version`, and the documents of the token issuer.

use serde_json::{Value, json};

use super::operations::{response, tag_of};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// A document that is not of a group version.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum DiscoveryPath {
    /// `/api`.
    Core,
    /// `/apis`.
    Groups,
    /// `/apis/<group>` of a built-in group.
    Group(String),
    /// `/version`.
    Version,
    /// A document of the server itself, such as `/openid/v1/jwks`, by its path.
    Document(&'static str),
}

impl DiscoveryPath {
    /// The key of the document in the index.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Core => "api".to_owned(),
            Self::Groups => "apis".to_owned(),
            Self::Group(group) => format!("apis/{group}"),
            Self::Version => "version".to_owned(),
            Self::Document(path) => path.trim_start_matches('/').to_owned(),
        }
    }

    /// The path and its item.
    pub(super) fn path_item(&self) -> (String, Value) {
        let discovery = ["application/json", "application/yaml"];
        let group_tag = |group: &str| {
            // The tag of a group has no version.
            let (camel, tag) = tag_of(group, "");
            (camel, tag.trim_end_matches('_').to_owned())
        };
        let (id, tag, description, responses) = match self {
            Self::Core => {
                let responses = response(&format!("{META}.APIVersions"), &discovery);
                ("getCoreAPIVersions".to_owned(), "core".to_owned(), "get available API versions", responses)
            }
            Self::Groups => {
                let responses = response(&format!("{META}.APIGroupList"), &discovery);
                ("getAPIVersions".to_owned(), "apis".to_owned(), "get available API versions", responses)
            }
            Self::Group(group) => {
                let (camel, tag) = group_tag(group);
                let responses = response(&format!("{META}.APIGroup"), &discovery);
                (format!("get{camel}APIGroup"), tag, "get information of a group", responses)
            }
            Self::Version => {
                let responses = response("io.k8s.apimachinery.pkg.version.Info", &["application/json"]);
                (
                    "getCodeVersion".to_owned(),
                    "version".to_owned(),
                    "get the version information for this server",
                    responses,
                )
            }
            Self::Document(path) => {
                let is_key_set = path.ends_with("jwks");
                let media = if is_key_set { "application/jwk-set+json" } else { "application/json" };
                let text = json!({"description": "OK", "content": {media: {"schema": {"type": "string"}}}});
                let (id, tag) = if is_key_set {
                    ("getServiceAccountIssuerOpenIDKeyset", "openid")
                } else {
                    ("getServiceAccountIssuerOpenIDConfiguration", "WellKnown")
                };
                (id.to_owned(), tag.to_owned(), "get a document of the service account issuer", text)
            }
        };
        let operation = json!({
            "description": description,
            "operationId": id,
            "tags": [tag],
            "responses": {"200": responses, "401": {"description": "Unauthorized"}},
        });
        (format!("/{}/", self.key()), json!({"get": operation}))
    }
}
