//! The settings of authentication.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::setting::{plain_settings, settings};
use crate::units::Timespan;
use crate::values::{InputFile, SecretFile};

settings! {
    /// Authentication methods besides client certificates, and filters of groups.
    pub struct AuthenticationConfig {
        /// Peers whose identity headers are trusted: other front proxies, which send requests of mounted workspaces.
        request_header ("requestHeader"): RequestHeaderConfig = RequestHeaderConfig::default();
        /// CSV file with static tokens: token,user,uid[,"group1,group2"]. Flag: --token-auth-file.
        token_file ("tokenFile"): Option<SecretFile> = None;
        /// Tokens of service accounts.
        service_accounts ("serviceAccounts"): ServiceAccountConfig = ServiceAccountConfig::default();
        /// Tokens of one OpenID Connect issuer.
        oidc ("oidc"): Option<OidcConfig> = None;
        /// File with an AuthenticationConfiguration of apiserver.config.k8s.io: several issuers, claims mapped by CEL.
        /// Not together with oidc. Flag: --authentication-config.
        configuration ("configuration"): Option<InputFile> = None;
        /// A token review webhook.
        webhook ("webhook"): Option<WebhookConfig> = None;
        /// Whether workspace types may define issuers of their own. Flag: --feature-gates=WorkspaceAuthentication=true.
        workspaces ("workspaces"): bool = false;
        /// Groups that may reach shards, exact or with * at the end; empty means all groups.
        /// Flag: --authentication-pass-on-groups.
        pass_on_groups ("passOnGroups"): Vec<String> = Vec::new();
        /// Groups that are removed from every identity, exact or with * at the end; takes precedence over passOnGroups.
        /// Flag: --authentication-drop-groups.
        drop_groups ("dropGroups"): Vec<String> = DEFAULT_DROP_GROUPS.map(str::to_owned).into();
        /// Whether tokens (token file, OIDC, webhook, AuthenticationConfiguration) may assert the groups that grant rights at the
        /// gateway itself: system:kcp:admin and system:fairlead:*. If false, only client certificates and the identity headers of
        /// trusted proxies may assert them. With kcp-front-proxy's flags it is true, as there.
        privileged_token_groups ("privilegedTokenGroups"): bool = false;
    }

    /// Peers whose identity headers are trusted.
    pub struct RequestHeaderConfig {
        /// PEM bundle: authorities of their certificates. Without it no identity headers are trusted.
        /// Flag: --requestheader-client-ca-file.
        client_ca ("clientCA"): Option<InputFile> = None;
        /// Common names of those peers; empty means any. Flag: --requestheader-allowed-names.
        allowed_names ("allowedNames"): Vec<String> = Vec::new();
        /// Headers with the user's name. Flag: --requestheader-username-headers.
        username_headers ("usernameHeaders"): Vec<String> = vec!["X-Remote-User".to_owned()];
        /// Headers with the user's UID. Flag: --requestheader-uid-headers.
        uid_headers ("uidHeaders"): Vec<String> = Vec::new();
        /// Headers with a group each. Flag: --requestheader-group-headers.
        group_headers ("groupHeaders"): Vec<String> = vec!["X-Remote-Group".to_owned()];
        /// Prefixes of headers with extra attributes. Flag: --requestheader-extra-headers-prefix.
        extra_header_prefixes ("extraHeaderPrefixes"): Vec<String> = vec!["X-Remote-Extra-".to_owned()];
    }

    /// Tokens of service accounts.
    pub struct ServiceAccountConfig {
        /// PEM files with public or private keys; without any, shards verify these tokens.
        /// Flag: --service-account-key-file.
        key_files ("keyFiles"): Vec<InputFile> = Vec::new();
        /// Accepted issuers. Flag: --service-account-issuer.
        issuers ("issuers"): Vec<String> = vec!["https://kcp.default.svc".to_owned()];
        /// Accepted audiences; empty means the issuers. Flag: --api-audiences.
        audiences ("audiences"): Vec<String> = Vec::new();
        /// Whether the account, and the secret or pod that a token is bound to, must still exist, which the shard of the
        /// workspace confirms. Flag: --service-account-lookup.
        lookup ("lookup"): bool = true;
    }

    /// One OpenID Connect issuer.
    pub struct OidcConfig {
        /// URL of the issuer, as in its tokens. Flag: --oidc-issuer-url.
        issuer_url ("issuerURL"): String = String::new();
        /// The audience that its tokens must have. Flag: --oidc-client-id.
        client_id ("clientID"): String = String::new();
        /// PEM bundle: authorities of its serving certificate; the system's if absent. Flag: --oidc-ca-file.
        ca_file ("caFile"): Option<InputFile> = None;
        /// The claim with the user's name. Flag: --oidc-username-claim.
        username_claim ("usernameClaim"): String = "sub".to_owned();
        /// Prefix of user names. Default: the issuer's URL and #, or none for the claim email. The value - means no prefix.
        /// Flag: --oidc-username-prefix.
        username_prefix ("usernamePrefix"): String = String::new();
        /// The claim with the user's groups; empty for none. Flag: --oidc-groups-claim.
        groups_claim ("groupsClaim"): String = String::new();
        /// Prefix of groups. Flag: --oidc-groups-prefix.
        groups_prefix ("groupsPrefix"): String = String::new();
        /// Accepted signature algorithms. Flag: --oidc-signing-algs.
        signing_algorithms ("signingAlgorithms"): Vec<String> = vec!["RS256".to_owned()];
        /// Claims that must have these values. Flag: --oidc-required-claim.
        required_claims ("requiredClaims"): BTreeMap<String, String> = BTreeMap::new();
    }

    /// A token review webhook.
    pub struct WebhookConfig {
        /// Kubeconfig with its URL and credentials. Flag: --authentication-token-webhook-config-file.
        kubeconfig ("kubeconfig"): SecretFile = "webhook.kubeconfig".into();
        /// Version of TokenReview: v1beta1 or v1. Flag: --authentication-token-webhook-version.
        version ("version"): ReviewVersion = ReviewVersion::V1beta1;
        /// Time for which a result is cached. Flag: --authentication-token-webhook-cache-ttl.
        cache_ttl ("cacheTTL"): Timespan = Timespan::from_secs(120);
    }
}

