//! Flags of authentication and authorization.

use std::path::{Path, PathBuf};

use super::ShardLine;
use crate::authorization::{AuthorizationConfig, AuthorizationWebhookConfig};
use crate::flags::FlagError;
use crate::shard::{ShardAuthenticationConfig, ShardServiceAccountsConfig};
use crate::units::Timespan;

/// The private key of service accounts in the root directory.
const SERVICE_ACCOUNT_KEY: &str = "sa.key";

impl ShardLine {
    /// The settings of tokens, and the key to create because none is named.
    pub(super) fn service_accounts(
        &self,
        root_directory: &Path,
    ) -> Result<(ShardServiceAccountsConfig, Option<PathBuf>), FlagError> {
        let given = &self.0;
        let default = ShardServiceAccountsConfig::default();
        let private_key = given.path("service-account-private-key-file");
        let signing_key = given.path("service-account-signing-key-file").or_else(|| private_key.clone());
        let created = signing_key.is_none().then(|| root_directory.join(SERVICE_ACCOUNT_KEY));
        let issuers: Vec<String> = given.repeated("service-account-issuer").map(str::to_owned).collect();
        let mut key_files: Vec<PathBuf> =
            given.repeated("service-account-key-file").map(PathBuf::from).collect();
        if key_files.is_empty() {
            key_files.extend(private_key);
        }
        let max_validity = given.duration("service-account-max-token-expiration");
        let settings = ShardServiceAccountsConfig {
            signing_key: signing_key.or_else(|| created.clone()).map(Into::into),
            key_files: key_files.into_iter().map(Into::into).collect(),
            issuers: if issuers.is_empty() { default.issuers } else { issuers },
            audiences: given.list("api-audiences"),
            keys_url: given.parsed("service-account-jwks-uri", "https URL")?,
            lookup: given.switch("service-account-lookup", default.lookup),
            max_validity: max_validity.filter(|validity| *validity > Timespan::from_secs(0)),
        };
        Ok((settings, created))
    }

    pub(super) fn authentication(&self) -> Result<ShardAuthenticationConfig, FlagError> {
        let given = &self.0;
        Ok(ShardAuthenticationConfig {
            anonymous: given.switch("anonymous-auth", true),
            oidc: given.oidc()?,
            configuration: given.path("authentication-config").map(Into::into),
            webhook: given.token_webhook()?,
            workspaces: given.gate("WorkspaceAuthentication"),
        })
    }

    pub(super) fn authorization(&self) -> Result<AuthorizationConfig, FlagError> {
        let given = &self.0;
        let default = AuthorizationConfig::default();
        let order = given.list("authorization-order").into_iter().map(|name| {
            let kind = serde_json::from_value(name.as_str().into());
            kind.map_err(|_| FlagError::value("authorization-order", &name, "authorizer such as RBAC"))
        });
        let order = order.collect::<Result<Vec<_>, _>>()?;
        Ok(AuthorizationConfig {
            order: if order.is_empty() { default.order } else { order },
            always_allow_paths: given.list_or("authorization-always-allow-paths", default.always_allow_paths),
            always_allow_groups: default.always_allow_groups,
            webhook: self.authorization_webhook()?,
        })
    }

    fn authorization_webhook(&self) -> Result<Option<AuthorizationWebhookConfig>, FlagError> {
        let given = &self.0;
        let Some(kubeconfig) = given.path("authorization-webhook-config-file") else { return Ok(None) };
        let default = AuthorizationWebhookConfig::default();
        let ttl = |flag, default| given.duration(flag).unwrap_or(default);
        Ok(Some(AuthorizationWebhookConfig {
            kubeconfig: kubeconfig.into(),
            version: given.review_version("authorization-webhook-version", default.version)?,
            authorized_ttl: ttl("authorization-webhook-cache-authorized-ttl", default.authorized_ttl),
            unauthorized_ttl: ttl("authorization-webhook-cache-unauthorized-ttl", default.unauthorized_ttl),
        }))
    }
}
