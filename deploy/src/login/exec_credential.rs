//! The protocol between client-go and a credential plugin (`client.authentication.k8s.io`, KEP-541): a request in an
//! environment variable, a response on standard output.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cache::Tokens;

/// The caller that needs a token, and whether a user can sign in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A shell.
    CommandLine,
    /// A Kubernetes client.
    Client {
        /// Version of the response.
        version: Version,
        /// Whether standard input is a terminal.
        interactive: bool,
    },
}

/// A version of ExecCredential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V1beta1,
}

/// A request that is not supported. The author of the kubeconfig has to act.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExecInfoError {
    #[error("KUBERNETES_EXEC_INFO is not an ExecCredential")]
    Malformed,
    #[error(
        "KUBERNETES_EXEC_INFO is of version {0:?}: client.authentication.k8s.io/v1 and v1beta1 are supported"
    )]
    Version(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecInfo {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    spec: ExecInfoSpec,
}

#[derive(Default, Deserialize)]
struct ExecInfoSpec {
    #[serde(default)]
    interactive: bool,
}

impl Caller {
    /// From the value of `KUBERNETES_EXEC_INFO`.
    pub(super) fn of(info: Option<&str>) -> Result<Self, ExecInfoError> {
        let Some(info) = info.filter(|info| !info.is_empty()) else {
            return Ok(Self::CommandLine);
        };
        let info: ExecInfo = serde_json::from_str(info).map_err(|_| ExecInfoError::Malformed)?;
        if info.kind != "ExecCredential" {
            return Err(ExecInfoError::Malformed);
        }
        let version = match info.api_version.as_str() {
            "client.authentication.k8s.io/v1" => Version::V1,
            "client.authentication.k8s.io/v1beta1" => Version::V1beta1,
            _ => return Err(ExecInfoError::Version(info.api_version)),
        };
        Ok(Self::Client { version, interactive: info.spec.interactive })
    }

    /// The response with the token.
    pub(super) fn response(&self, tokens: &Tokens) -> Value {
        let version = match self {
            Self::CommandLine | Self::Client { version: Version::V1, .. } => "v1",
            Self::Client { version: Version::V1beta1, .. } => "v1beta1",
        };
        let mut response = json!({
            "apiVersion": format!("client.authentication.k8s.io/{version}"),
            "kind": "ExecCredential",
            "status": { "token": tokens.id_token },
        });
        // A time out of range means that the token does not expire.
        if let Ok(expires) = Timestamp::from_second(tokens.expires) {
            response["status"]["expirationTimestamp"] =
                expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        }
        response
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn requests_are_parsed() {
        let info = |version: &str, spec: &str| {
            format!("{{\"kind\":\"ExecCredential\",\"apiVersion\":\"{version}\",\"spec\":{spec}}}")
        };
        let v1 = "client.authentication.k8s.io/v1";
        let client = |version, interactive| Ok(Caller::Client { version, interactive });
        for (info, expected) in [
            (None, Ok(Caller::CommandLine)),
            (Some(String::new()), Ok(Caller::CommandLine)),
            (Some(info(v1, "{\"interactive\":true}")), client(Version::V1, true)),
            (
                Some(info(v1, "{\"interactive\":false,\"cluster\":{\"server\":\"s\"}}")),
                client(Version::V1, false),
            ),
            (Some(info("client.authentication.k8s.io/v1beta1", "{}")), client(Version::V1beta1, false)),
            (
                Some(info("client.authentication.k8s.io/v1alpha1", "{}")),
                Err(ExecInfoError::Version("client.authentication.k8s.io/v1alpha1".to_owned())),
            ),
            (Some("{}".to_owned()), Err(ExecInfoError::Malformed)),
            (Some("what?".to_owned()), Err(ExecInfoError::Malformed)),
        ] {
            assert_eq!(Caller::of(info.as_deref()), expected, "{info:?}");
        }
    }

    #[test]
    fn the_response_has_the_version_of_the_request() {
        let tokens = Tokens {
            id_token: "t".to_owned(),
            expires: 1_767_225_600,
            refresh_token: None,
            user: "u".to_owned(),
        };
        let caller = Caller::Client { version: Version::V1beta1, interactive: false };
        let response = caller.response(&tokens).to_string();
        assert_eq!(
            response,
            "{\"apiVersion\":\"client.authentication.k8s.io/v1beta1\",\"kind\":\"ExecCredential\",\
             \"status\":{\"expirationTimestamp\":\"2026-01-01T00:00:00Z\",\"token\":\"t\"}}"
        );
        assert_eq!(Caller::CommandLine.response(&tokens)["apiVersion"], "client.authentication.k8s.io/v1");
    }
}
