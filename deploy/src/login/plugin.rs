//! The protocol between client-go and a credential plugin (`client.authentication.k8s.io`, KEP-541): a question in an
//! environment variable, an answer on standard output.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cache::Tokens;

/// Who asks for a token, and whether there is somebody to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// A person or script that has typed the command.
    CommandLine,
    /// A client of Kubernetes.
    Client {
        /// The version in which it wants its answer.
        version: Version,
        /// Whether it has given us its standard input, a terminal.
        interactive: bool,
    },
}

/// A version of ExecCredential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V1beta1,
}

/// A question that cannot be answered. Whoever has written the kubeconfig has to act.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QuestionError {
    #[error("KUBERNETES_EXEC_INFO is no ExecCredential")]
    Malformed,
    #[error(
        "KUBERNETES_EXEC_INFO is of version {0:?}: client.authentication.k8s.io/v1 and v1beta1 are known"
    )]
    Version(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    spec: QuestionSpec,
}

#[derive(Default, Deserialize)]
struct QuestionSpec {
    #[serde(default)]
    interactive: bool,
}

impl Asker {
    /// From the value of `KUBERNETES_EXEC_INFO`.
    pub(super) fn of(info: Option<&str>) -> Result<Self, QuestionError> {
        let Some(info) = info.filter(|info| !info.is_empty()) else {
            return Ok(Self::CommandLine);
        };
        let question: Question = serde_json::from_str(info).map_err(|_| QuestionError::Malformed)?;
        if question.kind != "ExecCredential" {
            return Err(QuestionError::Malformed);
        }
        let version = match question.api_version.as_str() {
            "client.authentication.k8s.io/v1" => Version::V1,
            "client.authentication.k8s.io/v1beta1" => Version::V1beta1,
            _ => return Err(QuestionError::Version(question.api_version)),
        };
        Ok(Self::Client { version, interactive: question.spec.interactive })
    }

    /// The answer.
    pub(super) fn answer(&self, tokens: &Tokens) -> Value {
        let version = match self {
            Self::CommandLine | Self::Client { version: Version::V1, .. } => "v1",
            Self::Client { version: Version::V1beta1, .. } => "v1beta1",
        };
        let mut answer = json!({
            "apiVersion": format!("client.authentication.k8s.io/{version}"),
            "kind": "ExecCredential",
            "status": { "token": tokens.id_token },
        });
        // A time that the calendar does not have ends never.
        if let Ok(expires) = Timestamp::from_second(tokens.expires) {
            answer["status"]["expirationTimestamp"] =
                expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn questions_are_read() {
        let info = |version: &str, spec: &str| {
            format!("{{\"kind\":\"ExecCredential\",\"apiVersion\":\"{version}\",\"spec\":{spec}}}")
        };
        let v1 = "client.authentication.k8s.io/v1";
        let client = |version, interactive| Ok(Asker::Client { version, interactive });
        for (info, expected) in [
            (None, Ok(Asker::CommandLine)),
            (Some(String::new()), Ok(Asker::CommandLine)),
            (Some(info(v1, "{\"interactive\":true}")), client(Version::V1, true)),
            (
                Some(info(v1, "{\"interactive\":false,\"cluster\":{\"server\":\"s\"}}")),
                client(Version::V1, false),
            ),
            (Some(info("client.authentication.k8s.io/v1beta1", "{}")), client(Version::V1beta1, false)),
            (
                Some(info("client.authentication.k8s.io/v1alpha1", "{}")),
                Err(QuestionError::Version("client.authentication.k8s.io/v1alpha1".to_owned())),
            ),
            (Some("{}".to_owned()), Err(QuestionError::Malformed)),
            (Some("what?".to_owned()), Err(QuestionError::Malformed)),
        ] {
            assert_eq!(Asker::of(info.as_deref()), expected, "{info:?}");
        }
    }

    #[test]
    fn answers_are_in_the_version_of_the_question() {
        let tokens = Tokens {
            id_token: "t".to_owned(),
            expires: 1_767_225_600,
            refresh_token: None,
            user: "u".to_owned(),
        };
        let asker = Asker::Client { version: Version::V1beta1, interactive: false };
        let answer = asker.answer(&tokens).to_string();
        assert_eq!(
            answer,
            "{\"apiVersion\":\"client.authentication.k8s.io/v1beta1\",\"kind\":\"ExecCredential\",\
             \"status\":{\"expirationTimestamp\":\"2026-01-01T00:00:00Z\",\"token\":\"t\"}}"
        );
        assert_eq!(Asker::CommandLine.answer(&tokens)["apiVersion"], "client.authentication.k8s.io/v1");
    }
}
