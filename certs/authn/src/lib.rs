//! Who is this? Client certificates, request headers, static tokens, service accounts, OIDC, webhook, chains
//! of them.
//!
//! The contract: the TLS layer completes every handshake (proof of possession checked, trust not) and hands
//! over the presented certificates as [`ConnectionCredentials`]; a [`Chain`] of [`Authenticator`]s then
//! judges each request by them and by its headers, and says [`Outcome::Identified`], [`Outcome::Anonymous`]
//! or [`Outcome::Rejected`]. Whoever asserts identities to the next server first removes what clients have
//! forged ([`strip_identity_headers`]) and then stamps his own ([`IdentityHeaders`]).
//!
//! This crate must not know routes, resources or rights: it never asks what a request is for. It knows no
//! server either; of HTTP it sees header maps, and it is a client of issuers and webhooks.
//!
//! # The chain of a gateway
//!
//! Everything below is optional, and so is each argument that has a default.
//!
//! ```no_run
//! use std::{path::Path, sync::Arc};
//!
//! use fairlead_authn::*;
//!
//! # fn chain(
//! #     authorities: SharedAuthorities,
//! #     shards: Arc<dyn ServiceAccountLookup>,
//! # ) -> Result<Chain, Box<dyn std::error::Error>> {
//! // --token-auth-file
//! let file = TokenFile::load(Path::new("tokens.csv"))?;
//! // --service-account-key-file; a reload calls `keys.replace`.
//! let keys = SharedKeys::new(ServiceAccountKeys::load(["sa.pub", "sa-old.pub"])?);
//! // --service-account-issuer, --api-audiences, --service-account-lookup
//! let accounts =
//!     ServiceAccountTokens::new(keys, ServiceAccountSettings::default(), LookUp::All(shards));
//! // --authentication-config; or --oidc-*: `JwtSettings::from_flags`.
//! let reserved = ["https://kcp.default.svc".to_owned()];
//! let configuration = AuthenticationConfiguration::load(Path::new("authn.yaml"), &reserved)?;
//! // Whoever answers requests without credentials asks `configuration.anonymous`.
//! let issuers = JwtAuthenticator::new(configuration.issuers);
//! issuers.start();
//! // --authentication-token-webhook-config-file
//! let webhook = TokenWebhook::from_kubeconfig(Path::new("webhook"), WebhookSettings::default())?;
//!
//! let tokens = TokenUnion::new().with(file).with(accounts).with(issuers).with(webhook);
//! let chain = Chain::builder()
//!     .with(RequestHeaderAuthenticator::new(authorities.clone(), ["proxy"], RequestHeaderNames::default()))
//!     .with(ClientCertificateAuthenticator::new(authorities))
//!     .with(tokens)
//!     // --authentication-pass-on-groups, --authentication-drop-groups
//!     .filter_groups(GroupFilter::from_flags(&[] as &[&str], &GroupFilter::PRIVILEGED))
//!     .build();
//! # Ok(chain)
//! # }
//! ```
//!
//! A request to a workspace with issuers of its own goes through [`Chain::authenticate_in`] with a
//! [`WorkspaceAuthenticator`] that is kept for as long as the workspace's configuration does not change.

mod authenticator;
mod authorities;
mod bearer;
mod certificate;
mod chain;
mod connection;
mod flights;
mod groups;
mod identity_headers;
mod jwt;
mod oidc;
mod remembered;
mod request_header;
mod service_account;
mod token_file;
mod tokens;
mod user;
mod webhook;
mod workspace;

pub use self::{
    authenticator::{Answer, Authenticator, CredentialKind, Observer, Presented, Reason, Verdict},
    authorities::{BundleError, CertificateAuthorities, SharedAuthorities, TrustError, TrustPurpose},
    bearer::{BearerToken, MalformedToken, remove_bearer_token, shows_token},
    certificate::{CertificateError, ClientCertificate, ClientCertificateAuthenticator, validity},
    chain::{Chain, ChainBuilder, Outcome, Rejection},
    connection::ConnectionCredentials,
    groups::GroupFilter,
    identity_headers::{IdentityHeaders, Unstampable, is_identity_header, strip_identity_headers},
    jwt::{Algorithm, KeyError, TokenFault, UnknownAlgorithm, VerificationKeys, in_cluster_claim},
    oidc::{
        AnonymousAccess, AuthenticationConfiguration, ConfigurationError, Fault, IssuerStatus,
        JwtAuthenticator, JwtSettings, KeyPatience, OidcFlags, Place,
    },
    request_header::{RequestHeaderAuthenticator, RequestHeaderNames},
    service_account::{
        DEFAULT_SERVICE_ACCOUNT_ISSUER, FoundObject, LookUp, LookupFailed, MalformedObject, ObjectReference,
        ReferencedKind, ServiceAccountKeyError, ServiceAccountKeys, ServiceAccountLookup,
        ServiceAccountSettings, ServiceAccountTokens, SharedKeys,
    },
    token_file::{TokenFile, TokenFileError},
    tokens::TokenUnion,
    user::{ANONYMOUS, AUTHENTICATED, Identity, Method, UNAUTHENTICATED, UserInfo},
    webhook::{ReviewVersion, TokenWebhook, UnknownReviewVersion, WebhookError, WebhookSettings},
    workspace::WorkspaceAuthenticator,
};
