//! Responses to ACME challenges, as files that every gateway with access to the folder can serve.

use std::path::{Path, PathBuf};

/// A folder of challenge responses.
#[derive(Clone, Debug)]
pub(super) struct ChallengeResponses(PathBuf);

/// The file of a challenge response, removed on drop.
#[derive(Debug)]
pub(super) struct ChallengeResponse(PathBuf);

impl ChallengeResponses {
    pub(super) fn in_folder(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// For http-01: the response for a token.
    pub(super) fn put_token(
        &self,
        token: &str,
        text: &str,
    ) -> Result<Option<ChallengeResponse>, fairlead_certs::Error> {
        let Some(file) = self.of_token(token) else { return Ok(None) };
        fairlead_certs::write_secret(&file, text)?;
        Ok(Some(ChallengeResponse(file)))
    }

    /// For tls-alpn-01: the certificate for a name.
    pub(super) fn put_certificate(
        &self,
        name: &str,
        digest: &[u8],
    ) -> Result<ChallengeResponse, fairlead_certs::Error> {
        // The name that `ChallengeFolder` looks for.
        let file = self.0.join(format!("{name}.pem"));
        fairlead_certs::write_secret(&file, &fairlead_certs::challenge_certificate(name, digest)?)?;
        Ok(ChallengeResponse(file))
    }

    /// The response for a token.
    pub(super) async fn token(&self, token: &str) -> Option<Vec<u8>> {
        tokio::fs::read(self.of_token(token)?).await.ok()
    }

    /// `None` for an invalid token (RFC 8555, 8.1), which could name another file.
    fn of_token(&self, token: &str) -> Option<PathBuf> {
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (!token.is_empty() && token.len() <= 128 && token.bytes().all(is_base64))
            .then(|| self.0.join(format!("{token}.token")))
    }
}

impl Drop for ChallengeResponse {
    fn drop(&mut self) {
        // A file that remains is unused and harmless.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn a_challenge_response_exists_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let challenge_responses = ChallengeResponses::in_folder(folder.path().join("challenges"));
        let response = challenge_responses.put_token("a-b_1", "a-b_1.thumb").unwrap().unwrap();
        assert_eq!(challenge_responses.token("a-b_1").await.unwrap(), b"a-b_1.thumb");
        for token in ["", "..", "../lock", "a/b", "a-b_1.token", &"a".repeat(200)] {
            assert!(challenge_responses.token(token).await.is_none(), "{token}");
            assert!(challenge_responses.put_token(token, "x").unwrap().is_none(), "{token}");
        }
        drop(response);
        assert!(challenge_responses.token("a-b_1").await.is_none());
    }
}