/// Groups that kcp-front-proxy removes from every identity: their rights are meant for clients of shards.
const DEFAULT_DROP_GROUPS: [&str; 4] = [
    "system:masters",
    "system:kcp:logical-cluster-admin",
    "system:kcp:initializer:*",
    "system:kcp:terminator:*",
];

impl AuthenticationConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        if let Some(oidc) = &self.oidc {
            oidc.check(self.configuration.is_some(), checker);
        }
        let headers = &self.request_header;
        if headers.client_ca.is_some() && headers.username_headers.is_empty() {
            let hint = "X-Remote-User is the usual one";
            checker.fault("requestHeader.usernameHeaders", "no header for the user name is set", hint);
        }
    }
}

impl OidcConfig {
    /// Checks the key `oidc` of the settings that have this issuer.
    pub(crate) fn check(&self, has_configuration: bool, checker: &mut Checker) {
        if has_configuration {
            let hint = "put the issuer into the AuthenticationConfiguration";
            checker.fault("oidc", "oidc and configuration cannot be combined", hint);
        }
        checker.within("oidc", |checker| {
            for (key, value) in [("issuerURL", &self.issuer_url), ("clientID", &self.client_id)] {
                if value.is_empty() {
                    checker.fault(key, "an issuer needs its URL and a client ID", "set both");
                }
            }
            if !self.issuer_url.is_empty() && !self.issuer_url.starts_with("https://") {
                checker.fault("issuerURL", "an issuer is reached over https only", "begin with https://");
            }
        });
    }
}

/// A version of TokenReview or SubjectAccessReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReviewVersion {
    /// `v1beta1` of its group.
    V1beta1,
    /// `v1` of its group.
    V1,
}

plain_settings!(ReviewVersion, BTreeMap<String, String>);
