//! Flags of authentication that several programs have.

use super::{FlagError, GivenFlags};
use crate::authentication::{OidcConfig, ReviewVersion, WebhookConfig};
use crate::shared::TrustConfig;

/// The versions of reviews that webhooks get.
const REVIEW_VERSIONS: [(&str, ReviewVersion); 2] =
    [("v1beta1", ReviewVersion::V1beta1), ("v1", ReviewVersion::V1)];

impl GivenFlags {
    /// The authorities of clients, and of proxies with identity headers.
    pub(super) fn trust(&self) -> TrustConfig {
        let default = TrustConfig::default();
        TrustConfig {
            client_ca: self.path("client-ca-file").map(Into::into),
            request_header_ca: self.path("requestheader-client-ca-file").map(Into::into),
            // As in Kubernetes: without names, every certificate of these authorities is trusted.
            request_header_allowed_names: self.list("requestheader-allowed-names"),
            username_headers: self.list_or("requestheader-username-headers", default.username_headers),
            uid_headers: self.list_or("requestheader-uid-headers", default.uid_headers),
            group_headers: self.list_or("requestheader-group-headers", default.group_headers),
            extra_header_prefixes: self
                .list_or("requestheader-extra-headers-prefix", default.extra_header_prefixes),
        }
    }

    /// The version of the reviews that a webhook gets.
    ///
    /// # Errors
    /// [`FlagError::Value`] for an unknown version.
    pub fn review_version(
        &self,
        flag: &'static str,
        default: ReviewVersion,
    ) -> Result<ReviewVersion, FlagError> {
        self.choice(flag, default, &REVIEW_VERSIONS, "v1beta1 or v1")
    }

    /// The OpenID Connect issuer.
    ///
    /// # Errors
    /// [`FlagError::Alone`] for an issuer without a client or the reverse.
    pub fn oidc(&self) -> Result<Option<OidcConfig>, FlagError> {
        let (issuer_url, client_id) = match (self.text("oidc-issuer-url"), self.text("oidc-client-id")) {
            (None, None) => return Ok(None),
            (Some(issuer), Some(client)) => (issuer.to_owned(), client.to_owned()),
            (Some(_), None) => return Err(FlagError::Alone("oidc-issuer-url", "oidc-client-id")),
            (None, Some(_)) => return Err(FlagError::Alone("oidc-client-id", "oidc-issuer-url")),
        };
        let text = |flag| self.text(flag).unwrap_or_default().to_owned();
        let default = OidcConfig::default();
        let algorithms = self.list("oidc-signing-algs");
        Ok(Some(OidcConfig {
            issuer_url,
            client_id,
            ca_file: self.path("oidc-ca-file").map(Into::into),
            username_claim: self.text("oidc-username-claim").map_or(default.username_claim, str::to_owned),
            username_prefix: text("oidc-username-prefix"),
            groups_claim: text("oidc-groups-claim"),
            groups_prefix: text("oidc-groups-prefix"),
            signing_algorithms: if algorithms.is_empty() { default.signing_algorithms } else { algorithms },
            required_claims: self.pairs("oidc-required-claim"),
        }))
    }

    /// The webhook that reviews tokens.
    ///
    /// # Errors
    /// [`FlagError::Value`] for an unknown version.
    pub fn token_webhook(&self) -> Result<Option<WebhookConfig>, FlagError> {
        let Some(kubeconfig) = self.path("authentication-token-webhook-config-file") else {
            return Ok(None);
        };
        let default = WebhookConfig::default();
        Ok(Some(WebhookConfig {
            kubeconfig: kubeconfig.into(),
            version: self.review_version("authentication-token-webhook-version", default.version)?,
            cache_ttl: self.duration("authentication-token-webhook-cache-ttl").unwrap_or(default.cache_ttl),
        }))
    }
}
